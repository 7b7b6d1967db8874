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
from hangdoc.snapshot import CONTEXT_LINES, Frame, Loop, Process, PythonThread
from hangdoc.torch_facts import call_names

_MOST_SOURCE = 8_000
"""Characters of a function down to a line, of at most 31 lines."""
_MOST_SHOWN = 200
_MOST_PARTS = 8
_PLAIN = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.If, ast.Pass)
"""Statements after which the next one follows."""
_ONE_OF_BLOCKS = frozenset({"Try", "TryStar", "Match"})
"""Statements of which not all blocks run; Python 3.10 has no TryStar."""
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
    called: bool
    """Whether another function was called since, which may have changed attributes and variables of the module."""


def find_made_call(process: Process, thread: PythonThread) -> MadeCall | None:
    """The send or receive whose work the innermost line of a thread waits for; None where the source does not show one alone."""
    frame = innermost_user_frame(thread)
    source = _cut_to_line(frame) if frame is not None and frame is innermost(thread) else None
    tree = parsed_statement(dedent(source), _MOST_SOURCE) if source is not None else None
    if frame is None or tree is None or not (path := list(_list_path(tree.body))):
        return None
    if any(type(step.statement).__name__ in _ONE_OF_BLOCKS for step in path):
        return None  # which of its blocks have run is not known
    last = (source or "").count("\n") + 1
    waits = [node for node in _list_calls(tree) if _is_wait(node) and node.lineno <= last <= (node.end_lineno or 0)]
    match waits:
        case [ast.Call(func=ast.Attribute(value=ast.Name(id=name)))]:
            place = _find_place(process, frame, name, path)
        case [ast.Call(func=ast.Attribute(value=ast.Call() as made))]:
            place = _Place(made, {}, frozenset(), called=False)
        case _:
            return None
    return _read_call(process, frame, place, tree) if place is not None else None


def _cut_to_line(frame: Frame) -> str | None:
    """The source of a frame's function down to its line; None if that is not shown in full."""
    lines = (frame.context or "").splitlines()
    same = [at for at, line in enumerate(lines) if line.strip() == frame.source]
    at = same[0] if len(same) == 1 else min(frame.line - 1, CONTEXT_LINES)
    if at not in same:
        return None
    return in_source.cut_to_function("\n".join(lines[: at + 1]), frame.source)


