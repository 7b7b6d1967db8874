"""Counters: integers in both readings, of the user's code and of loops that call it.

They come from the results of the stack and interpreter probes.
"""

from collections.abc import Iterator

from hangdoc.parse import integer
from hangdoc.program import around, program
from hangdoc.snapshot import Counter, Frame, Interpreter, Local, Stack, Unavailable

_MAX_COUNTERS = 80


def counters(
    before: Stack | Unavailable, after: Stack | Unavailable, interpreter: Interpreter | Unavailable
) -> tuple[Counter, ...]:
    """Integer variables that are in both readings, in the user's functions, at module level and in the loops of packages that
    call the user's functions; those of the innermost frame first, at most 80."""
    counted: dict[tuple[str, str, str], Counter] = {}
    if isinstance(before, Stack) and isinstance(after, Stack):
        earlier: dict[tuple[str, str, str], int] = {}
        for function, file, local, _ in _list_integers(before):
            earlier.setdefault((function, file, local.name), int(local.text))
        for function, file, local, frame in _list_integers(after):
            key = (function, file, local.name)
            if key in earlier and key not in counted and _counts(frame, local.name):
                counted[key] = _make_counter(key, earlier[key], int(local.text), frame)
    if isinstance(interpreter, Interpreter):
        module = _find_module_frame(after)
        earlier_globals = {local.name: int(local.text) for local in interpreter.globals_before}
        for local in interpreter.globals:
            if local.name in earlier_globals and _is_integer(local):
                key = ("<module>", module.file if module else "__main__", local.name)
                counted.setdefault(key, _make_counter(key, earlier_globals[local.name], int(local.text), module))
    return tuple(counted.values())[:_MAX_COUNTERS]


def _make_counter(key: tuple[str, str, str], before: int, after: int, frame: Frame | None) -> Counter:
    function, file, name = key
    looped = frame is not None and any(name in loop.counters for loop in frame.loops)
    advances = looped or (frame is not None and any(name in loop.advances for loop in frame.loops))
    return Counter(
        name=name, function=function, file=file, before=before, after=after, looped=looped, advances=advances
    )


def _list_integers(stack: Stack) -> Iterator[tuple[str, str, Local, Frame]]:
    """Those of the user's frames, and of the package's frames that call them."""
    for thread in stack.threads:
        package = {id(frame) for frame in program(thread.frames) if frame.library}
        called = False
        for frame in thread.frames:
            called |= not frame.library
            if not frame.library or (called and id(frame) in package):
                yield from ((frame.function, frame.file, local, frame) for local in frame.locals if _is_integer(local))


def _counts(frame: Frame, name: str) -> bool:
    """Whether an integer may show progress: any of the user's, and of a package one that a loop around its line advances."""
    return not frame.library or any(name in (*loop.counters, *loop.advances) for loop in around(frame))


def _is_integer(local: Local) -> bool:
    return integer(local.text) is not None


def _find_module_frame(stack: Stack | Unavailable) -> Frame | None:
    if isinstance(stack, Unavailable):
        return None
    return next((f for t in stack.threads for f in t.frames if f.function == "<module>" and not f.library), None)
