"""Which operation a stack is in: from Python frames, then native ones, then the user's own source line."""

from msgspec import structs

from hangdoc.diagnosis import Operation
from hangdoc.parse import natural
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.records import backend_names, backend_of_group
from hangdoc.reasoning.evidence.stack import Reading, inner_native_functions, origin, reading, user_frames
from hangdoc.reasoning.model.rank import BUSY, Wait
from hangdoc.reasoning.ranks import in_source, locks, made_work, movement, recorded
from hangdoc.snapshot import Frame, Group, Local, Process, PythonThread, RecordedGroup, Stack, Unavailable
from hangdoc.torch_facts import call_names, cpp_names, file_names, thread_names


def find_training_thread(process: Process) -> PythonThread | None:
    """The thread that trains: the one inside torch.distributed if there is one, else the main thread. While the main thread
    works or is in torch, another thread's collective (a checkpoint's, a logger's, one that waits for commands) is its own
    affair."""
    stack, pid = process.stack, process.pid
    if isinstance(stack, Unavailable) or not stack.threads:
        return None
    if len(stack.threads) == 1:
        return stack.threads[0]
    main = next((t for t in stack.threads if is_main(t, pid)), None)
    if main is not None and (handler := _find_rpc_handler(process, stack, main)) is not None:
        return handler
    if main is not None and (not (read := reading(main)).own or read.joins):
        main = _find_thread_in_place_of_main(stack, main)
    trains = main is not None and (main.active or reading(main).in_torch or _works(process, main))
    for thread in (main,) if trains else (main, *stack.threads):
        if thread is not None and reading(thread).in_c10d:
            return thread
    return main or stack.threads[-1]


def _works(process: Process, main: PythonThread) -> bool:
    """Whether the main thread uses a processor in the user's code, although no look may have seen it run: between two steps it
    may sleep."""
    share = movement.share_of(process, movement.find_kernel_thread(process, process.pid))
    return share is not None and share >= BUSY and bool(reading(main).own)


def _find_thread_in_place_of_main(stack: Stack, main: PythonThread) -> PythonThread:
    """The thread that runs the training function where the main thread only runs a framework's loop (a worker of Ray Train) or
    waits for a thread to end: the one that the framework started for it, or else the only one with the user's code. The main
    thread where no other, or more than one, may be meant."""
    started = [thread for thread in stack.threads if reading(thread).trains]
    if len(started) == 1:
        return started[0]
    if reading(main).is_over:
        return main  # the program is over; what its threads do is no training
    others = [thread for thread in stack.threads if thread is not main and reading(thread).own]
    in_torch = [thread for thread in others if reading(thread).in_torch]
    return next((only[0] for only in (in_torch, others) if len(only) == 1), main)


def _find_rpc_handler(process: Process, stack: Stack, main: PythonThread) -> PythonThread | None:
    """The thread that does what another rank has requested by RPC, if the main thread only waits for others: then the others wait
    for that thread. None if there is none, or if several are at different lines. Those that wait for a lock wait for another
    thread, unless all of them do."""
    if main.active or reading(main).in_c10d:
        return None
    handlers = {
        reading(thread).lines: thread for thread in stack.threads if thread is not main and reading(thread).handles_rpc
    }
    if handlers and reading(main).rpc is not None:  # those that wait for the main thread's lock wait for its call
        behind = {reading(thread).lines for thread, _ in locks.find_threads_behind(process, main)}
        handlers = {lines: thread for lines, thread in handlers.items() if lines not in behind}
    if len(handlers) > 1:
        at_locks = {thread.tid for thread, _ in locks.find_threads_at_locks(process)}
        free = [thread for thread in handlers.values() if thread.tid not in at_locks]
        return free[0] if len(free) == 1 else None if free else next(iter(handlers.values()))
    return next(iter(handlers.values()), None)


def is_main(thread: PythonThread | None, pid: int) -> bool:
    """Whether a thread is the main thread of its process."""
    return thread is not None and (thread.tid == pid or thread.name == "MainThread")


