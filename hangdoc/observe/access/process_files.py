"""The only reader of files that belong to observed processes: sources, metadata, data directories, beacons, lock files, sockets.

The path comes from the process, so it may name anything. Each path is resolved below the root directory of the process, without
magic links (openat2(2)), by a thread that has the rights of the process's owner (`owner_rights`): hangdoc as root shows nothing
that the owner could not read. Only regular files are read, at most as many bytes as the caller allows, and none of procfs, sysfs
and their kin. A thread whose file system does not answer is abandoned.
"""

import contextlib
import ctypes
import errno
import functools
import os
import socket
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from hangdoc.observe.access.abandonable import NotEnded, Threads, TooMany
from hangdoc.observe.access.owner_rights import Refused, Rights, rights_of, take_on
from hangdoc.private_directory import reason_against
from hangdoc.procfs import Gone, ProcFS

_OPENAT2 = 437
"""The same number on all architectures (include/uapi/asm-generic/unistd.h)."""
_NO_MAGIC_LINKS, _IN_ROOT = 0x02, 0x10
"""RESOLVE_NO_MAGICLINKS and RESOLVE_IN_ROOT (openat2(2))."""
_PLACE = os.O_PATH | os.O_CLOEXEC
_MAX_LINKS = 40
"""As in the kernel (MAXSYMLINKS)."""
_TRIES = 8
"""openat2(2) fails with EAGAIN if something is renamed meanwhile."""
_PROCFS = 0x9FA0
_KERNEL_FILE_SYSTEMS = frozenset(
    {
        _PROCFS, 0x62656572, 0x27E0EB, 0x63677270, 0x64626720, 0x74726163, 0x73636673, 0xCAFE4A11, 0x1CD1, 0x62656570, 0xDE5E81E4,
        0xF97CFF8C, 0x6165676C, 0x6E736673, 0x42494E4D, 0x19800202, 0x09041934,
    }
)  # fmt: skip
"""proc, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs, bpf, devpts, configfs, efivarfs, selinux, pstore, nsfs,
binfmt_misc, mqueue, anonymous inodes (include/uapi/linux/magic.h)."""
_MOST_THREADS = 16
"""For one owner. A hostile owner can only use up its own."""
SECONDS = 2.0
"""The usual limit for one reading. A dead mount does not answer at all."""

T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)
_HERE = ProcFS()


class NoAnswer(Refused):
    """A file that could not be read in time: a dead mount, or a file system that its owner serves."""


class View(NamedTuple):
    """What decides what a process sees at a path. Equal views see the same files."""

    namespace: str
    """Its mount namespace."""
    device: int
    inode: int
    """Of its root directory."""
    rights: Rights


class Content(NamedTuple):
    """A file that was read."""

    raw: bytes
    """At most as many bytes as the caller allowed."""
    about: os.stat_result


