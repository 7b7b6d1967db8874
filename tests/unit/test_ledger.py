"""The ledger: which calls each rank has made, what they show together, and who comes late."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hangdoc.diagnosis import Operation, Where
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.evidence.records import last_call
from hangdoc.reasoning.ledger.compare import (
    Agree,
    Behind,
    Differs,
    SizesDiffer,
    Unfinished,
    blamed,
    compare,
    next_timeout,
    wait_seconds,
)
from hangdoc.reasoning.ledger.from_records import Part, part_of_stack, put_together, recorded_parts
from hangdoc.reasoning.ledger.lags import pace
from hangdoc.reasoning.model.ledger import Call, GroupCalls, Ledger, Pending, RankCalls, Site
from hangdoc.reasoning.model.rank import Rank, Wait
from hangdoc.snapshot import CallForm, Group, Interpreter
from tests.unit.builders import c10d, frame, rank, snapshot
from tests.unit.recordings import T0_US, frames, history_of, recorder

REDUCE = CallForm(op="all_reduce", inputs=("float32[8, 8]",), frames=frames(("train.py", 14, "step")))
BARRIER = CallForm(op="barrier", frames=frames(("train.py", 16, "step")))
WIDE = CallForm(op="all_reduce", inputs=("float32[9, 8]",), frames=frames(("train.py", 14, "step")))


def ledger(*columns: list[tuple[int, CallForm, bool]], stacks: tuple[Part, ...] = (), **more: object) -> Ledger:
    """A ledger of ranks that made these (number, form, pending), one a second; the record was read 100 s after the first."""
    parts: list[Part] = []
    for number, column in enumerate(columns):
        forms: dict[CallForm, int] = {}
        entries = [(n, form, T0_US + n * 1_000_000, pending) for n, form, pending in column]
        group = history_of(entries, wall_us=T0_US + 100_000_000, forms=forms, **more)  # type: ignore[arg-type]
        process = rank(number, recorder=recorder(group, forms=forms))
        parts += recorded_parts(number, "h0", T0_US + 100_000_000, process)
    return put_together([*parts, *stacks])


def in_stack(number: int, op: str, *members: int) -> Part:
    wait = Wait("collective", Operation(op=op), members or None)
    where = Where(file="train.py", line=30, function="main")
    return part_of_stack(Rank("blocked", "in-collective", "", rank=number, host="h0", process=None, where=where), wait)


def made(count: int, form: CallForm = REDUCE) -> list[tuple[int, CallForm, bool]]:
    return [(n, form, False) for n in range(1, count + 1)]


def only(value: Ledger) -> GroupCalls:
    (group,) = value.groups
    return group


def test_a_rank_that_has_not_made_the_call_is_behind() -> None:
    waiting = [*made(26), (27, REDUCE, True)]
    group = only(ledger(waiting, made(26), waiting))
    comparison = compare(group)
    assert isinstance(comparison, Behind)
    assert (comparison.number, comparison.ranks, comparison.waiting[0].ranks) == (27, (1,), (0, 2))
    assert blamed(comparison) == (1,)


def test_calls_of_one_number_that_differ() -> None:
    """Asynchronous calls: ranks 0-2 have issued one more, and what they wait for is the older one."""
    reducing = [*made(256), (257, REDUCE, True), (258, REDUCE, True)]
    comparison = compare(only(ledger(reducing, reducing, reducing, [*made(256), (257, BARRIER, True)])))
    assert isinstance(comparison, Differs)
    assert comparison.number == 257
    sides = [(side.ranks, side.call.op if side.call else None) for side in comparison.sides]
    assert sides == [((0, 1, 2), "all_reduce"), ((3,), "barrier")]
    assert blamed(comparison) == (3,)


def test_two_against_two_single_out_nobody() -> None:
    one, other = [*made(3), (4, REDUCE, True)], [*made(3), (4, BARRIER, True)]
    assert blamed(compare(only(ledger(one, other, one, other)))) == ()


def test_amounts_of_data_that_differ() -> None:
    group = only(ledger([*made(3), (4, REDUCE, True)], [*made(3), (4, WIDE, True)]))
    assert isinstance(compare(group), SizesDiffer)


def test_shapes_may_differ_and_lines_too() -> None:
    elsewhere = CallForm(op="all_reduce", inputs=("float32[64]",), frames=frames(("train.py", 99, "other")))
    comparison = compare(only(ledger([*made(3), (4, REDUCE, True)], [*made(3), (4, elsewhere, True)])))
    assert isinstance(comparison, Unfinished)
    assert comparison.waiting == (0, 1)


def test_sizes_of_a_gather_may_differ() -> None:
    parts = [CallForm(op="gather", inputs=(f"float32[{n}]",)) for n in (4, 8)]
    assert isinstance(compare(only(ledger([(1, parts[0], True)], [(1, parts[1], True)]))), Unfinished)


def test_who_has_come_out_of_a_broadcast_is_not_behind() -> None:
    cast = CallForm(op="broadcast", inputs=("float32[4]",))
    root = [*made(3), (4, cast, False), (5, REDUCE, True)]
    comparison = compare(only(ledger(root, [*made(3), (4, cast, True)])))
    assert isinstance(comparison, Unfinished)
    assert (comparison.number, comparison.waiting) == (4, (1,))


def test_no_rank_waits() -> None:
    assert compare(only(ledger(made(7), made(8)))) == Agree()


def test_numbers_that_torch_does_not_record_are_no_difference() -> None:
    """monitored_barrier takes two numbers and leaves no entry."""
    column = [(n, REDUCE, False) for n in (1, 2, 5, 6)]
    assert isinstance(compare(only(ledger([*column, (7, REDUCE, True)], [*column, (7, REDUCE, True)]))), Unfinished)


def test_a_call_has_the_name_that_its_stack_has() -> None:
    """Gloo records FSDP's reduce_scatter_single as all_reduce."""
    way = (*c10d("reduce_scatter_single"), frame("main", 25))
    forms: dict[CallForm, int] = {}
    calls = [(3, CallForm(op="all_reduce", inputs=("float32[8]",), frames=way), T0_US - 60_000_000, True)]
    record = recorder(history_of(calls, wall_us=T0_US, forms=forms), forms=forms)
    (job,) = diagnose(snapshot(rank(0, *way, recorder=record), rank(1, frame("load", 3), state="T"))).jobs
    operation = job.ranks[0].operation
    assert operation is not None and (operation.op, operation.seq) == ("reduce_scatter_single", 3)
    texts = " ".join(line.text for line in job.findings[0].evidence)
    assert "a reduce_scatter_single of float32[8] (train.py:25)" in texts and "all_reduce" not in texts
    (calls,) = job.ranks[0].calls
    assert calls.last is not None and calls.last.op == "reduce_scatter_single"
    last = last_call(rank(0, *way, recorder=record), T0_US)
    assert last is not None and (last.name, last.op) == ("reduce_scatter_single", "all_reduce")


