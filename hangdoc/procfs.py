"""Reads /proc, and translates its errors in one place (proc(5)).

It imports nothing else of hangdoc, so that the process that `hangdoc run` leaves beside the command stays small.

The root is a parameter, so that tests can use a fake one. Every reader raises only `ProcError` or a subclass: the process is
gone, permission is denied, or the file is unreadable.
"""

import contextlib
import os
import sys
from itertools import islice
from pathlib import Path
from typing import NamedTuple

_READ_BYTES = 8192
_MOST_BYTES = 16 << 20
"""The largest files are maps and mountinfo, whose size the process decides."""
_MOST_WORDS_BYTES = 256 << 10
"""Of cmdline and environ. Those of a job on a cluster have up to 50 KiB."""
_AT_SECURE = 23
"""include/uapi/linux/auxvec.h."""
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h."""


_MOST_RENUMBERED = 1000
"""Threads of a process in another pid namespace whose numbers are looked up. Each takes 20 microseconds."""


class ProcError(Exception):
    """A file of /proc that could not be read."""


class Denied(ProcError):
    """Permission is missing: another user's process, or ptrace is not allowed."""


class Gone(ProcError):
    """The process has ended."""


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that hangdoc uses (proc_pid_stat(5))."""

    name: str
    state: str
    ppid: int
    group: int
    """The process group: a shell gives each job its own (credentials(7))."""
    cpu_ticks: int
    """utime + stime."""
    children_ticks: int
    """cutime + cstime: of the children that have ended and were waited for."""
    start_ticks: int
    """Clock ticks after boot."""
    exit_code: int
    processor: int | None
    """The one that it last ran on."""


class ProcFS:
    """The /proc at `root`."""

    def __init__(self, root: str = "/proc") -> None:
        self.root = Path(root)
        self._root = root
        self.ticks_per_second = os.sysconf("SC_CLK_TCK")

    def pids(self) -> list[int]:
        """All processes, ascending."""
        return sorted(int(name) for name in os.listdir(self.root) if name.isdigit())

    def shows_all(self) -> bool:
        """Whether `pids` has every process of the machine: /proc shows those of one pid namespace and of its descendants
        (pid_namespaces(7))."""
        try:
            return self.link("self/ns/pid") == _FIRST_PID_NAMESPACE
        except ProcError:
            return False

    def tids(self, pid: int) -> list[int]:
        """All threads of a process, ascending; raises ProcError."""
        try:
            return sorted(int(name) for name in os.listdir(f"{self._root}/{pid}/task") if name.isdigit())
        except OSError as error:
            raise _translate(error, f"{self._root}/{pid}/task") from error

    def thread_names(self, pid: int) -> list[str]:
        """The names of all threads of a process; raises ProcError."""
        return [self.stat(f"{pid}/task/{tid}").name for tid in self.tids(pid)]

    def read(self, name: str) -> bytes:
        """The whole file at `name` below the root; raises ProcError, also for one of more than 16 MiB."""
        return read_kernel_file(f"{self._root}/{name}")

    def head(self, name: str, most: int) -> bytes:
        """The first `most` bytes of a file; raises ProcError."""
        return read_kernel_file(f"{self._root}/{name}", most, cut=True)

    def text(self, name: str) -> str:
        """As `read`, decoded and stripped."""
        return self.read(name).decode("utf-8", "replace").strip()

    def link(self, name: str) -> str:
        """Where the link at `name` points; raises ProcError."""
        try:
            return os.readlink(f"{self._root}/{name}")
        except OSError as error:
            raise _translate(error, f"{self._root}/{name}") from error

    def links(self, name: str, most: int | None = None) -> dict[str, str]:
        """All links in the directory `name`, without those that vanish during the read. Raises ProcError for the directory, also
        if it has more than `most`."""
        try:
            with os.scandir(f"{self._root}/{name}") as entries:
                names = [entry.name for entry in islice(entries, None if most is None else most + 1)]
        except OSError as error:
            raise _translate(error, f"{self._root}/{name}") from error
        if most is not None and len(names) > most:
            raise ProcError(f"{self._root}/{name} has more than {most} entries")
        targets = {}
        for entry in names:
            try:
                targets[entry] = os.readlink(f"{self._root}/{name}/{entry}")
            except OSError:
                continue
        return targets

    def open_descriptor(self, name: str) -> int:
        """A descriptor of the file at `name` below the root (memory, a namespace), for the caller to close. Raises ProcError."""
        return open_kernel_file(f"{self._root}/{name}")

    def open_file(self, pid: int, descriptor: int) -> os.stat_result:
        """What stat(2) says of a file that a process has open. Raises ProcError."""
        try:
            return os.stat(f"{self._root}/{pid}/fd/{descriptor}")
        except OSError as error:
            raise _translate(error, f"{self._root}/{pid}/fd/{descriptor}") from error

    def program_mode(self, task: str) -> int:
        """The mode of the file that a process executes, as stat(2) says. Raises ProcError."""
        try:
            return os.stat(f"{self._root}/{task}/exe").st_mode
        except OSError as error:
            raise _translate(error, f"{self._root}/{task}/exe") from error

    def stat(self, task: str) -> Stat:
        """The stat of `PID` or `PID/task/TID`; raises ProcError."""
        text = self.read(f"{task}/stat").decode("utf-8", "replace")
        opening, closing = text.find("("), text.rfind(")")  # a name may contain spaces and parentheses
        rest = text[closing + 2 :].split()
        if opening < 0 or len(rest) < 20:
            raise ProcError(f"{self.root}/{task}/stat has an unknown format")
        return Stat(
            name=text[opening + 1 : closing],
            state=rest[0],
            ppid=int(rest[1]),
            group=int(rest[2]),
            cpu_ticks=int(rest[11]) + int(rest[12]),
            children_ticks=int(rest[13]) + int(rest[14]),
            start_ticks=int(rest[19]),
            exit_code=int(rest[-1]),
            processor=int(rest[36]) if len(rest) > 36 else None,
        )

    def schedstat(self, task: str) -> tuple[int, int, int | None]:
        """(CPU nanoseconds, nanoseconds in which it was ready to run and waited for a core, number of time slices) of a thread
        `PID/task/TID`, or of the main thread of `PID` (Documentation/scheduler/sched-stats.rst). (0, 0, None) from a kernel that
        does not count them: it prints zeros, which no thread that has run can have. Raises ProcError."""
        try:
            cpu, delayed, slices = self.read(f"{task}/schedstat").split()
            return int(cpu), int(delayed), int(slices) or None
        except ValueError as error:
            raise ProcError(f"{self.root}/{task}/schedstat has an unknown format") from error

    def status(self, task: str) -> dict[str, str]:
        """/proc/PID/status as names and values; raises ProcError."""
        lines = self.text(f"{task}/status").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def fields(self, task: str, *names: str) -> list[str | None]:
        """Some values of /proc/PID/status; None for a missing one. It takes a tenth of the time of `status`. Raises ProcError."""
        raw = b"\n" + self.read(f"{task}/status")
        values: list[str | None] = []
        for name in names:
            at = raw.find(b"\n%s:" % name.encode())
            end = raw.find(b"\n", at + 1)
            value = raw[at + len(name) + 2 : end if end >= 0 else None]
            values.append(value.decode("utf-8", "replace").strip() if at >= 0 else None)
        return values

    def user(self, pid: int) -> int | None:
        """The real uid of a process; None if it can't be read."""
        try:
            (uids,) = self.fields(str(pid), "Uid")
            return int((uids or "").split(None, 1)[0])
        except (ProcError, ValueError, IndexError):
            return None

    def is_secure(self, task: str) -> bool:
        """Whether the program of a process was started with more rights than its starter has (AT_SECURE in
        getauxval(3)): it has the set-user-ID or set-group-ID bit, or capabilities, or a security module says so. Raises
        ProcError."""
        raw = self.read(f"{task}/auxv")
        word = 8 if raw[4:8] == b"\0" * 4 else 4  # the first key is small: its upper half is 0 in a 64-bit process
        order = sys.byteorder
        for at in range(0, len(raw) - 2 * word + 1, 2 * word):
            if int.from_bytes(raw[at : at + word], order) == _AT_SECURE:
                return int.from_bytes(raw[at + word : at + 2 * word], order) != 0
        return False

    def io(self, pid: int) -> dict[str, int]:
        """/proc/PID/io: bytes by the names of proc_pid_io(5). Raises ProcError."""
        try:
            counts = {
                name: int(count)
                for name, _, count in (line.partition(": ") for line in self.text(f"{pid}/io").splitlines())
            }
        except ValueError as error:
            raise ProcError(f"{self.root}/{pid}/io has an unknown format") from error
        return {"rchar": 0, "wchar": 0, "read_bytes": 0, "write_bytes": 0} | counts

    def words(self, name: str) -> tuple[str, ...]:
        """The words of a NUL-separated file such as cmdline and environ: those in its first 256 KiB. Raises ProcError."""
        return tuple(self.head(name, _MOST_WORDS_BYTES).decode("utf-8", "replace").rstrip("\0").split("\0"))

    def environ(self, pid: int) -> dict[str, str]:
        """The environment with which a process was started, without later changes, as far as `words` has it. Raises ProcError."""
        pairs = (word.partition("=") for word in self.words(f"{pid}/environ"))
        return {name: value for name, equals, value in pairs if equals}