def find_operation(process: Process, thread: PythonThread | None, read: Reading | None = None) -> Wait | None:
    """The operation that a thread is in, whether or not it is blocked in it; None where nothing names one. Frames come first;
    the flight recorder adds what they do not show, and which collective of the group it is. `read`: its lines, where they have
    been read already."""
    wait = _find_in_stack_and_record(process, thread, read or reading(thread)) if thread is not None else None
    return _with_backend(process, wait) if wait is not None else None


def find_passing(process: Process) -> Wait | None:
    """The call in which a rank is that goes from call to call and whose stack was not read, by its record; None without one."""
    wait = recorded.find_passing(process)
    return _with_backend(process, wait) if wait is not None else None


def _with_backend(process: Process, wait: Wait) -> Wait:
    if wait.kind not in ("collective", "p2p") or wait.operation.backend is not None:
        return wait
    backend = backend_of_group(observed.groups(process), wait.operation.group)
    return wait if backend is None else wait.with_details(backend=backend)


def find_calls_beside(
    process: Process, thread: PythonThread | None, wait: Wait | None
) -> list[tuple[PythonThread, Wait]]:
    """Other threads of a process that are in a collective of the group in which `thread` waits, each with its operation."""
    if wait is None or wait.kind != "collective":
        return []
    others = (other for other in observed.python_threads(process) if other is not thread and reading(other).in_c10d)
    waits = ((other, its_wait) for other in others if (its_wait := find_operation(process, other)) is not None)
    return [
        (other, its_wait)
        for other, its_wait in waits
        if (its_wait.kind, its_wait.of_group) == (wait.kind, wait.of_group)
    ]


def _find_in_stack_and_record(process: Process, thread: PythonThread, read: Reading) -> Wait | None:
    wait = _find_in_stack(process, thread, read)
    if wait is not None and wait.operation.op in call_names.RPC_CALLS:
        return _add_asked_worker(process, wait, read)
    if wait is not None and wait.kind == "p2p" and read.call is None:
        return _add_made_call(process, thread, wait)
    if wait is None or wait.kind != "collective":
        return wait
    only = recorded.find_only_pending(process) if read.call is None else None
    if only is not None and wait.operation.op in ("wait", only[0]):  # no frame of the operation shows its group
        members = next((group.ranks for group in observed.groups(process) if group.name == only[1]), None)
        wait = structs.replace(wait.with_details(op=only[0], group=only[1]), sure=True, members=members)
    entry = recorded.find_pending_call(process, wait)
    return wait.with_details(seq=entry.seq) if entry is not None else wait


def _add_made_call(process: Process, thread: PythonThread, wait: Wait) -> Wait:
    """A send or a receive with the peer and the tag of the call that made the work that it waits for."""
    made = made_work.find_made_call(process, thread)
    if (
        made is None
        or made.sends != (wait.operation.op in call_names.SENDS)
        or wait.operation.peer not in (None, made.peer)
    ):
        return wait
    return structs.replace(wait.with_details(peer=made.peer), tag=made.tag)


def _add_asked_worker(process: Process, wait: Wait, read: Reading) -> Wait:
    """A call of RPC with the worker that has to answer. If the process waits for one worker alone, the record of its calls comes
    before what the source seems to say, but not before the arguments of torch's own frame."""
    workers = observed.rpc_calls(process)
    if workers:
        wait = structs.replace(wait, sure=True)
    is_named = wait.operation.peer is not None or (read.rpc is not None and wait.asked is not None)
    if not is_named and len(workers) == 1:
        return structs.replace(wait, asked=next(iter(workers)))
    return wait


