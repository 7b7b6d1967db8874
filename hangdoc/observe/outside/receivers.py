"""To which processes the one for which a rank waits is blocked in sending data: a client may not read."""

import contextlib
from functools import lru_cache

from hangdoc.observe.kernel import awaited_files, file_holders, process_table, system_calls
from hangdoc.observe.outside import peers
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import Holder, Receiver

_MAX_RECEIVERS = 8
_MAX_TASKS = 100


def find_receivers(proc: ProcFS, pid: int, waiting: int, period: int) -> tuple[Receiver, ...]:
    """The process that would have to read what `pid` sends, the one to which that process itself is blocked in sending, and so
    on; empty if `pid` is not blocked so. `waiting`: the process that waits for `pid`. `period`: as for `peers.of_socket`."""
    chain: list[Receiver] = []
    sender, passed = pid, {pid, waiting}
    while len(chain) < _MAX_RECEIVERS and may_be_shown(proc, sender, waiting):
        receiver = _find_receiver(proc, sender, period)
        if receiver is None or receiver.pid in passed:
            break
        chain.append(Receiver(pid=receiver.pid, name=receiver.name, state=receiver.state))
        sender = receiver.pid
        passed.add(sender)
    return tuple(chain)


def may_be_shown(proc: ProcFS, pid: int, waiting: int) -> bool:
    """Whether the owner of the process that waits may see in which call another one is (proc_pid_syscall(5))."""
    owner = process_table.user_of(proc, waiting)
    return owner == 0 or owner == process_table.user_of(proc, pid)


def _find_other_ends(proc: ProcFS, pid: int, call: str, arguments: list[int], period: int) -> set[int]:
    """The processes that can read what a system call writes to a socket or a pipe. Raises ProcError and ValueError."""
    pids: set[int] = set()
    for file in awaited_files.awaited(proc, pid, call, arguments, search=True):
        if file.kind == "socket" and file.inode is not None:
            pids.update(peers.of_socket(proc, file.inode, period))
        elif file.kind == "pipe" and file.writes:
            pids.update(reader.pid for reader in file.holders or ())
    return pids


@lru_cache(256)
def _find_receiver(proc: ProcFS, pid: int, period: int) -> Holder | None:
    """The only process to which threads of another one are blocked in sending data; None if there is none, or if there are
    several."""
    try:
        tids = proc.tids(pid)[:_MAX_TASKS]
    except ProcError:
        return None
    pids: set[int] = set()
    searched: set[str] = set()
    for tid in tids:
        if len(pids - {pid}) > 1:
            break
        with contextlib.suppress(ProcError, ValueError):
            call, arguments = system_calls.current(proc, f"{pid}/task/{tid}")
            files = (
                awaited_files.awaited(proc, pid, call, arguments, search=False) if call in system_calls.SENDS else ()
            )
            if call is None or not files or files[0].name in searched:
                continue
            searched.add(files[0].name)
            pids.update(_find_other_ends(proc, pid, call, arguments, period))
    pids.discard(pid)
    readers = file_holders.read_holders(proc, pids) if len(pids) == 1 else ()
    return readers[0] if readers else None