def open_kernel_file(path: str) -> int:
    """A descriptor of a file of procfs, sysfs or cgroupfs. Raises ProcError, also for a path with `..`."""
    if "/../" in path:  # the control group of a process in another namespace, as seen from here
        raise ProcError(f"{path} is outside of what hangdoc sees")
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _translate(error, path) from error


def read_kernel_file(path: str, most: int = _MOST_BYTES, *, cut: bool = False) -> bytes:
    """A file of procfs, sysfs or cgroupfs. Raises ProcError, also for a path with `..`, and for more than `most` bytes unless it
    is to be cut there."""
    # os.read and not open: a poll of 64 ranks reads thousands of files, each of a few hundred bytes.
    file = open_kernel_file(path)
    try:
        try:
            parts = [os.read(file, _READ_BYTES)]
            left = most - len(parts[0])
            while parts[-1] and left >= 0:  # the kernel returns a long file in parts of any size
                parts.append(os.read(file, _READ_BYTES))
                left -= len(parts[-1])
        finally:
            os.close(file)
    except OSError as error:
        raise _translate(error, path) from error
    if left < 0 and not cut:
        raise ProcError(f"{path} is larger than {most >> 20} MiB")
    return b"".join(parts)[:most]


def age(proc: ProcFS, start_ticks: int) -> float:
    """Seconds since a process started, from `Stat.start_ticks`; 0 if the machine's uptime can't be read."""
    try:
        uptime = float(proc.text("uptime").split()[0])
    except (ProcError, ValueError, IndexError):
        return 0.0
    return round(max(0.0, uptime - start_ticks / proc.ticks_per_second), 2)


