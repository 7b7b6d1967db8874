"""A rank is stopped (signal, cgroup freezer, debugger) or waits for user input.

## What it finds

A rank that does not run during the whole observation (state T, a frozen control
group, a debugger), or that waits for user input: `input()`, a breakpoint. Also
a stopped launcher, which cannot end or restart its ranks. A tracer that
attaches for a moment, such as py-spy or another hangdoc, does not count.

## Why it hangs

The rank cannot continue until someone lets it. Its sockets stay open, so the
others see no error and wait in their next collective.

## Example

```python
for batch in loader:
    loss = model(batch).sum()
    breakpoint()  # <- under torchrun nobody sees the prompt
    loss.backward()
```

## Use instead

```python
for batch in loader:
    loss = model(batch).sum()
    loss.backward()
```

If a signal stopped the rank, continue it with `kill -CONT PID`. If its control
group is frozen, thaw it. If a debugger holds it, continue or detach. hangdoc
itself never continues a rank.

## How hangdoc knows

It reads the kernel state of the process, the `cgroup.events` of its control
group, and its tracer, at the start and at the end of the observation. For
input, it reads the system call and the file descriptor. The receive queues of a
stopped rank fill up.

## When it can be wrong

Someone stopped the rank on purpose and is about to continue it.

## References

- signal(7), proc_pid_stat(5); Control Group v2, cgroup.freeze
"""

from collections.abc import Iterator
from typing import TypedDict

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.kinds import LauncherStopped
from hangdoc.reasoning.model import Rank, Run
from hangdoc.reasoning.ranks.holds import Stopped, WaitsForInput
from hangdoc.reasoning.ranks.stopped import Stop, stopped_by
from hangdoc.snapshot import Process

CODE = "HD302"
NAME = "rank-stopped"
ABOUT = (Stopped, WaitsForInput, LauncherStopped)


class _Words(TypedDict):
    summary: str
    evidence: list[Evidence]
    remedy: str
    commands: tuple[str, ...]


_REMEDIES = {
    "freezer": "Thaw the control group: write 0 to its cgroup.freeze.",
    "tracer": "Let the debugger continue or detach.",
    "signal": "Find out who stopped the process, then continue it with SIGCONT.",
    "input": "Answer the prompt on the rank's terminal, or remove input() and breakpoints from the training script.",
}


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks that are stopped or wait for user input; a stopped launcher whose ranks have ended."""
    if isinstance(blockage.kind, LauncherStopped):
        return _over(run, blockage, blockage.kind)
    stopped = blockage.kind if isinstance(blockage.kind, Stopped) else None
    ranks = [run.ranks[number] for number in blockage.culprits]
    first, blamed = ranks[0], blockage.culprits
    what = f"{words.be(blamed)} {stopped.why if stopped is not None else first.why}"
    by = stopped.by if stopped is not None else "input"
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.97 if stopped is not None else 0.93,
        summary="; ".join(filter(None, (f"{words.ranks(blamed)} {what}", words.victims_wait(blockage)))),
        evidence=[
            *(
                Evidence(rank=r.rank, probe="kernel", text=f"pid {r.pid} is {r.why} {words.place(r)}")
                for r in ranks[:8]
            ),
            *_queues(ranks),
            *words.class_evidence(blockage.waiting),
            *words.standstill(run),
        ],
        remedy=_REMEDIES[by],
        commands=(_commands(first.process, by) if first.process is not None else ()) or words.look_again(first),
    )


def _queues(ranks: list[Rank]) -> list[Evidence]:
    return [
        Evidence(rank=rank.rank, probe="sockets", text=f"{full} unread bytes in its receive queues")
        for rank in ranks
        if (full := sum(c.receive_queue_bytes for c in rank.connections))
    ]


def check(run: Run) -> Iterator[Finding]:
    """Every stopped launcher of living ranks. It does not block any rank."""
    if all(rank.label == "dead" for rank in run.ranks.values()):
        return
    for _, process in run.launchers:
        if (stop := stopped_by(process)) is not None:
            yield words.finding(
                CODE,
                NAME,
                confidence=0.95,
                **_launcher(run, process, stop, ()),
            )


def _over(run: Run, blockage: Blockage, kind: LauncherStopped) -> Finding:
    return words.blocked(
        (CODE, NAME), blockage, confidence=0.95, **_launcher(run, kind.launcher, kind.stop, kind.ended)
    )


def _launcher(run: Run, process: Process, stop: Stop, ended: tuple[int, ...]) -> _Words:
    over = f"; {words.ranks(ended)} {words.verb(ended, 'has', 'have')} ended" if ended else ""
    return {
        "summary": f"the launcher (pid {process.pid}) is {stop.why} and cannot end or restart its ranks{over}",
        "evidence": [
            Evidence(rank=None, probe="kernel", text=f"pid {process.pid} ({process.name}) is {stop.why}"),
            *(Evidence(rank=n, probe="processes", text=f"has ended: {run.ranks[n].why}") for n in ended[:8]),
        ],
        "remedy": _REMEDIES[stop.by],
        "commands": _commands(process, stop.by),
    }


def _commands(process: Process, by: str) -> tuple[str, ...]:
    if by == "tracer" and process.tracer_pid:
        return (f"ps -p {process.tracer_pid} -o pid,user,args",)
    return (f"kill -CONT {process.pid}",) if by == "signal" else ()
