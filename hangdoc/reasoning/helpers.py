"""The processes that work for a rank: those that it started, and what they started."""

from collections.abc import Collection, Iterable

from hangdoc.snapshot import Host, Process

Helpers = dict[tuple[str, int | None], list[Process]]


def on(hosts: Iterable[Host], ranks: Collection[tuple[str, int | None]]) -> Helpers:
    """The helper processes of each rank, by its host and pid. The processes of another run that a rank has started work for it
    too; those in `ranks` are the run's own, of which one may have started the others."""
    found: Helpers = {}
    for host in hosts:
        others = [one for one in host.processes if one.role == "helper" or (host.name, one.pid) not in ranks]
        if not others:
            continue
        by_pid = {process.pid: process for process in host.processes}
        for process in others:
            owner = process.owner if process.role == "helper" else _nearest_rank(process.ppid, by_pid)
            if process.role == "helper" or owner is not None:
                found.setdefault((host.name, owner), []).append(process)
    return found


def _nearest_rank(pid: int, by_pid: dict[int, Process]) -> int | None:
    """The first rank among a process of a host and its ancestors; None if there is none."""
    seen: set[int] = set()
    while (process := by_pid.get(pid)) is not None and pid not in seen:
        if process.role == "rank":
            return pid
        seen.add(pid)
        pid = process.ppid
    return None
