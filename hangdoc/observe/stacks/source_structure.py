"""What the syntax tree of a function says about one of its lines: the loops of the function, and the conditions and the `with`
contexts around the line.

The source may have been written to take long, so each list is cut, before its texts are made, to more than any function needs.
"""

import ast
import keyword
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from hangdoc.parse import names_in, negated, write_condition
from hangdoc.snapshot import MOST_EXITS, MOST_OF_CONDITION, Exit, Loop, Transfer
from hangdoc.torch_facts import call_names

_MAX_STATEMENTS = 5_000
"""Of a function. A larger one has no structure here."""
_MAX_LOOPS = 32
_MAX_CONDITIONS = 32
_MAX_NAMES = 32
_MAX_NAME = 100
_MAX_INTEGER = 1 << 62
_MAX_TRANSFERS = 12
_TRANSFERS = call_names.SENDS | call_names.RECEIVES
_CHANGE_ENTRIES = frozenset({"clear", "pop", "popitem", "setdefault", "update"})
"""Methods of a dict."""
_LOOPS = (ast.For, ast.While, ast.AsyncFor)


class Structure(NamedTuple):
    """The structure of a function around one of its lines, as in `Frame`."""

    loops: tuple[Loop, ...] = ()
    conditions: tuple[str, ...] = ()
    reassigned: tuple[str, ...] = ()
    repeated: int = 0
    contexts: tuple[str, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    block_end: int | None = None
    """The last line of the `with` block that begins at the line."""
    caught: tuple[str, ...] | None = None


def structure(scope: ast.AST, line: int, *, library: bool = False, around: Sequence[ast.AST] = ()) -> Structure:
    """The structure of a function, or of a module's own code, around a line of it. `around`: the function with those around it,
    if all are known. Raises what ast.unparse raises for a tree that
    is too deep (RecursionError) or has an int of more than 4,300 digits (ValueError)."""
    if sum(1 for _ in islice(statements(scope, inner=False), _MAX_STATEMENTS + 1)) > _MAX_STATEMENTS:
        return Structure()
    loops = _find_loops(scope, line)
    if around:
        own = frozenset(_list_own_names(around))
        loops = tuple(replace(loop, bound_of_module=_is_name(loop.bound) and loop.bound not in own) for loop in loops)
    if not library:
        loops = _with_settings(loops, scope)
    innermost = max((loop.line for loop in loops if loop.line <= line <= loop.end_line), default=None)
    conditions = _find_conditions(scope, line)
    repeated = 0 if innermost is None else sum(each.line > innermost for each in conditions)
    reassigned = _find_reassigned(conditions, line)
    begun = (
        n for n in _own_nodes(scope) if isinstance(n, ast.With | ast.AsyncWith) and n.lineno <= line < n.body[0].lineno
    )
    block_end = next((node.end_lineno for node in begun), None)
    return Structure(
        loops,
        tuple(each.text[:MOST_OF_CONDITION] for each in conditions),
        reassigned if any(reassigned) else (),
        repeated,
        _find_contexts(scope, line),
        () if library else _find_transfers(scope, line),
        block_end,
        _find_caught_around(scope, line),
    )


def _find_loops(scope: ast.AST, line: int) -> tuple[Loop, ...]:
    """The loops of a function; of many, those nearest to the line."""
    nodes = _own_nodes(scope)
    guards = [node for node in nodes if isinstance(node, ast.Try | ast.With)]
    loops = [node for node in nodes if isinstance(node, _LOOPS)]
    near = sorted(loops, key=lambda node: (_distance(node, line), -node.lineno))[:_MAX_LOOPS]
    return tuple(_describe_loop(node, guards) for node in loops if len(loops) <= _MAX_LOOPS or node in near)


def _with_settings(loops: tuple[Loop, ...], scope: ast.AST) -> tuple[Loop, ...]:
    """Loops with the names in their tests to which their function assigns nothing, also not to a part of them."""
    tests = [[test for each in loop.exits for test in each.conditions] for loop in loops]
    if not any(tests):
        return loops
    changed = frozenset(_list_changed(scope))
    return tuple(
        replace(loop, settings=tuple(_list_unchanged(names_in(" ".join(each)), changed)))
        for loop, each in zip(loops, tests, strict=True)
    )


def _list_changed(scope: ast.AST) -> Iterator[str]:
    """What a function assigns or deletes: variables, also in functions inside it, attributes, and those of which it does so with
    an entry."""
    yield from (name for node in statements(scope) if isinstance(node, ast.Nonlocal) for name in node.names)
    for node in _own_nodes(scope):
        yield from _find_assigned(node)
        for part in _expressions(node):
            match part:
                case ast.Subscript(value=owner, ctx=ast.Store() | ast.Del()):
                    yield ast.unparse(owner)
                case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in _CHANGE_ENTRIES:
                    yield ast.unparse(owner)


def _list_unchanged(names: Iterable[str], changed: Set[str]) -> Iterator[str]:
    whole = (name for name in dict.fromkeys(names) if len(name) <= _MAX_NAME and not keyword.iskeyword(name))
    return (name for name in islice(whole, _MAX_NAMES) if changed.isdisjoint(_list_owners(name)))


def _is_name(bound: str | None) -> bool:
    return bound is not None and bound.isidentifier()


def _list_own_names(functions: Iterable[ast.AST]) -> Iterator[str]:
    """The names that functions may have as variables of their own, or of a function inside."""
    for node in (node for function in functions for node in ast.walk(function)):
        name = node.arg if isinstance(node, ast.arg) else _bound_name(node)
        if name is not None:
            yield name


def _bound_name(node: ast.AST) -> str | None:
    """The variable that a node assigns or deletes; None if it does neither."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.alias(name=name, asname=short):
            return short or name.partition(".")[0]
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
        case ast.MatchMapping(rest=name):
            return name
    return None


def _distance(node: ast.stmt, line: int) -> int:
    """How many lines a statement is away from a line; 0 for one around it."""
    return max(node.lineno - line, line - (node.end_lineno or node.lineno), 0)


class _Condition(NamedTuple):
    """A condition that is true at a line."""

    line: int
    """Where it is tested."""
    text: str
    block: Sequence[ast.stmt]
    """The statements that run after the test, with those around the line."""


def _find_conditions(scope: ast.AST, line: int) -> list[_Condition]:
    """The conditions that are true at a line, outermost first: the tests of the `if`s around it, the negated tests of earlier
    `if`s that leave its block (`if rank != 0: return`), and the `except` around it."""
    tests: list[tuple[ast.If | ast.ExceptHandler, bool, Sequence[ast.stmt]]] = []
    """Each with whether it is negated, and its `_Condition.block`."""
    for node in _own_nodes(scope):
        if isinstance(node, ast.If):
            arms = ((node.body, False), (node.orelse, True))
            tests += [(node, negate, arm) for arm, negate in arms if _contains(arm, line)]
        elif isinstance(node, ast.ExceptHandler) and _contains(node.body, line):
            tests.append((node, False, node.body))
    for node in (scope, *_own_nodes(scope)):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and _contains(block, line):
                tests += [
                    (guard, True, block[at:])
                    for at, guard in enumerate(block, 1)
                    if isinstance(guard, ast.If) and not guard.orelse and (guard.end_lineno or 0) < line
                    and isinstance(guard.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
                ]  # fmt: skip
    tests.sort(key=lambda test: test[0].lineno)
    found = [
        _Condition(node.lineno, _condition(node, negate=no), block) for node, no, block in tests[-_MAX_CONDITIONS:]
    ]
    return sorted(found, key=lambda each: each[:2])


def _find_reassigned(conditions: Iterable[_Condition], line: int) -> tuple[str, ...]:
    """As `Frame.reassigned`."""
    assigned: dict[ast.AST, frozenset[str]] = {}
    found = []
    for condition in conditions:
        changed: set[str] = set()
        for node in _find_passed(condition.block, line):
            if node not in assigned:
                assigned[node] = frozenset(_find_assigned(node))
            changed |= assigned[node]
        names = dict.fromkeys(names_in(condition.text))
        found.append(", ".join(name for name in names if any(part in changed for part in _list_owners(name)))[:200])
    return tuple(found)


def _find_passed(block: Sequence[ast.stmt], line: int) -> Iterator[ast.AST]:
    """The statements that may have run since the beginning of a block that is at a line: not the other arm of an `if` around the
    line, but all of a loop around it."""
    for node in block:
        if node.lineno > line:
            return
        if (node.end_lineno or 0) < line or isinstance(node, _LOOPS):
            yield node
            yield from statements(node, inner=False)
            continue
        arms: list[list[ast.stmt]] = []
        match node:
            case ast.If():
                arms = [node.body, node.orelse]
            case ast.Match():
                yield from (case for case in node.cases if case.pattern.lineno <= line)
                arms = [case.body for case in node.cases]
            case ast.With() | ast.AsyncWith():
                yield node
                arms = [node.body]
            case ast.Try():
                yield from (handler for handler in node.handlers if handler.lineno <= line)
                handlers = [part for handler in node.handlers for part in handler.body]
                arms = [[*node.body, *handlers, *node.orelse, *node.finalbody]]
        for arm in arms:
            if _contains(arm, line):
                yield from _find_passed(arm, line)


def _find_assigned(node: ast.AST) -> Iterator[str]:
    """The variables and attributes that a statement assigns or deletes, without the statements in it."""
    parts = [node, *_expressions(node)]
    inside = (inner for part in parts if isinstance(part, ast.comprehension) for inner in ast.walk(part.target))
    of_comprehensions = {id(part) for part in inside}
    for part in parts:
        stores = isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Load)
        name = ast.unparse(part) if stores else _bound_name(part)
        if name is not None and id(part) not in of_comprehensions:
            yield name


def _list_owners(name: str) -> list[str]:
    """`self.best.mean` with what it is of: `self`, `self.best`."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _condition(node: ast.If | ast.ExceptHandler, *, negate: bool) -> str:
    if isinstance(node, ast.ExceptHandler):
        return _handler(node)
    test = write_condition(node.test)
    return negated(test) if negate else test


def _handler(node: ast.ExceptHandler) -> str:
    return f"except {ast.unparse(node.type) if node.type else ''}".strip()


def _find_transfers(scope: ast.AST, line: int) -> tuple[Transfer, ...]:
    """The sends and receives in the outermost loop around a line, or in the function if the line is in none."""
    around = [n for n in _own_nodes(scope) if isinstance(n, _LOOPS) and n.lineno <= line <= (n.end_lineno or 0)]
    outermost: ast.AST = min(around, key=lambda loop: loop.lineno, default=scope)
    begin = outermost.lineno if isinstance(outermost, _LOOPS) else 0
    calls = [
        (part.lineno, call[:_MAX_NAME])
        for node in _own_nodes(outermost)
        for part in _expressions(node)
        if isinstance(part, ast.Call) and (call := _transfer(part)) is not None
    ]
    first = sorted(calls, key=lambda call: call[0])[:_MAX_TRANSFERS]
    conditions = {at: _find_conditions(scope, at) for at, _ in first}
    return tuple(
        Transfer(
            line=at,
            call=call,
            conditions=tuple(each.text[:MOST_OF_CONDITION] for each in conditions[at] if each.line > begin),
        )
        for at, call in first
    )


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions of a statement, without those of the statements in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from ast.walk(child)


def _transfer(call: ast.Call) -> str | None:
    """The name of a send or a receive of torch.distributed; None for other calls. The `send` of a socket or a pipe names no
    peer."""
    name = _called(call.func)
    if name == call_names.P2P_OP and call.args:
        return _called(call.args[0])
    named = any(keyword.arg in ("dst", "src", "group_dst", "group_src") for keyword in call.keywords)
    return name if name in _TRANSFERS and (named or len(call.args) > 1) else None


def _called(function: ast.expr) -> str | None:
    return (
        function.attr
        if isinstance(function, ast.Attribute)
        else function.id
        if isinstance(function, ast.Name)
        else None
    )


def _find_contexts(scope: ast.AST, line: int) -> tuple[str, ...]:
    """The context managers of the `with` statements around a line, outermost first. At `with lock: pass`, a thread may still be
    waiting for the lock, so the line of a header is not around itself."""
    around = [
        node
        for node in _own_nodes(scope)
        if isinstance(node, ast.With | ast.AsyncWith)
        and _contains(node.body, line)
        and line > max(item.context_expr.end_lineno or 0 for item in node.items)
    ]
    items = [item for node in sorted(around, key=lambda node: node.lineno) for item in node.items]
    return tuple(ast.unparse(item.context_expr)[:200] for item in items[-_MAX_CONDITIONS:])


def _find_caught_around(scope: ast.AST, line: int) -> tuple[str, ...]:
    """The handlers around a line that continue after an exception."""
    nodes = (node for node in _own_nodes(scope) if isinstance(node, ast.Try | ast.With))
    guards = (node for node in nodes if _contains(node.body, line))
    texts = (text for guard in guards for handler in _caught(guard) for text in handler.conditions)
    return tuple(islice(texts, _MAX_CONDITIONS))


def _contains(block: list[ast.stmt], line: int) -> bool:
    return bool(block) and block[0].lineno <= line <= (block[-1].end_lineno or 0)


def _own_nodes(scope: ast.AST) -> list[ast.AST]:
    """All statements of a function and the handlers of its `try`s, without those of functions and classes inside it."""
    return list(statements(scope, inner=False))


def statements(scope: ast.AST, *, inner: bool = True) -> Iterator[ast.AST]:
    """All statements below a node and the handlers of its `try`s, breadth first. With `inner`, also those of the functions and
    classes in it. `ast.walk` would also visit all expressions, which are twenty times as many nodes."""
    todo = deque([scope])
    while todo:
        node = todo.popleft()
        if node is not scope:
            yield node
            if not inner and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            todo.extend(getattr(node, block, ()))


def _describe_loop(node: ast.For | ast.While | ast.AsyncFor, guards: Iterable[ast.Try | ast.With]) -> Loop:
    """A loop; `guards` are the `try` and `with` statements of its function."""
    exits = [
        *_find_exits(node.body),
        *islice(
            (caught for guard in guards if _contains(guard.body, node.lineno) for caught in _caught(guard)),
            _MAX_CONDITIONS,
        ),
    ]
    common: dict[str, Any] = {
        "line": node.lineno, "end_line": node.end_lineno or node.lineno, "advances": _find_advanced_names(node),
        "exits": _list_first(exits),
        "skips": _list_first(_find_statements(node.body, ast.Continue, inside=False)),
    }  # fmt: skip
    if isinstance(node, ast.While):
        always = _find_always_incremented(node.body)
        tested = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
        names = sorted(_find_incremented_names(node), key=lambda name: (name not in always, name not in tested))
        return Loop(
            **common,
            header=f"while {write_condition(node.test)}"[:160],
            counters=tuple(names[:_MAX_NAMES]),
            every=min(len(always), _MAX_NAMES),
            counted_at=tuple(always[name] for name in names[:_MAX_NAMES] if name in always),
            bound=_find_while_bound(node, names),
        )
    header = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"[:160]
    counters: tuple[str, ...] = ()
    every, start, bound, begin = 1, None, None, None
    call = _find_innermost_counting_call(node.iter)
    if call is not None and isinstance(call.func, ast.Name):
        target = node.target.elts[0] if isinstance(node.target, ast.Tuple) and node.target.elts else node.target
        if isinstance(target, ast.Name):
            counters = (target.id[:_MAX_NAME],)
        if call.func.id == "enumerate":
            start_value = (
                call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "start"), None)
            )
            start = 0 if start_value is None else _constant(start_value)
        else:
            # A range that begins at a variable counts its steps from 0.
            start = 0 if len(call.args) == 1 else _constant(call.args[0]) or 0
            if len(call.args) > 1 and isinstance(call.args[0], ast.Name | ast.Attribute):
                begin = ast.unparse(call.args[0])[:80]
            if len(call.args) < 3:
                bound = _plain(call.args[min(1, len(call.args) - 1)])
    counted_at: tuple[int, ...] = ()
    if not counters:
        # `for batch in loader: ...; n += 1`
        always = _find_always_incremented(node.body)
        counters = tuple(sorted(_find_incremented_names(node), key=lambda name: name not in always))[:_MAX_NAMES]
        every = min(len(always), _MAX_NAMES)
        counted_at = tuple(always[name] for name in counters if name in always)
    return Loop(
        **common,
        header=header,
        counters=counters,
        every=every,
        start=start,
        begin=begin,
        bound=bound,
        counted_at=counted_at,
    )


