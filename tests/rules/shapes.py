"""Processes and snapshots that the cases of several rules share."""

from msgspec.structs import replace

from hangdoc.snapshot import (
    AwaitedFile,
    Card,
    Clocks,
    Connection,
    Connections,
    Counter,
    DataSource,
    DataSources,
    Environment,
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
    Snapshot,
)
from tests.unit.builders import (
    TORCH,
    backward,
    c10d,
    frame,
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


def card(index: int, *users: int, **more: object) -> Card:
    """A card in whose kernels these processes wait, as an H100 was seen."""
    values: dict[str, object] = {
        "name": "NVIDIA H100 80GB HBM3", "bus_id": f"0000:{0x10 + index:02x}:00.0", "utilisation": 100, "memory_activity": 0,
        "power_watts": 130.6, "power_limit_watts": 700.0, "sm_clock_mhz": 1980, "throttle": (), "pids": users,
    }  # fmt: skip
    return Card(index=index, **{**values, **more})  # type: ignore[arg-type]


def gpu_rank(number: int, threads: tuple[str, ...] = ("pt_nccl_watchdg", "cuda-EvtHandlr"), world: int = 2) -> Process:
    """A rank at full CPU in `loss.item()`, inside libcuda."""
    native = stack(
        frame("cuStreamSynchronize", 0, "libcuda.so.1", native=True, library=True), train(14, source="loss.item()")
    )
    made = rank(number, train(14, source="loss.item()"), cpu=0.99, native=native, world=world)
    assert isinstance(made.clocks, Clocks)
    more = tuple(
        KernelThread(tid=2000 + i, name=name, state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0)
        for i, name in enumerate(threads)
    )
    return replace(made, clocks=replace(made.clocks, threads=(*made.clocks.threads, *more)))