def _find_in_stack(process: Process, thread: PythonThread, read: Reading) -> Wait | None:
    groups = observed.groups(process)
    wait = _find_in_python_frames(thread, read, groups) or _find_in_native_frames(process, thread, groups)
    if wait is not None or not isinstance(process.native, Unavailable):
        return wait
    if (direct := _find_direct_call(thread)) is not None:
        return Wait("collective", Operation(op=direct, origin=origin(thread.frames)))
    if read.in_backward:
        # No Python frame shows DDP. The Gloo or NCCL threads of the rank show that it communicates.
        return Wait("collective", Operation(op="all_reduce", origin="ddp-backward"), sure=False)
    if read.waits_for_tensor:  # the record says for which
        return Wait("collective", Operation(op="wait", origin=origin(thread.frames)), sure=False)
    if (made := recorded.find_call_made_here(process, thread)) is not None:
        return _wait_in_recorded_call(*made, thread, groups)
    return in_source.find_unfinished_work(thread, has_record=recorded.find_only_pending(process) is not None)


def _wait_in_recorded_call(op: str, group: RecordedGroup, thread: PythonThread, groups: tuple[Group, ...]) -> Wait:
    name = None if group.default else group.name
    members = next((each.ranks for each in groups if name is not None and each.name == name), None)
    return Wait(call_names.wait_kind(op), Operation(op=op, origin=origin(thread.frames), group=name), members)


def _find_in_python_frames(thread: PythonThread, read: Reading, groups: tuple[Group, ...]) -> Wait | None:
    called = thread.frames[read.call] if read.call is not None else None
    op = file_names.bare_name(called.function) if called is not None else None
    if read.in_rendezvous and read.rendezvous is not None:
        outermost = thread.frames[read.rendezvous]
        return Wait("rendezvous", Operation(op=file_names.bare_name(outermost.function), origin=None))
    if called is not None and op is not None:
        return _read_call(op, called, read.origin, groups)
    if read.rpc is not None:
        return _read_rpc_call(thread.frames[read.rpc])
    if read.meeting is not None:
        return Wait("collective", Operation(op=read.meeting.call, origin="user"), counter=read.meeting.counter)
    return _find_store_call(thread)


def _read_rpc_call(frame: Frame) -> Wait:
    """The wait of a call of torch.distributed.rpc."""
    if (meeting := call_names.RPC_MEETINGS.get(frame.function)) is not None:
        return Wait("collective", Operation(op=meeting, origin="user"))
    to = _find_local(frame, "to")
    peer = natural(to.text) if to is not None else None
    asked = in_source.read_worker_name(to.text) if to is not None else None
    return Wait("p2p", Operation(op=frame.function, origin="user", peer=peer), asked=asked)


def _find_store_call(thread: PythonThread) -> Wait | None:
    for frame in thread.frames[:4]:
        if frame.file.endswith(file_names.STORE):
            return Wait("store", Operation(op=file_names.bare_name(frame.function), origin="store"))
    return None


def _read_call(op: str, frame: Frame, origin: str, groups: tuple[Group, ...]) -> Wait:
    group, members = _find_group(frame, groups)
    backend = backend_of_group(groups, group)
    if op == "new_group" and (made := _find_local(frame, "ranks")) is not None and not _is_made_by_members_only(frame):
        # All ranks must make the same groups in the same order: one that makes another group is in another call.
        operation = Operation(op=op, origin=origin, group=made.text, backend=backend)
        return Wait("collective", operation, makes=_read_ranks(made.text))
    # The rank within the group, which torch reckons from either way of naming it; older torch knows the global one only.
    root = _find_local(frame, "group_src", "group_dst", "src", "dst") if op in call_names.ROOTED else None
    tag = _find_local(frame, "tag") if op in call_names.POINT_TO_POINT else None
    operation = Operation(op=op, origin=origin, group=group, peer=_find_peer(op, frame), backend=backend)
    rooted, tagged = (natural(local.text) if local is not None else None for local in (root, tag))
    return Wait(call_names.wait_kind(op), operation, members, root=rooted, tag=tagged)


def _read_ranks(text: str) -> tuple[int, ...] | None:
    """The ranks in a list of them; None for anything else, and for a list that was cut."""
    numbers = [natural(each) for each in text[1:-1].split(", ")] if text[:1] + text[-1:] in ("[]", "()") else [None]
    return tuple(number for number in numbers if number is not None) if None not in numbers else None


def _is_made_by_members_only(frame: Frame) -> bool:
    """Whether only the members of a new group make it (`use_local_synchronization`), so that others may make another one."""
    local = _find_local(frame, "use_local_synchronization")
    return local is not None and local.text != "False"


