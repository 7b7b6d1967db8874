"""Conditions in the source around a rank's calls: whether one singles out ranks, which ranks took the other
branch, and which sends and receives a rank may have left out."""

import ast
from collections.abc import Container, Iterable, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from hangdoc.parse import (
    are_opposite,
    denied,
    names_in,
    negated,
    parsed_expression,
    unparsed,
)
from hangdoc.program import around, package_of
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import short
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.ranks.counters import counters_in, frame_of, read_number
from hangdoc.reasoning.ranks.truths import find_truth, read_constant
from hangdoc.regex import regex
from hangdoc.snapshot import Frame, Loop, Process, Progress

# What people call a condition on the rank: `rank == 0`, `master_process`, `fabric.is_global_zero`,
# `accelerator.is_local_main_process`, `accelerator.is_last_process`.
_ABOUT_RANK = regex(
    r"(?i)(?<!lora_)rank(?!ing|ed|er)|\bis_?(\w+_)?(main|master|leader|primary|coordinator|chief|zero)(\b|_)|process_index|worker_id"
    r"|\bis_(\w+_)?(first|last)_(process|stage|node)|\b(main|master|primary|chief|leader)(_?(process|proc|node|worker))?\b"
)
_ABOUT_ALL = regex(
    r"(?i)(?!not )(\w+\.)*(is_|use_)?(distributed|dist|ddp|parallel|multi_?(gpu|node|process))"
    r"(_(is_)?(enabled|initialized|training|run))?(\(\))?"
    r"|(\w+\.)*(is_available|is_initialized)\(\)|.*world_?size(\(\))? (> 1|>= 2|!= 1)"
)
"""What is true on each rank that waits in a collective: `args.distributed`, `dist.is_initialized()`, `world_size > 1`."""
_MANY = regex(r"^not |!=| >=? | in ")
"""What leaves one rank out rather than singling it out."""
_ASKS_FOR_NO_VALUE = regex(r" is (not )?None\b| == -1\b")
_EQUALS = regex(r"(?P<name>[A-Za-z_][\w.]*) == (?P<value>\d+)|not (?P<falsy>[A-Za-z_][\w.]*)")
_COMPARED = 64
"""Of ranks in one place, so many may each have a role of its own."""
_WORDS = frozenset({"and", "or", "not", "is", "in", "None", "True", "False", "len"})
_STRING = regex(r"'[^']*'|\"[^\"]*\"")
_SHORT_FOR_RANK = regex(r"(?i)(\w+\.)?(r|rk|me|my_?id|gpu(_?id)?|device_?id|node(_?id)?|proc(ess)?_?id)")


def list_conditions(rank: Rank) -> list[str]:
    """Conditions over all frames of the user's code, outermost first. Of packages, only those that let some ranks in: what else
    they test is their own business, but a decorator may keep the others out of the user's function (`one_rank_only`)."""
    return [test for test, _ in _list_tests(rank)]


def _list_tests(rank: Rank) -> list[tuple[str, Frame]]:
    """The same, each with the frame that tests it."""
    return [
        (test, frame)
        for frame in reversed(rank.program)
        for test in frame.conditions
        if not frame.library or names_some_ranks(test)
    ]


def find_tested_in_loop(rank: Rank) -> str | None:
    """The innermost condition around a rank's call that each iteration of a loop tests again and that may have been false in an
    earlier one on some ranks only: it is not about the rank, nor true on all by what it asks, and no counter decides it. None for
    none."""
    counters = counters_in(rank.own)
    tests = (test for frame in rank.program if not frame.library for test in frame.conditions[::-1][: frame.repeated])
    return next(
        (
            test
            for test in tests
            if may_change(test)
            and not test.startswith("except")
            and not _ABOUT_ALL.fullmatch(test)
            and counters.isdisjoint(names_in(_STRING.sub("", test)))
        ),
        None,
    )


def in_other_arm(rank: Rank, other: Rank, *, on_rank: bool = True) -> bool:
    """Whether two ranks are in the two branches of one `if`; without `on_rank`, of one that is not about the rank."""
    tests = (test for test in list_conditions(rank) if on_rank or may_change(test))
    return any(are_opposite(test, theirs) for test in tests for theirs in list_conditions(other))


def choose_counterpart(rank: Rank, others: Iterable[Rank]) -> Rank | None:
    """The first of some ranks that is known to be in the same branches as `rank`, with whose conditions its own can be compared:
    those of another role explain nothing. Without such a one, the first of all; None for no ranks."""
    first = None
    for other in islice(others, _COMPARED):
        if not other.lacks_source and not in_other_arm(rank, other):
            return other
        first = first or other
    return first


