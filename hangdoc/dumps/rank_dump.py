"""What one file says of one rank."""

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
_LATE_US = 300 * _US
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
    written_us: int | None = None
    """When torch wrote it; None if its time of modification can't be that, as of a copy."""
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
    written_us = _written(file, dump, last_us)
    recorder = dump_format.recorder_in(dump, SOURCE, 0.0, 1000 * (written_us or last_us))
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
        written_us=written_us,
        first_us=min((entry.time_created_ns for entry in dump.calls), default=0) // 1000,
        last_us=last_us,
        members=dump_format.members_of(dump),
        with_frames=any(entry.frames for entry in dump.calls),
    )


def _written(file: Candidate, dump: Dump, last_us: int) -> int | None:
    """The time of modification, if torch can have written the file then: not before its newest time, and not long after the first
    timeout of a call that is not complete, because torch ends the process then. A copy that was made later has a later time."""
    batches = {(entry.pg_id, entry.p2p_seq_id) for entry in dump.calls if entry.profiling_name.endswith(_BATCH)}
    timeouts = [
        entry.time_created_ns // 1000 + entry.timeout_ms * 1000
        for entry in dump.calls
        if not (entry.retired or entry.time_discovered_completed_ns or entry.timeout_ms <= 0)
        and not (entry.is_p2p and (entry.pg_id, entry.p2p_seq_id) in batches)  # only the entry of the batch completes
    ]
    latest = max(last_us, min(timeouts, default=last_us)) + _LATE_US
    return max(file.written_us, last_us) if last_us - _SKEW_US <= file.written_us <= latest else None


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
