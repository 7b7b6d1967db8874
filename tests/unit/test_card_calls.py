"""Ranks whose cards wait in calls of NCCL: their state, what keeps the calls from finishing, and what is no evidence."""

import pytest
from msgspec.structs import replace

from hangdoc.observe.own_counts import rests_on_card
from hangdoc.observe.torch.calls import Call, Calls, Group
from hangdoc.observe.torch.history import Record, recorder_of
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.ledger import compare
from hangdoc.reasoning.model.ledger import amounts
from hangdoc.reasoning.ranks.movement import has_transferred
from hangdoc.snapshot import (
    CallForm,
    Communicator,
    Communicators,
    FlightRecorder,
    Process,
    Recorded,
    RecordedGroup,
    RecordedTransfers,
    Snapshot,
    Unavailable,
)
from tests.rules.shapes import gpu_rank
from tests.unit.builders import c10d, frame, rank, silent, snapshot, stack, train
from tests.unit.recordings import T0_US, frames, history_of, recorder

NO = Unavailable(reason="not needed")
SUM = CallForm(op="all_reduce", inputs=("float32[1024]",), frames=frames(("train.py", 9, "main")))
SUM_OF_MORE = replace(SUM, inputs=("float32[2048]",))
METRICS = CallForm(op="all_reduce", inputs=("float32[1]",), frames=frames(("train.py", 20, "main")))
NOW_US = T0_US + 90_000_000
WORLD = Group(1, "0", "default_pg")


def group(entries: list[tuple[int, CallForm, int, bool]], forms: dict[CallForm, int], name: str = "0") -> RecordedGroup:
    made = history_of(
        entries, name=name, wall_us=NOW_US, forms=forms, ranks=(0, 1), timeout=600.0, before=entries[-1][0]
    )
    return replace(made, on_card=True)


def card_rank(
    number: int, *, made: int = 5, pending: int | None = None, sizes: dict[int, CallForm] | None = None
) -> Process:
    """A rank in the driver that has made `made` calls of the default group, of which those from `pending` on are not finished."""
    forms: dict[CallForm, int] = {}
    entries = [
        (at, (sizes or {}).get(at, SUM), T0_US + at * 1000, pending is not None and at >= pending)
        for at in range(1, made + 1)
    ]
    return replace(gpu_rank(number), recorder=recorder(group(entries, forms), forms=forms))


def only_job(evidence: Snapshot):  # type: ignore[no-untyped-def]
    (job,) = diagnose(evidence).jobs
    return job


# --- states ------------------------------------------------------------------------------------------------------------


def test_a_rank_in_the_driver_waits_in_its_oldest_call_at_the_line_that_made_it() -> None:
    job = only_job(snapshot(card_rank(0, pending=5), card_rank(1, made=4), wall_us=NOW_US))
    rank = job.ranks[0]
    assert (rank.state, rank.operation.op, rank.operation.seq, rank.where.line) == ("in-collective", "all_reduce", 5, 9)
    assert job.ranks[1].label == "computing"
    assert job.verdict == "waiting"


def test_a_rank_whose_card_finished_a_call_in_the_window_does_not_wait() -> None:
    waits = card_rank(0, pending=5)
    assert isinstance(waits.recorder, FlightRecorder)
    advances = replace(waits, recorder=replace(waits.recorder, finished_seconds_ago=0.3))
    job = only_job(snapshot(advances, card_rank(1, made=4), wall_us=NOW_US))
    assert [rank.label for rank in job.ranks] == ["computing", "computing"]
    assert job.verdict == "healthy"


def test_a_rank_that_makes_calls_does_not_wait() -> None:
    waits = card_rank(0, pending=5)
    assert isinstance(waits.recorder, FlightRecorder)
    advances = replace(waits, recorder=replace(waits.recorder, entries_in_window=2))
    assert only_job(snapshot(advances, card_rank(1, made=4), wall_us=NOW_US)).ranks[0].label == "computing"


