"""Parts of processes in bundles that many ranks have in common. Each is written only once, and read as one value."""

from functools import lru_cache

import msgspec
from msgspec.structs import force_setattr, replace

from hangdoc import untrusted
from hangdoc.snapshot import DataSources, Host, Process, Progress, Runtime, Snapshot

Part = Runtime | Progress | DataSources
"""What the ranks of a hung run have in common: their software, their counters, their data."""
_FIELDS: dict[type, str] = {Runtime: "runtime", Progress: "progress", DataSources: "data"}
"""The field of a process in which each of them is."""


def share(snapshot: Snapshot) -> tuple[Snapshot, tuple[Part, ...]]:
    """The snapshot without these parts, and the parts that its processes refer to."""
    distinct = {part for host in snapshot.hosts for process in host.processes for part in _list_parts(process)}
    # In one order, so that hosts whose ranks have the same parts have equal bytes.
    parts = tuple(sorted(distinct, key=msgspec.json.encode))
    at = {part: number for number, part in enumerate(parts)}
    return replace(snapshot, hosts=tuple(_strip_host(host, at) for host in snapshot.hosts)), parts


def resolve(hosts: tuple[Host, ...], parts: tuple[Part, ...]) -> None:
    """Give the processes of newly decoded hosts their parts. Raises IndexError for a position that does not exist."""
    for host in hosts:
        for process in host.processes:
            for number in process.parts:
                part = parts[number]
                force_setattr(process, _FIELDS[type(part)], part)  # nothing else refers to it yet
            force_setattr(process, "parts", ())


def parts_of(raw: bytes) -> tuple[Part, ...]:
    """The parts that were written as JSON. Raises UntrustedError."""
    return _kept_parts(raw) if len(raw) <= untrusted.KEPT_BYTES else _decode_parts(raw)


@lru_cache(64)  # the hosts of a hung run have few different ones
def _kept_parts(raw: bytes) -> tuple[Part, ...]:
    return _decode_parts(raw)


def _decode_parts(raw: bytes) -> tuple[Part, ...]:
    return untrusted.decode(raw, tuple[Part, ...], len(raw))


def _list_parts(process: Process) -> list[Part]:
    return [part for name in _FIELDS.values() if isinstance(part := getattr(process, name), Part)]


def _strip_host(host: Host, at: dict[Part, int]) -> Host:
    return replace(host, processes=tuple(_strip_process(process, at) for process in host.processes))


def _strip_process(process: Process, at: dict[Part, int]) -> Process:
    parts = _list_parts(process)
    defaults = {_FIELDS[type(part)]: _NOTHING[_FIELDS[type(part)]] for part in parts}
    return replace(process, parts=tuple(at[part] for part in parts), **defaults) if parts else process


_NOTHING = {field.name: field.default for field in msgspec.structs.fields(Process) if field.name in _FIELDS.values()}
"""What stands in a bundle in place of a part: the default, which is not written."""