def network_of(proc: ProcFS, pid: int) -> str:
    """The network namespace of a process, as `net:[4026531840]`; empty if it can't be read."""
    try:
        return proc.link(f"{pid}/ns/net")
    except ProcError:
        return ""


def inner_pid(proc: ProcFS, pid: int | str) -> int:
    """A process's pid in its own pid namespace: the last of `NSpid` (proc_pid_status(5)). Or the number of a thread, for
    `PID/task/TID`. Raises ProcError."""
    (numbers,) = proc.fields(str(pid), "NSpid")
    try:
        return int((numbers or str(pid).rpartition("/")[2]).split()[-1])
    except (ValueError, IndexError) as error:
        raise ProcError(f"{proc.root}/{pid}/status has an unknown format") from error


def threads_from_inside(proc: ProcFS, pid: int) -> dict[int, int]:
    """The first few threads of a process by their numbers in its own pid namespace, which are those that its memory has; empty
    where the numbers are the same. Raises ProcError."""
    if inner_pid(proc, pid) == pid:
        return {}
    threads = {}
    for tid in proc.tids(pid)[:_MOST_RENUMBERED]:
        with contextlib.suppress(ProcError):
            threads[inner_pid(proc, f"{pid}/task/{tid}")] = tid
    return threads


def find_number_here(here: dict[int, int], tid: int | None) -> int | None:
    """The number that a thread has here, for `tid`, which the memory of its process has. `here`: as of `threads_from_inside`. 0,
    which no thread has, if it is not known."""
    return here.get(tid, 0) if here and tid is not None else tid


def _translate(error: OSError, path: str) -> ProcError:
    if isinstance(error, PermissionError):
        return Denied(f"{path}: permission denied")
    if isinstance(error, (FileNotFoundError, ProcessLookupError)):
        return Gone(f"{path}: the process has ended")
    return ProcError(f"{path}: {error.strerror}")
