"""What ranks did before the look, by the times of their calls: simulated runs of which the truth is known."""

from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hangdoc.diagnosis import Job
from hangdoc.reasoning.engine import diagnose, examine
from hangdoc.reasoning.ledger.past import Past, edges_of, past_of, shares_of
from hangdoc.reasoning.model.ledger import Call, GroupCalls, Ledger, Pending, RankCalls, Site
from hangdoc.reasoning.views.past import MOST_CELLS, past_cells, timelines
from hangdoc.render import words
from hangdoc.snapshot import (
    CallForm,
    Connection,
    Connections,
    Counter,
    FlightRecorder,
    Loader,
    Loops,
    Process,
    Progress,
    Snapshot,
    Unavailable,
)
from tests.unit.builders import c10d, frame, rank, snapshot, stack, train
from tests.unit.recordings import T0_US, frames, history_of, recorder

FEW = settings(max_examples=100, deadline=None)
CALLS = [Call("all_reduce", ("float32[8]",), (Site("train.py", line, "step"),)) for line in (14, 15)]
"""Each rank makes them in turns."""
SECOND = 1_000_000


class Simulated(NamedTuple):
    """A run of synchronous calls. For each rank the times at which it made them, and how long it waited in all, in seconds."""

    made: list[list[float]]
    waited: list[float]
    end: float


def simulate(works: list[list[float]]) -> Simulated:
    """Each rank computes for these seconds before each of its calls, which completes when the last rank has made it."""
    ready, waited, made = 0.0, [0.0] * len(works), [[] for _ in works]  # type: ignore[var-annotated]
    for step in zip(*works, strict=True):
        at = [ready + seconds for seconds in step]
        ready = max(at)
        for rank_, own in enumerate(at):
            made[rank_].append(own)
            waited[rank_] += ready - own
    return Simulated(made, waited, ready)


def ledger_of(
    made: list[list[float]],
    *,
    hosts: tuple[str, ...] = (),
    ahead: float = 0.0,
    kept: int = 10_000,
    pending: frozenset[int] = frozenset(),
) -> Ledger:
    """Of these ranks; the last call of those in `pending` is not complete. The clock of host h1 is `ahead` by these seconds."""
    ranks = {}
    for number, times in enumerate(made):
        host = hosts[number] if hosts else "h0"
        off = ahead if host == "h1" else 0.0
        last = len(times)
        ranks[number] = RankCalls(
            number,
            host,
            made=last,
            pending=(Pending(last, CALLS[0]),) if number in pending else (),
            numbers=tuple(range(1, last + 1))[-kept:],
            calls=tuple(CALLS[at % 2] for at in range(last))[-kept:],
            made_us=tuple(T0_US + round((at + off) * SECOND) for at in times)[-kept:],
        )
    return Ledger((GroupCalls(None, tuple(ranks), ranks),))


def past(ledger: Ledger, look: float, *, ahead: float = 0.0) -> Past:
    found = past_of(ledger, {"h0": T0_US + round(look * SECOND), "h1": T0_US + round((look + ahead) * SECOND)})
    assert found is not None
    return found


def seconds(found: Past, number: int, activity: str) -> float:
    return sum(s.end - s.begin for s in found.ranks[number].stretches if s.activity == activity)


WORKS = st.integers(1, 4).flatmap(
    lambda ranks: st.integers(2, 30).flatmap(
        lambda calls: st.lists(
            st.lists(st.floats(0.001, 0.5), min_size=calls, max_size=calls), min_size=ranks, max_size=ranks
        )
    )
)


@FEW
@given(WORKS, st.floats(0.0, 5.0))
def test_the_time_between_calls_is_waited_or_computed_as_it_was(works: list[list[float]], later: float) -> None:
    run = simulate(works)
    found = past(ledger_of(run.made), run.end + later)
    for number, known in found.ranks.items():
        assert known.stretches[0].begin == pytest.approx(run.made[number][0] - run.end - later, abs=1e-5)
        assert known.stretches[-1].end == 0.0
        assert all(a.end == b.begin for a, b in pairwise(known.stretches))
        assert seconds(found, number, "waiting") == pytest.approx(run.waited[number], abs=1e-3)
        longest = max(works[number][1:])
        assert seconds(found, number, "unseen") == pytest.approx(max(0.0, later - longest), abs=1e-3)


