"""Whether a rank is fetching its next batch, and whether one arrives."""

from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.ranks.counters import counters_moved
from hangdoc.snapshot import Frame, Process, PythonThread


def fetching(thread: PythonThread | None) -> bool:
    """Whether the thread is inside the iterator of a `for`, or a `next(...)`: it is getting its next batch."""
    return bool(consumers(thread))


def consumers(thread: PythonThread | None) -> list[Frame]:
    """The frame that waits for an iterator's next element and the frames around it, outermost last; none where the
    thread is in no iterator. Of iterators within iterators, the outermost: what it feeds is the training."""
    frames = [] if thread is None else [f for f in thread.frames if not f.native]
    for index in range(len(frames) - 1, 0, -1):  # from the outside in; the innermost frame does not fetch
        frame = frames[index]
        at_header = any(loop.header.startswith("for") and loop.line == frame.line for loop in frame.loops)
        if not frame.library and (at_header or "next(" in (frame.source or "")):
            return frames[index:]
    return []


def starves(process: Process, thread: PythonThread | None) -> bool:
    """Whether a thread was fetching the same next element in both stacks: its consumers are at the same lines, and none of their
    counters changed. Counters of the iterator itself may change, because it may run in an endless loop."""
    now = consumers(thread)
    if not now or thread is None or counters_moved(process, among=now):
        return False
    earlier = [t for t in known.threads_before(process) if t.tid == thread.tid and t.name == thread.name]
    places = [(frame.file, frame.function, frame.line) for frame in now]
    # The first stack has no source to find the consumers in, and needs none: they are its outermost frames.
    return any(
        len(t.frames) > len(places) and [(f.file, f.function, f.line) for f in t.frames][-len(places) :] == places
        for t in earlier
    )
