"""The set of rules: each with its own code, all headings, a case that fires it and one that must not."""

import ast
import inspect
import re
import sys
from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Evidence, Finding, Job
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.model.cause import Cause, Differs
from hangdoc.reasoning.model.holds import Dead, ForOthers, Hold
from hangdoc.reasoning.model.kinds import Cycle
from hangdoc.reasoning.rules import all_rules, by_subject
from hangdoc.reasoning.rules.draft import Draft, about
from hangdoc.render.words import without_finding
from hangdoc.snapshot import (
    AwaitedFile,
    BeaconReading,
    CallForm,
    Clocks,
    Connection,
    Connections,
    ControlGroup,
    Counter,
    Exit,
    FileBytes,
    Frame,
    Holder,
    Host,
    Loop,
    Loops,
    Machine,
    Process,
    Progress,
    PythonThread,
    Snapshot,
    Stack,
    TrainerCount,
    Unavailable,
)
from tests.rules import CODES, fires
from tests.rules.shapes import (
    AGENT_ALONE,
    LOADER,
    WORKER,
    called,
    crowd,
    data,
    gpu_rank,
    in_loop,
    lonely,
    machine,
    steps,
)
from tests.unit.builders import (
    LOOP,
    TORCH,
    backward,
    c10d,
    frame,
    helper,
    local,
    native_backward,
    rank,
    snapshot,
    stack,
    train,
)
from tests.unit.recordings import T0_US, frames, history_of, recorder

HEADINGS = [
    "What it finds", "Why it hangs", "Example", "Use instead", "How hangdoc knows", "When it can be wrong", "References",
]  # fmt: skip


def job(evidence: Snapshot, patience: float = 30.0) -> Job:
    diagnosis = diagnose(evidence, patience=patience)
    assert not diagnosis.problems
    assert len(diagnosis.jobs) == 1
    return diagnosis.jobs[0]


def of(code: str, found: Job) -> list[Finding]:
    return [finding for finding in found.findings if finding.code == code]


def test_codes_and_names_are_unique() -> None:
    rules = all_rules()
    assert len({rule.code for rule in rules}) == len({rule.name for rule in rules}) == len(rules) >= 11
    for rule in rules:
        assert re.fullmatch(r"HD\d{3}", rule.code)
        assert re.fullmatch(r"[a-z0-9-]+", rule.name)


def subclasses(kind: type) -> set[type]:
    return {kind, *(far for near in kind.__subclasses__() for far in subclasses(near))}


def test_every_kind_and_every_cause_has_exactly_one_rule() -> None:
    kinds = {one for base in (Hold, Cause) for one in subclasses(base)}
    assert set(by_subject()) == kinds - {Hold, ForOthers, Cause, Cycle, Differs}
    with pytest.raises(ValueError, match="two rules write about Dead"):
        about(Dead)(lambda run, blockage, kind: Draft(confidence=1, summary="", evidence=(), remedy=""))


def test_a_rule_that_fails_is_a_problem_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Draft:
        raise RuntimeError("oops")

    broken = {subject: (rule, fail) for subject, (rule, _) in by_subject().items()}
    monkeypatch.setattr("hangdoc.reasoning.engine.by_subject", lambda: broken)
    found = diagnose(fires("HD302"))
    assert found.verdict == "hung"
    assert found.problems == ("rule HD302 failed (RuntimeError: oops): please report it",)


def test_no_rule_names_another() -> None:
    for rule in all_rules():
        source = inspect.getsource(sys.modules[rule.module])
        assert not re.findall(r"HD\d{3}", source.split('"""', 2)[2]), rule.code


def test_every_rule_has_its_page() -> None:
    for rule in all_rules():
        page = rule.page
        assert re.findall(r"^## (.+)$", page, re.MULTILINE) == HEADINGS, rule.code
        first, blank = page.splitlines()[:2]
        assert len(first) <= 80 and first.endswith(".") and not blank, rule.code  # `hangdoc rules` lists the first line
        for section in page.split("\n## ")[1:]:
            assert len(section.partition("\n")[2].strip()) > 20, (rule.code, section)


def test_the_examples_are_python_and_fit_a_terminal() -> None:
    """`hangdoc rules NAME` prints code unwrapped up to 76 columns. Each example marks exactly one line."""
    for rule in all_rules():
        page = rule.page
        example, instead = (page.partition(f"## {heading}")[2].partition("\n## ")[0] for heading in HEADINGS[2:4])
        assert example.count("# <-") == 1, rule.code
        assert "# <-" not in instead, rule.code
        blocks = re.findall(r"```(\w+)\n(.*?)```", example + instead, re.DOTALL)
        assert len(blocks) >= 2, rule.code
        for language, code in blocks:
            assert all(len(line) <= 76 for line in code.splitlines()), (rule.code, code)
            if language == "python":
                ast.parse(code)


@pytest.mark.parametrize("code", CODES)
def test_the_rule_fires(code: str) -> None:
    found = of(code, job(fires(code)))
    assert found
    for finding in found:
        assert finding.summary
        assert finding.remedy
        assert finding.evidence
        assert 0 < finding.confidence < 1
        assert not set(finding.culprits) & set(finding.victims)


def test_what_the_data_explain_is_one_finding() -> None:
    found = job(fires("HD101"))
    assert [(f.code, f.cause) for f in found.findings] == [("HD101", "fewer-data")]
    assert [(b.kind, b.cause, b.culprits, b.victims) for b in found.blockages] == [
        ("left-loop", "fewer-data", (1,), (0,))
    ]
    assert "3" not in found.findings[0].summary.split("after ")[1][:2]  # index 3 means 4 batches done
    assert "after 4" in found.findings[0].summary


