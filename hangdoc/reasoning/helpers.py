"""The processes that work for a rank: those that it started, and what they started."""

from collections.abc import Collection, Iterable

from hangdoc.snapshot import Host, Process


def on(hosts: Iterable[Host], ranks: Collection[tuple[str, int | None]]) -> dict[tuple[str, int | None], list[Process]]:
    """The helper processes of each rank, by its host and pid. The processes of another run that a rank has started work for it
    too; those in `ranks` are the run's own, of which one may have started the others."""
    found: dict[tuple[str, int | None], list[Process]] = {}
    for host in hosts:
        by_pid = {process.pid: process for process in host.processes}
        above: dict[int, int | None] = {}  # by the parent: a launcher has started many ranks
        for process in host.processes:
            owner = process.owner
            if process.role != "helper":
                if process.ppid not in above:
                    above[process.ppid] = _nearest_rank(process.ppid, by_pid)
                owner = above[process.ppid]
            if process.role == "helper" or (owner is not None and (host.name, process.pid) not in ranks):
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
