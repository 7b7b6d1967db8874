"""Evidence about the child processes of a rank."""

from itertools import chain, takewhile

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.kernel import how_it_ended, was_killed
from hangdoc.reasoning.evidence.stack import short
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.loader import list_unawaited_workers
from hangdoc.reasoning.ranks.movement import find_kernel_thread
from hangdoc.reasoning.ranks.waiter import describe_file
from hangdoc.reasoning.text import next_steps
from hangdoc.reasoning.text.next_steps import Command
from hangdoc.snapshot import Frame, KernelThread, Process

_MOST = 3
_STARTED_BY = "/multiprocessing/process.py"
"""Where `multiprocessing` starts what a child process does. After a fork, the frames outside of it are the parent's."""


def ended(run: Run, rank: Rank) -> list[Evidence]:
    """Child processes of a rank that have ended, and how; at most three. What a child process has started is its own matter: a
    shell's commands come and go."""
    dead = [child for child in _children(run, rank) if child.state in "ZX"]
    return [
        Evidence(rank.rank, "kernel", f"child process {child.pid} is dead: {how_it_ended(child)}")
        for child in dead[:_MOST]
    ]


def explain_end(run: Run, rank: Rank) -> tuple[Command, ...]:
    """The command that shows whether the kernel has killed a child process for its memory; none if nothing killed one."""
    killed = any(child.state in "ZX" and was_killed(child) for child in _children(run, rank))
    return (next_steps.KERNEL_LOG,) if killed else ()


def by_place(run: Run, rank: Rank) -> dict[str, list[int]]:
    """The pids of the child processes of a rank that are in the user's code, by their place in it, with the source line. Without
    workers that only fetch ahead."""
    pids: dict[str, list[int]] = {}
    unawaited = list_unawaited_workers(rank.process, rank.thread)
    for child in sorted(_children(run, rank), key=lambda child: child.pid):
        if child.pid not in unawaited and (frame := _task(child)) is not None:
            source = f" `{frame.source}`" if frame.source else ""
            pids.setdefault(f"{short(frame.file)}:{frame.line}{source}", []).append(child.pid)
    return pids


def places(run: Run, rank: Rank) -> list[Evidence]:
    """Where in the user's code the child processes of a rank are; at most three places."""
    return [
        Evidence(rank.rank, "stacks", f"child process{'es' * (len(pids) > 1)} {', '.join(map(str, pids[:_MOST]))}"
                 f"{' and others' * (len(pids) > _MOST)} {'are' if len(pids) > 1 else 'is'} at {place}")
        for place, pids in list(by_place(run, rank).items())[:_MOST]
    ]  # fmt: skip


def calls(run: Run, rank: Rank) -> list[Evidence]:
    """What the kernel shows of the other child processes of a rank that waits for one: the system call that each is in; at most
    three."""
    return [
        Evidence(
            rank.rank,
            "kernel",
            f"child process {child.pid} ({child.name}) is in {_describe_call(run, rank, child, main)}",
        )
        for child, main in _in_calls(run, rank)[:_MOST]
    ]


def _in_calls(run: Run, rank: Rank) -> list[tuple[Process, KernelThread]]:
    if rank.state != "waiting-child":
        return []
    others = [child for child in _children(run, rank) if child.state not in "ZX" and _task(child) is None]
    mains = ((child, find_kernel_thread(child, child.pid)) for child in others)
    return [(child, main) for child, main in mains if main is not None and main.syscall]


def _describe_call(run: Run, rank: Rank, child: Process, main: KernelThread) -> str:
    """`the system call read, on a connection to 10.0.0.2:80`."""
    call = f"the system call {main.syscall}"
    if len(main.files) != 1:
        return call
    (file,) = main.files
    sockets = observed.connections(run.host[rank.host]) if rank.host in run.host else ()
    end = next((c for c in sockets if c.pid == child.pid and c.inode == file.inode), None)
    if end is not None and end.state != "LISTEN":
        return f"{call}, on a connection to {end.remote_address}:{end.remote_port}"
    return f"{call}, on {describe_file(file)}"


def look(run: Run, rank: Rank) -> tuple[Command, ...]:
    """The command that shows the stack of one that is in the user's code, or else of a Python process for which a rank waits, or
    else those for which it waits; none for none."""
    awaited = [child for child, _ in _in_calls(run, rank)]
    at_places = (pids[0] for pids in by_place(run, rank).values())
    first = next(chain(at_places, (child.pid for child in awaited if _runs_python(child))), None)
    if first is not None:
        return next_steps.stack_of(first)
    return next_steps.show(child.pid for child in awaited[:_MOST])


def _runs_python(process: Process) -> bool:
    """Whether the program of a process has the name of Python's."""
    program = process.argv[0].rpartition("/")[2] if process.argv else ""
    return program.startswith(("python", "pypy"))


def _children(run: Run, rank: Rank) -> list[Process]:
    return [helper for helper in run.helpers(rank) if helper.ppid == rank.pid]


def _task(process: Process) -> Frame | None:
    """The innermost frame of the user's code in what the main thread of a child process does."""
    for thread in observed.python_threads(process):
        if thread.tid in (None, process.pid):
            for frame in takewhile(lambda frame: not frame.file.endswith(_STARTED_BY), thread.frames):
                if not frame.library and not frame.native:
                    return frame
    return None
