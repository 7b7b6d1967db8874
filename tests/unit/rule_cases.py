"""For every rule, a snapshot that fires it and one that must not: the closest thing to it that is another story."""

from collections.abc import Callable

from msgspec.structs import replace

from hangdoc.snapshot import (
    AwaitedFile,
    Clocks,
    Connection,
    Connections,
    Counter,
    DataSource,
    DataSources,
    Environment,
    FileBytes,
    Frame,
    Group,
    Interface,
    Interpreter,
    KernelThread,
    Launch,
    Listener,
    Machine,
    Process,
    Progress,
    Runtime,
    Snapshot,
)
from tests.unit.builders import (
    TORCH,
    backward,
    c10d,
    frame,
    helper,
    local,
    native_backward,
    rank,
    silent,
    snapshot,
    stack,
    train,
)


def data(files: int, digest: str) -> DataSources:
    source = DataSource(
        path="/data", origin="DATA_DIR", files=files, bytes=files, suffixes=(".parquet",), digest=digest
    )
    return DataSources(sources=(source,))


def in_loop(number: int, step: int, batches: int | None = None, **more: object) -> Process:
    locals_ = (local("step", step), *([local("batches", "[...]", length=batches)] if batches is not None else []))
    return rank(number, *backward(), train(15, locals=locals_), native=native_backward(), **more)  # type: ignore[arg-type]


def behind_loop(number: int, step: int, batches: int | None = None, **more: object) -> Process:
    locals_ = (local("step", step), *([local("batches", "[...]", length=batches)] if batches is not None else []))
    return rank(number, *c10d("barrier"), train(22, locals=locals_), **more)  # type: ignore[arg-type]


LOADER = (
    frame("select", 1, "/usr/lib/python3.11/selectors.py", library=True),
    frame("_MultiProcessingDataLoaderIter._try_get_data", 9, TORCH + "utils/data/dataloader.py"),
    frame("_MultiProcessingDataLoaderIter._next_data", 9, TORCH + "utils/data/dataloader.py"),
)
WORKER = frame("_worker_loop", 300, TORCH + "utils/data/_utils/worker.py")
SPIN = (frame("batches", 44), train(10))
AGENT = Process(
    pid=50, ppid=1, role="launcher", name="pt_elastic", argv=("torchrun",), state="S", started_seconds_ago=90.0,
    launch=Launch(tool="torchrun", nnodes="2", nproc_per_node="4", node_rank=0, endpoint="10.0.0.1:29500"),
    stack=stack(frame("next_rendezvous", 5, TORCH + "distributed/elastic/rendezvous/static_tcp_rendezvous.py")),
)  # fmt: skip

AGENT_ALONE = Process(
    pid=50, ppid=1, role="launcher", name="pt_elastic", argv=("torchrun",), state="S", started_seconds_ago=90.0,
    launch=Launch(tool="torchrun", nnodes="1", nproc_per_node="2", node_rank=0, endpoint="10.0.0.1:29500"),
)  # fmt: skip
NO_GROUPS = Interpreter(environment={}, globals=())
TWO_GROUPS = Interpreter(
    environment={},
    globals=(),
    groups=(
        Group(address=1, name="world", ranks=(0, 1), default=True),
        Group(address=10, name="rows", ranks=(0, 1)),
        Group(address=11, name="columns", ranks=(0, 1)),
    ),
)


def STUCK_IN_NFS(**more: object) -> Process:  # noqa: N802
    kernel = {
        "syscall": "read",
        "wchan": "rpc_wait_bit_killable",
        "files": (AwaitedFile(kind="file", name="/data/x", descriptor=7, mount="nfs4 (s:/x)"),),
        "state": "D",
    }
    return rank(1, train(12), kernel=kernel, **more)  # type: ignore[arg-type]


def MEETS(number: int) -> Process:  # noqa: N802
    frames = (frame("init_process_group", 9, TORCH + "distributed/distributed_c10d.py"), frame("main", 3))
    return rank(number, *frames, local_world=1, namespaces={"net": "net:[1]"})


def stranger(namespace: str, pid: int = 9) -> Listener:
    return Listener(port=29500, namespace=namespace, pid=pid, name="nc", argv=("nc", "-l", "29500"))


