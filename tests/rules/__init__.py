"""One folder for each rule: a case that fires it, one that must not, and the whole report about the first."""

from collections.abc import Callable
from importlib import import_module

from hangdoc.reasoning.rules import all_rules
from hangdoc.snapshot import Snapshot

CODES = [rule.code for rule in all_rules()]


def fires(code: str) -> Snapshot:
    """What fires the rule."""
    return _of(code, "fires")


def quiet(code: str) -> Snapshot:
    """The most similar snapshot, on which the rule must not fire."""
    return _of(code, "quiet")


def _of(code: str, which: str) -> Snapshot:
    make: Callable[[], Snapshot] = getattr(import_module(f"tests.rules.{code.lower()}.case"), which)
    return make()
