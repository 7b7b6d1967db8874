"""What a thread waits for on the network, outside the run."""

import math
from collections.abc import Iterable, Sequence

from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.evidence.stack import user_frames
from hangdoc.reasoning.model.holds import OnNetwork, Serves
from hangdoc.reasoning.ranks.movement import thread_of
from hangdoc.snapshot import Connection, KernelThread, Process, PythonThread

_POOL = "/concurrent/futures/thread.py"
"""Its `_WorkItem.run` calls what was submitted."""


def of(process: Process, kernel: KernelThread | None, connections: Iterable[Connection]) -> OnNetwork | Serves | None:
    """Where the socket that a thread of a process waits on leads; None if it waits on none."""
    sockets = [file for file in (kernel.files if kernel is not None else ()) if file.kind == "socket"]
    if (
        kernel is None
        or kernel.syscall not in system_calls.NETWORK | system_calls.READ | system_calls.WRITE
        or not sockets
    ):
        return None
    holders = tuple(one for file in sockets for one in file.holders or () if one.pid != process.pid)
    known = {c.inode: c for c in connections if c.inode is not None}
    waited = [known[file.inode] for file in sockets if file.inode in known]
    listening = next((c for c in waited if c.state == "LISTEN"), None)
    if listening is not None:
        return Serves(address=f"{listening.local_address}:{listening.local_port}")
    peer = next((c for c in waited if c.remote_port), None)
    if peer is None:
        return OnNetwork.of(holders)
    ages = [age / 1000 for age in (peer.last_sent_ms, peer.last_received_ms) if age is not None]
    return OnNetwork.of(
        holders,
        peer=f"{peer.remote_address}:{peer.remote_port}",
        silent_seconds=min(ages, default=None),
        sends=peer.send_queue_bytes > 0,
    )


def of_other_threads(
    process: Process, thread: PythonThread, connections: Sequence[Connection]
) -> OnNetwork | Serves | None:
    """What the threads that may end the wait of `thread` wait for, if that is the network: each other thread in the user's code
    or in a task of a pool, and at least one. Of several, what ends by itself, or else what has been silent for the shortest
    time."""
    found: list[OnNetwork | Serves] = []
    for other in (one for one in known.python_threads(process) if one is not thread):
        own = bool(user_frames(other)) or _runs_a_task(other)
        waits = of(process, thread_of(process, other.tid), connections) if other.tid is not None else None
        if isinstance(waits, Serves) or (own and waits is not None):
            found.append(waits)
        elif own:
            return None  # this one may have to end it
    return min(found, key=_ends_first, default=None)


def _runs_a_task(thread: PythonThread) -> bool:
    """Whether a thread of a pool runs what was submitted to it, which may be a library's function. Idle ones are in `_worker`."""
    return any(frame.function.endswith("run") and frame.file.endswith(_POOL) for frame in thread.frames)


def _ends_first(one: OnNetwork | Serves) -> tuple[bool, bool, float]:
    silent = one.silent_seconds if isinstance(one, OnNetwork) else None
    return one.ends != "by-itself", isinstance(one, OnNetwork), silent if silent is not None else math.inf
