"""The rules: one file each. Its name is the code and name of the rule, its docstring the page in `hangdoc rules` and the docs.

A rule turns a conclusion into text, with pure functions of one or both kinds:

- `(run, blockage, subject) -> Draft`, marked `@about(...)` with the kinds or causes of blockages that it writes about. Each
  kind and each cause has exactly one such function.
- `check(run) -> Iterable[Draft]` for what is true of a run whether or not it is blocked.
"""

import inspect
import pkgutil
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.rules.draft import WRITERS, Draft, Writer


class Rule(NamedTuple):
    """The rule of a file `hd101_shard_mismatch.py`."""

    code: str
    """`HD101`."""
    name: str
    """`shard-mismatch`."""
    page: str
    """Its page without the title, as Markdown."""
    module: str
    check: Callable[[Run], Iterable[Draft]]
    """Writes about a run as a whole."""

    @property
    def says(self) -> str:
        """What it finds, in one line."""
        return self.page.splitlines()[0]

    @property
    def titled_page(self) -> str:
        """Its whole page."""
        return f"# {self.code} {self.name}\n\n{self.page}"


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the codes."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("hd"))
    return tuple(map(_rule, names))


def _rule(file: str) -> Rule:
    module = import_module(f"{__name__}.{file}")
    code, _, name = file.partition("_")
    page = inspect.cleandoc(module.__doc__ or "")
    return Rule(code.upper(), name.replace("_", "-"), page, module.__name__, getattr(module, "check", lambda run: ()))


@cache
def by_subject() -> dict[type, tuple[Rule, Writer[Any]]]:
    """Which function of which rule writes about which kind or cause."""
    rules = {rule.module: rule for rule in all_rules()}
    return {subject: (rules[write.__module__], write) for subject, write in WRITERS.items()}