def test_a_call_that_is_not_recorded_comes_from_the_stack() -> None:
    stack = in_stack(1, "monitored_barrier")
    comparison = compare(only(ledger([*made(3), (4, REDUCE, True)], made(3), stacks=(stack,))))
    assert isinstance(comparison, Differs)
    assert [(side.ranks, side.inferred) for side in comparison.sides] == [((0,), False), ((1,), True)]


def test_stacks_alone_have_no_numbers() -> None:
    stacks = tuple(in_stack(number, "all_reduce", 0, 1) for number in range(2))
    group = only(ledger(stacks=stacks))
    assert [calls.source for calls in group.ranks.values()] == ["inferred", "inferred"]
    assert compare(group) == Agree()


def test_groups_of_one_name_and_other_members_are_apart() -> None:
    parts: list[Part] = []
    for number, members in enumerate(((0, 1), (0, 1), (2, 3), (2, 3))):
        forms: dict[CallForm, int] = {}
        group = history_of([(1, REDUCE, T0_US, False)], name="rows", wall_us=T0_US, forms=forms)
        listed = Interpreter(
            environment={}, globals=(), groups=(Group(address=1, name="rows", ranks=members, backend="cpu:gloo"),)
        )
        process = rank(number, recorder=recorder(group, forms=forms), interpreter=listed)
        parts += recorded_parts(number, "h0", T0_US, process)
    groups = put_together(parts).groups
    assert [(group.name, group.members, sorted(group.ranks)) for group in groups] == [
        ("rows", (0, 1), [0, 1]),
        ("rows", (2, 3), [2, 3]),
    ]
    assert groups[0].backend == "cpu:gloo"


