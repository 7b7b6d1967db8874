"""Loops and their counters: which loop counts the batches of a run, how far a rank is in it, and whether it makes progress."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import structs

from hangdoc.diagnosis import BatchesSource, Where
from hangdoc.parse import are_opposite, integer, names_in
from hangdoc.program import around
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import short
from hangdoc.reasoning.model.rank import LoopView, Rank
from hangdoc.reasoning.ranks import iterators
from hangdoc.reasoning.ranks.in_source import waits_for_each
from hangdoc.regex import regex
from hangdoc.snapshot import Counter, Exit, Frame, Loader, Loop, Loops, Process, Progress, PythonThread

_ENDLESS = 1 << 30
"""A bound that is not meant to be reached (`range(10**12)`): the loop ends when its data does."""
_EPOCH = regex(r"(?i)(^|_)epochs?(_|\d|$)")
"""In the name of a counter. Nothing else tells an epoch from a batch where a loop over numbers has others inside it."""
LoopKey = tuple[str, str, int]
"""File, function and line of a loop."""

_WHOLE_BELOW = 1e12
"""A float below it is written without an exponent, since its text has twelve digits (`observe.memory.python_state`)."""


def counters_in(frames: Iterable[Frame]) -> set[str]:
    """Names of the counters of these frames' loops. They show the progress of the work, not its settings."""
    return {name for frame in frames for loop in frame.loops for name in loop.counters}


def find_common_loop(stacks: Iterable[tuple[Process, Sequence[Frame], bool, int]]) -> tuple[LoopKey | None, bool]:
    """From the processes and their stacks, each with whether it executes requests and with the number of ranks that are
    like it: the loop that best counts the run's batches, and whether it counts batches. It is one that most ranks have a
    part in (inside it, or behind it in the same function), over batches by its own iterator, or else over data rather than
    over numbers, innermost for data, outermost for numbers. With a loop over a DataLoader inside it, or a counter that the
    user calls an epoch, it counts epochs; in a request, it counts parts of the request."""
    not_batches: set[LoopKey] = set()
    inside: Tally[LoopKey] = Tally()
    part: Tally[LoopKey] = Tally()
    quality: dict[LoopKey, tuple[int, int]] = {}
    for process, frames, in_request, ranks in stacks:
        for depth, frame in enumerate(reversed(frames)):  # 0 is outermost
            for loop in frame.loops:
                key = (frame.file, frame.function, loop.line)
                inside[key] += ranks * (loop.line <= frame.line <= loop.end_line)
                part[key] += ranks * (loop.line <= frame.line)  # inside it, or behind it in the same function
                score = _score(process, frame, loop)
                by_name = any(map(_EPOCH.search, loop.counters[:1]))
                if by_name or in_request or (score == 2 and _has_loader_inside(frames[: len(frames) - depth], loop)):
                    not_batches.add(key)
                nesting = depth * 100_000 + loop.line
                quality[key] = max(quality.get(key, (0, 0)), (score, nesting if score >= 3 else -nesting))
    candidates = [key for key in inside if inside[key] and quality[key][0] > 0]
    best = max(candidates, key=lambda key: (part[key], quality[key], inside[key], key), default=None)
    return best, best not in not_batches


def is_in_endless_loop(frames: Iterable[Frame]) -> bool:
    """Whether a stack is in a loop without an end."""
    return any(not has_end(loop) for frame in frames for loop in around(frame))


def _has_loader_inside(frames: Sequence[Frame], loop: Loop) -> bool:
    """Whether a loop of the last of these frames has a loop over a DataLoader inside it, in its function or in one it calls."""
    *called, frame = frames
    if not loop.line <= frame.line <= loop.end_line:
        return False
    nested = [(frame, inner) for inner in frame.loops if loop.line < inner.line <= loop.end_line]
    nested += [(callee, inner) for callee in called for inner in around(callee)]
    return any(is_over_loader(inner, holder) for holder, inner in nested)


def _score(process: Process, frame: Frame, loop: Loop) -> int:
    """4 for a loop whose iterator gives batches, 3 for a counted loop over data, 2 for a counted loop over numbers, 1 for data
    without a counter, 0 for works that a rank waits for one after the other."""
    if iterators.gives_batches(process, frame, loop):
        return 4
    if waits_for_each(loop, frame):
        return 0
    if loop.counters:
        return 3 if is_over_data(loop) else 2
    return 1 if is_over_data(loop) else 0


