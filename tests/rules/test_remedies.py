"""Remedies follow from the evidence of the finding: for each rule, a case in which its usual remedy would be wrong."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc import codec
from hangdoc.diagnosis import Finding
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import (
    AwaitedFile,
    Cards,
    Clocks,
    ControlGroup,
    Exit,
    Frame,
    Holder,
    KernelState,
    KernelThread,
    Loader,
    Loops,
    Process,
    PythonThread,
    Snapshot,
    Stack,
)
from tests.rules import CODES, fires
from tests.rules.hd105.case import inside, left
from tests.rules.shapes import LOADER, WORKER, behind_loop, card, crowd, data, in_loop, machine
from tests.unit.builders import c10d, frame, helper, local, rank, snapshot, train

RECORDED = Path(__file__).parents[1] / "corpus/recorded"


def recorded(name: str) -> Snapshot:
    return codec.read(RECORDED / f"{name}.hangdoc")


def calls(*tests: tuple[str, ...], ops: tuple[str, str] = ("all_reduce", "barrier")) -> Snapshot:
    """Two ranks in two calls, under these conditions."""
    return snapshot(
        *(
            rank(n, *c10d(op), frame("main", 5 + n, conditions=test))
            for n, (op, test) in enumerate(zip(ops, tests, strict=True))
        )
    )


def over_loader(done: int, total: int) -> Loops:
    """The loop goes over a dataloader."""
    loader = Loader(
        name="loader",
        function="train",
        file="/home/me/train.py",
        line=10,
        begins=10,
        kind="dataloader",
        done=done,
        total=total,
    )
    return Loops(loaders=(loader,))


def swallowed(bound: str | None) -> Snapshot:
    """Rank 1 has left the loop, of so many rounds, by the handler around it."""
    return with_loop(exits=(Exit(line=20, statement="except", conditions=("except KeyError",)),), bound=bound)


def resumed() -> Snapshot:
    """Rank 1 has left a loop that begins at a variable, which could not be read."""
    header = "for epoch in range(self.epochs_run, self.max_epochs)"
    return with_loop(header=header, begin="self.epochs_run", start=None, bound="self.max_epochs", exits=())


def caught() -> Snapshot:
    """Rank 1 has left the loop after an unknown number of rounds, and a handler in it continues it."""
    evidence = with_loop(every=1)
    (host,) = evidence.hosts
    first, second = host.processes
    return replace(evidence, hosts=(replace(host, processes=(with_main(first, caught=("except ValueError",)),
                                                             with_main(second, locals=()))),))  # fmt: skip


def with_main(process: Process, **values: Any) -> Process:
    """A rank with these values in the frame that has the loop."""
    stack = process.stack
    assert isinstance(stack, Stack)
    (thread,) = stack.threads
    frames = tuple(replace(each, **values) if each.loops else each for each in thread.frames)
    stack = replace(stack, threads=(replace(thread, frames=frames),))
    return replace(process, stack=stack, stack_before=stack)


def with_loop(**values: Any) -> Snapshot:
    """Rank 1 has left a loop with these values, and rank 0 has not."""

    def changed(process: Process) -> Process:
        stack = process.stack
        assert isinstance(stack, Stack)
        loops = tuple(
            replace(each, loops=tuple(replace(loop, **values) for loop in each.loops))
            for each in stack.threads[0].frames
        )
        stack = replace(stack, threads=(replace(stack.threads[0], frames=loops),))
        return replace(process, stack=stack, stack_before=stack)

    return snapshot(changed(inside(0)), changed(left(1)))


def loader(*workers: Process, **more: Any) -> Snapshot:
    return snapshot(in_loop(0, 4), rank(1, *LOADER, train(10)), *workers, **more)


def beside(*frames: Frame, **more: Any) -> Snapshot:
    """Rank 0 waits in the backward, and rank 1 is like this."""
    return snapshot(in_loop(0, 4), rank(1, *frames, **more))


def at_lock(*sources: str) -> Snapshot:
    """Threads of rank 1 wait at these lines."""
    threads = tuple(
        PythonThread(tid=101 + n, name=f"T{n}", active=False, owns_gil=False, frames=(train(30 + n, source=source),))
        for n, source in enumerate(sources)
    )
    stack = Stack(at_seconds=0.0, threads=threads)
    kernel = tuple(
        KernelThread(
            tid=101 + n, name="python3", state="S", cpu_ns=0, voluntary_switches=0, involuntary_switches=0, **_FUTEX
        )
        for n in range(len(sources))
    )
    clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=kernel)
    return beside(stack=stack, stack_before=stack, clocks=clocks)


def with_host(evidence: Snapshot, **more: Any) -> Snapshot:
    return replace(evidence, hosts=(replace(evidence.hosts[0], **more),))


def tensors(*shown: str) -> Snapshot:
    return snapshot(
        *(rank(n, *c10d("all_reduce", local("tensor", text)), frame("main", 5)) for n, text in enumerate(shown))
    )


_FUTEX: dict[str, Any] = {"syscall": "futex", "wchan": "futex_wait_queue"}
_GETITEM = (frame("Data.__getitem__", 8), WORKER)
_OOM = ControlGroup(path="/pod7", frozen=False, throttled_us=0, oom_kills=2)
_SHM = machine(shared_total_bytes=64_000_000, shared_free_bytes=0)
_TRACED = KernelState(state="t", tracer_pid=5, tracer="gdb")
_CROWD = [rank(n, train(12), cpu=0.9, world=3, clocks=crowd(4)) for n in range(3)]
_LOCK = AwaitedFile(kind="file", name="/data/read.lock", holders=(Holder(pid=60, name="flock", state="S"),))
_AT_FILE_LOCK = Clocks(
    window_seconds=1.0, resolution_ns=1,
    threads=(KernelThread(tid=7, name="pt_data_worker", state="S", cpu_ns=0, voluntary_switches=0,
                          involuntary_switches=0, syscall="flock", files=(_LOCK,)),),
)  # fmt: skip
_STARVED = rank(1, cpu=0.01, pid=7, kernel={"state": "R"}).clocks

CASES: dict[str, list[tuple[Snapshot, str]]] = {
    "HD103": [
        (loader(helper(7, 101, state="Z", exit_code=9)), "Find out how the worker ended"),
        (loader(helper(7, 101, state="Z", exit_code=9), control_groups=(_OOM,)), "more memory, or use less"),
        (loader(helper(7, 101, *_GETITEM), machine=_SHM), "Make /dev/shm larger"),
        (loader(helper(7, 101, *_GETITEM, state="T")), "continue it with SIGCONT"),
        (loader(helper(7, 101, *_GETITEM, clocks=_STARVED)), "Give the workers CPU"),
        (loader(helper(7, 101, *_GETITEM, clocks=_AT_FILE_LOCK)), "Look at what pid 60 (flock) does"),
        (loader(), "Find out how the workers ended"),
    ],
    "HD102": [
        (
            snapshot(
                in_loop(0, 30, 32, data=data(9, "a"), loops=over_loader(30, 32)),
                behind_loop(1, 28, 29, data=data(9, "a"), loops=over_loader(29, 29)),
            ),
            "Split one data set with this sampler, or agree on the minimum",
        )
    ],
    "HD105": [
        (swallowed("201"), "Let the exception end the rank"),
        (swallowed(None), "Nothing shows how much data there was. If it ended,"),
        (caught(), "Or look in the log of rank 1 for an exception that was caught"),
        (resumed(), "Compare `self.epochs_run`, at which the loop begins, between the ranks."),
    ],
    "HD201": [
        (calls(("step < 3",), ("not (step < 3)",)), "Let all ranks decide on `step < 3` together"),
        (calls(("len(found) > 2",), ()), "Let all ranks decide on `len(found) > 2` together"),
        (calls(("except ValueError",), ()), "Let the exception end the rank"),
    ],
    "HD202": [(recorded("stale_lock"), "delete it"), (recorded("filelock_suspended"), "continue it with SIGCONT")],
    "HD203": [
        (
            recorded("nan_skip"),
            "a condition such as `not torch.isnan(loss)`. Let all ranks decide on it together: all_reduce a flag",
        ),
        (recorded("nan_skip_fsdp"), "Let all ranks decide on `torch.isfinite(loss)` together"),
        (recorded("critic_skipped"), "Let all ranks decide on `self.accuracy < 0.9` together"),
        (recorded("averaging_period"), "Give `period` the same value on all ranks"),
        (recorded("log_on_main"), "on every rank of the group, not only under `batch == 5 and is_main()`"),
        (recorded("fabric_main_process_only"), "on every rank of the group, not only under `fabric.is_global_zero`"),
        (recorded("hf_trainer_preempted"), "Find out what sets `self.control.should_save` on rank 1 only"),
    ],
    "HD206": [(tensors("float32[4]", "float16[4]"), "with the same dtype on all ranks, for example")],
    "HD301": [
        (beside(state="Z", exit_code=0), "Find out why the rank ended without an error"),
        (snapshot(in_loop(0, 4), rank(1, state="Z", exit_code=9), control_groups=(_OOM,)), "more memory, or use less"),
    ],
    "HD302": [
        (beside(train(12), state="t", tracer_pid=5, at_start=_TRACED), "Let the debugger continue"),
        (beside(train(12), frozen=True, at_start=KernelState(state="S", frozen=True)), "Thaw the control group"),
        (beside(train(12, source="input()"), kernel={"syscall": "read"}), "Answer the prompt"),
    ],
    "HD303": [
        (recorded("slow_uploader"), "Let the reader read faster"),
        (recorded("fifo_read"), "Start the process that opens the other end"),
        (recorded("full_pipe"), "does not read the pipe"),
        (recorded("child_warns_unread"), "in a thread of its own for as long as the child process runs"),
        (recorded("child_fills_pipe"), "subprocess.run(capture_output=True) or Popen.communicate()"),
    ],
    "HD304": [(at_lock("with self.a:", "with self.b:"), "in the same order in all threads")],
    "HD505": [(snapshot(*_CROWD, machine=machine(cores=2)), "start fewer than 3 ranks")],
    "HD504": [(with_host(fires("HD504"), machine=machine(cpu_flags=("avx2",), gpus=1)), "on the GPU")],
    "HD702": [(with_host(fires("HD702"), cards=Cards(cards=(card(0, 100), card(1, 101)))), "Check the kernel logs")],
}
ONE_REMEDY = {
    "HD101": "whatever shows the amounts, they must be equal",
    "HD104": "the remedy has both cases: meant to differ or not",
    "HD204": "a skipped call and a wrong peer look the same; a condition or a loop that shows which is in the evidence",
    "HD205": "one order is right for any cause",
    "HD207": "made of the first difference",
    "HD305": "nothing else ends orphans",
    "HD306": "a launcher without ranks can only be ended",
    "HD401": "made of who is absent, too high, or on its way",
    "HD402": "the remedy has both cases: left over or not",
    "HD403": "made of the host and the port that do not answer",
    "HD404": "made of the variable and the interface",
    "HD405": "a name that is loopback has two remedies, and both are named",
    "HD406": "made of the difference between the launches",
    "HD407": "the link is dead, whatever it carries",
    "HD501": "made of the arguments that differ",
    "HD502": "made of the variable that differs",
    "HD503": "made of the library that differs",
    "HD506": "the remedy has both cases: a group or one process",
    "HD601": "the reason, where one is known, is in the summary; the remedy is about any",
    "HD602": "the rank works, and nothing needs to be done",
    "HD603": "the remedy lists the ways to less waiting for the link",
    "HD701": "asks for what would show more",
    "HD703": "that of the known defect",
    "HD704": "by the weight of the fault",
    "HD705": "by the kind of link",
    "HD901": "asks for what would show more",
}
"""Rules whose evidence cannot contradict their remedy, and why."""


def test_each_rule_has_a_case_or_a_reason_for_none() -> None:
    assert sorted([*CASES, *ONE_REMEDY]) == sorted(CODES)


@pytest.mark.parametrize("code", CASES)
def test_the_usual_remedy_is_not_given_where_the_evidence_shows_another(code: str) -> None:
    usual = finding_of(fires(code), code).remedy
    for evidence, remedy in CASES[code]:
        found = finding_of(evidence, code)
        assert remedy in found.remedy
        assert found.remedy != usual
        assert "find_unused_parameters" not in found.remedy


def finding_of(evidence: Snapshot, code: str) -> Finding:
    (job,) = diagnose(evidence).jobs
    assert job.findings[0].code == code, job.findings[0]
    return job.findings[0]
