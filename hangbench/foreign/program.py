"""A foreign program: how to install and start it, its faults, and the right diagnoses."""

from dataclasses import dataclass, field

HUNG = ("hung",)
GOING = ("healthy", "waiting")
"""The right verdicts for a healthy run: a look may find one rank at work while the other one waits for it."""


@dataclass(frozen=True)
class Situation:
    """One way to start the program, and the right answer to it.

    `commands` are shell lines, one for each node, started together. They see IN (inputs), OUT (an empty folder), PORT and
    PORT2 (free). `act` is a shell line, run once the log has `begun` matches of the program's `progress`; it sees RANK0,
    RANK1 ... (their pids). `verdict` has the right verdicts. `culprits` are the right sets of culprits (if two nodes
    disagree, the culprit may be either or both); None if culprits are not compared. `codes` are the findings with the true
    cause. Without codes, only notes (severity `info`) are right.
    """

    name: str
    truth: str
    commands: tuple[str, ...]
    verdict: tuple[str, ...] = GOING
    culprits: tuple[frozenset[int], ...] | None = None
    codes: tuple[str, ...] = ()
    act: str | None = None
    begun: int = 8
    world: int | None = None
    """Number of ranks in the report, if not the program's. 0: any number (nodes without a rendezvous have no rank)."""

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong with the run."""
        return not self.codes

    @property
    def has_culprits(self) -> bool:
        """Whether an answer about the culprits can be wrong. It cannot if each rank alone is right."""
        alone = {rank for ranks in self.culprits or () if len(ranks) == 1 for rank in ranks}
        return self.culprits is not None and len(alone) < 2


@dataclass(frozen=True)
class Program:
    """An entry point of a package.

    `install` is the name of its virtual environment and the arguments of pip. `alone` is installed afterwards without
    dependencies, if those require another torch. `inputs` is the function of inputs.py that makes its files.
    """

    name: str
    package: str
    entry: str
    install: tuple[str, ...]
    situations: tuple[Situation, ...]
    inputs: str | None = None
    progress: str = r"'loss'"
    environment: dict[str, str] = field(default_factory=dict)
    world: int = 2
    alone: tuple[str, ...] = ()


def hung(name: str, truth: str, culprit: int | tuple[tuple[int, ...], ...] | None, codes: str, *commands: str,
         act: str | None = None, begun: int = 8, verdict: tuple[str, ...] = HUNG,
         world: int | None = None) -> Situation:  # fmt: skip
    """A situation with a fault. `codes` are separated by blanks."""
    sets = ((culprit,),) if isinstance(culprit, int) else culprit
    culprits = None if sets is None else tuple(frozenset(ranks) for ranks in sets)
    return Situation(name, truth, commands, verdict, culprits, tuple(codes.split()), act, begun, world)


def healthy(*commands: str, name: str = "healthy", begun: int = 8) -> Situation:
    """A run in which nothing is wrong."""
    return Situation(name, "Nothing is wrong: the run trains.", commands, begun=begun)