def starving(step_moves: bool, **more: object) -> Process:
    """A rank that was in its data iterator, with an empty list, at both looks."""
    restarts = Loop(line=40, end_line=50, header="while True", counters=("epoch",))
    frames = (frame("batches", 44, locals=(local("files", "[]", length=0),), loops=(restarts,)), train(10))
    step = Counter(name="step", function="train", file="/home/me/train.py", before=3, after=3 + step_moves, looped=True)
    spins = Counter(name="epoch", function="batches", file="/home/me/train.py", before=7, after=7_000_000)
    return rank(1, *frames, cpu=0.99, progress=Progress(counters=(step, spins)), **more)  # type: ignore[arg-type]


def test_a_loader_that_spins_on_nothing_and_one_that_is_busy() -> None:
    old, young = (
        snapshot(in_loop(0, 4, data=data(12, "a")), starving(False, data=data(2, "b")), silence=s) for s in (60.0, 2.0)
    )
    assert [(f.code, f.severity) for f in of("HD101", job(old))] == [("HD101", "error")]
    assert [(f.code, f.severity) for f in of("HD101", job(young))] == [("HD101", "info")]
    # Another node visibly has shards where this one has none: that can't mend itself.
    bare = snapshot(in_loop(0, 4, data=data(12, "a")), starving(False, data=data(0, "b")), silence=2.0)
    assert of("HD101", job(bare))[0].severity == "error"
    # Batches come out of it: an evaluation that is in its loader at both looks.
    assert not of("HD101", job(snapshot(in_loop(0, 4), starving(True))))


def test_a_busy_rank_is_a_note_while_young_and_an_error_beyond_the_patience() -> None:
    young = snapshot(*fires("HD202").hosts[0].processes, silence=10.0)
    assert of("HD202", job(young))[0].severity == "info"
    assert job(young).verdict == "waiting"
    assert of("HD202", job(fires("HD202")))[0].severity == "error"
    assert job(fires("HD202")).verdict == "hung"


def test_a_thousand_equal_ranks_are_one_line_of_evidence() -> None:
    world = 1000
    ranks = [rank(n, *c10d("all_reduce"), frame("main", 5), world=world) for n in range(world - 1)]
    found = job(snapshot(*ranks, rank(999, frame("work", 3), world=world, state="T"), silence=None))
    assert found.findings[0].culprits == (999,)
    assert len(found.findings[0].victims) == 999
    assert len(found.findings[0].evidence) < 10


def test_ranks_on_hosts_nobody_looked_at_leave_the_verdict_open() -> None:
    found = job(fires("HD901"))
    assert found.verdict == "unknown"
    assert [unseen.rank for unseen in found.unseen] == [1]
    assert not of("HD301", found)


def test_a_rank_whose_stack_is_refused_is_not_judged() -> None:
    refused = Unavailable(reason="permission denied (needs ptrace)")
    blind = [rank(n, stack=refused, stack_before=refused) for n in range(2)]
    found = job(snapshot(*blind))
    assert found.verdict == "unknown"
    assert {(r.label, r.state) for r in found.ranks} == {("blocked", "unknown")}, "which call it is in is not known"
    assert of("HD901", found)[0].commands == ("sudo hangdoc diagnose --pid 50", "hangdoc doctor")
    assert "doctor" in of("HD901", found)[0].remedy


def test_ranks_of_another_user_are_neither_waiting_nor_dead() -> None:
    launcher = replace(AGENT_ALONE, unreadable_below=2)
    found = job(snapshot(launcher))
    assert (found.verdict, found.findings) == ("unknown", ())
    assert {unseen.rank for unseen in found.unseen} == {0, 1}
    assert all("another user's" in unseen.why and unseen.unreadable for unseen in found.unseen)
    assert without_finding(found).startswith("No rank of this run could be read. Processes of its launcher are alive")
    two = job(snapshot(launcher, replace(launcher, pid=51)))  # two nodes on one host: the count was that of one of them
    assert {unseen.why for unseen in two.unseen} == {
        "another user's processes of the run on h0 cannot be read (4 below its launchers): run hangdoc as that user or as root"
    }
    ended = job(snapshot(replace(AGENT_ALONE, unreadable_below=0), unread=(4711,)))
    assert without_finding(ended).startswith("No rank of this run was observed: all have just ended")
    partly = job(snapshot(replace(launcher, unreadable_below=1), rank(0, *c10d("all_reduce"), train(15), owner=50)))
    assert not of("HD301", partly)
    assert [unseen.rank for unseen in partly.unseen] == [1]


def test_a_launcher_beside_processes_that_gave_no_answer_is_not_judged() -> None:
    """Its ranks may be among them."""
    launcher = replace(AGENT_ALONE, stack=stack(frame("main", 9)))
    assert job(snapshot(launcher)).verdict == "waiting"
    assert job(snapshot(launcher, unread=(4711,))).verdict == "unknown"


def test_the_cards_of_another_network_namespace_are_not_judged() -> None:
    """A rank in a container: its interfaces are not those that were read beside it."""
    wrong = called("10.0.0.1", retries=0, interface="eth7")
    assert of("HD404", job(wrong))

    def elsewhere(host: Host) -> Host:
        assert isinstance(host.machine, Machine)
        return replace(host, machine=replace(host.machine, net_namespace="net:[2]"))

    assert not of("HD404", job(replace(wrong, hosts=tuple(map(elsewhere, wrong.hosts)))))