class Root:
    """The root directory of a process, for the code that a thread with the rights of its owner runs. Every method raises OSError.
    Paths are absolute, as the process sees them."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @contextlib.contextmanager
    def place(self, path: str, *, follow: bool = True) -> Iterator[int]:
        """A descriptor (O_PATH) of whatever is at `path`. Links are followed, but without `follow` not the last component.
        Nothing is opened, so a device or FIFO does not notice."""
        descriptor = _resolve(self._descriptor, os.fsencode(path), follow=follow)
        try:
            if _file_system(descriptor) in _KERNEL_FILE_SYSTEMS:
                raise Refused("it is a file of the kernel")
            yield descriptor
        finally:
            os.close(descriptor)

    def stat(self, path: str) -> os.stat_result:
        """What stat(2) says."""
        with self.place(path) as descriptor:
            return os.fstat(descriptor)

    def has(self, path: str) -> bool:
        """Whether there is anything at `path`. Never raises."""
        try:
            self.stat(path)
        except OSError:
            return False
        return True

    def open_regular(self, path: str) -> int:
        """A descriptor of the regular file at `path`, for the caller to close."""
        with self.place(path) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Refused("it is not a regular file")
            return _reopen(descriptor, os.O_RDONLY)

    def space(self, path: str) -> os.statvfs_result:
        """What statvfs(3) says."""
        with self.place(path) as descriptor:
            return os.fstatvfs(descriptor)

    def read(self, path: str, most: int) -> Content:
        """The first `most` bytes of the regular file at `path`. Raises Refused if it changes meanwhile."""
        file = self.open_regular(path)
        try:
            about = os.fstat(file)
            raw = _read_up_to(file, most)
            after = os.fstat(file)
        finally:
            os.close(file)
        if (after.st_size, after.st_mtime_ns) != (about.st_size, about.st_mtime_ns):
            raise Refused("it changed while it was read")
        return Content(raw, about)

    def read_private(self, folder: str, name: str, owner: int, most: int) -> bytes:
        """The first `most` bytes of the file `name` in a directory that only the user `owner` or root may write to. Raises
        Refused for any other directory or file, and for links: somebody else may have put them there."""
        with self.place(folder, follow=False) as descriptor:
            if (reason := reason_against(descriptor, owner)) is not None:
                raise Refused(reason)
            with Root(descriptor).place(name, follow=False) as place:
                about = os.fstat(place)
                if not stat.S_ISREG(about.st_mode) or about.st_uid not in (owner, 0) or about.st_mode & 0o022:
                    raise Refused("somebody else may have put it there")
                file = _reopen(place, os.O_RDONLY)
        try:
            return _read_up_to(file, most)
        finally:
            os.close(file)

    def entries(self, path: str, most: int) -> list[tuple[str, os.stat_result]]:
        """Names in the directory at `path`, at most `most`, with what lstat(2) says of each. Without those that vanish."""
        with self.place(path) as descriptor:
            folder = _reopen(descriptor, os.O_RDONLY | os.O_DIRECTORY)
        listed: list[tuple[str, os.stat_result]] = []
        try:
            with os.scandir(folder) as items:
                for item in items:
                    if len(listed) == most:
                        break
                    with contextlib.suppress(OSError):
                        listed.append((item.name, item.stat(follow_symlinks=False)))
        finally:
            os.close(folder)
        return listed

    def connect(self, connection: socket.socket, path: str) -> None:
        """Connect a Unix socket with the one at `path`."""
        with self.place(path) as descriptor:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                raise Refused("it is not a socket")
            connection.connect(f"/proc/self/fd/{descriptor}")


class ProcessFiles:
    """The files that one process sees, for its owner."""

    def __init__(self, root: int, view: View, directory: str) -> None:
        self._root, self.view = root, view
        self.directory = directory
        """The working directory of the process."""

    def read(self, path: str, most: int, seconds: float = SECONDS) -> Content:
        """As `Root.read`."""
        return self.run(lambda root: root.read(path, most), seconds)

    def stat(self, path: str, seconds: float = SECONDS) -> os.stat_result:
        """As `Root.stat`."""
        return self.run(lambda root: root.stat(path), seconds)

    def run(self, action: Callable[[Root], T], seconds: float = SECONDS) -> T:
        """The result of `action`, which runs in a thread with the rights of the owner. Raises what it raises, and Refused if it
        takes longer or the rights can't be had."""
        own = os.dup(self._root)  # an abandoned thread still uses it
        begun = False

        def act() -> T:
            nonlocal begun
            begun = True
            try:
                return action(Root(own))
            finally:
                os.close(own)

        try:
            return _threads.run(self.view.rights, act, seconds)
        except NotEnded:
            begun = True  # the thread closes it when it comes to it
            raise NoAnswer(f"it could not be read within {seconds:.1f} s (a dead mount?)") from None
        except TooMany:
            raise NoAnswer(f"{_MOST_THREADS} files of its owner do not answer") from None
        finally:
            if not begun:  # the rights can't be had
                os.close(own)


@contextlib.contextmanager
def files_of(proc: ProcFS, pid: int, start_ticks: int) -> Iterator[ProcessFiles]:
    """The files of the process `pid` that started at `start_ticks` (`Stat.start_ticks`). Raises OSError, or ProcError if it has
    ended or may not be looked at."""
    try:
        process = os.open(f"{proc.root}/{pid}", _PLACE | os.O_DIRECTORY)
    except FileNotFoundError as error:
        raise Gone(f"{proc.root}/{pid}: the process has ended") from error
    root = -1
    try:
        # This descriptor never leads to another process, even if the pid is reused.
        task = f"self/fd/{process}"
        if _HERE.stat(task).start_ticks != start_ticks:
            raise Gone(f"{proc.root}/{pid}: the process has ended")
        root = os.open("root", _PLACE | os.O_DIRECTORY, dir_fd=process)
        about = os.fstat(root)
        view = View(_HERE.link(f"{task}/ns/mnt"), about.st_dev, about.st_ino, rights_of(_HERE, task))
        yield ProcessFiles(root, view, _HERE.link(f"{task}/cwd"))
    finally:
        os.close(process)
        if root >= 0:
            os.close(root)


