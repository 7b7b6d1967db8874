"""Waits at sockets, and for events of which the kernel tells: providers of `thread_waits`."""

from collections.abc import Iterable

from msgspec.structs import replace

from hangdoc.reasoning.evidence import kernel as system_calls
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import user_frames
from hangdoc.reasoning.model.holds import InEventLoop, OnNetwork, Serves, Unanswered, is_held_only_by
from hangdoc.reasoning.ranks import sleeps
from hangdoc.reasoning.ranks.movement import tid_of
from hangdoc.reasoning.ranks.waiter import ThreadWait, Waiter, describe_file, passes_files, runs_a_task
from hangdoc.snapshot import MOST_AWAITED_FILES, AwaitedFile, Connection, KernelThread, Process, PythonThread
from hangdoc.torch_facts import thread_names

_AT_WORK_ON_REQUEST = 5.0
"""Seconds for which a request may be on its way through a server before its answer counts as missing."""
_A_DAY = 86_400.0


def find_peer(waiter: Waiter) -> OnNetwork | Serves | None:
    """Where the socket that a thread waits on leads; None if it waits on none."""
    kernel = waiter.kernel
    sockets = [file for file in (kernel.files if kernel is not None else ()) if file.kind == "socket"]
    if (
        kernel is None
        or not sockets
        or waiter.call not in system_calls.NETWORK | system_calls.READ | system_calls.WRITE
    ):
        return None
    if (unix := find_unix_server(waiter)) is not None:
        return Serves(address=f"a Unix socket (fd {unix.descriptor})")
    holders = tuple(holder for file in sockets for holder in waiter.other_holders(file))
    by_inode = {connection.inode: connection for connection in waiter.connections if connection.inode is not None}
    waited = [by_inode[file.inode] for file in sockets if file.inode in by_inode]
    listening = next((connection for connection in waited if connection.state == "LISTEN"), None)
    if listening is not None:
        address = f"{listening.local_address}:{listening.local_port}"
        return Serves(address=address, unanswered=_find_unanswered(listening, waiter.connections))
    peer = next((connection for connection in waited if connection.remote_port), None)
    if peer is None and not holders and (what := system_calls.awaited_from_outside(kernel)) is not None:
        changes = next(filter(system_calls.tells_of, kernel.files), None)
        address = _name_source(changes) if changes is not None else describe_file(sockets[0])
        return Serves(address=address, what=what)
    sends, timeout = waiter.call in system_calls.SEND, _find_timeout(kernel)
    if peer is None:
        serves = any(file.accepted for file in sockets)
        return OnNetwork.ended_by(holders, sends=sends, serves=serves, timeout_seconds=timeout)
    listening_at = {connection.local_port for connection in waiter.connections if connection.state == "LISTEN"}
    ages = [age / 1000 for age in (peer.last_sent_ms, peer.last_received_ms) if age is not None]
    silent = min(ages, default=None)
    repeats = silent is not None and timeout is not None and silent > timeout  # it waits again after each timeout
    return OnNetwork.ended_by(
        holders,
        peer=f"{peer.remote_address}:{peer.remote_port}",
        silent_seconds=silent,
        sends=sends or peer.send_queue_bytes > 0,
        serves=peer.local_port in listening_at,
        timeout_seconds=timeout if not repeats else None,
    )


def _find_unanswered(listening: Connection, connections: Iterable[Connection]) -> Unanswered | None:
    """The connections of a port of a server that have brought data after the last that it sent to them. None for none."""
    accepted = (
        each
        for each in connections
        if (each.pid, each.local_port, each.state) == (listening.pid, listening.local_port, "ESTABLISHED")
    )
    ages = [age for age in list_unanswered(accepted) if age >= _AT_WORK_ON_REQUEST]
    return Unanswered(len(ages), max(ages), min(ages)) if ages else None


def list_unanswered(accepted: Iterable[Connection]) -> list[float]:
    """Seconds since data came on each of a server's connections that has sent nothing to the client since."""
    return [
        each.last_received_ms / 1000
        for each in accepted
        if each.last_received_ms is not None
        and (each.nothing_sent or (each.last_sent_ms is not None and each.last_received_ms < each.last_sent_ms))
    ]


