"""Parses an answer of NCCL's RAS service: JSON from NCCL 2.28.7 on, text before. Both give one frozen value.

Nothing is asked here. An answer is bounded and untrusted: whatever is wrong with it is a `RasAnswerError` with one clause.
"""

from msgspec.structs import replace

from hangdoc.observe.gpu.ras_json import parse_json
from hangdoc.observe.gpu.ras_text import parse_text
from hangdoc.snapshot import RasAnswer, RasCommunicator, RasRank
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


def is_uniform(communicator: RasCommunicator) -> bool:
    """Whether all ranks of a communicator are there, have launched the same and report no error."""
    ranks = communicator.ranks
    if communicator.missing or any(rank.init_state or rank.async_error or rank.aborted for rank in ranks):
        return False
    return all((rank.counts, rank.launched) == (ranks[0].counts, ranks[0].launched) for rank in ranks[1:])


def with_earlier(answer: RasAnswer, earlier: RasAnswer, seconds: float) -> RasAnswer:
    """The answer with the counts of one that was read `seconds` before. Those of an earlier job with the same pids are not used:
    the communicator must have the same hash."""
    before = {
        (communicator.hash, rank.rank): rank for communicator in earlier.communicators for rank in communicator.ranks
    }
    return replace(
        answer,
        seconds_between=round(seconds, 3),
        communicators=tuple(
            replace(
                communicator,
                ranks=tuple(
                    _with_before(rank, before.get((communicator.hash, rank.rank))) for rank in communicator.ranks
                ),
            )
            for communicator in answer.communicators
        ),
    )


def _with_before(rank: RasRank, before: RasRank | None) -> RasRank:
    if before is None or (before.host, before.pid) != (rank.host, rank.pid):
        return rank
    return replace(rank, counts_before=before.counts, launched_before=before.launched)
