"""Why ranks leave a loop before the others, or get no batch: their data, where they began, or a statement that ends it."""

from collections.abc import Sequence
from typing import NamedTuple

from hangdoc.diagnosis import Evidence
from hangdoc.parse import integer, names_in, rounded, shows_address
from hangdoc.program import END_OF_DATA, data_exits, early_exits
from hangdoc.reasoning.causes.disagreements import differing_in, find_other_data, find_parting_variables
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import name_line
from hangdoc.reasoning.model.agreement import Agreement
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause, OptionDiffers, VariableDiffers
from hangdoc.reasoning.model.holds import Starves
from hangdoc.reasoning.model.kinds import LeftLoop
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks import amounts, iterators
from hangdoc.reasoning.ranks.counters import (
    begin_of,
    count_batches,
    counts_begun,
    end_of,
    frame_of,
    is_over_data,
    positions,
)
from hangdoc.reasoning.ranks.place import ends_only_by_itself
from hangdoc.reasoning.ranks.truths import is_ruled_out
from hangdoc.snapshot import Exit, Frame, Loop, TrainerCount

_SHOWN = 3
_REMAINDER, _REMAINDER_SHARE = 2, 0.2
"""Of batches: so many more may be a remainder of the same data."""


class RanOut(Cause, frozen=True, kw_only=True):
    """Some ranks left the loop because they visibly have less data than those inside it."""

    NAME = "fewer-data"
    left: LeftLoop


class DataEnded(Cause, frozen=True, kw_only=True):
    """Some ranks left a loop that ends only with its data. How much data the others have is not visible."""

    NAME = "data-ended"
    left: LeftLoop
    exit: Exit | None = None
    """The statement that ended it before its last round, at the end of the data that it reads with `next()`."""


class OtherData(Cause, frozen=True, kw_only=True):
    """Some ranks left a loop over data, and were given other data than those inside it. How much it is, is not visible."""

    NAME = "other-data"
    left: LeftLoop
    options: tuple[OptionDiffers, ...]


class UnevenSplit(Cause, frozen=True, kw_only=True):
    """The same data, but fewer batches on some ranks."""

    NAME = "uneven-split"
    left: LeftLoop


class CountedOut(Cause, frozen=True, kw_only=True):
    """Some ranks have done all batches that their framework counts, and the others have more of them."""

    NAME = "counted-out"
    inside: tuple[int, ...]
    """The others."""
    done: int
    more: int
    at_least: bool = False
    """Whether the others may have more than `more`: their streams have not ended."""
    evidence: tuple[Evidence, ...]


class CountedUneven(CountedOut, frozen=True, kw_only=True):
    """The same, with a difference that may be a remainder of the same data."""

    NAME = "counted-uneven"


class NoData(Cause, frozen=True, kw_only=True):
    """A loader that is starved: it has no data at all, or visibly less than that of another rank."""

    NAME = "no-data"
    fewest: int
    evidence: tuple[Evidence, ...]


class Began(Cause, frozen=True, kw_only=True):
    """The ranks began a loop at different values of its counter, so some leave it before others: they were restarted from
    different checkpoints."""

    NAME = "loop-begin"
    left: LeftLoop
    values: Agreement[int, int]


class Ends(Cause, frozen=True, kw_only=True):
    """A loop over numbers ends at different ones, so some ranks leave it before others. Nothing shows that the number counts
    data."""

    NAME = "loop-end"
    left: LeftLoop
    values: Agreement[int, int]
    settings: tuple[OptionDiffers | VariableDiffers, ...]
    """The options and variables that differ between the same ranks, from one of which the number may come."""


# --- data ----------------------------------------------------------------------------------------------------------------


def find_less_data(run: Run, blockage: Blockage) -> RanOut | None:
    """Ranks that left a loop and visibly have other data than those inside it."""
    kind = blockage.kind
    if not isinstance(kind, LeftLoop) or not kind.differences or _is_uneven_split(run, kind):
        return None
    return RanOut(left=kind)


def find_end_of_data(run: Run, blockage: Blockage) -> UnevenSplit | DataEnded | OtherData | None:
    """Ranks that left a loop and may have come to the end of their data."""
    kind = blockage.kind
    if not isinstance(kind, LeftLoop):
        return None
    if not kind.differences:
        exit_ = amounts.find_data_exit(kind.short.first)
        alone = exit_ is not None or ends_only_by_itself(kind.loop, kind.short.first, kind.inside.first)
        return DataEnded(left=kind, exit=exit_) if alone else _find_other_data(run, kind)
    return (
        UnevenSplit(left=kind) if _is_uneven_split(run, kind) and not amounts.left_by_break(kind.short.first) else None
    )


