"""What a rank is in, by its frames: calls that leave no frame of torch.distributed, and which thread trains."""

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Job
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.model.ledger import GroupCalls
from hangdoc.reasoning.text import call_words
from hangdoc.render import words
from hangdoc.snapshot import (
    CallForm,
    Clocks,
    Counter,
    Frame,
    Group,
    Interpreter,
    Process,
    Progress,
    PythonThread,
    Stack,
    Unavailable,
)
from tests.unit.builders import LOOP, TORCH, backward, c10d, frame, local, rank, snapshot, stack
from tests.unit.recordings import T0_US, history_of, recorder


@pytest.mark.parametrize(
    ("file", "function", "op"),
    [
        ("distributed/utils.py", "_verify_param_shape_across_processes", "all_gather"),
        ("nn/parallel/distributed.py", "DistributedDataParallel._distributed_broadcast_coalesced", "broadcast"),
    ],
)
def test_a_collective_that_torch_calls_in_cpp_is_no_lock(file: str, function: str, op: str) -> None:
    """No frame of distributed_c10d.py shows it, and the system call is a futex. Both ranks wait; the other is to blame for what
    differs, not this one for a lock."""
    ddp = frame("DistributedDataParallel.__init__", 900, TORCH + "nn/parallel/distributed.py")
    waits = rank(1, frame(function, 300, TORCH + file), ddp, frame("main", 5), kernel={"syscall": "futex"})
    (job,) = diagnose(snapshot(rank(0, *c10d("barrier"), frame("main", 9)), waits)).jobs
    assert (job.ranks[1].state, job.ranks[1].operation.op, job.ranks[1].operation.origin) == (
        "in-collective",
        op,
        "ddp-init",
    )
    assert job.findings[0].code in ("HD201", "HD203")


def test_a_call_that_first_connects_its_group_keeps_its_name() -> None:
    """DDP's first call makes NCCL's communicator, for which each rank gets a key of the store."""
    ddp = frame("DistributedDataParallel.__init__", 900, TORCH + "nn/parallel/distributed.py")
    call = (frame("_verify_param_shape_across_processes", 286, TORCH + "distributed/utils.py"), ddp, frame("main", 182))
    connects = frame("c10d::ProcessGroupNCCL::initNCCLComm", 0, "libtorch_cuda.so", native=True)
    waits = rank(1, *call, native=stack(connects, *call))
    (job,) = diagnose(snapshot(rank(0, *c10d("barrier"), frame("main", 9)), waits)).jobs
    view = job.ranks[1]
    assert (view.state, view.operation.op, view.operation.origin) == ("in-rendezvous", "all_gather", "ddp-init")


SCHEDULE = TORCH + "distributed/pipelining/schedules.py"


@pytest.mark.parametrize(
    ("line", "waits_for", "expected"),
    [
        ("_wait_batch_p2p(_batch_p2p(bwd_recvs))", 0, ("recv", 2)),
        ("_wait_batch_p2p(_batch_p2p(bwd_sends + fwd_recvs))", 0, ("send", 0)),
        ("_wait_batch_p2p(_batch_p2p(bwd_sends + fwd_recvs))", 1, ("recv", 4)),
        ("_wait_batch_p2p(_batch_p2p(bwd_sends + fwd_recvs))", None, None),  # no variable shows for which
        ("_wait_batch_p2p(send_work)", 0, ("send", 0)),
    ],
)
def test_a_stage_of_a_pipeline_waits_for_what_it_has_posted(
    line: str, waits_for: int | None, expected: tuple[str, int] | None
) -> None:
    """Its C++ frames name the call too, and are not read in the first seconds of `top`, and never with `--native never`."""
    works = [f"<torch._C._distributed_c10d.Work at 0x{n + 1}>" for n in range(1 + ("+" in line))]
    w = works[waits_for] if waits_for is not None else "<torch._C._distributed_c10d.Work at 0x9>"
    schedule = (
        frame("_wait_batch_p2p", 683, SCHEDULE, source="w.wait()",
              locals=(local("work", f"[{', '.join(works)}]"), local("w", w))),
        frame("Schedule1F1B._step_microbatches", 1127, SCHEDULE, source=line, locals=(
            local("bwd_recvs[0]", "P2POp(irecv, 2)"), local("fwd_recvs[0]", "P2POp(irecv, 4)"),
            local("bwd_sends[0]", "P2POp(isend, 0)"),
        )),
    )  # fmt: skip
    stage = rank(
        1,
        *schedule,
        frame("main", 9, source="sched.step()"),
        kernel={"syscall": "futex"},
        native=Unavailable(reason="no"),
    )
    (job,) = diagnose(snapshot(stage)).jobs
    state, called = job.ranks[1].state, job.ranks[1].operation
    named = (called.op, called.peer) if called is not None else None
    assert (state, named) == ("in-p2p" if expected is not None else "waiting-lock", expected)


