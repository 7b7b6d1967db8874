"""The software of each rank: its Python, torch and NCCL, from the files it has mapped."""

import contextlib
import os
import re
from collections.abc import Iterable

from hangdoc.observe.access.observation import Observation, ProbeResult, Target
from hangdoc.observe.access.process_files import ProcessFiles, Root, View, files_of
from hangdoc.observe.gpu.nccl_library import find_nccl
from hangdoc.observe.memory.locate import python_version
from hangdoc.observe.memory.maps import Mapping, inner_path, mapped_files
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.regex import regex
from hangdoc.snapshot import Runtime, Unavailable
from hangdoc.torch_facts.cpp_names import PYTHON_LIBRARY
from hangdoc.torch_facts.nccl import version_text

_METADATA_FOLDER = regex(r"torch-.*\.dist-info")
_METADATA_VERSION = regex(r"^Version: (.+)$", re.MULTILINE)
_VERSION_FILE = regex(r"^__version__ = '([^']+)'", re.MULTILINE)
_MAX_VERSION = 64
_MAX_BYTES = 4096
_MAX_ENTRIES = 20_000
"""Of the directory that contains torch: that of all packages."""


class Software:
    """The probe."""

    name = "software"

    def __init__(self) -> None:
        self._runtimes: dict[int, Runtime | Unavailable] = {}

    def open(self, observation: Observation) -> None:
        """Nothing."""

    def during(self, observation: Observation) -> None:
        """Read the software of every rank."""
        living = [target for target in observation.ranks() if target.state not in "ZX"]
        runtimes = Runtimes()
        self._runtimes |= observation.read_each(living, lambda target: runtimes.read(observation.proc, target))

    def close(self, observation: Observation) -> None:
        """Nothing."""

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The software of each rank."""
        for pid, runtime in list(self._runtimes.items()):
            yield pid, "runtime", runtime


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
                torch = self._read_torch_version(files, library, inner_path(proc, pid, library))
        nccl: str | None = None
        with contextlib.suppress(OSError, ProcError, Unreadable):
            libraries = find_nccl(proc, pid, target.start_ticks, mapped)
            nccl = next(
                (version_text(loaded.version) for loaded in libraries if loaded.name == "nccl" and loaded.version), None
            )
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

    def _read_torch_version(self, files: ProcessFiles, library: Mapping, path: str) -> str | None:
        key = files.view, path, library.device, library.inode
        if key not in self._torch_versions:
            package = os.path.dirname(os.path.dirname(path))
            self._torch_versions[key] = files.run(
                lambda root: _read_torch_version(root, package) if root.stat(path).st_ino == library.inode else None
            )
        return self._torch_versions[key]


def _read_torch_version(root: Root, package: str) -> str | None:
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