def is_over_data(loop: Loop) -> bool:
    """Whether a loop is over data rather than over numbers."""
    _, _, iterated = loop.header.partition(" in ")
    return not iterated.startswith("range(") and not loop.header.startswith("while")


def counts_data(loop: Loop, rank: Rank) -> bool:
    """Whether the rounds of a rank's loop are known to be those of its data: it is over data, or a framework has made it."""
    frame = frame_of(loop, rank)
    return is_over_data(loop) or (frame is not None and frame.library)


def is_over_loader(loop: Loop, frame: Frame) -> bool:
    """Whether a loop of a frame is over a DataLoader that the frame has a variable for or makes in the loop's header."""
    iterated = loop.header.rpartition(" in ")[2]
    loaders = {local.name for local in frame.locals if "DataLoader" in local.text}
    return "DataLoader(" in iterated or not loaders.isdisjoint(names_in(iterated))


def loop_view(
    process: Process, own: Sequence[Frame], key: LoopKey | None, *, of_batches: bool = True
) -> LoopView | None:
    """The rank's position in the loop `key`; None if that function is not in the frames of its own code."""
    if key is None:
        return None
    file, function, line = key
    for frame in own:
        for loop in frame.loops:
            if loop.line == line <= frame.line and frame.function == function and frame.file == file:
                return _make_view(process, frame, loop, of_batches=of_batches)
    return None


def _make_view(process: Process | None, frame: Frame, loop: Loop, *, of_batches: bool = True) -> LoopView:
    inside = loop.line <= frame.line <= loop.end_line
    values = (
        (name, read_number(process, frame, name))
        for name in loop.counters
        if (inside or not _counts_again(frame, loop, name)) and not _is_of_inner(frame, loop, name)
    )
    name, value = next((each for each in values if each[1] is not None), ("", None))
    done = value
    begin = _read_begin(process, frame, loop, value)
    start = loop.start if begin is None else begin
    if value is not None and start is not None and not loop.header.startswith("while"):
        # A finished `for` keeps its last index, and so does one that fetches its next element.
        in_body = inside and frame.line != loop.line
        done = value - start + (0 if in_body else 1)
    elif value and inside and _counts_present(loop, name, frame.line):
        done = value - 1
    bound = read_number(process, frame, loop.bound) if loop.bound else None
    total = max(0, bound - (start or 0)) if bound is not None and bound < _ENDLESS else None
    view = _add_records(process, frame, LoopView(loop, inside, done, total, of_batches, begin=begin))
    return view if inside else structs.replace(view, done=_count_completed(view))


def _counts_present(loop: Loop, name: str, line: int) -> bool:
    """Whether each iteration increments a counter of a loop before it comes to a line: then that counts the present one, too."""
    lines = dict(zip(loop.counters, loop.counted_at, strict=False))
    return loop.line < line <= loop.end_line and lines.get(name, loop.end_line) < line


def counts_begun(loop: Loop, exits: Iterable[Exit]) -> bool:
    """Whether the counter of a loop counts an iteration in which one of some statements left it: it counts those that were
    begun, and not those that were done."""
    at = loop.counted_at[0] if loop.counted_at else None
    return loop.start is not None or (at is not None and any(each.line > at for each in exits))


def _read_begin(process: Process | None, frame: Frame, loop: Loop, value: int | None) -> int | None:
    """The value at which a counter began, by the variable that the header names. An attribute (`self.epoch`) is often set again
    in the loop, and what is above the counter was."""
    if loop.begin is None or not loop.begin.isidentifier() or loop.begin in {*loop.counters, *loop.advances}:
        return None
    begin = read_number(process, frame, loop.begin)
    return None if begin is None or (value is not None and begin > value) else begin


def _is_of_inner(frame: Frame, loop: Loop, name: str) -> bool:
    """Whether a loop inside another one assigns the counter of that (`for _ in range(6)` around `for _ in range(20)`), or counts
    its own iterations with it: then it counts those of the loop around only if that one tests it (`while step < n`)."""
    inner = [other for other in frame.loops if loop.line < other.line <= loop.end_line]
    tested = name in names_in(loop.header)
    return any(
        name in names_in(_targets(each)) or (name in each.counters[: each.every] and not tested) for each in inner
    )


