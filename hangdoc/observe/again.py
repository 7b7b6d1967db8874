"""Looks at this host again and again, as gently as can be."""

import os

import msgspec

from hangdoc.observe.observe import Options, observe
from hangdoc.snapshot import Process, Snapshot, Stack, Unavailable


class Again:
    """The stacks of one look are the first of the next. Native stacks hold a rank for more than half a second, so they are
    taken only of a run in which a rank has stood at one place for two looks, and kept for as long as it stands there."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._last: dict[int, Process] = {}
        self._earlier: Snapshot | None = None
        self._asked: dict[int, object] = {}
        """Where ranks stood when native stacks were last looked for."""
        self._native = "never"

    def look(self) -> Snapshot:
        """One look. Never raises for what can't be seen."""
        snapshot = observe(msgspec.structs.replace(self._options, native=self._native), earlier=self._earlier)
        (host,) = snapshot.hosts
        processes = tuple(self._with_native(process) for process in host.processes)
        standing = {p.pid: _places(p) for p in processes if p.role == "rank" and self._stands(p)}
        if self._native == "auto":
            self._asked |= standing
        self._native = "auto" if any(self._asked.get(pid) != places for pid, places in standing.items()) else "never"
        self._last = {process.pid: process for process in processes}
        self._earlier = snapshot
        return msgspec.structs.replace(snapshot, hosts=(msgspec.structs.replace(host, processes=processes),))

    def _with_native(self, process: Process) -> Process:
        """With the native stack of an earlier look, where it stands there still."""
        if isinstance(process.native, Stack) or not self._stands(process):
            return process
        return msgspec.structs.replace(process, native=self._last[process.pid].native)

    def _stands(self, process: Process) -> bool:
        earlier = self._last.get(process.pid)
        return earlier is not None and _places(earlier) == _places(process) is not None


def cpu_seconds() -> float:
    """What looking has cost so far: CPU of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _places(process: Process) -> object:
    """Where all threads of a process stand; None where its stack could not be read."""
    stack = process.stack
    if isinstance(stack, Unavailable):
        return None
    return [[(f.file, f.function, f.line) for f in thread.frames] for thread in stack.threads]
