"""What is said of a rendezvous that is not complete."""

from msgspec.structs import replace

from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Clocks, Connections, Process
from tests.unit.builders import TORCH, frame, rank, snapshot, stack


def without_backend(process: Process) -> Process:
    """A rank that has no thread of Gloo yet."""
    assert isinstance(process.clocks, Clocks)
    return replace(process, clocks=replace(process.clocks, threads=process.clocks.threads[:1]))


def test_a_rank_that_is_alive_and_imports_modules_is_not_missing() -> None:
    importing = [
        (
            frame("<module>", line, f"{TORCH}_dynamo/__init__.py"),
            frame("_call_with_frames_removed", 1, "<frozen importlib._bootstrap>", library=True),
            frame("<module>", 2, source="import torch"),
        )
        for line in (4, 5)
    ]
    meets = (frame("_create_c10d_store", 1, TORCH + "distributed/rendezvous.py"), frame("main", 3))
    moves = without_backend(rank(1, *importing[1], world=3, cpu=0.1, stack_before=stack(*importing[0])))
    still = without_backend(rank(1, *importing[1], world=3))
    there = rank(2, *meets, world=3)
    for second, third, verdict, last, says in (
        (moves, there, "waiting", "(it imports modules)", "May"),
        (moves, None, "waiting", "rank 2 is missing", "Start the missing"),
        (still, there, "hung", "rank 1 is alive and still sleeping at me/train.py:2 `import torch`", "keeps rank 1"),
    ):
        processes = [rank(0, *meets, world=3), second, *([third] if third is not None else [])]
        (job,) = diagnose(snapshot(*processes, connections=Connections(connections=()))).jobs
        finding = job.findings[0]
        assert (job.verdict, finding.code, 1 in finding.culprits) == (verdict, "HD401", True)
        assert finding.summary.endswith(last)
        assert "rank 1 is alive and still" in finding.summary
        assert "rank 1 is missing" not in finding.summary
        assert says.lower() in finding.remedy.lower()