@pytest.mark.parametrize(("amount", "on_card", "on_host"), [(240, False, True), (1_000_000, True, True)])
def test_messages_with_which_the_processes_of_nccl_keep_in_touch_are_no_data(
    amount: int, on_card: bool, on_host: bool
) -> None:
    pairs = [replace(each, bytes_moved=amount) for each in silent(2, 60.0).connections]
    assert has_transferred(card_rank(0), pairs) is on_card
    assert has_transferred(rank(0, train(30)), pairs) is on_host


# --- what keeps calls from finishing -------------------------------------------------------------------------------------


def test_a_rank_that_waits_in_a_later_call_of_others_has_skipped_theirs() -> None:
    ranks = []
    for number in (0, 1):
        forms: dict[CallForm, int] = {}
        made = 5 - number  # rank 1 did not make number 5
        world = group([(at, SUM, T0_US + at * 1000, at == 5) for at in range(1, made + 1)], forms)
        metrics = group([(1, METRICS, T0_US + 9_000, True)], forms, name="1")
        ranks.append(replace(gpu_rank(number), recorder=recorder(world, metrics, forms=forms)))
    job = only_job(snapshot(*ranks, wall_us=NOW_US))
    assert job.verdict == "hung"
    assert (job.findings[0].code, job.findings[0].culprits, job.findings[0].victims) == ("HD203", (1,), (0,))


def receives_from(number: int, world: int, peer: int, seconds: float) -> Process:
    """A rank in the driver that posted a receive so long ago, and made three all_reduces before."""
    forms: dict[CallForm, int] = {}
    made = group([(at, SUM, T0_US + at * 1000, False) for at in range(1, 4)], forms)
    posted = Recorded(seq=1, op="recv", age_seconds=seconds, timeout_seconds=600.0, frames=SUM.frames)
    transfers = (RecordedTransfers(sends=False, peer=peer, made=1, pending=(posted,)),)
    made = replace(made, ranks=tuple(range(world)), transfers=transfers)
    return replace(gpu_rank(number, world=world), recorder=recorder(made, forms=forms))


@pytest.mark.parametrize(("seconds", "verdict"), [(3.0, "waiting"), (60.0, "hung")])
def test_ranks_that_posted_receives_may_compute_before_they_send(seconds: float, verdict: str) -> None:
    ring = [receives_from(number, 3, (number - 1) % 3, seconds) for number in range(3)]
    job = only_job(snapshot(*ring, wall_us=NOW_US))
    assert (job.verdict, job.findings[0].code) == (verdict, "HD204")
    assert job.ends_by_itself_in_seconds == 600.0 - seconds
    assert any("torch ends this run" in each.text for each in job.findings[0].evidence)


def test_a_rank_with_sends_only_has_not_made_the_call_of_another() -> None:
    forms: dict[CallForm, int] = {}
    pair = receives_from(0, 2, 1, 60.0)
    assert isinstance(pair.recorder, FlightRecorder)
    (made,) = pair.recorder.groups
    only = replace(made, issued=None, issued_before=None, completed=None, history=None)
    first = replace(pair, recorder=replace(pair.recorder, groups=(only,), whole=True))
    barrier = replace(gpu_rank(1), recorder=recorder(group([(1, SUM, T0_US, True)], forms), forms=forms))
    for one in (first, replace(first, recorder=replace(first.recorder, whole=False))):  # type: ignore[type-var]
        job = only_job(snapshot(one, barrier, wall_us=NOW_US))
        assert not any("all ranks have made" in each.text for each in job.findings[0].evidence)


def test_a_rank_without_a_record_may_be_in_the_call_of_the_others_or_in_none() -> None:
    job = only_job(snapshot(replace(card_rank(0), recorder=NO), card_rank(1, pending=5), wall_us=NOW_US))
    assert job.verdict == "unknown"
    assert [(each.code, each.culprits) for each in job.findings[:1]] == [("HD701", ())]


