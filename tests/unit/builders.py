"""Small snapshots for the rules' tests: a rank is its frames, its CPU share and what else matters."""

from typing import Any

from hangdoc.snapshot import (
    Clocks,
    Connection,
    Connections,
    Environment,
    Frame,
    Host,
    KernelThread,
    Local,
    Loop,
    Process,
    Progress,
    PythonThread,
    RankIdentity,
    Snapshot,
    Stack,
)

TORCH = "/env/lib/python3.11/site-packages/torch/"
LOOP = Loop(line=10, end_line=20, header="for step, batch in enumerate(loader)", counters=("step",), start=0)


def local(name: str, value: object, **more: Any) -> Local:
    return Local(name=name, text=str(value), **more)


def frame(function: str, line: int = 1, file: str = "/home/me/train.py", **more: Any) -> Frame:
    more.setdefault("library", "site-packages" in file)
    return Frame(function=function, file=file, line=line, **more)


def c10d(op: str, *locals_: Local) -> tuple[Frame, ...]:
    """The two frames that a collective leaves."""
    return (
        frame(op, 5000, TORCH + "distributed/distributed_c10d.py", locals=locals_),
        frame("_exception_logger.<locals>.wrapper", 83, TORCH + "distributed/c10d_logger.py"),
    )


def native_backward() -> Stack:
    """The native stack of a rank in DDP's gradient all-reduce."""
    names = ("pthread_cond_wait", "c10d::Reducer::finalize_backward", "THPEngine_run_backward")
    frames = tuple(frame(name, 0, "libtorch_cpu.so", native=True, library=True) for name in names)
    return stack(*frames, *backward(), frame("train", 15))


def backward() -> tuple[Frame, ...]:
    return (
        frame("_engine_run_backward", 979, TORCH + "autograd/graph.py"),
        frame("Tensor.backward", 623, TORCH + "_tensor.py"),
    )


def train(line: int, **more: Any) -> Frame:
    """The user's loop, at a line: 10 to 20 is inside it."""
    return frame("train", line, loops=(LOOP,), **more)


def stack(*frames: Frame) -> Stack:
    thread = PythonThread(tid=None, name="MainThread", active=False, owns_gil=False, frames=frames)
    return Stack(at_seconds=0.0, threads=(thread,))


def rank(
    number: int,
    *frames: Frame,
    world: int = 2,
    cpu: float = 0.0,
    state: str = "S",
    environment: dict[str, str] | None = None,
    kernel: dict[str, Any] | None = None,
    local_world: int | None = None,
    **more: Any,
) -> Process:
    """Rank `number`, pid 100 + number, whose main thread used `cpu` of a core and stood at `frames` twice."""
    pid = more.pop("pid", 100 + number)
    thread = KernelThread(
        tid=pid, name="python3", cpu_ns=int(cpu * 1e9),
        **{"state": "S", "voluntary_switches": 0, "involuntary_switches": 0, **(kernel or {})},
    )  # fmt: skip
    gloo = KernelThread(
        tid=1000 + number, name="pt_gloo_runloop", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0
    )
    values: dict[str, Any] = {
        "pid": pid,
        "ppid": 50,
        "role": "rank",
        "name": "python3",
        "argv": ("python3", "train.py"),
        "state": state,
        "started_seconds_ago": 100.0,
        "identity": RankIdentity(
            rank=number, source="environment", world_size=world, local_rank=number,
            local_world_size=world if local_world is None else local_world,
            master_address="10.0.0.1", master_port=29500, run_id="none",
        ),
        "owner": 50,
        "environment": Environment(variables=environment or {}),
        "clocks": Clocks(window_seconds=1.0, resolution_ns=1, threads=(thread, gloo)),
        "stack": stack(*frames),
        "stack_before": stack(*frames),
        "progress": Progress(counters=()),
    }  # fmt: skip
    return Process(**{**values, **more})


def helper(pid: int, owner: int, *frames: Frame, **more: Any) -> Process:
    """A dataloader worker of a rank."""
    values: dict[str, Any] = {
        "pid": pid, "ppid": owner, "role": "helper", "name": "pt_data_worker", "argv": ("python3",), "state": "S",
        "started_seconds_ago": 50.0, "owner": owner, "stack": stack(*frames),
    }  # fmt: skip
    return Process(**{**values, **more})


def silent(ranks: int, seconds: float) -> Connections:
    """Connections of all pairs of ranks, silent for so long."""
    ends = []
    for a in range(ranks):
        for b in range(ranks):
            if a != b:
                low, high = 40_000 + min(a, b) * 100 + max(a, b), 50_000 + min(a, b) * 100 + max(a, b)
                mine, theirs = (low, high) if a < b else (high, low)
                ends.append(
                    Connection(
                        pid=100 + a, namespace="net:[1]", state="ESTABLISHED", local_address="10.0.0.1",
                        local_port=mine, remote_address="10.0.0.1", remote_port=theirs, receive_queue_bytes=0,
                        send_queue_bytes=0, bytes_moved=0, last_sent_ms=int(seconds * 1000),
                        last_received_ms=int(seconds * 1000),
                    )
                )  # fmt: skip
    return Connections(connections=tuple(ends))


def snapshot(*processes: Process, silence: float | None = 60.0, **more: Any) -> Snapshot:
    """One host with these processes, whose ranks have been silent for so long."""
    ranks = max((p.pid - 100 for p in processes if p.role == "rank"), default=-1) + 1
    if silence is not None and "connections" not in more:
        more["connections"] = silent(ranks, silence)
    host = Host(
        name="h0", taken_at="2026-01-01T00:00:00+00:00", window_seconds=1.0, elapsed_seconds=1.2,
        processes=processes, **more,
    )  # fmt: skip
    return Snapshot(hangdoc="test", hosts=(host,))
