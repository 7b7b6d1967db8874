"""The result of a comparison of launch lines."""

from typing import Literal

import msgspec

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

    @property
    def differs(self) -> bool:
        """Whether two lines have different values."""
        return len(set(self.values)) > 1
