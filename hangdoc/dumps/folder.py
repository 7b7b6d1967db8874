"""The files in a directory that may be dumps of torch's flight recorder: which they are, and what is in them.

The directory is not trusted. It may be /tmp, where torch wrote its dumps before 2.6. Only regular files are opened, through the
directory's descriptor, and no links.
"""

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from hangdoc import untrusted
from hangdoc.regex import regex
from hangdoc.untrusted import UntrustedError

MOST_BYTES = 64 << 20
"""Of a file. 2,000 calls of FSDP with their frames have 0.3 MB as a pickle, and 1 MB as JSON without frames."""
MOST_NAMES = 200_000
"""Of a directory."""
NO_DUMP = "skipped (no dump of torch's recorder)"
_MOST_FOLDERS = 10_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WITH_RANK = regex(r"(?P<prefix>(?:.*\D)?)(?P<rank>\d{1,6})(?P<ending>\.(?:pkl|pickle|json|bin))?$")
_BEGINS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"{")


class Candidate(NamedTuple):
    """A file that may be a dump."""

    name: str
    """Relative to the directory."""
    prefix: str
    """The name before the rank."""
    rank: int
    raw: bytes
    written_us: int
    """When the file was last written to, in microseconds since 1970. A copy may have another time than the original."""
    unread: str | None = None
    """Why it was not read, as a clause after its name."""


class Listed(NamedTuple):
    """What a directory has."""

    candidates: Iterator[Candidate]
    """They are read one after the other. An element raises nothing."""
    skipped: dict[str, list[str]]
    """Names of files that are not candidates, by what was done and why. It is complete when all candidates were read."""


class FolderError(Exception):
    """A directory can't be read. The text is one clause."""


def list_dumps(path: Path, may_go_on: Callable[[], bool]) -> Listed:
    """The candidates in a directory; if its own files are none, those in the directories in it, as one for each node has them.
    `may_go_on` says before each file whether there is time for it. Raises FolderError."""
    try:
        folder = os.open(path, _DIRECTORY)
    except NotADirectoryError:
        raise FolderError("is not a directory") from None
    except (OSError, ValueError) as error:
        raise FolderError(f"cannot be read: {getattr(error, 'strerror', error)}") from None
    skipped: dict[str, list[str]] = {}
    return Listed(_list_candidates(folder, skipped, may_go_on), skipped)


def _list_candidates(folder: int, skipped: dict[str, list[str]], may_go_on: Callable[[], bool]) -> Iterator[Candidate]:
    with _closing(folder):
        files, folders = _list_names(folder, skipped)
        has_candidates = False
        for candidate in _list_in_folder(folder, "", files, skipped, may_go_on):
            has_candidates = True
            yield candidate
        if has_candidates and folders:
            skipped.setdefault("skipped (directories; name one of them to read its dumps)", []).extend(folders)
        for name in () if has_candidates else folders[:_MOST_FOLDERS]:
            with contextlib.suppress(OSError):
                inner = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                with _closing(inner):
                    yield from _list_in_folder(
                        inner, f"{name}/", _list_names(inner, skipped, f"{name}/")[0], skipped, may_go_on
                    )


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(descriptor)


def _list_names(folder: int, skipped: dict[str, list[str]], above: str = "") -> tuple[list[str], list[str]]:
    """(files with a number at the end, directories), by name."""
    files, folders = [], []
    with os.scandir(folder) as entries:
        for entry in itertools.islice(entries, MOST_NAMES):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif not entry.is_file(follow_symlinks=False):
                skipped.setdefault("skipped (no regular file)", []).append(above + entry.name)
            elif _WITH_RANK.match(entry.name):
                files.append(entry.name)
            else:
                skipped.setdefault("skipped (no rank at the end of the name)", []).append(above + entry.name)
        if next(entries, None) is not None:
            skipped.setdefault(f"skipped (beyond the first {MOST_NAMES:,})", []).append(f"{above}...")
    return sorted(files, key=_by_rank), sorted(folders)


def _by_rank(name: str) -> tuple[int, str]:
    match = _WITH_RANK.match(name)
    return (int(match["rank"]) if match else 0, name)


def _list_in_folder(
    folder: int, above: str, names: list[str], skipped: dict[str, list[str]], may_go_on: Callable[[], bool]
) -> Iterator[Candidate]:
    for name in names:
        match = _WITH_RANK.match(name)
        if match is None:
            continue
        raw, written_us, unread = b"", 0, None
        try:
            if may_go_on():
                raw, written_us = _read(folder, name)
            else:
                unread = "was not read in time (raise --timeout)"
        except UntrustedError as error:
            unread = str(error)
        except OSError as error:
            unread = f"cannot be read ({error.strerror})"
        if raw and not raw.startswith(_BEGINS):
            skipped.setdefault(NO_DUMP, []).append(above + name)
        else:
            yield Candidate(above + name, match["prefix"], int(match["rank"]), raw, written_us, unread)


def _read(folder: int, name: str) -> tuple[bytes, int]:
    """The content of a file, and when it was written. Of one that does not begin like a dump, only the first bytes."""
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
    with open(file, "rb") as stream:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedError("is no regular file")
        start = stream.peek(2)[:2]
        if start and not start.startswith(_BEGINS):
            return start, 0
        if status.st_size > MOST_BYTES:
            raise UntrustedError(f"has more than {untrusted.size(MOST_BYTES)}")
        raw = stream.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise UntrustedError(f"has more than {untrusted.size(MOST_BYTES)}")
    return raw, max(0, status.st_mtime_ns // 1000)
