"""Source lines of frames, and the structure around them, from the files as the process sees them.

They are captured during the observation, so that a bundle can be read on a machine without the code.
"""

import ast
import copy
import re
from functools import lru_cache

import msgspec

from hangdoc import redact
from hangdoc.observe.lines import Lines
from hangdoc.observe.process_files import ProcessFiles, files_of
from hangdoc.observe.source_files import Key, SourceFiles
from hangdoc.observe.structure import Structure, statements, structure
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.program import program
from hangdoc.snapshot import Frame, PythonThread, Stack

_CONTEXT_LINES = 30
_MAX_CACHED_TEXT = 20_000
"""Characters. A syntax tree takes 20 to 45 times the memory of its text."""


_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """Adds the source to stacks, and caches what it finds."""

    def __init__(self, proc: ProcFS) -> None:
        self._proc = proc
        self._files = SourceFiles()
        self._trees: dict[Key, ast.Module | None] = {}
        self._defined: dict[Key, list[_Function]] = {}
        self._structure: dict[tuple[Key, str, int], Structure] = {}
        self._boot = next(
            (float(line.split()[1]) for line in proc.text("stat").splitlines() if line.startswith("btime")),
            0.0,
        )

    def renew(self) -> None:
        """Processes have started, and their source files may have changed since: see SourceFiles.renew."""
        self._files.renew()
        self._trees, self._defined, self._structure = {}, {}, {}

    def annotate(self, pid: int, start_ticks: int, stack: Stack) -> Stack:
        """The stack with source lines in all Python frames, loops in the program's frames, and context in the user's code. It is
        the stack of the process `pid` that started at `start_ticks`."""
        started = self._boot + start_ticks / self._proc.ticks_per_second
        try:
            with files_of(self._proc, pid, start_ticks) as files:
                threads = tuple(self._thread(files, started, thread) for thread in stack.threads)
        except (ProcError, OSError):
            return stack
        return msgspec.structs.replace(stack, threads=threads)

    def _thread(self, files: ProcessFiles, started: float, thread: PythonThread) -> PythonThread:
        frames: list[Frame] = []
        context_given = False
        program_frames = {id(frame) for frame in program(thread.frames)}
        for frame in thread.frames:
            leaving = bool(frames) and frames[-1].function.endswith("__exit__")
            annotated = self._frame(
                files, started, frame, context=not context_given, loops=id(frame) in program_frames, leaving=leaving
            )
            context_given = context_given or annotated.context is not None
            frames.append(annotated)
        return msgspec.structs.replace(thread, frames=tuple(frames))

    def _frame(
        self, files: ProcessFiles, started: float, frame: Frame, *, context: bool, loops: bool, leaving: bool
    ) -> Frame:
        """`leaving`: it calls the `__exit__` of a context manager."""
        if frame.native or not frame.file.startswith("/"):
            return frame
        key, lines = self._files.lines(files, started, frame.file, library=frame.library)
        if not 0 < frame.line <= len(lines):
            return frame
        source = redact.source(lines[frame.line - 1].strip())[:200]
        if not loops:
            return msgspec.structs.replace(frame, source=source)
        around = lines[max(0, frame.line - 1 - _CONTEXT_LINES) : frame.line + 3]
        found = self._structure_of(key, lines, frame)
        return msgspec.structs.replace(
            frame,
            source=source,
            context="\n".join(around) if context and not frame.library else None,
            loops=found.loops,
            conditions=found.conditions,
            repeated=found.repeated,
            contexts=found.contexts,
            transfers=found.transfers,
            leaves=found.block_end if leaving else None,
            caught=found.caught,
        )

    def _structure_of(self, key: Key, lines: Lines, frame: Frame) -> Structure:
        """The structure around the frame's line, computed once for all ranks at this line."""
        place = (key, frame.function, frame.line)
        if place not in self._structure:
            scope = self._scope(key, lines, frame)
            if scope is None:
                return Structure()
            self._structure[place] = structure(scope, frame.line, library=frame.library)
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
    return [node for node in statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


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


def _scope_of(tree: ast.Module, functions: list[_Function], frame: Frame) -> ast.AST:
    """The innermost function around the frame's line; the module for module-level code."""
    if frame.function == "<module>":
        return tree
    name = frame.function.rpartition(".")[2]
    around = [node for node in functions if node.name == name and node.lineno <= frame.line <= (node.end_lineno or 0)]
    return max(around, key=lambda node: node.lineno, default=tree)