@FEW
@given(WORKS, st.floats(0.01, 100.0), st.integers(1, 200), st.floats(0.0, 3.0), st.floats(0.0, 1.0))
def test_cells_cover_the_past_once(
    works: list[list[float]], later: float, most: int, window: float, least: float
) -> None:
    run = simulate(works)
    found = past(ledger_of(run.made), run.end + later)
    edges = edges_of(found, most, until=-window, least_seconds=least)
    if not edges:
        assert found.begin >= -window
        return
    assert edges[-1] == -window
    assert len(edges) - 1 <= max(most, 2)
    assert all(later - earlier >= least - 1e-9 for earlier, later in pairwise(edges))
    assert edges[0] <= found.begin + 1e-6 or least * most < -window - found.begin
    for known in found.ranks.values():
        shares = shares_of(known, edges)
        assert len(shares) == len(edges) - 1
        assert all(0.0 <= share.progress <= 1.0 for share in shares)
        waited = sum(
            min(s.end, -window) - max(s.begin, edges[0])
            for s in known.stretches
            if s.activity == "waiting" and s.begin < -window and s.end > edges[0]
        )
        if not any(s.activity == "unseen" for s in known.stretches) and found.begin == known.stretches[0].begin:
            begun = max(edges[0], found.begin)
            drawn = sum(
                (1 - share.progress) * (b - max(a, begun))
                for share, (a, b) in zip(shares, pairwise(edges), strict=True)
            )
            assert drawn == pytest.approx(waited, abs=1e-3)


def test_a_call_that_is_not_complete_waits_until_the_look() -> None:
    """Rank 1 makes no second call; what it does since then is known for as long as it computed before."""
    found = past(ledger_of([[0.0, 2.0], [1.0]], pending=frozenset({0})), 60.0)
    assert found.ranks[0].stretches[-1] == (-58.0, 0.0, "waiting")
    assert [s.activity for s in found.ranks[1].stretches] == ["unseen"]
    found = past(ledger_of([[0.0, 2.0, 4.0], [1.0, 2.5]], pending=frozenset({0})), 60.0)
    assert found.ranks[1].stretches == ((-59.0, -56.0, "computing"), (-56.0, 0.0, "unseen"))


def test_a_server_may_have_been_idle_before_it_handed_out_a_request() -> None:
    """Rank 0 makes another call 0.5 s after each request, and the requests come a minute apart."""
    made = [at for start in (0.0, 60.0, 120.0) for at in (start, start + 0.5)]
    ledger = ledger_of([made, made])
    (group,) = ledger.groups
    request = Call("broadcast", ("uint8[9]",), (Site("serve.py", 9, "loop"),), called="broadcast_object_list")
    ranks = {n: calls._replace(calls=(request, CALLS[0]) * 3) for n, calls in group.ranks.items()}
    ledger, looks_us = Ledger((group._replace(ranks=ranks),)), {"h0": T0_US + 180 * SECOND}

    server = past_of(ledger, looks_us, served={0})
    assert server is not None
    stretches = server.ranks[0].stretches
    assert [s.activity for s in stretches] == ["computing", "unseen"] * 3
    assert [s.begin for s in stretches] == pytest.approx([-180.0, -179.0, -120.0, -119.0, -60.0, -59.0])

    trainer = past_of(ledger, looks_us)  # it may have computed
    assert trainer is not None
    assert [s.activity for s in trainer.ranks[0].stretches] == ["computing"]


@pytest.mark.parametrize(
    ("client", "whole", "served"),
    [
        (40_100, True, {0}),  # another process has connected to its port
        (41_001, True, set()),  # rank 1 has
        (None, True, set()),
        (40_100, False, set()),  # rank 1, of which nothing is known, may have
    ],
)
def test_a_rank_with_a_client_may_serve_before_its_stack_was_read(
    client: int | None, whole: bool, served: set[int]
) -> None:
    """`top` does not read the stack of a rank under load, and drew 50 s without a request as computing."""

    def connection(pid: int, local: int, remote: int, state: str = "ESTABLISHED") -> Connection:
        return Connection(
            pid=pid, namespace="net:[1]", state=state, local_address="127.0.0.1", local_port=local,
            remote_address="127.0.0.1", remote_port=remote, receive_queue_bytes=0, send_queue_bytes=0,
            bytes_moved=None, last_sent_ms=None, last_received_ms=None,
        )  # fmt: skip

    seen = [connection(100, 8000, 0, "LISTEN"), connection(101, 41_001, 8000)]
    seen += [connection(100, 8000, client)] if client is not None else []
    ranks = [rank(number, train(12), cpu=0.9) for number in range(2 if whole else 1)]
    _, (run,) = examine(snapshot(*ranks, connections=Connections(connections=tuple(seen)), restricted=not whole))
    assert run.served == served