def machine(**more: object) -> Machine:
    values: dict[str, object] = {
        "cpu_model": "x", "cpu_flags": (), "cores": 64, "memory_total_bytes": 1, "memory_available_bytes": 1,
        "swap_total_bytes": 0, "swap_used_bytes": 0, "swapped_bytes": 0, "load_1m": 0.0, "kernel": "6", "interfaces": (),
        "hostname_addresses": ("10.0.0.1",),
    }  # fmt: skip
    return Machine(**{**values, **more})  # type: ignore[arg-type]


def lost(**more: object) -> Connections:
    """The connection of ranks 0 and 1 on an address of their own, with these readings at rank 0's end."""
    ends = silent(2, 60.0).connections
    return Connections(connections=(replace(ends[0], **more), *ends[1:]))


def called(address: str, retries: int, interface: str = "eth0") -> Snapshot:
    """Two hosts: rank 1 of h1 calls rank 0 of h0, which listens on this address."""
    ends = []
    for number, (state, here, there) in enumerate(
        (("LISTEN", address, "0.0.0.0"), ("SYN_SENT", "10.0.0.2", address))  # noqa: S104
    ):
        ends.append(
            Connection(
                pid=100 + number, namespace="net:[1]", state=state, local_address=here, local_port=40_000 + 9 * number,
                remote_address=there, remote_port=40_000 * number, receive_queue_bytes=0, send_queue_bytes=0,
                bytes_moved=0, last_sent_ms=None, last_received_ms=None, retransmits=retries * number,
                backoff=retries * number,
            )
        )  # fmt: skip
    hosts = []
    for number in range(2):
        known = [Interface(name="eth0", up=True, addresses=(f"10.0.0.{number + 1}",), networks=("10.0.0.0/24",))]
        if number == 0:
            known.append(Interface(name="docker0", up=True, addresses=("172.17.0.1",), networks=("172.17.0.0/16",)))
        ranked = replace(MEETS(number), environment=Environment(variables={"GLOO_SOCKET_IFNAME": interface}))
        one = snapshot(
            ranked, machine=machine(interfaces=tuple(known)), connections=Connections(connections=(ends[number],))
        )
        hosts.append(replace(one.hosts[0], name=f"h{number}"))
    return Snapshot(hangdoc="test", hosts=tuple(hosts))


def agents(*launches: Launch) -> Snapshot:
    """An agent on each host, waiting for the others."""
    hosts = []
    for number, asked in enumerate(launches):
        agent = replace(
            AGENT, launch=asked, argv=("python", "-m", "torch.distributed.run", "--node-rank", str(number), "train.py"),
            stack=stack(frame("next_rendezvous", 5, TORCH + "distributed/elastic/rendezvous/static_tcp_rendezvous.py")),
        )  # fmt: skip
        hosts.append(replace(snapshot(agent, silence=None).hosts[0], name=f"h{number}"))
    return Snapshot(hangdoc="test", hosts=tuple(hosts))


def asked(number: int, port: int = 29500) -> Launch:
    return Launch(tool="torchrun", nnodes="2", nproc_per_node="1", node_rank=number, endpoint=f"10.0.0.1:{port}")


def crowd(threads: int) -> Clocks:
    """So many compute threads that others push off their cores."""
    return Clocks(
        window_seconds=1.0,
        resolution_ns=1,
        threads=tuple(
            KernelThread(
                tid=100 + n,
                name="python3",
                state="R",
                cpu_ns=200_000_000,
                voluntary_switches=5,
                involuntary_switches=90,
            )
            for n in range(threads)
        ),
    )


def steps(before: int, after: int) -> Progress:
    return Progress(
        counters=(
            Counter(name="step", function="train", file="/home/me/train.py", before=before, after=after, looped=True),
        )
    )


def lonely(number: int, *frames: Frame) -> Process:
    """A rank at work that has neither a process group nor a backend's threads."""
    made = rank(number, *frames, cpu=0.9, interpreter=NO_GROUPS)
    assert isinstance(made.clocks, Clocks)
    return replace(made, clocks=replace(made.clocks, threads=made.clocks.threads[:1]))


