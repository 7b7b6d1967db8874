"""Source lines of frames, and the loops around them, from the files as the process sees them.

Captured while observing, so that a bundle can be read on a machine that has none of the code. A file newer than the
process is not trusted: its lines may have moved.
"""

import ast
import copy
import os
import re
import stat
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from hangdoc import redact
from hangdoc.observe.lines import Lines
from hangdoc.observe.procfs import ProcError, ProcFS
from hangdoc.parse import negated
from hangdoc.program import program
from hangdoc.snapshot import Exit, Frame, Loop, PythonThread, Stack

_MAX_BYTES = 2_000_000
_CONTEXT_LINES = 30
_MAX_WHOLE = 300_000
_MAX_EXITS = 6
"""Characters; they take 0.2 s of CPU to filter, once."""
_BOUND_SECONDS = 2.0
_MOST_KEPT_TEXT = 20_000
"""Characters. A tree takes 20 to 45 times the memory of its text."""


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Around = tuple[tuple[Loop, ...], tuple[str, ...], tuple[str, ...]]
"""Loops of a function, and the conditions and contexts around a line of it."""


class Sources:
    """Reads and keeps source files for one observation."""

    def __init__(self, proc: ProcFS) -> None:
        self._proc = proc
        self._lines: dict[tuple[str, str], Lines] = {}
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="source")
        self._stuck = False
        self._trees: dict[tuple[str, str], ast.Module | None] = {}
        self._defined: dict[tuple[str, str], list[_Function]] = {}
        self._structure: dict[tuple[str, str, str, int], _Around] = {}
        self._boot = next(
            (float(line.split()[1]) for line in proc.text("stat").splitlines() if line.startswith("btime")),
            0.0,
        )

    def annotate(self, pid: int, stack: Stack) -> Stack:
        """The stack with source lines in all Python frames, loops in those of the program, and context in the user's own."""
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
        deciding = {id(frame) for frame in program(thread.frames)}
        for frame in thread.frames:
            annotated = self._frame(pid, started, frame, context=not context_given, loops=id(frame) in deciding)
            context_given = context_given or annotated.context is not None
            frames.append(annotated)
        return msgspec.structs.replace(thread, frames=tuple(frames))

    def _frame(self, pid: int, started: float, frame: Frame, *, context: bool, loops: bool) -> Frame:
        if frame.native or not frame.file.startswith("/"):
            return frame
        key = self._load(pid, started, frame.file, frame.library)
        lines = self._lines[key]
        if not 0 < frame.line <= len(lines):
            return frame
        source = redact.source(lines[frame.line - 1].strip())[:200]
        if not loops:
            return msgspec.structs.replace(frame, source=source)
        around = lines[max(0, frame.line - 1 - _CONTEXT_LINES) : frame.line + 3]
        found, conditions, contexts = self._around(key, frame)
        return msgspec.structs.replace(
            frame,
            source=source,
            context="\n".join(around) if context and not frame.library else None,
            loops=found,
            conditions=conditions,
            contexts=contexts,
        )

    def _load(self, pid: int, started: float, file: str, library: bool) -> tuple[str, str]:
        """Key of the file's lines; processes in one mount namespace share them."""
        try:
            namespace = self._proc.link(f"{pid}/ns/mnt")
        except ProcError:
            namespace = ""
        key = (namespace, file)
        if key not in self._lines:
            self._lines[key] = Lines()
            if not self._stuck:
                try:
                    path = f"{self._proc.root}/{pid}/root{file}"
                    text = self._reader.submit(_read, path, started).result(_BOUND_SECONDS)
                    # A literal may begin lines above the one that is shown, so the user's code is read as a whole.
                    whole = not library and len(text) < _MAX_WHOLE
                    self._lines[key] = Lines(redact.source(text) if whole else text)
                except FutureTimeout:
                    self._stuck = True  # a file system that does not answer: the next file would not come either
        return key

    def _around(self, key: tuple[str, str], frame: Frame) -> _Around:
        """Of the frame's function and line; once for all ranks that stand there."""
        place = (*key, frame.function, frame.line)
        if place not in self._structure:
            scope = self._scope(key, frame)
            if scope is None:
                return (), (), ()
            self._structure[place] = (_loops(scope), _conditions(scope, frame.line), _contexts(scope, frame.line))
        return self._structure[place]

    def _scope(self, key: tuple[str, str], frame: Frame) -> ast.AST | None:
        """The frame's function, or module; None where it can't be parsed."""
        if frame.library and (alone := _function_alone(self._lines[key], frame)) is not None:
            return alone  # a package's module may have thousands of lines
        if frame.library:  # not kept: the tree of a large module takes 10 MB
            tree = _tree(self._lines[key].text)
            return None if tree is None else _scope_of(tree, _functions_of(tree), frame)
        if key not in self._trees:
            self._trees[key] = _tree(self._lines[key].text)
        tree = self._trees[key]
        return None if tree is None else _scope_of(tree, self._functions(key, tree), frame)

    def _functions(self, key: tuple[str, str], tree: ast.Module) -> list[_Function]:
        if key not in self._defined:
            self._defined[key] = _functions_of(tree)
        return self._defined[key]


