"""Loops and counters: which loop over the data a rank is in or has left, how far it is, and where in the user's code."""

from collections import Counter as Tally
from collections.abc import Iterable

from hangdoc.diagnose.model import LoopView, Rank
from hangdoc.diagnosis import Where
from hangdoc.parse import integer, negated
from hangdoc.snapshot import Frame, Interpreter, Loop, Process, Progress, PythonThread, Stack

_ENDLESS = 1 << 30
"""A bound that nobody means to reach (`range(10**12)`): the loop ends when its data does."""
LoopKey = tuple[str, str, int]
"""File, function and line of a loop."""


def user_frames(thread: PythonThread | None) -> list[Frame]:
    """Frames of the user's own code, innermost first."""
    return [] if thread is None else [f for f in thread.frames if not f.library and not f.native]


def counters_in(frames: Iterable[Frame]) -> set[str]:
    """Names of what the loops of these frames count: they say how far the work has come, not what it was told."""
    return {name for frame in frames for loop in frame.loops for name in loop.counters}


def same_frames(one: PythonThread, other: PythonThread) -> bool:
    """Whether two stacks stand at the same lines."""
    return len(one.frames) == len(other.frames) and all(
        a.line == b.line and a.function == b.function and a.file == b.file
        for a, b in zip(one.frames, other.frames, strict=True)
    )


def where(thread: PythonThread | None, own: list[Frame]) -> tuple[Where | None, Frame | None]:
    """The innermost frame of the user's `own` code; where there is none, the innermost Python frame outside torch."""
    if thread is None:
        return None, None
    own = own or [f for f in thread.frames if not f.native and "/torch/" not in f.file and "site-packages" in f.file]
    if not own:
        return None, None
    frame = own[0]
    return Where(file=short(frame.file), line=frame.line, function=frame.function, source=frame.source), frame


def short(file: str) -> str:
    """A file's name with one folder, as a person would say it."""
    parts = file.split("/")
    return "/".join(parts[-2:]) if len(parts) > 2 and parts[-2] not in ("", "tmp") else parts[-1]


def fetching(thread: PythonThread | None) -> bool:
    """Whether the thread is inside the iterator of a `for`, or a `next(...)`: it is getting its next batch."""
    return bool(consumers(thread))


def consumers(thread: PythonThread | None) -> list[Frame]:
    """The frame that waits for an iterator's next element and the frames around it, outermost last; none where the
    thread is in no iterator. Of iterators within iterators, the outermost: what it feeds is the training."""
    frames = [] if thread is None else [f for f in thread.frames if not f.native]
    for index in range(len(frames) - 1, 0, -1):  # from the outside in; the innermost frame fetches from nobody
        frame = frames[index]
        at_header = any(loop.header.startswith("for") and loop.line == frame.line for loop in frame.loops)
        if not frame.library and (at_header or "next(" in (frame.source or "")):
            return frames[index:]
    return []


def starves(process: Process, thread: PythonThread | None) -> bool:
    """Whether a thread was fetching the same next element at both looks: who consumes it stood at the same lines, and
    none of his counters moved. The iterator's own may: it goes round and round."""
    now = consumers(thread)
    if not now or thread is None or not isinstance(process.stack_before, Stack) or counters_moved(process, among=now):
        return False
    earlier = [t for t in process.stack_before.threads if t.tid == thread.tid and t.name == thread.name]
    places = [(frame.file, frame.function, frame.line) for frame in now]
    # The first stack has no source to find the consumers in, and needs none: they are its outermost frames.
    return any(
        len(t.frames) > len(places) and [(f.file, f.function, f.line) for f in t.frames][-len(places) :] == places
        for t in earlier
    )


def common_loop(stacks: Iterable[list[Frame]]) -> LoopKey | None:
    """The loop that best counts the run's batches: one that most ranks have a part in (inside it, or behind it in the
    same function), over data rather than over numbers, innermost for data, outermost for numbers."""
    inside: Tally[LoopKey] = Tally()
    part: Tally[LoopKey] = Tally()
    quality: dict[LoopKey, tuple[int, int]] = {}
    for frames in stacks:
        for depth, frame in enumerate(reversed(frames)):  # 0 is outermost
            for loop in frame.loops:
                key = (frame.file, frame.function, loop.line)
                inside[key] += loop.line <= frame.line <= loop.end_line
                part[key] += loop.line <= frame.line  # inside it, or behind it in the same function
                score = _score(loop)
                nesting = depth * 100_000 + loop.line
                quality[key] = (score, nesting if score == 3 else -nesting)
    candidates = [key for key in inside if inside[key] and quality[key][0] > 0]
    return max(candidates, key=lambda key: (part[key], quality[key], inside[key], key), default=None)


def _score(loop: Loop) -> int:
    """3 for a counted loop over data, 2 for a counted loop over numbers, 1 for data without a counter."""
    numbers = " in range(" in loop.header or loop.header.startswith("while")
    if loop.counters:
        return 2 if numbers else 3
    return 0 if numbers else 1


def loop_view(process: Process, own: list[Frame], key: LoopKey | None) -> LoopView | None:
    """How a rank stands to the loop `key`; None where the frames of its own code don't show that function."""
    if key is None:
        return None
    for frame in own:
        for loop in frame.loops:
            if (frame.file, frame.function, loop.line) == key and frame.line >= loop.line:
                return _view(process, frame, loop)
    return None


