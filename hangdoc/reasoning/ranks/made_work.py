"""The call that made the work for which a line waits, with its peer and its tag.

It is `work = dist.isend(x, dst=peer, tag=step)` above `work.wait()`, or `works.append(dist.irecv(x, src=a))` above a loop over
`works`. No record has the peer of a work of Gloo. The source names it, and the variables of the frame have its value if no
statement has assigned them since.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from textwrap import dedent
from typing import NamedTuple

from hangdoc.parse import evaluate, parsed_statement, unparsed
from hangdoc.reasoning.evidence.stack import innermost, innermost_user_frame
from hangdoc.reasoning.ranks import in_source, iterators
from hangdoc.reasoning.ranks.counters import read_number
from hangdoc.snapshot import Frame, Loop, Process, PythonThread
from hangdoc.torch_facts import call_names

_MOST_SOURCE = 8_000
"""Characters of a function down to a line, of at most 31 lines."""
_MOST_SHOWN = 200
_MOST = 1 << 48
"""No rank, tag or number of rounds is larger."""


class MadeCall(NamedTuple):
    """An isend or an irecv."""

    sends: bool
    source: str
    peer: int | None
    """The global rank; None if its value is not known."""
    tag: int | None


class _Place(NamedTuple):
    """The call in the source, and what its names are."""

    call: ast.expr
    values: Mapping[str | None, int]
    """Of the loop that made a list of works, in the round that made this one."""
    changed: frozenset[str]
    """The names that have other values now than when the call was made."""


def find_made_call(process: Process, thread: PythonThread) -> MadeCall | None:
    """The send or receive whose work the innermost line of a thread waits for; None where the source does not show one alone."""
    frame = innermost_user_frame(thread)
    if frame is None or not frame.context or frame is not innermost(thread):
        return None
    tree = parsed_statement(dedent(in_source.cut_to_function(frame.context, frame.source)), _MOST_SOURCE)
    path = list(_list_path(tree.body)) if tree is not None else []
    waited = in_source.waited_for(frame)
    if waited is not None:
        place = _find_place(process, frame, waited, path)
    else:
        calls = [_find_waited_call(node) for node in ast.walk(path[-1].statement)] if path else []
        place = next((_Place(call, {}, frozenset()) for call in calls if call is not None), None)
    return _read_call(process, frame, place) if place is not None else None


def _find_waited_call(node: ast.AST) -> ast.expr | None:
    """`call()` of `call().wait()`."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Call() as made, attr="wait")):
            return made
    return None


class _Step(NamedTuple):
    """A statement around the last line of a source, or that line itself, and the statements before it in its block."""

    statement: ast.stmt
    before: Sequence[ast.stmt]


def _list_path(body: Sequence[ast.stmt]) -> Iterator[_Step]:
    """The way to the last statement of a source, outermost first."""
    while body:
        yield _Step(body[-1], body[:-1])
        blocks = [getattr(body[-1], name, []) for name in ("orelse", "body")]
        body = next((block for block in blocks if block), [])


def _find_place(process: Process, frame: Frame, name: str, path: Sequence[_Step]) -> _Place | None:
    """Where the work in a variable was made: by a statement that has run in any case, the last one that assigns the variable."""
    changed: set[str] = set()
    for step in reversed(path):
        match step.statement:
            case ast.For(target=target) as loop if name in _list_names(target):
                return _find_in_works(process, frame, step, _list_assigned(loop))
            case ast.For() | ast.While():
                return None  # a round before may have made another one below the line
        for statement in reversed(step.before):
            if name in (assigned := _list_assigned(statement)):
                value = statement.value if isinstance(statement, ast.Assign) else None
                return _Place(value, {}, frozenset(changed)) if isinstance(value, ast.Call) else None
            changed |= assigned
    return None