def _find_other_data(run: Run, kind: LeftLoop) -> OtherData | None:
    """The data that the ranks were given, unless it is the same, or something else may have ended the loop."""
    short, inside = kind.short.first, kind.inside.first
    options = tuple(option for option in find_other_data(run, short, inside) if option.certain)
    if not options or not is_over_data(kind.loop) or kind.begins_differ or amounts.same_data(short, inside):
        return None
    decided = any(_differences(exit_, short, inside, kind.loop.counters) for exit_ in early_exits(kind.loop))
    if amounts.left_by_break(short) or decided:
        return None
    return OtherData(left=kind, options=options)


def find_no_data(run: Run, blockage: Blockage) -> NoData | None:
    """How little data a rank has that gets no batch, beside one that waits for it."""
    if not isinstance(blockage.kind, Starves) or not blockage.waiting:
        return None
    differences = amounts.compare_amounts(blockage.awaited[0].first, blockage.waiting[0].first)
    if not differences:
        return None
    fewest = min(difference.fewer for difference in differences)
    evidence = tuple(line for difference in differences[:_SHOWN] for line in difference.evidence)
    return NoData(fewest=fewest, evidence=evidence, ends="never" if fewest == 0 else None)


def _is_uneven_split(run: Run, kind: LeftLoop) -> bool:
    """Whether the same data was split unevenly: the difference is a remainder, and the files are the same."""
    short, more, strongest = kind.short.first, kind.inside.first, kind.differences[0]
    if amounts.other_files(short, more) or strongest.unit == "files":
        return False
    if amounts.same_data(short, more):
        return True
    if any(option.certain for option in find_other_data(run, short, more)):
        return False
    remainder = strongest.more - strongest.fewer
    if strongest.unit == "batches":  # batches alone do not show different files: a few more are an uneven split
        return remainder <= max(_REMAINDER, strongest.more * _REMAINDER_SHARE)
    return remainder <= 1 or remainder < strongest.more * 0.1


def find_counted_data(run: Run, blockage: Blockage) -> CountedOut | None:
    """Ranks whose framework has counted all of their batches, in calls that the others, with more of them, have not come to."""
    kind, classes = blockage.kind, (*blockage.awaited, *blockage.waiting)
    calls = {alike.first.wait.point for alike in classes if alike.first.wait is not None}
    # A rank that is in no call, or in the same one, is not past its data: the framework counts a batch when it begins.
    if isinstance(kind, LeftLoop) or len(calls) < 2 or not all(alike.first.waits for alike in classes):
        return None
    counts = {alike.ranks: _totals_of(alike.first) for alike in classes}
    for name in sorted({name for each in counts.values() for name in each}):
        known = {ranks: each[name] for ranks, each in counts.items() if name in each}
        ended = [ranks for ranks, count in known.items() if count.done == count.total]
        inside = [ranks for ranks, count in known.items() if count.done < _least_of(count)]
        same_pass = len({count.pass_number for count in known.values()}) == 1
        if len(known) < len(classes) or not ended or not inside or not same_pass:
            continue
        done, more = max(known[ranks].done for ranks in ended), min(_least_of(known[ranks]) for ranks in inside)
        if done >= more:
            continue
        out, within = (tuple(sorted(rank for ranks in side for rank in ranks)) for side in (ended, inside))
        lines = [_describe_count(name, known[side[0]]) for side in (ended, inside)]
        evidence = (Evidence(out[0], "loops", lines[0]), Evidence(within[0], "loops", lines[1]))
        at_least = any(known[ranks].total is None for ranks in inside)
        remainder = not at_least and more - done <= max(_REMAINDER, more * _REMAINDER_SHARE)
        about = CountedUneven if remainder else CountedOut
        return about(culprits=out, inside=within, done=done, more=more, at_least=at_least, evidence=evidence)
    return None


def _totals_of(rank: Rank) -> dict[str, TrainerCount]:
    """The counts of its framework that have an end, or show that more is to come, by name."""
    counts = iterators.list_framework_counts(rank.process)
    return {count.name: count for count in counts if _least_of(count)}


def _least_of(count: TrainerCount) -> int:
    """How many batches there are, or if that is not known, are at least."""
    return count.total or count.fetched or 0


