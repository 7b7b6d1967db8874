"""Things of which two ranks have different amounts."""

import msgspec

from hangdoc.diagnosis import Evidence


class Difference(msgspec.Struct, frozen=True):
    """One thing of which two ranks have different amounts."""

    fewer: int
    more: int
    evidence: tuple[Evidence, ...]
    unit: str = ""
    """`batches` if only their number is known; `files` for units that hold many batches each."""
    weight: float = 0.5
    """How strongly it shows that the amount of data differs, 0 to 1."""
