"""The processes that work for a rank: those that it started, and what they started."""

from collections.abc import Collection, Iterable

from hangdoc.snapshot import Host, Process

Helpers = dict[tuple[str, int | None], list[Process]]


class HelperIndex:
    """The processes below each rank of each host. Each host is read once, because it may have many runs."""

    def __init__(self) -> None:
        self._of_host: dict[int, tuple[Host, dict[int | None, list[Process]]]] = {}
        """By the identity of the host, which is kept with it."""

    def on(self, hosts: Iterable[Host], ranks: Collection[tuple[str, int]]) -> Helpers:
        """The helper processes of each of `ranks`, by its host and pid. The processes of another run that a rank has started work
        for it too; those in `ranks` are the run's own, of which one may have started the others."""
        by_name = {host.name: self._below(host) for host in hosts}
        found: Helpers = {}
        for name, pid in ranks:
            others = [
                one
                for one in by_name.get(name, {}).get(pid, ())
                if one.role == "helper" or (name, one.pid) not in ranks
            ]
            if others:
                found[name, pid] = others
        return found

    def _below(self, host: Host) -> dict[int | None, list[Process]]:
        """The helpers, and the ranks and launchers of other runs, below each rank of a host."""
        if id(host) not in self._of_host:
            by_pid = {process.pid: process for process in host.processes}
            nearest: dict[int, int | None] = {}
            below: dict[int | None, list[Process]] = {}
            for process in host.processes:
                helper = process.role == "helper"
                owner = process.owner if helper else _nearest_rank(process.ppid, by_pid, nearest)
                if helper or owner is not None:
                    below.setdefault(owner, []).append(process)
            self._of_host[id(host)] = host, below
        return self._of_host[id(host)][1]


def _nearest_rank(pid: int, by_pid: dict[int, Process], nearest: dict[int, int | None]) -> int | None:
    """The first rank among a process of a host and its ancestors; None if there is none. `nearest`: what is known already."""
    path: list[int] = []
    found: int | None = None
    while (process := by_pid.get(pid)) is not None:
        if pid in nearest:
            found = nearest[pid]
            break
        if process.role == "rank":
            found = pid
            break
        nearest[pid] = None  # until it is known: who comes here again has gone round in a circle
        path.append(pid)
        pid = process.ppid
    nearest.update(dict.fromkeys(path, found))
    return found
