"""Compares what ranks have launched: with each other, and with an earlier answer."""

from msgspec.structs import replace

from hangdoc.snapshot import RasAnswer, RasCommunicator, RasRank


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