def threads(number: int, *frames_of: tuple[str, tuple[Frame, ...]]) -> Process:
    """A rank with several threads."""
    found = tuple(
        PythonThread(tid=None, name=name, active=False, owns_gil=False, frames=frames) for name, frames in frames_of
    )
    both = Stack(at_seconds=0.0, threads=found)
    return rank(number, stack=both, stack_before=both)


RAY = frame("main_loop", 900, "/env/lib/python3.11/site-packages/ray/_private/worker.py")
JOIN = (frame("Thread.join", 1119, "/usr/lib/python3.11/threading.py", library=True), frame("main", 20))
SHUTDOWN = (frame("_shutdown", 1560, "/usr/lib/python3.11/threading.py", library=True),)
SLEEPS = (frame("train_loop", 7, source="time.sleep(9999)"),)


def where(process: Process) -> Job:
    (job,) = diagnose(snapshot(rank(0, *c10d("barrier"), frame("main", 9)), process)).jobs
    return job


@pytest.mark.parametrize("main", [(RAY,), JOIN])
def test_a_thread_trains_in_place_of_the_main_thread(main: tuple[Frame, ...]) -> None:
    """A worker of Ray Train: its main thread runs Ray's loop, or the user's main thread waits for the one that trains."""
    view = where(threads(1, ("MainThread", main), ("TrainingThread", SLEEPS))).ranks[1]
    assert view.where is not None
    assert view.where.function == "train_loop"


def test_a_program_that_is_over_and_the_thread_that_keeps_its_process() -> None:
    """It raised an exception, and a thread that is no daemon still runs. Which threads are daemons is read from memory."""
    ended = threads(1, ("MainThread", SHUTDOWN), ("heartbeat", SLEEPS), ("logs", SLEEPS))
    over = "at the end of its program: its main thread is over, and "
    assert f"which is {over}one of its other threads keeps the process alive (" in where(ended).findings[0].summary
    read = replace(ended, interpreter=Interpreter(environment={}, globals=(), keeps_alive=("heartbeat",)))
    (finding,) = where(read).findings
    assert (finding.code, finding.culprits) == ("HD202", (1,))
    assert (
        f"which is {over}thread heartbeat at train.py:7 `time.sleep(9999)` keeps the process alive" in finding.summary
    )
    assert "unknown line" not in " ".join(evidence.text for evidence in finding.evidence)


@pytest.mark.parametrize(
    ("main", "others"),
    [
        (SHUTDOWN, 1),  # the program is over
        ((frame("main", 20),), 1),  # the main thread runs the user's code itself
        (JOIN, 2),  # either may be meant
    ],
)
def test_other_threads_are_not_taken_for_the_trainer(main: tuple[Frame, ...], others: int) -> None:
    more = tuple((f"Thread-{n}", SLEEPS) for n in range(others))
    view = where(threads(1, ("MainThread", main), *more)).ranks[1]
    assert view.where is None or view.where.function != "train_loop"


