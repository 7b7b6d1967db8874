"""A rank is blocked by a lock of its own process, or by the GIL.

## What it finds

A rank whose training thread waits for a lock of its own process:

- another thread is stuck while it holds the GIL;
- two threads each hold the lock that the other needs;
- a thread acquires a lock that it already holds (also one on a file), or the
  handler of a signal does so that interrupted it there;
- a thread that holds a lock waits for the end of another one (`join`) that needs it;
- imports wait for each other;
- the thread that holds the lock waits for another process, such as a client that
  does not read what it is sent. That is no deadlock.

## Why it hangs

Only the thread that holds a lock can release it, and that thread is waiting
itself. Every Python thread needs the GIL. A C function that blocks without
releasing the GIL stops the whole process, including watchdogs inside it.

## Example

```python
def log(self, line):
    with self.queue_lock:
        with self.file_lock:  # <- flush() uses the opposite order
            self.file.write(line)


def flush(self):
    with self.file_lock:
        with self.queue_lock:
            self.file.flush()
```

## Use instead

```python
def log(self, line):
    with self.queue_lock, self.file_lock:  # the same order everywhere
        self.file.write(line)


def flush(self):
    with self.queue_lock, self.file_lock:
        self.file.flush()
```

For nested locking by one thread, use `threading.RLock`. For the GIL, call the C
function through `ctypes.CDLL` instead of `PyDLL`, or release the GIL in the
extension (`Py_BEGIN_ALLOW_THREADS`). Do imports before you start threads.

## How hangdoc knows

In both stacks, the threads are at a `with lock:` or an `acquire`. It also reads
which thread holds the GIL, the native frames of the C call if they were read,
and from /proc/locks whether the process holds the lock on a file itself. Which
thread holds a lock shows in the `with` blocks that the threads are in. If the object
of the lock is not known there, a thread in a block of that name probably holds it.
One in another file is shown as one that may be inside of the same lock.

## When it can be wrong

A thread that works for a long time while it holds a lock is not a deadlock. A
rank that waits at an Event or a Queue waits for work; this finding does not
cover it.

## References

- threading, locks: https://docs.python.org/3/library/threading.html
- Thread state and the global interpreter lock:
  https://docs.python.org/3/c-api/init.html
"""

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.holds import AtLock
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.rules.draft import Draft, about
from hangdoc.reasoning.text import words

_REMEDIES = {
    "gil": "Release the GIL around a C call that may block (ctypes.CDLL instead of PyDLL, Py_BEGIN_ALLOW_THREADS), or give it a "
    "timeout.",
    "again": "Do not take a lock that the thread holds already: use threading.RLock for nested locking.",
    "handler": "Take no lock in the handler of a signal that other code takes too: only set a flag, and let the loop look at it.",
    "joined": "Wait for the end of a thread only outside of the locks that it needs: move the join behind the `with` block.",
    "importing": "While a module is imported, do not wait for a thread that imports it too: start and join the thread in a "
    "function that is called after the import.",
    "crosswise": "Acquire the locks in the same order in all threads.",
    "unreleased": "Find out which code keeps the lock: release it in a `with` or `finally`, and before anything that may wait.",
    "inside": "Look at that thread, and at what it waits for: inside of a `with` block, do not wait for what needs the same "
    "lock.",
    "outside": "This is no deadlock if that thread holds the lock: it releases it when the other process acts or ends. Do not "
    "wait for another process inside of a lock: send and receive outside of the `with` block.",
    "own-file": "Do not lock a file again that the process has locked through another open file: release that lock first.",
}
"""By what keeps the lock from being released."""


@about(AtLock)
def describe(run: Run, blockage: Blockage, kind: AtLock) -> Draft:
    first, blamed = blockage.awaited[0].first, blockage.culprits
    where = f"on rank {first.rank}, " if len(blamed) > 1 else ""
    return Draft(
        confidence=kind.certainty,
        summary=words.and_victims(f"{words.are(blamed)} blocked by a lock: {where}{kind.what}", blockage),
        evidence=[
            *(Evidence(first.rank, "stacks", text) for text in kind.threads),
            *words.stacks(run, blockage.waiting),
        ],
        remedy=_REMEDIES[kind.fault],
    )
