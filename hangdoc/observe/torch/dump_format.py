"""What torch writes of its flight recorder, as JSON or as a pickle, decoded to the values that the reader of its memory gives.

torch/csrc/distributed/c10d/FlightRecorderDetail.hpp writes both. The JSON has no frames, and its numbers are sometimes texts.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from hangdoc import plain_pickle, untrusted
from hangdoc.observe.torch.recorded_calls import Call, Calls, Group, nearest_frames
from hangdoc.observe.torch.recorder_history import Record, recorder_of
from hangdoc.program import is_library
from hangdoc.regex import regex
from hangdoc.snapshot import CallForm, FlightRecorder, Frame
from hangdoc.torch_facts.dtypes import BY_SCALAR_TYPE
from hangdoc.untrusted import UntrustedError

_MAX_TENSORS, _MAX_DIMENSIONS = 64, 16
_MAX_TEXT = 1_000
_MAX_FORMS, _MAX_STACKS = 300, 1_000
"""Different calls that are kept with their shapes, and with their frames."""
_MAX_RANKS = 1 << 17
"""Of all groups together."""
_ON_HOST = "gloo:"
_RANKS = regex(r"\[(?:\d{1,7}(?:, ?\d{1,7})*)?\]$")

_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Signed = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Frame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    line: _Signed = 0


class Entry(msgspec.Struct):
    """A call."""

    record_id: _Number | None = None
    pg_id: _Signed = 0
    process_group: tuple[str, ...] = ()
    collective_seq_id: _Number | UnsetType = UNSET
    p2p_seq_id: _Number = 0
    op_id: _Number = 0
    is_p2p: bool = False
    profiling_name: str = ""
    input_sizes: tuple[tuple[_Signed, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_sizes: tuple[tuple[_Signed, ...], ...] = ()
    output_dtypes: tuple[str, ...] = ()
    state: str = ""
    retired: bool = False
    time_created_ns: _Number = 0
    time_discovered_completed_ns: _Number | None = None
    """0, or None in a pickle, if torch has not noticed that it has completed."""
    timeout_ms: _Signed = 0
    frames: tuple[Any, ...] = ()
    """Of a pickle, a frame of several calls is one object."""

    @property
    def number(self) -> int:
        """Its number among the collectives of its group; 0 if it has none."""
        return 0 if isinstance(self.collective_seq_id, UnsetType) else self.collective_seq_id


class _Config(msgspec.Struct):
    name: str = ""
    desc: str = ""
    ranks: str = ""
    """`[0, 1]`."""


class _Status(msgspec.Struct):
    last_enqueued_collective: _Signed = -1


class Dump(msgspec.Struct):
    """What a dump says. `read_ns` is hangdoc's own field: CLOCK_MONOTONIC of the dump."""

    version: str = ""
    entries: tuple[Entry, ...] | UnsetType = UNSET
    pg_config: dict[str, _Config] = {}
    pg_status: dict[str, _Status] = {}
    read_ns: _Signed | None = None
    truncated: bool = False
    """Whether its end is missing, and so the newest calls."""

    @property
    def calls(self) -> tuple[Entry, ...]:
        """The entries, oldest first."""
        return () if isinstance(self.entries, UnsetType) else self.entries

    @property
    def times_ns(self) -> Iterator[int]:
        """When calls were made and completed: nanoseconds since 1970."""
        for entry in self.calls:
            yield entry.time_created_ns
            yield entry.time_discovered_completed_ns or 0


def read_json(raw: bytes, most_bytes: int, most_values: int) -> Dump:
    """The dump in torch's JSON. Raises UntrustedError for anything else, also for one that is too large or too deep."""
    if sum(raw.count(mark) for mark in (b",", b"[", b"{")) > most_values:
        raise UntrustedError(f"has more than {most_values:,} values")
    return _checked(untrusted.decode(raw, Dump, most_bytes, strict=False))


def read_pickle(raw: bytes, most_values: int) -> Dump:
    """The dump in a pickle, as far as it is there. Raises UntrustedError for anything else."""
    unpickled = plain_pickle.unpickle(raw, most_values, partly=True)
    if not isinstance(unpickled.value, dict):
        raise UntrustedError("is no dump of torch's flight recorder")
    try:
        dump = msgspec.convert(unpickled.value, Dump, strict=False)
    except (ValueError, RecursionError, MemoryError) as error:
        raise UntrustedError(f"is no dump of torch's flight recorder ({str(error)[:200]})") from None
    dump.truncated = not unpickled.whole
    return _checked(dump)


def _checked(dump: Dump) -> Dump:
    if any(isinstance(entry.collective_seq_id, UnsetType) for entry in dump.calls):
        raise UntrustedError("has calls without numbers, as torch 2.3 and older wrote them")
    return dump


