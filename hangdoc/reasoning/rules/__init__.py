"""The rules: one file each, found by their names. A rule's docstring is its page in `hangdoc rules` and the docs.

A rule turns a conclusion into text. It has `CODE` and `NAME` and either of two pure functions, or both:

- `say(run, blockage) -> Finding` for the kinds of blockages, or the causes of blockages, in its `ABOUT`. Each kind and each
  cause has exactly one rule.
- `check(run) -> Iterable[Finding]` for what is true of a run whether or not it is blocked.
"""

import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Protocol, cast

from hangdoc.diagnosis import Finding
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.model import Run


class Rule(Protocol):
    """What a rule module looks like."""

    CODE: str
    NAME: str
    ABOUT: tuple[type, ...]
    """Kinds and causes that it reports; may be missing if `say` is missing."""
    __doc__: str

    @staticmethod
    def say(run: Run, blockage: Blockage) -> Finding:
        """The finding about one blockage."""
        ...

    @staticmethod
    def check(run: Run) -> Iterable[Finding]:
        """Findings about a run as a whole."""
        ...


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the codes."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name.startswith("hd"))
    return tuple(cast(Rule, import_module(f"{__name__}.{name}")) for name in names)


@cache
def by_subject() -> dict[type, Rule]:
    """Which rule reports which kind or cause."""
    return {subject: rule for rule in all_rules() for subject in getattr(rule, "ABOUT", ())}
