"""The host: processor, memory, network interfaces, names. And the software of each rank, from the files it has mapped."""

import contextlib
import os
import re
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout

import msgspec

from hangdoc.observe.gpu.nccl_library import find_nccl
from hangdoc.observe.interfaces import interfaces
from hangdoc.observe.locate import python_version
from hangdoc.observe.maps import Mapping, inner_path, mapped_files
from hangdoc.observe.memory import Unreadable
from hangdoc.observe.observation import Observation, ProbeResult, Target
from hangdoc.observe.process_files import ProcessFiles, Root, View, files_of, own_root
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.regex import regex
from hangdoc.snapshot import Machine, Runtime, Unavailable
from hangdoc.torch_facts.cpp_names import PYTHON_LIBRARY
from hangdoc.torch_facts.nccl import version_text

_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_tile", "asimd", "bf16")
_METADATA_FOLDER = regex(r"torch-.*\.dist-info")
_METADATA_VERSION = regex(r"^Version: (.+)$", re.MULTILINE)
_VERSION_FILE = regex(r"^__version__ = '([^']+)'", re.MULTILINE)
_MAX_VERSION = 64
_MAX_BYTES = 4096
_MAX_ENTRIES = 20_000
"""Of the directory that contains torch: that of all packages."""


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
        living = [target for target in observation.ranks() if target.state not in "ZX"]
        runtimes = Runtimes()
        self._runtimes |= observation.read_each(living, lambda target: runtimes.read(observation.proc, target))

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
            net_namespace=_own_namespace(proc),
            hostname_addresses=resolve(socket.gethostname()),
        )
    except (OSError, KeyError, ProcError) as error:
        return Unavailable(reason=str(error))


def _shared_memory() -> tuple[int | None, int | None]:
    """(size, free) of /dev/shm in bytes."""
    try:
        about = own_root().space("/dev/shm")  # noqa: S108
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


class Runtimes:
    """Finds out which software ranks run. It keeps torch's version by who sees which library."""

    def __init__(self) -> None:
        self._torch_versions: dict[tuple[View, str, str, int], str | None] = {}
        """By library: who sees it, its path, device and inode."""

    def read(self, proc: ProcFS, target: Target) -> Runtime | Unavailable:
        """The software of a rank."""
        pid = target.pid
        try:
            executable: str | None = proc.link(f"{pid}/exe")
            mapped = mapped_files(proc, pid)
            version = python_version(proc, pid, mapped)
        except ProcError as error:
            return Unavailable(reason=str(error))
        library = next((m for m in mapped if PYTHON_LIBRARY in m.path), None)
        torch: str | None = None
        if library is not None:
            with contextlib.suppress(OSError, ProcError), files_of(proc, pid, target.start_ticks) as files:
                torch = self._torch_version(files, library, inner_path(proc, pid, library))
        nccl: str | None = None
        with contextlib.suppress(OSError, ProcError, Unreadable):
            libraries = find_nccl(proc, pid, target.start_ticks, mapped)
            nccl = next((version_text(one.version) for one in libraries if one.name == "nccl" and one.version), None)
        try:
            cpus = len(os.sched_getaffinity(pid))
        except OSError:
            cpus = None
        try:
            gpu = any(link.startswith("/dev/nvidia") for link in proc.links(f"{pid}/fd").values())
        except ProcError:
            gpu = False
        python = f"{version[0]}.{version[1]}" if version else None
        return Runtime(python=python, executable=executable, torch=torch, cpus_allowed=cpus, gpu=gpu, nccl=nccl)

    def _torch_version(self, files: ProcessFiles, library: Mapping, path: str) -> str | None:
        key = files.view, path, library.device, library.inode
        if key not in self._torch_versions:
            package = os.path.dirname(os.path.dirname(path))
            self._torch_versions[key] = files.run(
                lambda root: _torch_version(root, package) if root.stat(path).st_ino == library.inode else None
            )
        return self._torch_versions[key]


def _torch_version(root: Root, package: str) -> str | None:
    """The version in the metadata next to a torch package, else in its version.py. Imports nothing."""
    beside = os.path.dirname(package)
    names = sorted(name for name, _ in root.entries(beside, _MAX_ENTRIES) if _METADATA_FOLDER.fullmatch(name))
    places = [(os.path.join(beside, name, "METADATA"), _METADATA_VERSION) for name in names]
    for path, pattern in [*places, (os.path.join(package, "version.py"), _VERSION_FILE)]:
        with contextlib.suppress(OSError):
            text = root.read(path, _MAX_BYTES).raw.decode("utf-8", "replace")
            if (match := pattern.search(text)) is not None:
                return match[1].strip()[:_MAX_VERSION]
    return None