def gpu_rank(number: int, threads: tuple[str, ...] = ("pt_nccl_watchdg", "cuda-EvtHandlr")) -> Process:
    """A rank at full CPU in `loss.item()`, inside libcuda."""
    native = stack(
        frame("cuStreamSynchronize", 0, "libcuda.so.1", native=True, library=True), train(14, source="loss.item()")
    )
    made = rank(number, train(14, source="loss.item()"), cpu=0.99, native=native)
    assert isinstance(made.clocks, Clocks)
    more = tuple(
        KernelThread(tid=2000 + i, name=name, state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0)
        for i, name in enumerate(threads)
    )
    return replace(made, clocks=replace(made.clocks, threads=(*made.clocks.threads, *more)))


FIRES: dict[str, Callable[[], Snapshot]] = {
    "HD101": lambda: snapshot(in_loop(0, 4, data=data(201, "a")), behind_loop(1, 3, data=data(4, "b"))),
    "HD102": lambda: snapshot(
        in_loop(0, 4, batches=5, data=data(9, "a")), behind_loop(1, 3, batches=4, data=data(9, "a"))
    ),
    "HD105": lambda: snapshot(in_loop(0, 4), behind_loop(1, 3)),
    "HD103": lambda: snapshot(
        in_loop(0, 4), rank(1, *LOADER, train(10)), helper(7, 101, frame("Data.__getitem__", 8), WORKER)
    ),
    "HD201": lambda: snapshot(
        rank(0, *c10d("all_reduce"), frame("main", 5)), rank(1, *c10d("barrier"), frame("main", 5))
    ),
    "HD202": lambda: snapshot(in_loop(0, 4), rank(1, frame("work", 3), train(12), cpu=0.99)),
    "HD204": lambda: snapshot(
        rank(0, *c10d("send", local("dst", 1)), frame("main", 5)),
        rank(1, *c10d("send", local("dst", 0)), frame("main", 5)),
    ),
    "HD104": lambda: snapshot(
        rank(0, train(12), cpu=0.9, data=data(9, "a")), rank(1, train(12), cpu=0.9, data=data(9, "b"))
    ),
    "HD203": lambda: snapshot(
        rank(0, *c10d("barrier"), frame("main", 5, conditions=("rank == 0",))),
        rank(1, *c10d("all_reduce"), frame("main", 9)),
    ),
    "HD205": lambda: snapshot(
        *(
            rank(
                n, *c10d("all_reduce", local("group", "<PG>", address=10 + n)), frame("main", 5), interpreter=TWO_GROUPS
            )
            for n in range(2)
        )
    ),
    "HD206": lambda: snapshot(
        *(rank(n, *c10d("all_reduce", local("tensor", f"float32[{4 + n}]")), frame("main", 5)) for n in range(2))
    ),
    "HD301": lambda: snapshot(in_loop(0, 4)),
    "HD303": lambda: snapshot(in_loop(0, 4), STUCK_IN_NFS()),
    "HD304": lambda: snapshot(
        in_loop(0, 4),
        rank(1, train(12, source="with self.lock:"), kernel={"syscall": "futex", "wchan": "futex_wait_queue"}),
    ),
    "HD305": lambda: snapshot(*(rank(n, train(12), cpu=0.9, ppid=1, owner=None, launcher_gone=True) for n in range(2))),
    "HD306": lambda: snapshot(
        replace(AGENT, stack=stack(frame("_exit_barrier", 5, TORCH + "distributed/elastic/agent/api.py")))
    ),
    "HD402": lambda: snapshot(MEETS(0), connections=Connections(connections=(), listeners=(stranger("net:[1]"),))),
    "HD403": lambda: called("10.0.0.1", retries=5),
    "HD404": lambda: called("172.17.0.1", retries=5, interface="docker0"),
    "HD405": lambda: snapshot(MEETS(0), machine=machine(hostname_addresses=("127.0.1.1",))),
    "HD406": lambda: agents(asked(0), asked(1, port=29501)),
    "HD407": lambda: snapshot(in_loop(0, 4), in_loop(1, 4), connections=lost(unacked=3, backoff=5)),
    "HD501": lambda: snapshot(
        in_loop(0, 4, argv=("python", "train.py", "--grad-accum", "2")),
        behind_loop(1, 3, argv=("python", "train.py", "--grad-accum", "4")),
    ),
    "HD503": lambda: snapshot(
        *(in_loop(n, 4, runtime=Runtime(python="3.11", executable=None, torch=f"2.{n}.0")) for n in range(2))
    ),
    "HD504": lambda: snapshot(
        rank(0, train(12, locals=(local("model.parameters()", "bfloat16[65792]"),)), cpu=0.9, world=1),
        machine=machine(cpu_flags=("avx2",)),
    ),
    "HD505": lambda: snapshot(rank(0, train(12), cpu=0.9, world=1, clocks=crowd(8)), machine=machine(cores=2)),
    "HD506": lambda: snapshot(
        AGENT_ALONE,
        *(lonely(n, frame("Linear.forward", 9, TORCH + "nn/modules/linear.py"), train(12)) for n in range(2)),
        silence=None,
    ),
    "HD601": lambda: snapshot(
        rank(0, train(15), cpu=0.2, progress=steps(10, 15)), rank(1, train(12), cpu=0.95, progress=steps(10, 15))
    ),
    "HD602": lambda: snapshot(in_loop(0, 4), rank(1, frame("evaluate", 3), train(12), cpu=0.99, progress=steps(3, 4))),
    "HD603": lambda: snapshot(
        in_loop(0, 4, cpu=0.05), in_loop(1, 4, cpu=0.05), connections=lost(bytes_moved=250_000, busy_ms=900)
    ),
    "HD701": lambda: snapshot(gpu_rank(0), gpu_rank(1)),
    "HD302": lambda: snapshot(in_loop(0, 4), rank(1, train(12), state="T")),
    "HD401": lambda: snapshot(AGENT),
    "HD502": lambda: snapshot(in_loop(0, 4, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}), in_loop(1, 4)),
    "HD901": lambda: snapshot(in_loop(0, 4, local_world=1)),
}
QUIET: dict[str, Callable[[], Snapshot]] = {
    # Different data, but the other rank is still in the loop and computes.
    "HD101": lambda: snapshot(in_loop(0, 4, data=data(201, "a")), rank(1, train(12), cpu=0.9, data=data(4, "b"))),
    # The data say why.
    "HD105": lambda: snapshot(in_loop(0, 4, data=data(201, "a")), behind_loop(1, 3, data=data(4, "b"))),
    # Two ranks in the same round of the loop.
    "HD102": lambda: snapshot(in_loop(0, 4), rank(1, *c10d("barrier"), train(18, locals=(local("step", 4),)))),
    # The worker is at work: the loader moves.
    "HD103": lambda: snapshot(
        in_loop(0, 4),
        rank(1, *LOADER, train(10)),
        helper(7, 101, frame("Data.__getitem__", 8), WORKER, clocks=rank(1, cpu=0.9).clocks),
    ),
    "HD201": lambda: snapshot(in_loop(0, 4), in_loop(1, 4)),
    # Nobody waits: both compute.
    "HD202": lambda: snapshot(rank(0, train(12), cpu=0.9), rank(1, train(12), cpu=0.9)),
    "HD204": lambda: snapshot(
        rank(0, *c10d("recv", local("src", 1)), frame("main", 5)), rank(1, frame("work", 3), cpu=0.9)
    ),
    "HD104": lambda: snapshot(*(rank(n, train(12), cpu=0.9, data=data(9, "a")) for n in range(2))),
    # Two arms of one branch: a mismatch.
    "HD203": lambda: snapshot(
        rank(0, *c10d("barrier"), frame("main", 5, conditions=("step < 3",))),
        rank(1, *c10d("all_reduce"), frame("main", 9, conditions=("not (step < 3)",))),
    ),
    "HD205": lambda: snapshot(
        *(
            rank(n, *c10d("all_reduce", local("group", "<PG>", address=10)), frame("main", 5), interpreter=TWO_GROUPS)
            for n in range(2)
        )
    ),
    # Other shapes, as many elements of one type.
    "HD206": lambda: snapshot(
        rank(0, *c10d("all_reduce", local("tensor", "float32[2, 3]")), frame("main", 5)),
        rank(1, *c10d("all_reduce", local("tensor", "float32[6]")), frame("main", 5)),
    ),
    # It reads on: slow, not stuck.
    "HD303": lambda: snapshot(in_loop(0, 4), STUCK_IN_NFS(files=FileBytes(read_bytes=5_000_000, written_bytes=0))),
    # It waits for an event, which another thread may set.
    "HD304": lambda: snapshot(
        in_loop(0, 4),
        rank(1, train(12, source="ready.wait()"), kernel={"syscall": "futex", "wchan": "futex_wait_queue"}),
    ),
    # Started by nohup, setsid or in a container: the parent 1 says nothing.
    "HD305": lambda: snapshot(*(rank(n, train(12), cpu=0.9, ppid=1, owner=None) for n in range(2))),
    "HD306": lambda: snapshot(AGENT),
    # The listener is the run's own first rank.
    "HD402": lambda: snapshot(
        MEETS(0), connections=Connections(connections=(), listeners=(stranger("net:[1]", pid=100),))
    ),
    # One repetition: a lost packet, as happens; and an interface that leads nowhere is not called at all.
    "HD403": lambda: called("10.0.0.1", retries=1),
    "HD404": lambda: called("10.0.0.1", retries=5),
    "HD405": lambda: snapshot(MEETS(0), machine=machine(hostname_addresses=("10.0.0.7",))),
    # Ranks of a node are meant to differ.
    "HD406": lambda: agents(asked(0), asked(1)),
    # One doubling of the timer: a lost segment, as happens.
    "HD407": lambda: snapshot(in_loop(0, 4), in_loop(1, 4), connections=lost(unacked=3, backoff=1)),
    # Meant to differ, or only tuning.
    "HD501": lambda: snapshot(
        in_loop(0, 4, argv=("python", "train.py", "--seed", "1", "--num-workers=2")),
        in_loop(1, 4, argv=("python", "train.py", "--seed", "2", "--num-workers=4")),
    ),
    "HD503": lambda: snapshot(
        *(in_loop(n, 4, runtime=Runtime(python="3.11", executable=None, torch="2.13.0")) for n in range(2))
    ),
    # Named and not used: nanoGPT on a CPU.
    "HD504": lambda: snapshot(
        rank(
            0,
            train(
                12, locals=(local("dtype", "'float16'"), local("ptdtype", "torch.float16"), local("x", "float16[4]"))
            ),
            cpu=0.9,
            world=1,
            argv=("python", "train.py", "--dtype=float16", "--bf16"),
            environment={"ACCELERATE_MIXED_PRECISION": "bf16"},
        ),
        machine=machine(cpu_flags=("avx2",)),
    ),
    "HD505": lambda: snapshot(rank(0, train(12), cpu=0.9, world=1, clocks=crowd(2)), machine=machine(cores=2)),
    # It imports and prepares: the process group may still come.
    "HD506": lambda: snapshot(
        AGENT_ALONE,
        *(lonely(n, frame("tokenize", 9), train(12)) for n in range(2)),
        silence=None,
    ),
    # One round: a phase, not a habit.
    "HD601": lambda: snapshot(
        rank(0, train(15), cpu=0.2, progress=steps(10, 11)), rank(1, train(12), cpu=0.95, progress=steps(10, 11))
    ),
    # It works on what counts nothing: nobody knows whether it is legitimate.
    "HD602": lambda: snapshot(in_loop(0, 4), rank(1, frame("solve", 3), train(12), cpu=0.99)),
    "HD603": lambda: snapshot(
        in_loop(0, 4, cpu=0.05), in_loop(1, 4, cpu=0.05), connections=lost(bytes_moved=250_000, busy_ms=100)
    ),
    # The same stack in a rank that has no GPU threads.
    "HD701": lambda: snapshot(gpu_rank(0, threads=()), gpu_rank(1, threads=())),
    # The other rank may live on another host.
    "HD301": lambda: snapshot(in_loop(0, 4, local_world=1)),
    "HD302": lambda: snapshot(in_loop(0, 4), rank(1, train(12), cpu=0.9)),
    "HD401": lambda: snapshot(in_loop(0, 4), in_loop(1, 4)),
    "HD502": lambda: snapshot(in_loop(0, 4, environment={"OMP_NUM_THREADS": "1"}), in_loop(1, 4)),
    "HD901": lambda: snapshot(in_loop(0, 4), rank(1, train(12), cpu=0.9)),
}
