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
counter of the control group, and what the surviving ranks wait in. If those are
idle, nothing shows when the rank died, so the verdict has no age.

## When it can be wrong

If the rank finished normally and no other rank waits, nothing is reported. If
the others wait for its key in a store and have no process group, the rank may
not have been started yet. It is then reported as "dead or not started".

## References

- proc_pid_stat(5), waitpid(2); Control Group v2, memory.events
"""

from hangdoc.reasoning.evidence.kernel import how_it_ended
from hangdoc.reasoning.model.holds import Dead
from hangdoc.reasoning.model.kinds import Ended
from hangdoc.reasoning.model.rank import Rank, numbers_of
from hangdoc.reasoning.rules.draft import Blockage, Draft, Evidence, Run, WithRemedy, about
from hangdoc.reasoning.text import next_steps, words
from hangdoc.snapshot import Process

_ENDED_EARLY = (
    "Find out why the rank ended without an error before the others had finished: an early return, fewer rounds, a caught "
    "exception. Then restart the run; it cannot continue."
)


@about(Dead)
def _awaited(run: Run, blockage: Blockage, kind: Dead) -> Draft:
    dead = [run.ranks[number] for number in blockage.culprits]
    survivor = blockage.waiting[0].first
    kills = words.oom_kills(run.hosts, [rank.process for rank in dead])
    which = f"rank {dead[0].rank}: " if len(dead) > 1 else ""
    how = f"{which}{dead[0].why}{'; probably the OOM killer' if kills else ''}"
    state = "dead" if kind.ends == "never" else "dead or not started"
    others = (
        f"the others are idle: {_describe_idle(blockage.idle)}"
        if blockage.idle is not None
        else words.victims_wait(blockage)
        if survivor.wait is not None
        else (f"no other rank is making progress: rank {survivor.rank} is {words.doing_at(survivor)}")
    )
    return Draft(
        confidence=0.96 if kind.traced else 0.9 if kind.ends == "never" else 0.7,
        summary=f"{words.are(blockage.culprits)} {state} ({how}); {others}",
        evidence=[
            *(_death(run, rank) for rank in dead[:8]),
            *kills,
            Evidence(survivor.rank, "stacks", f"it did not notice the end: {_unnoticed(survivor)}"),
            *words.stacks(run, blockage.waiting),
        ],
        remedy="Read the dead rank's last output and the kernel log. Then restart the run; it cannot continue.",
        commands=(next_steps.KERNEL_LOG,),
    )


def _describe_idle(idle: Blockage) -> str:
    who = [*numbers_of(idle.awaited)]
    return f"{words.waiting_in(idle.waiting, words.ranks(who))}; {words.are(who)} {idle.kind}"


_ENDING = "The run is about to end. If the launcher is still alive in a minute, terminate it."
_ENDING_EARLY = (
    "The run is about to end: the ranks' last output says why. If the launcher lives on for a minute, terminate it."
)
"""For ranks of which one is known to have failed."""
_OVER = "Read the ranks' last output, then terminate the launcher. The run is over."


@about(Ended)
def _over(run: Run, blockage: Blockage, kind: Ended) -> Draft:
    first = run.ranks[(blockage.culprits or kind.ranks)[0]]
    ranks = [run.ranks[number] for number in kind.ranks[:8]]
    ending = blockage.severity == "info"
    left = f"the launcher (pid {kind.launcher.pid}) is {'about to end' if ending else 'still alive'}"
    return Draft(
        confidence=0.9,
        summary=f"all ranks have ended (rank {first.rank}: {first.why}), {'and' if ending else 'but'} {left}",
        evidence=[Evidence(rank.rank, "processes", _end(rank.process)) for rank in ranks if rank.process is not None],
        remedy=_OVER if not ending else _ENDING_EARLY if any(_failed(rank.process) for rank in ranks) else _ENDING,
        commands=next_steps.show([kind.launcher.pid]),
    )


def _unnoticed(survivor: Rank) -> str:
    """Why a surviving rank still waits for a dead one."""
    wait = survivor.wait
    if wait is not None and wait.kind == "store":
        return "it waits for a store key, and the store does not report a dead writer"
    if wait is not None and wait.operation.group is not None:
        group = wait.operation.group_label or wait.operation.group
        return f"it waits in group {group} for a rank that itself waits for the dead rank"
    if survivor.in_rendezvous:
        return "it is in the rendezvous, where ranks are not connected yet"
    if any(c.state == "ESTABLISHED" for c in survivor.connections):
        return "some of its connections to other ranks are still open"
    return "its connections are closed, but the error was swallowed or never checked"


def _death(run: Run, rank: Rank) -> Evidence:
    if rank.process is None:
        others = words.ranks(run.processes)
        met = (
            f"any more; it had completed the rendezvous with {others}"
            if rank.hold is None
            else f"but those of {others}"
        )
        return Evidence(rank.rank, "processes", f"no process on {rank.host} {met}")
    if rank.process.exit_code == 0:
        return WithRemedy(rank.rank, "processes", _end(rank.process), remedy=_ENDED_EARLY)
    return Evidence(rank.rank, "processes", _end(rank.process))


def _failed(process: Process | None) -> bool:
    return process is not None and bool(process.exit_code)


def _end(process: Process) -> str:
    """How a process has ended. Its parent has already asked for the status of one that is no zombie."""
    state = f"is a zombie (parent pid {process.ppid})" if process.state == "Z" else "has ended"
    return f"pid {process.pid} {state}: {how_it_ended(process)}"
