"""A rank is stopped: SIGSTOP, a frozen control group, held by a debugger, or waiting for a person's input.

## What it finds

A rank that the kernel does not run over the whole window (state T, a frozen control group, a debugger that holds it), or
that reads from its terminal: `input()`, a breakpoint. Also a stopped launcher, which can neither end nor restart its ranks.
A tracer that is attached for a moment (py-spy, another hangdoc) is an observer and stops nothing.

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
from hangdoc.diagnose.stopped import Stop, stopped_by
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.snapshot import Process

CODE = "HD302"
NAME = "rank-stopped"
EXPLAINS = ("HD202", "HD201", "HD401", "HD103")


def check(run: Run) -> Iterator[Finding]:
    """Every stopped rank, every rank that waits for a person, and every stopped launcher."""
    for group in words.classes(r for r in run.ranks.values() if r.state in ("stopped", "waiting-input")):
        yield _finding(run, group)
    for _, process in run.launchers:
        if (stopped := stopped_by(process)) is not None:
            yield _launcher(run, process, stopped)


def _launcher(run: Run, process: Process, stopped: Stop) -> Finding:
    """A stopped launcher holds up nobody while its ranks live; once they have ended, nobody collects or restarts them."""
    dead = [rank.rank for rank in run.ranks.values() if rank.label == "dead"]
    over = len(dead) == len(run.ranks)
    ended = f"; {words.ranks(dead)} {words.verb(dead, 'has', 'have')} ended" if dead else ""
    return words.finding(
        CODE,
        NAME,
        severity="error" if over else "warning",
        confidence=0.95,
        culprits=(),
        victims=(),
        summary=f"the launcher (pid {process.pid}) is stopped: {stopped.why}{ended}; it can neither end nor restart its ranks",
        evidence=[
            Evidence(rank=None, probe="kernel", text=f"pid {process.pid} ({process.name}): {stopped.why}"),
            *(Evidence(rank=n, probe="processes", text=f"it has ended: {run.ranks[n].why}") for n in dead[:8]),
        ],
        remedy=_remedy_of(stopped.by),
        commands=_commands_of(process, stopped.by),
    )


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
    return _remedy_of(_by(rank))


def _remedy_of(by: str | None) -> str:
    match by:
        case "freezer":
            return "Thaw the control group: write 0 to its cgroup.freeze."
        case "tracer":
            return "Let the debugger continue or detach."
    return "Continue it with SIGCONT, once you know who stopped it."


def _commands(rank: Rank) -> tuple[str, ...]:
    found = _commands_of(rank.process, _by(rank)) if rank.process is not None else ()
    return found or words.look_again(rank)


def _commands_of(process: Process, by: str | None) -> tuple[str, ...]:
    if by == "tracer" and process.tracer_pid:
        return (f"ps -p {process.tracer_pid} -o pid,user,args",)
    return (f"kill -CONT {process.pid}",) if by == "signal" else ()


def _by(rank: Rank) -> str | None:
    stopped = stopped_by(rank.process) if rank.process is not None else None
    return stopped.by if stopped is not None else None
