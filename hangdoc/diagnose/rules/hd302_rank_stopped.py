"""A rank is stopped: SIGSTOP, a frozen control group, held by a debugger, or waiting for a person's input.

## What it finds

A rank that the kernel does not run over the whole window (state T, a frozen control group, a debugger that holds it), or
that reads from its terminal: `input()`, a breakpoint. A tracer that is attached for a moment (py-spy, another hangdoc) is
an observer and stops nothing.

## Why it hangs

The rank will not move until somebody lets it, and nobody knows: its sockets stay open, so the others see no error and
wait in their next collective.

## Evidence

The kernel's state of the process, its control group's `cgroup.events`, and its tracer, at both ends of the window; for
input, the system call and file descriptor it reads from. A stopped rank's receive queues fill up.

## What to do

`kill -CONT PID` where a signal stopped it, thaw its control group, let the debugger go on, or remove the breakpoint or
prompt from the training script. hangdoc itself never continues a rank.

## When it would be wrong

When somebody holds the rank on purpose just now.

## References

- signal(7), proc_pid_stat(5); Control Group v2, cgroup.freeze
"""

from collections.abc import Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnose.stopped import stopped_by
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD302"
NAME = "rank-stopped"
EXPLAINS = ("HD202", "HD201", "HD401", "HD103")


def check(run: Run) -> Iterator[Finding]:
    """Every stopped rank, and every rank that waits for a person."""
    for group in words.classes(r for r in run.ranks.values() if r.state in ("stopped", "waiting-input")):
        yield _finding(run, group)


def _finding(run: Run, group: list[Rank]) -> Finding:
    first = group[0]
    blamed = [rank.rank for rank in group]
    victims = [rank.rank for rank in run.waiting()]
    waits = (
        f", and {words.ranks(victims)} {words.verb(victims, 'waits', 'wait')} in {words.operation(run.ranks[victims[0]])}"
        if victims
        else ""
    )
    queues = [
        Evidence(rank=rank.rank, probe="sockets", text=f"{full} bytes lie unread in its receive queues")
        for rank in group
        if (full := sum(c.receive_queue_bytes for c in rank.connections))
    ]
    what = "waits for a person's input" if first.state == "waiting-input" else "is stopped"
    if len(group) > 1:
        what = what.replace("waits", "wait").replace("is ", "are ")
    return words.finding(
        CODE,
        NAME,
        severity="error",
        confidence=0.97 if first.state == "stopped" else 0.93,
        culprits=blamed,
        victims=victims,
        summary=f"{words.ranks(blamed)} {what}: {first.why}{waits}",
        evidence=[
            *(Evidence(rank=r.rank, probe="kernel", text=f"pid {r.pid}: {r.why}, {words.place(r)}") for r in group[:8]),
            *queues,
            *words.class_evidence(run.waiting()),
            *words.standstill(run),
        ],
        remedy=_remedy(first),
        commands=_commands(first),
    )


def _remedy(rank: Rank) -> str:
    if rank.state == "waiting-input":
        return "Answer the prompt on the rank's terminal, or take input() and breakpoints out of the training script."
    match _by(rank):
        case "freezer":
            return "Thaw the control group: write 0 to its cgroup.freeze."
        case "tracer":
            return "Let the debugger continue or detach."
    return "Continue it with SIGCONT, once you know who stopped it."


def _commands(rank: Rank) -> tuple[str, ...]:
    by = _by(rank)
    if rank.process is not None and by == "tracer" and rank.process.tracer_pid:
        return (f"ps -p {rank.process.tracer_pid} -o pid,user,args",)
    if by == "signal":
        return (f"kill -CONT {rank.pid}",)
    return words.look_again(rank)


def _by(rank: Rank) -> str | None:
    stopped = stopped_by(rank.process) if rank.process is not None else None
    return stopped.by if stopped is not None else None
