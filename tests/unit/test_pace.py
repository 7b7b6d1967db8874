"""The pace of a run, its stragglers, and what the documents say of the ranks' calls."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import CallView, Diagnosis, Evidence, Finding, Where
from hangdoc.reasoning.engine import diagnose, examine
from hangdoc.reasoning.ledger.lags import Lag
from hangdoc.reasoning.model.holds import Asleep
from hangdoc.reasoning.rules.hd601_straggler import _sleeps_as_long
from hangdoc.reasoning.summary import summarized
from hangdoc.render import words
from hangdoc.snapshot import (
    AwaitedFile,
    CallForm,
    Clocks,
    Connections,
    FileBytes,
    FlightRecorder,
    Frame,
    Group,
    Holder,
    Interpreter,
    Loader,
    Loops,
    Process,
    Snapshot,
    Unavailable,
)
from tests.rules.hd207.case import fires as diverged
from tests.unit.builders import backward, c10d, frame, native_backward, rank, silent, snapshot, train
from tests.unit.recordings import T0_US, frames, history_of, recorder

BUCKET = CallForm(op="all_reduce", inputs=("float32[8192]",), frames=frames(("train.py", 22, "train")))
LOSS = CallForm(op="all_reduce", inputs=("float32[]",), frames=frames(("train.py", 25, "train")))
METRICS = CallForm(op="broadcast", inputs=("float32[4]",), frames=frames(("train.py", 40, "train")))
BARRIER = CallForm(op="barrier", frames=frames(("train.py", 16, "main")))
_STEPS, _STEP_US = 40, 67_000
_LOADS = Loops(loaders=(Loader(kind="_SingleProcessDataLoaderIter", done=9, done_before=4, begins=10, asked=True),))
_WALL_US = T0_US + _STEPS * _STEP_US


def trains(
    number: int,
    late_ms: int = 0,
    *,
    ranks: int = 4,
    moved: bool = True,
    recorded: bool = True,
    form: CallForm = BUCKET,
    stopped_us: int = 0,
) -> Process:
    """A rank in its loop that makes the first call of each step so late. In step 20, rank 1 keeps the others
    waiting for `stopped_us`."""
    forms: dict[CallForm, int] = {}
    entries = [
        (2 * step + at, made, T0_US + step * _STEP_US + offset + stopped_us * ((step, at) > (20, number != 1)), False)
        for step in range(_STEPS)
        for at, made, offset in ((1, form, late_ms * 1000), (2, LOSS, 60_000 + number * 100))
    ]
    group = history_of(
        entries, wall_us=_WALL_US + stopped_us, forms=forms, before=2 * _STEPS - 30 if moved else 2 * _STEPS
    )
    loops = Loops(loaders=(Loader(kind="DataLoader", done=_STEPS, done_before=_STEPS - 15),), between_seconds=1.0)
    record = recorder(group, forms=forms) if recorded else Unavailable(reason="no")
    return rank(number, train(22), cpu=0.1, world=ranks, recorder=record, loops=loops)


def healthy(late_ms: dict[int, int], **more: bool) -> Diagnosis:
    processes = (trains(number, late, ranks=len(late_ms), **more) for number, late in late_ms.items())
    return diagnose(snapshot(*processes, silence=0.0, wall_us=_WALL_US))


def findings(diagnosis: Diagnosis, code: str) -> list[Finding]:
    assert not diagnosis.problems
    return [finding for job in diagnosis.jobs for finding in job.findings if finding.code == code]


def test_a_rank_that_is_late_in_each_step() -> None:
    (finding,) = findings(healthy({0: 0, 1: 1, 2: 52, 3: 0}), "HD601")
    assert (finding.culprits, finding.victims, finding.severity) == ((2,), (0, 1, 3), "warning")
    assert "it makes its calls 52 ms later" in finding.summary
    first = finding.evidence[0]
    assert (first.rank, first.probe) == (2, "recorder")
    assert first.text.startswith(
        "last in 100% of the 40 calls (all_reduce) of the last 80 in which the ranks came the furthest apart, 52 ms behind the "
        "median of the others (p90 52 ms), waited for a "
    )
    assert finding.evidence[1].text.startswith(
        "last in 0% of the 40 calls (all_reduce) of the last 80 in which the ranks came the furthest apart, earlier than the "
        "median of the others, waited"
    )


def test_a_call_that_makes_others_has_its_own_name() -> None:
    """gather_object makes an all_gather of the sizes."""
    gathers = CallForm(op="allgather", frames=(*c10d("gather_object"), *BUCKET.frames))
    processes = (trains(n, 52 * (n == 2), form=gathers) for n in range(4))
    (job,) = diagnose(snapshot(*processes, silence=0.0, wall_us=_WALL_US)).jobs
    text = job.findings[0].evidence[0].text
    assert (
        "the 40 calls (gather_object) of the last 80 in which the ranks came the furthest apart, 52 ms behind" in text
    )
    assert job.pace is not None and job.pace.operations == ("gather_object",)


@pytest.mark.parametrize("accepted", [False, True])
def test_a_late_rank_in_a_request_names_the_other_end(accepted: bool) -> None:
    """Who has accepted the connection asks nobody: it waits for the next request."""
    processes = [trains(n, 52 * (n == 2)) for n in range(4)]
    links = silent(4, 0.0).connections
    link = replace(links[0], pid=102, inode=77, local_port=5000, remote_address="127.0.0.1", remote_port=8000)
    listens = replace(link, inode=78, state="LISTEN", remote_port=0)
    file = AwaitedFile(
        kind="socket", name="socket:[77]", inode=77, descriptor=11, holders=(Holder(pid=9, name="python3", state="S"),)
    )
    clocks = processes[2].clocks
    assert isinstance(clocks, Clocks)
    main = replace(clocks.threads[0], cpu_ns=50_000_000, syscall="recvfrom", files=(file,), timed=False)
    moved = FileBytes(read_bytes=1 << 20, written_bytes=0)
    processes[2] = replace(processes[2], clocks=replace(clocks, threads=(main,)), files=moved)
    connections = Connections(connections=(*links, link, *((listens,) if accepted else ())))
    (finding,) = findings(diagnose(snapshot(*processes, connections=connections, wall_us=_WALL_US)), "HD601")
    request = "in a request to pid 9 (python3) on 127.0.0.1:8000"
    assert (f"so it waits for something; at the look rank 2 was {request}" in finding.summary) is not accepted
    assert finding.evidence[-1].text.startswith(f"{request} at " if not accepted else "at work at ")
    assert ("Measure the requests to pid 9" in (finding.remedy or "")) is not accepted
    assert any(command.endswith("-p 9") for command in finding.commands) is not accepted


def in_mesh(number: int, late_ms: int) -> Process:
    """A rank of a mesh of two rows, whose gradients of four layers are of two sizes. It is late before the first of them."""
    layers = [replace(form, frames=BUCKET.frames) for form in (BUCKET, LOSS, BUCKET, METRICS)]
    layers[3] = replace(layers[3], op="all_reduce")
    forms: dict[CallForm, int] = {}
    entries = [
        (4 * step + at, form, T0_US + step * 4 * _STEP_US + 1000 * at + (late_ms * 1000 if at == 0 else 160_000), False)
        for step in range(_STEPS)
        for at, form in enumerate(layers)
    ]
    wall, column = T0_US + _STEPS * 4 * _STEP_US, number % 2
    group = history_of(
        entries, name=f"dp{column}", wall_us=wall, forms=forms, before=4 * _STEPS - 30, ranks=(column, column + 2)
    )
    return rank(number, train(22), cpu=0.1, world=4, recorder=recorder(group, forms=forms))


def test_ranks_of_groups_beside_each_other_that_are_late_before_one_of_equal_calls() -> None:
    late = {0: 0, 1: 0, 2: 150, 3: 152}
    wall = T0_US + _STEPS * 4 * _STEP_US
    evidence = snapshot(*(in_mesh(number, ms) for number, ms in late.items()), silence=0.0, wall_us=wall)
    (finding,) = findings(diagnose(evidence), "HD601")
    assert (sorted(finding.culprits), finding.victims) == ([2, 3], (0, 1))
    assert "they make some calls 152 ms later" in finding.summary


def test_a_rank_whose_stack_was_not_read_is_where_it_made_its_last_call() -> None:
    no = Unavailable(reason="not needed: the rank counts its calls or batches, and so makes progress")
    processes = (replace(trains(n, 52 if n == 2 else 0), stack=no, stack_before=no) for n in range(4))
    diagnosis = diagnose(snapshot(*processes, silence=0.0, wall_us=_WALL_US))
    (finding,) = findings(diagnosis, "HD601")
    assert finding.evidence[-1] == Evidence(2, "recorder", "computing, last call at me/train.py:25")
    assert {view.where_source for view in diagnosis.jobs[0].ranks} == {"recorder"}
    assert "with diagnose --stacks" in (finding.remedy or "")
    (read,) = healthy({0: 0, 1: 1, 2: 52, 3: 0}).jobs
    assert {view.where_source for view in read.ranks} == {"stack"}
    assert read.findings[0].evidence[-1].probe == "stacks"
    assert "--stacks" not in (read.findings[0].remedy or "")


@pytest.mark.parametrize(
    ("cpu", "reason", "remedy"),
    [
        (0.1, "uses 10% of a core, so it waits for something", "Find out what the late one waits for"),
        (0.3, "so it may have more work, or wait for something", "Find out what the late one waits for"),
        (0.9, "so it may have more work", "Balance the work"),
    ],
)
def test_a_late_rank_that_hardly_computes_waits_for_something(cpu: float, reason: str, remedy: str) -> None:
    """The others wait for it for three quarters of the time."""
    processes = []
    for number in range(4):
        process = trains(number, 52 * (number == 2))
        assert isinstance(process.clocks, Clocks)
        threads = tuple(replace(thread, cpu_ns=int(cpu * 1e9)) for thread in process.clocks.threads[:1])
        processes.append(replace(process, clocks=replace(process.clocks, threads=threads)))
    (finding,) = findings(diagnose(snapshot(*processes, silence=0.0, wall_us=_WALL_US)), "HD601")
    assert finding.summary.endswith(reason) and finding.remedy.startswith(remedy)


def test_who_is_behind_others_that_wait_for_something_too_may_be_no_slower() -> None:
    """As the ranks of a run do that is as fast as its loaders are."""
    (finding,) = findings(healthy({0: 0, 1: 22}), "HD601")
    assert finding.summary == (
        "rank 1 is behind the others, but may be no slower: it makes its calls 22 ms later; rank 0 too waits for something else, "
        "57% of the time, as ranks with slow loaders do"
    )
    assert finding.confidence == 0.6
    assert (finding.remedy or "").endswith(
        "a device. If all ranks wait for their loaders, make these faster: one rank is late then although all are equally slow."
    )
    (finding,) = findings(healthy({0: 0, 1: 52}), "HD601")
    assert finding.confidence == 0.9
    loads = replace(_LOADS, seconds_ago=0.0)
    no = Unavailable(reason="not needed")
    ranks = (replace(trains(n, 22 * n, ranks=2), loops=loads, stack=no, stack_before=no) for n in (0, 1))
    (finding,) = findings(diagnose(snapshot(*ranks, silence=0.0, wall_us=_WALL_US)), "HD601")
    assert finding.confidence == 0.6
    assert (finding.remedy or "").startswith("Find out what the late one waits for")


@pytest.mark.parametrize(
    ("asked", "workers", "begun", "score"),
    [(False, (), True, 0.9), (None, (), False, 0.9), (False, (7,), True, 0.6), (True, (), True, 0.6)],
)
def test_only_ranks_that_may_wait_for_loaders_may_be_equally_slow(
    asked: bool | None, workers: tuple[int, ...], begun: bool, score: float
) -> None:
    """Both ranks sleep in each step, one for longer: it was said to be no slower, as ranks with slow loaders are. A loader that
    no loop goes over shows nothing."""
    done = 9 if begun else None
    loads = Loops(loaders=(Loader(kind="_BaseDataLoaderIter", done=done, begins=10, asked=asked, workers=workers),))
    ranks = (replace(trains(n, 22 * n, ranks=2), loops=loads) for n in (0, 1))
    (finding,) = findings(diagnose(snapshot(*ranks, silence=0.0, wall_us=_WALL_US)), "HD601")
    assert finding.confidence == score
    assert ("but may be no slower" in finding.summary) is ("their loaders" in (finding.remedy or "")) is (score == 0.6)


def test_a_late_rank_of_a_healthy_run_is_no_culprit() -> None:
    (finding,) = findings(healthy({0: 0, 1: 1, 2: 52, 3: 0}), "HD601")
    assert finding.role == "awaited"


@pytest.mark.parametrize("late", [{0: 0, 1: 1, 2: 0, 3: 1}, {0: 52, 1: 52, 2: 52, 3: 0}, {0: 0, 1: 3, 2: 0, 3: 1}])
def test_ranks_that_set_no_pace(late: dict[int, int]) -> None:
    """Equal ranks; one that is early; one whose 3 ms of 67 nobody feels."""
    assert not findings(healthy(late), "HD601")


def test_ranks_that_wait_for_each_other_in_turns_set_no_pace() -> None:
    """A player is late in the group of all ranks, and waits for its trainers in another group."""

    def plays(number: int) -> Process:
        process = trains(number, 52 if number == 0 else 0, ranks=3)
        assert isinstance(process.recorder, FlightRecorder)
        forms = dict.fromkeys(process.recorder.forms)
        turns = {form: at for at, form in enumerate((*forms, METRICS))}
        late = 0 if number == 0 else 45_000
        entries = [
            (step, METRICS, T0_US + (step - 1) * _STEP_US + 5_000 + late, False) for step in range(1, _STEPS + 1)
        ]
        second = history_of(entries, wall_us=_WALL_US, forms=turns, name="1")
        return replace(
            process, recorder=replace(process.recorder, forms=tuple(turns), groups=(*process.recorder.groups, second))
        )

    diagnosis = diagnose(snapshot(*map(plays, range(3)), silence=0.0, wall_us=_WALL_US))
    assert not findings(diagnosis, "HD601")


def test_a_record_of_a_run_that_stopped_is_no_pace() -> None:
    diagnosis = healthy({0: 0, 1: 1, 2: 52, 3: 0}, moved=False)
    assert diagnosis.jobs[0].pace is None
    assert not findings(diagnosis, "HD601")


@pytest.mark.parametrize("late_ms", [0, 5])
def test_one_long_wait_decides_no_share_of_the_time(late_ms: int) -> None:
    """A rank was stopped for 2 minutes. After that the run seemed to wait for half of the time, and rank 1 to set the pace."""
    seconds = 120
    processes = (trains(n, late_ms * (n == 1), ranks=2, stopped_us=seconds * 1_000_000) for n in range(2))
    diagnosis = diagnose(snapshot(*processes, silence=0.0, wall_us=_WALL_US + seconds * 1_000_000))
    (job,) = diagnosis.jobs
    assert job.pace is not None and job.pace.waited_share < 0.1 and job.pace.long_wait_seconds == seconds
    line = words.pace(job)
    assert (
        "% of the time apart from one wait of 2 min 0 s for rank 1 in the run; no single rank slows the others much, by "
        in line
    )
    assert line.endswith(" of the last 80 in which the ranks came the furthest apart")
    assert not findings(diagnosis, "HD601")


def test_one_step_in_the_window_tells_no_rate() -> None:
    """A run of three seconds a step has one step in this window, and none in the next one."""
    loops = Loops(loaders=(Loader(kind="DataLoader", done=_STEPS, done_before=_STEPS - 1),), between_seconds=1.0)
    ranks = (replace(trains(number), loops=loops) for number in range(2))
    (job,) = diagnose(snapshot(*ranks, silence=0.0, wall_us=_WALL_US)).jobs
    assert job.pace is not None
    assert job.pace.steps_per_second is None


def test_a_healthy_run_has_one_line() -> None:
    (job,) = healthy({0: 0, 1: 1, 2: 52, 3: 0}).jobs
    assert job.pace is not None
    assert (job.pace.steps_per_second, job.pace.slowest, job.pace.late_seconds) == (15.0, 2, 0.052)
    line = words.pace(job)
    assert line.startswith(
        "30.1 calls per second over 2.6 s, and 15.0 steps per second in this look; the ranks wait for a later one in "
        "collectives 7"
    )
    assert "mostly for rank 2 (52 ms behind, last in " in line
    (even,) = healthy({0: 0, 1: 1, 2: 0, 3: 1}).jobs
    which = "the 40 calls (all_reduce) of the last 80 in which the ranks came the furthest apart"
    assert words.pace(even).endswith(f"% of the time; no single rank slows the others much, by {which}")
    (unrecorded,) = healthy({0: 0, 1: 0}, recorded=False).jobs
    assert words.pace(unrecorded) == ""


def acts(number: int, late_ms: int = 0, *, own_calls: bool = True) -> Process:
    """A rank of reinforcement learning: ranks 0 and 1 make five more calls in a group of their own in each step."""
    process = trains(number, late_ms)
    if number > 1 or not own_calls:
        return process
    assert isinstance(process.recorder, FlightRecorder)
    forms = {form: at for at, form in enumerate(process.recorder.forms)}
    entries = [
        (5 * step + at + 1, METRICS, T0_US + step * _STEP_US + 1000 * at, False)
        for step in range(_STEPS)
        for at in range(5)
    ]
    group = history_of(entries, name="actors", wall_us=_WALL_US, forms=forms, before=5 * _STEPS - 75, ranks=(0, 1))
    return replace(
        process, recorder=replace(process.recorder, forms=tuple(forms), groups=(*process.recorder.groups, group))
    )


def test_the_pace_counts_the_calls_of_a_rank_in_all_its_groups() -> None:
    """It was that of the largest group, in which the ranks that train make the fewest of their calls."""
    (job,) = diagnose(snapshot(*map(acts, range(4)), silence=0.0, wall_us=_WALL_US)).jobs
    assert job.pace is not None
    assert job.pace.calls_per_second == pytest.approx(7e6 / _STEP_US, rel=0.05)
    assert job.pace.least_calls_per_second == pytest.approx(2e6 / _STEP_US, rel=0.05)
    assert words.pace(job).startswith("29.6 to 104 calls per second (ranks differ) over 2.7 s, and 15.0 steps")


@pytest.mark.parametrize(("own_calls", "codes"), [(True, []), (False, ["HD601"])])
def test_ranks_with_calls_of_their_own_are_no_stragglers(own_calls: bool, codes: list[str]) -> None:
    """The others wait for their new weights: so the run is made."""
    ranks = (acts(number, 60 * (number < 2), own_calls=own_calls) for number in range(5))
    assert [
        finding.code for finding in findings(diagnose(snapshot(*ranks, silence=0.0, wall_us=_WALL_US)), "HD601")
    ] == codes


# --- the document ----------------------------------------------------------------------------------------------------


def in_call(number: int, made: int, form: CallForm, *, pending: bool = True, **more: object) -> Process:
    forms: dict[CallForm, int] = {}
    entries = [(n, BUCKET, T0_US + n * 1_000_000, False) for n in range(1, made)]
    entries.append((made, form, T0_US + made * 1_000_000, pending))
    group = history_of(entries, wall_us=T0_US + 100_000_000, forms=forms, before=made)
    groups = (Group(address=1, name="0", ranks=(0, 1, 2, 3), default=True, backend="gloo"),)
    process = {
        "recorder": recorder(group, forms=forms),
        "interpreter": Interpreter(environment={}, globals=(), groups=groups),
        **more,
    }
    line = form.frames[0].line
    return rank(number, *(c10d(form.op) if pending else ()), frame("main", line), world=4, **process)  # type: ignore[arg-type]


def stands() -> Snapshot:
    """Rank 2 is in number 27, a barrier; the others are in number 27, an all_reduce."""
    ranks = [in_call(n, 27, BARRIER if n == 2 else LOSS) for n in range(4)]
    return snapshot(*ranks, wall_us=T0_US + 100_000_000)


def test_who_is_behind_in_numbers() -> None:
    (job,) = diagnose(stands()).jobs
    texts = [(line.rank, line.text) for line in job.findings[0].evidence[:3]]
    assert texts == [
        (2, "has made 26 calls in the default group and is in number 27, a barrier (train.py:16)"),
        (0, "has made 26 calls in the default group and is in number 27, an all_reduce of float32[] (train.py:25) "
            "(also ranks 1, 3)"),
        (None, "torch ends this run in 28 min at the earliest (timeout 30 min)"),
    ]  # fmt: skip


def find_skipped_backward(at: Frame) -> Finding:
    """The finding where three ranks wait in the backward of a frame, and rank 2 in a barrier behind it."""
    waits = rank(0, *backward(), at, native=native_backward())
    ranks = [
        replace(in_call(n, 27, BUCKET), stack=waits.stack, stack_before=waits.stack, native=waits.native)
        for n in (0, 1, 3)
    ]
    other = rank(2, *c10d("barrier"), replace(at, line=40))
    ranks.append(replace(in_call(2, 27, BARRIER), stack=other.stack, stack_before=other.stack))
    (job,) = diagnose(snapshot(*ranks, wall_us=T0_US + 100_000_000)).jobs
    return job.findings[0]


@pytest.mark.parametrize(
    ("source", "confidence", "remedy"),
    [
        ("step()", 0.9, "Find out in which iteration DDP averaged no gradients on rank 2, this"),
        (None, 0.7, "Make the call on every rank"),
    ],
)
def test_without_its_source_the_reason_of_a_skipped_backward_is_unknown(
    source: str | None, confidence: float, remedy: str
) -> None:
    """It may as well have left the loop: a look with its source says so."""
    finding = find_skipped_backward(frame("main", 22, source=source))
    assert (finding.code, finding.culprits, finding.confidence) == ("HD203", (2,), confidence)
    assert finding.remedy is not None and finding.remedy.startswith(remedy)
    assert ("its lines were not read" in str(finding.evidence)) is (source is None)


def test_a_skipped_backward_may_be_of_an_earlier_iteration() -> None:
    """The condition of the call was true in this one, so its values do not show who left it out."""
    guarded = frame("main", 22, source="step()", conditions=("args.train", "torch.isfinite(loss)"), repeated=1)
    finding = find_skipped_backward(guarded)
    assert finding.remedy is not None
    assert "was skipped because `torch.isfinite(loss)` was not true, or" in finding.remedy
    assert finding.commands == ()


def test_a_rank_that_came_out_of_the_call_at_once_passed_another_tensor() -> None:
    """Gloo returns at once for an empty tensor: the rank then waits in the next call, and skipped none."""
    forms: dict[CallForm, int] = {}
    empty = msgspec.structs.replace(LOSS, inputs=("float32[0]",))
    entries = [(1, empty, T0_US + 1_000_000, False), (2, BARRIER, T0_US + 2_000_000, True)]
    history = history_of(entries, wall_us=T0_US + 100_000_000, forms=forms, before=2)
    ahead = replace(in_call(2, 2, BARRIER), recorder=recorder(history, forms=forms))
    others = (in_call(n, 1, msgspec.structs.replace(LOSS, inputs=("float32[8]",))) for n in (0, 1, 3))
    (job,) = diagnose(snapshot(ahead, *others, wall_us=T0_US + 100_000_000)).jobs
    first = job.findings[0]
    assert (first.code, first.culprits, first.victims) == ("HD206", (2,), (0, 1, 3))
    assert first.evidence[0].text == (
        "has completed number 1 of the default group, an all_reduce of float32[0] (train.py:25), and is in number 2, a barrier "
        "(train.py:16)"
    )


def test_the_document_has_the_calls() -> None:
    (job,) = diagnose(stands()).jobs
    (calls,) = job.ranks[2].calls
    assert (calls.group, calls.made, calls.pending, calls.age_seconds, calls.source) == (None, 27, 27, 73.0, "recorder")
    assert calls.last == CallView(op="barrier", where=Where(file="train.py", line=16, function="main"))
    operation = job.ranks[2].operation
    assert operation is not None
    assert operation.seq == 27
    assert [(group.name, group.ranks, group.backend) for group in job.groups] == [(None, (0, 1, 2, 3), "gloo")]
    assert job.ends_by_itself_in_seconds == 1800.0 - 73.0
    assert job.hung_for_seconds == 73.0


def test_without_a_record_the_calls_are_inferred() -> None:
    ranks = (in_call(n, 27, LOSS, recorder=Unavailable(reason="no")) for n in range(4))
    (job,) = diagnose(snapshot(*ranks)).jobs
    (calls,) = job.ranks[0].calls
    assert (calls.made, calls.pending, calls.source) == (None, None, "inferred")
    assert not [line for finding in job.findings for line in finding.evidence if line.probe == "recorder"]


def test_the_first_difference_is_a_field() -> None:
    finding = diagnose(diverged()).jobs[0].findings[0]
    difference = json.loads(msgspec.json.encode(finding))["first_difference"]
    assert {key: difference[key] for key in ("group", "number", "ranks", "shift", "calls_ago", "steps_ago")} == {
        "group": None, "number": 454, "ranks": [1], "shift": 1, "calls_ago": 146, "steps_ago": 29,
    }  # fmt: skip
    assert difference["others_call"]["where"]["line"] == 12


# --- how old a wait is -----------------------------------------------------------------------------------------------


def waits_for_a_sleeper(silence: float | None) -> Diagnosis:
    """Ranks 0-2 made their call 73 s ago; rank 3 sleeps."""
    asleep = in_call(3, 26, BUCKET, pending=False, kernel={"syscall": "clock_nanosleep"})
    processes = (*(in_call(n, 27, LOSS) for n in range(3)), asleep)
    return diagnose(snapshot(*processes, silence=silence, wall_us=T0_US + 100_000_000))


def test_a_wait_is_as_old_as_its_call_without_any_socket() -> None:
    """At the first look, also where no socket shows it."""
    without = snapshot(*stands().hosts[0].processes, connections=Unavailable(reason="no"))
    (job,) = diagnose(without).jobs
    assert (job.verdict, job.hung_for_seconds) == ("hung", 73.0)
    assert {view.silent_seconds for view in job.ranks} == {73.0}


def test_a_wait_is_no_older_than_its_call() -> None:
    """The ranks computed for ten minutes before, without a byte; the call is 73 s old."""
    assert waits_for_a_sleeper(600.0).jobs[0].hung_for_seconds == 73.0


def test_data_on_the_way_are_no_old_wait() -> None:
    assert waits_for_a_sleeper(2.0).jobs[0].verdict == "waiting"


# --- a summary -------------------------------------------------------------------------------------------------------


def test_a_summary_keeps_the_numbers_of_ranks_that_are_alike() -> None:
    """Their times differ, and nothing else."""
    forms: dict[CallForm, int] = {}
    processes = []
    for number in range(4):
        group = history_of([(27, LOSS, T0_US + number * 10, True)], wall_us=_WALL_US, forms=forms, before=27)
        processes.append(
            rank(number, *c10d("all_reduce"), frame("main", 25), world=4, recorder=recorder(group, forms=forms))
        )
    shortened = summarized(snapshot(*processes, wall_us=_WALL_US))
    assert [process.like for process in shortened.hosts[0].processes] == [None, 100, 100, 100]
    (job,) = diagnose(shortened).jobs
    assert [[calls.made for calls in view.calls] for view in job.ranks] == [[27]] * 4


def test_who_is_late_behind_a_slow_link_is_no_straggler() -> None:
    """Its data arrive late, so it makes its next call late."""
    processes = [trains(number, 52 * (number == 1), ranks=2) for number in range(2)]
    ends = silent(2, 0.0).connections
    link = replace(ends[0], bytes_moved=250_000, busy_ms=900, delivery_rate_bytes=1_000_000)
    diagnosis = diagnose(snapshot(*processes, connections=Connections(connections=(link, *ends[1:])), wall_us=_WALL_US))
    assert not findings(diagnosis, "HD601")
    (slow,) = findings(diagnosis, "HD603")
    assert slow.evidence[0].probe == "recorder"
    assert "the latest rank makes its calls 52 ms after the others" in slow.evidence[0].text
    # A poll that kept its sockets counts the bytes of several windows.
    longer = Connections(connections=(link, *ends[1:]), window_seconds=4.0)
    assert not findings(diagnose(snapshot(*processes, connections=longer, wall_us=_WALL_US)), "HD603")


@pytest.mark.parametrize(
    ("hold", "seconds", "own"),
    [
        (Asleep(polls=True, period=15.0), 15.008, True),
        (Asleep(polls=True, period=0.02), 0.052, False),  # a pause between two pieces of its work
        (Asleep(polls=True, period=2.0), 15.0, False),
        (Asleep(polls=True), 15.0, False),
        (Asleep(seconds=3.0, period=15.0), 15.0, False),
    ],
)
def test_whose_sleep_is_as_long_as_it_is_late_has_no_work_yet(hold: Asleep, seconds: float, own: bool) -> None:
    """An evaluator looks for the next checkpoint every 15 s, and tells the others in a broadcast."""
    _, (run,) = examine(snapshot(trains(0, ranks=2), trains(1, ranks=2), silence=0.0, wall_us=_WALL_US))
    late = Lag(rank=0, median_seconds=seconds, p90_seconds=seconds, last_share=1.0, waited_share=0.0)
    assert _sleeps_as_long(replace(run.ranks[0], hold=hold), late) is own


@pytest.mark.parametrize(("seconds", "shown"), [(2.0, True), (0.05, False)])
def test_a_straggler_in_a_sleep_is_not_computing(seconds: float, shown: bool) -> None:
    """The sleep is in a line of its own code, and its counter changes between two sleeps."""
    processes = [trains(number, 50 * (number == 1)) for number in range(4)]
    assert isinstance(processes[1].clocks, Clocks)
    main, *others = processes[1].clocks.threads
    main = replace(main, syscall="clock_nanosleep", sleep_seconds=seconds / 2, whole_sleep_seconds=seconds)
    processes[1] = replace(processes[1], clocks=replace(processes[1].clocks, threads=(main, *others)))
    (slow,) = findings(diagnose(snapshot(*processes, silence=0.0, wall_us=_WALL_US)), "HD601")
    assert ("(at the look, rank 1 was in a sleep of 2.0 s at me/train.py:22)" in slow.summary) is shown
    assert ("asleep at" in str(slow.evidence)) is shown
    assert ("Look at the line that sleeps" in (slow.remedy or "")) is shown


@pytest.mark.parametrize(("delayed_ns", "score"), [(820_000_000, 0.6), (50_000_000, 0.9)])
def test_the_scheduler_makes_a_rank_late_that_waits_for_a_core(delayed_ns: int, score: float) -> None:
    """It was ready to run for as much of the time as the others wait for it."""
    processes = [trains(number, 50 * (number == 1)) for number in range(4)]
    assert isinstance(processes[1].clocks, Clocks)
    main, *others = processes[1].clocks.threads
    main = replace(main, delayed_ns=delayed_ns)
    processes[1] = replace(processes[1], clocks=replace(processes[1].clocks, threads=(main, *others)))
    (slow,) = findings(diagnose(snapshot(*processes, silence=0.0, wall_us=_WALL_US)), "HD601")
    assert (slow.culprits, slow.confidence) == ((1,), score)
    assert ("; it was ready to run and waited for a core 82% of the time" in slow.summary) is (score == 0.6)
    assert ("what else runs on its host" in (slow.remedy or "")) is (score == 0.6)


@pytest.mark.parametrize(
    ("delayed_ns", "cpu_ns", "lacks"), [(500_000_000, 110_000_000, True), (200_000_000, 110_000_000, False)]
)
def test_a_straggler_that_wants_a_core_does_not_wait_for_something_else(
    delayed_ns: int, cpu_ns: int, lacks: bool
) -> None:
    """It is late for longer than it waits for a core, so its own work may be more."""
    processes = [trains(number, 50 * (number == 1)) for number in range(4)]
    assert isinstance(processes[1].clocks, Clocks)
    main, *others = processes[1].clocks.threads
    main = replace(main, cpu_ns=cpu_ns, delayed_ns=delayed_ns)
    processes[1] = replace(processes[1], clocks=replace(processes[1].clocks, threads=(main, *others)))
    (slow,) = findings(diagnose(snapshot(*processes, silence=0.0, wall_us=_WALL_US)), "HD601")
    assert (slow.culprits, slow.confidence) == ((1,), 0.9)
    text = "rank 1 uses 11% of a core, and was ready to run and waited for one 50% of the time, so it may lack a core"
    assert (text in slow.summary) is lacks
    assert ("so it waits for something" in slow.summary) is not lacks
    assert (slow.remedy or "").startswith("Find out what else runs on its host" if lacks else "Find out what the late")


@pytest.mark.parametrize(("without_core", "score"), [((1, 2), 0.6), ((1,), 0.9), ((0, 1, 2, 3, 4, 5), 0.9)])
def test_the_scheduler_explains_late_ranks_only_if_it_holds_up_each_of_them_and_them_alone(
    without_core: tuple[int, ...], score: float
) -> None:
    processes = [trains(number, 50 * (number in (1, 2)), ranks=6) for number in range(6)]
    for number in without_core:
        clocks = processes[number].clocks
        assert isinstance(clocks, Clocks)
        main, *others = clocks.threads
        threads = (replace(main, delayed_ns=820_000_000), *others)
        processes[number] = replace(processes[number], clocks=replace(clocks, threads=threads))
    (slow,) = findings(diagnose(snapshot(*processes, silence=0.0, wall_us=_WALL_US)), "HD601")
    assert (slow.culprits, slow.confidence) == ((1, 2), score)
    assert ("each of them was ready to run" in slow.summary) is (score == 0.6)


def test_a_warm_up_is_no_cycle() -> None:
    """30 calls each 2 s, and then 4 s with 50 calls a second: the pauses before do not come again."""
    times = [at * 2_000_000 for at in range(30)]
    times += [times[-1] + 20_000 * at for at in range(1, 201)]
    ranks = []
    for number in (0, 1):
        forms: dict[CallForm, int] = {}
        entries = [(at + 1, BUCKET, T0_US + made + number * 100, False) for at, made in enumerate(times)]
        calls = history_of(entries, wall_us=T0_US + times[-1] + 1000, forms=forms, before=len(entries) - 50)
        ranks.append(replace(trains(number, ranks=2), recorder=recorder(calls, forms=forms)))
    (found,) = diagnose(snapshot(*ranks, silence=0.0, wall_us=T0_US + times[-1] + 1000)).jobs
    assert found.pace is not None
    assert found.pace.calls_per_second == pytest.approx(50, abs=1)


def set_up_and_train(steps: int) -> Diagnosis:
    """DDP's construction makes ten calls within 50 ms, and then two in the second step: a step each 160 ms makes one."""
    made = [(replace(METRICS, inputs=(f"float32[{number}]",)), 5_000 * number) for number in range(10)]
    made += [(LOSS, 50_000 + 160_000 * step) for step in range(steps)]
    made[11:11] = [(replace(BARRIER, op="broadcast"), 205_000), (replace(METRICS, op="broadcast"), 206_000)]
    wall_us = T0_US + made[-1][1] + 50_000
    ranks = []
    for number in (0, 1):
        forms: dict[CallForm, int] = {}
        entries = [(at + 1, form, T0_US + us + number * 100, False) for at, (form, us) in enumerate(made)]
        calls = history_of(entries, wall_us=wall_us, forms=forms, before=len(entries) - 3)
        ranks.append(replace(trains(number, ranks=2), recorder=recorder(calls, forms=forms)))
    return diagnose(snapshot(*ranks, silence=0.0, wall_us=wall_us))


@pytest.mark.parametrize(("steps", "seconds"), [(6, 0.48), (15, 2.08), (40, 4.96)])
def test_the_pace_of_a_young_run_is_that_of_its_steps(steps: int, seconds: float) -> None:
    """The calls that set it up were counted: 12 calls per second for 6.2."""
    (job,) = set_up_and_train(steps).jobs
    assert job.pace is not None and job.past is not None
    assert job.pace.calls_per_second == pytest.approx(1 / 0.16, rel=0.01)
    assert job.pace.rate_seconds == job.past.rate_seconds == pytest.approx(seconds)
    assert words.pace(job).startswith("6.2 calls per second over ")
