"""A rank exited, was killed, or is a zombie while the others wait for it.

## What it finds

A rank whose process is gone or a zombie, in a run whose other ranks are still
alive. Or a run of which only zombies and their launcher are left.

## Why it hangs

Gloo reports the death of a rank to its peers within a second, so most deaths
end the run. The run hangs if a surviving rank swallows that error, waits on the
store for a key that the dead rank should have set, is in a group without the
dead rank, or ignores its launcher's SIGTERM.

## Example

```python
try:
    dist.all_reduce(loss)
except RuntimeError:
    pass  # <- hides "Connection closed by peer"
store.wait(["results"])
```

## Use instead

```python
dist.all_reduce(loss)  # an error ends this rank, and torchrun the run
store.wait(["results"], timedelta(minutes=5))
```

Read the last output of the dead rank, and `dmesg` for an out-of-memory kill.

## How hangdoc knows

It reads the exit code or signal of the zombie, or finds no process of that rank
on the host where its launcher had started it. It also reads the out-of-memory
counter of the control group, and what the surviving ranks wait in.

## When it can be wrong

If the rank finished normally and no other rank waits, nothing is reported.

## References

- proc_pid_stat(5), waitpid(2); Control Group v2, memory.events
"""

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.kinds import Ended
from hangdoc.reasoning.model import Rank, Run
from hangdoc.reasoning.ranks.holds import Dead

CODE = "HD301"
NAME = "rank-dead"
ABOUT = (Dead, Ended)


def say(run: Run, blockage: Blockage) -> Finding:
    """Dead ranks that others wait for, or a run without any living rank."""
    if isinstance(blockage.kind, Ended):
        return _over(run, blockage, blockage.kind)
    assert isinstance(blockage.kind, Dead)  # noqa: S101  (see ABOUT)
    blamed = blockage.culprits
    dead = [run.ranks[number] for number in blamed]
    survivor = blockage.waiting[0].first
    kills = words.oom_kills(run.hosts, [rank.process for rank in dead])
    how = (
        (f"rank {dead[0].rank}: " if len(dead) > 1 else "")
        + dead[0].why
        + ("; probably the OOM killer" if kills else "")
    )
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.96 if blockage.kind.traced else 0.9,
        summary=f"{words.ranks(blamed)} {words.be(blamed)} dead ({how}); "
        + (
            words.victims_wait(blockage)
            if survivor.wait is not None
            else f"no other rank is making progress: rank {survivor.rank} is {words.doing(survivor)} {words.place(survivor)}"
        ),
        evidence=[
            *(Evidence(rank=rank.rank, probe="processes", text=_death(run, rank)) for rank in dead[:8]),
            *kills,
            Evidence(rank=survivor.rank, probe="stacks", text=f"is still waiting: {_unnoticed(survivor)}"),
            *words.class_evidence(blockage.waiting),
            *words.standstill(run),
        ],
        remedy="Read the dead rank's last output and the kernel log. Then restart the run; it cannot continue.",
        commands=("dmesg -T | grep -i -E 'oom|killed process' | tail",),
    )


def _over(run: Run, blockage: Blockage, kind: Ended) -> Finding:
    """All ranks are dead. torchrun's agent polls its ranks; another parent may never notice."""
    blamed = blockage.culprits or kind.ranks
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.9,
        summary=f"all ranks are dead (rank {blamed[0]}: {run.ranks[blamed[0]].why}), but the launcher "
        f"(pid {kind.launcher.pid}) is still alive",
        evidence=[
            Evidence(
                rank=number, probe="processes", text=f"pid {run.ranks[number].pid} is a zombie: {run.ranks[number].why}"
            )
            for number in kind.ranks[:8]
            if run.ranks[number].process is not None
        ],
        remedy="Read the ranks' last output, then terminate the launcher. The run is over.",
        commands=(f"ps -o pid,ppid,stat,etime,args -p {kind.launcher.pid}",),
    )


def _unnoticed(survivor: Rank) -> str:
    """Why a surviving rank still waits for a dead one."""
    wait = survivor.wait
    if wait is not None and wait.kind == "store":
        return "it waits for a store key, and the store does not report a dead writer"
    if wait is not None and wait.operation.group is not None:
        return f"it waits in group {wait.operation.group} for a rank that itself waits for the dead rank"
    if any(c.state == "ESTABLISHED" for c in survivor.connections):
        return "some of its connections to other ranks are still open"
    return "its connections are closed, but the error was swallowed or never checked"


def _death(run: Run, rank: Rank) -> str:
    if rank.process is None:
        others = [r.rank for r in run.ranks.values() if r.process is not None and r.label != "dead"]
        return f"no process on {rank.host} any more; it had completed the rendezvous with {words.ranks(others)}"
    return f"pid {rank.process.pid} is a zombie (parent pid {rank.process.ppid}): {rank.why}"
