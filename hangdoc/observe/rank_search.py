"""Which processes of a host are ranks: by the environment they were started with, by what their interpreter holds, by their
beacon."""

import contextlib
import os
import re

import msgspec

from hangdoc.observe import identity
from hangdoc.observe.deadline import Deadline
from hangdoc.observe.process_table import ProcessTable
from hangdoc.observe.procfs import ProcError, ProcFS, network_of
from hangdoc.observe.rank_from_memory import rank_from_memory
from hangdoc.observe.watchdog_files import beat_of
from hangdoc.regex import regex
from hangdoc.snapshot import Launch, RankIdentity, Unavailable

_COMMUNICATION_THREAD = regex(r"^(pt_gloo|gloo_tcp|pt_nccl|nccl|pt_mpi)")
"""Threads that torch's backends start in a process that has a process group."""

_MAPPED_PYTHON = regex(rb"/libpython3|/(?:python|pypy)[\d.]*[a-z]*(?: \(deleted\))?$", re.MULTILINE)
"""A line of /proc/PID/maps: Python as a library, or as the program."""


class Search(msgspec.Struct):
    """The ranks of a host, as far as they were found."""

    proc: ProcFS
    table: ProcessTable
    wanted: set[int]
    """Processes in the scope, without hangdoc's own."""
    launchers: dict[int, Launch]
    ranks: dict[int, RankIdentity] = msgspec.field(default_factory=dict)
    inner: dict[int, dict[str, str]] = msgspec.field(default_factory=dict)
    """`os.environ` of ranks that had to be looked into."""

    def below_a_rank(self, pid: int) -> bool:
        return any(ancestor in self.ranks for ancestor in self.table.ancestors(pid))


def find(search: Search, deadline: Deadline) -> None:
    """Fill in the ranks among the wanted processes, the cheapest evidence first."""
    _find_by_environment(search)
    _find_inside(search, deadline)
    _find_by_beacon(search)


def _find_by_environment(search: Search) -> None:
    known: dict[int, RankIdentity] = {}
    for pid in search.wanted - set(search.launchers):
        environment = search.table[pid].environment
        if not isinstance(environment, Unavailable) and (
            found := identity.by_environment(environment, network_of(search.proc, pid))
        ):
            known[pid] = found
    search.ranks |= _representatives(search, known)


def _representatives(search: Search, known: dict[int, RankIdentity]) -> dict[int, RankIdentity]:
    """Of the processes that share an identity down a tree, the topmost Python with torch, or the topmost Python while none has
    it yet: above it are shells, and Pythons that only start another program."""
    proc, table = search.proc, search.table
    chosen: dict[int, RankIdentity] = {}
    for pid in sorted(known, key=lambda p: sum(1 for _ in table.ancestors(p))):
        who = known[pid]
        if not is_python(proc, pid):
            continue
        if not maps_torch(proc, pid) and any(
            below in known and _same(known[below], who) and maps_torch(proc, below) for below in table.descendants(pid)
        ):
            continue
        # Only torch's own variables make a rank by themselves; a cluster's do for whatever runs under it.
        if who.source != identity.TORCH and (not maps_torch(proc, pid) or _starts_ranks(search, pid)):
            continue
        nearest = next((a for a in table.ancestors(pid) if a in search.launchers or a in chosen), None)
        above = chosen.get(nearest) if nearest is not None else None
        if above is None or not _same(above, who):
            chosen[pid] = who
    # In a container whose environment names a rank, everything in it looks like that rank: those with torch win.
    by_rank: dict[tuple[object, ...], list[int]] = {}
    for pid, who in chosen.items():
        by_rank.setdefault((who.rank, who.run), []).append(pid)
    for pids in by_rank.values():
        with_torch = [pid for pid in pids if maps_torch(proc, pid)] if len(pids) > 1 else []
        for pid in pids:
            if with_torch and pid not in with_torch:
                del chosen[pid]
    return chosen


def _same(one: RankIdentity, other: RankIdentity) -> bool:
    return (one.rank, one.run) == (other.rank, other.run)


def _starts_ranks(search: Search, pid: int) -> bool:
    """Whether the ranks are below a process and not the process itself: a task of srun that spawns one rank per GPU."""
    return not _communicates(search.proc, pid) and any(
        _communicates(search.proc, below) for below in search.table.descendants(pid)
    )


def _communicates(proc: ProcFS, pid: int) -> bool:
    try:
        return any(_COMMUNICATION_THREAD.match(proc.stat(f"{pid}/task/{tid}").name) for tid in proc.tids(pid))
    except ProcError:
        return False


def _find_inside(search: Search, deadline: Deadline) -> None:
    """Look into processes with torch whose environment names no rank."""
    for pid in sorted(search.wanted):  # parents come before their children: pids of one boot seldom wrap
        if pid in search.ranks or pid in search.launchers or not maps_torch(search.proc, pid):
            continue
        if search.below_a_rank(pid):
            continue
        entry = search.table[pid]
        forked = maps_torch(search.proc, entry.stat.ppid)
        found, search.inner[pid] = rank_from_memory(search.proc, deadline, pid, entry.argv, forked)
        if found:
            search.ranks[pid] = found


def _find_by_beacon(search: Search) -> None:
    for pid in sorted(search.wanted - set(search.ranks) - set(search.launchers)):
        beat = beat_of(search.proc, pid, search.table[pid].environment)
        if beat is not None and beat.rank is not None and not search.below_a_rank(pid):
            search.ranks[pid] = RankIdentity(
                rank=beat.rank, source="beacon", world_size=beat.world_size, run_digest=beat.run_digest
            )


def launchers_of(table: ProcessTable) -> dict[int, Launch]:
    """All launchers of the host. `bash -c "torchrun ..."` and a pager that shows the word are none: the program itself must
    run it. One that has ended tells nothing."""
    found = {}
    for pid, entry in table.items():
        launch = identity.launch_of(entry.stat.name, entry.argv)
        if launch is not None and entry.stat.state not in "ZX" and pid != os.getpid():
            found[pid] = launch
    return found


def is_python(proc: ProcFS, pid: int) -> bool:
    """Whether a process runs a Python, whatever it calls itself. Where its program may not be read (root without
    CAP_SYS_PTRACE beside a process that has it), the files in its memory say so; the kernel is less strict about them."""
    with contextlib.suppress(ProcError):
        program = os.path.basename(proc.link(f"{pid}/exe")).removesuffix(" (deleted)")
        if program.startswith(("python", "pypy")):
            return True
    try:
        return _MAPPED_PYTHON.search(proc.read(f"{pid}/maps")) is not None
    except ProcError:
        return False


def maps_torch(proc: ProcFS, pid: int) -> bool:
    """Whether a process has torch's Python library in its memory."""
    try:
        return b"/libtorch_python" in proc.read(f"{pid}/maps")
    except ProcError:
        return False