RPC = TORCH + "distributed/rpc/"
CALLS = (frame("rpc_sync", 842, RPC + "api.py"), frame("train", 31, source="rpc.rpc_sync('server', push)"))
MEETS = (frame("_all_gather", 257, RPC + "api.py"), frame("shutdown", 382, RPC + "api.py"), frame("main", 40))
HANDLES = (frame("push", 12, source="arrived.wait()"), frame("_run_function", 209, RPC + "internal.py"))


def uses_rpc(process: Process, idle: float | None) -> Process:
    """The same rank with a thread of TensorPipe, and with a main thread that has not run for so long."""
    clocks = process.clocks
    assert isinstance(clocks, Clocks)
    main, other = (replace(one, idle_seconds=idle) for one in clocks.threads)
    return replace(process, clocks=replace(clocks, threads=(main, replace(other, name="TP_SHM_reactor"))))


@pytest.mark.parametrize(("idle", "verdict"), [(60.0, "hung"), (5.0, "waiting"), (None, "unknown")])
def test_the_request_that_a_server_does_not_finish(idle: float | None, verdict: str) -> None:
    """The workers wait for the thread that handles their request, not for the server's main thread, which waits for the end. The
    sockets say nothing: requests go through shared memory."""
    server = threads(0, ("", HANDLES), ("MainThread", MEETS))
    workers = [rank(n, *CALLS, world=3) for n in (1, 2)]
    (job,) = diagnose(snapshot(*(uses_rpc(one, idle) for one in (server, *workers)))).jobs
    assert [one.operation and one.operation.op for one in job.ranks] == [None, "rpc_sync", "rpc_sync"]
    assert (job.verdict, job.findings[0].code, job.findings[0].culprits) == (verdict, "HD202", (0,))


@pytest.mark.parametrize("holds", [True, False])
def test_a_rank_that_holds_a_lock_over_its_request(holds: bool) -> None:
    """Two ranks request something from each other, and what answers needs the lock that the caller holds: the ranks wait in their
    calls. Of a lock that the caller does not hold, the thread that answers is to blame."""
    needs = frame("merge", 5, source="with lock:")
    answers = (needs, frame("_run_function", 209, RPC + "internal.py"))

    def peer(number: int) -> Process:
        call = frame("rpc_sync", 842, RPC + "api.py", locals=(local("to", 1 - number),))
        step = frame("step", 11, source="rpc.rpc_sync(p, merge)", contexts=("lock",) if holds else ())
        found = tuple(
            PythonThread(tid=tid, name=name, active=False, owns_gil=False, frames=frames)
            for tid, name, frames in ((100 + number, "MainThread", (call, step)), (300, "", answers))
        )
        both = Stack(at_seconds=0.0, threads=found)
        return uses_rpc(rank(number, stack=both, stack_before=both, kernel={"syscall": "futex"}), 60.0)

    (job,) = diagnose(snapshot(peer(0), peer(1))).jobs
    (finding,) = job.findings
    text = (
        "its call is inside `with lock`, and thread 300 (merge), which should answer another rank, waits for that lock"
    )
    assert (finding.code, job.ranks[0].state) == (("HD204", "in-p2p") if holds else ("HD304", "waiting-lock"))
    assert (text in [line.text for line in finding.evidence]) == holds
    assert not holds or (finding.remedy or "").startswith("Release the lock before the call")


def test_a_server_whose_main_thread_waits_for_the_end_is_in_shutdown() -> None:
    found = [uses_rpc(rank(0, *MEETS, world=2), 900.0), uses_rpc(rank(1, *CALLS, cpu=0.9), 0.0)]
    (job,) = diagnose(snapshot(*found)).jobs
    assert [one.operation and one.operation.op for one in job.ranks] == ["rpc.shutdown", None]
    assert job.verdict == "waiting"


