"""The host: processor, memory, network interfaces, names. And the software of each rank, from the files it has mapped."""

import os
import re
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path

import msgspec

from hangdoc.observe.interfaces import interfaces
from hangdoc.observe.locate import python_version
from hangdoc.observe.maps import mapped_files, reach
from hangdoc.observe.observation import Observation, ProbeResult, Target
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.regex import regex
from hangdoc.snapshot import Machine, Runtime, Unavailable

_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_tile", "asimd", "bf16")
_METADATA_VERSION = regex(r"^Version: (.+)$", re.MULTILINE)


class HostMachine:
    """The probe."""

    name = "machine"

    def __init__(self) -> None:
        self._machine: Machine | Unavailable = Unavailable(reason="not looked at")
        self._runtimes: dict[int, Runtime | Unavailable] = {}
        self._swapped: int | None = None

    def open(self, observation: Observation) -> None:
        """Read the swap counters."""
        self._swapped = swapped(observation.proc)

    def during(self, observation: Observation) -> None:
        """Read everything."""
        self._machine = machine(observation.proc)
        torch_versions: dict[str, str | None] = {}
        for target in observation.ranks():
            if target.state not in "ZX":
                self._runtimes[target.pid] = runtime(observation.proc, target, torch_versions)

    def close(self, observation: Observation) -> None:
        """Read the swap counters again."""
        before, after = self._swapped, swapped(observation.proc)
        self._swapped = None if before is None or after is None else after - before

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The machine, and the software of each rank."""
        if isinstance(self._machine, Machine):
            self._machine = msgspec.structs.replace(self._machine, swapped_bytes=self._swapped)
        yield None, "machine", self._machine
        for pid, found in list(self._runtimes.items()):
            yield pid, "runtime", found


def swapped(proc: ProcFS) -> int | None:
    """Bytes swapped in and out since boot; None if unknown."""
    try:
        pages = _numbers(proc, "vmstat")
        return (pages["pswpin"] + pages["pswpout"]) * os.sysconf("SC_PAGE_SIZE")
    except (ProcError, KeyError):
        return None


def _numbers(proc: ProcFS, name: str) -> dict[str, int]:
    """The numbers in a file with lines like `MemTotal:  24 kB` or `pswpin 0`. Raises ProcError."""
    words = (line.split() for line in proc.text(name).splitlines())
    return {word[0].rstrip(":"): int(word[1]) for word in words if len(word) > 1 and word[1].isdigit()}


def machine(proc: ProcFS) -> Machine | Unavailable:
    """The host at this moment. `swapped_bytes` is None: it needs two readings."""
    try:
        kib = _numbers(proc, "meminfo")
        swap, free = kib.get("SwapTotal", 0), kib.get("SwapFree", 0)
        model, flags = _processor(proc)
        shared = _shared_memory()
        return Machine(
            cpu_model=model,
            cpu_flags=flags,
            cores=os.cpu_count() or 1,
            gpus=len([name for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name)]),
            memory_total_bytes=kib["MemTotal"] * 1024,
            memory_available_bytes=kib["MemAvailable"] * 1024,
            shared_total_bytes=shared[0],
            shared_free_bytes=shared[1],
            swap_total_bytes=swap * 1024,
            swap_used_bytes=(swap - free) * 1024,
            swapped_bytes=None,
            load_1m=os.getloadavg()[0],
            kernel=os.uname().release,
            interfaces=interfaces(),
            net_namespace=_own_namespace(proc),
            hostname_addresses=resolve(socket.gethostname()),
        )
    except (OSError, KeyError, ProcError) as error:
        return Unavailable(reason=str(error))


def _shared_memory() -> tuple[int | None, int | None]:
    """(size, free) of /dev/shm in bytes."""
    try:
        about = os.statvfs("/dev/shm")  # noqa: S108
    except OSError:
        return None, None
    return about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize


def _processor(proc: ProcFS) -> tuple[str | None, tuple[str, ...]]:
    fields: dict[str, str] = {}
    for line in proc.text("cpuinfo").split("\n\n", 1)[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    present = set((fields.get("flags") or fields.get("Features") or "").split())
    return fields.get("model name"), tuple(flag for flag in _FLAGS if flag in present)


def _own_namespace(proc: ProcFS) -> str | None:
    try:
        return proc.link("self/ns/net")
    except ProcError:
        return None


def resolve(name: str) -> tuple[str, ...] | Unavailable:
    """The addresses of a host name. Waits at most one second for the resolver."""
    pool = ThreadPoolExecutor(1)
    host = name.encode() if name.isascii() else name  # for a str, Python loads the tables of IDNA
    try:
        found = pool.submit(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM).result(1.0)
        return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
    except FutureTimeout:
        return Unavailable(reason=f"{name} did not resolve within 1 s")
    except OSError as error:
        return Unavailable(reason=f"{name} does not resolve: {error.strerror}")
    finally:
        pool.shutdown(wait=False)


def runtime(proc: ProcFS, target: Target, torch_versions: dict[str, str | None]) -> Runtime | Unavailable:
    """The software of a rank. `torch_versions` is a cache, by device and inode of torch's library."""
    pid = target.pid
    try:
        executable: str | None = proc.link(f"{pid}/exe")
        files = mapped_files(proc, pid)
        version = python_version(proc, pid, files)
        torch_library = next((m for m in files if "/torch/lib/libtorch_python" in m.path), None)
    except ProcError as error:
        return Unavailable(reason=str(error))
    torch: str | None = None
    if torch_library:
        key = f"{torch_library.device} {torch_library.inode}"
        if key not in torch_versions:
            file = reach(proc, pid, torch_library)
            torch_versions[key] = _torch_version(file.parent.parent) if file else None
        torch = torch_versions[key]
    try:
        cpus = len(os.sched_getaffinity(pid))
    except OSError:
        cpus = None
    try:
        gpu = any(link.startswith("/dev/nvidia") for link in proc.links(f"{pid}/fd").values())
    except ProcError:
        gpu = False
    python = f"{version[0]}.{version[1]}" if version else None
    return Runtime(python=python, executable=executable, torch=torch, cpus_allowed=cpus, gpu=gpu)


def _torch_version(package: Path) -> str | None:
    """The version in the metadata next to a torch package, else in its version.py. Imports nothing."""
    for metadata in sorted(package.parent.glob("torch-*.dist-info/METADATA")):
        try:
            match = _METADATA_VERSION.search(metadata.read_text("utf-8", "replace")[:4000])
        except OSError:
            continue
        if match:
            return match[1].strip()
    try:
        match = re.search(r"^__version__ = '([^']+)'", (package / "version.py").read_text(), re.MULTILINE)
    except OSError:
        return None
    return match[1] if match else None
