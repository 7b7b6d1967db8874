"""Conditions in the source around a rank's calls: whether one singles out ranks, and which ranks took the other branch."""

import ast

from hangdoc.parse import negated
from hangdoc.reasoning.model import Rank
from hangdoc.reasoning.ranks.counters import counters_in, number
from hangdoc.regex import regex
from hangdoc.snapshot import Frame

# What people call a condition on the rank: `rank == 0`, `master_process`, `fabric.is_global_zero`,
# `accelerator.is_local_main_process`, `accelerator.is_last_process`.
_ABOUT_RANK = regex(
    r"(?i)(?<!lora_)rank|\bis_?(\w+_)?(main|master|leader|primary|coordinator|chief|zero)(\b|_)|process_index|worker_id"
    r"|\bis_(\w+_)?(first|last)_(process|stage|node)|\b(main|master|primary|chief|leader)(_?(process|proc|node|worker))?\b"
)
_MANY = regex(r"^not |!=| >=? | in ")
"""What leaves one rank out rather than singling it out."""
_EQUALS = regex(r"(?P<name>[A-Za-z_][\w.]*) == (?P<value>\d+)|not (?P<falsy>[A-Za-z_][\w.]*)")
_NAME = regex(r"[A-Za-z_][\w.]*")
_SHORT_FOR_RANK = regex(r"(?i)(\w+\.)?(r|rk|me|my_?id|gpu|device_?id|node(_?id)?|proc(ess)?_?id)")


def of(rank: Rank) -> list[str]:
    """Conditions over all frames of the user's code, outermost first."""
    return [test for frame in reversed(rank.own) for test in frame.conditions]


def in_other_arm(one: Rank, other: Rank) -> bool:
    """Whether two ranks are in the two branches of one `if`."""
    theirs = of(other)
    return any(negated(test) in theirs for test in of(one))


def singled_out(one: Rank, other: Rank) -> bool:
    """Whether `one` is in a branch whose condition singles out ranks, and `other` is not."""
    theirs = of(other)
    return any(
        (_ABOUT_RANK.search(part) and not _MANY.search(part)) or _compares_rank(part, frame, one, other)
        for frame in one.own
        for test in frame.conditions
        if test not in theirs
        for part in _parts(test)
    )


def _parts(test: str) -> list[str]:
    """The operands of an `and`, all of which are true."""
    try:
        node = ast.parse(test, mode="eval").body
    except (SyntaxError, ValueError):  # `except OSError` is a condition too
        return [test]
    return (
        [ast.unparse(v) for v in node.values]
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)
        else [test]
    )


def _compares_rank(part: str, frame: Frame, one: Rank, other: Rank) -> bool:
    """Whether a condition compares a variable that holds the rank, whatever it is called: on both ranks it has the value
    that the rank's number is. A loop's counter may have it by chance."""
    found = _EQUALS.fullmatch(part)
    if found is None:
        return False
    name, wanted = found["name"] or found["falsy"], int(found["value"] or 0)
    mine = number(one.process, frame, name)
    if name in counters_in([frame]) or mine != wanted or mine not in (one.rank, one.local_rank):
        return False
    theirs = _value(other, name)
    if theirs is None:
        return _SHORT_FOR_RANK.fullmatch(name) is not None
    return theirs != mine and theirs in (other.rank, other.local_rank)


def described(one: Rank, other: Rank) -> str | None:
    """The innermost condition around the call of `one` that is not around that of `other`, with the values of its variables on
    both ranks where they differ; None for none."""
    theirs = of(other)
    mine = [test for test in of(one) if test not in theirs]
    if not mine:
        return None
    counters = counters_in(one.own)
    values = {name: (_value(one, name), _value(other, name)) for name in dict.fromkeys(_NAME.findall(mine[-1]))}
    differ = [
        f"`{name}` is {here} on rank {one.rank}, {there} on rank {other.rank}"
        for name, (here, there) in values.items()
        if name not in counters and None not in (here, there) and here != there
    ]
    return f"its call runs only under the condition `{mine[-1]}`" + (f": {'; '.join(differ)}" if differ else "")


def _value(rank: Rank, name: str) -> int | None:
    """A variable's value in the innermost frame of the user's code that has it."""
    values = (number(rank.process, frame, name) for frame in rank.own)
    return next((value for value in values if value is not None), None)