def singled_out(rank: Rank, other: Rank) -> bool:
    """Whether `rank` is in a branch whose condition singles out ranks, and `other` is not."""
    theirs = list_conditions(other)
    tests = ((test, frame) for test, frame in _list_tests(rank) if test not in theirs)
    return any(_singles_out(test, frame, rank, other) for test, frame in tests)


def _singles_out(test: str, frame: Frame, rank: Rank, other: Rank) -> bool:
    """Whether a condition is about the rank, and may not hold on `other`."""
    later = _list_later(test, rank)
    return any(
        (_is_about_rank(part) or _compares_rank(part, frame, rank, other))
        and not _holds_on_both(part, rank, other, later)
        for part in _split_into_operands(test)
    )


def find_own_condition(rank: Rank, others: Sequence[Rank]) -> str | None:
    """The condition around a rank's call that is around no call of the others, and that may hold on the rank alone; of several,
    as in `_choose_cause`. None for none. The handler of an exception is no condition."""
    own = (test for test in reversed(list_conditions(rank)) if not test.startswith("except"))
    apart = [test for test in own if all(tells_apart(test, rank, other) for other in others)]
    return _choose_cause(apart, rank, others)


def _choose_cause(tests: Sequence[str], rank: Rank, others: Sequence[Rank]) -> str | None:
    """Of conditions that each may tell a rank from others, the innermost first, the likeliest: the handler of an exception; or
    the innermost whose values differ; or the innermost about the rank by its name; or the innermost. None for none."""
    if tests and tests[0].startswith("except"):
        return tests[0]
    differing = (test for test in tests if all(_has_other_values(test, rank, other) for other in others))
    about_rank = (test for test in tests if any(map(_is_about_rank, _split_into_operands(test))))
    return next(differing, None) or next(about_rank, None) or next(iter(tests), None)


def _has_other_values(test: str, rank: Rank, other: Rank) -> bool:
    """Whether a variable of a condition was read on both ranks, and differs. Counters of loops differ by how far a rank is."""
    counters, values = counters_in(rank.own), _values_of(test, rank, other, _list_later(test, rank))
    return any(None not in pair and pair[0] != pair[1] for name, pair in values.items() if name not in counters)


def _is_about_rank(part: str) -> bool:
    """Whether a condition singles out ranks, by what people call it."""
    return bool(_ABOUT_RANK.search(part)) and not _MANY.search(part)


def names_some_ranks(test: str) -> bool:
    """Whether a condition singles out ranks by what people call it, also where no value can be read: `get_rank() == rank`."""
    return any(_is_about_rank(part) and not _ASKS_FOR_NO_VALUE.search(part) for part in _split_into_operands(test))


def tells_apart(test: str, rank: Rank, other: Rank) -> bool:
    """Whether a condition around the call of `rank` is not around that of `other`, and may not hold there."""
    later = _list_later(test, rank)
    return test not in list_conditions(other) and not all(
        _holds_on_both(part, rank, other, later) for part in _split_into_operands(test)
    )


def _holds_on_both(part: str, rank: Rank, other: Rank, later: Container[str]) -> bool:
    """Whether a condition that is true on `rank` is true on `other` too: by its values there, because its variables have the same
    values, or because it only asks whether the run is distributed. `later` as in `_values_of`."""
    if part.isidentifier() and _read_value(other, part):
        return True
    if _holds_on(part, other):
        return True
    values = _values_of(part, rank, other, later).values()
    if any(None not in pair and pair[0] != pair[1] for pair in values):
        return False
    return not any(None in pair for pair in values) or _ABOUT_ALL.fullmatch(part) is not None


def _holds_on(test: str, rank: Rank, without: Container[str] = ()) -> bool:
    """Whether a condition holds on a rank by the values of its variables there, whatever those in `without` are."""
    variables = [each for each in observed.variables(rank.process, rank.own) if each.name not in without]
    return find_truth(test, variables) is True


def _values_of(test: str, rank: Rank, other: Rank, later: Container[str]) -> dict[str, tuple[str | None, str | None]]:
    """What each name of a condition is on the two ranks; None where it could not be read, and on `rank`, which has tested it, for
    the names in `later`, which it has assigned since."""
    names = (name for name in names_in(_STRING.sub("", test)) if name not in _WORDS)
    return {
        name: (None if name in later else read_text(rank, name), read_text(other, name))
        for name in dict.fromkeys(names)
    }


