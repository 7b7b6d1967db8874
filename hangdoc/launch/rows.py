"""What a comparison of launch lines gives."""

from typing import Literal

import msgspec

Standing = Literal["must differ", "must agree", "should agree", "suspicious", "tuning", "inert", "cosmetic", "unknown"]
ORDER: tuple[Standing, ...] = (
    "must differ", "must agree", "should agree", "suspicious", "unknown", "tuning", "inert", "cosmetic",
)  # fmt: skip


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One thing over all lines."""

    name: str
    origin: Literal["where", "launcher", "program", "argument", "variable"]
    standing: Standing
    values: tuple[str | None, ...]
    """One for each line; None where it is not given."""
    why: str
    wrong: bool = False
    """Whether the run can't work like this, or not as meant."""

    @property
    def differs(self) -> bool:
        """Whether two lines say different things."""
        return len(set(self.values)) > 1
