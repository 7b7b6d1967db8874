"""A rank is stopped (signal, cgroup freezer, debugger) or waits for user input.

## What it finds

A rank that is stopped for the whole observation (state T, a frozen control group,
a debugger), or that waits for user input: `input()`, a breakpoint. Also a stopped
launcher, which cannot end or restart its ranks, and a stopped engine, which gives
them no more requests. A tracer that attaches for a moment, such as py-spy or another hangdoc, does not count.

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

from hangdoc.diagnosis import Evidence
from hangdoc.phrases import verb
from hangdoc.reasoning.evidence.kernel import stopped_by
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.holds import EngineStopped, Hold, Stopped, WaitsForInput
from hangdoc.reasoning.model.kinds import LauncherStopped
from hangdoc.reasoning.model.rank import ranks_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.rules.draft import Draft, about
from hangdoc.reasoning.text import next_steps, words
from hangdoc.snapshot import Process

_ANSWER = "Answer the prompt on the rank's terminal, or remove input() and breakpoints from the training script."


@about(Stopped, WaitsForInput)
def _ranks(run: Run, blockage: Blockage, kind: Hold) -> Draft:
    ranks = [run.ranks[number] for number in blockage.culprits]
    first = ranks[0]
    by, why = (kind.by, kind.why) if isinstance(kind, Stopped) else ("input", first.why)
    beside = [rank.process for rank in ranks if rank.process is not None and rank.host == first.host]
    unread = [(rank, sum(c.receive_queue_bytes for c in rank.connections)) for rank in ranks]
    return Draft(
        confidence=0.93 if by == "input" else 0.97,
        summary=words.and_victims(f"{words.are(blockage.culprits)} {why}", blockage),
        evidence=[
            *(Evidence(r.rank, "kernel", f"pid {r.pid} is {r.why} {words.place(r)}") for r in ranks[:8]),
            *(Evidence(r.rank, "sockets", f"{size} unread bytes in its receive queues") for r, size in unread if size),
            *words.stacks(run, blockage.waiting),
        ],
        remedy=next_steps.RESUME.get(by, _ANSWER),
        commands=next_steps.resume(beside, by) or None,
    )


@about(EngineStopped)
def _engine(run: Run, blockage: Blockage, kind: EngineStopped) -> Draft:
    stop, numbers = kind.stop, ranks_of(blockage.awaited)
    receivers = words.ranks(numbers)
    from_which = f"from which {receivers} {verb(numbers, 'gets', 'get')} requests"
    if kind.connected:
        from_which = f"with which {receivers} {verb(numbers, 'is', 'are')} connected{kind.way}"
    others = words.waiting_in(blockage.waiting, receivers)
    return Draft(
        confidence=0.95,
        summary=f"pid {kind.pid} ({kind.name}), {from_which}, is {stop.why}{'; ' * bool(others)}{others}",
        evidence=[
            Evidence(None, "kernel", f"pid {kind.pid} ({kind.name}) is {stop.why}"),
            *words.class_evidence(blockage.awaited),
            *words.stacks(run, blockage.waiting),
        ],
        remedy=next_steps.RESUME[stop.by],
        commands=next_steps.continue_after_signal([kind.pid], stop.by) or None,
    )


@about(LauncherStopped)
def _launcher(run: Run, blockage: Blockage, kind: LauncherStopped) -> Draft:
    return _stopped_launcher(run, kind.launcher, kind.stop, kind.ended)


def check(run: Run) -> Iterator[Draft]:
    """Every stopped launcher of living ranks that blocks no rank."""
    engines = [blockage.kind.pid for blockage in run.blockages if isinstance(blockage.kind, EngineStopped)]
    for _, process in run.launchers if run.living else ():
        if process.pid not in engines and (stop := stopped_by(process)) is not None:
            yield _stopped_launcher(run, process, stop)


def _stopped_launcher(run: Run, process: Process, stop: Stopped, ended: tuple[int, ...] = ()) -> Draft:
    over = f"; {words.have(ended)} ended" if ended else ""
    return Draft(
        confidence=0.95,
        summary=f"the launcher (pid {process.pid}) is {stop.why} and cannot end or restart its ranks{over}",
        evidence=[
            Evidence(None, "kernel", f"pid {process.pid} ({process.name}) is {stop.why}"),
            *(Evidence(n, "processes", f"has ended: {run.ranks[n].why}") for n in ended[:8]),
        ],
        remedy=next_steps.RESUME[stop.by],
        commands=next_steps.resume([process], stop.by),
    )
