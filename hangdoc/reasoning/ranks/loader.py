"""Whether a rank is fetching its next batch, and why torch's DataLoader delivers none: its workers, or the rank itself if it has
none."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

from msgspec.structs import replace

from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.kernel import FUTEX, how_it_ended, stopped_by, was_ended_by_signal, was_terminated
from hangdoc.reasoning.evidence.stack import user_frames
from hangdoc.reasoning.model.holds import Ends, WaitsForLoader, describe_holders
from hangdoc.reasoning.ranks import iterators, locks
from hangdoc.reasoning.ranks.counters import counters_moved, is_over_data
from hangdoc.reasoning.ranks.movement import kernel_thread, tid_of
from hangdoc.regex import regex
from hangdoc.snapshot import Clocks, Frame, Holder, Loop, Process, PythonThread
from hangdoc.torch_facts import file_names, thread_names

_JOIN = file_names.Function("/multiprocessing/process.py", "join")
_FORK = file_names.Function("multiprocessing/popen_fork.py", "_launch")
"""Of Python's library: it calls os.fork, and in the child what the process is to do."""
_FORK_SECONDS = 0.9
"""A child process that is at rest in os.fork for so long does not come back. A window is a little shorter than a second."""
_EXPRESSIONS = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<lambda>")
"""Functions without a name, within that of the line that they are in."""
_CALLED = regex(r"([\w\])]+)\(")
_CALL_NO_MODULE = {"enumerate", "len", "range", "reversed", "zip"}


class Waiting(NamedTuple):
    """What a thread of a worker waits for, as a clause, and whether that ends without help."""

    why: str
    ends: Ends
    holders: tuple[Holder, ...] = ()
    """The processes that can end it, as far as they are known."""


FindWait = Callable[[Process, PythonThread], Waiting | None]


def find_loader_wait(thread: PythonThread, helpers: Sequence[Process], find_wait: FindWait) -> WaitsForLoader:
    """What blocks a thread that is in the DataLoader. `helpers`: the helper processes of the rank. `find_wait`
    returns what a thread of a process waits for, or None."""
    ending = _describe_end_of_workers(thread)
    if ending is not None and _is_at(_JOIN, thread):
        about = f"{ending}, for at most 5 s each"
        return WaitsForLoader(about=about, certainty=0.9, ends="by-itself", fault="ending")
    inside = _find_own_loading(thread)
    workers = sorted((helper for helper in helpers if is_worker(helper)), key=lambda worker: worker.pid)
    dead = [worker for worker in workers if worker.state in "ZX" and (ending is None or not _was_asked_to_end(worker))]
    stopped = [worker for worker in workers if stopped_by(worker) is not None]
    in_fork = [helper for helper in helpers if is_in_fork(helper) and helper not in dead + stopped]
    alive = (worker for worker in workers if worker not in dead + stopped)
    stuck = [(worker, frame) for worker in alive if (frame := find_worker_frame(worker)) is not None]
    # The state shows that its workers are not busy, so a runnable worker does not get CPU.
    starved = [
        worker
        for worker in workers
        if worker.state == "R" or ((main := kernel_thread(worker, None)) is not None and main.state == "R")
    ]
    shown = (*dead, *stopped, *(worker for worker, _ in stuck))[:4]
    likely = 0.9 if stuck else 0.6
    if inside is not None:
        about = f"it loads data itself (num_workers=0) and has not returned from {inside.function}"
        return WaitsForLoader(about=about, certainty=0.9, by_rank=True, shown=shown)
    # The end of the workers needs none of them, unless one holds a lock that they share.
    ends: Ends = "never" if ending is None else "unknown"
    if dead:
        about = f"is dead: {how_it_ended(dead[0])}{', while the rank ends its workers' if ending is not None else ''}"
        return WaitsForLoader(about=about, certainty=0.95, worker=dead[0], ends=ends, shown=shown, fault="dead")
    if stopped:
        return WaitsForLoader(about="is stopped", certainty=0.95, worker=stopped[0], ends=ends, shown=shown)
    if ending is not None:
        return WaitsForLoader(about=ending, certainty=0.9, shown=shown, fault="ending")
    if in_fork:
        about = "has not returned from os.fork: it waits for a lock that another thread held when it was forked"
        return WaitsForLoader(
            about=about, certainty=0.9, worker=in_fork[0], ends="never", shown=tuple(in_fork[:4]), fault="forked"
        )
    if not workers:
        unread = any(not observed.python_threads(helper) for helper in helpers)  # one of these may be a worker
        about = "its DataLoader workers could not be observed" if unread else "its DataLoader workers are gone"
        return WaitsForLoader(about=about, certainty=likely, fault="waits" if unread else "gone")
    if starved:
        about = "is runnable but gets almost no CPU"
        return WaitsForLoader(about=about, certainty=likely, worker=starved[0], shown=shown, fault="starved")
    if not stuck:
        return WaitsForLoader(
            about="its DataLoader workers are not making progress", certainty=likely, shown=tuple(workers[:1])
        )
    worker, frame = stuck[0]
    waits = [_find_wait_of_worker(stuck_worker, find_wait) for stuck_worker, _ in stuck]
    wait = waits[0]
    holders = wait.holders if wait is not None else ()
    held = f" (which {describe_holders(holders)} can end)" if holders else ""
    what = f": {wait.why}{held}" if wait is not None else ""
    about = f"has not returned from {frame.function}{what}"
    # All workers must wait without an end: another one may deliver a batch.
    never = len(stuck) == len(workers) and all(each is not None and each.ends == "never" for each in waits)
    ends = "never" if never else "by-itself" if wait is not None and wait.ends == "by-itself" else "unknown"
    fault: Literal["inherited", "waits"] = "inherited" if _is_at_dead_lock(worker) else "waits"
    return WaitsForLoader(
        about=about, certainty=likely, worker=worker, shown=shown, ends=ends, holders=holders, fault=fault
    )