def _is_wait(call: ast.Call) -> bool:
    """Whether a call is one of `wait`, or of another method that waits for a work."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in call_names.WAIT_FOR_WORK


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
    called = False
    for step in reversed(path):
        match step.statement:
            case ast.For(target=target) as loop if name in _list_names(target):
                return _find_in_works(process, frame, step, _list_assigned(loop))
            case ast.For() | ast.While():
                return None  # a round before may have made another one below the line
        for statement in reversed(step.before):
            if name in (assigned := _list_assigned(statement)):
                value = statement.value if isinstance(statement, ast.Assign) else None
                return _Place(value, {}, frozenset(changed), called) if isinstance(value, ast.Call) else None
            changed |= assigned
            called = called or bool(_list_calls(statement))
    return None


def _find_in_works(process: Process, frame: Frame, step: _Step, changed: set[str]) -> _Place | None:
    """Where the work was made that a loop over works is at: in a loop over numbers before it, one in each round."""
    loop = next((loop for loop in frame.loops if _is_at(loop, step.statement)), None)
    iterator = iterators.find_iterator(process, frame, loop) if loop is not None else None
    works = iterators.find_iterated(loop.header) if loop is not None else None
    done = iterator.done if iterator is not None and iterator.done is not None else 0
    if iterator is None or works is None or iterator.total is None or not 0 < done <= iterator.total:
        return None
    for at, statement in reversed(list(enumerate(step.before))):
        if works not in _list_names(statement):
            changed |= _list_assigned(statement)
            continue
        maker = _find_maker(statement, works)
        begins = isinstance(statement, ast.Assign) or _begins_empty(step.before[:at], works)
        numbers = _read_numbers(process, frame, maker, changed) if maker is not None else None
        if maker is None or not begins or numbers is None or len(numbers) != iterator.total:
            return None
        counter = unparsed(maker.counter)
        # In the last round, the variables still have the values that they had at the call.
        since = [statement] if done < iterator.total else maker.after
        changed |= set().union(*map(_list_assigned, since)) - {counter}
        return _Place(maker.call, {counter: numbers[done - 1]}, frozenset(changed), called=True)
    return None


def _begins_empty(before: Sequence[ast.stmt], works: str) -> bool:
    """Whether the last of some statements that names a list makes it empty."""
    last = next((statement for statement in reversed(before) if works in _list_names(statement)), None)
    match last:
        case ast.Assign(targets=[ast.Name()], value=ast.List(elts=[])):
            return True
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            return all(isinstance(value, ast.List) and not value.elts for value in values)
    return False


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
        case ast.For(target=ast.Name() as counter, iter=iterated, body=body, orelse=[]):
            made = [(call, at) for at, each in enumerate(body) if (call := _find_appended(each, works)) is not None]
            # Each round runs the whole body, and only the loop assigns its counter.
            plain = all(
                isinstance(node, _PLAIN) for each in body for node in ast.walk(each) if isinstance(node, ast.stmt)
            )
            sets = set().union(*map(_list_assigned, body))
            mentions = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == works]
            alone = len(made) == len(mentions) == 1 and counter.id not in sets
            return _Maker(made[0][0], counter, iterated, body[made[0][1] + 1 :]) if plain and alone else None
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
            # From a number of the source on, the number of works shows where the loop ended.
            from_number = all(isinstance(each, ast.Constant) for each in (arguments[0], *arguments[2:]))
            place = _Place(maker.call, {}, frozenset(changed), called=not from_number)
            bounds = [number for each in arguments if (number := _evaluate(process, frame, place, each)) is not None]
            return range(*bounds) if len(bounds) == len(arguments) and 0 not in bounds[2:] else None
    return None


def _read_call(process: Process, frame: Frame, place: _Place, tree: ast.AST) -> MadeCall | None:
    """The call, if it is one of torch's: a wrapper may count its peers otherwise."""
    call = place.call
    module, _, name = (_name(call.func) or "").rpartition(".") if isinstance(call, ast.Call) else ("", "", "")
    if not isinstance(call, ast.Call) or name not in call_names.MAKE_TRANSFERS or module not in call_names.MODULES:
        return None
    if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
        return None
    sends = name in call_names.SENDS
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    given = (named.get("dst" if sends else "src", call.args[1] if len(call.args) > 1 else None), named.get("tag"))
    peer, tag = (_evaluate(process, frame, place, node) if node is not None else None for node in given)
    # Of several transfers, who meets which tag is not known.
    alone = sum(_name(node.func).rpartition(".")[2] in call_names.MAKE_TRANSFERS for node in _list_calls(tree)) == 1
    return MadeCall(sends, (unparsed(call) or name)[:_MOST_SHOWN], peer, tag if alone else None)


def _list_calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _evaluate(process: Process, frame: Frame, place: _Place, node: ast.expr) -> int | None:
    """The number that an expression had when the call was made; None if it is not known, and for a negative one."""
    value = evaluate(node, partial(_read_number, process, frame, place))
    return value[0] if value is not None and type(value[0]) is int and 0 <= value[0] < _MOST else None


def _read_number(process: Process, frame: Frame, place: _Place, name: str) -> str | None:
    if name in place.values:
        return str(place.values[name])
    parts = name.split(".")
    if not place.changed.isdisjoint(".".join(parts[:length]) for length in range(1, len(parts) + 1)):
        return None
    is_local = len(parts) == 1 and frame.function != "<module>" and any(each.name == name for each in frame.locals)
    if place.called and not is_local:
        return None
    number = read_number(process, frame, name)
    return None if number is None else str(number)


def _list_assigned(tree: ast.AST) -> set[str]:
    """The variables and attributes that source assigns or binds otherwise."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                names.add(_name(node))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add(other or name.partition(".")[0])
    return names


def _list_names(tree: ast.AST) -> set[str]:
    return {_name(node) for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)}


def _name(node: ast.AST) -> str:
    """`a.b.c` of a name with attributes; empty for any other expression, and for one of more parts."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < _MOST_PARTS:
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else ""
