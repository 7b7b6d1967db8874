"""Source lines of frames, and the loops around them, from the files as the process sees them.

They are captured during the observation, so that a bundle can be read on a machine without the code.
"""

import ast
import copy
import re
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from hangdoc import redact
from hangdoc.observe.lines import Lines
from hangdoc.observe.source_files import Key, SourceFiles
from hangdoc.parse import negated
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.program import program
from hangdoc.snapshot import Exit, Frame, Loop, PythonThread, Stack

_CONTEXT_LINES = 30
_MAX_EXITS = 6
_MAX_CACHED_TEXT = 20_000
"""Characters. A syntax tree takes 20 to 45 times the memory of its text."""


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Structure = tuple[tuple[Loop, ...], tuple[str, ...], tuple[str, ...]]
"""Loops of a function, and the conditions and `with` contexts around one of its lines."""


class Sources:
    """Adds the source to stacks, and caches what it finds."""

    def __init__(self, proc: ProcFS) -> None:
        self._proc = proc
        self._files = SourceFiles(proc)
        self._trees: dict[Key, ast.Module | None] = {}
        self._defined: dict[Key, list[_Function]] = {}
        self._structure: dict[tuple[Key, str, int], _Structure] = {}
        self._boot = next(
            (float(line.split()[1]) for line in proc.text("stat").splitlines() if line.startswith("btime")),
            0.0,
        )

    def renew(self) -> None:
        """Processes have started, and their source files may have changed since: see SourceFiles.renew."""
        self._files.renew()
        self._trees, self._defined, self._structure = {}, {}, {}

    def annotate(self, pid: int, stack: Stack) -> Stack:
        """The stack with source lines in all Python frames, loops in the program's frames, and context in the user's code."""
        try:
            started = self._boot + self._proc.stat(str(pid)).start_ticks / self._proc.ticks_per_second
        except ProcError:
            return stack
        return msgspec.structs.replace(
            stack, threads=tuple(self._thread(pid, started, thread) for thread in stack.threads)
        )

    def _thread(self, pid: int, started: float, thread: PythonThread) -> PythonThread:
        frames = []
        context_given = False
        program_frames = {id(frame) for frame in program(thread.frames)}
        for frame in thread.frames:
            annotated = self._frame(pid, started, frame, context=not context_given, loops=id(frame) in program_frames)
            context_given = context_given or annotated.context is not None
            frames.append(annotated)
        return msgspec.structs.replace(thread, frames=tuple(frames))

    def _frame(self, pid: int, started: float, frame: Frame, *, context: bool, loops: bool) -> Frame:
        if frame.native or not frame.file.startswith("/"):
            return frame
        key, lines = self._files.lines(pid, started, frame.file, library=frame.library)
        if not 0 < frame.line <= len(lines):
            return frame
        source = redact.source(lines[frame.line - 1].strip())[:200]
        if not loops:
            return msgspec.structs.replace(frame, source=source)
        around = lines[max(0, frame.line - 1 - _CONTEXT_LINES) : frame.line + 3]
        found, conditions, contexts = self._structure_of(key, lines, frame)
        return msgspec.structs.replace(
            frame,
            source=source,
            context="\n".join(around) if context and not frame.library else None,
            loops=found,
            conditions=conditions,
            contexts=contexts,
        )

    def _structure_of(self, key: Key, lines: Lines, frame: Frame) -> _Structure:
        """The structure around the frame's line, computed once for all ranks at this line."""
        place = (key, frame.function, frame.line)
        if place not in self._structure:
            scope = self._scope(key, lines, frame)
            if scope is None:
                return (), (), ()
            self._structure[place] = (_loops(scope), _conditions(scope, frame.line), _contexts(scope, frame.line))
        return self._structure[place]

    def _scope(self, key: Key, lines: Lines, frame: Frame) -> ast.AST | None:
        """The frame's function or module; None if it can't be parsed."""
        if frame.library and (function := _parse_function(lines, frame)) is not None:
            return function  # parsing the whole module of a package may take long
        if frame.library:  # not cached: the tree of a large module takes 10 MB
            tree = _tree(lines.text)
            return None if tree is None else _scope_of(tree, _functions_of(tree), frame)
        if key not in self._trees:
            self._trees[key] = _tree(lines.text)
        tree = self._trees[key]
        return None if tree is None else _scope_of(tree, self._functions(key, tree), frame)

    def _functions(self, key: Key, tree: ast.Module) -> list[_Function]:
        if key not in self._defined:
            self._defined[key] = _functions_of(tree)
        return self._defined[key]