def _find_local(frame: Frame, *names: str) -> Local | None:
    for name in names:
        for local in frame.locals:
            if local.name == name and local.text != "None":
                return local
    return None


def _find_group(frame: Frame, groups: tuple[Group, ...]) -> tuple[str | None, tuple[int, ...] | None]:
    """(name, members) of the group a call was given; (None, None) for the default group."""
    local = _find_local(frame, "group", "pg", "process_group")
    if local is None:
        return None, None
    for group in groups:
        if group.address == local.address:
            return (None, None) if group.default else (group.name or "unnamed", group.ranks)
    return None, None


def _find_peer(op: str, frame: Frame) -> int | None:
    """The global rank that a point-to-point call names."""
    if op not in call_names.POINT_TO_POINT:
        return None
    names = ("dst", "group_dst") if op in call_names.SENDS else ("src", "group_src")
    local = _find_local(frame, *names)
    return natural(local.text) if local is not None else None


def _find_direct_call(thread: PythonThread) -> str | None:
    """The collective that the innermost frame calls in C++."""
    top = thread.frames[0] if thread.frames else None
    for function, op in file_names.DIRECT_CALLS if top is not None else ():
        if top is not None and function.is_at(top.file, top.function):
            return op
    return None


def _find_in_native_frames(process: Process, thread: PythonThread, groups: tuple[Group, ...]) -> Wait | None:
    native = observed.native_of(process, thread)
    if native is None:
        return None
    text = inner_native_functions(native)
    called = origin(thread.frames) if thread.frames else None
    if cpp_names.CONNECT.search(text):
        op = _find_direct_call(thread)  # the first call of a group of NCCL connects the ranks
        operation = Operation(op=op, origin=called) if op is not None else Operation(op=call_names.INIT_PROCESS_GROUP)
        return Wait("rendezvous", operation)
    if cpp_names.STORE_WAIT.search(text):
        return Wait("store", Operation(op="wait", origin="store"))
    for pattern, op, caller in cpp_names.OPERATIONS:
        if pattern.search(text):
            caller = caller or called
            if op == "broadcast" and called == "ddp-forward":
                caller = "ddp-forward"
            operation = Operation(op=op, origin=caller, peer=in_source.find_peer(op, thread))
            return Wait(call_names.wait_kind(op), operation)
    if cpp_names.FUTURE_WAIT.search(text) and any(map(thread_names.is_of_rpc, observed.thread_names(process))):
        return Wait("p2p", Operation(op="rpc_async", origin="user"))
    if cpp_names.WORK_WAIT.search(text):
        op = in_source.find_operation(thread)
        operation = Operation(op=op, origin=called, peer=in_source.find_peer(op, thread))
        way = tuple((frame.file, frame.line) for frame in user_frames(thread)) if op == "wait" else ()
        return Wait(call_names.wait_kind(op), operation, sure=op != "wait", way=way)
    return None


def find_gpu_spin(process: Process, thread: PythonThread) -> Wait | None:
    """The wait of a thread that spins in the GPU's driver for what NCCL does; None for any other."""
    native = observed.native_of(process, thread)
    if native is None or not any(map(thread_names.uses_card, observed.thread_names(process))):
        return None
    inner = native.frames[:12]
    if not any(f.native and cpp_names.GPU_SPIN.search(f"{f.function} {f.file}") for f in inner):
        return None
    groups = observed.groups(process)
    wait = _find_in_python_frames(thread, reading(thread), groups)
    if wait is None:
        return Wait("collective", Operation(op="wait", origin=call_names.GPU_WAIT), sure=False)
    called = wait.operation
    backend = backend_of_group(groups, called.group)
    if backend is not None and "nccl" not in backend_names(backend):
        return None  # Gloo's: what it waits for in the driver is a copy of its own
    operation = Operation(op=called.op, origin=call_names.GPU_WAIT, group=called.group, backend=backend)
    return Wait("collective", operation, wait.members, sure=False)