def _view(process: Process, frame: Frame, loop: Loop) -> LoopView:
    inside = loop.line <= frame.line <= loop.end_line
    values = ((name, number(process, frame, name)) for name in loop.counters)
    counter, value = next((found for found in values if found[1] is not None), (None, None))
    done = None
    if value is not None:
        counted = loop.header.startswith("while") or loop.start is None
        # a finished `for` keeps its last index
        done = value if counted else value - (loop.start or 0) + (0 if inside else 1)
    bound = number(process, frame, loop.bound) if loop.bound else None
    total = bound - (loop.start or 0) if bound is not None and bound < _ENDLESS else None
    return LoopView(loop, frame.file, frame.function, inside, counter, value, done, total)


def number(process: Process, frame: Frame, name: str) -> int | None:
    """The value of a literal or of an integer variable as a frame sees it."""
    if (literal := integer(name)) is not None:
        return literal
    scopes = [frame.locals]
    if isinstance(process.interpreter, Interpreter) and (frame.function == "<module>" or not frame.locals):
        scopes.append(process.interpreter.globals)
    for scope in scopes:
        for local in scope:
            if local.name == name and (value := integer(local.text)) is not None:
                return value
    return None


def batches(process: Process, view: LoopView | None) -> tuple[int | None, int | None]:
    """(batches done, batches expected): what the trainer publishes, else what its loop counts."""
    beacon = process.progress.beacon if isinstance(process.progress, Progress) else None
    done = beacon.batches_done if beacon else None
    total = beacon.batches_total if beacon else None
    if done is None and view is not None:
        done = view.done
        total = total if total is not None else view.total
    return done, total


def counters_moved(process: Process, among: list[Frame] | None = None) -> bool:
    """Whether any integer of the user's code, or the beacon, changed during the window; with `among`, integers of these
    frames only."""
    progress = process.progress
    if not isinstance(progress, Progress):
        return False
    functions = None if among is None else {(frame.file, frame.function) for frame in among}
    counters = (c for c in progress.counters if functions is None or (c.file, c.function) in functions)
    return any(c.before != c.after for c in counters) or (progress.beacon is not None and progress.beacon.moved)


def advances(process: Process) -> bool:
    """Whether a number that a loop of the user's code moves on, or the beacon, changed during the window: the work comes
    on. Any other number may go up and down for ever."""
    progress = process.progress
    if not isinstance(progress, Progress):
        return False
    moved = any(c.before != c.after for c in progress.counters if c.looped or c.advances)
    return moved or (progress.beacon is not None and progress.beacon.moved)


def left_loop(ahead: Rank, behind: Rank) -> tuple[Frame, Loop] | None:
    """The loop that `behind` is inside and `ahead` has left, with `ahead`'s frame; None where there is none.

    Two stacks are compared from the outside in. Where they part, they stand in the same function: what lies behind a
    loop there comes after it, and whoever is called from inside the loop is still in it.
    """
    parted = _parting(ahead, behind)
    if parted is None:
        return None
    a, b, deeper = parted
    if a.line < b.line or _rounds(ahead, a, behind, b) != 0:
        return None
    for loop in sorted(b.loops, key=lambda loop: loop.line):
        if loop.line <= b.line <= loop.end_line < a.line:
            return a, loop
    # `b` is inside a call that `a` has come back from: any loop deeper in `b`'s stack is behind `a`.
    inside = (loop for frame in deeper for loop in frame.loops if loop.line <= frame.line <= loop.end_line)
    return next(((a, loop) for loop in inside), None)


def is_ahead(one: Rank, other: Rank) -> bool:
    """Whether `one` has come further in the program than `other`: a round on, or behind its line in the same round."""
    parted = _parting(one, other)
    if parted is None:
        return False
    a, b, _ = parted
    rounds = _rounds(one, a, other, b)
    if rounds is None:
        return False
    if rounds != 0:
        return rounds > 0
    # Two branches of one `if` are beside each other, not one behind the other; a handler is beside what it guards.
    beside = any(negated(test) in b.conditions for test in a.conditions)
    handles = any(test.startswith("except") and test not in b.conditions for test in a.conditions)
    return a.line > b.line and not beside and not handles


def _parting(one: Rank, other: Rank) -> tuple[Frame, Frame, list[Frame]] | None:
    """The frames of one function at which two stacks part, from the outside in, and the other's deeper frames."""
    ours, theirs = user_frames(one.thread)[::-1], user_frames(other.thread)[::-1]
    last = None
    for index, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if (a.file, a.function) != (b.file, b.function):
            break
        last = (a, b, theirs[index + 1 :])
        if a.line != b.line or _rounds(one, a, other, b) not in (0, None):
            break
    return last


def _rounds(one: Rank, a: Frame, other: Rank, b: Frame) -> int | None:
    """How many rounds `one` is ahead of `other` in the outermost loop that holds both frames and tells them apart; 0
    for the same round, None where no counter tells. A later line in an earlier round is not ahead."""
    if one.process is None or other.process is None:
        return None
    for loop in sorted(a.loops, key=lambda loop: loop.line):
        if loop.line <= min(a.line, b.line) and max(a.line, b.line) <= loop.end_line:
            ours = [number(one.process, a, name) for name in loop.counters]
            theirs = [number(other.process, b, name) for name in loop.counters]
            known = [(x, y) for x, y in zip(ours, theirs, strict=True) if x is not None and y is not None]
            if not known:
                return None
            if known[0][0] != known[0][1]:
                return known[0][0] - known[0][1]
    return 0
