"""Threads of one rank wait for each other, or one holds the GIL and never gives it back.

## What it finds

A rank whose training thread waits for a lock inside its own process: another thread stands still with the GIL in its
hands, two threads each hold what the other wants, a thread takes a lock that it already holds, or imports wait for each
other.

## Why it hangs

A lock is released by the thread that holds it, and that thread waits itself. The GIL is the one lock that every Python
thread needs: a C function that blocks without releasing it stops the whole process, in-process watchdogs included.

## Evidence

The stacks of the threads that stand at a `with lock:` or an `acquire`, at both looks; which thread holds the GIL; native
frames of the C call where they were taken.

## What to do

For two locks: take them in one order everywhere. For a lock taken twice: threading.RLock, or an inner function that
expects it held. For the GIL: call the C function through ctypes.CDLL instead of PyDLL, or release the GIL in the
extension (Py_BEGIN_ALLOW_THREADS). For imports: import before starting threads.

## When it would be wrong

A lock held by a thread that works for long is no deadlock. A rank that waits at an Event or a Queue waits for work, not
for a lock, and is not meant.

## References

- threading, locks: https://docs.python.org/3/library/threading.html
- Thread state and the global interpreter lock: https://docs.python.org/3/c-api/init.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import locks, states, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.snapshot import Frame, Process, PythonThread, Unavailable

CODE = "HD304"
NAME = "lock-deadlock"
EXPLAINS = ("HD202", "HD901")


def check(run: Run) -> Iterator[Finding]:
    """Every rank that waits for a lock of its own process while others wait for it."""
    victims = [rank.rank for rank in run.waiting() if not rank.moving]
    for rank in run.ranks.values():
        if rank.process is None or rank.label != "blocked" or rank.waits or rank.moving or rank.thread is None:
            continue
        if rank.state == "stopped":  # it keeps what it held, and waits for no lock
            continue
        found = _story(rank, rank.process)
        if found is not None:
            yield _finding(run, rank, [v for v in victims if v != rank.rank], *found)


def _story(rank: Rank, process: Process) -> tuple[str, float, list[Evidence]] | None:
    """(what happens, how sure, evidence); None for no story of locks."""
    thread = rank.thread
    assert thread is not None  # noqa: S101  (check gives only ranks with a stack)
    holder = locks.gil_holder(process, thread, states.kernel_thread(process, thread))
    if holder is not None:
        call = _c_call(process, holder)
        text = f"its thread {_name(holder)} holds the GIL {_at(holder)} and does not give it back{call}"
        return text, 0.93, [_evidence(rank, holder, "holds the GIL"), _evidence(rank, thread, "waits")]
    if locks.keeps_gil(process, thread):
        text = f"it stands in a C call that keeps the GIL, {_at(thread)}{_c_call(process, thread)}"
        return text, 0.75, [_evidence(rank, thread, "holds the GIL")]
    waiting = locks.waiting_threads(process)
    if not any(one.tid == thread.tid for one, _ in waiting):
        return None
    evidence = [_evidence(rank, one, "waits for a lock") for one, _ in waiting[:4]]
    if len(waiting) > 1:
        names = " and ".join(f"{_name(one)} at `{frame.source}`" for one, frame in waiting[:2])
        return f"its threads wait for each other's locks: {names}", 0.92, evidence
    return f"it waits for a lock that nobody releases, {_at(thread)}", 0.75, evidence


def _name(thread: PythonThread) -> str:
    return thread.name or str(thread.tid)


def _own(thread: PythonThread) -> Frame | None:
    frames = [f for f in thread.frames if not f.native]
    return next((f for f in frames if not f.library), frames[0] if frames else None)


def _at(thread: PythonThread) -> str:
    frame = _own(thread)
    return (
        f"at {frame.file.rpartition('/')[2]}:{frame.line} `{frame.source or '?'}`" if frame else "at an unknown place"
    )


def _evidence(rank: Rank, thread: PythonThread, what: str) -> Evidence:
    return Evidence(rank=rank.rank, probe="stacks", text=f"thread {_name(thread)} {what} {_at(thread)}")


def _c_call(process: Process, thread: PythonThread) -> str:
    """The C function a thread is in, where native frames were taken."""
    if isinstance(process.native, Unavailable):
        return ""
    same = next((t for t in process.native.threads if t.tid == thread.tid), None)
    frame = same.frames[0] if same is not None and same.frames and same.frames[0].native else None
    return f" (in {frame.function} of {frame.file.rpartition('/')[2]})" if frame else ""


def _finding(run: Run, rank: Rank, victims: list[int], what: str, sure: float, evidence: list[Evidence]) -> Finding:
    waits = f"; {words.ranks(victims)} {words.verb(victims, 'waits', 'wait')} for it" if victims else ""
    return words.finding(
        CODE,
        NAME,
        severity=words.by_age(run),
        confidence=sure,
        culprits=[rank.rank],
        victims=victims,
        summary=f"rank {rank.rank} waits for a lock: {what}{waits}",
        evidence=[*evidence, *words.class_evidence(run.ranks[n] for n in victims), *words.standstill(run)],
        remedy="Release the lock where it is held: one order for two locks, RLock for one taken twice, no blocking C call "
        "with the GIL held.",
        commands=words.look_again(rank),
    )