def is_procfs(path: str) -> bool:
    """Whether procfs is mounted at `path`, a directory of this host and no link."""
    try:
        descriptor = os.open(path, _PLACE | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return _file_system(descriptor) == _PROCFS
    except OSError:
        return False
    finally:
        os.close(descriptor)


@functools.cache
def own_root() -> Root:
    """The root directory of this process, for what it reads of its own. Raises OSError."""
    return Root(os.open("/", _PLACE | os.O_DIRECTORY))


_threads: Threads[Rights] = Threads("files of an owner", _MOST_THREADS, take_on)

# --- paths ---------------------------------------------------------------------------------------------------------------------


class _How(ctypes.Structure):
    """`struct open_how` (include/uapi/linux/openat2.h)."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def _resolve(root: int, path: bytes, *, follow: bool) -> int:
    """A descriptor (O_PATH) of `path` below the directory `root`. Raises OSError."""
    if b"\0" in path:
        raise Refused("the path contains a NUL")
    how = _How(_PLACE if follow else _PLACE | os.O_NOFOLLOW, 0, _IN_ROOT | _NO_MAGIC_LINKS)
    for _ in range(_TRIES):
        descriptor = int(_libc.syscall(_OPENAT2, root, path, ctypes.byref(how), ctypes.sizeof(how)))
        if descriptor >= 0:
            return descriptor
        problem = ctypes.get_errno()
        if problem in (errno.ENOSYS, errno.EPERM):  # a kernel before 5.6, or a sandbox that does not know the call
            return walk(root, path, follow=follow)
        if problem != errno.EAGAIN:
            break
    raise OSError(problem, os.strerror(problem))


def walk(root: int, path: bytes, *, follow: bool = True) -> int:
    """As openat2(2) with RESOLVE_IN_ROOT and RESOLVE_NO_MAGICLINKS, one component after the other. Raises OSError."""
    above = [os.dup(root)]  # the directories from the root to the present place
    todo = path.split(b"/")[::-1]
    links = 0
    try:
        while todo:
            name = todo.pop()
            if name in (b"", b"."):
                continue
            if name == b"..":
                if not stat.S_ISDIR(os.fstat(above[-1]).st_mode):
                    raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                if len(above) > 1:
                    os.close(above.pop())
                continue
            descriptor = os.open(name, _PLACE | os.O_NOFOLLOW, dir_fd=above[-1])
            if not stat.S_ISLNK(os.fstat(descriptor).st_mode) or not (todo or follow):
                above.append(descriptor)
                continue
            try:
                links += 1
                if links > _MAX_LINKS or _file_system(descriptor) in _KERNEL_FILE_SYSTEMS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                target = os.readlink(b"", dir_fd=descriptor)
            finally:
                os.close(descriptor)
            if target.startswith(b"/"):
                while len(above) > 1:
                    os.close(above.pop())
            todo += target.split(b"/")[::-1]
        return above.pop()
    finally:
        for descriptor in above:
            os.close(descriptor)


def _reopen(place: int, flags: int) -> int:
    """Open the file of an O_PATH descriptor; the kernel checks the rights of this thread. Raises OSError."""
    return os.open(f"/proc/self/fd/{place}", flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _read_up_to(file: int, most: int) -> bytes:
    parts: list[bytes] = []
    while most > 0 and (part := os.read(file, min(most, 1 << 20))):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def _file_system(descriptor: int) -> int:
    """The magic number of the file system (fstatfs(2)). Raises OSError."""
    about = (ctypes.c_long * 16)()  # `struct statfs` has 120 bytes on 64-bit Linux, and begins with f_type
    if _libc.fstatfs(descriptor, about) != 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return int(about[0]) & 0xFFFFFFFF