def _list_first(statements: Iterable[Exit]) -> tuple[Exit, ...]:
    return tuple(sorted(statements, key=lambda statement: statement.line))[:MOST_EXITS]


def _caught(guard: ast.Try | ast.With) -> Iterator[Exit]:
    """The handlers that continue after an exception. `with suppress(OSError)` is one, too."""
    if isinstance(guard, ast.With):
        for call in (item.context_expr for item in guard.items):
            if isinstance(call, ast.Call) and _called(call.func) == "suppress":
                kinds = ", ".join(map(ast.unparse, call.args))
                test = f"except ({kinds})" if len(call.args) > 1 else f"except {kinds}"
                yield Exit(line=call.lineno, statement="except", conditions=(test[:MOST_OF_CONDITION],))
        return
    for handler in guard.handlers:
        if not isinstance(handler.body[-1], ast.Raise):
            yield Exit(line=handler.lineno, statement="except", conditions=(_handler(handler)[:MOST_OF_CONDITION],))


def _find_exits(block: list[ast.stmt]) -> Iterator[Exit]:
    """The statements in the body of a loop that leave it."""
    yield from _find_statements(block, ast.Break, inside=False)
    yield from _find_statements(block, ast.Return, inside=True)


def _find_statements(
    block: list[ast.stmt], kind: type[ast.stmt], conditions: tuple[str, ...] = (), *, inside: bool
) -> Iterator[Exit]:
    """The statements of a kind in a block with the conditions around them, also those `inside` of other loops if they concern
    this one."""
    find = partial(_find_statements, kind=kind, inside=inside)
    for node in block:
        if isinstance(node, kind):
            yield Exit(line=node.lineno, statement=kind.__name__.lower(), conditions=conditions[-_MAX_CONDITIONS:])
        elif isinstance(node, ast.If):
            test = write_condition(node.test)
            yield from find(node.body, conditions=(*conditions, test[:MOST_OF_CONDITION]))
            yield from find(node.orelse, conditions=(*conditions, negated(test)[:MOST_OF_CONDITION]))
        elif isinstance(node, ast.Try):
            yield from find([*node.body, *node.orelse, *node.finalbody], conditions=conditions)
            for handler in node.handlers:
                yield from find(handler.body, conditions=(*conditions, _handler(handler)[:MOST_OF_CONDITION]))
        elif isinstance(node, ast.With | ast.AsyncWith):
            yield from find(node.body, conditions=conditions)
        elif isinstance(node, _LOOPS):
            # The `else` of a loop is outside of it.
            yield from find([*(node.body if inside else ()), *node.orelse], conditions=conditions)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                yield from find(case.body, conditions=conditions)