def test_what_is_older_than_the_record_of_a_rank_is_unseen() -> None:
    run = simulate([[0.1] * 100, [0.1] * 100])
    made = ledger_of(run.made)
    (group,) = made.groups
    short = group.ranks[1]
    short = short._replace(numbers=short.numbers[50:], calls=short.calls[50:], made_us=short.made_us[50:])
    found = past(Ledger((group._replace(ranks={**group.ranks, 1: short}),)), run.end)
    edges = edges_of(found, 10)
    assert {share.activity for share in shares_of(found.ranks[0], edges)} == {"computing"}
    assert [share.activity for share in shares_of(found.ranks[1], edges)] == ["unseen"] * 5 + ["computing"] * 5


def test_hosts_are_compared_by_the_difference_of_their_clocks() -> None:
    """An hour apart, which calls show in which the ranks of each host arrive together; and with nothing to show it."""
    hosts, slow = ("h0", "h0", "h1", "h1"), 0.05
    works = [[0.01, 0.001] * 20, [0.01, 0.001] * 20, [0.01, 0.001] * 20, [0.01 + slow, 0.001] * 20]
    run = simulate(works)
    found = past(ledger_of(run.made, hosts=hosts, ahead=3600.0), run.end, ahead=3600.0)
    for number in range(3):
        assert seconds(found, number, "waiting") == pytest.approx(20 * slow, rel=0.2)
    assert seconds(found, 3, "waiting") == pytest.approx(0.0, abs=0.05)

    apart = past(ledger_of(simulate(works[2:]).made, hosts=("h0", "h1"), ahead=3600.0), run.end, ahead=3600.0)
    for number in range(2):
        assert {s.activity for s in apart.ranks[number].stretches} <= {"moving", "unseen"}


def test_a_run_that_stood_still_for_long_keeps_cells_for_the_time_before() -> None:
    found = past(ledger_of([[n / 10 for n in range(300)]] * 2, pending=frozenset({0, 1})), 3600.0)
    edges = edges_of(found, 120)
    assert sum(edge <= found.last_call for edge in edges) >= 80
    assert edges[0] == pytest.approx(-3600.0)


# --- a run ------------------------------------------------------------------------------------------------------------

REDUCE = CallForm(op="all_reduce", inputs=("float32[64]",), frames=frames(("train.py", 14, "step")))


def stands(*, late: float = 0.05, steps: int = 100, ago: float = 20.0, moving: bool = False) -> Snapshot:
    """Rank 2 of four comes late to each call. The last one of rank 3 is missing, `ago` seconds before the look."""
    run = simulate([[0.01 + (late if number == 2 else 0.0)] * steps for number in range(4)])
    wall_us = T0_US + round((run.end + ago) * SECOND)
    processes = []
    for number, times in enumerate(run.made):
        made = times[:-1] if number == 3 and not moving else times
        forms: dict[CallForm, int] = {}
        entries = [
            (at + 1, REDUCE, T0_US + round(t * SECOND), at + 1 == steps and not moving) for at, t in enumerate(made)
        ]
        before = len(made) - 7 if moving else len(made)
        group = history_of(entries, wall_us=wall_us, forms=forms, before=before)
        place = (
            (frame("decode", 9, source="image.load()"), train(12)) if number == 3 else (*c10d("all_reduce"), train(14))
        )
        no = Unavailable(reason="not needed: the rank counts its calls or batches, and so makes progress")
        stacks: dict[str, Any] = {"stack": no, "stack_before": no} if moving else {}
        processes.append(rank(number, *place, world=4, recorder=recorder(group, forms=forms), **stacks))
    return snapshot(*processes, silence=0.0 if moving else ago, wall_us=wall_us)


def with_calls_on_card(process: Process) -> Process:
    record = process.recorder
    assert isinstance(record, FlightRecorder)
    return replace(process, recorder=replace(record, groups=tuple(replace(g, on_card=True) for g in record.groups)))


def with_old_call(process: Process, wall_us: int | None, *, pending: bool) -> Process:
    """With a call of an hour ago in another group."""
    record = process.recorder
    assert isinstance(record, FlightRecorder) and wall_us is not None
    form = CallForm(op="all_gather" if pending else "barrier", frames=frames(("log.py", 3, "main")))
    forms = {each: at for at, each in enumerate(record.forms)}
    group = history_of([(1, form, wall_us - 3600 * SECOND, pending)], name="1", wall_us=wall_us, forms=forms, before=1)
    return replace(process, recorder=replace(record, groups=(*record.groups, group), forms=tuple(forms)))


