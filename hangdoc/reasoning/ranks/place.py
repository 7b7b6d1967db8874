"""Where a rank is in the program, and which of two ranks is further."""

from collections.abc import Sequence
from typing import NamedTuple

from hangdoc.parse import are_opposite
from hangdoc.program import around, early_exits
from hangdoc.reasoning.model.ledger import Ledger, Site
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.ranks import iterators
from hangdoc.reasoning.ranks.conditions import may_change, names_some_ranks, tells_apart
from hangdoc.reasoning.ranks.counters import frame_of, is_over_data, is_over_loader, read_number
from hangdoc.snapshot import Frame, Loop

Frames = Sequence[Frame]


class Left(NamedTuple):
    """A loop that one rank is inside and another has left."""

    loop: Loop
    skippable: bool
    """Whether one of the two may instead have skipped the call of the other, which is only made in some iterations."""


def left_loops(ahead: Rank, behind: Rank) -> list[Left]:
    """The loops that `behind` is inside and `ahead` has left, the outermost first. Only where there are none of the user's own
    code, those of the framework around it.

    Two stacks are compared from the outside in. The frames at which they part are in the same function: a line behind a loop in
    it comes after the loop, and a call from inside the loop is still in it.
    """
    own = _find_left_loops(ahead, ahead.own, behind, behind.own)
    return own or _find_left_loops(ahead, ahead.program, behind, behind.program)


def _find_left_loops(ahead: Rank, ours: Frames, behind: Rank, theirs: Frames) -> list[Left]:
    parted = _find_parting(ahead, ours, behind, theirs)
    if parted is None:
        return []
    a, b, deeper = parted.frame, parted.other, parted.deeper
    rounds = _count_rounds_ahead(ahead, a, behind, b)
    # A package's loop may run hooks, metrics and validation in some iterations, whatever the conditions are.
    trains = behind.wait is not None and behind.wait.operation.origin not in (None, "user")
    skippable = parted.uncounted and (_is_conditional(ours, a) or (a.library and not trains))
    collective = ahead.wait is not None and ahead.wait.kind == "collective"
    if rounds is None and collective and not _is_for_some(ahead, a, behind):
        rounds = 0  # no counter tells, but if `behind` were a round further, it would have been in this collective too
    if _line_of(a) <= _line_of(b) or rounds != 0 or _are_beside(a, b):
        return []
    # `b` is inside a call that `a` has come back from: any loop deeper in `b`'s stack is behind `a`. A package's loop below
    # the user's call that neither trains the model nor calls the user's code is that call's own business (gathering one
    # tensor after another).
    called = [
        frame for at, frame in enumerate(deeper) if a.library or trains or not all(f.library for f in deeper[at:])
    ]
    loops = [Left(loop, skippable) for loop in around(b) if loop.end_line < _line_of(a)]
    for frame in called:
        # In one iteration of a loop around both, a loop inside it differs less likely than a condition in that.
        skipped = skippable or (parted.counted and _is_conditional(theirs, frame))
        loops += [Left(loop, skipped) for loop in around(frame)]
    return loops


def find_loops_entered(rank: Rank, passed: Site) -> list[Left]:
    """The loops of the user's own code that a rank is in and has entered since it passed a line of one of its functions, the
    outermost first; none if it is not in that function."""
    name = passed.function.rpartition(".")[2]
    own = rank.own
    inside = (at for at, each in enumerate(own) if (each.file, each.function.rpartition(".")[2]) == (passed.path, name))
    at = next(inside, None)
    if at is None:
        return []
    entered = [loop for loop in around(own[at]) if not loop.line <= passed.line <= loop.end_line]
    entered += [loop for called in reversed(own[:at]) for loop in around(called)]
    conditional = _is_conditional(own, own[at])
    return [Left(loop, skippable=conditional and not early_exits(loop)) for loop in entered]


