"""Evidence about the child processes of a rank."""

from itertools import takewhile

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.kernel import how_it_ended
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
    found = [one for one in _children(run, rank) if one.state in "ZX"]
    return [
        Evidence(rank.rank, "kernel", f"child process {one.pid} is dead: {how_it_ended(one)}") for one in found[:_MOST]
    ]


def by_place(run: Run, rank: Rank) -> dict[str, list[int]]:
    """The pids of the child processes of a rank that are in the user's code, by their place in it, with the source line."""
    found: dict[str, list[int]] = {}
    for one in sorted(_children(run, rank), key=lambda one: one.pid):
        if (frame := _task(one)) is not None:
            source = f" `{frame.source}`" if frame.source else ""
            found.setdefault(f"{short(frame.file)}:{frame.line}{source}", []).append(one.pid)
    return found


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
    return [one for one in run.helpers(rank) if one.ppid == rank.pid]


def _task(process: Process) -> Frame | None:
    """The innermost frame of the user's code in what the main thread of a child process does."""
    main = (one for one in observed.python_threads(process) if one.tid in (None, process.pid))
    inside = (takewhile(lambda frame: not frame.file.endswith(_STARTED_BY), one.frames) for one in main)
    return next((frame for some in inside for frame in some if not frame.library and not frame.native), None)