def passes(*, late: float, at: str = "all_reduce", read: bool = True) -> Snapshot:
    """The same run while it makes calls: all ranks but number 2 are in its last call, and by their stacks in `at`, if read."""
    (host,) = stands(moving=True, late=late, ago=0.0).hosts
    moved = Progress(counters=(Counter(name="step", function="train", file="/home/me/train.py", before=41, after=48),))
    processes = []
    for number, process in enumerate(host.processes):
        record = process.recorder
        assert isinstance(record, FlightRecorder)
        (group,) = record.groups
        assert group.completed is not None
        group = replace(group, pending=() if number == 2 else (group.completed,))
        seen = stack(*c10d(at), train(14)) if read else Unavailable(reason="it moves")
        processes.append(
            replace(process, stack=seen, stack_before=seen, progress=moved, recorder=replace(record, groups=(group,)))
        )
    return Snapshot(hangdoc="test", hosts=(replace(host, processes=tuple(processes)),))


def job_of(evidence: Snapshot) -> Job:
    (job,) = diagnose(evidence, patience=3.0).jobs
    return job


def test_the_report_says_when_calls_ended_and_who_came_late() -> None:
    found = job_of(stands()).past
    assert found is not None
    assert (found.slowest, found.first_stopped) == (2, ())
    assert found.others_waited_share == pytest.approx(0.83, abs=0.02)
    assert found.stopped_us == T0_US + round(100 * 0.06 * SECOND)
    assert found.calls_per_second == pytest.approx(1 / 0.06, rel=0.05)
    text = words.past(found)
    assert text == (
        "16.7 calls/s over 5.0 s until 14:13:26 UTC, then none. Rank 2 was the last in 100% of the last 99 calls, 50 ms after "
        "the others, which waited 84% of the time."
    )  # fmt: skip


def test_a_rank_whose_last_call_is_older_is_named() -> None:
    found = job_of(stands(late=3.0, steps=12)).past
    assert found is not None
    assert found.first_stopped == (3,)
    assert found.first_stopped_seconds == pytest.approx(6.0, abs=0.1)  # it came 3 s early
    assert "; rank 3 made its last call 6.0 s earlier. Rank 2" in words.past(found)


def test_a_run_that_makes_calls_has_not_stopped() -> None:
    found = job_of(stands(moving=True, ago=0.01)).past
    assert found is not None
    assert (found.stopped_us, found.first_stopped) == (None, ())
    assert "until" not in words.past(found)


def test_a_rank_that_counts_needs_no_stack() -> None:
    """It makes progress, and it is where its last call was: nothing is missing."""
    job = job_of(stands(moving=True, ago=0.25, late=0.0))
    assert {view.waited_share for view in job.ranks} == {0.0}
    assert (job.verdict, job.findings) == ("healthy", ())
    for view in job.ranks:
        assert (view.label, view.state) == ("computing", "computing")
        assert view.stack_seconds_ago == pytest.approx(0.25, abs=0.02)
        assert view.where is not None
        assert (view.where.file, view.where.line, view.where.function) == ("me/train.py", 14, "step")


def test_the_share_of_the_window_that_a_rank_waited() -> None:
    job = job_of(stands(moving=True, ago=0.0))
    assert [view.waited_share for view in job.ranks] == pytest.approx([0.83, 0.83, 0.0, 0.83], abs=0.02)
    assert {view.waited_share for view in job_of(stands()).ranks} == {None}


def test_a_rank_that_came_out_of_a_call_waited_for_a_part_of_the_window() -> None:
    """It made no call in the window, and was drawn as computing in all of it: a later rank made the call that it waited in."""
    wall_us, processes = T0_US + round(2.6 * SECOND), []
    for number, made in enumerate(([0.0, 0.1], [0.05, 2.5])):
        forms: dict[CallForm, int] = {}
        entries = [(at + 1, REDUCE, T0_US + round(t * SECOND), False) for at, t in enumerate(made)]
        calls = history_of(entries, wall_us=wall_us, forms=forms, before=2 - number)
        processes.append(rank(number, train(12), cpu=0.9, recorder=recorder(calls, forms=forms)))
    views = job_of(snapshot(*processes, silence=0.0, wall_us=wall_us)).ranks
    assert [view.waited_share for view in views] == pytest.approx([0.947, 0.0], abs=0.01)


