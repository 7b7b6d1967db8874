"""Directories in shared places: of beacons, of hangs, of runs. Anybody may have made them first, so each is trusted only if
nobody else can have put anything into it.

It must be a directory and no link, belong to the expected user or to root, and nobody else may write into it. The folders above
it may be shared (/tmp): a directory of another user in its place is refused. After the check it is used through its descriptor,
so a later exchange changes nothing. Only regular files of the same owner are read, replaced or removed in it.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from hangdoc import file_writer

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing since 3.11

MOST_FILES = 100_000
"""How many names are read of a directory."""
_TO_DO = "Remove it, or choose another directory"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CAREFULLY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class UntrustedDirectoryError(PermissionError):
    """A directory may have been prepared by another user. The text says why it is not used, and what to do."""


def reason_against(directory: int, owner: int) -> str | None:
    """Why a directory, an open descriptor, may not be trusted as one of the user with uid `owner`, in a few words; None if it
    may. Root may prepare it for that user. Raises OSError."""
    return _reason(os.fstat(directory), {owner, 0})


def _reason(status: os.stat_result, owners: set[int]) -> str | None:
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    if status.st_uid not in owners:
        return f"it belongs to another user (uid {status.st_uid})"
    if status.st_mode & 0o022:
        return f"other users may write into it (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


class OwnFiles:
    """This user's files in a directory that may be shared with others (of the evidence, of a project): regular files that belong
    to this user or to root. All methods take names, not paths, and raise OSError."""

    def __init__(self, path: Path, *, create: bool = False, owner: int | None = None) -> None:
        """Open it, and with `create` make it if it is missing. `owner` is the uid of the expected user, by default this one."""
        self.path = path
        self.descriptor = -1
        """Of the directory; -1 when it is closed."""
        self._owners = {os.geteuid() if owner is None else owner, 0}
        if not path.name or path.name == "..":
            raise UntrustedDirectoryError(f"{path} is not the name of a directory")
        parent = file_writer.open_folder(path.parent, create=create)
        try:
            if create:
                file_writer.make_below(parent, path.name)
            self.descriptor = self._open(parent)
        finally:
            os.close(parent)

    def _open(self, parent: int) -> int:
        return os.open(self.path.name, _DIRECTORY, dir_fd=parent)

    # --- reading ---------------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """The names of its files, sorted; at most MOST_FILES."""
        names = []
        with os.scandir(self.descriptor) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) >= MOST_FILES:
                    break
        return sorted(names)

    def has(self, name: str) -> bool:
        """Whether it has a file of this name that is trusted."""
        with contextlib.suppress(OSError):
            return self._is_ours(os.stat(_name(name), dir_fd=self.descriptor, follow_symlinks=False))
        return False

    def read(self, name: str, limit: int) -> bytes:
        """The content of a file. Raises OSError for one with more than `limit` bytes."""
        with self._opened(name) as file:
            if os.fstat(file).st_size > limit:
                raise OSError(errno.EFBIG, f"it has more than {limit} bytes", name)
            with open(file, "rb", closefd=False) as stream:
                return stream.read(limit)

    def written_at(self, name: str) -> int:
        """When a file was last written, in nanoseconds of the file system; 0 if it does not exist. The file is opened because NFS
        then asks its server; `stat` alone is answered from a cache."""
        try:
            with self._opened(name) as file:
                return os.fstat(file).st_mtime_ns
        except FileNotFoundError:
            return 0

    @contextlib.contextmanager
    def _opened(self, name: str, access: int = os.O_RDONLY) -> Iterator[int]:
        file = os.open(_name(name), access | _CAREFULLY, dir_fd=self.descriptor)
        try:
            if not self._is_ours(os.fstat(file)):
                raise PermissionError(errno.EPERM, "it is no regular file of this user", name)
            yield file
        finally:
            os.close(file)

    def _is_ours(self, status: os.stat_result) -> bool:
        return stat.S_ISREG(status.st_mode) and status.st_uid in self._owners

    # --- writing ---------------------------------------------------------------------------------------------------------

    def write(self, name: str, content: bytes) -> None:
        """Write a file, completely or not at all."""
        file_writer.replace_file(self.descriptor, _name(name), content)

    def overwrite(self, name: str, content: bytes) -> None:
        """Write a short text into an existing file. NFS shows other hosts the new content of a file sooner than a new file."""
        with self._opened(name, os.O_WRONLY) as file:
            os.write(file, content)
            os.ftruncate(file, len(content))

    def claim(self, name: str) -> bool:
        """Create an empty file. Returns whether this process was the first."""
        try:
            os.close(os.open(_name(name), _NEW, 0o600, dir_fd=self.descriptor))
        except FileExistsError:
            return False
        return True

    def open_new(self, name: str) -> int:
        """The descriptor of a new empty file, for reading and writing, in place of an older one. The caller closes it."""
        self.remove(name)
        file = os.open(name, _NEW, 0o600, dir_fd=self.descriptor)
        os.fchmod(file, 0o600)
        return file

    def rename(self, name: str, to: str) -> None:
        """Rename a file, also over an older one."""
        os.rename(_name(name), _name(to), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def link(self, name: str, to: str) -> None:
        """Give a file a second name. Raises FileExistsError if there is one."""
        os.link(_name(name), _name(to), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor, follow_symlinks=False)

    def date(self, name: str, nanoseconds: int) -> None:
        """Set when a file was last written, in nanoseconds since 1970."""
        with self._opened(name) as file:
            os.utime(file, ns=(nanoseconds, nanoseconds))

    def remove(self, name: str) -> None:
        """Remove a file of this user, or the link that stands in its place. Does nothing if there is none."""
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(_name(name), dir_fd=self.descriptor, follow_symlinks=False)
            if self._is_ours(status) or stat.S_ISLNK(status.st_mode):
                os.unlink(name, dir_fd=self.descriptor)

    def remove_if_empty(self) -> None:
        """Remove the directory itself, if nothing is in it."""
        parent = file_writer.open_folder(self.path.parent)
        try:
            now = os.stat(self.path.name, dir_fd=parent, follow_symlinks=False)
            if os.path.samestat(now, os.fstat(self.descriptor)):
                os.rmdir(self.path.name, dir_fd=parent)
        finally:
            os.close(parent)

    def close(self) -> None:
        """Close the descriptor. The directory stays. May be called twice."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PrivateDirectory(OwnFiles):
    """A directory that is trusted, because only this user and root can have put anything into it."""

    def __init__(self, path: Path, *, create: bool = False, owner: int | None = None) -> None:
        """As OwnFiles. Raises UntrustedDirectoryError for one that others may have prepared."""
        super().__init__(path, create=create, owner=owner)
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _open(self, parent: int) -> int:
        try:
            return os.open(self.path.name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        except NotADirectoryError:  # also for a link
            raise UntrustedDirectoryError(f"{self.path} is a link or no directory. {_TO_DO}") from None

    def _check(self) -> None:
        status = os.fstat(self.descriptor)
        if status.st_uid not in self._owners and not status.st_mode & 0o022:
            self._owners |= self._recorded_owner()
        why = _reason(status, self._owners)
        if why is not None:
            raise UntrustedDirectoryError(f"{self.path} is not used: {why}. {_TO_DO}")

    def _recorded_owner(self) -> set[int]:
        """The uid that the file system records for this user's files. NFS records another one for root (root_squash)."""
        trial = f".owner-{os.urandom(6).hex()}"
        try:
            file = os.open(trial, _NEW, 0o600, dir_fd=self.descriptor)
        except OSError:
            return set()
        try:
            os.unlink(trial, dir_fd=self.descriptor)
            return {os.fstat(file).st_uid}
        finally:
            os.close(file)


def _name(name: str) -> str:
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise ValueError(f"{name!r} is not the name of a file")
    return name
