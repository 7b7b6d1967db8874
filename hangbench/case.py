"""A case: a small training script whose header defines how it is started and what the right diagnosis is.

The header is a TOML block in comments, like inline script metadata (PEP 723). The docstring is the ground truth in two
sentences. A new case is one new file in `cases/`; nothing else needs to change.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

FOLDER = Path(__file__).parent / "cases"
_BLOCK = re.compile(r"^# /// hangbench\n((?:#.*\n)+?)# ///$", re.MULTILINE)
_LABELS = {
    "computing": ("computing", "loading-data", "compiling", "checkpointing", "evaluating"),
    "dead": ("exited", "killed", "zombie", "missing"),
}
_SETTLED = 2.0
_UNSETTLED = 30.0


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One launcher of the case, with what is different on its node."""

    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    ranks: int | None = None
    """Ranks of this node. By default, the case's `ranks` are divided equally among the nodes."""


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a script is started, and the right diagnosis of it."""

    name: str
    truth: str
    verdict: tuple[str, ...]
    """The right verdicts; several if a healthy run sometimes waits."""
    ranks: int = 2
    launch: Literal["torchrun", "itself", "mpi", "environment", "scenario"] = "torchrun"
    """`scenario` starts the scenario of the included trainer with the case's name. `itself`: the script starts its own ranks."""
    nodes: tuple[Node, ...] = (Node(),)
    situation: str | None = None
    """A name of `situations.SITUATIONS`: a change of the machine around the run."""
    requires: tuple[str, ...] = ()
    """Python distributions that the case needs. Without them it is skipped."""
    states: tuple[str, ...] = ()
    """By rank; empty if several are right."""
    operations: tuple[str, ...] = ()
    """By rank; empty for none, or if several are right."""
    finding: str | None = None
    """The code of the first finding; None if there may be only notes (severity `info`)."""
    severity: str = "error"
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    also: tuple[str, ...] = ()
    """Codes of further findings that are not wrong."""
    patience: float | None = None
    known_miss: str | None = None
    """What hangdoc does not tell here, and why it does not try: the verdict is right, and something else is not."""
    ready: int | None = None
    """How many ranks print `ready`; all by default."""
    folder: Path = FOLDER
    """Where the script is. `parse` sets it; a header cannot."""

    @property
    def control(self) -> bool:
        """Whether this is a control: a run that is not hung."""
        return "hung" not in self.verdict

    @property
    def labels(self) -> tuple[str | None, ...]:
        """By rank, from the states; None if several are right."""
        return tuple(label_of(state) if state else None for state in self.states)

    @property
    def tolerance(self) -> float:
        """The `--patience` for the look: short for a hang, to save time; the default of the command for a control."""
        if self.patience is not None:
            return self.patience
        return _UNSETTLED if self.control else _SETTLED

    @property
    def script(self) -> Path:
        """The file that is run."""
        return self.folder / f"{self.name}.py"


AnyCase = TypeVar("AnyCase", bound=Case)


def label_of(state: str) -> str:
    """The label of a state, as in the contract."""
    return next((label for label, states in _LABELS.items() if state in states), "blocked")


def parse(path: Path, kind: type[AnyCase]) -> AnyCase:
    """The case in a script. `kind` has the fields that its header may have. Raises ValueError with the file's name for an invalid
    header."""
    text = path.read_text()
    block = _BLOCK.search(text)
    truth = ast.get_docstring(ast.parse(text))
    if block is None or not truth:
        raise ValueError(f"{path} lacks a docstring or a `# /// hangbench` block")
    header = msgspec.toml.decode("\n".join(line[2:] for line in block[1].splitlines()))
    try:
        return msgspec.convert({**header, "name": path.stem, "truth": truth, "folder": path.parent}, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{path}: {error}") from error


@cache
def cases() -> dict[str, Case]:
    """All cases by name."""
    return {path.stem: parse(path, Case) for path in sorted(FOLDER.glob("*.py"))}