def members_of(dump: Dump) -> dict[tuple[str, str], tuple[int, ...]]:
    """The global ranks of its groups, by name and description. Of Gloo's groups, torch writes none."""
    members: dict[tuple[str, str], tuple[int, ...]] = {}
    left = _MAX_RANKS
    for group in dump.pg_config.values():
        if len(group.ranks) <= 9 * left and _RANKS.match(group.ranks):
            ranks = tuple(map(int, filter(None, group.ranks[1:-1].split(","))))
            left -= len(ranks)
            members[group.name[:_MAX_TEXT], group.desc[:_MAX_TEXT]] = ranks
    return members


def recorder_in(dump: Dump, source: str, age_seconds: float, now_ns: int) -> FlightRecorder:
    """The record that is in a dump. `now_ns`: the time from which all ages are, in nanoseconds since 1970."""
    members, forms = members_of(dump), _Forms()
    calls: dict[str, list[Call]] = {}
    for position, entry in enumerate(dump.calls):
        kind = "cpu" if entry.profiling_name.startswith(_ON_HOST) else "cuda"
        calls.setdefault(kind, []).append(_call(position, entry, forms))
    records = [
        Record(kind, Calls(made, tuple(forms.positions)), made[-1].id + 1, 0, members, now_ns)
        for kind, made in calls.items()
    ]
    recorder = recorder_of(records, {})
    return msgspec.structs.replace(recorder, source=source, age_seconds=age_seconds, capacity=None)


def enqueued_in(dump: Dump) -> dict[tuple[str, str], int]:
    """The number of the last collective of each group, by name and description, as torch counts them beside the entries. In a
    group with sends or receives it may be the number of one of these, so those groups are left out."""
    mixed = {entry.pg_id for entry in dump.calls if entry.is_p2p or entry.profiling_name.startswith(_ON_HOST)}
    names = {entry.pg_id: _group(entry)[1:] for entry in dump.calls if entry.pg_id not in mixed}
    statuses = ((name, dump.pg_status.get(str(number))) for number, name in names.items())
    return {
        name: status.last_enqueued_collective
        for name, status in statuses
        if status is not None and status.last_enqueued_collective > 0
    }


def _call(position: int, entry: Entry, forms: "_Forms") -> Call:
    return Call(
        id=position if entry.record_id is None else entry.record_id,
        group=_group(entry),
        collective=entry.number,
        p2p=entry.p2p_seq_id,
        operation=entry.op_id,
        form=forms.position(entry),
        made_ns=entry.time_created_ns,
        timeout_ms=max(0, entry.timeout_ms),
        is_p2p=entry.is_p2p,
        duration_ms=None,
        started_ns=None,
        completed_ns=entry.time_discovered_completed_ns or None,
        retired=entry.retired or entry.state == "completed",
        thread=None,
        thread_name=None,
    )


def _group(entry: Entry) -> Group:
    name, about = (*entry.process_group, "", "")[:2]
    return Group(entry.pg_id, name[:_MAX_TEXT], about[:_MAX_TEXT])


class _Forms:
    """The different calls of a dump."""

    def __init__(self) -> None:
        self.positions: dict[CallForm, int] = {}
        self._by_content: dict[tuple[object, ...], int] = {}
        self._frames: dict[int, Frame] = {}
        """By the identity of the dump's own object, which lives as long as the dump."""

    def position(self, entry: Entry) -> int:
        """The position of the form of a call."""
        shapes = entry.input_dtypes, entry.input_sizes, entry.output_dtypes, entry.output_sizes
        key = (entry.profiling_name, *shapes, *map(id, entry.frames))
        position = self._by_content.get(key)
        if position is None:
            few, with_frames = len(self.positions) < _MAX_FORMS, len(self.positions) < _MAX_STACKS
            form = CallForm(
                op=entry.profiling_name.rpartition(":")[2][:_MAX_TEXT],
                inputs=tensors(entry.input_dtypes, entry.input_sizes) if few else (),
                outputs=tensors(entry.output_dtypes, entry.output_sizes) if few else (),
                frames=nearest_frames([self._frame(frame) for frame in entry.frames]) if with_frames else (),
            )
            position = self._by_content[key] = self.positions.setdefault(form, len(self.positions))
        return position

    def _frame(self, raw: object) -> Frame:
        frame = self._frames.get(id(raw))
        if frame is None:
            try:
                fields = msgspec.convert(raw, _Frame, strict=False)
            except (ValueError, RecursionError) as error:
                raise UntrustedError(f"is damaged ({str(error)[:200]})") from None
            file = fields.filename[:_MAX_TEXT]
            frame = Frame(function=fields.name[:_MAX_TEXT], file=file, line=fields.line, library=is_library(file))
            self._frames[id(raw)] = frame
        return frame


def tensors(dtypes: Sequence[str], sizes: Sequence[Sequence[int]]) -> tuple[str, ...]:
    """Tensors by the names of torch's dump, each as `float32[64, 8]`."""
    return tuple(
        f"{BY_SCALAR_TYPE.get(dtype, dtype.lower()[:_MAX_TEXT])}[{', '.join(map(str, size[:_MAX_DIMENSIONS]))}]"
        for dtype, size in itertools.islice(zip(dtypes, sizes, strict=False), _MAX_TENSORS)
    )
