"""The result of a comparison of launch lines."""

from collections.abc import Collection, Iterable
from typing import Literal

import msgspec

from hangdoc.parse import natural

Standing = Literal["must differ", "must agree", "should agree", "suspicious", "tuning", "inert", "cosmetic", "unknown"]
ORDER: tuple[Standing, ...] = (
    "must differ", "must agree", "should agree", "suspicious", "unknown", "tuning", "inert", "cosmetic",
)  # fmt: skip


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One option, argument or variable in all lines."""

    name: str
    origin: Literal["where", "launcher", "around", "program", "argument", "variable"]
    """`around` is an option of srun, mpirun or a container that starts the launcher."""
    standing: Standing
    values: tuple[str | None, ...]
    """One for each line; None if not given."""
    why: str
    wrong: bool = False
    """Whether the run fails with these values, or does not do what was intended."""
    used: tuple[str | None, ...] = ()
    """What the launcher makes of them: its default where none is given, and one spelling for equal values. Empty: the values."""

    @property
    def differs(self) -> bool:
        """Whether two lines have different values."""
        return are_different(self.used or self.values)


def are_different(values: tuple[str | None, ...]) -> bool:
    """Whether two of the values are not equal."""
    return len(set(values)) > 1


def depend_on_default(values: Collection[str | None]) -> bool:
    """Whether an option has one value, and is left out elsewhere: the program's default, which may be that value, decides whether
    the values are equal. A flag has no such default: without it, it is off."""
    given = set(values) - {None}
    return None in values and len(given) == 1 and "(set)" not in given


def is_repeated(values: tuple[str | None, ...]) -> bool:
    """Whether two of the values are the same number. Others may become different ones: `$RANK`, `%n`."""
    numbers = [value for value in values if natural(value) is not None]
    return len(set(numbers)) < len(numbers)


def align_by_name(lines: Iterable[dict[str, str]]) -> list[tuple[str, tuple[str | None, ...]]]:
    """(name, its value in each line) of all names, sorted."""
    values_by_line = list(lines)
    names = sorted({name for values in values_by_line for name in values})
    return [(name, tuple(values.get(name) for values in values_by_line)) for name in names]
