"""Parses an answer of NCCL's RAS service: JSON from NCCL 2.28.7 on, text before. Both give one frozen value.

Nothing is asked here. An answer is bounded and untrusted: whatever is wrong with it is a `RasAnswerError` with one clause.
"""

from hangdoc.observe.gpu.ras_json import parse_json
from hangdoc.observe.gpu.ras_text import parse_text
from hangdoc.snapshot import RasAnswer
from hangdoc.untrusted import UntrustedError, size

MAX_BYTES = 16 << 20
"""A rank takes 600 bytes of JSON for each of its communicators: enough for 4,096 ranks with 6."""


class RasAnswerError(ValueError):
    """An answer can't be used. The text is one clause: `its answer is damaged (...)`."""


def parse_answer(raw: bytes) -> RasAnswer:
    """The answer to `VERBOSE STATUS`, without the lines with which the server acknowledges commands. Raises RasAnswerError."""
    if len(raw) > MAX_BYTES:
        raise RasAnswerError(f"its answer has more than {size(MAX_BYTES)}")
    try:
        return parse_json(raw, MAX_BYTES) if raw.lstrip()[:1] == b"{" else parse_text(raw.decode("ascii", "replace"))
    except UntrustedError as error:
        raise RasAnswerError(f"its answer {error}") from None
