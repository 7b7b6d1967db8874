"""Ranks are still alive although their launcher is gone.

## What it finds

Ranks that torchrun started and whose launcher is gone.

## Why it hangs

A launcher that is killed with SIGKILL cannot end its ranks. They keep running,
hold memory and GPUs, and may hold the master port. A new run on that port fails
with EADDRINUSE on one node, while its other nodes connect to the store of the
old run and wait forever.

## Example

```sh
torchrun --nnodes 2 --master-port 29500 train.py &
kill -9 $!   # <- torchrun cannot end its ranks
```

## Use instead

```sh
torchrun --nnodes 2 --master-port 29500 train.py &
kill -TERM $!   # torchrun ends its ranks, too
```

Terminate the orphans by pid, if nobody needs their work, before you start a new
run.

## How hangdoc knows

Each rank carries torchrun's environment variables, but none of its ancestors is
a launcher. The parent pid is not evidence: `nohup`, `setsid` and containers
give healthy ranks the parent pid 1. hangdoc also reads their memory, their age,
and whether one listens on the master port.

## When it can be wrong

Someone detached the run on purpose and wants it to continue.

## References

- torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from collections.abc import Iterator

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.phrases import duration
from hangdoc.reasoning import words
from hangdoc.reasoning.model import Rank, Run
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
        confidence=0.85,
        culprits=who,
        summary=f"{words.ranks(who)} {words.verb(who, 'is an orphan', 'are orphans')}: the launcher is gone, but "
        f"{words.verb(who, 'the rank is', 'the ranks are')} still alive"
        + (f" and {words.verb(who, 'holds', 'hold')} port {port}" if port is not None else ""),
        evidence=[
            Evidence(
                rank=rank.rank,
                probe="processes",
                text=f"pid {rank.pid}, parent pid {rank.process.ppid}, "
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
