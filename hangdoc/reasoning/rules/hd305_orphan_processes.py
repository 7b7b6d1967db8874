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

from hangdoc.diagnosis import Evidence
from hangdoc.phrases import duration
from hangdoc.reasoning import words
from hangdoc.reasoning.model import Run
from hangdoc.reasoning.ranks import known
from hangdoc.reasoning.rules.draft import Draft


def check(run: Run) -> Iterator[Draft]:
    """One finding for all orphans of a run."""
    orphans = {rank: process for rank, process in run.processes.items() if process.launcher_gone}
    if not orphans:
        return
    pids = [process.pid for process in orphans.values()]
    listening = {listener.pid: listener.port for host in run.hosts for listener in known.listeners(host)}
    port = next((listening[pid] for pid in pids if pid in listening), None)
    holds = f" and {words.verb(orphans, 'holds', 'hold')} port {port}" if port is not None else ""
    yield Draft(
        confidence=0.85,
        culprits=orphans,
        summary=f"{words.do(orphans, 'is an orphan', 'are orphans')}: the launcher is gone, but "
        f"{words.verb(orphans, 'the rank is', 'the ranks are')} still alive{holds}",
        evidence=[
            Evidence(
                rank,
                "processes",
                f"pid {process.pid}, parent pid {process.ppid}, {(process.resident_bytes or 0) / 1e6:.0f} MB, "
                f"started {duration(process.started_seconds_ago)} ago",
            )
            for rank, process in list(orphans.items())[:8]
        ],
        remedy="If nobody needs their work, terminate them before you start a new run.",
        commands=(f"ps -o pid,ppid,etime,rss,args -p {','.join(map(str, pids[:16]))}",),
    )
