"""Keeps the set of observed processes up to date from poll to poll. The host is searched only when a new pid appears."""

import os
import time
from collections.abc import Iterator

from hangdoc.observe.access import isolation
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Target
from hangdoc.observe.find.discover import Discovered, Scope, discover
from hangdoc.observe.kernel.targets import adopt
from hangdoc.observe.memory.maps import is_python
from hangdoc.procfs import ProcError, ProcFS, Stat, age

_YOUNG_SECONDS = 10.0
"""A process may become a Python process (exec) or a rank (import of torch, process group) some time after its start."""
_SEARCHES = (0.0, 1.0, 3.0, 10.0, 30.0)
"""The host is searched at these seconds after a new Python process was first seen."""
_AGAIN_SECONDS = 30.0
"""After this time the host is searched again if processes took too long to be read, as they do while this process gets hardly any
time of a processor. One of them may be a rank."""
_YOUNG_RANK_SECONDS = 60.0
_OWN_PROGRAMS = ("py-spy",)


class Membership:
    """The observed processes of this host."""

    def __init__(self, proc: ProcFS, scope: Scope) -> None:
        self._proc, self._scope = proc, scope
        self.discovered = Discovered({}, [])
        self._seen: set[int] = set()
        self._young: dict[int, float] = {}
        """When each new process that does not run Python yet was first seen, by pid."""
        self._search_at: list[float] = []
        self._searched = False

    @property
    def targets(self) -> dict[int, Target]:
        """By pid."""
        return self.discovered.targets

    def refresh(self, deadline: Deadline) -> set[int]:
        """Update the targets with the processes that started or ended since the last call. Returns the pids of new targets."""
        now = time.monotonic()
        pids = set(self._proc.pids())
        stats = {pid: stat for pid in pids - self._seen if (stat := self._read_stat(pid)) is not None}
        self._seen = pids
        before = {pid: target.start_ticks for pid, target in self.targets.items()}
        self._drop_gone(pids, now)
        for pid, stat in stats.items():
            if stat.name not in _OWN_PROGRAMS:
                self._classify(pid, stat, now)
        for pid in [pid for pid, seen in self._young.items() if pid not in pids or now - seen > _YOUNG_SECONDS]:
            del self._young[pid]
        for pid in list(self._young):
            if is_python(self._proc, pid):
                del self._young[pid]
                self._search(now)
        if not self._searched:
            self._searched = True
            self._search(now)
        if self._search_at and now >= self._search_at[0]:
            self._search_at = [at for at in self._search_at if at > now]
            self.discovered = discover(self._proc, deadline, self._scope)
            if self.discovered.unread or isolation.shared.gave_up():
                self._search_at.append(time.monotonic() + _AGAIN_SECONDS)
                self._search_at.sort()
        return {pid for pid, target in self.targets.items() if before.get(pid) != target.start_ticks}

    def _drop_gone(self, pids: set[int], now: float) -> None:
        """Remove targets that have ended. After the end of a rank or launcher the host is searched, because other processes may
        have lost their parent."""
        for pid, target in list(self.targets.items()):
            stat = self._read_stat(pid) if pid in pids else None
            if stat is None or stat.start_ticks != target.start_ticks:
                del self.targets[pid]
            elif (stat.state in "ZX") == (target.state in "ZX"):
                continue
            else:
                target.state = stat.state
            if target.role != "helper":
                self._search(now)

    def _classify(self, pid: int, stat: Stat, now: float) -> None:
        """Handle a new process: a helper of a rank, or a process that may become a rank."""
        ancestors = list(self._list_ancestors(stat.ppid))
        rank = next(
            (ancestor for ancestor in ancestors if ancestor in self.targets and self.targets[ancestor].role == "rank"),
            None,
        )
        named = not self._scope.pids or self._scope.run_of is not None or {pid, *ancestors} & set(self._scope.pids)
        if rank is None:
            if named and (self._scope.pids or os.getpid() not in ancestors):
                self._young[pid] = now
        elif os.getpid() not in ancestors and adopt(self._proc, self.targets, pid, stat, rank):
            started = age(self._proc, self.targets[rank].start_ticks)
            if started < _YOUNG_RANK_SECONDS and self.targets[pid].python:
                self._search(
                    now
                )  # two Python processes have the rank's variables: the rank is the one that imports torch

    def _list_ancestors(self, pid: int) -> Iterator[int]:
        seen: set[int] = set()
        while pid > 0 and pid not in seen:
            yield pid
            seen.add(pid)
            stat = self._read_stat(pid)
            pid = stat.ppid if stat is not None else 0

    def _search(self, now: float) -> None:
        self._search_at = sorted({*self._search_at, *(now + delay for delay in _SEARCHES)})[: 2 * len(_SEARCHES)]

    def _read_stat(self, pid: int) -> Stat | None:
        try:
            return self._proc.stat(str(pid))
        except ProcError:
            return None