def _was_asked_to_end(worker: Process) -> bool:
    """Whether a worker ended as torch asks it to: by itself, or by its terminate()."""
    return not was_ended_by_signal(worker) or was_terminated(worker)


def _describe_end_of_workers(thread: PythonThread) -> str | None:
    """Why a thread ends the workers of its loader, as a clause; None if it does not."""
    frames = [frame for frame in thread.frames if not frame.native]
    ends = file_names.DATALOADER_ENDS_WORKERS
    at = next((at for at, frame in enumerate(frames) if ends.is_at(frame.file, frame.function)), None)
    if at is None:
        return None
    has_all = any(file_names.DATALOADER_NEXT.is_at(caller.file, caller.function) for caller in frames[at + 1 : at + 2])
    return "it has had all batches, and ends its workers" if has_all else "it ends its workers"


def _is_at(function: file_names.Function, thread: PythonThread) -> bool:
    """Whether a thread is in a function."""
    return any(function.is_at(frame.file, frame.function) for frame in thread.frames)


def _find_wait_of_worker(worker: Process, find_wait: FindWait) -> Waiting | None:
    """What the thread that makes the batches waits for; None if that is not known."""
    if _is_at_dead_lock(worker):  # only a thread of the worker could release it
        return Waiting("waiting for a lock that was held when the worker was forked", "never")
    thread = find_worker_thread(worker)
    return find_wait(worker, replace(thread, frames=_list_frames_above_loop(thread))) if thread is not None else None


def _is_at_dead_lock(worker: Process) -> bool:
    """Whether a worker is at a lock of its own process, and none of its other threads may have it: one in the user's code may
    wait for a server with the lock held."""
    waiting = {tid_of(worker, thread) for thread, _ in locks.find_threads_at_locks(worker)}
    if not waiting or not locks.others_are_idle(worker, waiting):
        return False
    others = [thread for thread in observed.python_threads(worker) if tid_of(worker, thread) not in waiting]
    files = (file for kernel in observed.threads(worker) if kernel.tid in waiting for file in kernel.files)
    return not any(map(user_frames, others)) and not any(file.kind == "shared-memory" for file in files)


def _find_own_loading(thread: PythonThread) -> Frame | None:
    """The user's frame that the loader called in the rank itself; None if workers load."""
    frames = [f for f in thread.frames if not f.native]
    inner = next((i for i, f in enumerate(frames) if f.file.endswith(file_names.DATALOADER)), 0)
    return next((f for f in frames[:inner] if not f.library), None)


def list_asking(thread: PythonThread | None) -> list[Frame]:
    """The functions of the user that ask for the data which a thread loads itself, innermost first: the one with the loop over
    it, and those that called that. Empty where workers load, and for a thread that is in no loader."""
    if thread is None or _find_own_loading(thread) is None:
        return []
    frames = [frame for frame in thread.frames if not frame.native]
    outermost = max(at for at, frame in enumerate(frames) if frame.file.endswith(file_names.DATALOADER))
    own = [frame for frame in frames[outermost + 1 :] if not frame.library]
    return [frame for frame in own if file_names.bare_name(frame.function) not in _EXPRESSIONS]


def list_unawaited_workers(process: Process | None, thread: PythonThread | None) -> frozenset[int]:
    """The workers that fetch ahead for a loop in whose body the thread of the rank loads other data itself: it waits for none of
    them. Empty for any other thread."""
    if not list_asking(thread):
        return frozenset()
    loaders = iterators.list_loaders(process)
    return frozenset(pid for loader in loaders if loader.asked is False for pid in loader.workers)


