"""The rules: one file each, found by their names. A rule's docstring is its page in `hangdoc rules` and the docs.

A rule turns a conclusion into text. It has `CODE` and `NAME` and pure functions of one or both kinds:

- `(run, blockage, subject) -> Draft`, marked `@about(...)` with the kinds or causes of blockages that it writes about. Each
  kind and each cause has exactly one such function.
- `check(run) -> Iterable[Draft]` for what is true of a run whether or not it is blocked.
"""

import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

from hangdoc.reasoning.model import Run
from hangdoc.reasoning.rules.draft import WRITERS, Draft, Writer


class Rule(Protocol):
    """What a rule module looks like."""

    CODE: str
    NAME: str
    __name__: str
    __doc__: str

    @staticmethod
    def check(run: Run) -> Iterable[Draft]:
        """Findings about a run as a whole; may be missing."""
        ...


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the codes."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name.startswith("hd"))
    return tuple(cast(Rule, import_module(f"{__name__}.{name}")) for name in names)


@cache
def by_subject() -> dict[type, tuple[Rule, Writer[Any]]]:
    """Which function of which rule writes about which kind or cause."""
    rules = {rule.__name__: rule for rule in all_rules()}
    return {subject: (rules[write.__module__], write) for subject, write in WRITERS.items()}
