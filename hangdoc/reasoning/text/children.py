"""Evidence about the child processes of a rank."""

from itertools import takewhile

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.kernel import how_it_ended, was_killed
from hangdoc.reasoning.evidence.stack import short
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.text import next_steps
from hangdoc.reasoning.text.next_steps import Command
from hangdoc.snapshot import Frame, Process

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
    """The pids of the child processes of a rank that are in the user's code, by their place in it, with the source line."""
    pids: dict[str, list[int]] = {}
    for child in sorted(_children(run, rank), key=lambda child: child.pid):
        if (frame := _task(child)) is not None:
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


def look(run: Run, rank: Rank) -> tuple[Command, ...]:
    """The command that shows the stack of one of those; none for none."""
    first = next((pids[0] for pids in by_place(run, rank).values()), None)
    return next_steps.stack_of(first) if first is not None else ()


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
