"""A network link on which the ranks of a run spend most of their time.

Data that arrive late make a rank late too, so no rank sets the pace then.
"""

from typing import NamedTuple

from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.snapshot import Connection

_BUSY, _COMPUTING = 0.6, 0.4
_LEAST_WINDOW = 0.3
_FAST_BYTES = 1_000_000_000
"""A link that delivers this many bytes per second is not slow, however busy it is."""


class SlowLink(NamedTuple):
    """The busiest connection of a run that mostly waits for it."""

    rank: Rank
    connection: Connection
    busy_share: float
    """Share of the window in which data were in flight or waited to be sent."""
    bytes_per_second: float
    computing_share: float
    """Share of the time that the ranks computed at most."""


def find_slow_link(run: Run) -> SlowLink | None:
    """None if the ranks compute, or no link is busy and slow."""
    window = max((host.window_seconds for host in run.hosts), default=0.0)
    computing = max((rank.training_share for rank in run.living if rank.training_share is not None), default=1.0)
    links = [(rank, c) for rank in run.living for c in rank.connections if _is_slow(c)]
    if window < _LEAST_WINDOW or computing > _COMPUTING or not links:
        return None
    rank, busiest = max(links, key=lambda link: link[1].busy_ms or 0)
    share = (busiest.busy_ms or 0) / 1000 / window
    if share < _BUSY:
        return None
    return SlowLink(rank, busiest, share, (busiest.bytes_moved or 0) / window, computing)


def _is_slow(c: Connection) -> bool:
    """Whether it transferred bytes over a network link, and slowly."""
    over_link = bool(c.bytes_moved) and not c.local_address.startswith(("127.", "::1"))
    return over_link and (c.delivery_rate_bytes or 0) < _FAST_BYTES