def _functions_of(tree: ast.Module) -> list[_Function]:
    return [node for node in _statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _tree(text: str) -> ast.Module | None:
    """None where it can't be parsed. A short text's tree is kept between looks, for somebody who looks again and again."""
    return _kept_tree(text) if len(text) <= _MOST_KEPT_TEXT else _parsed(text)


@lru_cache(16)
def _kept_tree(text: str) -> ast.Module | None:
    return _parsed(text)


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _function_alone(lines: Lines, frame: Frame) -> ast.AST | None:
    """The function around a frame's line, parsed without its module; None where its text can't be told apart."""
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


def _read(path: str, started: float) -> str:
    """The text of a regular file that is no newer than the process; empty where it can't be read."""
    try:
        about = os.stat(path)
        if stat.S_ISREG(about.st_mode) and about.st_mtime <= started + 1 and about.st_size <= _MAX_BYTES:
            return Path(path).read_text("utf-8", "replace")
    except OSError:
        pass
    return ""


def _loops(scope: ast.AST) -> tuple[Loop, ...]:
    return tuple(_loop(node) for node in _own_nodes(scope) if isinstance(node, ast.For | ast.While | ast.AsyncFor))


def _conditions(scope: ast.AST, line: int) -> tuple[str, ...]:
    """What is known to hold at a line, outermost first: tests of the `if`s around it, of earlier ones that would have
    left its block (`if rank != 0: return`), and the `except` it stands in."""
    found: list[tuple[int, str]] = []
    for node in _own_nodes(scope):
        if isinstance(node, ast.If):
            test = ast.unparse(node.test)
            found += [(node.lineno, test)] * _holds(node.body, line)
            found += [(node.lineno, negated(test))] * _holds(node.orelse, line)
        elif isinstance(node, ast.ExceptHandler) and _holds(node.body, line):
            found.append((node.lineno, f"except {ast.unparse(node.type) if node.type else ''}".strip()))
    for node in (scope, *_own_nodes(scope)):
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and _holds(block, line):
                found += [
                    (guard.lineno, negated(ast.unparse(guard.test)))
                    for guard in block
                    if isinstance(guard, ast.If) and not guard.orelse and (guard.end_lineno or 0) < line
                    and isinstance(guard.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)
                ]  # fmt: skip
    return tuple(text[:200] for _, text in sorted(found))


def _contexts(scope: ast.AST, line: int) -> tuple[str, ...]:
    """What the `with` statements around a line enter, outermost first."""
    around = [n for n in _own_nodes(scope) if isinstance(n, ast.With | ast.AsyncWith) and _holds(n.body, line)]
    items = [item for node in sorted(around, key=lambda node: node.lineno) for item in node.items]
    return tuple(ast.unparse(item.context_expr)[:200] for item in items)


def _holds(block: list[ast.stmt], line: int) -> bool:
    return bool(block) and block[0].lineno <= line <= (block[-1].end_lineno or 0)


def _scope_of(tree: ast.Module, functions: list[_Function], frame: Frame) -> ast.AST:
    """The innermost function around the frame's line, the module for module-level code."""
    if frame.function == "<module>":
        return tree
    name = frame.function.rpartition(".")[2]
    around = [node for node in functions if node.name == name and node.lineno <= frame.line <= (node.end_lineno or 0)]
    return max(around, key=lambda node: node.lineno, default=tree)


def _own_nodes(scope: ast.AST) -> list[ast.AST]:
    """All statements of a function and the handlers of its `try`s, not those of functions and classes inside it."""
    return list(_statements(scope, inner=False))


def _statements(scope: ast.AST, *, inner: bool = True) -> Iterator[ast.AST]:
    """All statements below a node and the handlers of its `try`s, those near to it first; with `inner`, also those of the
    functions and classes in it. `ast.walk` would look at all expressions, too, which are twenty times as many."""
    todo = deque([scope])
    while todo:
        node = todo.popleft()
        if node is not scope:
            yield node
            if not inner and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
        for block in ("body", "handlers", "orelse", "finalbody", "cases"):
            todo.extend(getattr(node, block, ()))


def _loop(node: ast.For | ast.While | ast.AsyncFor) -> Loop:
    common: dict[str, Any] = {
        "line": node.lineno, "end_line": node.end_lineno or node.lineno, "advances": _moved_on(node),
        "exits": tuple(sorted(_exits(node.body), key=lambda one: one.line))[:_MAX_EXITS],
    }  # fmt: skip
    if isinstance(node, ast.While):
        counters = _counted_by_hand(node)
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
            given = (
                call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "start"), None)
            )
            start = 0 if given is None else _constant(given)
        else:
            # A run that begins at `first_step` counts its steps from 0, as people do.
            start = 0 if len(call.args) == 1 else _constant(call.args[0]) or 0
            if len(call.args) < 3:
                bound = _plain(call.args[min(1, len(call.args) - 1)])
    if not counters:
        # `for batch in loader: ...; n += 1` counts by hand.
        counters = _counted_by_hand(node)
    return Loop(**common, header=header, counters=counters, start=start, bound=bound)