def _targets(loop: Loop) -> str:
    """What the header of a `for` assigns; empty for a `while`."""
    return loop.header.partition(" in ")[0].removeprefix("for ") if loop.header.startswith("for ") else ""


def _counts_again(frame: Frame, loop: Loop, name: str) -> bool:
    """Whether a loop of the function that a rank has come to, or perhaps past, after one that has ended uses its counter: the
    value may be of that."""
    later = (other for other in frame.loops if loop.end_line < other.line <= frame.line)
    return any(name in other.counters or name in other.advances for other in later)


def _count_completed(view: LoopView) -> int | None:
    """The iterations that a rank outside a loop has completed: not the one in which a statement left the loop early."""
    loop = view.loop
    left_early = None not in (view.done, view.total) and (view.done or 0) < (view.total or 0) and loop.exits
    # Older bundles do not have where the body counts.
    unknown = not loop.counted_at and not loop.header.startswith("while")
    counted = view.by_iterator or unknown or counts_begun(loop, loop.exits)
    return max(0, (view.done or 0) - 1) if left_early and counted else view.done


def _add_records(process: Process | None, frame: Frame, view: LoopView) -> LoopView:
    """The view with what the loop's own iterator says. The batch in which the rank is now is received, but not done."""
    loop, done, total = view.loop, view.done, view.total
    if view.inside:
        iterator = iterators.find_iterator(process, frame, loop)
        if iterator is None or iterator.done is None:
            return view
        received = iterator.done - ((loop.start or 0) if iterator.kind == "enumerate" else 0)
        asked = frame.line == loop.line if iterator.asked is None else iterator.asked  # older bundles do not have it
        done = max(0, received - (not asked))
        total = total if iterator.total is None else iterator.total
        return structs.replace(
            view,
            done=done,
            total=total,
            by_iterator=True,
            recorded=iterator.total is not None,
            pass_id=iterator.pass_id,
        )
    # Where a card waits in a call, its thread has gone on, and may be in the next round of the loop.
    again = iterators.find_iterator(process, frame, loop)
    loader = again or iterators.find_loader_behind(process, frame, loop)
    if loader is None or loader.total is None:
        length = iterators.find_length_behind(frame, loop, observed.module(process))
        unknown = total is None and length is not None and (done or 0) <= length  # a counter may count on in each epoch
        return structs.replace(view, total=length) if unknown else view
    delivered = (
        loader.total if iterators.ended_with_its_data(loop, frame) else None if again is not None else loader.done
    )
    if delivered is None and done is not None and done <= loader.total:  # else it counts on in each epoch
        return structs.replace(view, total=loader.total, recorded=True)
    return structs.replace(view, done=delivered, total=loader.total, by_iterator=delivered is not None, recorded=True)


def positions(rank: Rank) -> list[tuple[LoopView, int | None]]:
    """For each loop in the functions of its program: how far the rank is in it, and at which value it began."""
    return [
        (
            _make_view(rank.process, frame, loop),
            read_number(rank.process, frame, loop.begin) if loop.begin is not None else None,
        )
        for frame in rank.program
        for loop in frame.loops
    ]


def frame_of(loop: Loop, rank: Rank) -> Frame | None:
    """The innermost frame of a rank's program whose function has a loop; None if it is in none."""
    return next((frame for frame in rank.program if loop in frame.loops), None)


def with_counter_of(rank: Rank, loop: Loop) -> Rank:
    """The rank with the counter of the loop that was left. One that has left its function too has none."""
    if rank.process is None:
        return rank
    frame = frame_of(loop, rank)
    key = (frame.file, frame.function, loop.line) if frame is not None else None
    return structs.replace(rank, loop=loop_view(rank.process, rank.program, key))


def read_number(process: Process | None, frame: Frame, name: str) -> int | None:
    """The value of a literal or of an integer variable as a frame sees it."""
    if (literal := integer(name)) is not None:
        return literal
    values = map(integer, _read_texts(process, frame, name))
    return next((value for value in values if value is not None), None)