def is_ahead(rank: Rank, other: Rank) -> bool:
    """Whether `rank` has come further in the program than `other`: a round on, or behind its line in the same round."""
    parted = _find_parting(rank, rank.own, other, other.own)
    if parted is None or _line_of(parted.frame) == _line_of(parted.other):
        parted = _find_parting(rank, rank.program, other, other.program)
    if parted is None:
        return False
    a, b = parted.frame, parted.other
    rounds = _count_rounds_ahead(rank, a, other, b)
    if rounds:
        return rounds > 0
    handles = any(test.startswith("except") and test not in b.conditions for test in a.conditions)
    if _are_beside(a, b) or handles or _line_of(a) == _line_of(b):  # a handler is beside what it guards
        return False
    later = _line_of(a) > _line_of(b)
    if parted.uncounted:
        mine, theirs = (_is_conditional(who.program, at, on_rank=True) for who, at in ((rank, a), (other, b)))
        if mine != theirs and mine == later:
            return not later  # the call on the later line was skipped: nothing else lets a rank pass the other call
    return later and rounds is not None


def is_a_round_ahead(rank: Rank, other: Rank) -> bool:
    """Whether `rank` has come further in the program than `other`, and is in a later round of a loop that both are in."""
    parted = _find_parting(rank, rank.program, other, other.program)
    return parted is not None and (_count_rounds_ahead(rank, parted.frame, other, parted.other) or 0) > 0


def find_rounds_apart(rank: Rank, other: Rank) -> tuple[Loop, str, int, int] | None:
    """The outermost loop around both ranks that one is a round ahead in, its counter, and the value of that on `rank` and on
    `other`. None if no counter that every round changes tells."""
    parted = _find_parting(rank, rank.own, other, other.own)
    if parted is None or not _count_rounds_ahead(rank, parted.frame, other, parted.other):
        return None
    for loop in sorted(parted.frame.loops, key=lambda loop: loop.line):
        if _holds(loop, parted.frame, parted.other):
            for name in loop.counters[: loop.every]:
                mine, theirs = (
                    read_number(who.process, at, name) for who, at in ((rank, parted.frame), (other, parted.other))
                )
                if mine is not None and theirs is not None and mine != theirs:
                    return loop, name, mine, theirs
    return None


def ends_only_by_itself(loop: Loop, outside: Rank, inside: Rank) -> bool:
    """Whether a loop gives batches (`gives_batches`) and ends only with them: no statement leaves the loop, and no exception has
    left it, because the rank outside is still in its function or no function on the way to it catches any. And whether each
    iteration makes the call in which the rank inside waits."""
    frame, within = (frame_of(loop, rank) for rank in (outside, inside))
    if within is None or early_exits(loop) or not loop.header.startswith("for "):
        return False
    if frame is None and any(caller.caught != () for caller in _callers(within, inside)):
        return False
    if set(within.conditions) - set(frame.conditions if frame is not None else ()):
        return False
    return gives_batches(loop, inside)


def gives_batches(loop: Loop, rank: Rank) -> bool:
    """Whether a loop that a rank is in is over a DataLoader, or over anything but numbers and trains: a layer of torch makes the
    call in which the rank waits."""
    frame = frame_of(loop, rank)
    trains = is_over_data(loop) and rank.wait is not None and rank.wait.operation.origin not in (None, "user")
    return trains or (frame is not None and is_over_loader(loop, frame))


def calls_in_each_round(loop: Loop, rank: Rank, ledger: Ledger) -> bool:
    """Whether nothing shows that a rank makes its call in some rounds of a loop only: no condition that may change and no handler
    in the functions on the way to it, and by its record it has made the call before."""
    within = frame_of(loop, rank)
    if within is None or _is_conditional(rank.program, within):
        return False
    called = rank.program[: next(at for at, each in enumerate(rank.program) if each is within)]
    if any(frame.caught for frame in called if not frame.library):
        return False
    pending = [calls.count_like(waiting.call) for _, calls in ledger.of_rank(rank.rank) for waiting in calls.pending]
    return all(times is None or times > 1 for times in pending)


def _callers(frame: Frame, rank: Rank) -> Sequence[Frame]:
    """The frames of the program outside of one of them."""
    at = next(index for index, each in enumerate(rank.program) if each is frame)
    return rank.program[at + 1 :]


def _are_beside(frame: Frame, other: Frame) -> bool:
    """Whether two frames of one function are in the two branches of one `if`: neither is behind the other."""
    return any(are_opposite(test, theirs) for test in frame.conditions for theirs in other.conditions)


