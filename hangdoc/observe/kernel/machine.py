"""The host: processor, memory, network interfaces, names."""

import os
import re
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout

import msgspec

from hangdoc.observe.access.observation import Observation, ProbeResult
from hangdoc.observe.access.process_files import own_root
from hangdoc.observe.kernel.interfaces import interfaces
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import Machine, Unavailable

_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_tile", "asimd", "bf16")
_MAX_ENTRIES = 20_000
"""Of /dev."""


class HostMachine:
    """The probe."""

    name = "machine"

    def __init__(self) -> None:
        self._machine: Machine | Unavailable = Unavailable(reason="not looked at")
        self._swapped: int | None = None

    def open(self, observation: Observation) -> None:
        """Read the swap counters."""
        self._swapped = swapped(observation.proc)

    def during(self, observation: Observation) -> None:
        """Read everything else."""
        self._machine = machine(observation.proc)

    def close(self, observation: Observation) -> None:
        """Read the swap counters again."""
        before, after = self._swapped, swapped(observation.proc)
        self._swapped = None if before is None or after is None else after - before

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The machine."""
        if isinstance(self._machine, Machine):
            self._machine = msgspec.structs.replace(self._machine, swapped_bytes=self._swapped)
        yield None, "machine", self._machine


def swapped(proc: ProcFS) -> int | None:
    """Bytes swapped in and out since boot; None if unknown."""
    try:
        pages = _read_numbers(proc, "vmstat")
        return (pages["pswpin"] + pages["pswpout"]) * os.sysconf("SC_PAGE_SIZE")
    except (ProcError, KeyError):
        return None


def _read_numbers(proc: ProcFS, name: str) -> dict[str, int]:
    """The numbers in a file with lines like `MemTotal:  24 kB` or `pswpin 0`. Raises ProcError."""
    words = (line.split() for line in proc.text(name).splitlines())
    return {word[0].rstrip(":"): int(word[1]) for word in words if len(word) > 1 and word[1].isdigit()}


def machine(proc: ProcFS) -> Machine | Unavailable:
    """The host at this moment. `swapped_bytes` is None: it needs two readings."""
    try:
        kib = _read_numbers(proc, "meminfo")
        swap, free = kib.get("SwapTotal", 0), kib.get("SwapFree", 0)
        model, flags = _read_processor(proc)
        shared = _read_shared_memory()
        return Machine(
            cpu_model=model,
            cpu_flags=flags,
            cores=os.cpu_count() or 1,
            gpus=len(
                [name for name, _ in own_root().entries("/dev", _MAX_ENTRIES) if re.fullmatch(r"nvidia\d+", name)]
            ),
            memory_total_bytes=kib["MemTotal"] * 1024,
            memory_available_bytes=kib["MemAvailable"] * 1024,
            shared_total_bytes=shared[0],
            shared_free_bytes=shared[1],
            swap_total_bytes=swap * 1024,
            swap_used_bytes=(swap - free) * 1024,
            swapped_bytes=None,
            load_1m=os.getloadavg()[0],
            kernel=os.uname().release,
            architecture=os.uname().machine,
            interfaces=interfaces(),
            net_namespace=_read_own_namespace(proc),
            hostname_addresses=resolve(socket.gethostname()),
        )
    except (OSError, KeyError, ProcError) as error:
        return Unavailable(reason=str(error))


def _read_shared_memory() -> tuple[int | None, int | None]:
    """(size, free) of /dev/shm in bytes."""
    try:
        about = own_root().space("/dev/shm")  # noqa: S108
    except OSError:
        return None, None
    return about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize


def _read_processor(proc: ProcFS) -> tuple[str | None, tuple[str, ...]]:
    fields: dict[str, str] = {}
    for line in proc.text("cpuinfo").split("\n\n", 1)[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    present = set((fields.get("flags") or fields.get("Features") or "").split())
    return fields.get("model name"), tuple(flag for flag in _FLAGS if flag in present)


def _read_own_namespace(proc: ProcFS) -> str | None:
    try:
        return proc.link("self/ns/net")
    except ProcError:
        return None


def resolve(name: str) -> tuple[str, ...] | Unavailable:
    """The addresses of a host name. Waits at most one second for the resolver."""
    pool = ThreadPoolExecutor(1)
    host = name.encode() if name.isascii() else name  # for a str, Python loads the tables of IDNA
    try:
        entries = pool.submit(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM).result(1.0)
        return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))
    except FutureTimeout:
        return Unavailable(reason=f"{name} did not resolve within 1 s")
    except OSError as error:
        return Unavailable(reason=f"{name} does not resolve: {error.strerror}")
    finally:
        pool.shutdown(wait=False)