def read_float(process: Process | None, frame: Frame, name: str) -> float | None:
    """The value of a number in a variable as a frame sees it, which may be infinite or no number; None if it is not known."""
    text = next(_read_texts(process, frame, name), "")
    try:
        value = float(text)
    except ValueError:
        return None
    # Older bundles have six digits of a float: a time of day is rounded to hours.
    return None if "e+" in text and abs(value) < _WHOLE_BELOW else value


def _read_texts(process: Process | None, frame: Frame, name: str) -> Iterator[str]:
    """The texts of a variable as a frame sees it: its own, then that of its module if the frame is the module's or has none."""
    yield from (local.text for local in frame.locals if local.name == name)
    if not frame.locals or frame.function == "<module>" or _is_of_main(process, frame, name):
        yield from (local.text for local in observed.module(process) if local.name == name)


def _is_of_main(process: Process | None, frame: Frame, name: str) -> bool:
    """Whether a name is one of `__main__`: a function in the file of the script that is run takes it from its module."""
    if process is None or not any(loop.bound == name and loop.bound_of_module for loop in frame.loops):
        return False
    outermost = (next((f for f in reversed(t.frames) if not f.library), None) for t in observed.python_threads(process))
    return any(f is not None and (f.function, f.file) == ("<module>", frame.file) for f in outermost)


def count_rounds(rank: Rank) -> tuple[int | None, int | None]:
    """(rounds done, rounds expected): what the trainer publishes, else what its loop counts."""
    beacon, view = observed.beacon(rank.process), rank.loop
    done = beacon.batches_done if beacon else None
    total = beacon.batches_total if beacon else None
    if done is None and view is not None:
        done = view.done
        total = total if total is not None else view.total
    return done, total


class BatchCount(NamedTuple):
    """How far a rank is in its data; None for what is unknown, and for all if it counts only epochs."""

    done: int | None = None
    """Batches that it has completed. The one in which it is, or in which it left the loop, is not counted."""
    total: int | None = None
    source: BatchesSource | None = None
    pass_id: int | None = None
    """Another number in each pass over the data; None if nothing shows it."""
    loop: Where | None = None
    """The loop that has these batches, with its header; None for what the trainer publishes, and if it was not seen."""
    pass_number: int | None = None
    """The number of the pass, from 1; None if neither the loop around nor the framework counts it."""


_SAME_MOMENT = 1.0
_MOST_BATCHES = 10**7
"""A loop that counts further takes microseconds for each: it gives no batches."""


def count_batches(rank: Rank) -> BatchCount:
    """The batches of a rank: what its trainer publishes, else what its own iterators count, else what its loop counts."""
    count = _count_batches(rank)
    if (count.done or 0) > _MOST_BATCHES:
        return BatchCount()
    return count if (count.total or 0) <= _MOST_BATCHES else count._replace(total=None)


def _count_batches(rank: Rank) -> BatchCount:
    if observed.beacon(rank.process) is None:
        if (count := iterators.find_framework_count(rank.process)) is not None:
            behind = iterators.find_iterator_behind(rank.process, count)
            total = count.total if count.total is not None or behind is None else behind.total
            pass_id = behind.pass_id if behind is not None else None
            return BatchCount(count.done, total, "loader", pass_id, pass_number=count.pass_number)
        iterator = iterators.find_training_iterator(rank.process)
        view = rank.loop
        if view is not None and iterator is not None and _is_within_batch(view, iterator):
            view = None
        if view is not None and view.of_batches and view.by_iterator:
            number = _number_pass(rank, view.loop) if _is_stack_as_new(rank.process) else None
            return BatchCount(view.done, view.total, "loader", view.pass_id, _find_place(rank, view.loop), number)
        in_loop = view is None or view.inside  # else a running iterator is that of another loop
        if in_loop and iterator is not None and iterator.done is not None:
            place = (
                Where(file=short(iterator.file), line=iterator.begins, function=iterator.function)
                if iterator.begins
                else None
            )
            completed = max(0, iterator.done - _is_in_batch(rank, iterator))
            return BatchCount(completed, _count_expected(rank, iterator), "loader", iterator.pass_id, place)
        if view is not None and not view.of_batches:
            return BatchCount()
    done, total = count_rounds(rank)
    if done is None and total is None:
        return BatchCount()
    published = (beacon := observed.beacon(rank.process)) is not None and beacon.batches_done is not None
    if published or rank.loop is None:
        return BatchCount(done, total, "beacon" if published else "inferred")
    loop = rank.loop.loop
    # A counter that the loop does not set may count on from pass to pass.
    number = _number_pass(rank, loop) if loop.start is not None else None
    return BatchCount(done, total, "inferred", loop=_find_place(rank, loop), pass_number=number)


