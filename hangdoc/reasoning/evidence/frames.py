"""The user's frames of a stack, and where a rank is in them."""

from collections.abc import Sequence
from functools import lru_cache

from hangdoc.diagnosis import Where
from hangdoc.program import is_entry
from hangdoc.reasoning.evidence.reading import Reading
from hangdoc.snapshot import Frame, PythonThread
from hangdoc.torch_facts import file_names


def user_frames(thread: PythonThread | None) -> tuple[Frame, ...]:
    """Frames of the user's own code, innermost first."""
    return () if thread is None else tuple([f for f in thread.frames if not f.library and not f.native])


def innermost(thread: PythonThread) -> Frame | None:
    """The innermost Python frame."""
    return next((frame for frame in thread.frames if not frame.native), None)


def where(thread: PythonThread | None, read: Reading | None, own: Sequence[Frame]) -> tuple[Where | None, Frame | None]:
    """The innermost frame of the user's `own` code; where there is none, the innermost Python frame outside torch."""
    if thread is None or read is None:
        return None, None
    shown = [f for f in own if not is_entry(f)] if read.scripts else own
    own = shown or [
        f for f in thread.frames if not f.native and file_names.TORCH not in f.file and "site-packages" in f.file
    ]
    if not own:
        return None, None
    frame = own[0]
    return _shown(frame.file, frame.line, frame.function, frame.source), frame


@lru_cache(1024)
def _shown(file: str, line: int, function: str, source: str | None) -> Where:
    return Where(file=short(file), line=line, function=function, source=source)


def short(file: str) -> str:
    """The name of a file with one directory: short, but recognisable."""
    parts = file.split("/")
    return "/".join(parts[-2:]) if len(parts) > 2 and parts[-2] not in ("", "tmp") else parts[-1]