def test_a_rank_whose_groups_were_not_read_joins_the_group_of_its_name() -> None:
    forms: dict[CallForm, int] = {}
    group = history_of([(1, REDUCE, T0_US, False)], name="0", wall_us=T0_US, forms=forms)
    listed = Interpreter(environment={}, globals=(), groups=(Group(address=1, name="0", ranks=(0, 1), default=True),))
    processes = [rank(0, recorder=recorder(group, forms=forms), interpreter=listed)]
    processes.append(rank(1, recorder=recorder(group, forms=forms)))
    parts = [part for n, p in enumerate(processes) for part in recorded_parts(n, "h0", T0_US, p)]
    assert [(group.name, sorted(group.ranks)) for group in put_together(parts).groups] == [(None, [0, 1])]


def test_when_torch_ends_the_run() -> None:
    """The oldest call that is not complete was made 73 s before the record was read, with a timeout of 30 minutes."""
    group = only(ledger([*made(26), (27, REDUCE, True)], made(26)))
    assert wait_seconds(group.ranks.values()) == 73.0
    assert next_timeout(call for calls in group.ranks.values() for call in calls.pending) == (1800.0 - 73.0, 1800.0)
    finished = only(ledger(made(3), made(3))).ranks.values()
    assert next_timeout(call for calls in finished for call in calls.pending) is None


def test_a_wait_is_as_old_as_the_last_rank_that_came() -> None:
    """Rank 0 waits in two calls, the older one made 74 s ago, and rank 1 has waited for 60 s."""
    waiting = [*made(25), (26, REDUCE, True), (27, REDUCE, True)]
    group = only(ledger(waiting, [*made(39), (40, REDUCE, True)]))
    assert wait_seconds(group.ranks.values()) == 60.0


def test_of_a_damaged_history_only_the_numbers_are_kept() -> None:
    forms: dict[CallForm, int] = {}
    group = history_of([(1, REDUCE, T0_US, False)], wall_us=T0_US, forms=forms)
    assert group.history is not None
    for damaged, forms_of_it in (
        (group, {}),
        (replace(group, history=replace(group.history, made_us=())), forms),
        (replace(group, history=replace(group.history, numbers=(), forms=(), made_us=())), forms),
    ):
        process = rank(0, recorder=recorder(damaged, forms=forms_of_it))
        (part,) = recorded_parts(0, "h0", T0_US, process)
        assert (part.calls.made, part.calls.numbers) == (1, ())


# --- any order of calls ----------------------------------------------------------------------------------------------

FORMS = (REDUCE, BARRIER, CallForm(op="broadcast", inputs=("float32[4]",)))


@settings(max_examples=200, deadline=None)
@given(
    program=st.lists(st.sampled_from(FORMS), min_size=2, max_size=60),
    progress=st.lists(st.integers(0, 60), min_size=2, max_size=5),
    unrecorded=st.sets(st.integers(1, 60)),
)
def test_ranks_of_one_program_never_differ(program: list[CallForm], progress: list[int], unrecorded: set[int]) -> None:
    """Each rank has made some of the same calls and waits in its last one, if a rank has not made that: those with fewest are
    behind, and nothing differs."""
    fewest = max(1, min(min(progress), len(program) - 1))
    columns = []
    for count in progress:
        reached = min(max(fewest, count), fewest + 1)  # a call completes when all ranks have made it
        column = [(n, form, False) for n, form in enumerate(program[:reached], 1)]
        if reached > fewest:
            column[-1] = (*column[-1][:2], True)
        columns.append([entry for entry in column if entry[0] not in unrecorded or entry[2]] or column[-1:])
    comparison = compare(only(ledger(*columns)))
    behind = {n for n, count in enumerate(progress) if max(fewest, count) == fewest}
    if len(behind) == len(progress):
        assert isinstance(comparison, Agree)
    elif behind:
        assert isinstance(comparison, Behind)
        assert set(comparison.ranks) == behind
    else:
        assert isinstance(comparison, Unfinished)


# --- lags ------------------------------------------------------------------------------------------------------------

BUCKET, LOSS, SYNC = "bucket", "loss", "barrier"
LINES = {BUCKET: 22, LOSS: 25, SYNC: 30}


def timed(times: dict[int, list[tuple[str, int]]], hosts: dict[int, str] | None = None) -> GroupCalls:
    """Ranks with these (site, microseconds)."""
    ranks = {}
    for number, column in times.items():
        calls = tuple(
            Call("barrier" if site == SYNC else "all_reduce", (), (Site("train.py", LINES[site], "t"),))
            for site, _ in column
        )
        ranks[number] = RankCalls(
            number, (hosts or {}).get(number, "h0"), made=len(column), numbers=tuple(range(1, len(column) + 1)),
            calls=calls, made_us=tuple(at for _, at in column),
        )  # fmt: skip
    return GroupCalls(None, tuple(ranks), ranks)