def test_a_rank_in_nccl_itself_waits_for_others_and_not_for_its_card() -> None:
    connecting = stack(
        frame("bootstrapAllGather", 0, "libnccl.so.2", native=True, library=True),
        frame("ncclCommInitRankFunc", 0, "libnccl.so.2", native=True, library=True),
        *c10d("all_reduce"),
        train(14),
    )
    python = stack(*c10d("all_reduce"), train(14))
    ranks = [replace(card_rank(n), native=connecting, stack=python, stack_before=python) for n in (0, 1)]
    job = only_job(snapshot(*ranks, wall_us=NOW_US))
    assert [each.label for each in job.ranks] == ["blocked", "blocked"]
    assert job.verdict != "healthy"


def test_an_earlier_difference_of_sizes_explains_a_call_that_no_card_finishes() -> None:
    even = snapshot(card_rank(0, pending=5), card_rank(1, pending=5), wall_us=NOW_US)
    uneven = snapshot(card_rank(0, pending=5), card_rank(1, pending=5, sizes={3: SUM_OF_MORE}), wall_us=NOW_US)
    assert only_job(even).findings[0].code == "HD702"
    finding = only_job(uneven).findings[0]
    assert finding.code == "HD206"
    assert "number 3" in finding.summary


def transfer_rank(number: int, *, sends: bool) -> Process:
    """A rank in the driver whose oldest transfer with the other rank is its third."""
    forms: dict[CallForm, int] = {}
    pending = Recorded(
        seq=3, op="send" if sends else "recv", age_seconds=20.0, timeout_seconds=600.0,
        frames=frames(("train.py", 9 + number, "main")),
    )  # fmt: skip
    made = RecordedTransfers(sends=sends, peer=1 - number, made=3, pending=(pending,))
    world = replace(group([(1, SUM, T0_US, False)], forms), transfers=(made,))
    return replace(gpu_rank(number), recorder=replace(recorder(world, forms=forms), whole=True))


@pytest.mark.parametrize("sends", [(True, True), (False, False)])
def test_two_sends_or_two_receives_are_a_deadlock(sends: tuple[bool, bool]) -> None:
    ranks = [transfer_rank(number, sends=each) for number, each in enumerate(sends)]
    (job,) = diagnose(snapshot(*ranks, wall_us=NOW_US), patience=10).jobs
    assert (job.verdict, job.findings[0].code) == ("hung", "HD204")


def test_a_send_and_its_receive_are_none() -> None:
    """A stage of a pipeline may compute for long before its send, which it has launched already."""
    ranks = [transfer_rank(number, sends=number == 0) for number in (0, 1)]
    (job,) = diagnose(snapshot(*ranks, wall_us=NOW_US), patience=10).jobs
    assert (job.verdict, job.findings[0].code, job.findings[0].severity) == ("waiting", "HD702", "info")


def test_sizes_are_compared_once_for_each_form_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(compare, "amounts", lambda call: asked.append(call) or amounts(call))
    ranks = [card_rank(number, made=200, pending=200) for number in range(20)]
    world = tuple(range(20))
    for at, one in enumerate(ranks):
        assert isinstance(one.recorder, FlightRecorder)
        groups = tuple(replace(each, ranks=world) for each in one.recorder.groups)
        identity = replace(one.identity, world_size=20) if one.identity is not None else None
        ranks[at] = replace(one, recorder=replace(one.recorder, groups=groups), identity=identity)
    job = only_job(snapshot(*ranks, wall_us=NOW_US))
    assert job.findings[0].code == "HD702"
    assert len(asked) < 20 * 20


def communicators(launches: int, *, before: int | None = None, graphs: int = 1) -> Communicators:
    made = Communicator(
        hash=7, rank=0, size=2, cuda_device=0, bus=0, node=0, nodes=1, counts=(0, 0, 0, 0, 3), counts_before=(0, 0, 0, 0, 3),
        launches=launches, launches_before=launches if before is None else before, async_result=0, init_state=0,
        destroyed=False, revoked=False, finalized=False, graphs=graphs,
    )  # fmt: skip
    return Communicators(nccl_version="2.28.9", communicators=(made,))


def test_a_graph_that_a_rank_has_not_replayed() -> None:
    replays = replace(card_rank(0), communicators=communicators(44))
    sleeps = rank(
        1, train(30), kernel={"syscall": "clock_nanosleep", "sleep_seconds": 0.4}, communicators=communicators(43)
    )
    job = only_job(snapshot(replays, sleeps, wall_us=NOW_US))
    assert job.ranks[0].state == "in-collective"
    assert job.findings[0].culprits == (1,)
    assert any("44 kernels" in each.text for each in job.findings[0].evidence)


