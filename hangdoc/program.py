"""Finds the frames of a stack that are the program: the code that decides which collective comes next.

This is the user's code. If a framework has the training loop (Lightning, transformers, trl), its frames belong to the program
too. Frames inside a call of torch do not: they are layers, hooks and transports, which decide nothing.
"""

import ast
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

from hangdoc.parse import parsed_expression, unparsed
from hangdoc.regex import regex
from hangdoc.snapshot import Exit, Frame, Loop
from hangdoc.torch_facts import file_names

_PACKAGES = "-packages/"
_TESTS_FILES = regex(
    r"\b(exists|lexists|is_file|isfile|is_dir|isdir|glob|iglob|rglob|listdir|scandir|iterdir|access|stat|getmtime|getsize)\("
)
_TESTS_PATH = frozenset({"exists", "lexists", "isfile", "isdir"})
"""Functions of os.path that tell whether something is at a path."""
_PATH_MODULES = frozenset({"", "os.path", "path", "osp"})
"""What people call os.path."""
_CLOCK = regex(r"(time\.)?(monotonic|time|perf_counter)(_ns)?|(datetime\.){0,2}(now|utcnow)")
"""Functions of Python that tell the time."""
_ASKS_STORE = frozenset({"add", "check", "get", "num_keys"})
"""Methods of torch's stores that a loop may test."""
_CONVERTS = frozenset({"bool", "int", "len", "str"})
END_OF_DATA = "except StopIteration"
"""The condition of a statement that runs at the end of data which the program reads with `next()`."""
_DEEPEST = 20
"""Nested sums and products of a test. A person writes a few."""
_CONSOLE_SCRIPT = regex(r"/bin/[^/.]+$")


def program(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The program's frames among the frames of a thread; both innermost first."""
    return tuple(frames[at] for at in positions(frames))


def around(frame: Frame) -> list[Loop]:
    """The loops of its function that a frame is in, the outermost first."""
    inside = (loop for loop in frame.loops if loop.line <= frame.line <= loop.end_line)
    return sorted(inside, key=lambda loop: loop.line)


def tests_files(loop: Loop) -> bool:
    """Whether a file that comes or goes ends a loop: a test in its header, or of a statement that leaves it."""
    tests = (test for way_out in loop.exits for test in way_out.conditions)
    return any(_TESTS_FILES.search(text) for text in (loop.header, *tests))


def path_that_must_go(loop: Loop) -> str | None:
    """The variable with the path of a loop that ends when nothing is at that path any more, and only then: `while
    os.path.exists(lock)`. None for any other loop."""
    header = parsed_expression(loop.header.removeprefix("while ")) if loop.header.startswith("while ") else None
    tests = [end.conditions for end in loop.exits]
    match header, tests:
        case ast.Constant(value=True), [(denied,)] if denied.startswith("not "):
            test = parsed_expression(denied.removeprefix("not "))
        case _, []:
            test = header
        case _:
            return None
    match test:
        case ast.Call(func=function, args=[ast.Name(id=name)], keywords=[]):
            module, _, asks = (unparsed(function) or "").rpartition(".")
            return name if asks in _TESTS_PATH and module in _PATH_MODULES else None
    return None


def asks_store(loop: Loop) -> bool:
    """Whether only what a store of torch says ends a loop: each test that calls anything asks one, by the name of the variable,
    and one of them does. `while store.add(key, 0) < total`."""
    tests = [loop.header.removeprefix("while "), *(test for way_out in loop.exits for test in way_out.conditions)]
    calls = [
        node.func
        for test in (tests if loop.header.startswith("while ") else [])
        for node in ast.walk(parsed_expression(test) or ast.Call(ast.Name("?"), [], []))
        if isinstance(node, ast.Call)
    ]
    others = [call for call in calls if not _is_of_store(call)]
    return len(others) < len(calls) and all(isinstance(call, ast.Name) and call.id in _CONVERTS for call in others)


def _is_of_store(function: ast.expr) -> bool:
    """Whether a function is one of a store that answers at once."""
    if not isinstance(function, ast.Attribute) or function.attr not in _ASKS_STORE:
        return False
    return "store" in (unparsed(function.value) or "").rpartition(".")[2].lower()


def ends_at_a_time(loop: Loop) -> bool:
    """Whether a loop ends when its time is over, and by nothing else: its header is `clock() < end` or `clock() - begin <
    seconds`, none of these variables is changed in the loop, and no statement leaves it."""
    if (test := _time_test(loop)) is None:
        return False
    clock, begin, late = test
    # Another thread may renew an attribute, such as the time of the last beat.
    begins = begin is None or (isinstance(begin, ast.Name) and begin.id not in loop.advances)
    ends = not any(isinstance(node, ast.Call) for node in ast.walk(late)) and not {
        node.id for node in ast.walk(late) if isinstance(node, ast.Name)
    } & set(loop.advances)
    return _is_clock(clock) and begins and ends


def seconds_left(
    loop: Loop, value_of: Callable[[str], float | None], monotonic_us: int | None, wall_us: int | None
) -> float | None:
    """Seconds until a loop that `ends_at_a_time` ends, negative if its time is over, infinite if it never ends; None if unknown.
    `value_of`: the number that a variable has. The two clocks are those of its host, in microseconds."""
    test = _time_test(loop)
    if test is None:
        return None
    clock, begin, late = test
    name = (unparsed(clock) or "").removesuffix("()").rpartition(".")[2]
    now_us = wall_us if name.startswith("time") else monotonic_us
    begins, ends = _evaluate(begin, value_of) if begin is not None else 0.0, _evaluate(late, value_of)
    if now_us is None or begins is None or ends is None or "now" in name:
        return None
    until = begins + ends
    left = (until / 1e9 if name.endswith("_ns") else until) - now_us / 1e6
    return left if math.isfinite(left) else math.inf


def _time_test(loop: Loop) -> tuple[ast.expr, ast.expr | None, ast.expr] | None:
    """The clock, the begin (None for none) and the end of a loop with `clock - begin < end`, which no statement leaves."""
    header = loop.header.removeprefix("while ") if loop.header.startswith("while ") and not loop.exits else ""
    match parsed_expression(header):
        case ast.Compare(left=early, ops=[ast.Lt() | ast.LtE()], comparators=[late]):
            pass
        case ast.Compare(left=late, ops=[ast.Gt() | ast.GtE()], comparators=[early]):
            pass
        case _:
            return None
    if isinstance(early, ast.BinOp) and isinstance(early.op, ast.Sub):
        return early.left, early.right, late
    return early, None, late


def _evaluate(node: ast.expr, value_of: Callable[[str], float | None], depth: int = 0) -> float | None:
    """The value of a sum or a product of numbers and variables; None for anything else, and for one that is too deep."""
    if depth > _DEEPEST:
        return None
    match node:
        case ast.Constant(value=int() | float() as number):
            try:
                return float(number)
            except OverflowError:
                return math.inf
        case ast.Name(id=name):
            return value_of(name)
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult() as operation, right=right):
            first, second = (_evaluate(each, value_of, depth + 1) for each in (left, right))
            if first is None or second is None:
                return None
            return first + second if isinstance(operation, ast.Add) else first * second
        case _:
            return None