def steps(
    late_ms: dict[int, int], *, ahead_ms: dict[int, int] | None = None, count: int = 40, loss_ms: int = 60
) -> dict[int, list[tuple[str, int]]]:
    """Steps of 67 ms with a bucket and then the loss, for which all ranks leave the bucket together."""
    return {
        rank: [
            (site, step * 67_000 + at + (ahead_ms or {}).get(rank, 0) * 1000)
            for step in range(count)
            for site, at in ((BUCKET, late * 1000 + 37 * (step % 5)), (LOSS, loss_ms * 1000 + 100 * rank))
        ]
        for rank, late in late_ms.items()
    }


def test_a_late_rank_is_found_in_the_calls_that_tell() -> None:
    found = pace(timed(steps({0: 0, 1: 1, 2: 52, 3: 0})))
    assert found is not None
    assert found.slowest is not None
    assert (found.slowest.rank, round(found.slowest.median_seconds * 1000)) == (2, 52)
    assert found.telling_calls == 40
    assert found.clocks is None
    waited = [lag.waited_share for lag in found.lags]
    assert waited[2] < 0.02 < 0.7 < waited[0]


def test_a_rank_that_only_answers_for_join_is_left_out() -> None:
    """It has no more data, and is never late."""
    group = timed(steps({0: 0, 1: 1, 2: 52, 3: 0}))
    for rank_, calls in list(group.ranks.items()):
        if rank_ != 2:
            answers = tuple(one._replace(by_join=True) for one in calls.calls)
            group.ranks[rank_] = calls._replace(calls=answers)
    assert pace(group) is None


def test_clocks_of_hosts_are_taken_from_calls_right_after_one_that_all_waited_for() -> None:
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    found = pace(timed(steps({0: 0, 1: 1, 2: 52, 3: 0}, ahead_ms={2: 700, 3: 700}, loss_ms=53), hosts))
    assert found is not None
    assert found.slowest is not None
    assert (found.slowest.rank, round(found.slowest.median_seconds * 1000)) == (2, 52)
    assert found.clocks is not None
    assert "differ by up to 700" in found.clocks


def test_a_slow_host_is_no_clock_that_is_ahead() -> None:
    """Both ranks of host b are late in each step. The loss, right after the buckets, shows that it is not their clock."""
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    found = pace(timed(steps({0: 0, 1: 3, 2: 52, 3: 52}, ahead_ms={2: 9, 3: 9}, loss_ms=53), hosts))
    assert found is not None
    assert found.clocks is not None
    assert "differ by up to 9." in found.clocks
    assert round(max(lag.median_seconds for lag in found.lags if lag.rank in {2, 3}) * 1000) in range(24, 53)
    assert {lag.rank for lag in found.lags if lag.median_seconds > 0.02} == {2, 3}


@pytest.mark.parametrize(
    ("late", "loss_ms"),
    [({0: 0, 1: 0, 2: 52, 3: 52}, 60), ({0: 0, 1: 3, 2: 52, 3: 52}, 60), ({0: 0, 1: 0, 2: 52, 3: 52}, 53)],
    ids=["each call after work", "the host's ranks apart", "nothing shows that a rank waited"],
)
def test_clocks_that_nothing_shows_are_unknown(late: dict[int, int], loss_ms: int) -> None:
    found = pace(timed(steps(late, loss_ms=loss_ms), {0: "a", 1: "a", 2: "b", 3: "b"}))
    assert found is not None
    assert found.clocks is not None
    assert "unknown" in found.clocks
    assert len(found.lags) == 2


def test_calls_that_overlap_show_no_clock() -> None:
    """DDP's buckets: a rank does not wait in the first one, so it is as late in the second one."""
    times = {
        rank: [
            (site, step * 67_000 + late * 1000 + at) for step in range(40) for site, at in ((BUCKET, 0), (LOSS, 500))
        ]
        for rank, late in {0: 0, 1: 3, 2: 52, 3: 52}.items()
    }
    found = pace(timed(times, {0: "a", 1: "a", 2: "b", 3: "b"}))
    assert found is not None
    assert [lag.rank for lag in found.lags] == [0, 1]


