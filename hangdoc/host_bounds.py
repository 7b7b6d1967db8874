"""At most so many processes of one host in what others send.

A diagnosis takes about 2 ms for each run, and each process may be a run of its own. A host with more processes is not refused:
any user can start thousands that look like ranks, and must not hide the runs of the others. So each user has an equal share.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from hangdoc.snapshot import Host, Process

MOST_PROCESSES = 4096
"""Of one host. 192 ranks with 16 DataLoader workers each have 3,264."""
_ORDER = {"launcher": 0, "rank": 1}


def bounded(host: Host) -> Host:
    """The host with at most MOST_PROCESSES processes, and a problem that says how many are left out. Its ranks that are like
    others (`alike`) count."""
    total = len(host.processes) + len(host.alike)
    if total <= MOST_PROCESSES:
        return host
    by_user: dict[int | None, list[Process]] = {}
    for process in host.processes:
        by_user.setdefault(process.uid, []).append(process)
    followers = Counter(rank.like for rank in host.alike)
    sizes = {user: sum(1 + followers[process.pid] for process in mine) for user, mine in by_user.items()}
    kept: set[int] = set()
    left = MOST_PROCESSES
    for at, user in enumerate(sorted(by_user, key=lambda uid: (sizes[uid], uid is not None, uid or 0))):
        left -= _keep(by_user[user], followers, left // (len(by_user) - at), kept)
    processes = tuple(process for process in host.processes if id(process) in kept)
    pids = {process.pid for process in processes}
    alike = tuple(rank for rank in host.alike if rank.like in pids)
    over = total - len(processes) - len(alike)
    text = (
        f"{total:,} processes look like parts of runs, and {over:,} of them are left out: at most {MOST_PROCESSES:,} of a "
        "host are used, with an equal share for each user. Name those of the run with --pid on that host"
    )
    return replace(host, processes=processes, alike=alike, problems=(*host.problems, text))


def _keep(processes: Sequence[Process], followers: Counter[int], most: int, kept: set[int]) -> int:
    """Add the identities of processes of one user to `kept`, so many that these and the ranks that are like them (`followers`, by
    pid) are at most `most`: launchers, then ranks, the oldest first. Returns how many these are."""
    used = 0
    for process in sorted(
        processes, key=lambda process: (_ORDER.get(process.role, 2), -process.started_seconds_ago, process.pid)
    ):
        size = 1 + followers[process.pid]
        if used + size <= most:
            used += size
            kept.add(id(process))
    return used
