"""The cases of the card: hangbench's format, with two more fields."""

from functools import cache
from pathlib import Path

from hangbench.case import Case, parse

FOLDER = Path(__file__).parent / "cases"


class CardCase(Case, frozen=True, forbid_unknown_fields=True):
    """A case whose ranks share one card. Without a card, they use Gloo on the host."""

    needs_card: bool = False
    """Whether the case is about the card itself, so that it makes no sense with Gloo."""
    ends_itself: bool = False
    """Whether torch ends the run some time after the look. What it leaves behind is evidence."""


@cache
def card_cases() -> dict[str, CardCase]:
    """All cases by name: first the one that takes longest, then those that freeze."""
    cases = [parse(path, CardCase) for path in sorted(FOLDER.glob("*.py"))]
    return {case.name: case for case in sorted(cases, key=lambda case: (not case.ends_itself, case.control, case.name))}
