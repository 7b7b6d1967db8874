"""All processes of this host, as a tree (proc(5))."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hangdoc import portable
from hangdoc.launch import launchers
from hangdoc.observe.access import isolation
from hangdoc.observe.access.deadline import Deadline
from hangdoc.procfs import Denied, ProcError, ProcFS, Stat
from hangdoc.snapshot import OF_ANOTHER_USER, Unavailable
from hangdoc.torch_facts import environment_names, serving

_SECONDS = 10.0
"""For all processes of a host. The kernel holds up the reader of one whose memory is locked."""


_MOST_OF_A_USER = 64 << 20
"""Characters of command lines and environments. 2,000 processes with 20 KiB each have 40 MiB."""
_SMALL = 4096
"""Smaller ones are not counted, and their user is not looked up."""
_FIRST_WORDS = 4
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish"})
_TOO_MUCH = "the processes of its user have more than 64 MiB of command lines and environments"


class Entry(NamedTuple):
    """A process of the host's table."""

    pid: int
    stat: Stat
    argv: tuple[str, ...]
    environment: dict[str, str] | Unavailable


class ProcessTable(dict[int, Entry]):
    """The processes by pid, with their tree."""

    def __init__(self, entries: dict[int, Entry], unread: Iterable[int] = ()) -> None:
        super().__init__(entries)
        self.unread = frozenset(unread)
        """Processes that are there and could not be read at all."""
        self._children: dict[int, list[int]] = {}
        for pid, entry in entries.items():
            self._children.setdefault(entry.stat.ppid, []).append(pid)

    def children(self, pid: int) -> list[int]:
        """The child processes of a process."""
        return self._children.get(pid, [])

    def ancestors(self, pid: int) -> Iterator[int]:
        """The ancestors, nearest first; empty for a process that is not in the table."""
        seen = {pid}
        while pid in self and (pid := self[pid].stat.ppid) > 0 and pid not in seen:
            seen.add(pid)
            yield pid

    def descendants(self, pid: int) -> Iterator[int]:
        """The descendants, parents before their children."""
        todo = list(self._children.get(pid, ()))
        while todo:
            pid = todo.pop(0)
            yield pid
            todo += self._children.get(pid, ())

    def tree(self, pid: int) -> set[int]:
        """A process and its descendants."""
        return {pid, *self.descendants(pid)}


def user_of(proc: ProcFS, pid: int) -> int | None:
    """The real uid of a process; None if it can't be read."""
    return proc.user(pid)


def read(proc: ProcFS) -> ProcessTable:
    """The table at this moment, without processes that end during the read and those that can't be read. What is kept of the
    processes of one user is bounded: their number and their environments are the user's choice."""
    kept: Counter[int | None] = Counter()

    def entry_of(pid: int) -> Entry | None:
        entry = _read_entry(proc, pid)
        if entry is None:
            return None
        size = sum(map(len, entry.argv))
        if isinstance(entry.environment, dict):
            size += sum(len(name) + len(value) for name, value in entry.environment.items())
        if size < _SMALL:
            return entry
        user = user_of(proc, pid)
        kept[user] += size
        if kept[user] > _MOST_OF_A_USER:
            return entry._replace(argv=entry.argv[:_FIRST_WORDS], environment=Unavailable(reason=_TOO_MUCH))
        return entry

    entries = isolation.shared.read_each(proc.pids(), entry_of, Deadline(_SECONDS))
    unread = (pid for pid, entry in entries.items() if isinstance(entry, Unavailable))
    return ProcessTable({pid: entry for pid, entry in entries.items() if isinstance(entry, Entry)}, unread)


def read_ancestry(proc: ProcFS, pid: int) -> ProcessTable:
    """Only a process and its ancestors; empty if it has ended."""
    entries: dict[int, Entry] = {}
    while pid > 0 and pid not in entries and (entry := _read_entry(proc, pid)) is not None:
        entries[pid] = entry
        pid = entry.stat.ppid
    return ProcessTable(entries)


def _read_entry(proc: ProcFS, pid: int) -> Entry | None:
    try:
        stat = proc.stat(str(pid))
        argv = proc.words(f"{pid}/cmdline")
    except ProcError:
        return None
    environment: dict[str, str] | Unavailable
    try:
        environment = proc.environ(pid)
    except Denied:
        environment = OF_ANOTHER_USER
    except ProcError as error:
        environment = Unavailable(reason=str(error))
    return Entry(pid, stat, argv, environment)


def launcher_gone(proc: ProcFS, table: ProcessTable, pid: int) -> bool:
    """Whether a launcher started the process and is no longer among its ancestors. Only torchrun's agent, multiprocessing's
    `spawn` and engines with a title mark the processes that they start; False for all others."""
    entry = table[pid]
    if pid != 1 and entry.stat.ppid == 0:
        return False  # its parent is outside of this pid namespace
    above = [table[ancestor] for ancestor in table.ancestors(pid) if ancestor in table]
    if not isinstance(entry.environment, Unavailable) and environment_names.RUN_ID in entry.environment:
        return not any(is_launcher(e) and e.stat.state not in "ZX" for e in above)
    return _is_spawned(entry) and not any(_runs_python(proc, parent) for parent in above[:1])


def is_launcher(entry: Entry) -> bool:
    """Whether a process starts ranks and looks after them, by its name and command line."""
    return launchers.split(entry.stat.name, entry.argv) is not None


def starters(table: ProcessTable, pid: int) -> Iterator[int]:
    """The process that started another one by Python's multiprocessing, that which started this one, and so on. A process that it
    forks keeps the command line."""
    for above in table.ancestors(pid):
        if above not in table or not (_is_spawned(table[pid]) or table[pid].argv == table[above].argv):
            return
        yield above
        pid = above


def _is_spawned(entry: Entry) -> bool:
    """Whether multiprocessing started a process by `spawn`, so that its parent runs Python. Its command is
    `python -c "from multiprocessing.spawn import spawn_main; ..." --multiprocessing-fork`, if it has no title."""
    return "--multiprocessing-fork" in entry.argv or "".join(entry.argv[:1]).startswith(serving.STARTED_BY_PYTHON)


def _runs_python(proc: ProcFS, entry: Entry) -> bool:
    """Whether a process runs Python. One with a title shows that only by its program."""
    names = [entry.stat.name, *entry.argv[:1]]
    with contextlib.suppress(ProcError):
        names.append(proc.link(f"{entry.pid}/exe"))
    return any("python" in name for name in names)


def is_hangdoc(argv: tuple[str, ...]) -> bool:
    """Whether a command line is hangdoc's: `hangdoc ...`, `python .../hangdoc ...`, `python -m hangdoc ...`,
    `python [-I -S] .../hangdoc.pyz ...`."""
    words = [os.path.basename(word) for word in argv[:4] if word not in ("-I", "-S")]
    return words[:1] == ["hangdoc"] or words[1:2] in (["hangdoc"], [portable.NAME]) or words[1:3] == ["-m", "hangdoc"]


def is_shell(entry: Entry) -> bool:
    """Whether a process is a shell, by the first word of its command line."""
    return os.path.basename("".join(entry.argv[:1])).removeprefix("-") in _SHELLS


def is_typed_in(proc: ProcFS, entry: Entry) -> bool:
    """Whether a process is a shell at a terminal that was given no script: `-bash`, `zsh -i`. A person types in it."""
    plain = (word.startswith("--") or (word.startswith("-") and "c" not in word) for word in entry.argv[1:])
    if not is_shell(entry) or not all(plain):
        return False
    try:
        return proc.link(f"{entry.pid}/fd/0").startswith(_TERMINALS)
    except ProcError:
        return False