def _find_timeout(kernel: KernelThread) -> float | None:
    """Seconds after which a thread gives up at its only socket, as a socket of Python with a timeout does. That of an event loop
    is its next timer. The greatest one that poll(2) takes is as good as none."""
    seconds = kernel.timeout_seconds if kernel.syscall in system_calls.POLL and len(kernel.files) == 1 else None
    return seconds if seconds is not None and seconds <= _A_DAY else None


def may_serve_elsewhere(process: Process, thread: PythonThread) -> bool:
    """Whether another thread of a process than the given one may reply on its connections: one that is in the user's code or
    waits for data. Those of torch's backends and stores only serve torch, and a library's that sleeps or waits for a lock serves
    nobody."""
    own = tid_of(process, thread)
    others = [other for other in observed.python_threads(process) if other is not thread]
    in_program = any(user_frames(other) or runs_a_task(other) for other in others)
    return in_program or any(
        _may_be_woken_by_others(kernel) for kernel in observed.threads(process) if kernel.tid != own
    )


def find_unix_server(waiter: Waiter) -> AwaitedFile | None:
    """The Unix socket at which a thread waits for connections; None for none. The thread by which Python's multiprocessing passes
    open files to other processes waits at one too, but nobody sends it work."""
    if passes_files(waiter.thread):
        return None
    files = waiter.kernel.files if waiter.kernel is not None else ()
    return next((file for file in files if file.listens), None)


def for_network(waiter: Waiter) -> ThreadWait | None:
    online, file = find_peer(waiter), waiter.file
    if online is None and waiter.call in system_calls.NETWORK and file is not None and file.kind == "pipe":
        return ThreadWait("waiting-io", f"waiting for data in {describe_file(file)}", waiter.unknown)
    if _wakes_itself(waiter):
        loop = InEventLoop()
        return ThreadWait("waiting-io", loop.what or "", loop)
    if online is None and waiter.call in system_calls.NETWORK:
        online = OnNetwork()
    children = {helper.pid for helper in waiter.helpers}
    if isinstance(online, OnNetwork) and any(
        holder.replies and holder.pid in children for holder in online.holders or ()
    ):
        # It asks a child process for the results of others, like the manager of a pool: any of them may give one.
        online = replace(online, period=sleeps.longest_sleep(waiter.helpers))
    if isinstance(online, OnNetwork) and online.holders and {holder.pid for holder in online.holders} <= children:
        online = replace(online, of_child=True)
    return ThreadWait("waiting-io", str(online), online) if online is not None else None


def _wakes_itself(waiter: Waiter) -> bool:
    """Whether a thread waits in an event loop without a timer, and all that the loop watches are sockets of which only its own
    process has the other end: the pair by which threads wake the loop. Not if one of these threads may do so for somebody else
    (a server's, or one that waits for a child process)."""
    kernel = waiter.kernel
    if kernel is None or kernel.syscall not in system_calls.EPOLL or kernel.timed is not False:
        return False
    alone = (file.kind == "socket" and is_held_only_by(file, waiter.process.pid) for file in kernel.files)
    others = (thread for thread in observed.threads(waiter.process) if thread.tid != kernel.tid)
    children = any(helper.state not in "ZX" for helper in waiter.helpers)
    return (
        0 < len(kernel.files) < MOST_AWAITED_FILES
        and all(alone)
        and not children
        and not any(map(_may_be_woken_by_others, others))
    )


def _may_be_woken_by_others(thread: KernelThread) -> bool:
    """Whether a thread may wait for what another process does. Those of torch's backends and stores only serve torch."""
    of_torch = thread_names.is_of_library(thread.name) or thread.name.startswith(thread_names.STORE)
    if of_torch and not thread_names.is_of_rpc(thread.name):
        return False
    by_others = system_calls.NETWORK | system_calls.READ | system_calls.CHILD | system_calls.SIGNAL
    return thread.syscall is None or thread.syscall in by_others


def for_events(waiter: Waiter) -> ThreadWait | None:
    """What any program may do, and of which the kernel tells."""
    what = system_calls.tells_of(waiter.file) if waiter.file is not None else None
    if waiter.file is None or what is None:
        return None
    hold = Serves(address=_name_source(waiter.file), what=what)
    return ThreadWait("waiting-io", str(hold), hold)


def _name_source(file: AwaitedFile) -> str:
    """`inotify (fd 7)`."""
    return f"{file.name.rpartition(':')[2].strip('[]')} (fd {file.descriptor})"