_LEAST_ROUNDS = 4
"""That have each asked for a batch."""


def _is_within_batch(view: LoopView, iterator: Loader) -> bool:
    """Whether a loop over numbers has fewer rounds than the data has batches: it accumulates, or goes over parts of a batch."""
    over_numbers = view.by_iterator and not is_over_data(view.loop)
    batches = iterator.done if iterator.total is None else iterator.total
    return over_numbers and view.total is not None and batches is not None and view.total < batches


def _count_expected(rank: Rank, iterator: Loader) -> int | None:
    """The batches that a rank will take of an iterator: those of its data, or as many as its outermost loop has rounds, if it has
    asked for one in each of them by `next(...)`."""
    rounds = iterators.find_only_rounds_around(rank.process, iterator)
    nest = _list_loops_around(rank.thread)
    # A loop that no iterator counts may be around it or within: `while True`.
    if rounds is None or (nest and [loop.line for _, loop in nest] != [rounds.begins]):
        return iterator.total
    # In its present round, it may not have asked yet. Without the source, the first rounds may be epochs.
    one_each = (rounds.done or 0) - (iterator.done or 0) in (0, 1) and (
        bool(nest) or (rounds.done or 0) >= _LEAST_ROUNDS
    )
    totals = [each.total for each in (iterator, rounds) if each.total is not None]
    return min(totals, default=None) if one_each else iterator.total


def _is_stack_as_new(process: Process | None) -> bool:
    """Whether the stack of a rank is of the moment of the counts of its iterators, which polls read more often: another one shows
    another pass."""
    loops = process.loops if process is not None else None
    if process is None or not isinstance(loops, Loops):
        return True
    return 0 <= loops.seconds_ago - process.deep_seconds_ago < _SAME_MOMENT


def _number_pass(rank: Rank, loop: Loop) -> int | None:
    """The number of the pass, from 1, in which a rank goes over the data of a loop, or last went: the round of the `for` loop
    around it, in its function or in one that called this. None if that does not count from a known number, or if not each of its
    rounds is a pass: it is over batches, or a condition on its counter lets some rounds in (`if epoch % 5 == 0: validate()`)."""
    at = next((at for at, frame in enumerate(rank.program) if loop in frame.loops), None)
    if at is None:
        return None
    frame, *callers = rank.program[at:]
    outer = [(frame, other) for other in frame.loops if other.line < loop.line and loop.end_line <= other.end_line]
    outer = outer or next(([(caller, each) for each in found] for caller in callers if (found := around(caller))), [])
    holder, passes = max(outer, key=lambda each: each[1].line, default=(frame, None))
    if passes is None or not _is_over_numbers(passes, holder, rank.process) or _is_in_some_rounds(passes, holder, loop):
        return None
    view = _make_view(rank.process, holder, passes)
    if view.done is None or not (view.by_iterator or passes.start is not None or view.begin is not None):
        return None
    left_early = None not in (view.done, view.total) and view.done < (view.total or 0) and bool(passes.exits)
    in_round = holder.line != passes.line if view.inside else left_early
    return view.done + in_round


def _is_over_numbers(loop: Loop, frame: Frame, process: Process | None) -> bool:
    """Whether a `for` loop is over a range, also within `tqdm(...)` and by the iterator of a variable."""
    if not loop.header.startswith("for "):
        return False
    iterator = iterators.find_iterator(process, frame, loop)
    return iterators.goes_over_range(loop) or (iterator is not None and iterator.kind == "range_iterator")


def _is_in_some_rounds(loop: Loop, frame: Frame, inner: Loop) -> bool:
    """Whether a condition on the counter of a loop of a frame decides in which rounds the loop `inner` runs: in the frame itself
    or in a function that it calls. A test whose other arm leaves the loop decides nothing."""
    before = max(0, len(frame.conditions) - frame.repeated)
    tests = frame.conditions[before:]
    if inner in frame.loops:
        # The conditions in its rounds are its own; behind it, those around the line are not around it.
        tests = frame.conditions[:before] if inner.line <= frame.line <= inner.end_line else ()
    leaves = [exit_.conditions[-1] for exit_ in loop.exits if exit_.conditions]
    advanced = {*loop.counters, *loop.advances}
    return any(
        not advanced.isdisjoint(names_in(test)) and not any(are_opposite(test, each) for each in leaves)
        for test in tests
    )


