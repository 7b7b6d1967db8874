"""The only writer of files at paths that a user or a configuration names.

A file is written beside its target and renamed only over a regular file or nothing. So the target is at any moment the old
content or the new, also when the disk is full or the writer is killed. Anything else (a device, a pipe, /dev/stdout) is written
into.

A path is opened component by component, and the rest happens through the descriptor of the folder (openat(2), renameat(2)): who
can replace a folder of the path gains nothing. A symbolic link is followed only if this user or root made it, because hangdoc as
root writes into folders of other users. Files get mode 0600 and folders 0700, whatever the umask.
"""

import contextlib
import errno
import os
import select
import stat
import sys
import time
from collections import deque
from collections.abc import Iterator

_DESCRIPTORS = ("/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}
_MOST_LINKS = 40
"""As the kernel's own limit (path_resolution(7))."""
_PIPE_SECONDS = 30.0
"""How long the reader of a pipe or a terminal may take for the whole content."""
_LONGEST_PREFIX = 200
"""Bytes of a file's name that the name of its temporary file repeats. Names have at most 255."""
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class WriteError(OSError):
    """A file can't be written. The message is one sentence with the problem and the remedy."""


class _Refused(OSError):
    """Why a path is not used, in a few words."""

    def __init__(self, why: str) -> None:
        super().__init__(0, why)


def write_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path`, completely or not at all. Into a device or a pipe, it is written directly. Raises WriteError."""
    try:
        _write(os.fspath(path), content)
    except OSError as error:
        raise WriteError(_sentence(path, error)) from None


def check_target(path: str | os.PathLike[str]) -> None:
    """Check, before the content exists, whether `write_file` can write it. Raises WriteError."""
    try:
        if (descriptor := _descriptor(os.fspath(path))) is not None:
            os.fstat(descriptor)
            return
        with _located(os.fspath(path)) as (folder, name, status):
            if status is None or stat.S_ISREG(status.st_mode):
                _check_access(".", folder)
            else:
                _check_kind(status)
                _check_access(name, folder)
    except OSError as error:
        raise WriteError(_sentence(path, error)) from None


def open_lock(path: str | os.PathLike[str]) -> int:
    """A descriptor of the file at `path`, created if it is missing, for flock(2). Its content stays. Raises WriteError, also for
    anything but a regular file."""
    try:
        with _located(os.fspath(path)) as (folder, name, status):
            if status is not None and not stat.S_ISREG(status.st_mode):
                raise _Refused("it is not a regular file")
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            return os.open(name, flags, 0o600, dir_fd=folder)
    except OSError as error:
        raise WriteError(_sentence(path, error)) from None


def make_directory(path: str | os.PathLike[str]) -> None:
    """Create a directory and its parents, as far as they are missing, with mode 0700. Raises WriteError."""
    try:
        os.close(open_folder(path, create=True))
    except OSError as error:
        why = _words(error)
        raise WriteError(f"cannot create {os.fspath(path)}: {why}. Choose another directory.") from None


def open_folder(path: str | os.PathLike[str], *, create: bool = False) -> int:
    """A descriptor (O_PATH) of the directory at `path`. With `create`, missing directories are made, with mode 0700. Raises
    OSError, also for a link of another user. The caller closes it."""
    with _located(os.path.join(os.fspath(path), "."), create=create) as (folder, name, status):
        if status is None or not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")
        return os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=folder)


def replace_file(folder: int, name: str, content: bytes) -> None:
    """Write a regular file into the directory `folder` (a descriptor): to a temporary file, which is then renamed. The file has
    mode 0600. Raises OSError; then the old file is as it was."""
    aside = f".{os.fsdecode(os.fsencode(name)[:_LONGEST_PREFIX])}.{os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = os.open(aside, flags, 0o600, dir_fd=folder)
    except FileNotFoundError:
        raise _Refused("no file can be made there") from None
    try:
        try:
            os.fchmod(file, 0o600)  # the umask may have removed bits
            _write_all(file, content)
            os.fsync(file)  # without this, a crash of the host may leave an empty file
        finally:
            os.close(file)
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:  # SIGTERM raises SystemExit
        with contextlib.suppress(OSError):
            os.unlink(aside, dir_fd=folder)
        raise


def _write(path: str, content: bytes) -> None:
    if (descriptor := _descriptor(path)) is not None:
        _write_into_own(descriptor, content)
        return
    with _located(path) as (folder, name, status):
        if status is None or stat.S_ISREG(status.st_mode):
            replace_file(folder, name, content)
        else:
            _write_into(folder, name, status, content)


def _descriptor(path: str) -> int | None:
    """The descriptor of this process that a path names: /dev/stdout, /dev/fd/N."""
    if (number := _STANDARD.get(path)) is not None:
        return number
    descriptor, below = _at_descriptor(path)
    return descriptor if not below else None


def _at_descriptor(path: str) -> tuple[int | None, str]:
    """(descriptor of this process at which a path begins, the rest of the path). None for any other path."""
    for folder in _DESCRIPTORS:
        if path.startswith(folder):
            number, _, below = path.removeprefix(folder).partition("/")
            if number.isascii() and number.isdigit() and len(number) < 10:
                return int(number), below
    return None, path


def _write_into_own(descriptor: int, content: bytes) -> None:
    """Write where a descriptor of this process points to, after what Python has buffered for it. Its flags stay, because other
    processes may share them."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _write_all(descriptor, content)


def _write_into(folder: int, name: str, expected: os.stat_result, content: bytes) -> None:
    """Write into what exists and is no regular file."""
    _check_kind(expected)
    try:
        file = os.open(name, os.O_WRONLY | os.O_NOCTTY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if stat.S_ISFIFO(expected.st_mode) and error.errno == errno.ENXIO:
            raise _Refused("it is a pipe that nobody reads") from None
        raise
    try:
        if not os.path.samestat(expected, os.fstat(file)):
            raise _Refused("it was replaced meanwhile")
        _write_all(file, content)
    finally:
        os.close(file)


def _check_kind(status: os.stat_result) -> None:
    """Raises OSError for what is not written into: a disk, which would lose its file system, and a pipe of another user, who
    would read the evidence."""
    if stat.S_ISDIR(status.st_mode):
        raise _Refused("it is a directory")
    if stat.S_ISBLK(status.st_mode):
        raise _Refused("it is a disk")
    if stat.S_ISSOCK(status.st_mode):
        raise _Refused("it is a socket")
    if stat.S_ISFIFO(status.st_mode) and status.st_uid not in (0, os.geteuid()):
        raise _Refused("it is a pipe of another user")


def _check_access(name: str, folder: int) -> None:
    if not os.access(name, os.W_OK, dir_fd=folder, effective_ids=True):
        raise PermissionError(errno.EACCES, "permission denied")


def _write_all(file: int, content: bytes) -> None:
    left = memoryview(content)
    until = time.monotonic() + _PIPE_SECONDS
    while left:
        try:
            left = left[os.write(file, left) :]
        except BlockingIOError:
            if not select.select([], [file], [], max(0.0, until - time.monotonic()))[1]:
                raise _Refused(f"its reader took more than {_PIPE_SECONDS:g} s") from None


# --- paths ---------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _located(path: str, *, create: bool = False) -> Iterator[tuple[int, str, os.stat_result | None]]:
    """(descriptor of the folder, name in it, status of what has this name, None if nothing has), after all links. Raises
    OSError."""
    if not path or "\0" in path:
        raise _Refused("the path is empty" if not path else "the path contains a NUL character")
    folder, rest = _start(path)
    try:
        names = deque(part for part in rest.split("/") if part)
        if rest.endswith("/"):
            names.append(".")
        links = 0
        while True:
            name = names.popleft() if names else "."
            last = not names
            try:
                status: os.stat_result | None = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                status = None
            if status is not None and stat.S_ISLNK(status.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise _Refused("it has too many symbolic links")
                target = _target(folder, name)
                if target.startswith("/"):
                    os.close(folder)
                    folder, target = _start(target)
                names.extendleft(reversed([part for part in target.split("/") if part] or ["."]))
            elif last:
                yield folder, name, status
                return
            else:
                if status is None and create:
                    make_below(folder, name)
                below = os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=folder)
                os.close(folder)
                folder = below
    finally:
        os.close(folder)


def _start(path: str) -> tuple[int, str]:
    """The descriptor at which a path begins, and the rest of the path. A path may begin at a descriptor of this process."""
    descriptor, below = _at_descriptor(path)
    if descriptor is not None:
        return os.open(".", _LOOK | os.O_DIRECTORY, dir_fd=descriptor), below or "."
    return os.open("/" if path.startswith("/") else ".", _LOOK | os.O_DIRECTORY), path


def _target(folder: int, name: str) -> str:
    """The target of a link that may be followed: one that root or this user made, and no link of a process in /proc, whose text
    is not where it leads. Raises OSError."""
    link = os.open(name, _LOOK, dir_fd=folder)
    try:
        status = os.fstat(link)
        if status.st_uid not in (0, os.geteuid()):
            raise _Refused(f"it leads through a link of another user ({name!r}, uid {status.st_uid})")
        if name not in ("self", "thread-self") and os.path.exists("/proc") and status.st_dev == os.stat("/proc").st_dev:
            raise _Refused(f"it leads through a link of a process ({name!r})")
        return os.readlink("", dir_fd=link)
    finally:
        os.close(link)


def make_below(folder: int, name: str) -> None:
    """Make a directory in the directory `folder` (a descriptor) with mode 0700, unless there is something of this name. Raises
    OSError."""
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
    except FileExistsError:
        return
    made = os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=folder)
    try:
        if os.fstat(made).st_mode & 0o700 != 0o700:  # an unusual umask
            os.chmod(f"/proc/self/fd/{made}", 0o700)
    finally:
        os.close(made)


def _sentence(path: str | os.PathLike[str], error: OSError) -> str:
    return f"cannot write {os.fspath(path)}: {_words(error)}. Choose another path."


def _words(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such directory"
    if isinstance(error, PermissionError) and error.errno == errno.EPERM:  # the sticky bit, or an immutable file
        return "it belongs to another user, or may not be changed"
    why = error.strerror or str(error)
    return why[:1].lower() + why[1:]
