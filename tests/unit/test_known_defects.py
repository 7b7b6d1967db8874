"""Known defects: who shows the sign of which, by version, architecture, frames and state."""

from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Finding
from hangdoc.parse import version
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.rules import all_rules
from hangdoc.snapshot import Clocks, Communicator, Communicators, Process, Runtime, Snapshot, Unavailable
from hangdoc.torch_facts.known_defects import KNOWN_DEFECTS
from tests.rules.hd703.case import appending, on
from tests.rules.shapes import gpu_rank, machine
from tests.unit.builders import c10d, frame, rank, snapshot, stack, train


def found(taken: Snapshot) -> list[Finding]:
    diagnosis = diagnose(taken)
    assert not diagnosis.problems
    return [one for job in diagnosis.jobs for one in job.findings if one.code == "HD703"]


def communicator(number: int, **more: Any) -> Communicator:
    about: dict[str, Any] = {
        "hash": 5, "rank": number, "size": 16, "cuda_device": 0, "bus": 96, "node": 0, "nodes": 2, "counts": (0, 0, 0, 0, 7),
        "counts_before": (0, 0, 0, 0, 7), "launches": 7, "launches_before": 7, "async_result": 0, "init_state": 0,
        "destroyed": False, "revoked": False, "finalized": False,
    }  # fmt: skip
    return Communicator(**{**about, **more})


def with_communicator(process: Process, nccl: str, **more: Any) -> Process:
    one = communicator(process.pid - 100, **more)
    return replace(process, communicators=Communicators(nccl_version=nccl, communicators=(one,)))


@pytest.mark.parametrize(
    ("architecture", "nccl", "codes"),
    [
        ("aarch64", "2.28.9", ["2.29.3"]), ("aarch64", "2.29.2", ["2.29.3"]), ("aarch64", "2.29.3", []),
        ("aarch64", "2.30.7", []),
        ("x86_64", "2.28.9", []), ("aarch64", "2.28.7", ["2.28.9"]), ("x86_64", "2.27.3", ["2.28.9"]), ("", "2.28.9", []),
    ],
)  # fmt: skip
def test_the_proxy_by_version_and_architecture(architecture: str, nccl: str, codes: list[str]) -> None:
    findings = found(on(architecture, nccl))
    assert [one.summary.rpartition("(fixed in ")[2].removesuffix(")") for one in findings] == codes
    for one in findings:
        assert (one.severity, one.culprits, one.victims) == ("warning", (1,), (0,))


def test_names_of_functions_in_every_form() -> None:
    """With arguments, mangled, and a longer name that is another function's."""
    for name, count in (
        ("ncclLocalOpAppend", 1), ("ncclLocalOpAppend(ncclComm*, ncclProxyConnector*)", 1),
        ("_ZL17ncclLocalOpAppendP8ncclCommP18ncclProxyConnectorP11ncclProxyOp.isra.10", 1), ("SaveProxy(ncclLocalOpAppend*)", 0),
    ):  # fmt: skip
        process = replace(appending(1, "2.28.9"), native=stack(frame(name, 0, "libnccl.so.2", native=True), train(14)))
        assert len(found(snapshot(gpu_rank(0), process, machine=machine(architecture="aarch64")))) == count, name


def test_a_rank_that_counts_is_not_stuck() -> None:
    """It was in the function by chance: its counts grow, or its lines change."""
    host = machine(architecture="aarch64")
    standing = with_communicator(appending(1, "2.28.9"), "2.28.9")
    growing = with_communicator(appending(1, "2.28.9"), "2.28.9", launches=8)
    elsewhere = replace(standing, stack_before=stack(*c10d("all_gather"), train(12)))
    for process, count in ((standing, 1), (growing, 0), (elsewhere, 0)):
        assert len(found(snapshot(gpu_rank(0), process, machine=host))) == count


def test_unknown_versions_have_no_defects() -> None:
    process = replace(appending(1, "2.28.9"), runtime=Unavailable(reason="denied"))
    assert not found(snapshot(gpu_rank(0), process, machine=machine(architecture="aarch64")))
    for text in ("", "unknown", "v2"):
        assert version(text) is None
    assert [version(text) for text in ("2.5.1+cu121", "2.6", "2.6.0a0+git5")] == [(2, 5, 1), (2, 6, 0), (2, 6, 0)]


