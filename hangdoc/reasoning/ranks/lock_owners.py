"""Which thread of a process holds a lock: no record says it, but the `with` statements around the lines of each thread do."""

from typing import NamedTuple

from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.evidence.stack import user_frames
from hangdoc.regex import regex
from hangdoc.snapshot import Frame, Process, PythonThread

At = tuple[PythonThread, Frame]
"""A thread that waits for a lock, and the frame of the user's code in which it does."""
_NAMED = regex(r"(?:^|\s)with ([\w.]+)(?: as \w+)?:|([\w.]+)\.acquire\(")
_Lock = tuple[int | str, str]
"""The object that a lock belongs to by its address, or the file of a global one; and the lock's name in it."""


class Holder(NamedTuple):
    """The thread that holds a lock."""

    thread: PythonThread
    frame: Frame
    """Where it is inside the `with` block of the lock."""
    lock: str
    """As the source names it."""
    again: bool = False
    """Whether it waits for the lock that it holds."""
    waits: bool = False
    """Whether it waits for another lock."""
    in_cycle: bool = False
    """Whether the chain leads back to a thread in it: threads that hold each other's locks."""


def holder_of(process: Process, at: At, waiting: list[At]) -> Holder | None:
    """The thread at the end of a chain: `at` waits for a lock whose holder may itself be in `waiting`, and so on. Of a cycle of
    several threads, one of them. None where the source does not show who holds a lock."""
    seen: list[PythonThread] = []
    found: Holder | None = None
    while at[0] not in seen:
        thread, frame = at
        seen.append(thread)
        name = _name_in(frame)
        inside = _inside(process, _lock(frame, name)) if name is not None else None
        if inside is None or name is None:
            return found
        holder, block = inside
        onward = next((one for one in waiting if one[0] is holder), None)
        found = Holder(holder, block, name, again=holder is thread, waits=onward is not None)
        if onward is None or holder is thread:
            return found
        at = onward
    return found._replace(in_cycle=True) if found is not None else None


def _inside(process: Process, lock: _Lock) -> At | None:
    """The thread that is in the `with` block of a lock, and its frame there. The `wait` of a condition gives its lock back
    meanwhile."""
    for thread in known.python_threads(process):
        for frame in user_frames(thread):
            for name in frame.contexts:
                if _lock(frame, name) == lock and f"{name}.wait" not in (frame.source or ""):
                    return thread, frame
    return None


def _name_in(frame: Frame) -> str | None:
    """The lock for which a line waits, as its source names it."""
    found = _NAMED.search(frame.source or "")
    return (found[1] or found[2]) if found is not None else None


def _lock(frame: Frame, name: str) -> _Lock:
    """What a name means in a frame: two objects of a class have different locks of one name."""
    owner, _, rest = name.partition(".")
    address = next((local.address for local in frame.locals if local.name == owner), None)
    return (address, rest) if address is not None else (frame.file, name)
