"""Which dumps are of one run.

A dump names neither its run, nor its host, nor its process. But a rank comes out of an all_reduce only after all ranks of the
group have made it. So two dumps of one run agree about each call of a group that both ranks are in: none has made it after the
other one had finished it, and none has finished a call that the other one has not made. The clocks of two hosts may differ, but
then by the same amount at all calls.
"""

from collections.abc import Iterable
from typing import NamedTuple

from hangdoc.dumps.rank_dump import LATE_US, SKEW_US, GroupKey, RankDump
from hangdoc.phrases import amount, duration
from hangdoc.snapshot import FlightRecorder

_US = 1_000_000
_DRIFT_US = _US // 2
"""How much the difference of two clocks may change within a record."""
_NOTABLE_SKEW_US = 3 * _US
"""Hosts whose clocks are set over the network differ by less."""
_NEVER_US = 1 << 63


class Fit(NamedTuple):
    """How a dump fits a run."""

    misfit: str | None = None
    """Why it is of another run, as a clause after the name of the file; None if it may be of this one."""
    agrees: bool = False
    """Whether calls of both agree. Without, nothing in the files shows that they are of one run."""
    skew_us: int = 0
    """How far its clock is ahead of that of the run, at the least."""


class Run:
    """The dumps of one run, and what they say together. Times are those of the clock of its first dump."""

    def __init__(self) -> None:
        self.dumps: dict[int, RankDump] = {}
        """The best dump of each rank."""
        self.surplus: list[RankDump] = []
        """Other dumps of the same processes: an older one, or the other format of torch."""
        self.unsure: list[RankDump] = []
        """Those of which nothing shows whether they are of this run."""
        self.skews_us: dict[str, int] = {}
        """How far the clock of a rank must be ahead, by the name of its file; negative if it is behind."""
        self.size: int | None = None
        """The size of the default group; None if no dump says it."""
        self.last_us = 0
        """The newest time; 0 without calls."""
        self._first_us, self._ends_us = _NEVER_US, _NEVER_US
        """The time of the oldest call that is recorded, and when torch ends the run."""
        self._made_us: dict[GroupKey, dict[int, int]] = {}
        self._finished_us: dict[GroupKey, dict[int, int]] = {}
        """When the last rank made a call, and when the first rank noticed its end, by its number."""
        self._fewest: dict[GroupKey, int] = {}
        self._most_finished: dict[GroupKey, int] = {}

    def has_place_for(self, dump: RankDump) -> bool:
        """Whether it lacks the rank of a dump and may have such a rank."""
        return dump.rank not in self.dumps and (None in (self.size, dump.size) or self.size == dump.size)

    def fit(self, dump: RankDump) -> Fit:
        """Whether a dump can be of this run."""
        if self.size is not None and dump.size is not None and self.size != dump.size:
            return Fit(f"its default group has {amount(dump.size, 'rank')}, and that of the others {self.size}")
        same_rank = self.dumps.get(dump.rank)
        if same_rank is not None and _are_of_one_process(dump, same_rank):
            return Fit(agrees=True)
        fit = self._compare_counts(dump) or self._compare_times(dump) or self._compare_lifetimes(dump)
        if same_rank is not None and fit.misfit is None:
            newer = same_rank.name if same_rank.last_us >= dump.last_us else dump.name
            return Fit(
                f"{same_rank.name} is of the same rank, and nothing in the files shows which of them is of their run: "
                f"{newer} is the newer one"
            )
        return fit

    def add(self, dump: RankDump, fit: Fit) -> None:
        """Make it one of this run's."""
        other = self.dumps.get(dump.rank)
        if other is not None:
            better, worse = (dump, other) if _is_better(dump, other) else (other, dump)
            self.dumps[dump.rank] = better
            self.surplus.append(worse)
            return
        if self.size is None:
            self.size = dump.size
        if dump.last_us:
            self.last_us = max(self.last_us, dump.last_us)
            self._first_us, self._ends_us = min(self._first_us, dump.first_us), min(self._ends_us, dump.ends_us)
        if self.dumps and not fit.agrees:
            self.unsure.append(dump)
        if abs(fit.skew_us) >= _NOTABLE_SKEW_US:
            self.skews_us[dump.name] = fit.skew_us
        self.dumps[dump.rank] = dump
        for key, calls in dump.calls.items():
            made, finished = self._made_us.setdefault(key, {}), self._finished_us.setdefault(key, {})
            for number, at in calls.made_us.items():
                made[number] = max(made.get(number, 0), at - fit.skew_us)
            for number, at in calls.finished_us.items():
                finished[number] = min(finished.get(number, at - fit.skew_us), at - fit.skew_us)
            if calls.total is not None:
                self._fewest[key] = min(calls.total, self._fewest.get(key, calls.total))
            self._most_finished[key] = max(calls.last_finished, self._most_finished.get(key, 0))

    def _compare_counts(self, dump: RankDump) -> Fit | None:
        for key, most in self._most_finished.items():
            count = dump.count_of(key) if dump.rank in key.ranks else None
            if count is not None and count < most:
                made = f"{count:,} call{'s' * (count != 1)}"
                return Fit(f"it has made {made} in {key.text}, in which the others have finished number {most:,}")
        for key, calls in dump.calls.items():
            fewest = self._fewest.get(key)
            if fewest is None:  # the first one with calls in this group; the others may have made none
                counts = (self.dumps[rank].count_of(key) for rank in key.ranks if rank in self.dumps)
                fewest = min((count for count in counts if count is not None), default=None)
            last = calls.last_finished
            if fewest is not None and fewest < last:
                return Fit(
                    f"it has finished call {last:,} in {key.text}, in which another rank has made only {fewest:,}"
                )
        return None

    def _compare_times(self, dump: RankDump) -> Fit | None:
        """None if the calls that both have made show nothing."""
        least: list[int] = []
        most: list[int] = []
        for key, calls in dump.calls.items():
            made, finished = self._made_us.get(key, {}), self._finished_us.get(key, {})
            least += [at - finished[number] for number, at in calls.made_us.items() if number in finished]
            most += [at - made[number] for number, at in calls.finished_us.items() if number in made]
        # Its clock is ahead by at least the largest of `least`, and by at most the smallest of `most`.
        low, high = max(least, default=None), min(most, default=None)
        if low is not None and high is not None and low - high > _DRIFT_US:
            return Fit("the times of its calls do not agree with those of the others")
        skew = max(0, low or 0) or min(0, high or 0)
        if abs(skew) > SKEW_US:
            age = f"{duration(abs(skew) / _US)} {'later' if skew > 0 else 'earlier'}"
            return Fit(f"it made the calls with the same numbers {age} than the others")
        return Fit(agrees=True, skew_us=skew) if low is not None and high is not None else None

    def _compare_lifetimes(self, dump: RankDump) -> Fit:
        if dump.first_us > max(self.last_us, self._ends_us) + LATE_US:
            return Fit(f"its calls begin {_between(self.last_us, dump.first_us)} after the last one of the others")
        if self._first_us > dump.ends_us + LATE_US:
            return Fit(f"its calls end {_between(dump.last_us, self._first_us)} before the first one of the others")
        return Fit()