def _list_later(test: str, rank: Rank) -> frozenset[str]:
    """The names of a condition around the call of a rank that it may have assigned since the test (`Frame.reassigned`)."""
    return frozenset(
        name
        for frame in rank.program
        for each, names in zip(frame.conditions, frame.reassigned, strict=False)
        if each == test
        for name in names_in(names)
    )


def may_change(test: str) -> bool:
    """Whether a condition may be true at one time and false at another: it is not about the rank."""
    names = names_in(_STRING.sub("", test))
    return not _ABOUT_RANK.search(test) and not any(map(_SHORT_FOR_RANK.fullmatch, names))


def find_occasional(rank: Rank, other: Rank) -> tuple[str, Frame] | None:
    """The condition of a framework under which `rank` makes its call, and `other` is not, with the frame that tests it:
    it saves, evaluates or stops now and then (`self.control.should_save`). The framework is right, so what asked for it
    differs between the ranks. Only in functions that `other` calls as well: what is tested further inside decided nothing. None
    for none, and if a condition of the user's own code inside it tells the ranks apart."""
    theirs = [test for frame in other.program for test in frame.conditions]
    own_tests = ((at, test) for at, frame in enumerate(rank.program) for test in frame.conditions if test not in theirs)
    innermost = _find_innermost_shared(rank, other)
    for at, test in own_tests:
        frame = rank.program[at]
        if at >= innermost and frame.library and test.startswith("self.") and " " not in test:
            return test, frame
        if not frame.library and (_singles_out(test, frame, rank, other) or _has_other_values(test, rank, other)):
            return None
    return None


def _find_innermost_shared(rank: Rank, other: Rank) -> int:
    """The position, in the frames of `rank`, of the innermost function that `other` calls as well: it is called where the stacks
    part. Each function inside it may be called under a condition."""
    shared = 0
    for mine, theirs in zip(reversed(rank.program), reversed(other.program), strict=False):
        if (mine.file, mine.function) != (theirs.file, theirs.function):
            break
        shared += 1
        if mine.line != theirs.line:
            break
    return max(len(rank.program) - shared - 1, 0)


def _may_keep_out(test: str, rank: Rank, other: Rank) -> bool:
    """Whether a condition may not have held on a rank that it has let pass before: a part of it is not about the rank, and has a
    variable that counts no rounds and that is not known to be the same on both ranks. Where the other rank is in a later round,
    its counters are no longer those of the test."""
    counters, later = counters_in(rank.own), _list_later(test, rank)
    if _holds_on(test, other, without=counters):
        return False
    counts = not counters.isdisjoint(names_in(test)) and test not in list_conditions(other)
    if not counts and not tells_apart(test, rank, other):
        return False
    return test.startswith("except") or any(
        may_change(part)
        and any(
            name not in counters and (None in pair or pair[0] != pair[1])
            for name, pair in _values_of(part, rank, other, later).items()
        )
        for part in _split_into_parts(parsed_expression(test), test)
    )


def _split_into_parts(node: ast.expr | None, test: str) -> list[str]:
    """The comparisons and names of which a condition consists, whatever joins them."""
    match node:
        case ast.BoolOp(values=operands):
            return [part for operand in operands for part in _split_into_parts(operand, unparsed(operand) or test)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _split_into_parts(operand, unparsed(operand) or test)
        case _:
            return [test]


def _split_into_operands(test: str) -> list[str]:
    """The operands of an `and`, all of which are true, or of a negated `or`, all of which are false."""
    node = parsed_expression(test)  # None for `except OSError`, which is a condition too
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return [unparsed(operand) or test for operand in node.values]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and isinstance(node.operand, ast.BoolOp):
        return (
            [negated(unparsed(operand) or test) for operand in node.operand.values]
            if isinstance(node.operand.op, ast.Or)
            else [test]
        )
    return [test]


def _compares_rank(part: str, frame: Frame, rank: Rank, other: Rank) -> bool:
    """Whether a condition compares a variable that holds the rank, whatever it is called: on both ranks it has the value
    that the rank's number is. A loop's counter may have it by chance."""
    comparison = _EQUALS.fullmatch(part)
    if comparison is None:
        return False
    name, wanted = comparison["name"] or comparison["falsy"], int(comparison["value"] or 0)
    mine = read_number(rank.process, frame, name)
    if name in counters_in([frame]) or mine != wanted or mine not in (rank.rank, rank.local_rank):
        return False
    theirs = _read_value(other, name)
    if theirs is None:
        return _SHORT_FOR_RANK.fullmatch(name) is not None
    return theirs != mine and theirs in (other.rank, other.local_rank)


def on_data(loop: Loop, inside: Rank, outside: Rank) -> bool:
    """Whether the data decides in which iterations of a loop a rank makes the call that it waits in: a condition inside the
    loop has a variable that differs between the ranks, or that could not be read."""
    frame = frame_of(loop, inside)
    if frame is None or not frame.repeated:
        return False
    tests = " ".join(_STRING.sub("", test) for test in frame.conditions[-frame.repeated :])
    names = set(names_in(tests)) - {*loop.counters, *_WORDS}
    return any((here := _read_value(inside, name)) is None or here != _read_value(outside, name) for name in names)


def find_membership(ranks: Sequence[Rank]) -> str | None:
    """The innermost condition around the calls of all these ranks that tests whether a rank is in something (`rank in members`);
    None for none."""
    shared = set(list_conditions(ranks[0])).intersection(*map(list_conditions, ranks[1:]))
    tests = (test for test in reversed(list_conditions(ranks[0])) if test in shared)
    return next((test for test in tests if any(map(_tests_membership, _split_into_operands(test)))), None)


def _tests_membership(part: str) -> bool:
    node = parsed_expression(part)
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In) and not may_change(ast.unparse(node.left))


