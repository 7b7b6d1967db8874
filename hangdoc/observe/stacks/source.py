"""Source lines of frames, and the structure around them, from the files as the process sees them.

They are captured during the observation, so that a bundle can be read on a machine without the code.

A process decides what its source is, and so how long its parsing would take. Texts with too many tokens are not parsed as a
whole, each process has a `Budget`, and whatever the parser or a visitor of the tree raises costs the structure of one frame.
"""

import ast
import posixpath
import re
import time
from functools import lru_cache

import msgspec

from hangdoc import redact
from hangdoc.observe.access.process_files import ProcessFiles, files_of
from hangdoc.observe.memory.budget import Budget
from hangdoc.observe.stacks.source_files import Key, Lines, SourceFiles
from hangdoc.observe.stacks.source_structure import Structure, statements, structure
from hangdoc.phrases import shorten
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.program import program
from hangdoc.regex import regex
from hangdoc.snapshot import CONTEXT_LINES, Frame, PythonThread, Stack

_MAX_LINE = 1_000
"""Characters of a line of the context."""
_MAX_SHOWN = 200
"""Characters of the line of a frame."""
_MAX_TOKENS = 60_000
"""Of a text that is parsed, and of all parsed files of the program that are kept. A syntax tree takes some 250 bytes for each
token, and the worst one 1.8 kB. The parser holds the GIL, for 0.3 s with this number of tokens."""
_MAX_CACHED_TOKENS = 5_000
"""Of a text whose tree is kept between polls."""
_MAX_CHARACTERS = 600_000
_MAX_FUNCTION_LINES = 5_000
_MAX_PROBLEMS = 8
_TOKEN = regex(r"\w+|[^\w\s]")
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""What ast.parse, ast.unparse and visitors raise: MemoryError if the parser's stack is full, ValueError for an int of more than
4,300 digits."""


_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """Adds the source to stacks, and caches what it finds."""

    def __init__(self, proc: ProcFS) -> None:
        self._proc = proc
        self._files = SourceFiles()
        self._trees: dict[Key, ast.Module] = {}
        self._defined: dict[Key, list[_Function]] = {}
        self._tokens = 0
        """Of the texts of all `_trees`."""
        self._structure: dict[tuple[Key, str, int], Structure] = {}
        self._problems: dict[str, None] = {}
        """As `problems`, in order."""
        self._boot = next(
            (float(line.split()[1]) for line in proc.text("stat").splitlines() if line.startswith("btime")),
            0.0,
        )

    def renew(self) -> None:
        """Processes have started, and their source files may have changed since: see SourceFiles.renew."""
        self._files.renew()
        self._structure = {}
        self._problems = {}
        self._forget_trees()

    def problems(self) -> list[str]:
        """The first files of programs whose source is missing, one sentence each. Without it, loops are unknown."""
        return list(self._problems)

    def annotate(self, pid: int, start_ticks: int, stack: Stack, budget: Budget | None = None) -> Stack:
        """The stack with source lines in all Python frames, loops in the program's frames, and context in the user's code. It is
        the stack of the process `pid` that started at `start_ticks`. When its budget is spent, its other frames stay as they
        are."""
        budget = budget or Budget()
        started = self._boot + start_ticks / self._proc.ticks_per_second
        try:
            with files_of(self._proc, pid, start_ticks) as files:
                threads = tuple(self._thread(files, started, thread, budget) for thread in stack.threads)
        except (ProcError, OSError):
            return stack
        return msgspec.structs.replace(stack, threads=threads)

    def _thread(self, files: ProcessFiles, started: float, thread: PythonThread, budget: Budget) -> PythonThread:
        frames: list[Frame] = []
        began = time.thread_time()
        context_given = False
        program_frames = {id(frame) for frame in program(thread.frames)}
        for frame in thread.frames:
            if budget.spent:
                frames.append(frame)
                continue
            leaving = bool(frames) and frames[-1].function.endswith("__exit__")
            annotated = self._frame(
                files, started, frame, context=not context_given, loops=id(frame) in program_frames, leaving=leaving
            )
            context_given = context_given or annotated.context is not None
            frames.append(annotated)
            began = budget.charge(began, len(annotated.context or ""))
        return msgspec.structs.replace(thread, frames=tuple(frames))

    def _frame(
        self, files: ProcessFiles, started: float, frame: Frame, *, context: bool, loops: bool, leaving: bool
    ) -> Frame:
        """`leaving`: it calls the `__exit__` of a context manager."""
        if frame.native or frame.file.startswith("<"):
            return frame
        path = posixpath.join(files.directory, frame.file)  # `runpy` and `compile` take relative names
        relative = not frame.library and path != frame.file
        key, lines = self._files.lines(files, started, path, library=frame.library)
        other = relative and bool(lines) and not self._has_function(key, lines, frame)
        lines = Lines() if other else lines  # the process may have changed its directory since it read its file
        if not lines and loops and not frame.library and path.endswith(".py") and len(self._problems) < _MAX_PROBLEMS:
            why = "the file there does not have that code" if other else self._files.describe_gap(key)
            self._problems[f"the source of {shorten(path, _MAX_SHOWN)}, with its conditions and loops: {why}"] = None
        if not 0 < frame.line <= len(lines):
            return frame
        source = shorten(redact.source(lines[frame.line - 1].strip()[:_MAX_LINE]), _MAX_SHOWN)
        if not loops:
            return msgspec.structs.replace(frame, source=source)
        around = lines[max(0, frame.line - 1 - CONTEXT_LINES) : frame.line + 3]
        enclosing = self._structure_of(key, lines, frame)
        return msgspec.structs.replace(
            frame,
            source=source,
            context="\n".join(line[:_MAX_LINE] for line in around)
            if context and not frame.library and self._files.is_filtered(key)
            else None,
            loops=enclosing.loops,
            conditions=enclosing.conditions,
            reassigned=enclosing.reassigned,
            repeated=enclosing.repeated,
            contexts=enclosing.contexts,
            transfers=enclosing.transfers,
            leaves=enclosing.block_end if leaving else None,
            caught=enclosing.caught,
        )

    def _structure_of(self, key: Key, lines: Lines, frame: Frame) -> Structure:
        """The structure around the frame's line, computed once for all ranks at this line; empty if it can't be parsed."""
        place = (key, frame.function, frame.line)
        if place not in self._structure:
            try:
                scope = self._scope(key, lines, frame)
                functions = self._defined.get(key, ())
                around = [f for f in functions if f.lineno <= frame.line <= (f.end_lineno or f.lineno)]
                enclosing = (
                    Structure() if scope is None else structure(scope, frame.line, library=frame.library, around=around)
                )
            except _UNREADABLE:
                enclosing = Structure()
            self._structure[place] = enclosing
        return self._structure[place]

    def _has_function(self, key: Key, lines: Lines, frame: Frame) -> bool:
        """Whether the frame's line is in a function or class of its name, or in none if it is the module's."""
        if not 0 < frame.line <= len(lines):
            return False
        try:
            self._scope(key, lines, frame)
        except _UNREADABLE:
            return False
        tree = self._trees.get(key)
        defined = statements(tree) if tree is not None else ()
        named = (n for n in defined if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))
        around = [n.name for n in named if n.lineno <= frame.line <= (n.end_lineno or n.lineno)]
        names = [part for part in frame.function.split(".") if not part.startswith("<")]
        if names:
            return names[-1] in around
        return frame.function != "<module>" or not around  # a lambda has no name

    def _scope(self, key: Key, lines: Lines, frame: Frame) -> ast.AST | None:
        """The frame's function or module; None if it is too large to be parsed. Raises _UNREADABLE."""
        if frame.library:
            function = _parse_function(lines, frame)  # parsing the whole module of a package may take long
            if function is not None:
                return function
        elif key in self._trees:
            return _scope_of(self._trees[key], self._defined[key], frame)
        tokens = _count_tokens(lines.text)
        if tokens > _MAX_TOKENS:
            return None if frame.library else _parse_function(lines, frame)
        tree = _tree(lines.text)
        functions = _functions_of(tree)
        if not frame.library:  # otherwise not cached: the tree of a large module takes 10 MB
            if self._tokens + tokens > _MAX_TOKENS:
                self._forget_trees()
            self._trees[key], self._defined[key], self._tokens = tree, functions, self._tokens + tokens
        return _scope_of(tree, functions, frame)

    def _forget_trees(self) -> None:
        self._trees, self._defined, self._tokens = {}, {}, 0