def test_a_rank_that_waits_for_most_of_the_window_is_in_the_call_that_stack_and_record_show() -> None:
    """It went from call to call, so it was labelled computing."""
    job = job_of(passes(late=0.05))
    assert job.verdict == "healthy"
    assert [view.label for view in job.ranks] == ["blocked", "blocked", "computing", "blocked"]
    first = job.ranks[0]
    assert (first.state, first.progress) == ("in-collective", "its loop is making progress")
    assert first.operation is not None
    assert (first.operation.op, first.operation.seq) == ("all_reduce", 100)


def test_that_rank_has_the_same_label_in_a_poll_that_did_not_read_its_stack() -> None:
    """The label of one rank alternated between the polls of `top`."""
    job = job_of(stands(moving=True, ago=0.0))
    assert job.verdict == "healthy"
    assert [view.label for view in job.ranks] == ["blocked", "blocked", "computing", "blocked"]
    first = job.ranks[0]
    assert first.operation is not None
    assert (first.state, first.operation.op, first.operation.seq) == ("in-collective", "all_reduce", 100)
    assert first.progress == "it made 7 collective calls, by torch's record"


def test_calls_that_a_card_executes_do_not_show_where_a_rank_is() -> None:
    """They return before they are complete. Neither does a barrier of long ago in another group."""
    (host,) = stands(moving=True, ago=0.0).hosts
    for also in (False, True):
        processes = [with_calls_on_card(each) for each in host.processes]
        if also:
            processes = [with_old_call(each, host.wall_us, pending=False) for each in processes]
        job = job_of(Snapshot(hangdoc="test", hosts=(replace(host, processes=tuple(processes)),)))
        assert {view.label for view in job.ranks} == {"computing"}


def test_a_call_in_which_another_thread_waits_is_not_where_a_rank_is_that_moves() -> None:
    """It has a group of its own, and has waited for an hour."""
    (host,) = stands(moving=True, ago=0.0).hosts
    processes = tuple(with_old_call(each, host.wall_us, pending=True) for each in host.processes)
    job = job_of(Snapshot(hangdoc="test", hosts=(replace(host, processes=processes),)))
    assert {view.operation.op for view in job.ranks if view.operation is not None} == {"all_reduce"}


def test_a_rank_that_was_seen_at_other_work_is_not_in_its_last_call() -> None:
    (host,) = stands(moving=True, ago=0.0).hosts
    asks = Loader(
        name="loader", function="main", file="/home/me/train.py", line=10, kind="dataloader", done=9, asked=True
    )
    loops = Loops(seconds_ago=0.0, loaders=(asks,))
    processes = tuple(replace(each, loops=loops) for each in host.processes)
    job = job_of(Snapshot(hangdoc="test", hosts=(replace(host, processes=processes),)))
    assert {(view.label, view.state) for view in job.ranks} == {("computing", "loading-data")}


@pytest.mark.parametrize("evidence", [passes(late=0.0), passes(late=0.05, at="broadcast")])
def test_a_rank_that_waits_little_or_whose_record_is_of_another_moment_computes(evidence: Snapshot) -> None:
    job = job_of(evidence)
    assert job.verdict == "healthy"
    assert {(view.label, view.operation) for view in job.ranks} == {("computing", None)}


def test_without_a_record_nothing_is_said_of_the_past() -> None:
    evidence = snapshot(*(rank(number, *c10d("all_reduce"), train(14), world=2) for number in range(2)))
    diagnosis, runs = examine(evidence, patience=3.0)
    assert diagnosis.jobs[0].past is None
    assert timelines(diagnosis, runs) == {}


def test_one_look_has_a_timeline() -> None:
    """Its cells end where the window began, and the look itself is the last one."""
    diagnosis, (run,) = examine(stands(), patience=3.0)
    cells = past_cells(run)
    assert cells is not None
    assert len(cells.seconds) == MOST_CELLS
    assert cells.seconds[-1] == -diagnosis.window_seconds
    (line,) = timelines(diagnosis, (run,)).values()
    assert (line.recorded, len(line.seconds)) == (MOST_CELLS, MOST_CELLS + 1)
    rows = {row.ranks[0]: row for row in line.rows}
    assert rows[2].progress[1] == pytest.approx(1.0)
    assert 0 < rows[0].progress[1] < 0.5
    assert [rows[number].cells[-2] for number in (0, 3)] == ["waiting", "unseen"]