def _find_incremented_names(loop: ast.AST) -> tuple[str, ...]:
    """Names that a loop's body increments by one: `n += 1`."""
    return tuple(dict.fromkeys(name for node in statements(loop) if (name := _incremented(node)) is not None))


def _find_always_incremented(block: Iterable[ast.stmt]) -> dict[str, int]:
    """Those that every iteration increments, until it ends or leaves the loop, each with the last line that does."""
    names: dict[str, int] = {}
    for node in block:
        if isinstance(node, ast.With | ast.AsyncWith):
            names |= _find_always_incremented(node.body)
        elif isinstance(node, ast.AugAssign) and (name := _incremented(node)) is not None:
            names[name] = node.lineno
        if any(isinstance(inner, ast.Continue) for inner in statements(node)):
            break
    return names


def _incremented(node: ast.AST) -> str | None:
    """The name in `n += 1`; None for any other statement."""
    if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add) or not isinstance(node.target, ast.Name):
        return None
    by_one = isinstance(node.value, ast.Constant) and node.value.value == 1
    return node.target.id if by_one and len(node.target.id) <= _MAX_NAME else None


def _find_advanced_names(loop: ast.For | ast.While | ast.AsyncFor) -> tuple[str, ...]:
    """Names that a loop and the loops inside it change: their targets, `n += k` and `n = n + k`."""
    changed: list[str] = []
    for node in (loop, *statements(loop)):
        if isinstance(node, ast.For | ast.AsyncFor):
            changed += [n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)]
        elif (
            isinstance(node, ast.AugAssign)
            and isinstance(node.op, ast.Add | ast.Sub)
            and isinstance(node.target, ast.Name)
        ):
            changed.append(node.target.id)
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.BinOp)
            and isinstance(node.value.op, ast.Add | ast.Sub)
        ):
            read = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            changed += [target.id for target in node.targets if isinstance(target, ast.Name) and target.id in read]
    names = (name for name in dict.fromkeys(changed) if len(name) <= _MAX_NAME)
    return tuple(islice(names, _MAX_NAMES))


def _find_innermost_counting_call(node: ast.expr) -> ast.Call | None:
    """The `enumerate(...)` or `range(...)` that a `for` iterates over, also inside `tqdm(...)`."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in ("enumerate", "range"):
            return inner if inner.args else None
    return None


def _find_while_bound(node: ast.While, counters: Sequence[str]) -> str | None:
    test = node.test
    if (
        isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Lt)
        and isinstance(test.left, ast.Name) and test.left.id in counters
    ):  # fmt: skip
        return _plain(test.comparators[0])
    return None


def _constant(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value < _MAX_INTEGER:
        return node.value
    return None


def _plain(node: ast.expr) -> str | None:
    """A number or a name as text; None for any other expression."""
    number = _constant(node)
    if number is not None:
        return str(number)
    return node.id if isinstance(node, ast.Name) and len(node.id) <= _MAX_NAME else None
