"""Ranks are still alive although their launcher is gone.

## What it finds

Ranks that torchrun or Python's multiprocessing started and whose parent is gone. It
is the main finding if a rank waits for data that only its parent would have sent:
the requests of a server whose front end was killed.

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
a launcher. Or its command line, or vLLM's title, shows that multiprocessing
started it, but its parent does not run Python. The parent pid is not evidence:
`nohup`, `setsid` and containers give healthy ranks the parent pid 1. hangdoc also reads their memory, their age,
and whether one listens on the master port.

## When it can be wrong

Someone detached the run on purpose and wants it to continue.

## References

- torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from collections.abc import Iterator

from hangdoc.phrases import duration
from hangdoc.reasoning.causes.launches import Orphaned, orphans_of
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.model.holds import EngineOrphaned
from hangdoc.reasoning.model.rank import ranks_of
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, about, reported_causes
from hangdoc.reasoning.text import words
from hangdoc.reasoning.text.next_steps import Command, command


@about(Orphaned)
def describe(run: Run, blockage: Blockage, kind: Orphaned) -> Draft:
    first, who = blockage.awaited[0].first, words.are(blockage.culprits)
    return Draft(
        confidence=0.9,
        summary=words.and_victims(f"the launcher is gone, and {who} {words.doing_at(first)}", blockage),
        evidence=[*_processes(run, kind.ranks), *words.sides(run, blockage)],
        remedy=f"Nothing can end this wait: terminate {words.ranks(kind.ranks)}, and find out how the launcher ended.",
        commands=_commands(run, kind.ranks),
    )


@about(EngineOrphaned)
def _engine(run: Run, blockage: Blockage, kind: EngineOrphaned) -> Draft:
    numbers = ranks_of(blockage.awaited)
    gets = f"{words.ranks(numbers)} {words.verb(numbers, 'gets', 'get')} requests"
    return Draft(
        confidence=0.9,
        summary=words.and_victims(
            f"pid {kind.pid} ({kind.name}), from which {gets}, gets none itself any "
            "more: the process that started it is gone",
            blockage,
        ),
        evidence=words.sides(run, blockage),
        remedy="Nothing can end this wait: find out how that process ended, terminate what it left, and start the server again.",
        commands=(command("ps", "-o", "pid,ppid,etime,rss,args", "-p", str(kind.pid)),),
    )


def check(run: Run) -> Iterator[Draft]:
    """One finding for all orphans of a run, if their state does not explain a blockage."""
    orphans = orphans_of(run)
    if not orphans or reported_causes(run, Orphaned):
        return
    pids = {run.processes[rank].pid for rank in orphans}
    listening = {listener.pid: listener.port for host in run.hosts for listener in observed.listeners(host)}
    port = next((listening[pid] for pid in pids if pid in listening), None)
    holds = f" and {words.verb(orphans, 'holds', 'hold')} port {port}" if port is not None else ""
    yield Draft(
        confidence=0.85,
        culprits=orphans,
        summary=f"{words.do(orphans, 'is an orphan', 'are orphans')}: the launcher is gone, but "
        f"{words.verb(orphans, 'the rank is', 'the ranks are')} still alive{holds}",
        evidence=_processes(run, orphans),
        remedy="If nobody needs their work, terminate them before you start a new run.",
        commands=_commands(run, orphans),
    )


def _processes(run: Run, orphans: tuple[int, ...]) -> list[Evidence]:
    processes = ((rank, run.processes[rank]) for rank in orphans[:8])
    return [
        Evidence(
            rank,
            "processes",
            f"pid {process.pid}, parent pid {process.ppid}, {(process.resident_bytes or 0) / 1e6:.0f} MB, "
            f"started {duration(process.started_seconds_ago)} ago",
        )
        for rank, process in processes
    ]


def _commands(run: Run, orphans: tuple[int, ...]) -> tuple[Command, ...]:
    pids = ",".join(str(run.processes[rank].pid) for rank in orphans[:16])
    return (command("ps", "-o", "pid,ppid,etime,rss,args", "-p", pids),)
