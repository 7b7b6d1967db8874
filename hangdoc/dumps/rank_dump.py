"""What one file says of one rank."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from hangdoc.dumps.folder import MOST_BYTES, Candidate
from hangdoc.observe.torch import dump_format
from hangdoc.observe.torch.dump_format import Dump
from hangdoc.parse import encodable
from hangdoc.snapshot import FlightRecorder, RecordedGroup, Unavailable
from hangdoc.torch_facts.call_names import MEETINGS, recorded_op
from hangdoc.untrusted import UntrustedError

SOURCE = "torch's dump"
_MOST_VALUES = 2_000_000
"""Of a pickle: 20,000 calls with 40 frames each have 1.5 million."""
_MOST_JSON_VALUES = 1_000_000
_MOST_CALLS = 100_000
_US = 1_000_000
SKEW_US = 60 * _US
"""So much the clocks of two hosts may differ, or those of a host and of the server that has its files."""
LATE_US = 120 * _US
"""So long after a call's timeout torch has written the file: it collects the frames first, and other ranks notice later."""
_DEFAULT = "default_pg"
_BATCH = ":coalesced"
_SHOWN_NAME = 100
_COMPARED = 256
"""The calls of a group by which dumps are compared, the newest ones. Ranks of one run have come about equally far."""


class NoDumpError(Exception):
    """A file is no dump."""


class GroupKey(NamedTuple):
    """A process group, as the dumps of all of its ranks name it."""

    backend: str
    """`nccl`, for example. A group may have several, and each counts its calls."""
    name: str
    default: bool
    ranks: tuple[int, ...]

    @property
    def text(self) -> str:
        """What reports call it."""
        return "the default group" if self.default else f"group {encodable(self.name)[:_SHOWN_NAME]}"


class GroupCalls(NamedTuple):
    """The newest collectives of a rank in a group, by their numbers. Times are microseconds since 1970."""

    made_us: dict[int, int]
    finished_us: dict[int, int]
    """When torch noticed the end of a call that ends on no rank before all have made it."""
    total: int | None
    """How many the rank has made; None if the newest ones are missing."""

    @property
    def last_finished(self) -> int:
        """The largest number of `finished_us`; 0 without any."""
        return max(self.finished_us, default=0)


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
    ends_us: int = 0
    """When torch ends the run, if the rank makes no other call: at its first timeout, or so long after its newest call."""
    calls: dict[GroupKey, GroupCalls] = {}
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

    def count_of(self, key: GroupKey) -> int | None:
        """How many collectives the rank has made in a group that it is in; None if the file does not say it."""
        calls = self.calls.get(key)
        if calls is not None:
            return calls.total
        return 0 if self.begins else None


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
    timeout_us, members = _find_first_timeout(dump), dump_format.members_of(dump)
    longest_us = 1000 * max((entry.timeout_ms for entry in dump.calls), default=0)
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
        timeout_us=timeout_us,
        first_us=min((entry.time_created_ns for entry in dump.calls), default=0) // 1000,
        last_us=last_us,
        ends_us=last_us + longest_us if timeout_us is None else timeout_us,
        calls=_calls_of_groups(dump, members),
        members=members,
        with_frames=any(entry.frames for entry in dump.calls),
    )


def _calls_of_groups(dump: Dump, members: Mapping[tuple[str, str], tuple[int, ...]]) -> dict[GroupKey, GroupCalls]:
    """The collectives of the groups whose members the dump has."""
    entries: dict[tuple[str, str, str], deque[dump_format.Entry]] = {}
    for entry in dump.calls:
        if entry.is_p2p or len(entry.process_group) < 2:
            continue
        name, about = entry.process_group[:2]
        newest = entries.setdefault((entry.profiling_name.partition(":")[0], name, about), deque(maxlen=_COMPARED))
        if newest and entry.number < newest[-1].number:  # another group has got the name since
            newest.clear()
        newest.append(entry)
    return {
        GroupKey(backend, name, about == _DEFAULT, members[name, about]): _group_calls(newest, dump.truncated)
        for (backend, name, about), newest in entries.items()
        if len(members.get((name, about), ())) > 1
    }


def _group_calls(entries: Sequence[dump_format.Entry], truncated: bool) -> GroupCalls:
    made_us: dict[int, int] = {}
    finished_us: dict[int, int] = {}
    for entry in entries:
        made_us.setdefault(entry.number, entry.time_created_ns // 1000)
        noticed_us = (entry.time_discovered_completed_ns or 0) // 1000
        # When torch ends a run, calls end whose partners never came.
        in_time = noticed_us < made_us[entry.number] + 1000 * entry.timeout_ms or entry.timeout_ms <= 0
        empty = any(0 in size for size in entry.input_sizes)
        if noticed_us and in_time and not empty and recorded_op(entry.profiling_name.partition(":")[2]) in MEETINGS:
            finished_us[entry.number] = noticed_us
    return GroupCalls(made_us, finished_us, None if truncated else max(made_us))


def _find_first_timeout(dump: Dump) -> int | None:
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
    latest = max(newest, min(timeouts, default=newest)) + LATE_US
    if not read or not all(dump.last_us - SKEW_US <= dump.modified_us <= latest for dump in read):
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