def test_a_rank_that_serves_requests_until_the_end_is_at_work() -> None:
    """An observer of a reinforcement learner: its main thread waits in `rpc.shutdown`, its pool acts for the agent."""

    def observer(number: int, wakes: int, of_others: int = 0) -> Process:
        process = uses_rpc(rank(number, *MEETS, world=2), 900.0)
        assert isinstance(process.clocks, Clocks)
        others = tuple(replace(thread, voluntary_switches=of_others) for thread in process.clocks.threads)
        pool = replace(others[0], tid=7000, name="pt_thread_pool", voluntary_switches=wakes)
        return replace(process, clocks=replace(process.clocks, threads=(*others, pool)))

    agent = uses_rpc(rank(1, frame("run_episode", 31), cpu=0.9), 0.0)
    for wakes in (500, 8):  # an agent may ask ten times a second
        (job,) = diagnose(snapshot(observer(0, wakes), agent)).jobs
        assert (job.verdict, job.findings, job.ranks[0].operation) == ("healthy", (), None)
    (job,) = diagnose(snapshot(observer(0, 4, of_others=4), agent)).jobs  # another observer has paused it
    assert job.ranks[0].operation is not None and job.ranks[0].operation.op == "rpc.shutdown"


def test_a_monitored_barrier_is_not_the_message_in_it() -> None:
    """Lightning calls the method of the group, so no Python frame names the operation."""
    names = ("gloo::transport::tcp::UnboundBuffer::waitSend", "c10d::ProcessGroupGloo::SendWork::wait",
             "c10d::ProcessGroupGloo::monitoredBarrier")  # fmt: skip
    calls = (
        frame("_InfiniteBarrier.__call__", 418, "/site-packages/lightning/fabric/utilities/distributed.py"),
        frame("main", 9),
    )
    native = stack(*(frame(name, 0, "libtorch_cpu.so", native=True, library=True) for name in names), *calls)
    (job,) = diagnose(snapshot(rank(0, *calls, native=native), rank(1, frame("main", 12)))).jobs
    assert job.ranks[0].operation is not None
    assert job.ranks[0].operation.op == "monitored_barrier"


def test_ranks_that_make_different_groups_are_in_different_calls() -> None:
    """All ranks must make the same groups in the same order. Both names of the call are new_group."""
    here = rank(0, *c10d("new_group", local("ranks", "[0]")), frame("experts", 33), frame("main", 74))
    there = rank(1, *c10d("new_group", local("ranks", "[0, 1]")), frame("statistics", 43), frame("main", 76))
    (job,) = diagnose(snapshot(here, there)).jobs
    assert (job.verdict, job.findings[0].code) == ("hung", "HD201")
    assert "new_group of group [0]" in job.findings[0].summary


@pytest.mark.parametrize("test", ["dist.get_rank() in ranks", "use_experts"])
def test_a_new_group_that_only_its_members_make(test: str) -> None:
    """In one loop over the groups, each rank leaves out those that do not contain it: the order is the same on all ranks."""
    given = {"conditions": (test,), "source": "if dist.get_rank() in ranks: groups[name] = dist.new_group(ranks)"}

    def makes(number: int, ranks: str) -> Process:
        return rank(number, *c10d("new_group", local("ranks", ranks)), frame("build_groups", 5, **given), world=4)

    (job,) = diagnose(snapshot(*(makes(n, "[0, 1, 2, 3]") for n in (0, 1)), *(makes(n, "[2, 3]") for n in (2, 3)))).jobs
    (finding,) = job.findings
    assert (finding.code, finding.culprits) == ("HD205", (0, 1, 2, 3))
    only_under = f", not only under `{test}`" if " in " in test else ""
    assert finding.remedy.startswith(f"Call new_group on every rank of the run{only_under}: also on those")
    texts = [line.text for line in finding.evidence]
    assert (
        "makes a group of ranks 2-3; ranks 0-1 must call new_group for it too, although it will not contain them"
        in texts
    )
    assert not any("contains all ranks" in text for text in texts)


def test_a_group_whose_members_are_unknown_is_not_said_to_have_all_ranks() -> None:
    calls = [(0, "[0, 1, 2, 3]"), (1, "[0, 1, 2, 3]"), (2, "range(2, 4)"), (3, "range(2, 4)")]
    ranks = [rank(n, *c10d("new_group", local("ranks", text)), frame("build", 5), world=4) for n, text in calls]
    (finding,) = diagnose(snapshot(*ranks)).jobs[0].findings
    assert finding.code == "HD205"
    assert not any("contains" in line.text for line in finding.evidence)


