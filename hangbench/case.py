"""A case: a small training script whose header says how it is started and what a right diagnosis of it says.

The header is a TOML block in comments, as in inline script metadata (PEP 723); the docstring is the ground truth in two
sentences. A new case is one new file in `cases/`, and nobody else notices.
"""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

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
    """One launcher of the case: what differs on its node."""

    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    ranks: int | None = None
    """Ranks of this node; the case's `ranks` divided among the nodes where it says nothing."""


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a script is started, and what is true of it then."""

    name: str
    truth: str
    verdict: tuple[str, ...]
    """The verdicts that are right; several where a healthy run is sometimes waiting."""
    ranks: int = 2
    launch: Literal["torchrun", "itself", "mpi", "environment", "scenario"] = "torchrun"
    """`scenario` starts the included trainer's situation of the case's name; `itself` is a script that starts its ranks."""
    nodes: tuple[Node, ...] = (Node(),)
    situation: str | None = None
    """A name of `situations.SITUATIONS`: what is done to the machine around the run."""
    requires: tuple[str, ...] = ()
    """Distributions without which the case is left out."""
    states: tuple[str, ...] = ()
    """By rank; empty where several are right."""
    operations: tuple[str, ...] = ()
    """By rank; empty for none or where several are right."""
    finding: str | None = None
    """The leading finding; None where none but a note may stand there."""
    severity: str = "error"
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    also: tuple[str, ...] = ()
    """Codes that may stand beside the truth without being wrong."""
    patience: float | None = None
    ready: int | None = None
    """How many ranks announce themselves; all by default."""

    @property
    def control(self) -> bool:
        """Whether the run is not hung."""
        return "hung" not in self.verdict

    @property
    def labels(self) -> tuple[str | None, ...]:
        """By rank, as the states say; None where several are right."""
        return tuple(label_of(state) if state else None for state in self.states)

    @property
    def tolerance(self) -> float:
        """The `--patience` it is looked at with: short for a hang, so that nobody waits; the command's own for a control."""
        if self.patience is not None:
            return self.patience
        return _UNSETTLED if self.control else _SETTLED

    @property
    def script(self) -> Path:
        """The file that is run."""
        return FOLDER / f"{self.name}.py"


def label_of(state: str) -> str:
    """The contract's label of a state."""
    return next((label for label, states in _LABELS.items() if state in states), "blocked")


def parse(path: Path) -> Case:
    """The case a script describes; raises ValueError with the file's name for a header that is none."""
    text = path.read_text()
    block = _BLOCK.search(text)
    truth = ast.get_docstring(ast.parse(text))
    if block is None or not truth:
        raise ValueError(f"{path}: a case needs a docstring and a `# /// hangbench` block")
    header = tomllib.loads("\n".join(line[2:] for line in block[1].splitlines()))
    try:
        return msgspec.convert({**header, "name": path.stem, "truth": truth}, Case)
    except msgspec.ValidationError as error:
        raise ValueError(f"{path}: {error}") from error


@cache
def cases() -> dict[str, Case]:
    """All cases by name."""
    return {path.stem: parse(path) for path in sorted(FOLDER.glob("*.py"))}