class Condition(NamedTuple):
    """A condition around the call of one rank that is not around that of another, and may not hold there."""

    test: str
    decides: Literal["rank", "exception", "values", "decision", "counter"]
    """What makes it hold on one of them only: which rank it is; an exception; variables with other values; a decision on values
    that could not be read; or only how far the loop is."""
    differing: tuple[str, ...]
    """The variables whose values differ."""
    decided_by_these: bool
    """Whether the parts of the condition with these variables ask for nothing else that may differ: then the ranks agree if these
    variables do. False where something else could not be read (`loss.item() < best`)."""
    text: str
    """A clause about the call."""
    branch: str
    """The condition as its `if` in the source has it where that is known, with the statement that leaves out the call."""
    runs: bool
    """Whether the call runs if that is true, rather than if it is false."""
    unread: tuple[tuple[str, str], ...]
    """The variables whose value could only be read on the rank that makes the call, with that value."""


def find_condition(rank: Rank, other: Rank, *, passed: bool = False) -> Condition | None:
    """The condition around the call of `rank` that is not around that of `other` and may not hold there, with the values of its
    variables on both ranks where they differ; None for none. Of several, as in `_choose_cause`. `passed`: whether `other` has
    made the same call before, so that being another rank does not keep it from that."""
    tells = _may_keep_out if passed else tells_apart
    apart = [test for test in reversed(list_conditions(rank)) if tells(test, rank, other)]
    test = _choose_cause(apart, rank, [other])
    if test is None:
        return None
    later = _list_later(test, rank)
    counters, values = counters_in(rank.own), _values_of(test, rank, other, later)
    differ = {
        name: f"`{name}` is {here} on rank {rank.rank}, {there} on rank {other.rank}"
        for name, (here, there) in values.items()
        if name not in counters
        and None not in (here, there)
        and here != there
        and not (passed and not may_change(name))
    }
    parts = [part for part in _split_into_operands(test) if differ.keys() & set(names_in(_STRING.sub("", part)))]
    read = (pair for part in parts for pair in _values_of(part, rank, other, later).values())
    handles, changes = test.startswith("except"), passed or may_change(test)
    assigned = [f"`{name}` was assigned after the test" for name in values if name in later - counters]
    addition = ""
    if differ or assigned:
        addition = f": {'; '.join([*differ.values(), *assigned])}"
    elif changes and not handles and any(None in pair for pair in values.values()):
        addition = f", whose value on rank {other.rank} could not be read"
    counts = bool(values) and counters >= values.keys()
    branch = _find_branch(test, rank)
    named = f"`{branch.test}`{branch.where}"
    return Condition(
        test,
        "exception"
        if handles
        else "rank"
        if not changes
        else "values"
        if differ
        else "counter"
        if counts
        else "decision",
        tuple(differ),
        all(None not in pair for pair in read),
        f"its call {'runs only' if branch.runs else 'does not run'} under the condition {named}{addition}",
        named,
        branch.runs,
        tuple((name, here) for name, (here, there) in values.items() if here is not None and there is None),
    )


class _Branch(NamedTuple):
    """A condition around a call, as the source has it where that is known."""

    test: str
    runs: bool
    """Whether the call runs if it is true, rather than if it is false."""
    where: str
    """The function of a package that tests it, or the statement that leaves out the call; empty for none."""


