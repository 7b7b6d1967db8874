"""What the page shows of a job in addition to its diagnosis, as frozen values. `hangdoc.reasoning.views.detail` makes them."""

from typing import Literal

from msgspec import Struct

from hangdoc.diagnosis import Label
from hangdoc.snapshot import Frame

Began = Literal["call", "data"]


class WaitNode(Struct, frozen=True):
    """Ranks that wait at one point, that do the same without waiting, or that could not be observed."""

    ranks: tuple[int, ...]
    """Ascending."""
    label: Label | None
    """None for ranks that were not observed."""
    doing: str
    """One phrase: `waits in barrier`."""
    place: str | None = None
    """`train.py:15`."""
    source: str | None = None
    """The source line at `place`."""
    culprit: bool = False


class WaitGraph(Struct, frozen=True):
    """Which ranks wait for which."""

    nodes: tuple[WaitNode, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    """(waiting node, awaited node), as positions in `nodes`, ascending. Equal if ranks of one node wait for each other."""
    apart: int = 0
    """Number of ranks that are not shown, because they wait for no rank and no rank waits for them."""


class Branch(Struct, frozen=True):
    """A node in the tree of stacks: the frames that exactly these ranks share, outermost first, and the branches below them. The
    root has no frames."""

    ranks: tuple[int, ...]
    frames: tuple[Frame, ...]
    branches: tuple["Branch", ...]


class Batches(Struct, frozen=True):
    """Ranks that have done the same number of batches."""

    ranks: tuple[int, ...]
    done: int
    total: int | None
    """The number that they expect; None if unknown."""
    ended: bool
    """Whether they run no further batch."""
    culprit: bool
    pass_number: int | None = None
    """The pass over the data that they are in, from 1. None if unknown, and if all ranks are in one."""


class Setting(Struct, frozen=True):
    """An argument or a variable in which ranks differ."""

    name: str
    """As users write it: `--lr`, `OMP_NUM_THREADS`."""
    standing: str
    """`must agree`, `should agree`, `names data`, `unknown`, `tuning`, `inert`, `may differ`."""
    why: str
    values: tuple[tuple[str | None, tuple[int, ...]], ...]
    """Each value (None: not set) with its ranks, the most frequent first."""


class Detail(Struct, frozen=True):
    """All details of one job."""

    job: str
    """The job's id."""
    graph: WaitGraph
    batches: tuple[Batches, ...]
    """Culprits first, then the fewest batches."""
    stacks: Branch
    settings: tuple[Setting, ...]
    """The most severe first."""
    began: Began | None = None
    """What the ranks that wait did last, `Job.hung_for_seconds` ago: they made the call that they wait in, or exchanged data.
    None if neither is known, or if the job does not hang."""