def _is_conditional(stack: Frames, frame: Frame, *, on_rank: bool = False) -> bool:
    """Whether the user's own code tests a condition that may change on the way from `frame` to the innermost call; with
    `on_rank`, or one that is about the rank. If `frame` is in a loop itself, only the conditions that the loop tests again
    count."""
    called = stack[: next((at for at, other in enumerate(stack) if other is frame), 0)]
    tests = [test for inner in called if not inner.library for test in inner.conditions]
    if not frame.library:
        tests += frame.conditions[len(frame.conditions) - frame.repeated :] if around(frame) else frame.conditions
    return any(on_rank or may_change(test) for test in tests)


def _is_for_some(rank: Rank, frame: Frame, other: Rank) -> bool:
    """Whether a condition on the way from `frame` to the innermost call of `rank`, in the user's code or in a package, lets only
    some ranks make it, and may keep out `other`."""
    called = rank.program[: next(at for at, each in enumerate(rank.program) if each is frame)]
    tests = {test for inner in called for test in inner.conditions}
    tests.update(frame.conditions[len(frame.conditions) - frame.repeated :])
    return any(names_some_ranks(test) and tells_apart(test, rank, other) for test in tests)


def _line_of(frame: Frame) -> float:
    """The line of a frame; if it leaves a `with` block, behind its last line."""
    return frame.line if frame.leaves is None else frame.leaves + 0.5


class _Parted(NamedTuple):
    """Where two stacks part, from the outside in."""

    frame: Frame
    """Of the first stack, in the last function that both are in."""
    other: Frame
    """Of the other, in the same function."""
    deeper: Frames
    """The other's frames inside it."""
    uncounted: bool
    """Whether both are in a loop without a known counter, so that they may be in different iterations."""
    counted: bool
    """Whether counters show that both are in one iteration of a loop."""


def _find_parting(rank: Rank, ours: Frames, other: Rank, theirs: Frames) -> _Parted | None:
    """Where two stacks part; None if they have no function in common."""
    ours, theirs = ours[::-1], theirs[::-1]
    last, uncounted, counted = None, False, False
    for index, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if (a.file, a.function) != (b.file, b.function):
            break
        rounds = _count_rounds_ahead(rank, a, other, b)
        uncounted = uncounted or rounds is None
        counted = not uncounted and (counted or (rounds == 0 and any(_holds(loop, a, b) for loop in a.loops)))
        last = _Parted(a, b, theirs[index + 1 :], uncounted, counted)
        if _line_of(a) != _line_of(b) or rounds:
            break
    return last


def continued_by(frame: Frame) -> list[str]:
    """The handlers around a line that continue the loop around it after an exception. One around the loop ends it."""
    loops = around(frame)
    ends = {test for loop in loops for way_out in loop.exits for test in way_out.conditions}
    return [handler for handler in frame.caught or () if handler not in ends] if loops else []


def _holds(loop: Loop, a: Frame, b: Frame) -> bool:
    """Whether two frames of one function are in a loop of it."""
    return loop.line <= min(_line_of(a), _line_of(b)) and max(_line_of(a), _line_of(b)) <= loop.end_line


def _count_rounds_ahead(rank: Rank, a: Frame, other: Rank, b: Frame) -> int | None:
    """How many rounds `rank` is ahead of `other` in the outermost loop that holds both frames and tells them apart; 0
    for the same round, None where no counter tells. A later line in an earlier round is not ahead."""
    for loop in sorted(a.loops, key=lambda loop: loop.line):
        if _holds(loop, a, b):
            received = [iterators.find_iterator(who.process, frame, loop) for who, frame in ((rank, a), (other, b))]
            counts = [iterator.done for iterator in received if iterator is not None and iterator.done is not None]
            if len(counts) == 2:
                if counts[0] != counts[1]:
                    return counts[0] - counts[1]
                continue
            names = loop.counters[: loop.every or None]
            ours = [read_number(rank.process, a, name) for name in names]
            theirs = [read_number(other.process, b, name) for name in names]
            ahead = [x - y for x, y in zip(ours, theirs, strict=True) if x is not None and y is not None]
            if not ahead:
                return None
            # Of counters that only some iterations change (`step += 1` and `skipped += 1`), the sum counts the iterations.
            if sum(ahead) != 0:
                return sum(ahead)
    return 0
