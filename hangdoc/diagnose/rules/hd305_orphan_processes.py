"""Left-overs of an earlier run (parent gone) still hold the port, memory or GPU.

## What it finds

Ranks that torchrun started and whose launcher is gone.

## Why it hangs

A launcher that is killed with SIGKILL cannot end its ranks: they train on, hold memory and GPUs, and may hold the master
port. A new run on the same port then fails with EADDRINUSE on one node, while its other nodes join the old run's store and
wait in it for ever.

## Evidence

The variables of torchrun that each rank carries although no launcher is among its ancestors, its memory and its age; whether
it listens on the master port. The parent's pid is not used: `nohup`, `setsid` and containers give healthy ranks the parent 1.

## What to do

End them by pid, if nobody wants their work, before starting anew. Stop launchers with SIGTERM or SIGINT, which end their
ranks.

## When it would be wrong

Where somebody detached the run on purpose and means it to go on.

## References

- torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.phrases import duration
from hangdoc.snapshot import Connections

CODE = "HD305"
NAME = "orphan-processes"


def check(run: Run) -> Iterator[Finding]:
    """One finding for all orphans of a run."""
    orphans = [rank for rank in run.ranks.values() if _is_orphan(rank)]
    if not orphans:
        return
    who = [rank.rank for rank in orphans]
    pids = [rank.pid for rank in orphans if rank.pid is not None]
    listening = {
        listener.pid: listener.port
        for host in run.hosts
        if isinstance(host.connections, Connections)
        for listener in host.connections.listeners
    }
    port = next((listening[pid] for pid in pids if pid in listening), None)
    yield words.finding(
        CODE,
        NAME,
        severity="warning",
        confidence=0.85,
        culprits=who,
        victims=(),
        summary=f"{words.ranks(who)} {words.verb(who, 'is an orphan', 'are orphans')}: the launcher is gone, but "
        f"{words.verb(who, 'the rank is', 'the ranks are')} still alive"
        + (f" and {words.verb(who, 'holds', 'hold')} port {port}" if port is not None else ""),
        evidence=[
            Evidence(
                rank=rank.rank,
                probe="processes",
                text=f"pid {rank.pid}: parent {rank.process.ppid}, "
                f"{(rank.process.resident_bytes or 0) / 1e6:.0f} MB, started {duration(rank.process.started_seconds_ago)} ago",
            )
            for rank in orphans[:8]
            if rank.process is not None
        ],
        remedy="If nobody needs their work, terminate them before you start a new run.",
        commands=(f"ps -o pid,ppid,etime,rss,args -p {','.join(map(str, pids[:16]))}",),
    )


def _is_orphan(rank: Rank) -> bool:
    return rank.process is not None and rank.label != "dead" and rank.process.launcher_gone
