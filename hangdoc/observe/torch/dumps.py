"""torch's flight recorder as a dump: where its memory can't be read, or has no record.

There are two sources. A watchdog writes a dump to a file at its alarm. Otherwise hangdoc asks torch's worker server, if the
trainer has started it: torch.distributed.elastic.control_plane listens on `TORCH_WORKER_SERVER_SOCKET`, torch's debug server
on a TCP port. hangdoc sends nothing else to a rank, and connects to a port only if it is certainly the worker server's. The
server runs in a C++ thread, so it also replies for a rank that holds the GIL.
"""

import contextlib
import time
from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import msgspec

from hangdoc import untrusted
from hangdoc.beacon import FLIGHT_SUFFIX
from hangdoc.observe.memory import Unreadable
from hangdoc.observe.observation import Observation, Target
from hangdoc.observe.python_state import Modules, live_environment
from hangdoc.observe.watchdog_files import read_watchdog_files
from hangdoc.procfs import ProcError
from hangdoc.snapshot import FlightRecorder, Frame, Recorded, RecordedGroup, Unavailable

_SOCKET_VARIABLE = "TORCH_WORKER_SERVER_SOCKET"
_DEBUG_SERVER = "torch.distributed.debug"
_HANDLERS = ("fr_trace_json", "dump_nccl_trace_json")
_MAX_BYTES = 16 << 20
_MAX_VALUES = 500_000
"""Of a dump. torch keeps 2,000 entries by default, each with 40 values, and a decoded value takes up to 140 bytes."""
_MAX_GROUPS = 1_000
_MAX_TENSORS, _MAX_DIMENSIONS = 64, 16
_MAX_TEXT = 1_000
_MAX_PENDING = 4
_MAX_FRAMES = 24
# c10/core/ScalarType.h names, as torch.dtype spells them
_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Byte": "uint8", "Char": "int8",
    "Short": "int16", "Int": "int32", "Long": "int64", "Bool": "bool", "ComplexFloat": "complex64",
}  # fmt: skip


_Int = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Frame(msgspec.Struct):
    name: str = ""
    filename: str = ""
    line: _Int = 0