def test_the_fewer_members_of_a_new_group_are_odd() -> None:
    """Rank 3 is as little in the call as rank 2, but the group is to have rank 2. With one member on each side, the condition
    decides."""
    first_two = {"conditions": ("rank < 2",), "source": "return dist.new_group(members)"}
    makes = [
        rank(n, *c10d("new_group", local("ranks", "[0, 1, 2]")), frame("main", 5, **first_two), world=4) for n in (0, 1)
    ]
    waits = [rank(n, *c10d("barrier"), frame("main", 9), world=4) for n in (2, 3)]
    finding = diagnose(snapshot(*makes, *waits)).jobs[0].findings[0]
    assert (finding.code, finding.culprits, finding.victims) == ("HD203", (2,), (0, 1, 3))
    assert finding.summary.startswith(
        "rank 2 is a member of the new group of ranks 0-2, but did not call the new_group that"
    )
    assert finding.remedy.startswith("Call new_group on every rank of the run, not only under `rank < 2`")

    alone = rank(0, *c10d("new_group", local("ranks", "[0, 1]")), frame("main", 5, conditions=("rank == 0",)))
    finding = diagnose(snapshot(alone, rank(1, *c10d("barrier"), frame("main", 9)))).jobs[0].findings[0]
    assert (finding.code, finding.culprits) == ("HD203", (0,))


def test_members_may_make_different_groups_at_the_same_time() -> None:
    def makes(number: int) -> Process:
        given = (local("ranks", f"[{number}]"), local("use_local_synchronization", "True"))
        return rank(number, *c10d("new_group", *given), frame("main", 70 + number))

    (job,) = diagnose(snapshot(makes(0), makes(1), silence=2.0)).jobs
    assert job.verdict == "waiting"


def test_a_library_waits_for_a_work_of_its_own() -> None:
    """The user's source names another operation below the line, which says nothing about a work that torch waits for."""
    own = frame("main", 86, source="w = x.full_tensor()", context="w = x.full_tensor()\ndist.destroy_process_group()")
    library = frame("wait_tensor", 142, TORCH + "distributed/_functional_collectives.py")
    names = ("pthread_cond_wait", "c10d::Work::wait", "c10d::wait_tensor")
    native = stack(*(frame(name, 0, "libtorch_cpu.so", native=True, library=True) for name in names), library, own)
    view = where(rank(1, library, own, native=native)).ranks[1]
    assert view.operation is not None
    assert (view.operation.op, view.state) == ("wait", "in-collective")


def test_a_group_has_the_name_that_its_serving_engine_gives_it() -> None:
    """torch numbers the groups, and vLLM calls them `tp:0`."""
    world = Group(address=1, name="0", ranks=(0, 1), default=True)
    tensor = Group(address=7, name="3", label="tp:0", ranks=(0, 1))
    state = Interpreter(environment={}, globals=(), groups=(world, tensor))
    waits = rank(0, *c10d("all_reduce", local("group", "<G>", address=7)), frame("forward", 33), interpreter=state)
    (job,) = diagnose(snapshot(waits, rank(1, frame("run", 3), state="T", interpreter=state))).jobs
    assert job.findings[0].summary.endswith("is waiting for it in all_reduce of group tp:0")
    assert words.operation(job.ranks[0].operation) == "all_reduce of group tp:0"
    assert [(group.name, group.label) for group in job.groups] == [("3", "tp:0")]
    operation = job.ranks[0].operation
    assert operation is not None
    assert (operation.group, operation.group_label) == ("3", "tp:0")
    assert call_words.group_name(GroupCalls("3", (0, 1), {}, label="tp:0")) == "group tp:0"


