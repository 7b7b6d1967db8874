"""Base of what explains a blockage."""

from typing import ClassVar

from msgspec import Struct

from hangdoc.reasoning.model.holds import Ends


class Cause(Struct, frozen=True):
    """Why a blockage exists. The finding reports the cause, with the blockage as evidence."""

    NAME: ClassVar[str]
    culprits: tuple[int, ...] | None = None
    """The ranks to blame; None for the culprits of the blockage."""
    ends: Ends | None = None
    """Whether the blockage can end, if the cause decides it."""