def test_the_rank_that_is_cut_off_and_not_the_one_that_accepted_most_connections() -> None:
    """Gloo's rank with the lower address listens, so all its connections have one port of its own."""

    def end(at: int, to: int, *, accepted: bool, lost: bool) -> Connection:
        ports = (4000 + at, 5000 + 10 * to + at) if accepted else (5000 + 10 * at + to, 4000 + to)
        readings = {"unacked": 3, "backoff": 5} if lost and not accepted else {}
        return Connection(
            pid=100 + at, namespace="net:[1]", state="ESTABLISHED", local_address=f"10.0.0.{at}", local_port=ports[0],
            remote_address=f"10.0.0.{to}", remote_port=ports[1], receive_queue_bytes=0, send_queue_bytes=0,
            bytes_moved=0, last_sent_ms=60_000, last_received_ms=60_000, **readings,
        )  # fmt: skip

    pairs = [(low, high) for high in range(4) for low in range(high)]
    ends = [(*pair, True) for pair in pairs] + [(high, low, False) for low, high in pairs]
    connections = tuple(end(at, to, accepted=accepted, lost=3 in (at, to)) for at, to, accepted in ends)
    ranks = (in_loop(number, 4, world=4) for number in range(4))
    found = of("HD407", job(snapshot(*ranks, connections=Connections(connections=connections))))
    assert [finding.culprits for finding in found] == [(3,)]


@pytest.mark.parametrize(("flag", "total", "expected"), [
    ("True", 200, ["left `for i, x in enumerate(data)` (line 12) inside that loop in batch 160 of 200: the loop has a `break` at "
                   "line 17, if `stopper.update(val)`", "in iteration 1"]),
    ("True", 160, ["in iteration 1"]),  # it had no more
    ("False", 200, ["left `for i, x in enumerate(data)`", "after 1 iteration"]),  # nothing shows that it was the flag
])  # fmt: skip
def test_the_break_in_a_loop_inside_which_set_a_flag_is_named(flag: str, total: int, expected: list[str]) -> None:
    epochs = Loop(line=10, end_line=19, header="for epoch in range(args.epochs)", counters=("epoch",), every=1, start=0,
                  exits=(Exit(line=19, statement="break", conditions=("stop",)),))  # fmt: skip
    batches = Loop(line=12, end_line=17, header="for i, x in enumerate(data)", counters=("i",), every=1, start=0,
                   exits=(Exit(line=17, statement="break", conditions=("stopper.update(val)",)),))  # fmt: skip

    def at(line: int, batch: int, stop: str) -> Frame:
        data = local("data", "[...]", length=total)
        seen = (local("epoch", 0), local("i", batch), local("stop", stop), data)
        return frame("train", line, loops=(epochs, batches), locals=seen)

    inside = rank(0, *backward(), at(15, 163, "False"), native=native_backward())
    left = of("HD105", job(snapshot(inside, rank(1, *c10d("barrier"), at(22, 159, flag)))))[0]
    texts = [line.text for line in left.evidence if line.rank == 1]
    assert f"left the loop `for epoch in range(args.epochs)` {expected[-1]}" in left.summary
    assert [any(part in text for text in texts) for part in expected] == [True] * len(expected)
    assert any("inside that loop" in text for text in texts) is (total == 200)


def test_the_break_that_a_rank_took_is_shown_with_the_values_of_its_condition() -> None:
    leaves = (
        Exit(line=16, statement="return", conditions=("nothing is known",)),
        Exit(line=18, statement="break", conditions=("loss < target",)),
    )

    def at(line: int, loss: str) -> Frame:
        seen = (local("step", 3), local("loss", loss), local("target", "0.5"))
        return frame("train", line, loops=(replace(LOOP, exits=leaves),), locals=seen)

    inside = rank(0, *backward(), at(15, "0.9"), native=native_backward())
    left = of("HD105", job(snapshot(inside, rank(1, *c10d("barrier"), at(22, "0.2")))))[0]
    assert [line.text for line in left.evidence[:2]] == [
        "the loop has a `break` at line 18, if `loss < target`; `loss` is 0.2 on rank 1, 0.9 on rank 0",
        "the loop has a `return` at line 16, if `nothing is known`",
    ]


def test_two_jobs_side_by_side_are_told_apart() -> None:
    def other(process: Process) -> Process:
        assert process.identity
        return replace(process, identity=replace(process.identity, master_port=29600))

    hung = fires("HD302").hosts[0].processes
    healthy = [other(rank(n, train(12), cpu=0.9, pid=1100 + n)) for n in range(2)]
    diagnosis = diagnose(snapshot(*hung, *healthy))
    assert [j.verdict for j in diagnosis.jobs] == ["hung", "healthy"]
    assert diagnosis.verdict == "hung"


def test_three_ways_to_be_held_back() -> None:
    def held_back(**more: object) -> Finding:
        working = rank(0, train(12), cpu=0.9, world=1, control_group="/pod7/c1")
        return of("HD505", job(snapshot(working, **more)))[0]

    throttled = held_back(control_groups=(ControlGroup(path="/pod7", frozen=False, throttled_us=600_000, oom_kills=0),))
    assert "used up its CPU quota" in throttled.summary
    assert "600 ms" in throttled.evidence[0].text
    assert "is swapping: 400 MB" in held_back(machine=machine(swapped_bytes=400_000_000)).summary


def test_a_programs_own_python_threads_are_no_pool() -> None:
    clocks = crowd(8)
    working = rank(0, train(12), cpu=0.9, world=1, clocks=clocks)
    assert isinstance(working.stack, Stack)
    of_python = tuple(
        PythonThread(tid=one.tid, name=None, active=True, owns_gil=False) for one in clocks.threads if one.tid != 100
    )
    threaded = replace(working, stack=replace(working.stack, threads=(*working.stack.threads, *of_python)))
    assert of("HD505", job(snapshot(working, machine=machine(cores=2))))
    assert not of("HD505", job(snapshot(threaded, machine=machine(cores=2))))


