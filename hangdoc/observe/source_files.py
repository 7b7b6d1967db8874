"""Source files as the processes see them, without secrets. A file that is newer than its process is not used: its lines may have
moved."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import NamedTuple

from hangdoc import redact
from hangdoc.observe.lines import Lines
from hangdoc.procfs import ProcError, ProcFS

_MAX_BYTES = 2_000_000
_MAX_WHOLE = 300_000
"""Characters of a file whose secrets are filtered as a whole. This takes 0.2 s of CPU, once."""
_MAX_KEPT = 2_000_000
"""Characters of all filtered files that are kept for the next polls."""
_BOUND_SECONDS = 2.0

Key = tuple[str, str, bool]
"""Mount namespace, path, and whether the file belongs to a library: processes in one mount namespace share their files."""
_Version = tuple[int, int, int, int]
"""Device, inode, size in bytes, time of the last change in ns."""


class _File(NamedTuple):
    lines: Lines
    version: _Version
    filtered: bool
    """Whether its secrets were filtered, which is expensive."""


class SourceFiles:
    """Reads source files and keeps them."""

    def __init__(self, proc: ProcFS) -> None:
        self._proc = proc
        self._files: dict[Key, _File | None] = {}
        """None for files that can't be used."""
        self._earlier: dict[Key, _File] = {}
        """Files from before the last `renew`, which may have changed since, the most recently used last."""
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="source")
        self._stuck = False

    def lines(self, pid: int, started: float, file: str, *, library: bool) -> tuple[Key, Lines]:
        """The key and the lines of a file for a process that started at `started` (seconds since the epoch); no lines if it can't
        be used. Secrets are removed from files that belong to no library."""
        try:
            namespace = self._proc.link(f"{pid}/ns/mnt")
        except ProcError:
            namespace = ""
        key = namespace, file, library
        if key not in self._files:
            self._files[key] = self._read(f"{self._proc.root}/{pid}/root{file}", self._earlier.pop(key, None), library)
        found = self._files[key]
        if found is None or found.version[3] / 1e9 > started + 1:
            return key, Lines()
        return key, found.lines

    def renew(self) -> None:
        """Processes have started, and their files may have changed: check each file before it is used again. The files of
        libraries are dropped, because it is cheap to read them again."""
        self._earlier |= {key: file for key, file in self._files.items() if file is not None and file.filtered}
        self._files = {}
        kept = sum(len(file.lines.text) for file in self._earlier.values())
        for key in list(self._earlier):
            if kept <= _MAX_KEPT:
                break
            kept -= len(self._earlier.pop(key).lines.text)
        if self._stuck:
            self._reader, self._stuck = ThreadPoolExecutor(1, thread_name_prefix="source"), False

    def _read(self, path: str, earlier: _File | None, library: bool) -> _File | None:
        if self._stuck:
            return None
        try:
            return self._reader.submit(_read, path, earlier, library).result(_BOUND_SECONDS)
        except FutureTimeout:
            self._stuck = True  # a dead file system: the next file would not be readable either
            return None


def _read(path: str, earlier: _File | None, library: bool) -> _File | None:
    """The file at `path`: `earlier` if it has not changed; None if it can't be used."""
    try:
        about = os.stat(path)
        version = about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
        if not stat.S_ISREG(about.st_mode) or about.st_size > _MAX_BYTES:
            return None
        if earlier is not None and earlier.version == version:
            return earlier
        text = Path(path).read_text("utf-8", "replace")
    except OSError:
        return None
    # A literal with a secret may begin above the line that is shown, so the whole file is filtered.
    filtered = not library and len(text) < _MAX_WHOLE
    return _File(Lines(redact.source(text) if filtered else text), version, filtered)
