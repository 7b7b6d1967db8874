"""What one file says of one rank."""

from collections.abc import Sequence

import msgspec

from hangdoc.dumps.folder import MOST_BYTES, Candidate
from hangdoc.observe.torch import dump_format
from hangdoc.observe.torch.dump_format import Dump
from hangdoc.snapshot import FlightRecorder, RecordedGroup, Unavailable
from hangdoc.untrusted import UntrustedError

SOURCE = "torch's dump"
_MOST_VALUES = 2_000_000
"""Of a pickle: 20,000 calls with 40 frames each have 1.5 million."""
_MOST_JSON_VALUES = 1_000_000
_MOST_CALLS = 100_000
_US = 1_000_000
_SKEW_US = 60 * _US
"""A file may be on a server with another clock."""
_LATE_US = 120 * _US
"""So long after a call's timeout torch has written the file: it collects the frames first, and other ranks notice later."""
_DEFAULT = "default_pg"
_BATCH = ":coalesced"


class NoDumpError(Exception):
    """A file is no dump."""


class RankDump(msgspec.Struct, frozen=True, kw_only=True):
    """A dump of a rank. Times are microseconds since 1970."""

    name: str
    prefix: str
    rank: int
    recorder: FlightRecorder | Unavailable
    problem: str | None = None
    """What is wrong with the file, as a clause after its name."""
    modified_us: int = 0
    """When the file was last written to: by torch, or by who copied it."""
    timeout_us: int | None = None
    """When the first of its calls that are not complete reaches its timeout; None without such a call."""
    first_us: int = 0
    """The time of its oldest call; 0 without calls."""
    last_us: int = 0
    """The newest time in it."""
    members: dict[tuple[str, str], tuple[int, ...]] = {}
    """Global ranks of its groups, by name and description."""
    with_frames: bool = False

    @property
    def size(self) -> int | None:
        """The size of the default group; None if the file does not say it."""
        return next((len(ranks) for (_, about), ranks in self.members.items() if about == _DEFAULT and ranks), None)

    @property
    def begins(self) -> bool:
        """Whether it has the first call that the rank made."""
        return isinstance(self.recorder, FlightRecorder) and self.recorder.whole and self.first_us > 0


def read_rank(file: Candidate) -> RankDump:
    """What a file says. Raises NoDumpError for one that is no dump; a dump that can't be read is a RankDump with a problem."""
    if file.unread is not None:
        return _unreadable(file, file.unread)
    if not file.raw:
        return _unreadable(file, "is empty")
    try:
        dump = (
            dump_format.read_json(file.raw, MOST_BYTES, _MOST_JSON_VALUES)
            if file.raw.startswith(b"{")
            else dump_format.read_pickle(file.raw, _MOST_VALUES)
        )
        if isinstance(dump.entries, msgspec.UnsetType) and not dump.truncated:
            raise NoDumpError
        return _with_calls(file, dump)
    except UntrustedError as error:
        return _unreadable(file, str(error))


def _unreadable(file: Candidate, problem: str) -> RankDump:
    return RankDump(
        name=file.name,
        prefix=file.prefix,
        rank=file.rank,
        recorder=Unavailable(reason=f"its dump {file.name} {problem}"),
        problem=problem,
    )


def _with_calls(file: Candidate, dump: Dump) -> RankDump:
    if len(dump.calls) > _MOST_CALLS:
        raise UntrustedError(f"has more than {_MOST_CALLS:,} calls")
    last_us = max(dump.times_ns, default=0) // 1000
    recorder = dump_format.recorder_in(dump, SOURCE, 0.0, 1000 * max(last_us, file.written_us))
    problem = None
    if dump.truncated:
        problem = f"is truncated: {len(dump.calls):,} calls could be read, and the newest ones are missing"
        recorder = _without_newest(recorder, dump)
    return RankDump(
        name=file.name,
        prefix=file.prefix,
        rank=file.rank,
        recorder=recorder,
        problem=problem,
        modified_us=file.written_us,
        timeout_us=_first_timeout(dump),
        first_us=min((entry.time_created_ns for entry in dump.calls), default=0) // 1000,
        last_us=last_us,
        members=dump_format.members_of(dump),
        with_frames=any(entry.frames for entry in dump.calls),
    )


def _first_timeout(dump: Dump) -> int | None:
    """When torch's watchdog first has a reason to write a dump and to end the process."""
    batches = {(entry.pg_id, entry.p2p_seq_id) for entry in dump.calls if entry.profiling_name.endswith(_BATCH)}
    timeouts = (
        entry.time_created_ns // 1000 + entry.timeout_ms * 1000
        for entry in dump.calls
        if not (entry.retired or entry.time_discovered_completed_ns or entry.timeout_ms <= 0)
        and not (entry.is_p2p and (entry.pg_id, entry.p2p_seq_id) in batches)  # only the entry of the batch completes
    )
    return min(timeouts, default=None)


def find_time_of_writing(dumps: Sequence[RankDump]) -> int | None:
    """When torch wrote the last of these dumps of one run, by the times of modification; None if these can't be that. They may
    not be before the newest time in a file, and not long after the first timeout of a call, because torch then ends the run. A
    copy that was made later has a later time."""
    read = [dump for dump in dumps if dump.last_us]
    timeouts = [dump.timeout_us for dump in read if dump.timeout_us is not None]
    newest = max((dump.last_us for dump in read), default=0)
    latest = max(newest, min(timeouts, default=newest)) + _LATE_US
    if not read or not all(dump.last_us - _SKEW_US <= dump.modified_us <= latest for dump in read):
        return None
    return max(newest, *(dump.modified_us for dump in read))


def _without_newest(recorder: FlightRecorder, dump: Dump) -> FlightRecorder:
    """The record of a dump whose end is missing: its groups, and how far the rank has come where torch wrote that at the
    beginning. Which calls are not complete is not known."""
    enqueued = dump_format.enqueued_in(dump)
    numbers = {name: number for (name, _), number in enqueued.items()}
    groups = [
        RecordedGroup(name=group.name, default=group.default, ranks=group.ranks, issued=numbers.get(group.name))
        for group in recorder.groups
    ]
    return msgspec.structs.replace(recorder, groups=tuple(groups), forms=(), whole=False)