@pytest.mark.parametrize(
    ("kernel", "works"),
    [
        ({"delayed_ns": 960_000_000, "state": "R", "voluntary_switches": 2}, True),
        (
            {"delayed_ns": 300_000_000, "state": "R", "voluntary_switches": 2},
            False,
        ),  # it does nothing for most of the time
        ({"delayed_ns": 960_000_000, "state": "S", "voluntary_switches": 90}, False),  # it asks again and again
        ({"state": "R", "voluntary_switches": 2}, False),  # a kernel that does not count it
    ],
)
def test_a_rank_that_is_ready_to_run_and_gets_no_core_works(kernel: dict[str, Any], works: bool) -> None:
    """Seen on a busy host: "blocked by a lock" and "sleeping" of a rank that computed, and hung after 30 s."""
    held = frame("step", 30, source="total = sum(values)", conditions=())
    process = rank(1, held, cpu=0.02, state="R", kernel=kernel)
    host = snapshot(rank(0, *c10d("all_reduce"), train(20)), process, silence=40.0, machine=machine(cores=2))
    diagnosis = diagnose(host)
    assert (diagnosis.verdict == "waiting") is works
    assert bool(of("HD505", diagnosis.jobs[0])) is works
    if works:
        (finding,) = of("HD602", diagnosis.jobs[0])
        assert "had a core for 2% of the time" in finding.summary


@pytest.mark.parametrize(
    ("used", "cores", "more", "summary"),
    [
        (0.3, 8, {}, "other programs have them (load 4 in the last minute, on 8 cores)"),
        (0.3, 2, {}, "the run needs more than its 2 cores"),
        (0.25, 2, {}, "the run needs more than its 2 cores"),  # it gets 1.5 of them, and is ready to use more than all
        (
            0.15,
            2,
            {},
            "other programs have them (load 4 in the last minute, on 2 cores), and the run needs more than there are",
        ),
        (
            0.3,
            8,
            {"control_groups": (ControlGroup(path="/pod", frozen=False, throttled_us=600_000, oom_kills=0),)},
            "throttled",
        ),
    ],
)
def test_what_keeps_ranks_from_the_cores(used: float, cores: int, more: dict[str, Any], summary: str) -> None:
    """A quota and the run's own ranks let threads wait for a core as other programs do."""
    late = {"delayed_ns": 650_000_000, "state": "R", "voluntary_switches": 0}
    ranks = [rank(n, train(12), cpu=used, world=6, kernel=late, control_group="/pod") for n in range(6)]
    (finding,) = of("HD505", job(snapshot(*ranks, machine=machine(cores=cores, load_1m=4.0), **more)))
    assert summary in finding.summary


def test_ranks_that_wait_less_for_a_core_want_more_of_them_too() -> None:
    """Only rank 0 waits long enough to be named. All four together want more than the two cores."""
    waits = [{"delayed_ns": ns, "state": "R", "voluntary_switches": 0} for ns in (650_000_000, *[400_000_000] * 3)]
    ranks = [rank(n, train(12), cpu=0.3, world=4, kernel=kernel) for n, kernel in enumerate(waits)]
    (finding,) = of("HD505", job(snapshot(*ranks, machine=machine(cores=2, load_1m=1.0))))
    assert finding.culprits == (0,)
    assert "the run needs more than its 2 cores" in finding.summary


def test_ranks_that_load_their_modules_need_a_core_each() -> None:
    """Once they train, they may need less."""
    late = {"delayed_ns": 650_000_000, "state": "R", "voluntary_switches": 0}
    ranks = [rank(n, train(12), cpu=0.3, world=4, kernel=late) for n in range(4)]
    young = [replace(each, started_seconds_ago=4.0) for each in ranks]
    assert not of("HD505", job(snapshot(*young, machine=machine(cores=2))))
    assert of("HD505", job(snapshot(*ranks, machine=machine(cores=2))))


@pytest.mark.parametrize(("with_card", "verdict"), [(True, "unknown"), (False, "unknown")])
def test_without_stacks_a_rank_that_gets_no_core_may_wait_for_its_call(with_card: bool, verdict: str) -> None:
    """Who asks in a loop whether its call is done wants a core as much as who works."""
    ranks = []
    for number in range(2):
        process = rank(number, kernel={"delayed_ns": 600_000_000, "state": "R", "voluntary_switches": 0}, cpu=0.3)
        assert isinstance(process.clocks, Clocks)
        watchdog = replace(process.clocks.threads[1], tid=2000 + number, name="pt_nccl_watchdg")
        threads = (*process.clocks.threads, watchdog) if with_card else process.clocks.threads
        no = Unavailable(reason="py-spy was not found")
        ranks.append(replace(process, stack=no, stack_before=no, clocks=replace(process.clocks, threads=threads)))
    assert diagnose(snapshot(*ranks)).verdict == verdict


def test_a_search_without_end_is_never_called_work_nor_hung() -> None:
    wild = Progress(counters=(Counter(name="x", function="train", file="/home/me/train.py", before=27, after=82),))
    found = job(snapshot(in_loop(0, 4), rank(1, train(12), cpu=0.99, progress=wild)))
    assert found.verdict == "waiting"
    assert [(f.code, f.severity) for f in found.findings] == [("HD202", "info")]


def test_a_broadcast_with_two_roots_is_no_mismatch_of_tensors() -> None:
    def calls(number: int, root: int, tensor: str) -> Process:
        inner = c10d("broadcast", local("tensor", tensor), local("src", "None"), local("group_src", root))
        return rank(number, *inner, *c10d("broadcast_object_list", local("src", root)), frame("main", 5), world=3)

    found = job(snapshot(calls(0, 0, "int64[1]"), calls(1, 0, "uint8[22]"), calls(2, 1, "int64[1]")))
    assert [(f.code, f.culprits, f.victims) for f in found.findings] == [("HD201", (2,), (0, 1))]
    assert found.findings[0].summary.endswith("with different roots: 0 on ranks 0-1; 1 on rank 2")


