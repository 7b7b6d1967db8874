"""Base of what explains a blockage."""

from typing import ClassVar

from msgspec import Struct

from hangdoc.diagnose.ranks.holds import Ends


class Cause(Struct, frozen=True):
    """Why a blockage came about. The finding speaks of it, with the blockage as its evidence."""

    NAME: ClassVar[str]
    culprits: tuple[int, ...] | None = None
    """Whom it blames; None for whom the blockage blames."""
    ends: Ends | None = None
    """Whether the blockage can end, where the cause tells."""