def _describe_count(name: str, count: TrainerCount) -> str:
    if count.total is not None:
        return f"{name} is {count.done} of {count.total}"
    return f"{name} is {count.done}, and its iterator has not ended after {count.fetched} batches"


# --- where they began, and where it ends ---------------------------------------------------------------------------------


def find_beginnings(run: Run, blockage: Blockage) -> Began | None:
    """The values at which the ranks began the loop that some of them have left."""
    left = blockage.kind
    if not isinstance(left, LeftLoop) or not left.begins_differ:
        return None
    begins = {rank.rank: begin for rank in run.ranks.values() if (begin := begin_of(left.loop, rank)) is not None}
    values = differing_in(run, begins)
    return Began(left=left, values=values, culprits=values.odd) if values is not None else None


def find_ends(run: Run, blockage: Blockage) -> Ends | None:
    """The numbers at which a loop ends that some ranks have done all of."""
    left = blockage.kind
    if not isinstance(left, LeftLoop) or left.differences or not left.ends_differ:
        return None
    ends = {rank.rank: end for rank in run.ranks.values() if (end := end_of(left.loop, rank)) is not None}
    values = differing_in(run, ends)
    if values is None or amounts.left_before_end(left.short.first):
        return None
    options = (each for each in run.differing if isinstance(each, OptionDiffers) and each.values.parts_like(values))
    variables = find_parting_variables(run, values)
    return Ends(left=left, values=values, settings=(*options, *variables), culprits=values.odd)


# --- how a loop may end --------------------------------------------------------------------------------------------------


class PossibleExit(NamedTuple):
    """A statement by which a rank may have left a loop."""

    exit: Exit
    shown: bool
    """Whether it must have been this one: its variables differ between the ranks, or nothing else may have ended the loop."""
    text: str


def possible_exits(kind: LeftLoop) -> list[PossibleExit]:
    """The statements that may leave the loop, those whose variables differ between the ranks first. The rank that left it may
    stand in a handler that was around the loop: then it is that one."""
    short, inside = kind.short.first, kind.inside.first
    if (caught := _find_handler(kind.loop, short, inside)) is not None:
        handler, within = caught
        text = f"it is in `{handler}` ({name_line(within.line, within, short.frame)}), around the loop"
        return [PossibleExit(Exit(line=within.line, statement="except", conditions=(handler,)), True, text)]
    exits = _list_possible_exits(kind.loop, short)
    found = [(_differences(exit_, short, inside), exit_) for exit_ in exits]
    found.sort(key=lambda line: not line[0])
    only = len(found) == 1 and not may_have_run_out(kind)
    frame = frame_of(kind.loop, inside)
    return [
        PossibleExit(
            exit_,
            bool(differ) or only,
            "; ".join([describe_exit(exit_, name_line(exit_.line, frame, inside.frame)), *differ]),
        )
        for differ, exit_ in found[:_SHOWN]
    ]


def _list_possible_exits(loop: Loop, rank: Rank) -> list[Exit]:
    frame = frame_of(loop, rank)
    return [each for each in early_exits(loop) if frame is None or not is_ruled_out(each, loop, frame)]


def counts_left_round(kind: LeftLoop) -> bool:
    """Whether the counter of the ranks outside includes the round in which a statement ended the loop: it counts rounds that were
    begun, and how many there are is not known."""
    view = kind.short.first.loop
    shown = [each.exit for each in possible_exits(kind) if each.shown and each.exit.conditions != (END_OF_DATA,)]
    return view is not None and view.total is None and bool(shown) and counts_begun(kind.loop, shown)


def ended_before_call(kind: LeftLoop) -> bool:
    """Whether the statement that ended the loop comes before the call of a round in which the others wait: then that round was
    not done. One at the end of a round ends a whole one."""
    frame = frame_of(kind.loop, kind.inside.first)
    shown = [each.exit.line for each in possible_exits(kind) if each.shown]
    return frame is not None and bool(shown) and max(shown) < frame.line


