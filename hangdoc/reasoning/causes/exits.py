"""How a rank may have left its loop: its statements that leave it, with the values on both ranks that decide, or its end."""

from collections.abc import Sequence

from hangdoc.diagnosis import Evidence
from hangdoc.parse import names_in, shows_address
from hangdoc.program import early_exits
from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.model.kinds import LeftLoop
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.ranks.counters import frame_of, is_over_data, is_over_loader
from hangdoc.snapshot import Exit, Frame

_SHOWN = 3


def of(kind: LeftLoop) -> list[Evidence]:
    """One line for each statement that may leave the loop, those whose variables differ between the ranks first."""
    short, inside = kind.short.first, kind.inside.first
    lines = [(_differences(exit_, short, inside), exit_) for exit_ in early_exits(kind.loop)]
    lines.sort(key=lambda line: not line[0])
    return [Evidence(short.rank, "source", "; ".join([statement(exit_), *differ])) for differ, exit_ in lines[:_SHOWN]]


def only_by_its_end(kind: LeftLoop) -> bool:
    """Whether the loop is over a DataLoader, or over anything else and trains, and ends only with it: no statement leaves the
    loop, and no exception has left it, because the rank is still in its function or no function on the way to it catches any.
    And whether each iteration makes the call in which the others wait."""
    short, inside = kind.short.first, kind.inside.first
    frame, within = (frame_of(kind.loop, one) for one in (short, inside))
    if within is None or early_exits(kind.loop) or not kind.loop.header.startswith("for "):
        return False
    if frame is None and any(one.caught != () for one in _callers(within, inside)):
        return False
    if set(within.conditions) - set(frame.conditions if frame is not None else ()):
        return False
    trains = is_over_data(kind.loop) and inside.wait is not None and inside.wait.operation.origin not in (None, "user")
    return trains or is_over_loader(kind.loop, within)


def _callers(frame: Frame, rank: Rank) -> Sequence[Frame]:
    """The frames of the program outside of one of them."""
    at = next(index for index, one in enumerate(rank.program) if one is frame)
    return rank.program[at + 1 :]


def statement(exit_: Exit) -> str:
    """What may end a loop, as a clause."""
    if exit_.statement == "except":
        return f"`{exit_.conditions[0]}` at line {exit_.line} catches what the loop raises"
    under = " and ".join(f"`{test}`" for test in exit_.conditions)
    return f"the loop has a `{exit_.statement}` at line {exit_.line}" + (f", if {under}" if under else "")


def _differences(exit_: Exit, short: Rank, inside: Rank) -> list[str]:
    names = dict.fromkeys(name for test in exit_.conditions for name in names_in(test))
    found = []
    for name in names:
        mine, theirs = _value(short, name), _value(inside, name)
        if mine is not None and theirs is not None and mine != theirs and not shows_address(mine + theirs):
            found.append(f"`{name}` is {mine} on rank {short.rank}, {theirs} on rank {inside.rank}")
    return found


def _value(rank: Rank, name: str) -> str | None:
    """A variable's text in the innermost frame of the program that has it, or in the user's module."""
    variables = known.variables(rank.process, rank.program)
    return next((local.text[:40] for local in variables if local.name == name), None)
