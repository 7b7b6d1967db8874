"""What a page shows of a job beyond its diagnosis, as frozen values. `hangdoc.diagnose.detail` makes them."""

from dataclasses import dataclass

from hangdoc.diagnosis import Label
from hangdoc.snapshot import Frame


@dataclass(frozen=True)
class WaitNode:
    """Ranks that wait at one point, do the same without waiting, or could not be looked at."""

    ranks: tuple[int, ...]
    """Ascending."""
    label: Label | None
    """None for ranks that were not observed."""
    doing: str
    """One phrase: `waits in barrier`."""
    place: str | None = None
    """`train.py:15`."""
    source: str | None = None
    """The line of code there."""
    culprit: bool = False


@dataclass(frozen=True)
class WaitGraph:
    """Who waits for whom."""

    nodes: tuple[WaitNode, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    """(who waits, for whom), by positions in `nodes`, ascending; both the same where ranks of one node wait for each other."""
    apart: int = 0
    """How many ranks are left out, because they wait for nobody and nobody waits for them."""


@dataclass(frozen=True)
class Branch:
    """Frames that exactly these ranks have in common, outermost first, and where they part. No frames at the root."""

    ranks: tuple[int, ...]
    frames: tuple[Frame, ...]
    branches: tuple["Branch", ...]


@dataclass(frozen=True)
class Batches:
    """Ranks that have done equally many batches."""

    ranks: tuple[int, ...]
    done: int
    total: int | None
    """How many they expect; None where nobody can tell."""
    ended: bool
    """Whether they have left their loop over the data."""
    culprit: bool


@dataclass(frozen=True)
class Setting:
    """An argument or a variable in which ranks differ."""

    name: str
    """As a person writes it: `--lr`, `OMP_NUM_THREADS`."""
    standing: str
    """`must agree`, `should agree`, `names data`, `unknown`, `tuning`, `inert`, `meant to differ`."""
    why: str
    values: tuple[tuple[str | None, tuple[int, ...]], ...]
    """Each value (None: not set) with the ranks that have it, the commonest first."""


@dataclass(frozen=True)
class Detail:
    """All of it, for one job."""

    job: str
    """The job's id."""
    graph: WaitGraph
    batches: tuple[Batches, ...]
    """Culprits first, then those that have done least."""
    stacks: Branch
    settings: tuple[Setting, ...]
    """The gravest first."""
