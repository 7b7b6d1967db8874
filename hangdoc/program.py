"""Which frames of a stack are the program: the code that decides which collective comes next.

That is the user's own code, and where a framework has the training loop (Lightning, transformers, trl), the framework's frames as
well. What lies inside a call of torch is a layer, a hook or a transport: it decides nothing.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from hangdoc.regex import regex
from hangdoc.snapshot import Frame

_PACKAGES = "-packages/"
_TORCH = "-packages/torch/"
_HANDS_ON = regex(r"/torch/(utils/_contextlib\.py|distributed/(elastic/|run\.py|launch)|multiprocessing/)")
"""Parts of torch that call the program: decorators such as `no_grad`, and launchers."""
_CONSOLE_SCRIPT = regex(r"/bin/[^/.]+$")


def program(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The program's frames among all frames of a thread, innermost first as these are."""
    return tuple(frames[at] for at in positions(frames))


def positions(frames: Sequence[Frame]) -> tuple[int, ...]:
    """Where these frames are in the stack."""
    found: list[int] = []
    outside = True
    for at in range(len(frames) - 1, -1, -1):
        frame = frames[at]
        if not frame.library:
            if not frame.native:
                found.append(at)
        elif outside and not frame.native and (kind := _kind(frame.file)) is not None:
            outside = kind == "package"
            if outside:
                found.append(at)
    return tuple(reversed(found))


def is_entry(frame: Frame) -> bool:
    """Whether it is a script that pip writes for a package's command: it says nothing about where the program is."""
    return is_script(frame.file) and (frame.source or "").startswith("sys.exit(")


def is_script(file: str) -> bool:
    """Whether a file may be such a script, by its name."""
    return _CONSOLE_SCRIPT.search(file) is not None


@lru_cache(4096)
def _kind(file: str) -> Literal["package", "layer"] | None:
    """What a library's file is: part of a package, of torch below the program, or neither."""
    if _TORCH in file:
        return None if _HANDS_ON.search(file) else "layer"
    return "package" if _PACKAGES in file else None