def _functions_of(tree: ast.Module) -> list[_Function]:
    return [node for node in _statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _tree(text: str) -> ast.Module | None:
    """The syntax tree of a file; None if it can't be parsed. The trees of short texts are cached between polls."""
    return _cached_tree(text) if len(text) <= _MAX_CACHED_TEXT else _parsed(text)


@lru_cache(8)
def _cached_tree(text: str) -> ast.Module | None:
    return _parsed(text)


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _parse_function(lines: Lines, frame: Frame) -> ast.AST | None:
    """The function around a frame's line, parsed without its module; None if its text can't be found."""
    name = re.escape(frame.function.rpartition(".")[2])
    head = re.compile(rf"(\s*)(async )?def {name}\b")
    first = next((at for at in range(frame.line - 1, -1, -1) if head.match(lines[at])), None)
    if first is None:
        return None
    indent = len(lines[first]) - len(lines[first].lstrip())
    last = first + 1
    while last < len(lines) and (last < frame.line or not _dedents(lines[last], indent)):
        last += 1
    tree = _tree("\n".join(line[indent:] for line in lines[first:last]))
    if tree is None or not tree.body or not isinstance(tree.body[0], ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    return ast.increment_lineno(copy.deepcopy(tree.body[0]), first)


def _dedents(line: str, indent: int) -> bool:
    """Whether a line can't belong to the body of a function whose `def` has this indentation."""
    text = line.lstrip()
    return bool(text) and text[0] not in "#)" and len(line) - len(text) <= indent


def _loops(scope: ast.AST) -> tuple[Loop, ...]:
    nodes = _own_nodes(scope)
    guards = [node for node in nodes if isinstance(node, ast.Try)]
    return tuple(_loop(node, guards) for node in nodes if isinstance(node, ast.For | ast.While | ast.AsyncFor))


def _conditions(scope: ast.AST, line: int) -> tuple[str, ...]:
    """The conditions that are true at a line, outermost first: the tests of the `if`s around it, the negated tests of earlier
    `if`s that leave its block (`if rank != 0: return`), and the `except` around it."""
    found: list[tuple[int, str]] = []
    for node in _own_nodes(scope):
        if isinstance(node, ast.If):
            test = ast.unparse(node.test)
            found += [(node.lineno, test)] * _contains(node.body, line)
            found += [(node.lineno, negated(test))] * _contains(node.orelse, line)
        elif isinstance(node, ast.ExceptHandler) and _contains(node.body, line):
            found.append((node.lineno, f"except {ast.unparse(node.type) if node.type else ''}".strip()))
    for node in (scope, *_own_nodes(scope)):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and _contains(block, line):
                found += [
                    (guard.lineno, negated(ast.unparse(guard.test)))
                    for guard in block
                    if isinstance(guard, ast.If) and not guard.orelse and (guard.end_lineno or 0) < line
                    and isinstance(guard.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
                ]  # fmt: skip
    return tuple(text[:200] for _, text in sorted(found))


def _contexts(scope: ast.AST, line: int) -> tuple[str, ...]:
    """The context managers of the `with` statements around a line, outermost first."""
    around = [n for n in _own_nodes(scope) if isinstance(n, ast.With | ast.AsyncWith) and _contains(n.body, line)]
    items = [item for node in sorted(around, key=lambda node: node.lineno) for item in node.items]
    return tuple(ast.unparse(item.context_expr)[:200] for item in items)


def _contains(block: list[ast.stmt], line: int) -> bool:
    return bool(block) and block[0].lineno <= line <= (block[-1].end_lineno or 0)


def _scope_of(tree: ast.Module, functions: list[_Function], frame: Frame) -> ast.AST:
    """The innermost function around the frame's line; the module for module-level code."""
    if frame.function == "<module>":
        return tree
    name = frame.function.rpartition(".")[2]
    around = [node for node in functions if node.name == name and node.lineno <= frame.line <= (node.end_lineno or 0)]
    return max(around, key=lambda node: node.lineno, default=tree)


def _own_nodes(scope: ast.AST) -> list[ast.AST]:
    """All statements of a function and the handlers of its `try`s, without those of functions and classes inside it."""
    return list(_statements(scope, inner=False))


def _statements(scope: ast.AST, *, inner: bool = True) -> Iterator[ast.AST]:
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


def _loop(node: ast.For | ast.While | ast.AsyncFor, guards: Iterable[ast.Try]) -> Loop:
    """A loop; `guards` are the `try` statements of its function."""
    exits = [
        *_exits(node.body),
        *(one for guard in guards if _contains(guard.body, node.lineno) for one in _caught(guard)),
    ]
    common: dict[str, Any] = {
        "line": node.lineno, "end_line": node.end_lineno or node.lineno, "advances": _advanced_names(node),
        "exits": tuple(sorted(exits, key=lambda one: one.line))[:_MAX_EXITS],
    }  # fmt: skip
    if isinstance(node, ast.While):
        counters = _incremented_names(node)
        tested = [n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)]
        first = tuple(sorted(dict.fromkeys(counters), key=lambda name: name not in tested))
        return Loop(
            **common,
            header=f"while {ast.unparse(node.test)}"[:160],
            counters=first,
            bound=_while_bound(node, first),
        )
    header = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"[:160]
    counters, start, bound = (), None, None
    call = _innermost_counting_call(node.iter)
    if call is not None and isinstance(call.func, ast.Name):
        target = node.target.elts[0] if isinstance(node.target, ast.Tuple) and node.target.elts else node.target
        if isinstance(target, ast.Name):
            counters = (target.id,)
        if call.func.id == "enumerate":
            start_value = (
                call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "start"), None)
            )
            start = 0 if start_value is None else _constant(start_value)
        else:
            # A range that begins at a variable counts its steps from 0.
            start = 0 if len(call.args) == 1 else _constant(call.args[0]) or 0
            if len(call.args) < 3:
                bound = _plain(call.args[min(1, len(call.args) - 1)])
    if not counters:
        # `for batch in loader: ...; n += 1`
        counters = _incremented_names(node)
    return Loop(**common, header=header, counters=counters, start=start, bound=bound)