def _is_clock(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and not node.args and bool(_CLOCK.fullmatch(unparsed(node.func) or ""))


def positions(frames: Sequence[Frame]) -> tuple[int, ...]:
    """The positions of these frames in the stack."""
    own: list[int] = []
    outside = True
    for at in range(len(frames) - 1, -1, -1):
        frame = frames[at]
        if not frame.library:
            if not frame.native:
                own.append(at)
        elif outside and not frame.native and (kind := _classify(frame.file)) is not None:
            outside = kind == "package"
            if outside:
                own.append(at)
    return tuple(reversed(own))


def is_entry(frame: Frame) -> bool:
    """Whether the frame is the script that pip generates for a package's command, which is not part of the program."""
    return is_script(frame.file) and (frame.source or "").startswith("sys.exit(")


def is_script(file: str) -> bool:
    """Whether a file may be such a script, judged by its name."""
    return _CONSOLE_SCRIPT.search(file) is not None


@lru_cache(1024)
def _classify(file: str) -> Literal["package", "layer"] | None:
    """Whether a library file belongs to a package, to torch below the program ("layer"), or to neither (None)."""
    if file_names.INSTALLED in file:
        return None if any(part in file for part in file_names.CALLS_PROGRAM) else "layer"
    return "package" if _PACKAGES in file else None


def early_exits(loop: Loop) -> tuple[Exit, ...]:
    """What may leave a loop before its data has ended. `except StopIteration` is the end of the data."""
    return tuple(exit_ for exit_ in loop.exits if not _is_end_of_data(exit_))


def data_exits(loop: Loop) -> tuple[Exit, ...]:
    """What leaves a loop when the data has ended that it reads with `next()`."""
    return tuple(exit_ for exit_ in loop.exits if _is_end_of_data(exit_))


def _is_end_of_data(exit_: Exit) -> bool:
    """Whether the end of the data alone leads to a statement: a condition within the handler may be another reason."""
    return exit_.conditions[-1:] == (END_OF_DATA,)


def package_of(file: str) -> str | None:
    """The name by which the installed package of a file is imported; None for any other file."""
    _, installed, path = file.rpartition(_PACKAGES)
    return path.partition("/")[0].removesuffix(".py") if installed else None


def is_library(file: str) -> bool:
    """Whether a frame is not the user's code: the standard library, site-packages, hangdoc's watchdog, or code without a file."""
    if "/site-packages/" in file or "/dist-packages/" in file or "/hangdoc/watchdog/" in file or file.startswith("<"):
        return True
    _, python, tail = file.rpartition("/lib/python3.")
    return bool(python) and tail.partition("/")[0].rstrip("t").isdigit()