def _exits(block: list[ast.stmt], under: tuple[str, ...] = (), *, inner: bool = False) -> Iterator[Exit]:
    """What leaves a loop from a block of it; a `break` of a loop inside it (`inner`) does not."""
    for node in block:
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break) and not inner):
            yield Exit(line=node.lineno, statement=type(node).__name__.lower(), conditions=under)
        elif isinstance(node, ast.If):
            test = ast.unparse(node.test)[:200]
            yield from _exits(node.body, (*under, test), inner=inner)
            yield from _exits(node.orelse, (*under, negated(test)), inner=inner)
        elif isinstance(node, ast.Try):
            yield from _exits([*node.body, *node.orelse, *node.finalbody], under, inner=inner)
            for handler in node.handlers:
                caught = f"except {ast.unparse(handler.type) if handler.type else ''}".strip()
                yield from _exits(handler.body, (*under, caught), inner=inner)
        elif isinstance(node, ast.With | ast.AsyncWith):
            yield from _exits(node.body, under, inner=inner)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            yield from _exits([*node.body, *node.orelse], under, inner=True)
        elif isinstance(node, ast.Match):
            yield from (found for case in node.cases for found in _exits(case.body, under, inner=inner))


def _counted_by_hand(loop: ast.AST) -> tuple[str, ...]:
    """Names that a loop's body advances by one: `n += 1`."""
    return tuple(
        node.target.id
        for node in _statements(loop)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
        and node.value.value == 1
    )


def _moved_on(loop: ast.For | ast.While | ast.AsyncFor) -> tuple[str, ...]:
    """Names that a loop moves on: its targets, `n += k` and `n = n + k`, in itself and the loops inside it."""
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
    """The `enumerate(...)` or `range(...)` that a for runs over, also inside `tqdm(...)`."""
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
    """A number or a name as text; None for what would have to be computed."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return str(node.value)
    return node.id if isinstance(node, ast.Name) else None
