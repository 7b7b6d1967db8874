"""Source files as the processes see them, without secrets. A file that is newer than its process is not used: its lines may have
moved."""

import os
from array import array
from collections.abc import Sequence
from io import StringIO
from itertools import accumulate
from typing import NamedTuple, overload

from hangdoc import redact
from hangdoc.observe.access.owner_rights import Rights
from hangdoc.observe.access.process_files import NoAnswer, ProcessFiles, View

_MAX_BYTES = 2_000_000
_MAX_WHOLE = 1_000_000
"""Characters of a file whose secrets are filtered as a whole. This takes 0.2 s of CPU, once."""
_MAX_KEPT = 2_000_000
"""Characters of all filtered files that are kept for the next polls."""
_BOUND_SECONDS = 2.0

Key = tuple[View, str, bool]
"""Who sees the file, its path, and whether it belongs to a library."""
_Version = tuple[int, int, int, int]
"""Device, inode, size in bytes, time of the last change in ns."""


class Lines(Sequence[str]):
    """The lines of a text, numbered from 0. As in Python, only a line feed ends a line. Each line is created on access.

    While a rank imports torch, lists of the lines of all files on its stack would be some 100,000 small objects, and Python's
    allocator would not return all of their memory.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text
        """Each line ends with `\\n`, as in a file."""
        self._starts = array("I", accumulate(map(len, StringIO(text, newline="\n")), initial=0))
        if text and not text.endswith("\n"):
            self._starts[-1] += 1

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self.text[self._starts[at] : self._starts[at + 1] - 1]


class _File(NamedTuple):
    lines: Lines
    version: _Version
    filtered: bool
    """Whether its secrets were filtered, which is expensive."""


class SourceFiles:
    """Reads source files and keeps them."""

    def __init__(self) -> None:
        self._files: dict[Key, _File | None] = {}
        """None for files that can't be used."""
        self._earlier: dict[Key, _File] = {}
        """Files from before the last `renew`, which may have changed since, the most recently used last."""
        self._stuck: set[Rights] = set()
        """Owners with a file that did not answer: the next one would not answer either."""

    def lines(self, files: ProcessFiles, started: float, file: str, *, library: bool) -> tuple[Key, Lines]:
        """The key and the lines of a file for a process that started at `started` (seconds since the epoch); no lines if it can't
        be used. Secrets are removed from files that belong to no library."""
        key = files.view, file, library
        if key not in self._files:
            self._files[key] = self._read(files, file, self._earlier.pop(key, None), library)
        source_file = self._files[key]
        if source_file is None or source_file.version[3] / 1e9 > started + 1:
            return key, Lines()
        return key, source_file.lines

    def describe_gap(self, key: Key) -> str:
        """Why a file that `lines` was asked for has no lines, as a clause."""
        return "it could not be read" if self._files.get(key) is None else "it is newer than its process"

    def is_filtered(self, key: Key) -> bool:
        """Whether the whole file was filtered. Some lines of another one may begin inside of a literal."""
        source_file = self._files.get(key)
        return source_file is not None and source_file.filtered

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
        self._stuck.clear()

    def _read(self, files: ProcessFiles, path: str, earlier: _File | None, library: bool) -> _File | None:
        """`_read_file`, but None for an owner whose files do not answer."""
        if files.view.rights in self._stuck:
            return None
        try:
            return _read_file(files, path, earlier, library)
        except NoAnswer:
            self._stuck.add(files.view.rights)
        except OSError:
            pass
        return None


def _read_file(files: ProcessFiles, path: str, earlier: _File | None, library: bool) -> _File | None:
    """The file at `path`: `earlier` if it has not changed; None if it is too large. Raises OSError."""
    if earlier is not None and earlier.version == _version(files.stat(path, _BOUND_SECONDS)):
        return earlier
    raw, about = files.read(path, _MAX_BYTES + 1, _BOUND_SECONDS)
    if len(raw) > _MAX_BYTES:
        return None
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    # A literal with a secret may begin above the line that is shown, so the whole file is filtered.
    filtered = not library and len(text) < _MAX_WHOLE
    return _File(Lines(redact.source(text) if filtered else text), _version(about), filtered)


def _version(about: os.stat_result) -> _Version:
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