def test_a_group_has_the_description_that_the_program_gives_it() -> None:
    """Several groups may have one description, so torch's number stays."""
    forms: dict[CallForm, int] = {}
    made = history_of([(1, CallForm(op="all_reduce"), T0_US, True)], name="3", wall_us=T0_US, forms=forms)
    record = recorder(replace(made, description="tp"), forms=forms)
    state = Interpreter(
        environment={},
        globals=(),
        groups=(
            Group(address=1, name="0", ranks=(0, 1), default=True),
            Group(address=7, name="3", ranks=(0, 1)),
        ),
    )
    waits = rank(
        0,
        *c10d("all_reduce", local("group", "<G>", address=7)),
        frame("forward", 33),
        interpreter=state,
        recorder=record,
    )
    (job,) = diagnose(snapshot(waits, rank(1, frame("run", 3), state="T", interpreter=state))).jobs
    assert job.findings[0].summary.endswith("is waiting for it in all_reduce of group 3 (tp)")
    assert [(group.name, group.label) for group in job.groups] == [("3", "3 (tp)")]


@pytest.mark.parametrize("pending", [True, False])
def test_the_record_tells_which_work_a_line_waits_for(pending: bool) -> None:
    """The works were made in a comprehension, and native frames could not be read in time."""
    forms: dict[CallForm, int] = {}
    calls = [(n, CallForm(op="all_reduce"), T0_US - 60_000_000, pending and n > 5) for n in (5, 6, 7)]
    record = recorder(history_of(calls, wall_us=T0_US, forms=forms), forms=forms)
    waits = frame("reduce", 66, source="w.wait()", context="for p, w in zip(self.params, works):\n    w.wait()")
    kernel = {"syscall": "futex", "wchan": "futex_do_wait"}
    first = rank(0, waits, kernel=kernel, recorder=record, native=Unavailable(reason="py-spy did not end within 6.0 s"))
    (job,) = diagnose(snapshot(first, rank(1, frame("load", 3), kernel={"syscall": "futex"}))).jobs
    assert (job.ranks[0].state, job.ranks[0].operation is not None and job.ranks[0].operation.op) == (
        ("in-collective", "all_reduce") if pending else ("waiting-lock", False)
    )


def test_the_record_tells_which_functional_collective_a_thread_waits_for() -> None:
    """DTensor waits in an operator. No frame shows the collective, and native frames were not read."""
    forms: dict[CallForm, int] = {}
    calls = [(7, CallForm(op="all_reduce"), T0_US - 60_000_000, True)]
    group = history_of(calls, name="4", wall_us=T0_US, forms=forms, ranks=(0, 1))
    waits = (
        frame("OpOverloadPacket.__call__", 1279, TORCH + "_ops.py"),
        frame("wait_tensor", 142, TORCH + "distributed/_functional_collectives.py"),
        frame("main", 47, source="loss = model(x).mean()"),
    )
    first = rank(0, *waits, kernel={"syscall": "futex"}, recorder=recorder(group, forms=forms))
    first = replace(first, native=Unavailable(reason="not needed"))
    (job,) = diagnose(snapshot(first, rank(1, frame("load", 3), state="T"))).jobs
    operation = job.ranks[0].operation
    assert operation is not None and (operation.op, operation.group, operation.seq) == ("all_reduce", "4", 7)
    assert [finding.code for finding in job.findings] == ["HD302"]


@pytest.mark.parametrize(("line", "state"), [(1775, "in-collective"), (1770, "waiting-lock")])
def test_the_record_tells_that_a_thread_is_in_a_call_of_cpp(line: int, state: str) -> None:
    """DDP arranges its buckets anew in its second forward, and no frame shows the broadcast. From another line, torch made it for
    somebody else."""
    way = [frame("_pre_forward", 1775, TORCH + "nn/parallel/distributed.py"), frame("main", 18)]
    forms: dict[CallForm, int] = {}
    calls = [(5, CallForm(op="broadcast", frames=tuple(way)), T0_US - 60_000_000, True)]
    record = recorder(history_of(calls, wall_us=T0_US, forms=forms), forms=forms)
    waits = rank(0, replace(way[0], line=line), way[1], kernel={"syscall": "futex"}, recorder=record)
    waits = replace(waits, native=Unavailable(reason="not needed"))
    (job,) = diagnose(snapshot(waits, rank(1, frame("load", 3), state="T"))).jobs
    assert (job.ranks[0].state, job.findings[0].victims) == (state, (0,) if line == 1775 else ())