def test_a_barrier_shows_the_clocks_of_hosts_with_one_rank_each() -> None:
    late = {0: 0, 1: 30}
    assert pace(timed(steps(late, ahead_ms={1: 700}), {0: "a", 1: "b"})) is None
    times = {
        number: [
            (site, step * 67_000 + number * 700_000 + at)
            for step in range(40)
            for site, at in ((BUCKET, 1000 * late[number]), (SYNC, 60_000), (LOSS, 60_500))
        ]
        for number in late
    }
    found = pace(timed(times, {0: "a", 1: "b"}))
    assert found is not None
    assert found.slowest is not None
    assert (found.slowest.rank, round(found.slowest.median_seconds * 1000)) == (1, 30)
    assert found.clocks is not None
    assert "differ by up to 700" in found.clocks


@pytest.mark.parametrize("first_ms", [30_000, 100_000])
def test_a_long_wait_for_a_rank_at_its_first_call_is_no_time_of_that_rank(first_ms: int) -> None:
    """Rank 0 comes late to the first call. From then on, it waits for rank 1 for 0.4 s in each second."""
    later = [(LOSS, (first_ms + 1000 * step) * 1000) for step in range(1, 61)]
    times = {
        0: [(LOSS, first_ms * 1000), *((site, at - 400_000) for site, at in later)],
        1: [(LOSS, 0), *later],
    }
    measured = pace(timed(times))
    assert measured is not None
    assert [round(lag.waited_share, 1) for lag in measured.lags] == [0.4, 0.0]


def test_ranks_of_a_host_whose_clock_is_unknown_are_left_out() -> None:
    times = steps({0: 0, 1: 9, 2: 0})
    for step in range(40):  # no call at which ranks 0 and 1 come together
        times[1][2 * step + 1] = (LOSS, times[1][2 * step + 1][1] + 9_000)
    found = pace(timed(times, {0: "a", 1: "a", 2: "b"}))
    assert found is not None
    assert [lag.rank for lag in found.lags] == [0, 1]
    assert found.clocks is not None
    assert "unknown" in found.clocks


def test_only_the_first_call_of_a_loop_shows_who_is_late() -> None:
    """Four gradients of one line in each step."""
    times = {
        rank: [(BUCKET, step * 67_000 + late * 1000 + 300 * at) for step in range(40) for at in range(4)]
        for rank, late in {0: 0, 1: 1, 2: 52, 3: 0}.items()
    }
    for step in range(40):
        for number, column in times.items():
            column[4 * step + 1 : 4 * step + 4] = [
                (BUCKET, step * 67_000 + 53_000 + 300 * at + number) for at in range(3)
            ]
    with_losses = {
        rank: [
            call
            for step in range(40)
            for call in (*column[4 * step : 4 * step + 4], (LOSS, step * 67_000 + 60_000 + rank))
        ]
        for rank, column in times.items()
    }
    for columns in (times, with_losses):  # without another call, nothing shows where a step begins
        measured = pace(timed(columns))
        assert measured is not None
        assert measured.slowest is not None
        assert (measured.slowest.rank, round(measured.slowest.median_seconds * 1000)) == (2, 52)
        assert (measured.telling_calls, measured.slowest.last_share) == (40, 1.0)