def _find_branch(test: str, rank: Rank) -> _Branch:
    frame = next(frame for each, frame in reversed(_list_tests(rank)) if each == test)
    if frame.library:
        function, package = frame.function.partition(".<locals>")[0], package_of(frame.file)
        return _Branch(test, runs=True, where=f" of {function}{f' in {package}' if package else ''}")
    tested = denied(test)
    around_line = (loop for loop in frame.loops if loop.line <= frame.line <= loop.end_line)
    inner = [loop for loop in frame.loops if loop.end_line < frame.line]
    statements = (each for loop in around_line for each in (*loop.exits, *loop.skips))
    exits = (each for each in statements if each.conditions and each.line < frame.line)
    exits = (each for each in exits if not any(loop.line < each.line <= loop.end_line for loop in inner))
    # It leaves the block of the call, and not one inside an `if` that need not be true.
    left = (each for each in exits if {*each.conditions[:-1]} <= {*frame.conditions})
    exit_ = next((each for each in left if are_opposite(each.conditions[-1], test)), None)
    if exit_ is not None:
        at = f" (`{exit_.statement}` at {short(frame.file)}:{exit_.line})"
        return _Branch(tested or exit_.conditions[-1], runs=False, where=at)
    return _Branch(tested or test, runs=tested is None, where="")


def describe_place(test: str, rank: Rank) -> str:
    """Where a call of a rank runs only under a condition, as the source has that."""
    branch = _find_branch(test, rank)
    return f"inside `if {branch.test}`" if branch.runs else f"only if `{branch.test}` is false"


def _read_value(rank: Rank, name: str) -> int | None:
    """A variable's value in the innermost frame of the user's code that has it."""
    values = (read_number(rank.process, frame, name) for frame in rank.own)
    return next((value for value in values if value is not None), None)


def read_text(rank: Rank, name: str) -> str | None:
    """The value of a variable in the innermost frame of the user's code that has it: a number, a string, True, False or None.
    The texts of other values show only what they are (`float32[8]`)."""
    return read_constant(list(observed.variables(rank.process, rank.own)), name)


def compare_numbers(rank: Rank, other: Rank, loop: Loop) -> dict[str, tuple[int, int]]:
    """The integers of the function with a loop that its source names from the loop on, that no loop advances, and that differ
    between two ranks: (on `rank`, on `other`) by name. Those that are the ranks' own numbers are not settings."""
    frame = frame_of(loop, other) or frame_of(loop, rank)
    if frame is None:
        return {}
    used = set(names_in((frame.context or "")[max((frame.context or "").find(loop.header), 0) :]))
    mine, theirs = (_list_numbers(each.process, frame) for each in (rank, other))
    return {
        name: (mine[name], theirs[name])
        for name in mine.keys() & theirs.keys() & used
        if mine[name] != theirs[name] and (mine[name], theirs[name]) != (rank.rank, other.rank)
    }


def compare_rounds(rank: Rank, other: Rank) -> dict[str, tuple[int, int]]:
    """The integers that loops around the calls of both ranks name in their headers, in functions of one class or module, and that
    differ: (on `rank`, on `other`) by name. Those that are the ranks' own numbers are not settings."""
    mine, theirs = (_list_header_numbers(each) for each in (rank, other))
    return {
        name: (mine[name, home], theirs[name, home])
        for name, home in mine
        if (name, home) in theirs
        and mine[name, home] != theirs[name, home]
        and (mine[name, home], theirs[name, home]) != (rank.rank, other.rank)
    }


def _list_header_numbers(rank: Rank) -> dict[tuple[str, str], int]:
    """The integers that the headers of the loops around a rank's call name and that no loop changes, by name and by the file and
    class of the function."""
    changed = counters_in(rank.own).union(*(loop.advances for frame in rank.own for loop in frame.loops))
    numbers = {
        (name, f"{frame.file}:{frame.function.rpartition('.')[0]}"): read_number(rank.process, frame, name)
        for frame in rank.own
        for loop in around(frame)
        for name in names_in(_STRING.sub("", loop.header))
        if name not in changed and not name.isdecimal()
    }
    return {key: number for key, number in numbers.items() if number is not None}


def _list_numbers(process: Process | None, frame: Frame) -> dict[str, int]:
    """The integers of a function that did not change in the window and count nothing, by name."""
    if process is None or not isinstance(process.progress, Progress):
        return {}
    return {
        each.name: each.after
        for each in process.progress.counters
        if (each.file, each.function) == (frame.file, frame.function)
        and each.before == each.after
        and not (each.looped or each.advances)
    }
