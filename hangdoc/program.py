"""Finds the frames of a stack that are the program: the code that decides which collective comes next.

This is the user's code. If a framework has the training loop (Lightning, transformers, trl), its frames belong to the program
too. Frames inside a call of torch do not: they are layers, hooks and transports, which decide nothing.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from hangdoc.snapshot import Frame

_PACKAGES = "-packages/"
_TORCH = "-packages/torch/"
_CALLS_PROGRAM = re.compile(r"/torch/(utils/_contextlib\.py|distributed/(elastic/|run\.py|launch)|multiprocessing/)")
"""Parts of torch that call the program: decorators such as `no_grad`, and launchers."""
_CONSOLE_SCRIPT = re.compile(r"/bin/[^/.]+$")


def program(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The program's frames among the frames of a thread; both innermost first."""
    found: list[Frame] = []
    outside = True
    for frame in reversed(frames):
        if not frame.library:
            if not frame.native:
                found.append(frame)
        elif outside and not frame.native and (kind := _kind(frame.file)) is not None:
            outside = kind == "package"
            if outside:
                found.append(frame)
    return tuple(reversed(found))


def is_entry(frame: Frame) -> bool:
    """Whether the frame is the script that pip generates for a package's command, which is not part of the program."""
    return bool(_CONSOLE_SCRIPT.search(frame.file)) and (frame.source or "").startswith("sys.exit(")


@lru_cache(4096)
def _kind(file: str) -> Literal["package", "layer"] | None:
    """Whether a library file belongs to a package, to torch below the program ("layer"), or to neither (None)."""
    if _TORCH in file:
        return None if _CALLS_PROGRAM.search(file) else "layer"
    return "package" if _PACKAGES in file else None