@pytest.mark.parametrize(("seconds", "number", "late"), [((6.2,), 1, 0.0), ((6.2, 8.8), 2, 6.2)])
def test_the_lateness_of_a_rank_is_that_in_one_call(seconds: tuple[float, ...], number: int, late: float) -> None:
    """A rank was stopped once, and said to have been 3.1 s late in two calls: the middle of 6.2 s and of a time of the noise."""
    columns: dict[int, list[tuple[str, int]]] = {0: [], 1: []}
    at = 0
    for step in range(19):
        at += 160_000
        stopped = round(seconds[step // 9] * 1e6) if step in (5, 14)[: len(seconds)] else 0
        columns[0].append((BUCKET, at))
        at += stopped
        columns[1].append((BUCKET, at + step))
    measured = pace(timed(columns))
    assert measured is not None and measured.long_waits.number == number and measured.lags[0].waited_share < 0.01
    assert round(measured.lags[1].median_seconds, 2) == late


def test_few_calls_have_no_pace() -> None:
    assert pace(timed(steps({0: 0, 1: 52}, count=4))) is None


def test_pending_call_without_history() -> None:
    calls = RankCalls(0, "h0", made=3, pending=(Pending(3, Call("barrier")),))
    assert pace(GroupCalls(None, (0,), {0: calls})) is None


def test_who_has_made_a_call_as_often_was_not_kept_from_it() -> None:
    """A rank that skipped its first call is a number ahead, and not out of the loop early."""
    first = CallForm(op="all_reduce", inputs=("float32[8, 8]",), frames=frames(("train.py", 7, "scale")))
    complete = [(1, first, False), *((n, REDUCE, n == 201) for n in range(2, 202))]
    ahead = [*((n, REDUCE, False) for n in range(1, 201)), (201, BARRIER, True)]
    shifted = ledger(ahead, complete)
    assert shifted.has_made_as_often(0, 1)
    assert not shifted.has_made_as_often(1, 0), "it has never made the barrier"
    early = ledger([*made(150), (151, BARRIER, True)], [*made(150), (151, REDUCE, True)])
    assert not early.has_made_as_often(0, 1)
    overwritten = ledger(ahead, complete, kept=50)
    assert not overwritten.has_made_as_often(0, 1), "what is older than the record is unknown"


def groups(*named: tuple[str, tuple[int, ...], bool]) -> Interpreter:
    """The table of groups in a rank's memory: (name, members, whether it is the default group)."""
    listed = [
        Group(address=at, name=name, ranks=members, default=default, backend="cpu:gloo")
        for at, (name, members, default) in enumerate(named, 1)
    ]
    return Interpreter(environment={}, globals=(), groups=tuple(listed))


def test_a_group_that_a_whole_record_does_not_have_saw_no_call() -> None:
    """Rank 0 waits in a small group, and ranks 1-2 in the default one, in which it has made no call yet."""
    table = groups(("0", (0, 1, 2), True), ("1", (0, 1), False))

    def made_by(number: int, name: str, kept: int | None = None) -> list[Part]:
        forms: dict[CallForm, int] = {}
        entries = [(n, REDUCE, T0_US + n, n == 20) for n in range(1, 21)]
        group = history_of(entries, name=name, wall_us=T0_US, forms=forms, kept=kept)
        record = replace(recorder(group, forms=forms), whole=kept is None)
        process = rank(number, recorder=record, interpreter=table)
        return list(recorded_parts(number, "h0", T0_US, process))

    default = put_together([*made_by(0, "1"), *made_by(1, "0"), *made_by(2, "0")]).groups[0]
    comparison = compare(default)
    assert isinstance(comparison, Behind)
    assert (comparison.number, comparison.ranks) == (20, (0,))
    assert default.ranks[0].made == 0
    overwritten = put_together([*made_by(0, "1", kept=5), *made_by(1, "0"), *made_by(2, "0")]).groups[0]
    assert 0 not in overwritten.ranks, "its call in the default group may have been overwritten"


def test_a_rank_that_has_not_called_the_group_since_it_was_made_again_is_unknown() -> None:
    """After destroy_process_group, numbers begin again: those of the earlier group say nothing of the present one."""

    def made_by(number: int, generation: int, count: int, pending: bool) -> list[Part]:
        forms: dict[CallForm, int] = {}
        entries = [(n, REDUCE, T0_US + n, pending and n == count) for n in range(1, count + 1)]
        group = replace(history_of(entries, wall_us=T0_US, forms=forms), generation=generation)
        return list(recorded_parts(number, "h0", T0_US, rank(number, recorder=recorder(group, forms=forms))))

    value = put_together([*made_by(0, 2, 3, True), *made_by(1, 2, 3, True), *made_by(2, 1, 500, False)])
    assert sorted(only(value).ranks) == [0, 1]
    assert isinstance(compare(only(value)), Unfinished)


def test_a_thread_that_waits_for_hours_makes_no_wait_older() -> None:
    def waiting(rank: int, age: float, timeout: float) -> RankCalls:
        return RankCalls(rank, "h0", pending=(Pending(3, Call("all_reduce"), age, timeout),))

    calls = [waiting(0, 2.0, 1800), waiting(0, 7200.0, 1800), waiting(1, 2.5, 1800), waiting(1, 7200.0, 1800)]
    assert wait_seconds(calls) == 2.0
    limit = next_timeout(call for each in calls for call in each.pending)
    assert limit is not None
    assert limit.seconds == 1797.5, "torch has not ended the run for the old one"