def _caught(guard: ast.Try) -> Iterator[Exit]:
    """The handlers that continue after an exception."""
    for handler in guard.handlers:
        if not isinstance(handler.body[-1], ast.Raise):
            caught = f"except {ast.unparse(handler.type) if handler.type else ''}".strip()
            yield Exit(line=handler.lineno, statement="except", conditions=(caught[:200],))


def _exits(block: list[ast.stmt], conditions: tuple[str, ...] = (), *, inner: bool = False) -> Iterator[Exit]:
    """The statements in a block that leave the loop. A `break` of a loop inside it (`inner`) does not leave it."""
    for node in block:
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break) and not inner):
            yield Exit(line=node.lineno, statement=type(node).__name__.lower(), conditions=conditions)
        elif isinstance(node, ast.If):
            test = ast.unparse(node.test)[:200]
            yield from _exits(node.body, (*conditions, test), inner=inner)
            yield from _exits(node.orelse, (*conditions, negated(test)), inner=inner)
        elif isinstance(node, ast.Try):
            yield from _exits([*node.body, *node.orelse, *node.finalbody], conditions, inner=inner)
            for handler in node.handlers:
                caught = f"except {ast.unparse(handler.type) if handler.type else ''}".strip()
                yield from _exits(handler.body, (*conditions, caught), inner=inner)
        elif isinstance(node, ast.With | ast.AsyncWith):
            yield from _exits(node.body, conditions, inner=inner)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            yield from _exits([*node.body, *node.orelse], conditions, inner=True)
        elif isinstance(node, ast.Match):
            yield from (found for case in node.cases for found in _exits(case.body, conditions, inner=inner))


def _incremented_names(loop: ast.AST) -> tuple[str, ...]:
    """Names that a loop's body increments by one: `n += 1`."""
    return tuple(
        node.target.id
        for node in _statements(loop)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
        and node.value.value == 1
    )


def _advanced_names(loop: ast.For | ast.While | ast.AsyncFor) -> tuple[str, ...]:
    """Names that a loop and the loops inside it change: their targets, `n += k` and `n = n + k`."""
    found: list[str] = []
    for node in (loop, *_statements(loop)):
        if isinstance(node, ast.For | ast.AsyncFor):
            found += [n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)]
        elif (
            isinstance(node, ast.AugAssign)
            and isinstance(node.op, ast.Add | ast.Sub)
            and isinstance(node.target, ast.Name)
        ):
            found.append(node.target.id)
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.BinOp)
            and isinstance(node.value.op, ast.Add | ast.Sub)
        ):
            read = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            found += [target.id for target in node.targets if isinstance(target, ast.Name) and target.id in read]
    return tuple(dict.fromkeys(found))


def _innermost_counting_call(node: ast.expr) -> ast.Call | None:
    """The `enumerate(...)` or `range(...)` that a `for` iterates over, also inside `tqdm(...)`."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in ("enumerate", "range"):
            return inner if inner.args else None
    return None


def _while_bound(node: ast.While, counters: tuple[str, ...]) -> str | None:
    test = node.test
    if (
        isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Lt)
        and isinstance(test.left, ast.Name) and test.left.id in counters
    ):  # fmt: skip
        return _plain(test.comparators[0])
    return None


def _constant(node: ast.expr) -> int | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _plain(node: ast.expr) -> str | None:
    """A number or a name as text; None for any other expression."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return str(node.value)
    return node.id if isinstance(node, ast.Name) else None
