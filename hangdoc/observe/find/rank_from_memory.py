"""Finds ranks whose first environment names no rank, by their interpreter, their frames and their arguments.

Spawned workers have no RANK at all, some launchers become rank 0 themselves, and some scripts get the rank from the command
line.
"""

import contextlib

import msgspec

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.find import identity
from hangdoc.observe.kernel import system_calls
from hangdoc.observe.memory.budget import Budget
from hangdoc.observe.memory.locate import locate
from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.memory.python_state import Modules, live_environment, process_groups, rpc_workers
from hangdoc.observe.stacks import attach
from hangdoc.observe.torch.process_group import own_rank
from hangdoc.parse import natural
from hangdoc.procfs import ProcError, ProcFS, network_of
from hangdoc.snapshot import Group, PythonThread, RankIdentity, Unavailable
from hangdoc.torch_facts import file_names, module_names, thread_names

_SHARE = 0.4
"""Finding the ranks may take this share of the time limit."""
_MEETINGS = frozenset(function.name for function in file_names.MEETINGS)
_STORE_CALLS = frozenset({"recvfrom", "recvmsg", *system_calls.POLLS})
"""torch/csrc/distributed/c10d/socket.cpp and TCPStore.cpp: waits for the reply, and for the connection."""
_RANK_NAMES = ("rank", "global_rank", "local_rank")


def rank_from_memory(
    proc: ProcFS, deadline: Deadline, pid: int, argv: tuple[str, ...], forked: bool
) -> tuple[RankIdentity | None, dict[str, str]]:
    """The identity of a process with torch whose first environment names no rank, and its `os.environ` now.

    `forked` says that its parent has torch, so it may be a spawned worker. Of all others, a stack is read only if they have
    process groups, use torch.distributed.rpc, have a hint of a rank or wait for a store, because most torch processes on a host
    are not ranks.
    """
    if deadline.elapsed() > _SHARE * deadline.seconds:
        deadline.miss("interpreter (is it a rank?)", pid)
        return None, {}
    environment: dict[str, str] = {}
    groups: tuple[Group, ...] = ()
    numbers: dict[str, int] = {}
    pg_rank: int | None = None
    workers: int | None = None
    try:
        budget = Budget()
        image = locate(proc, pid, budget)
        with Memory(pid, image.layout, str(proc.root), budget, image.str_hash) as memory:
            namespaces = Modules(memory, image).namespace("os", "__main__", module_names.C10D, module_names.RPC)
            environment = live_environment(memory, namespaces["os"])
            groups = process_groups(memory, namespaces.get(module_names.C10D, {}))
            pg_rank = own_rank(memory, groups[0]) if groups else None
            workers = rpc_workers(memory, namespaces.get(module_names.RPC, {}))
            for name in _RANK_NAMES:
                if name in namespaces.get("__main__", {}):
                    with contextlib.suppress(Unreadable):
                        numbers[name] = memory.integer(namespaces["__main__"][name])
    except (Unreadable, KeyError):
        pass  # the frames may name the rank
    network = network_of(proc, pid)
    if who := identity.by_environment(environment, network):
        return msgspec.structs.replace(who, source="os.environ"), environment
    if pg_rank is not None:
        rendezvous = identity.rendezvous_fields(environment, network)
        return RankIdentity(
            rank=pg_rank, source="process group", world_size=len(groups[0].ranks), **rendezvous
        ), environment
    argument_rank = _find_rank_in_arguments(argv)
    has_rendezvous = "MASTER_ADDR" in environment or "LOCAL_RANK" in environment
    hinted = groups or workers or forked or has_rendezvous or numbers or argument_rank is not None
    if not hinted and not _may_be_at_a_store(proc, pid):
        return None, environment
    stack = attach.dump(proc, pid, deadline, off_cpu=True)  # a pause would hide for how long its threads have not run
    threads = () if isinstance(stack, Unavailable) else stack.threads
    in_torch = bool(groups or workers) or any(file_names.DISTRIBUTED in f.file for t in threads for f in t.frames)
    rank, world, source = _find_rank_in_frames(threads, in_torch)
    if rank is None and in_torch:
        rank, source = (
            (argument_rank, "arguments")
            if argument_rank is not None
            else (next(iter(numbers.values()), None), "variable")
        )
    if rank is None:
        return None, environment
    world = len(groups[0].ranks) if groups else workers or world
    rendezvous = identity.rendezvous_fields(environment, network)
    return RankIdentity(rank=rank, source=source, local_rank=rank, world_size=world, **rendezvous), environment


def _may_be_at_a_store(proc: ProcFS, pid: int) -> bool:
    """Whether a process serves a store, or its main thread is in a system call in which torch's client of a store waits for other
    ranks. A rank that has not met them yet may have its number from anywhere, and only the frame of `init_process_group` shows
    it."""
    try:
        call, _ = system_calls.current(proc, str(pid))
        return call in _STORE_CALLS or any(name.startswith(thread_names.STORE) for name in proc.thread_names(pid))
    except (ProcError, ValueError):
        return False


def _find_rank_in_arguments(argv: tuple[str, ...]) -> int | None:
    """The rank that `--rank 1` or `--rank=1` names."""
    for index, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if option.lstrip("-").replace("-", "_") in _RANK_NAMES and option.startswith("-"):
            return natural(value if equals else argv[index + 1] if index + 1 < len(argv) else None)
    return None


def _find_rank_in_frames(threads: tuple[PythonThread, ...], in_torch: bool) -> tuple[int | None, int | None, str]:
    """(rank, world size, source), from the arguments of a rendezvous, from torch's spawn frame, or from a variable named
    rank in a process that uses torch.distributed."""
    frames = [frame for thread in threads for frame in reversed(thread.frames)]  # outermost first
    values = [{local.name: natural(local.text) for local in frame.locals} for frame in frames]
    for frame, variables in zip(frames, values, strict=True):
        if frame.function in _MEETINGS and variables.get("rank") is not None:
            return variables["rank"], variables.get("world_size"), frame.function
    for frame, variables in zip(frames, values, strict=True):
        if file_names.SPAWNED.is_at(frame.file, frame.function):
            return variables.get("i"), None, "mp.spawn"
    for frame, variables in zip(frames, values, strict=True):
        name = next((name for name in _RANK_NAMES if variables.get(name) is not None), None)
        if in_torch and not frame.library and name is not None:
            return variables[name], None, f"variable {name}"
    return None, None, ""