def test_counts_that_grow_show_no_wait() -> None:
    replays = replace(card_rank(0), communicators=communicators(44, before=40))
    other = replace(card_rank(1), communicators=communicators(43, before=40))
    assert only_job(snapshot(replays, other, wall_us=NOW_US)).verdict == "healthy"


# --- the record --------------------------------------------------------------------------------------------------------


def call(number: int, form: int, *, p2p: int = 0, is_p2p: bool = False, done: bool = True) -> Call:
    return Call(
        id=number, group=WORLD, collective=0, p2p=p2p, operation=number, form=form, made_ns=(T0_US + number) * 1000,
        timeout_ms=600_000, is_p2p=is_p2p, duration_ms=None, started_ns=None, completed_ns=None, retired=done, thread=None,
        thread_name=None,
    )  # fmt: skip


FORMS = (CallForm(op="send 0->1"), CallForm(op="recv 0<-1"), CallForm(op="coalesced"), CallForm(op="all_reduce"))


def read_back(*calls: Call) -> RecordedGroup:
    record = Record("cuda", Calls(list(calls), FORMS), len(calls), 2000, {("0", "default_pg"): (4, 6)}, NOW_US * 1000)
    (made,) = recorder_of([record], {"cuda": len(calls)}).groups
    return made


def test_sends_and_receives_are_counted_for_each_peer_by_its_global_number() -> None:
    made = read_back(
        call(0, 0, p2p=1, is_p2p=True), call(1, 1, p2p=2, is_p2p=True), call(2, 0, p2p=3, is_p2p=True, done=False)
    )
    assert [(each.sends, each.peer, each.made, [p.seq for p in each.pending]) for each in made.transfers] == [
        (True, 6, 2, [2]), (False, 6, 1, []),
    ]  # fmt: skip
    assert made.issued is None


def test_a_batch_is_complete_when_its_entry_is() -> None:
    parts = [call(0, 0, p2p=1, is_p2p=True, done=False), call(1, 1, p2p=1, is_p2p=True, done=False)]
    finished = read_back(*parts, call(2, 2, p2p=1, done=True))
    assert [each.pending for each in finished.transfers] == [(), ()]
    open_one = read_back(*parts, call(2, 2, p2p=1, done=False))
    assert [len(each.pending) for each in open_one.transfers] == [1, 1]
    assert open_one.history is None  # the entry of the batch is no collective


def test_a_coalesced_collective_after_a_send_is_a_collective() -> None:
    made = read_back(call(0, 0, p2p=1, is_p2p=True), call(1, 3, p2p=1), call(2, 2, p2p=1))
    assert made.history is not None
    assert [each.made for each in made.transfers] == [1]


def test_a_card_rests_with_an_old_call_and_no_event() -> None:
    waits = card_rank(0, pending=5).recorder
    assert isinstance(waits, FlightRecorder)
    assert rests_on_card({"recorder": waits}, 1.0)
    assert not rests_on_card({"recorder": replace(waits, finished_seconds_ago=0.5)}, 1.0)
    assert not rests_on_card({"recorder": replace(waits, entries_in_window=1)}, 1.0)
    assert not rests_on_card({"recorder": card_rank(0).recorder}, 1.0)
    assert not rests_on_card({"recorder": waits}, 100.0)  # it was made in the window


# --- without the right to read a process ---------------------------------------------------------------------------------


def test_a_busy_rank_of_which_only_clocks_were_read_may_wait_for_its_card() -> None:
    no = Unavailable(reason="permission denied")
    blind = [
        replace(card_rank(number), recorder=no, stack=no, stack_before=no, native=no, interpreter=no)
        for number in (0, 1)
    ]
    job = only_job(snapshot(*blind, wall_us=NOW_US))
    assert [each.label for each in job.ranks] == [None, None]
    assert job.verdict == "unknown"