def test_a_destroyed_communicator_that_graphs_use() -> None:
    """In every version, and only while the communicator is destroyed."""
    leaving = rank(1, *c10d("destroy_process_group"), train(30))
    for more, count in (
        ({"graphs": 3, "destroyed": True}, 1), ({"graphs": 3, "finalized": True}, 1), ({"graphs": 3}, 0),
        ({"destroyed": True}, 0),
    ):  # fmt: skip
        both = [with_communicator(process, "2.30.7", **more) for process in (gpu_rank(0), leaving)]
        findings = [one for one in found(snapshot(*both)) if "CUDA graphs" in one.summary]
        assert len(findings) == count, more
        for one in findings:
            assert (one.severity, one.culprits) == ("warning", (0, 1))
            assert "3 plans of CUDA graphs use" in one.evidence[0].text
            assert "fixed in" not in one.summary


@pytest.mark.parametrize(("nccl", "count"), [("2.29.3", 0), ("2.29.7", 1), ("2.30.4", 1), ("2.30.7", 0)])
def test_pxn_is_only_something_to_try(nccl: str, count: int) -> None:
    ranks = [with_communicator(gpu_rank(n), nccl, pxn=True) for n in range(2)]
    findings = found(snapshot(*ranks))
    assert len(findings) == count
    for one in findings:
        assert (one.severity, one.culprits, one.victims) == ("info", (), (0, 1))
        assert "NCCL_PXN_DISABLE=1" in one.remedy
    for more in ({"nodes": 1, "pxn": True}, {"pxn": False}):
        assert not found(snapshot(*(with_communicator(gpu_rank(n), nccl, **more) for n in range(2))))


def test_pxn_in_a_run_that_works() -> None:
    working = [with_communicator(rank(n, train(12), cpu=0.9), "2.29.7", pxn=True, launches=9) for n in range(2)]
    assert not found(snapshot(*working))


def test_a_rank_that_destroys_its_groups_while_others_wait() -> None:
    """A `finally` after an exception. With Gloo it does not wait, and if all destroy theirs, nobody waits in another call."""
    runtime = Runtime(python="3.12", executable=None, torch="2.13.0")
    waits = rank(0, *c10d("all_reduce"), train(14), runtime=runtime)
    leaves = rank(1, *c10d("destroy_process_group"), frame("main", 40), runtime=runtime)

    def with_nccl(process: Process) -> Process:
        assert isinstance(process.clocks, Clocks)
        threads = tuple(replace(one, name="pt_nccl_watchdg") for one in process.clocks.threads[1:])
        return replace(process, clocks=replace(process.clocks, threads=(process.clocks.threads[0], *threads)))

    findings = found(snapshot(with_nccl(waits), with_nccl(leaves)))
    assert [(one.severity, one.culprits, one.victims) for one in findings] == [("warning", (1,), (0,))]
    assert "exception" in findings[0].summary
    assert not found(snapshot(waits, leaves))
    assert not found(
        snapshot(
            *(with_nccl(replace(leaves, pid=100 + n, identity=one.identity)) for n, one in enumerate((waits, leaves)))
        )
    )


@pytest.mark.parametrize(("torch", "count"), [("2.5.1+cu124", 1), ("2.6.0+cu124", 0), ("2.13.0", 0)])
def test_megatrons_overlap(torch: str, count: int) -> None:
    runtime = Runtime(python="3.11", executable=None, torch=torch)
    file = "/env/lib/python3.11/site-packages/megatron/core/pipeline_parallel/combined_1f1b.py"
    calls = frame("combined_1f1b_schedule_for_interleaved_pipelining", 80, file)
    ranks = [rank(n, *c10d("all_to_all_single"), calls, train(14), runtime=runtime) for n in range(2)]
    findings = found(snapshot(*ranks))
    assert len(findings) == count
    for one in findings:
        assert "with torch before 2.6" in one.summary
        assert one.evidence[0].text == "in combined_1f1b_schedule_for_interleaved_pipelining (combined_1f1b.py)"


def test_the_table() -> None:
    """Each entry has a name, a source and a sign of its own; none is called sure, and the rule's page has the first source."""
    assert len({one.name for one in KNOWN_DEFECTS}) == len(KNOWN_DEFECTS)
    page = next(rule.page for rule in all_rules() if rule.code == "HD703")
    for one in KNOWN_DEFECTS:
        assert one.native or one.python or one.state, one.name
        assert one.sources and all(source.startswith("https://") for source in one.sources)
        assert any(source in page for source in one.sources), one.name
        assert 0 < one.confidence <= 0.9
        assert not (one.since and one.fixed) or one.since < one.fixed
        assert one.remedy.endswith(".")
        assert not one.what.endswith(".")
        assert not one.only_matches or one.native is None


def test_it_is_never_an_error() -> None:
    findings = [*found(on("aarch64", "2.28.9")), *found(on("x86_64", "2.27.3"))]
    assert findings and all(one.severity in ("warning", "info") for one in findings)
