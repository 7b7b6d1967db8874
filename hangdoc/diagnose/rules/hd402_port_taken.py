"""Another process listens on the master port.

## What it finds

Ranks or launchers that stand in their rendezvous, while the process that listens on their master port is none of theirs.

## Why it hangs

Whoever comes to the port talks to a stranger: to a program that never answers, or to the store of another run (often an
orphan of an earlier one), which takes the newcomers in and lets them wait for peers that will never come. The run's own
first rank could not bind the port and ended with EADDRINUSE, often on another node and unnoticed.

## Evidence

The listener's pid, command, age and parent, from the socket's inode; the stacks of those that wait.

## What to do

End the stranger if it is a left-over, or start the run on another port (`--master-port`, or `--rdzv-endpoint=HOST:0`).

## When it would be wrong

A port forwarder or a service mesh that listens in front of the real master.

## References

- torchrun, rendezvous: https://docs.pytorch.org/docs/stable/elastic/rendezvous.html
"""

import shlex
from collections.abc import Iterator

from hangdoc.diagnose import launch, words
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.parse import natural
from hangdoc.phrases import duration
from hangdoc.snapshot import Connections, Host, Listener

CODE = "HD402"
NAME = "port-taken"
EXPLAINS = ("HD401", "HD202", "HD301", "HD305", "HD901")


def check(run: Run) -> Iterator[Finding]:
    """One finding for a stranger on the master port of a run that waits in its rendezvous."""
    waiting = [
        r for r in run.waiting() if r.wait is not None and r.wait.kind in ("rendezvous", "store") and not r.moving
    ]
    if run.master is None or not (waiting or any(launch.in_rendezvous(process) for _, process in run.launchers)):
        return
    port = natural(run.master.rpartition(":")[2])
    for host in _hosts(run):
        ours = _own(run, host)
        namespaces = {p.namespaces.get("net") for p in host.processes if p.pid in ours or host is run.meeting_host}
        if not isinstance(host.connections, Connections):
            continue
        for listener in host.connections.listeners:
            strange = listener.pid is not None and listener.pid not in ours and listener.namespace in namespaces
            if listener.port == port and strange:
                yield _finding(run, host.name, listener, [rank.rank for rank in waiting])
                return


def _hosts(run: Run) -> tuple[Host, ...]:
    """The run's hosts, and the one at which it meets though none of its processes may be there."""
    meeting = run.meeting_host
    return run.hosts if meeting is None or meeting in run.hosts else (*run.hosts, meeting)


def _own(run: Run, host: Host) -> set[int]:
    """Pids of a host that are the run's: ranks, what started them, and what they started."""
    mine = {launcher.pid for _, launcher in run.launchers}
    mine |= {p for r in run.ranks.values() if r.process is not None for p in (r.pid, r.process.owner) if p is not None}
    return mine | {process.pid for process in host.processes if process.owner in mine}


def _finding(run: Run, host: str, listener: Listener, waiting: list[int]) -> Finding:
    command = " ".join(listener.argv)[:120] or listener.name
    age = f", started {duration(listener.started_seconds_ago)} ago" if listener.started_seconds_ago is not None else ""
    orphan = ", an orphan" if listener.orphan else ""
    text = f"pid {listener.pid} ({command}) listens on port {listener.port} of {host}{age}{orphan}"
    who = (
        f"{words.ranks(waiting)} {words.verb(waiting, 'talks', 'talk')} to it"
        if waiting
        else "this run's launcher meets it"
    )
    return words.finding(
        CODE,
        NAME,
        severity="error",
        confidence=0.93,
        culprits=(),
        victims=waiting,
        summary=f"port {listener.port} belongs to another process, pid {listener.pid} ({listener.name}{orphan}); {who} and "
        f"{words.verb(waiting or [0], 'waits', 'wait')} for ever",
        evidence=[
            Evidence(rank=None, probe="sockets", text=text),
            *words.class_evidence(run.ranks[number] for number in waiting),
        ],
        remedy="End that process if it is a left-over, or start the run on another port.",
        commands=(
            f"ps -o pid,ppid,etime,args -p {listener.pid}   # on {host}",
            f"ss -ltnp {shlex.quote(f'sport = :{listener.port}')}",
        ),
    )