@pytest.mark.parametrize(
    ("op", "culprits", "roots"),
    [
        ("gather", (2,), "1 on rank 1; 0 on rank 2"),  # rank 0 has left it, so it is no root
        ("broadcast", (), "1 on rank 1; 0 on rank 2"),  # the root leaves a broadcast first
    ],
)
def test_the_record_numbers_a_call_with_two_roots_out_of_which_a_rank_has_come(
    op: str, culprits: tuple[int, ...], roots: str
) -> None:
    form, barrier = CallForm(op=op, inputs=("uint8[43]",)), CallForm(op="barrier")

    def made(number: int, *frames: Frame, pending: int) -> Process:
        forms: dict[CallForm, int] = {}
        entries = [(at, form, T0_US + at, at == pending) for at in range(1, 6)]
        entries += [(6, barrier, T0_US + 6, True)] * (pending == 6)
        record = recorder(history_of(entries, wall_us=T0_US + 60_000_000, forms=forms), forms=forms)
        return rank(number, *frames, frame("main", 5), world=3, recorder=replace(record, whole=True))

    found = job(
        snapshot(
            made(0, *c10d("barrier"), pending=6),
            made(1, *c10d(op, local("group_src", 1)), pending=5),
            made(2, *c10d(op, local("group_src", 0)), pending=5),
        )
    )
    assert found.findings[0].summary.endswith(f"with different roots: {roots}")
    assert found.findings[0].culprits == culprits


@pytest.mark.parametrize(
    ("roots", "in_next", "unread", "culprits", "text"),
    [
        ((0, 1, 1), (1,), (), (), "0 on rank 0; 1 on rank 2"),  # rank 1 may have passed either root
        ((0, 1, 0, 1), (3,), (), (1,), "0 on ranks 0, 2; 1 on rank 1"),
        ((0, 1, 1), (), (), (0,), "1 on ranks 1-2; 0 on rank 0"),
        ((0, 0, 1), (), (2,), (2,), "0 on ranks 0-1; 1 on rank 2"),
        ((0, 1, 1), (), (1, 2), (), None),
    ],
)
def test_a_rank_in_its_next_call_at_the_same_line_has_another_root(
    roots: tuple[int, ...],
    in_next: tuple[int, ...],
    unread: tuple[int, ...],
    culprits: tuple[int, ...],
    text: str | None,
) -> None:
    """`unread`: without a record. If most are, nothing shows that they are in the same call."""

    def made(number: int, root: int) -> Process:
        forms: dict[CallForm, int] = {}
        last = 6 if number in in_next else 5
        entries = [(at, CallForm(op="broadcast"), T0_US + at, at == last) for at in range(1, last + 1)]
        record = recorder(history_of(entries, wall_us=T0_US + 60_000_000, forms=forms), forms=forms)
        where = (*c10d("broadcast", local("group_src", root)), frame("main", 5))
        return rank(number, *where, world=len(roots), **({} if number in unread else {"recorder": record}))

    (finding,) = job(snapshot(*(made(number, root) for number, root in enumerate(roots)))).findings
    assert ("different roots" in finding.summary) is (text is not None)
    assert text is None or finding.summary.endswith(f"with different roots: {text}")
    assert finding.culprits == culprits


def test_one_line_in_two_calls_of_the_record() -> None:
    """Rank 0 has come out of a call that rank 1 never made, and both wait at the line of the backward."""
    step = CallForm(op="all_reduce", inputs=("float32[7]",), frames=frames(("train.py", 7, "step")))
    extra = CallForm(op="all_reduce", inputs=("float64[]",), frames=frames(("train.py", 11, "log")))

    def made(number: int, *forms_made: CallForm) -> Process:
        forms: dict[CallForm, int] = {}
        entries = [(at, form, T0_US + at, at == len(forms_made)) for at, form in enumerate(forms_made, 1)]
        record = recorder(history_of(entries, wall_us=T0_US + 60_000_000, forms=forms), forms=forms)
        return rank(
            number, *backward(), frame("step", 7), native=native_backward(), recorder=replace(record, whole=True)
        )

    found = job(snapshot(made(0, *[step] * 6, extra, step), made(1, *[step] * 7)))
    (finding,) = found.findings
    assert (found.verdict, finding.code, finding.culprits, finding.victims) == ("hung", "HD203", (0,), (1,))
    assert finding.summary.startswith("only rank 0 called all_reduce at train.py:11 (call number 7)")


def test_two_mismatches_at_once_are_one_finding() -> None:
    def calls(number: int, op: str, size: int) -> Process:
        return rank(number, *c10d(op, local("tensor", f"float32[{size}]")), frame(op, 5), world=3)

    found = job(snapshot(calls(0, "all_reduce", 4), calls(1, "all_reduce", 8), calls(2, "barrier", 1)))
    assert found.verdict == "hung"
    assert [f.code for f in found.findings] == ["HD206"]


def test_calls_whose_peers_are_unknown_are_said_one_by_one() -> None:
    def posted(number: int, name: str) -> Process:
        native = stack(frame(f"c10d::ProcessGroupGloo::{name}::wait", 0, "libtorch_cpu.so", native=True, library=True))
        return rank(number, frame("main", 5, source="w.wait()"), native=native, world=3)

    found = job(snapshot(posted(0, "SendWork"), posted(1, "SendWork"), posted(2, "RecvWork")))
    assert [(f.code, f.culprits) for f in found.findings] == [("HD204", (0, 1, 2))]
    assert found.findings[0].summary == (
        "ranks are waiting in calls that do not match: ranks 0-1 in send; rank 2 in recv"
    )


def test_a_run_in_which_nobody_waits_and_nobody_works() -> None:
    """Hung once it is older than the patience; a GPU's work is not seen from the host."""

    def locked(number: int) -> Process:
        return rank(number, frame("Event.wait", 600, "/usr/lib/python3.11/threading.py", library=True), train(12))

    def beside(process: Process, name: str, cpu: float) -> Process:
        assert isinstance(process.clocks, Clocks)
        main, _gloo = process.clocks.threads
        another = replace(main, tid=9, name=name, cpu_ns=int(cpu * 1e9))
        return replace(process, clocks=replace(process.clocks, threads=(main, another)))

    old = job(snapshot(locked(0), locked(1), silence=60.0))
    assert (old.verdict, [(f.code, f.severity) for f in old.findings]) == ("hung", [("HD901", "error")])
    young = job(snapshot(locked(0), locked(1), silence=10.0))
    assert (young.verdict, [(f.code, f.severity) for f in young.findings]) == ("waiting", [("HD901", "info")])
    at_work = job(snapshot(beside(locked(0), "loader", 0.9), locked(1), silence=60.0))
    assert at_work.verdict == "waiting"
    gpu = job(snapshot(*(beside(locked(n), "pt_nccl_watchdg", 0.0) for n in (0, 1)), silence=60.0))
    assert (gpu.verdict, gpu.findings) == ("waiting", ())