def _is_in_batch(rank: Rank, iterator: Loader) -> bool:
    """Whether a rank is in the batch that an iterator gave last: not while it asks for the next one, nor behind the loop in which
    a `next(...)` asks for it. Without a stack, that is the most likely place."""
    if iterator.asked is not None:
        return not iterator.asked
    place = (iterator.file, iterator.function)
    for thread in observed.python_threads(rank.process) if rank.process is not None else ():
        for at, frame in enumerate(thread.frames):
            if (frame.file, frame.function.rpartition(".")[2]) == place and frame.source is not None:
                asks = any(_ASKS.search(each.source or "") for each in thread.frames[: at + 1])
                return bool(around(frame)) and not asks
    return True


def _find_place(rank: Rank, loop: Loop) -> Where | None:
    frame = frame_of(loop, rank)
    if frame is None:
        return None
    return Where(file=short(frame.file), line=loop.line, function=frame.function, source=loop.header)


def is_in_counted_loop(rank: Rank, count: BatchCount) -> bool:
    """Whether a rank is still inside the loop that has its batches."""
    if rank.loop is None or not rank.loop.inside or count.loop is None:
        return False
    place = _find_place(rank, rank.loop.loop)
    return place is not None and (place.file, place.line) == (count.loop.file, count.loop.line)


def has_done_all_rounds(outside: Rank, inside: Rank) -> bool:
    """Whether a rank outside of its loop has done as many iterations as another one will have at the end: it did not leave
    early."""
    ended, going = outside.loop, inside.loop
    return ended is not None and going is not None and ended.done is not None and ended.done == going.total


def counters_moved(process: Process, among: Sequence[Frame] | None = None, attempts: Frame | None = None) -> bool:
    """Whether any integer of the user's code, or the beacon, changed during the window; with `among`, integers of these
    frames only. In the innermost loop of `attempts`, integers count only attempts."""
    if _beacon_moved(process):
        return True
    moved = observed.moved_counters(process)
    if moved and attempts is not None and (loops := around(attempts)):
        counts = {(attempts.file, attempts.function, name) for name in (*loops[-1].counters, *loops[-1].advances)}
        moved = [c for c in moved if (c.file, c.function, c.name) not in counts]
    if among is None:
        return bool(moved)
    functions = {(frame.file, frame.function) for frame in among}
    return any((c.file, c.function) in functions for c in moved)


def _beacon_moved(process: Process) -> bool:
    beacon = observed.beacon(process)
    return beacon is not None and beacon.moved


def comes_on(process: Process, thread: PythonThread | None) -> bool:
    """Whether a rank makes progress: what its trainer publishes changed during the observation, or the counter of a loop that has
    an end.

    A loop without an end (`while True`, `while not done`) counts if it is the outermost one of the rank's own thread: then it
    is the training. Inside another loop it may run forever and yield nothing to it (a search, a retry). So may a loop with an
    end that is restarted again and again.
    """
    if _beacon_moved(process):
        return True
    moved = {(c.file, c.function, c.name): c for c in observed.moved_counters(process)}
    return bool(moved) and any(
        _shows_progress(other, moved, main=other is thread) for other in observed.python_threads(process)
    )


def goes_round(process: Process, thread: PythonThread | None) -> bool:
    """Whether a rank runs a loop that has no end, and nothing shows progress: its innermost loop has no counter, or only the
    counters of such loops inside other loops change."""
    progress = process.progress
    nest = [each for each in _list_loops_around(thread) if not is_over_nothing(process, *each)]
    if not nest or thread is None or not isinstance(progress, Progress) or comes_on(process, thread):
        return False
    moves = {(c.file, c.function, c.name): c.before != c.after for c in progress.counters}

    def counters(frame: Frame, loop: Loop) -> list[bool]:
        return [
            moves[key]
            for name in _list_advanced_names(frame, loop)
            if (key := (frame.file, frame.function, name)) in moves
        ]

    innermost = nest[-1][1]
    if _ends_by_the_clock(innermost):
        return False
    if (innermost.header.startswith("while") or not has_end(innermost)) and not counters(*nest[-1]):
        return True  # it may compare numbers that never become equal
    return any(any(counters(frame, loop)) for frame, loop in nest[1:] if not has_end(loop))