def describe_inner_exits(kind: LeftLoop) -> list[str]:
    """How the ranks outside left a loop inside that one before its end, in which the others still are."""
    short, inside = kind.short.first, kind.inside.first
    within = [view.loop for view, _ in positions(inside) if view.inside]
    texts = []
    for view, _ in positions(short):
        loop, exits = view.loop, _list_possible_exits(view.loop, short)
        nested = kind.loop.line < loop.line <= kind.loop.end_line and loop in within
        if view.inside or not nested or not exits or view.done is None or view.done >= (view.total or 0):
            continue
        frame = frame_of(loop, short)
        ways = "; ".join(describe_exit(each, name_line(each.line, frame, short.frame)) for each in exits[:_SHOWN])
        at, unit = name_line(loop.line, frame, short.frame), "batch" if is_over_data(loop) else "iteration"
        texts.append(f"left `{loop.header}` ({at}) inside that loop in {unit} {view.done + 1} of {view.total}: {ways}")
    return texts[:_SHOWN]


def _find_handler(loop: Loop, rank: Rank, other: Rank) -> tuple[str, Frame] | None:
    """The handler of an exception in which `rank` is, if it is around the loop, and `other` is still in the body of its `try`;
    None for none. In the function of the loop, it is one of the exits of that."""
    begins = {test: each.line for each in loop.exits if each.statement == "except" for test in each.conditions}
    for frame in rank.program:
        guarded = {
            handler
            for theirs in other.program
            if (theirs.file, theirs.function) == (frame.file, frame.function)
            for handler in theirs.caught or ()
            if handler != END_OF_DATA
            and (begins.get(handler, frame.line) if loop in theirs.loops else theirs.line) < frame.line
        }
        test = next((test for test in reversed(frame.conditions) if test in guarded), None)
        if test is not None:
            return test, frame
    return None


def may_have_run_out(kind: LeftLoop) -> bool:
    """Whether the loop may have ended with its data on the ranks that left it: nothing shows how much a stream has. A loop that
    ends at a number of the source has as many rounds on all ranks. While a framework has steps left, a loop over its passes has
    not ended with them."""
    view = kind.short.first.loop
    if kind.met is not None and not is_over_data(kind.loop):  # the call that begins a round hands out how long it is
        return False
    if data_exits(kind.loop):
        return True
    if not kind.loop.header.startswith("for ") or (kind.loop.begin is None and integer(kind.loop.bound) is not None):
        return False
    short, inside = kind.short.first, kind.inside.first
    if inside.loop is not None and inside.loop.loop == kind.loop and amounts.has_as_many_batches(short, inside):
        return False
    passes = not is_over_data(kind.loop) and bool(early_exits(kind.loop))
    if passes and _has_steps_left(kind.short.first, kind.inside.first):
        return False
    return view is None or None in (view.done, view.total) or (view.done or 0) >= (view.total or 0)


def _has_steps_left(rank: Rank, other: Rank) -> bool:
    """Whether its framework counts fewer steps of all passes on a rank than both ranks have. A stream may end before them: its
    iterator has no length."""
    counted = iterators.find_framework_count(other.process)
    if counted is not None:  # its total may be that of the steps
        behind = iterators.find_iterator_behind(other.process, counted)
        batches = behind.total if behind is not None else None
    else:
        batches = count_batches(other).total
    if batches is None:
        return False
    mine, theirs = _totals_of(rank), _totals_of(other)
    return any(
        not count.batches and name in theirs and count.done < (count.total or 0) == theirs[name].total
        for name, count in mine.items()
    )


def describe_exit(exit_: Exit, at: str = "") -> str:
    """What may end a loop, as a clause; `at` is its line."""
    at = at or f"line {exit_.line}"
    if exit_.statement == "except":
        return f"`{exit_.conditions[0]}` at {at} catches what the loop raises"
    under = " and ".join(f"`{test}`" for test in exit_.conditions)
    word = "in" if under.startswith("`except") else "if"
    return f"the loop has a `{exit_.statement}` at {at}" + (f", {word} {under}" if under else "")


def _differences(exit_: Exit, short: Rank, inside: Rank, counters: Sequence[str] = ()) -> list[str]:
    """The values of the variables of its conditions that differ between two ranks; without `counters`."""
    texts = []
    for name in dict.fromkeys(name for test in exit_.conditions for name in names_in(test)):
        if name in counters:
            continue
        mine, theirs = _value(short, name), _value(inside, name)
        if mine is not None and theirs is not None and mine != theirs and not shows_address(mine + theirs):
            texts.append(f"`{name}` is {mine} on rank {short.rank}, {theirs} on rank {inside.rank}")
    return texts


def _value(rank: Rank, name: str) -> str | None:
    """A variable's text in the innermost frame of the program that has it, or in the user's module."""
    variables = observed.variables(rank.process, rank.program)
    return next((rounded(local.text[:40]) for local in variables if local.name == name), None)
