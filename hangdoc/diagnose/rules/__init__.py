"""The rules: one file each, found by their names. A rule's docstring is its page in `hangdoc rules` and the docs.

A rule module has `CODE`, `NAME`, `EXPLAINS` (codes of findings that are its consequences) and
`check(run) -> Iterable[Finding]`, a pure function.
"""

import pkgutil
from collections.abc import Iterable
from importlib import import_module
from typing import Protocol, cast

from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Finding


class Rule(Protocol):
    """What a rule module looks like."""

    CODE: str
    NAME: str
    EXPLAINS: tuple[str, ...]
    __doc__: str

    @staticmethod
    def check(run: Run) -> Iterable[Finding]:
        """Findings of this rule for one job."""
        ...


def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the codes."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(cast(Rule, import_module(f"{__name__}.{name}")) for name in names)