def test_ranks_that_spin_in_the_driver_are_never_an_error_by_themselves() -> None:
    """A healthy run with kernels longer than the window looks the same from the host."""
    everybody = job(fires("HD701"))
    assert everybody.verdict == "unknown"
    assert [(f.code, f.severity) for f in everybody.findings] == [("HD701", "info")]
    assert {r.label for r in everybody.ranks} == {"blocked"}
    stopped = job(snapshot(gpu_rank(0), rank(1, train(12), state="T")))
    assert stopped.verdict == "hung"
    assert [(f.code, f.culprits, f.victims) for f in stopped.findings[:1]] == [("HD302", (1,), (0,))]
    waiting = next(f for f in stopped.findings if f.code == "HD701")
    assert waiting.summary == "rank 0 busy-waits in the GPU driver (99% CPU) until rank 1 joins"


def loader_stalled(*workers: Process) -> Finding:
    return of("HD103", job(snapshot(in_loop(0, 4), rank(1, *LOADER, train(10)), *workers)))[0]


def test_what_became_of_a_dataloader_worker() -> None:
    getitem = frame("Data.__getitem__", 8, source="return read(index)")
    assert "is stopped" in loader_stalled(helper(7, 101, getitem, WORKER, state="T")).summary
    assert "killed by SIGKILL" in loader_stalled(helper(7, 101, state="Z", exit_code=9)).summary
    starved = helper(7, 101, getitem, WORKER, clocks=rank(1, cpu=0.01, pid=7, kernel={"state": "R"}).clocks)
    assert "gets almost no CPU" in loader_stalled(starved).summary
    unknown = helper(7, 101, frame("Data.__getitem__", 8, source="with self.store.open(key) as file:"), WORKER)
    assert "has not returned from Data.__getitem__; " in loader_stalled(unknown).summary
    assert "its DataLoader workers are gone" in loader_stalled().summary
    unread = helper(7, 101, name="python3", stack=Unavailable(reason="no permission"))
    assert "its DataLoader workers could not be observed" in loader_stalled(unread).summary


def test_a_worker_that_ends_behind_the_last_batch_is_no_stall() -> None:
    """A healthy run was called hung: each pass of a validation ends the workers of its loader."""
    torch_file = "/e/site-packages/torch/utils/data/dataloader.py"
    joins = frame("BaseProcess.join", 149, "/usr/lib/python3.11/multiprocessing/process.py", library=True)
    pins = frame("Thread.join", 1119, "/usr/lib/python3.11/threading.py", library=True)
    ends = frame("_MultiProcessingDataLoaderIter._shutdown_workers", 1654, torch_file, library=True)
    asks = frame("_MultiProcessingDataLoaderIter._next_data", 1490, torch_file, library=True)
    dead = helper(7, 101, state="X")

    def verdict(*frames: Frame) -> tuple[str, list[str]]:
        found = job(snapshot(in_loop(0, 4), rank(1, *frames, asks, train(10)), dead, silence=60.0))
        return found.verdict, [finding.severity for finding in found.findings if finding.code == "HD103"]

    assert verdict(joins, ends) == ("waiting", ["info"])
    assert verdict(pins, ends) == ("hung", ["error"])  # nothing bounds that
    assert verdict() == ("hung", ["error"])


@pytest.mark.parametrize(
    ("caller", "exit_code", "about"),
    [
        ("_next_data", 0, "it has had all batches, and ends its workers"),
        ("__del__", 0, "it ends its workers"),
        ("__del__", 15, "it ends its workers"),  # torch has ended it so
        ("__del__", 9, "its worker (pid 7) is dead: killed by SIGKILL, while the rank ends its workers"),
    ],
)
def test_what_blocks_the_end_of_the_workers(caller: str, exit_code: int, about: str) -> None:
    """`Event.set()` hangs if a worker was killed with the lock of the event. One that has ended as it should is no cause."""
    torch_file = "/e/site-packages/torch/utils/data/dataloader.py"
    sets = frame("Event.set", 340, "/usr/lib/python3.11/multiprocessing/synchronize.py", library=True)
    ends = frame("_MultiProcessingDataLoaderIter._shutdown_workers", 1640, torch_file, library=True)
    calls = frame(f"_MultiProcessingDataLoaderIter.{caller}", 1704, torch_file, library=True)
    worker = helper(7, 101, state="Z", exit_code=exit_code)

    def finding(patience: float) -> Finding:
        rank_that_ends = rank(1, sets, ends, calls, train(10))
        return job(snapshot(in_loop(0, 4), rank_that_ends, worker, silence=60.0), patience=patience).findings[0]

    found = finding(patience=30.0)
    assert (found.code, found.severity, finding(patience=300.0).severity) == ("HD103", "error", "info")
    assert found.summary.startswith(f"rank 1 is waiting for its dataloader: {about}")
    assert ("timeout= on the DataLoader does not bound that" in (found.remedy or "")) is (exit_code != 9)