def is_over_nothing(process: Process | None, frame: Frame, loop: Loop) -> bool:
    """Whether a frame is at the header of a `for` over a list, or another container, that is empty, and that no other thread of
    Python may fill: it makes no round."""
    if process is None or frame.line != loop.line or len(observed.python_threads(process)) != 1:
        return False
    return iterators.find_length_behind(frame, loop, observed.module(process)) == 0


def _ends_by_the_clock(loop: Loop) -> bool:
    """Whether a loop runs for a time: `while time.monotonic() < until`."""
    return loop.header.startswith("while") and bool(_CLOCK.search(loop.header) and _COMPARES.search(loop.header))


def _shows_progress(thread: PythonThread, moved: dict[tuple[str, str, str], Counter], *, main: bool) -> bool:
    restarted = in_endless = False
    for depth, (frame, loop) in enumerate(_list_loops_around(thread)):
        mine = [
            c
            for name in _list_advanced_names(frame, loop)
            if (c := moved.get((frame.file, frame.function, name))) is not None
        ]
        endless = not has_end(loop)
        if mine and endless and depth == 0 and main:
            return True
        if mine and not endless and not restarted and not (in_endless and any(c.after < c.before for c in mine)):
            return True
        restarted = restarted or bool(mine)
        in_endless = endless and not (depth == 0 and main)
    return False


def _list_loops_around(thread: PythonThread | None) -> list[tuple[Frame, Loop]]:
    """The loops of the user's own code that a thread is in, the outermost first."""
    frames = thread.frames if thread is not None else ()
    return [(frame, loop) for frame in reversed(frames) if not frame.library for loop in around(frame)]


def _list_advanced_names(frame: Frame, loop: Loop) -> set[str]:
    """Names that a loop itself advances, and no loop inside it."""
    inside = (other for other in frame.loops if loop.line < other.line and other.end_line <= loop.end_line)
    return {*loop.counters, *loop.advances} - {name for other in inside for name in (*other.counters, *other.advances)}


_ASKS = regex(r"(?<![\w.])next\(")
_ENDLESS_FOR = regex(r" in (itertools\.)?(count|cycle|repeat)\(")
_CLOCK = regex(r"\b(time|monotonic|perf_counter|now|utcnow|time_ns|monotonic_ns|perf_counter_ns)\(")
_COMPARES = regex(r"[<>]|!=")


def has_end(loop: Loop) -> bool:
    """Whether a loop has an end: a `for`, or a `while` that compares numbers."""
    if loop.header.startswith("while"):
        return loop.bound is not None or bool(_COMPARES.search(loop.header))
    return not _ENDLESS_FOR.search(loop.header)


def begins_differ(loop: Loop, rank: Rank, other: Rank) -> bool:
    """Whether two ranks visibly began a loop at different values."""
    values = begin_of(loop, rank), begin_of(loop, other)
    return None not in values and values[0] != values[1]


def ends_earlier(loop: Loop, rank: Rank, other: Rank) -> bool:
    """Whether a loop over numbers visibly ends at a lower one on `rank` than on `other`."""
    mine, theirs = end_of(loop, rank), end_of(loop, other)
    return mine is not None and theirs is not None and mine < theirs


def end_of(loop: Loop, rank: Rank) -> int | None:
    """The value of the variable at which a loop over numbers ends on a rank; None if unknown, and if a loop changes it."""
    frame = frame_of(loop, rank)
    if frame is None or loop.bound is None or counts_data(loop, rank) or integer(loop.bound) is not None:
        return None
    changed = {name for each in frame.loops for name in (*each.counters, *each.advances)}
    return read_number(rank.process, frame, loop.bound) if loop.bound not in changed else None


def begin_of(loop: Loop, rank: Rank) -> int | None:
    """The value of its counter at which a rank began a loop; None if unknown."""
    frame = frame_of(loop, rank)
    return read_number(rank.process, frame, loop.begin) if frame is not None and loop.begin is not None else None
