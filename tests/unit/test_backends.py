"""Which backend a job and its groups use: from torch's own registry, else by threads."""

from msgspec.structs import replace

from hangdoc.diagnosis import Job
from hangdoc.observe.interpreter import process_groups
from hangdoc.observe.locate import locate
from hangdoc.observe.python_state import Modules
from hangdoc.reasoning.engine import diagnose, examine
from hangdoc.reasoning.evidence.records import backend_names
from hangdoc.reasoning.waiting import blockages
from hangdoc.snapshot import AwaitedFile, Clocks, Group, Interpreter, KernelThread, Process, Snapshot
from tests.rules.shapes import gpu_rank
from tests.unit.builders import c10d, frame, local, rank, snapshot, stack, train
from tests.unit.test_what_ranks_wait_for import PROC, variables_of

GROUPS = """
import sys, torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # a backend for devices that are not here
dist.init_process_group("cpu:gloo,cuda:fake", rank=0, world_size=1, store=dist.HashStore())
dist.new_group([0], backend="gloo")
print(flush=True); sys.stdin.read()
"""


def test_the_backend_of_each_group_is_read_from_torchs_registry() -> None:
    with variables_of(GROUPS) as (memory, _):
        modules = Modules(memory, locate(PROC, memory.pid))
        c10d_module = "torch.distributed.distributed_c10d"
        groups = process_groups(memory, modules.namespace(c10d_module)[c10d_module])
    assert [(group.default, group.backend) for group in groups] == [
        (True, "cpu:gloo,cuda:fake"),
        (False, "cpu:gloo,cuda:gloo"),
    ]


def with_groups(*configured: str | None) -> Interpreter:
    groups = tuple(
        Group(address=n, name=str(n), ranks=(0, 1), default=n == 0, backend=text) for n, text in enumerate(configured)
    )
    return Interpreter(environment={}, globals=(), groups=groups)


def with_threads(process: Process, *names: str) -> Process:
    assert isinstance(process.clocks, Clocks)
    threads = tuple(
        KernelThread(tid=900 + n, name=name, state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0)
        for n, name in enumerate(names)
    )
    clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=(process.clocks.threads[0], *threads))
    return replace(process, clocks=clocks)


def job_backend(*configured: str | None, threads: tuple[str, ...] = ("pt_gloo_runloop",)) -> str | None:
    ranks = [
        with_threads(rank(n, train(12), cpu=0.9, interpreter=with_groups(*configured)), *threads) for n in range(2)
    ]
    (job,) = diagnose(snapshot(*ranks)).jobs
    return job.backend


def test_the_backend_of_a_job() -> None:
    both = "cpu:gloo,cuda:nccl"
    assert job_backend("cpu:gloo") == job_backend("cpu:gloo,cuda:gloo") == job_backend("gloo") == "gloo"
    assert job_backend("cuda:nccl") == job_backend("nccl") == "nccl"
    assert job_backend(both) == both
    assert job_backend("cuda:nccl", "cpu:gloo,cuda:gloo") == both  # a group of its own for what lies on the host
    assert job_backend("cpu:mpi,cuda:nccl") == "cpu:mpi,cuda:nccl"
    # Nothing in the registry, as with an older bundle or a memory that could not be read.
    assert job_backend(threads=("pt_gloo_runloop",)) == job_backend(None) == "gloo"
    assert job_backend(threads=("pt_nccl_watchdg",)) == "nccl"
    assert job_backend(threads=("pt_nccl_watchdg", "gloo_tcp_loop")) == both
    assert job_backend(threads=()) is None


def test_an_operation_has_the_backend_of_its_group() -> None:
    def calls(group: int) -> Snapshot:
        frames = (*c10d("all_reduce", local("group", "<PG>", address=group)), frame("main", 5))
        mixed = with_groups("cuda:nccl", "cpu:gloo,cuda:gloo")
        return snapshot(*(rank(n, *frames, interpreter=mixed) for n in range(2)))

    def shown(job: Job) -> list[str | None]:
        return [one.operation.backend for one in job.ranks if one.operation is not None]

    for group, backend in ((0, "nccl"), (1, "gloo")):
        diagnosis, (run,) = examine(calls(group))
        (job,) = diagnosis.jobs
        assert shown(job) == [backend] * 2
        assert job.backend == "cpu:gloo,cuda:nccl"
        # NCCL's data goes over other ways than the sockets: their silence dates only what Gloo waits for.
        assert (run.age_seconds is None) == (backend == "nccl")


def test_a_wait_in_a_group_of_both_backends_has_no_age() -> None:
    """Which of them the operation uses depends on the device of its tensors."""
    frames = (*c10d("all_reduce", local("group", "<PG>", address=0)), frame("main", 5))
    both = with_groups("cpu:gloo,cuda:nccl", "cpu:gloo")
    _, (run,) = examine(snapshot(*(rank(n, *frames, interpreter=both) for n in range(2))))
    assert run.age_seconds is None


def test_a_rank_of_a_gloo_group_does_not_spin_for_nccl() -> None:
    here = stack(*c10d("all_reduce", local("group", "<PG>", address=1)), frame("main", 5))

    def codes(*configured: str) -> list[str]:
        inside = with_groups(*configured)
        ranks = [replace(gpu_rank(n), stack=here, stack_before=here, interpreter=inside) for n in range(2)]
        (job,) = diagnose(snapshot(*ranks)).jobs
        return [finding.code for finding in job.findings]

    assert "HD701" in codes("cuda:nccl", "cuda:nccl")
    assert "HD701" not in codes("cuda:nccl", "cpu:gloo,cuda:gloo")


def test_what_a_gpu_does_is_not_seen_where_any_group_uses_nccl() -> None:
    def still(*configured: str) -> bool:
        kernel = {
            "syscall": "read",
            "wchan": "rpc_wait_bit_killable",
            "files": (AwaitedFile(kind="file", name="/data/x", descriptor=7, mount="nfs4 (s:/x)"),),
            "state": "D",
        }
        ranks = [rank(n, train(12), kernel=kernel, interpreter=with_groups(*configured)) for n in range(2)]
        return blockages.is_idle(examine(snapshot(*ranks))[1][0])

    assert still("cpu:gloo")
    assert not still("cpu:gloo,cuda:nccl")
    assert not still("cpu:gloo", "cuda:nccl")


def test_the_parts_of_a_text() -> None:
    assert backend_names("cpu:gloo,cuda:nccl") == {"gloo", "nccl"}
    assert backend_names("nccl") == {"nccl"}
    assert backend_names(None) == frozenset()
