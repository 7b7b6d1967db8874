"""Fuzzing of everything that reads what a stranger wrote: bundles, ELF files, memory, source, answers in JSON.

Each target makes an input from dice, and gives it to the reader. The reader must return evidence that can be stored, or raise
the error of its documentation; within a bound of CPU time and of memory. `python -m tests.hostile.fuzz --seconds 600` runs them
for as long as you like (`make fuzz`), `test_fuzz.py` for about a minute.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple


class Target(NamedTuple):
    """A reader with its attacker."""

    name: str
    attack: Callable[[Random], None]
    """Raises AssertionError, or whatever the reader must not raise."""
    examples: int
    """In CI: about ten seconds."""