def _between(before_us: int, after_us: int) -> str:
    return duration(max(0, after_us - before_us) / _US)


def group_by_run(dumps: Iterable[RankDump]) -> list[Run]:
    """The runs that dumps are of, the newest one first. A dump without calls is in the newest run that lacks its rank."""
    runs: list[Run] = []
    without_calls, undecided = [], []
    for dump in sorted(dumps, key=lambda each: (each.rank, -each.last_us)):
        if not dump.last_us:
            without_calls.append(dump)
        elif not _join(dump, runs, sure=True):
            undecided.append(dump)
    for dump in undecided:
        _join(dump, runs, sure=False)
    runs.sort(key=lambda run: run.last_us, reverse=True)
    for dump in without_calls:
        fitting = [run for run in runs if run.has_place_for(dump)]
        same_rank = [run for run in runs if dump.rank in run.dumps]
        ([*fitting, *same_rank] or [_new(runs)])[0].add(dump, Fit(agrees=True))
    return runs


def _new(runs: list[Run]) -> Run:
    runs.append(Run())
    return runs[-1]


def _join(dump: RankDump, runs: list[Run], *, sure: bool) -> bool:
    """Put a dump into the run that it fits best, or into a new one if it fits none. Returns whether that was done: if `sure`, not
    for a dump of which nothing shows whether it fits."""
    fits = [(run, fit) for run in runs if (fit := run.fit(dump)).misfit is None]
    agreeing = [(run, fit) for run, fit in fits if fit.agrees]
    if agreeing:
        run, fit = min(agreeing, key=lambda each: abs(each[1].skew_us))
        run.add(dump, fit)
    elif not fits:
        _new(runs).add(dump, Fit())
    elif sure:
        return False
    else:
        run, fit = min(fits, key=lambda each: abs(each[0].last_us - dump.last_us))
        run.add(dump, fit)
    return True


def _are_of_one_process(dump: RankDump, other: RankDump) -> bool:
    """Whether two dumps of one rank are of one process: it made the calls that both have at the same times."""
    shared = []
    for key, calls in dump.calls.items():
        theirs = other.calls[key].made_us if key in other.calls else {}
        shared += [at == theirs[number] for number, at in calls.made_us.items() if number in theirs]
    return bool(shared) and all(shared)


def _is_better(dump: RankDump, other: RankDump) -> bool:
    """Of two dumps of one process: the newest one; of two that are equally new, as torch's two formats, the one with frames."""
    readable, others = (isinstance(each.recorder, FlightRecorder) for each in (dump, other))
    if readable != others:
        return readable
    if dump.with_frames != other.with_frames and abs(dump.last_us - other.last_us) <= SKEW_US:
        return dump.with_frames
    return dump.last_us > other.last_us
