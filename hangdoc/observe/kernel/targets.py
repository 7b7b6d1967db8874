"""Makes the targets of an observation: of entries of the process table, and of helpers that ranks start later."""

import contextlib
import os

from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.kernel import process_table
from hangdoc.observe.kernel.process_table import Entry
from hangdoc.observe.memory.maps import is_python
from hangdoc.procfs import ProcError, ProcFS, Stat
from hangdoc.snapshot import Launch, RankIdentity, Unavailable

_OTHER_USER = "it belongs to another user than the rank"


def make_target(
    proc: ProcFS,
    entry: Entry,
    role: str,
    *,
    identity: RankIdentity | None = None,
    launch: Launch | None = None,
) -> Target:
    """A process of the table as a target. `role` is `rank`, `launcher` or `helper`."""
    return Target(
        pid=entry.pid,
        ppid=entry.stat.ppid,
        role=role,
        name=entry.stat.name,
        argv=entry.argv,
        state=entry.stat.state,
        start_ticks=entry.stat.start_ticks,
        identity=identity,
        launch=launch,
        uid=process_table.user_of(proc, entry.pid),
        namespaces=read_namespaces(proc, entry.pid),
        environment=entry.environment,
        python=entry.stat.state not in "ZX" and is_python(proc, entry.pid),
    )


def read_namespaces(proc: ProcFS, pid: int) -> dict[str, str]:
    """The namespaces of a process, by kind; empty if they can't be read, as of one that has ended."""
    try:
        return {kind: proc.link(f"{pid}/ns/{kind}") for kind in ("net", "pid", "mnt")}
    except ProcError:
        return {}


def close_target(target: Target) -> None:
    """Read no memory and no environment of a process: it belongs to another user than its rank."""
    target.python, target.environment = False, Unavailable(reason=_OTHER_USER)


def adopt_helpers(observation: Observation) -> list[int]:
    """Add the helpers that ranks have started since discovery, and return the pids of those that run Python. Without this, a
    dataloader that starts its workers late would look as if its workers had died."""
    table = {}
    for pid in observation.proc.pids():
        if pid not in observation.targets:
            with contextlib.suppress(ProcError):
                table[pid] = observation.proc.stat(str(pid))
    ranks = {target.pid for target in observation.ranks()}
    adopted = []
    for pid, stat in table.items():
        if stat.ppid in ranks and adopt(observation.proc, observation.targets, pid, stat, stat.ppid):
            adopted.append(pid)
    return [pid for pid in adopted if observation.targets[pid].python]


def adopt(proc: ProcFS, targets: dict[int, Target], pid: int, stat: Stat, rank: int) -> bool:
    """Add a process as a helper of a rank. Returns False for hangdoc itself and for a process that has ended."""
    if stat.state in "ZX" or pid == os.getpid() or stat.ppid == os.getpid():
        return False
    try:
        argv = proc.words(f"{pid}/cmdline")
    except ProcError:
        return False
    entry = Entry(pid, stat, argv, Unavailable(reason="not looked at"))
    target = targets[pid] = make_target(proc, entry, "helper")
    target.owner = rank
    if process_table.user_of(proc, pid) != process_table.user_of(proc, rank):
        close_target(target)
    return True