@pytest.mark.parametrize(("call", "is_certain"), [("futex", True), ("poll", False)])
def test_a_worker_that_is_still_in_fork(call: str, is_certain: bool) -> None:
    """Another thread of the rank held a lock of the interpreter when the worker was forked (CPython 3.11, seen live)."""
    launch = frame("Popen._launch", 66, "/usr/lib/python3.11/multiprocessing/popen_fork.py", library=True)
    clocks = rank(1, pid=7, kernel={"syscall": call, "timed": False}).clocks
    waits = frame("_worker_loop", 334, WORKER.file, library=True)
    found = loader_stalled(helper(7, 101, launch, name="python3", clocks=clocks), helper(8, 101, waits))
    assert ("its worker (pid 7) has not returned from os.fork" in found.summary) is is_certain
    if is_certain:
        assert "forkserver" in (found.remedy or "")
        assert any(each.text.startswith("worker pid 7 is still in os.fork") for each in found.evidence)


@pytest.mark.parametrize(("busy", "verdict"), [(0.0, "hung"), (0.3, "waiting")])
def test_a_worker_at_a_lock_that_nobody_can_release(busy: float, verdict: str) -> None:
    """What another thread of the rank writes meanwhile does not help. But a thread of the worker may release its lock."""
    at_lock = stack(frame("Data.__getitem__", 8, source="with self.lock:"), WORKER)
    clocks = rank(1, pid=7, kernel={"syscall": "futex"}).clocks
    assert isinstance(clocks, Clocks)
    main, other = clocks.threads
    clocks = replace(clocks, threads=(main, replace(other, cpu_ns=int(busy * 1e9))))
    worker = helper(7, 101, clocks=clocks, stack=at_lock, stack_before=at_lock)
    logs = FileBytes(read_bytes=0, written_bytes=12_000_000)
    young = snapshot(in_loop(0, 4), rank(1, *LOADER, train(10), files=logs), worker, silence=2.0)
    found = job(young)
    assert found.verdict == verdict
    assert ("os.fork copies a held lock" in str(of("HD103", found))) is (verdict == "hung")


def test_a_straggler_says_in_which_stage() -> None:
    def at(number: int, cpu: float, stages: tuple[float, ...]) -> Process:
        reading = BeaconReading(
            step=5, batches_done=5, batches_total=9, epoch=0, phase="train", shards=1, shards_digest=None, age_seconds=0.1,
            moved=True, stages=stages,
        )  # fmt: skip
        return rank(number, train(12), cpu=cpu, progress=replace(steps(10, 15), beacon=reading))

    slow, fast = (0.09, 0.01, 0.02, 0.001), (0.01, 0.01, 0.1, 0.001)  # the fast one waits in its backward
    found = of("HD601", job(snapshot(at(0, 0.2, fast), at(1, 0.95, slow))))[0]
    assert "its data stage takes 90.0 ms per step, rank 0's 10.0 ms" in found.summary


def test_an_announced_phase_is_work_until_its_patience_runs_out() -> None:
    def evaluating(age: float) -> Job:
        reading = BeaconReading(
            step=5, batches_done=5, batches_total=9, epoch=0, phase="evaluate", shards=1, shards_digest=None, age_seconds=age,
            moved=False, patience_seconds=600.0,
        )  # fmt: skip
        asleep = rank(
            1, train(12), kernel={"syscall": "clock_nanosleep"}, progress=Progress(counters=(), beacon=reading)
        )
        return job(snapshot(in_loop(0, 4), asleep, silence=age))

    young, old = evaluating(300), evaluating(700)
    assert (young.verdict, young.findings[0].code, young.findings[0].severity) == ("waiting", "HD602", "info")
    assert (old.verdict, old.findings[0].code, old.findings[0].severity) == ("hung", "HD202", "error")


def test_importing_the_optimizer_is_no_training_of_copies() -> None:
    """A start of two ranks, caught while torch's own modules are being imported (a control was blamed for it once)."""
    importing = (
        frame("<module>", 3, TORCH + "nn/modules/module.py"),
        frame("_call_with_frames_removed", 241, "<frozen importlib._bootstrap>", library=True),
        frame("<module>", 1),
    )
    found = snapshot(AGENT_ALONE, *(lonely(n, *importing) for n in range(2)), silence=None)
    assert "HD506" not in {finding.code for job in diagnose(found).jobs for finding in job.findings}


def test_a_worker_in_the_dataset_of_a_package_is_not_idle() -> None:
    """No frame of the user's code is above the worker loop. The first worker waits for work, the second one is in the dataset."""
    packages = "/usr/lib/python3.11/site-packages/"
    waits = frame("Queue.get", 103, "/usr/lib/python3.11/multiprocessing/queues.py", library=True)
    reads = (
        frame("open", 9, packages + "streaming/reader.py", library=True),
        frame("StreamingDataset.__iter__", 1511, packages + "streaming/dataset.py", library=True),
        frame("_IterableDatasetFetcher.fetch", 41, TORCH + "utils/data/_utils/fetch.py", library=True),
    )
    workers = [helper(50, 101, waits, WORKER), helper(51, 101, *reads, WORKER)]
    (job,) = diagnose(snapshot(in_loop(0, 4), rank(1, *LOADER, train(10)), *workers)).jobs
    finding = job.findings[0]
    assert (finding.code, finding.culprits) == ("HD103", (1,))
    assert "its worker (pid 51) has not returned from StreamingDataset.__iter__" in finding.summary


@pytest.mark.parametrize(
    ("totals", "code"),
    [((15, 40), "HD101"), ((39, 40), "HD102"), ((40, 40), "HD203")],
    ids=["less", "one less", "equal"],
)
def test_a_rank_whose_framework_has_counted_all_its_batches(totals: tuple[int, int], code: str) -> None:
    """It validates, while the other one is in its next step. Nothing in the package's code shows why."""
    name = "fit_loop.epoch_loop.batch_progress"

    def counted(number: int, op: str, done: int, total: int) -> Process:
        package = frame("_TrainingEpochLoop.run", 154, "/site-packages/pytorch_lightning/loops/training_epoch_loop.py")
        counts = (TrainerCount(framework="lightning", name=name, done=done, total=total),)
        return rank(number, *c10d(op), package, frame("main", 9), loops=Loops(counts=counts))

    first = counted(0, "broadcast", totals[0], totals[0])
    second = counted(1, "barrier", totals[0], totals[1])
    finding = job(snapshot(first, second)).findings[0]
    if code == "HD203":
        assert finding.code not in ("HD101", "HD102")
        return
    assert (finding.code, finding.culprits, finding.victims) == (code, (0,), (1,))
    assert finding.summary.startswith(f"rank 0 has done all {totals[0]} of its batches; rank 1 has 40, and is waiting")
    assert f"{name} is {totals[0]} of 40" in " ".join(each.text for each in finding.evidence)