def _functions_of(tree: ast.Module) -> list[_Function]:
    return [node for node in statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _count_tokens(text: str) -> int:
    """How many tokens a text has at most: words in comments count too, and of a short or huge one all characters."""
    whole = len(text) <= _MAX_CACHED_TOKENS or len(text) > _MAX_CHARACTERS
    return len(text) if whole else len(_TOKEN.findall(text))


def _tree(text: str) -> ast.Module:
    """The syntax tree of a text. Those of short texts are cached between polls. Raises _UNREADABLE."""
    return _cached_tree(text) if _count_tokens(text) <= _MAX_CACHED_TOKENS else ast.parse(text)


@lru_cache(8)
def _cached_tree(text: str) -> ast.Module:
    return ast.parse(text)


def _parse_function(lines: Lines, frame: Frame) -> ast.AST | None:
    """The function around a frame's line, parsed without its module; None if its text can't be found."""
    name = re.escape(frame.function.rpartition(".")[2])
    head = re.compile(rf"\s*(?:async )?def {name}\b")
    begin = max(-1, frame.line - 1 - _MAX_FUNCTION_LINES)
    first = next((at for at in range(frame.line - 1, begin, -1) if head.match(lines[at])), None)
    if first is None:
        return None
    indent = len(lines[first]) - len(lines[first].lstrip())
    last = first + 1
    end = min(len(lines), first + 2 * _MAX_FUNCTION_LINES)
    while last < end and (last < frame.line or not _dedents(lines[last], indent)):
        last += 1
    text = "\n".join(line[indent:] for line in lines[first:last])
    if _count_tokens(text) > _MAX_TOKENS:
        return None
    try:
        body = _tree("\n" * first + text).body  # with the lines above, so that its nodes have the lines of the file
    except _UNREADABLE:
        return None
    return body[0] if body and isinstance(body[0], ast.FunctionDef | ast.AsyncFunctionDef) else None


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