def _find_in_works(process: Process, frame: Frame, step: _Step, changed: set[str]) -> _Place | None:
    """Where the work was made that a loop over works is at: in a loop over numbers before it, one in each round."""
    loop = next((loop for loop in frame.loops if _is_at(loop, step.statement)), None)
    iterator = iterators.find_iterator(process, frame, loop) if loop is not None else None
    works = iterators.find_iterated(loop.header) if loop is not None else None
    if iterator is None or works is None or not iterator.done or iterator.total is None:
        return None
    for statement in reversed(step.before):
        if works not in _list_names(statement):
            changed |= _list_assigned(statement)
            continue
        maker = _find_maker(statement, works)
        numbers = _read_numbers(process, frame, maker, changed) if maker is not None else None
        if maker is None or numbers is None or len(numbers) != iterator.total:
            return None
        is_last = iterator.done == iterator.total
        changed |= _list_assigned(statement) if not is_last else set().union(*map(_list_assigned, maker.after))
        return _Place(maker.call, {unparsed(maker.counter): numbers[iterator.done - 1]}, frozenset(changed))
    return None


def _is_at(loop: Loop, statement: ast.stmt) -> bool:
    """Whether a loop of a frame is a statement of its source."""
    return isinstance(statement, ast.For) and loop.header == (
        f"for {unparsed(statement.target)} in {unparsed(statement.iter)}"
    )


class _Maker(NamedTuple):
    """A loop over numbers that makes a work in each round."""

    call: ast.expr
    counter: ast.expr
    iterated: ast.expr
    after: Sequence[ast.stmt] = ()
    """The statements of a round after the call."""


def _find_maker(statement: ast.stmt, works: str) -> _Maker | None:
    """The loop if a statement is `for a in ...: works.append(call)`, or `works = [call for a in ...]`."""
    match statement:
        case ast.For(target=counter, iter=iterated, body=body):
            made = [(call, at) for at, each in enumerate(body) if (call := _find_appended(each, works)) is not None]
            return _Maker(made[0][0], counter, iterated, body[made[0][1] + 1 :]) if len(made) == 1 else None
        case ast.Assign(value=ast.ListComp(elt=call, generators=[ast.comprehension(ifs=[]) as only])):
            return _Maker(call, only.target, only.iter)
    return None


def _find_appended(statement: ast.stmt, works: str) -> ast.expr | None:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=of, attr="append"), args=[call])) if (
            unparsed(of) == works
        ):
            return call
    return None


def _read_numbers(process: Process, frame: Frame, maker: _Maker, changed: set[str]) -> range | None:
    """The numbers that the loop went over."""
    match maker.iterated:
        case ast.Call(func=ast.Name(id="range"), args=[_, *_] as arguments, keywords=[]) if len(arguments) <= 3:
            place = _Place(maker.call, {}, frozenset(changed))
            bounds = [number for each in arguments if (number := _evaluate(process, frame, place, each)) is not None]
            return range(*bounds) if len(bounds) == len(arguments) and 0 not in bounds[2:] else None
    return None


def _read_call(process: Process, frame: Frame, place: _Place) -> MadeCall | None:
    call = place.call
    name = (unparsed(call.func) or "").rpartition(".")[2] if isinstance(call, ast.Call) else ""
    if not isinstance(call, ast.Call) or name not in call_names.MAKE_TRANSFERS:
        return None
    sends = name in call_names.SENDS
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    given = (named.get("dst" if sends else "src", call.args[1] if len(call.args) > 1 else None), named.get("tag"))
    peer, tag = (_evaluate(process, frame, place, node) if node is not None else None for node in given)
    return MadeCall(sends, (unparsed(call) or name)[:_MOST_SHOWN], peer, tag)


def _evaluate(process: Process, frame: Frame, place: _Place, node: ast.expr) -> int | None:
    """The number that an expression had when the call was made; None if it is not known, and for a negative one."""
    value = evaluate(node, partial(_read_number, process, frame, place))
    return value[0] if value is not None and type(value[0]) is int and 0 <= value[0] < _MOST else None


def _read_number(process: Process, frame: Frame, place: _Place, name: str) -> str | None:
    if name in place.values:
        return str(place.values[name])
    if not place.changed.isdisjoint({name, name.partition(".")[0]}):
        return None
    number = read_number(process, frame, name)
    return None if number is None else str(number)


def _list_assigned(tree: ast.AST) -> set[str]:
    """The variables and attributes that source assigns."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute))
    return {unparsed(node) or "" for node in nodes if isinstance(node.ctx, ast.Store)}


def _list_names(tree: ast.AST) -> set[str]:
    return {unparsed(node) or "" for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)}