@pytest.mark.parametrize(
    ("fetched", "pass_number", "tells"),
    [(51, 1, True), (50, 1, False), (None, 1, False), (51, 2, False)],
    ids=["has one more", "has no more", "unknown", "in the next pass"],
)
def test_a_stream_that_has_ended_beside_one_that_has_more(fetched: int | None, pass_number: int, tells: bool) -> None:
    """Streams of Lightning: one rank validates at the end of its pass, the other one is in its next step."""
    name = "fit_loop.epoch_loop.batch_progress.completed"
    ended = TrainerCount(framework="lightning", name=name, done=50, total=50, fetched=50, batches=True, pass_number=1)
    flows = replace(ended, total=None, fetched=fetched, pass_number=pass_number)
    found = job(
        snapshot(
            rank(0, *c10d("broadcast"), frame("main", 9), loops=Loops(counts=(flows,))),
            rank(1, *c10d("barrier"), frame("main", 9), loops=Loops(counts=(ended,))),
        )
    )
    finding = found.findings[0]
    assert [(each.batches_total, each.batches_ended) for each in found.ranks] == [(None, False), (50, True)]
    if not tells:
        assert finding.code not in ("HD101", "HD102")
        return
    assert (finding.code, finding.culprits, finding.victims) == ("HD101", (1,), (0,))
    assert finding.summary.startswith("rank 1 has done all 50 of its batches; rank 0 has at least 51, and is waiting")
    assert f"{name} is 50, and its iterator has not ended after 51 batches" in str(finding.evidence)


@pytest.mark.parametrize("op", ["all_reduce", None])
def test_a_rank_in_its_last_batch_is_not_past_its_data(op: str | None) -> None:
    """The framework counts a batch when it begins. The other one, with more batches, is in the same call, or in none."""
    name = "fit_loop.epoch_loop.batch_progress"
    last, stuck = (
        Loops(counts=(TrainerCount(framework="lightning", name=name, done=15, total=total),)) for total in (15, 40)
    )
    where = c10d(op) if op is not None else (frame("read", 9, source="return disk.read()"),)
    first = rank(0, *c10d("all_reduce"), frame("main", 9), loops=last)
    finding = job(snapshot(first, rank(1, *where, frame("main", 9), loops=stuck))).findings[0]
    assert finding.code not in ("HD101", "HD102") and finding.culprits != (0,)


@pytest.mark.parametrize("restarts", [0, 1])
def test_ranks_that_torchrun_has_started_again_say_so(restarts: int) -> None:
    """One of them was killed. Nothing of that is left in the new ones but their number."""
    ranks = [rank(number, *c10d("all_reduce"), train(12)) for number in range(2)]
    ranks = [replace(each, identity=replace(each.identity, restart_count=restarts)) for each in ranks]  # type: ignore[type-var]
    finding = of("HD901", job(snapshot(*ranks)))[0]
    assert ("torchrun has started these ranks again" in finding.evidence[0].text) is bool(restarts)
    assert ("log of torchrun" in (finding.remedy or "")) is bool(restarts)
    assert "links between the hosts" not in (finding.remedy or "")  # there is one host


@pytest.mark.parametrize(
    ("op", "file", "meets"), [("init_process_group", "distributed_c10d", True), ("barrier", "distributed_c10d", False)]
)
def test_ranks_that_have_all_come_to_a_rendezvous_have_made_no_call(op: str, file: str, meets: bool) -> None:
    """They do not connect to each other. There are no sizes to compare."""
    call = frame(op, 1, f"{TORCH}distributed/{file}.py")
    ranks = [rank(number, call, train(4)) for number in range(2)]
    unconnected = Connections(connections=(), window_seconds=1.0)
    finding = of("HD901", job(snapshot(*ranks, connections=unconnected, silence=None)))[0]
    assert finding.remedy.startswith(
        "Check whether these ranks can connect" if meets else "Check the sizes and the order"
    )
    told = Evidence(rank=0, probe="sockets", text="no connection to another rank is open (also rank 1)")
    assert (told in finding.evidence) is meets
    unread = of("HD901", job(snapshot(*ranks, connections=Unavailable(reason="refused"))))[0]
    assert told not in unread.evidence


def test_ranks_that_could_fill_the_queue_of_the_rank_that_they_wait_for() -> None:
    """A learner waits for the trajectories of its actors, and one of them has put none before the next broadcast."""
    holders = tuple(Holder(pid=pid, name="python3", state="S") for pid in (101, 102, 50))
    pipe = AwaitedFile(kind="pipe", name="pipe:[5]", descriptor=3, holders=holders)
    learner = rank(0, frame("learn", 6), kernel={"syscall": "read", "files": (pipe,)}, world=3)
    actors = [rank(number, *c10d("broadcast"), frame("act", 17), world=3) for number in (1, 2)]
    (finding,) = job(snapshot(learner, *actors)).findings
    assert (finding.code, finding.culprits) == ("HD202", (0,))
    assert "ranks 1-2 (pid 101-102) can write to it, and wait for rank 0: each waits for the other" in str(
        finding.evidence
    )
    assert finding.remedy.startswith("Find out why ranks 1-2 came to the call without writing to the pipe first")