class _Entry(msgspec.Struct):
    pg_id: _Int = 0
    process_group: tuple[str, ...] = ()
    collective_seq_id: _Int = 0
    is_p2p: bool = False
    profiling_name: str = ""
    input_sizes: tuple[tuple[_Int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_sizes: tuple[tuple[_Int, ...], ...] = ()
    output_dtypes: tuple[str, ...] = ()
    state: str = ""
    retired: bool = False
    time_created_ns: _Int = 0
    frames: tuple[_Frame, ...] = ()


class _Status(msgspec.Struct):
    last_enqueued_collective: _Int = -1


class _Dump(msgspec.Struct):
    """torch's JSON, in which numbers are sometimes strings. `read_ns` is hangdoc's own field: CLOCK_MONOTONIC of the dump."""

    entries: tuple[_Entry, ...] = ()
    pg_status: dict[str, _Status] = {}
    read_ns: _Int | None = None


def read_dump(observation: Observation, target: Target) -> FlightRecorder | Unavailable:
    """The newest dump of a rank: of its watchdog, or of its worker server."""
    dumps = read_watchdog_files(
        observation.proc, target.pid, target.start_ticks, target.environment, FLIGHT_SUFFIX, _MAX_BYTES
    )
    for raw in dumps:
        with contextlib.suppress(ValueError):
            return read(raw, "the watchdog")
    if target.held:
        return Unavailable(reason="the rank is stopped, frozen or traced, so its worker server can't reply")
    socket_path, debug_server = _worker_server(observation, target)
    if not socket_path and not debug_server:
        return Unavailable(reason="the rank has neither a watchdog nor torch's worker server")
    from hangdoc.observe.worker_server import ask  # imports http, which is rarely needed

    try:
        for handler in _HANDLERS:
            found = read(ask(observation, target, socket_path, handler), "torch's worker server")
            if found.groups:
                return found
        return found
    except (OSError, ValueError, ProcError) as error:
        return Unavailable(reason=f"torch's worker server: {error}")


def read(raw: bytes, source: str) -> FlightRecorder:
    """Parse a dump in torch's JSON. Raises ValueError for anything else, also for a dump that is too large or too deep."""
    if sum(raw.count(mark) for mark in (b",", b"[", b"{")) > _MAX_VALUES:
        raise ValueError(f"the dump has more than {_MAX_VALUES} values")
    dump = untrusted.decode(raw, _Dump, _MAX_BYTES, strict=False)
    try:
        return _recorder(dump, source)
    except OverflowError as error:  # from times
        raise ValueError(f"not a dump of the flight recorder: {error}") from error


def _recorder(dump: _Dump, source: str) -> FlightRecorder:
    by_group: dict[tuple[int, str, bool], list[_Entry]] = {}
    newest: dict[tuple[str, bool], int] = {}
    """By name: a process may have made a group of the same name before."""
    for entry in dump.entries:
        if not entry.is_p2p:
            name, about = (*entry.process_group, "", "")[:2]
            by_group.setdefault((entry.pg_id, name, about == "default_pg"), []).append(entry)
            newest[name, about == "default_pg"] = max(
                entry.pg_id, newest.get((name, about == "default_pg"), entry.pg_id)
            )
    age = max(0.0, (time.monotonic_ns() - dump.read_ns) / 1e9) if dump.read_ns is not None else 0.0
    return FlightRecorder(
        source=source,
        age_seconds=round(age, 3),
        groups=tuple(
            _group(name, default, sorted(entries, key=lambda e: e.collective_seq_id), dump.pg_status.get(str(number)))
            for (number, name, default), entries in islice(sorted(by_group.items()), _MAX_GROUPS)
            if newest[name, default] == number
        ),
    )


def _group(name: str, default: bool, entries: list[_Entry], status: _Status | None) -> RecordedGroup:
    completed = [e for e in entries if e.retired or e.state == "completed"]
    pending = [e for e in entries if not (e.retired or e.state == "completed")]
    issued = max([e.collective_seq_id for e in entries] + ([status.last_enqueued_collective] if status else []))
    return RecordedGroup(
        name=name[:_MAX_TEXT],
        default=default,
        issued=issued,
        completed=_recorded(completed[-1]) if completed else None,
        pending=tuple(_recorded(entry) for entry in pending[:_MAX_PENDING]),
    )


def _recorded(entry: _Entry) -> Recorded:
    return Recorded(
        seq=entry.collective_seq_id,
        op=entry.profiling_name.rpartition(":")[2][:_MAX_TEXT],
        inputs=tensors(entry.input_dtypes, entry.input_sizes),
        outputs=tensors(entry.output_dtypes, entry.output_sizes),
        age_seconds=round(max(0.0, time.time() - entry.time_created_ns / 1e9), 3) if entry.time_created_ns else None,
        frames=tuple(
            Frame(
                function=f.name[:_MAX_TEXT],
                file=f.filename[:_MAX_TEXT],
                line=f.line,
                library="site-packages" in f.filename,
            )
            for f in entry.frames[:_MAX_FRAMES]
        ),
    )


def tensors(dtypes: Sequence[str], sizes: Sequence[Sequence[int]]) -> tuple[str, ...]:
    """Tensors by the names of torch's dump, each as `float32[64, 8]`."""
    return tuple(
        f"{_DTYPES.get(dtype, dtype.lower()[:_MAX_TEXT])}[{', '.join(map(str, size[:_MAX_DIMENSIONS]))}]"
        for dtype, size in islice(zip(dtypes, sizes, strict=False), _MAX_TENSORS)
    )


def _worker_server(observation: Observation, target: Target) -> tuple[str | None, bool]:
    """(path of the worker server's socket, whether torch's debug server runs), read from the rank's memory."""
    environment = target.environment if isinstance(target.environment, dict) else {}
    try:
        with observation.memory(target.pid) as memory:
            found = Modules(memory, observation.image(target.pid)).namespace("os", _DEBUG_SERVER)
            path = {**environment, **live_environment(memory, found.get("os", {}))}.get(_SOCKET_VARIABLE)
            server = found.get(_DEBUG_SERVER, {}).get("_WORKER_SERVER")
            return path, server is not None and memory.kind(server)[0] != "NoneType"
    except (Unreadable, KeyError):
        return environment.get(_SOCKET_VARIABLE), False
