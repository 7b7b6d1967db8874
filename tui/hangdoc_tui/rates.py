"""How many batches or calls a rank does per second: one rule for both.

It is that of the last ten seconds, and says of which time it is. Where ten of them usually take longer than that, it is the rate
from the end of one to the end of another.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

SECONDS = 10.0
"""Of this time, if the rank was observed for so long."""
_MANY = 10
"""So many tell a rate, also if the rank was observed for less time."""
_FEW = 3
"""Gaps that tell how far events are apart."""
_PAUSE_SECONDS = 2.0
"""A pause that is no longer is no stop."""

Points = Sequence[tuple[float, int]]
"""(seconds, number that was reached until then), ascending."""


class Rate(NamedTuple):
    """So many per second, in the last `seconds`, or for those of a slow rank until its last one."""

    per_second: float
    seconds: float


def find_rate(points: Points, now: float) -> Rate | None:
    """The rate at `now`, in seconds as those of `points`. None before one more or less matters little. 0 if the rank has
    stopped, since its last one."""
    if len(points) < 2:
        return None
    rises = [(point, later) for point, later in pairwise(points) if later[1] > point[1]]
    reached = [later for _, later in rises]
    usual, quiet = _find_usual_seconds(*rises[0], reached) if rises else None, now - reached[-1][0] if rises else 0.0
    if _has_stopped(reached, now) or (usual is not None and quiet >= max(SECONDS, 2 * usual)):
        return Rate(0.0, quiet)
    if usual is not None and usual * _MANY > SECONDS:
        return _find_slow_rate(reached, now)
    begin, before = _find_begin(points, now - SECONDS)
    seconds, done = now - begin, points[-1][1] - before
    if not seconds or (done < _MANY and (usual is None or seconds < SECONDS)):
        return None
    return Rate(done / seconds, seconds)


def _find_usual_seconds(begin: tuple[float, int], first: tuple[float, int], reached: Points) -> float | None:
    """How long most of them take, whatever the pauses are. Of those between the first two points, one may have begun earlier."""
    each = [((at - last) / (done - before), done - before) for (last, before), (at, done) in pairwise(reached)]
    if (whole := first[1] - begin[1] - 1) > 0:
        each.append(((first[0] - begin[0]) / whole, whole))
    each.sort()
    left = sum(number for _, number in each) / 2
    for seconds, number in each:
        left -= number
        if left <= 0:
            return seconds
    return None


def _has_stopped(reached: Points, now: float) -> bool:
    """Whether the last of them is more than twice as long ago as any pause that began or ended in its last ten seconds: a rank
    that makes its calls in bursts pauses between them."""
    if len(reached) <= _FEW:
        return False
    last = reached[-1][0]
    recent = max(_FEW, sum(last - at <= SECONDS for at, _ in reached))
    gaps = (later - at for (at, _), (later, _) in pairwise(reached[-recent - 1 :]))
    return now - last > max(_PAUSE_SECONDS, 2 * max(gaps))


def _find_begin(points: Points, at: float) -> tuple[float, int]:
    """The last point at a time or before it. Where the number was the same until later, that time itself."""
    for (before, number), (after, later) in pairwise(points):
        if before <= at < after:
            return at if number == later else before, number
    return points[0] if at < points[0][0] else (at, points[-1][1])


def _find_slow_rate(reached: Points, now: float) -> Rate | None:
    """From the time at which one was reached to that of another: a time of any other end would cut a slow one. At most as if
    another one were done `now`. None before the time between is long enough."""
    last, done = reached[-1]
    first = next(((at, number) for at, number in reversed(reached) if last - at >= SECONDS), None)
    if first is None:
        return None
    at, before = first
    return min(Rate((done - before) / (last - at), last - at), Rate((done - before + 1) / (now - at), now - at))
