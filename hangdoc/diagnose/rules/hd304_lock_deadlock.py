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

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.model import Run
from hangdoc.diagnose.ranks.holds import AtLock
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD304"
NAME = "lock-deadlock"
ABOUT = (AtLock,)


def say(run: Run, blockage: Blockage) -> Finding:
    """A rank that is blocked by a lock of its own process."""
    kind = blockage.kind
    assert isinstance(kind, AtLock)  # noqa: S101  (see ABOUT)
    first, blamed = blockage.at[0].first, blockage.culprits
    where = f"on rank {first.rank}, " if len(blamed) > 1 else ""
    summary = f"{words.ranks(blamed)} {words.be(blamed)} blocked by a lock: {where}{kind.what}"
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=kind.certainty,
        summary="; ".join(filter(None, (summary, words.victims_wait(blockage)))),
        evidence=[
            *(Evidence(rank=first.rank, probe="stacks", text=text) for text in kind.threads),
            *words.class_evidence(blockage.waiting),
            *words.standstill(run),
        ],
        remedy="Make sure the lock is released: acquire two locks in one order, use RLock for nested locking, and release "
        "the GIL around blocking C calls.",
        commands=words.look_again(first),
    )