def is_worker(helper: Process) -> bool:
    return helper.name == thread_names.DATALOADER_WORKER or find_worker_thread(helper) is not None


def is_in_fork(helper: Process) -> bool:
    """Whether a child process is at rest in os.fork: CPython, or a library, waits there for a lock that another thread of the
    parent held. Only that thread could release it, and the child does not have it."""
    frames = [frame for thread in observed.python_threads(helper) for frame in thread.frames[:1]]
    main = kernel_thread(helper, None)
    if main is None or main.syscall != FUTEX or main.timed is not False or main.cpu_ns > 0:
        return False
    window = helper.clocks.window_seconds if isinstance(helper.clocks, Clocks) else 0.0
    rests = window + (main.idle_seconds or 0.0) >= _FORK_SECONDS
    return rests and any(_FORK.is_at(frame.file, frame.function) for frame in frames)


def find_worker_thread(helper: Process) -> PythonThread | None:
    """The thread of a worker process that makes its batches."""
    for thread in observed.python_threads(helper):
        if _is_at(file_names.DATALOADER_WORKER, thread):
            return thread
    return None


def find_worker_frame(helper: Process) -> Frame | None:
    """The innermost frame of the user's code above the worker loop, or of a package the function that torch called for the data;
    None if the worker waits for work in its queue."""
    thread = find_worker_thread(helper)
    frames = [frame for frame in _list_frames_above_loop(thread) if not frame.native] if thread is not None else []
    if (own := next((frame for frame in frames if not frame.library), None)) is not None:
        return own
    fetches = next((at for at, frame in enumerate(frames) if frame.file.endswith(file_names.DATALOADER_FETCH)), 0)
    return frames[fetches - 1] if fetches > 0 else None


def _list_frames_above_loop(thread: PythonThread) -> tuple[Frame, ...]:
    """The frames that a worker's loop called. Below it are those of the rank that forked the worker."""
    return tuple(takewhile(lambda frame: not frame.file.endswith(file_names.DATALOADER_WORKER.file), thread.frames))


def is_fetching(thread: PythonThread | None) -> bool:
    """Whether the thread is inside the iterator of a `for`, or a `next(...)`: it is getting its next batch."""
    return bool(find_consumers(thread))


def find_consumers(thread: PythonThread | None) -> list[Frame]:
    """The frame that waits for an iterator's next element and the frames around it, outermost last; none where the
    thread is in no iterator. Of iterators within iterators, the outermost: what it feeds is the training."""
    frames = [] if thread is None else [f for f in thread.frames if not f.native]
    for index in range(len(frames) - 1, 0, -1):  # from the outside in; the innermost frame does not fetch
        frame = frames[index]
        at_header = any(
            loop.header.startswith("for")
            and is_over_data(loop)  # a range runs no code
            and loop.line == frame.line
            and not _is_in_body(frame, loop, frames[:index])
            for loop in frame.loops
        )
        if not frame.library and (at_header or "next(" in (frame.source or "")):
            return frames[index:]
    return []


def _is_in_body(frame: Frame, loop: Loop, called: Sequence[Frame]) -> bool:
    """Whether a frame is in the body of a loop of one line: `for block in model: fully_shard(block)`, in `fully_shard`, or
    `for block in self.blocks: x = block(x)`, in a module: which no header calls that calls only Python's own functions."""
    body = _remove_spaces(frame.source or "").partition(_remove_spaces(f"{loop.header}:"))[2]
    if any(f"{file_names.bare_name(inner.function)}(" in body for inner in called):
        return True
    next_in = called[-1]
    in_module = file_names.MODULE_CALL.is_at(next_in.file, next_in.function)
    return in_module and "(" in body and set(_CALLED.findall(loop.header)) <= _CALL_NO_MODULE


def _remove_spaces(text: str) -> str:
    """A line of code without spaces, which a header has where `ast.unparse` writes them."""
    return "".join(text.split())


def calls_method(frame: Frame) -> bool:
    """Whether a frame that waits for a next element gets it from a method of that name. It returns, while an iterator yields."""
    return ".next(" in (frame.source or "")


def is_starving(process: Process, thread: PythonThread | None) -> bool:
    """Whether a thread was fetching the same next element in both stacks: its consumers are at the same lines, and none of their
    counters changed. Counters of the iterator itself may change, because it may run in an endless loop."""
    now = find_consumers(thread)
    if not now or thread is None or counters_moved(process, among=now):
        return False
    earlier = [t for t in observed.threads_before(process) if t.tid == thread.tid and t.name == thread.name]
    places = [(frame.file, frame.function, frame.line) for frame in now]
    # The first stack has no source to find the consumers in, and needs none: they are its outermost frames.
    return any(
        len(t.frames) > len(places) and [(f.file, f.function, f.line) for f in t.frames][-len(places) :] == places
        for t in earlier
    )