def rests_at(*calls: Frame, syscall: str, counts: str) -> Job:
    """Rank 1 stands in these calls and uses no processor; the counter of a loop in its function `counts` went from 6 to 8."""
    collects = frame(counts, 12, loops=(LOOP,))
    moved = Progress(
        counters=(Counter(name="step", function=counts, file=collects.file, before=6, after=8, looped=True),)
    )
    seen = Stack(
        at_seconds=0.0,
        threads=(
            PythonThread(tid=101, name="MainThread", active=False, owns_gil=False, frames=calls),
            PythonThread(tid=102, name="collector", active=False, owns_gil=False, frames=(collects,)),
        ),
    )
    waits = rank(1, stack=seen, stack_before=seen, progress=moved, kernel={"syscall": syscall})
    (job,) = diagnose(snapshot(rank(0, *c10d("barrier"), frame("main", 9)), waits)).jobs
    return job


def test_a_thread_that_is_asleep_does_not_compute_while_another_one_works() -> None:
    get = frame("Queue.get", 171, "/usr/lib/python3.11/queue.py", library=True, source="self.not_empty.wait()")
    job = rests_at(get, frame("main", 9), syscall="futex", counts="episode")
    (finding,) = job.findings
    assert (job.verdict, finding.code) == ("waiting", "HD602")
    assert (job.ranks[1].label, job.ranks[1].state) == ("blocked", "waiting-lock")
    assert "rank 1, which is waiting for an entry of an empty queue at" in finding.summary
    assert finding.summary.endswith("rank 1 is active: `step` in episode (thread collector) went from 6 to 8")
    assert "in the background" not in finding.remedy


def test_a_thread_that_counts_between_its_sleeps_computes() -> None:
    sleeps = frame("main", 12, source="time.sleep(2)", loops=(LOOP,))
    job = rests_at(sleeps, syscall="clock_nanosleep", counts="main")
    assert (job.verdict, job.ranks[1].label, job.ranks[1].state) == ("waiting", "computing", "computing")
    assert "in the background" in (job.findings[0].remedy or "")


@pytest.mark.parametrize(
    ("made", "age", "wakes", "behind", "verdict"),
    [
        (0, 60, 0, False, "hung"),
        (0, 60, 8, False, "hung"),
        (0, 60, 0, True, "hung"),
        (0, 60, 8, True, "waiting"),  # it may go from one of the calls to the next
        (1, 60, 0, False, "waiting"),
        (0, 0, 0, False, "waiting"),
    ],
)
def test_what_threads_count_is_no_progress_of_one_in_a_recorded_call(
    made: int, age: int, wakes: int, behind: bool, verdict: str
) -> None:
    """`behind`: another call was made before this one was finished.

    A script at module level: its threads put entries into the queue that belongs to the same namespace."""
    forms: dict[CallForm, int] = {}
    pending = [(number, CallForm(op="all_reduce"), T0_US - age * 1_000_000, True) for number in (7, 8)[: 1 + behind]]
    group = history_of(pending, wall_us=T0_US, forms=forms)
    record = replace(recorder(group, forms=forms), entries_in_window=made)
    script = frame("<module>", 10)
    entries = Counter(name="q.unfinished_tasks", function="<module>", file=script.file, before=185_432, after=185_609)
    waits = rank(
        0, *backward(), script, kernel={"syscall": "futex", "voluntary_switches": wakes}, recorder=record,
        progress=Progress(counters=(entries,)),
        native=Unavailable(reason="not needed"),
    )  # fmt: skip
    (job,) = diagnose(snapshot(waits, rank(1, frame("load", 3), kernel={"syscall": "futex"}))).jobs
    assert job.verdict == verdict
