"""Where ranks first differed, on simulated programs of which the truth is known."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hangdoc.reasoning.ledger.compare import find_departed
from hangdoc.reasoning.ledger.history import FirstDifference, first_difference, may_be_shifted, period
from hangdoc.reasoning.model.ledger import Call, GroupCalls, Ledger, Pending, RankCalls, Site, signature

FEW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Line(NamedTuple):
    """A statement that makes one call on every rank, at a line that may depend on the rank."""

    op: str
    size: int
    lines: tuple[int, ...]
    """One for each role; a rank's role is its number modulo their number."""
    every: int = 1
    """It runs in each n-th step only."""
    times: int = 1
    """A loop around it."""


@dataclass
class Program:
    """Steps of calls, and a last call after them."""

    ranks: int
    body: tuple[Line, ...]
    steps: int
    start: tuple[Line, ...] = ()
    skips: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    """For a rank, the (step, position in the body) of which it skips one call."""

    def calls(self, rank: int) -> Iterator[Call]:
        """All calls of a rank, if nothing stopped it."""
        for line in self.start:
            yield _call(line, rank)
        for step in range(self.steps):
            for at, line in enumerate(self.body):
                if step % line.every == 0:
                    skipped = (step, at) in self.skips.get(rank, ())
                    for _ in range(line.times - skipped):
                        yield _call(line, rank)
        yield Call("broadcast", ("float32[3]",), (Site("train.py", 900, "main"),))


def _call(line: Line, rank: int) -> Call:
    at = line.lines[rank % len(line.lines)]
    return Call(line.op, (f"float32[{line.size}]",), (Site("train.py", at, "step"), Site("train.py", 500, "main")))


def hung(program: Program, *, ring: int = 2000, torn: frozenset[tuple[int, int]] = frozenset()) -> GroupCalls:
    """The record when the program stands still: at the first number whose calls can't meet, or after the last one. Entries in
    `torn` (rank, number) are missing."""
    all_calls = [list(program.calls(rank)) for rank in range(program.ranks)]
    last = min(map(len, all_calls))
    for number in range(last):
        if len({signature(calls[number])[:2] for calls in all_calls}) > 1:
            last = number + 1
            break
    return recorded([calls[:last] for calls in all_calls], ring=ring, torn=torn)


def recorded(
    columns: list[list[Call]], *, ring: int = 2000, torn: frozenset[tuple[int, int]] = frozenset()
) -> GroupCalls:
    ranks = {}
    for rank, calls in enumerate(columns):
        made = len(calls)
        kept = [n for n in range(max(1, made - ring + 1), made + 1) if (rank, n) not in torn or n == made]
        ranks[rank] = RankCalls(
            rank, "h0", made=made, pending=(Pending(made, calls[-1]),), last=calls[-1], numbers=tuple(kept),
            calls=tuple(calls[n - 1] for n in kept), made_us=tuple(n * 1000 for n in kept), whole=kept[0] == 1,
        )  # fmt: skip
    return GroupCalls(None, tuple(ranks), ranks)


# --- what a difference looks like ------------------------------------------------------------------------------------

DDP = (Line("all_reduce", 64, (12,), times=4), Line("all_reduce", 64, (15,)))


def test_a_skipped_call_is_found_where_it_becomes_visible() -> None:
    """The study's run: 4 gradients and one reduction of statistics a step; rank 1 skips one of the gradients."""
    program = Program(4, DDP, 121, skips={1: {(90, 0)}})
    found = first_difference(hung(program))
    assert found is not None
    assert (found.number, found.ranks, found.others, found.shift) == (454, (1,), (0, 2, 3), 1)
    assert (found.calls_ago, found.steps_ago) == (151, 30)
    sites = [call.site.line for call in (found.call, found.others_call) if call.site is not None]
    assert sites == [15, 12]


def test_of_two_skipped_calls_the_first_is_told() -> None:
    found = first_difference(hung(Program(4, DDP, 121, skips={1: {(40, 0), (90, 0)}})))
    assert found is not None
    assert (found.number, found.ranks, found.shift) == (204, (1,), 2)


def test_one_call_more_is_a_call_behind() -> None:
    """All but rank 2 skip the call, so rank 2 has made one more."""
    skips = {rank: {(50, 0)} for rank in (0, 1, 3)}
    found = first_difference(hung(Program(4, DDP, 121, skips=skips)))
    assert found is not None
    assert (found.ranks, found.shift) == ((2,), -1)


def test_one_call_more_at_a_line_of_its_own_is_where_it_was_made() -> None:
    """That call matches none of the others', with the shift or without it."""
    body = (*DDP, Line("all_reduce", 64, (18,)))
    skips = {rank: {(50, 1)} for rank in (0, 1, 3)}
    found = first_difference(hung(Program(4, body, 121, skips=skips)))
    assert found is not None
    assert (found.number, found.ranks, found.shift, found.first_shift) == (50 * 6 + 5, (2,), -1, -1)
    sites = [call.site.line for call in (found.call, found.others_call) if call.site is not None]
    assert sites == [15, 18]


def test_a_shift_of_two_calls_in_turns_is_a_doubt() -> None:
    """Older than the record, two calls that alternate look like two orders that are meant; lines of its own do not."""
    body = (Line("all_reduce", 64, (12,)), Line("all_reduce", 64, (15,)))
    shifted = hung(Program(3, body, 300, skips={1: {(5, 0)}}), ring=400)
    assert first_difference(shifted) is None
    assert may_be_shifted(shifted)
    assert not may_be_shifted(hung(Program(3, body, 300), ring=400))
    assert not may_be_shifted(hung(Program(3, (body[0], Line("all_reduce", 64, (15, 16))), 300), ring=400))
    assert not may_be_shifted(hung(Program(3, body, 100, skips={1: {(5, 0)}})))


def test_a_skipped_step_is_seen_by_what_is_not_in_every_step() -> None:
    body = (Line("all_reduce", 64, (12,)), Line("all_reduce", 64, (15,)), Line("all_reduce", 64, (18,), every=10))
    found = first_difference(hung(Program(4, body, 121, skips={3: {(41, 0), (41, 1)}})))
    assert found is not None
    assert (found.number, found.ranks, found.shift) == (2 * 50 + 5 + 1, (3,), 2)


def test_what_is_older_than_the_record_has_no_number() -> None:
    body = (*DDP, Line("all_reduce", 64, (18,), every=7))
    found = first_difference(hung(Program(4, body, 300, skips={1: {(10, 0)}}), ring=400))
    assert found is not None
    assert (found.number, found.ranks, found.shift) == (None, (1,), 1)


def test_a_line_that_only_some_ranks_use_is_no_difference() -> None:
    """`if rank == 0: log_on_zero() else: log()`, in each step and in every tenth."""
    for every in (1, 10):
        body = (Line("all_reduce", 64, (12,), times=4), Line("all_reduce", 64, (15, 16), every=every))
        assert first_difference(hung(Program(4, body, 100))) is None


def test_ranks_that_take_turns_are_no_difference() -> None:
    """Even ranks send where odd ones receive: the calls of one side are those of the other, one call later."""
    for ranks in (2, 3, 4):
        body = (Line("broadcast", 64, (12, 13)), Line("broadcast", 64, (13, 12)))
        start = tuple(Line("all_reduce", 64, (3 + n,)) for n in range(20))
        for ring in (2000, 100):
            assert first_difference(hung(Program(ranks, body, 100, start=start), ring=ring)) is None


def test_ranks_with_roles_are_no_difference_that_is_older_than_the_record() -> None:
    """Each rank begins a ring of lines at another one, or only the last rank does."""
    ring = (12, 13, 14)
    for ranks in (3, 4, 5):
        for roles in (3, ranks):
            lines_of = [
                tuple(ring[(at + (role if roles == 3 else role == ranks - 1)) % 3] for role in range(roles))
                for at in range(3)
            ]
            body = tuple(Line("broadcast", 64, lines, times=1) for lines in lines_of)
            start = tuple(Line("all_reduce", 64, (30 + n,)) for n in range(20))
            for kept in (2000, 100):
                assert first_difference(hung(Program(ranks, body, 100, start=start), ring=kept)) is None


def test_a_record_without_one_rank() -> None:
    group = hung(Program(2, DDP, 20, skips={1: {(5, 0)}}))
    assert first_difference(group._replace(ranks={0: group.ranks[0]})) is None


# --- any program -----------------------------------------------------------------------------------------------------

SIZES = st.sampled_from([64, 64, 64, 128])
OPS = st.sampled_from(["all_reduce", "all_reduce", "all_reduce", "barrier", "all_gather"])


@st.composite
def lines(draw: st.DrawFn, *, roles: bool) -> Line:
    lines_ = draw(st.lists(st.integers(10, 20), min_size=1, max_size=3 if roles else 1))
    return Line(
        draw(OPS), draw(SIZES), tuple(lines_), every=draw(st.sampled_from([1, 1, 1, 3, 10])),
        times=draw(st.sampled_from([1, 1, 2, 4])),
    )  # fmt: skip


@st.composite
def programs(draw: st.DrawFn, *, roles: bool) -> Program:
    return Program(
        draw(st.integers(2, 5)),
        tuple(draw(st.lists(lines(roles=roles), min_size=1, max_size=6))),
        draw(st.integers(3, 120)),
        tuple(draw(st.lists(lines(roles=roles), max_size=25))),
    )


def torn_slots(draw: st.DrawFn, ranks: int) -> frozenset[tuple[int, int]]:
    stretches = draw(
        st.lists(st.tuples(st.integers(0, ranks - 1), st.integers(1, 600), st.integers(1, 40)), max_size=4)
    )
    return frozenset((rank, n) for rank, start, length in stretches for n in range(start, start + length))


@FEW
@given(st.data())
def test_a_healthy_program_never_differs(data: st.DataObject) -> None:
    """Whatever its ranks call at different lines, whatever the record has lost, and wherever its ranks stand still."""
    program = data.draw(programs(roles=True))
    columns = [list(program.calls(rank)) for rank in range(program.ranks)]
    ends = [data.draw(st.integers(max(1, len(calls) - 3), len(calls))) for calls in columns]
    torn = data.draw(st.composite(torn_slots)(program.ranks))
    ring = data.draw(st.sampled_from([50, 300, 2000]))
    group = recorded([calls[:end] for calls, end in zip(columns, ends, strict=True)], ring=ring, torn=torn)
    assert first_difference(group) is None


def _truth(group: GroupCalls) -> int | None:
    """The first number at which the record of rank 1 has another call than that of rank 0."""
    mine, others = group.ranks[1].by_number(), group.ranks[0].by_number()
    return next((n for n in sorted(mine.keys() & others.keys()) if signature(mine[n]) != signature(others[n])), None)


@FEW
@given(st.data())
def test_a_skipped_call_is_told_as_it_was(data: st.DataObject) -> None:
    """If a difference is reported, it is that of the rank that skipped calls, at the first number where its calls differ."""
    program = data.draw(programs(roles=False))
    assume(program.ranks > 2)
    step, at = data.draw(st.integers(0, program.steps - 1)), data.draw(st.integers(0, len(program.body) - 1))
    assume(step % program.body[at].every == 0)
    program.skips = {1: {(step, at)}}
    ring = data.draw(st.sampled_from([50, 300, 2000]))
    group = hung(program, ring=ring)
    found = first_difference(group)
    if found is not None:
        assert found.ranks == (1,)
        assert found.shift == 1 or _is_ambiguous(program)
        assert found.number in (None, _truth(group))


def _is_ambiguous(program: Program) -> bool:
    """Whether the calls repeat within a step, so that several shifts fit."""
    return len({line.lines for line in program.body}) < len(program.body) or any(
        line.every > 1 for line in program.body
    )


@FEW
@given(st.integers(10, 60), st.integers(12, 60), st.integers(2, 6), st.integers(3, 6))
def test_a_call_skipped_in_the_middle_is_always_found(step: int, after: int, times: int, ranks: int) -> None:
    body = (Line("all_reduce", 64, (12,), times=times), Line("all_reduce", 64, (15,)))
    found = first_difference(hung(Program(ranks, body, step + after, skips={1: {(step, 0)}})))
    assert isinstance(found, FirstDifference)
    assert (found.ranks, found.shift) == ((1,), 1)
    assert found.number == step * (times + 1) + times


@pytest.mark.parametrize(
    ("calls", "length"),
    [([1, 2, 3] * 10, 3), ([1] * 9, 1), (list(range(30)), None), (([1, 1, 1, 1, 2] * 20), 5), ([], None)],
)
def test_period(calls: list[int], length: int | None) -> None:
    assert period(calls) == length


# --- each rank beside its own past -----------------------------------------------------------------------------------


def in_groups(order: dict[int, str]) -> Ledger:
    """Calls of ranks in the groups `a` and `b`, in this order; each rank waits in its last call, of whatever group."""
    columns: dict[str, dict[int, list[tuple[int, bool]]]] = {}
    for rank, names in order.items():
        for at, name in enumerate(names, 1):
            columns.setdefault(name, {}).setdefault(rank, []).append((at, at == len(names)))
    groups = []
    for name, ranks in columns.items():
        call = Call("all_reduce", ("float32[4]",), (Site("train.py", 10, "step"),))
        made = {
            rank: RankCalls(
                rank, "h0", made=len(calls), numbers=tuple(range(1, len(calls) + 1)), calls=(call,) * len(calls),
                made_us=tuple(at * 1000 for at, _ in calls), whole=True,
                pending=(Pending(len(calls), call),) if calls[-1][1] else (),
            )
            for rank, calls in ranks.items()
        }  # fmt: skip
        groups.append(GroupCalls(name, tuple(made), made))
    return Ledger(groups=tuple(groups))


@pytest.mark.parametrize(
    ("order", "departed"),
    [
        ({0: "aaaaa", 1: "ababababa", 2: "ababababb", 3: "bbbbb"}, (2,)),
        ({0: "aaaaa", 1: "ababababa", 2: "ababababc", 3: "bbbbb"}, (2,)),  # a group that it has not used before
        ({1: "ababababa", 2: "ababababb"}, ()),  # one beside one: either may be right
        ({0: "aaaaa", 1: "ababababa", 2: "b", 3: "bbbbb"}, ()),  # rank 2 has no past
        ({0: "aaaaa", 1: "ababababa", 2: "aabaabaabb", 3: "bbbbb"}, (2,)),
        ({0: "aaaaa", 1: "ababababa", 2: "aaabaaabaaab", 3: "bbbbb"}, ()),
        ({0: "aaaaa", 1: "ababababa", 2: "abacabab", 3: "bbbbb"}, ()),  # after `ab` came `ac` as well
    ],
)
def test_who_departs_from_the_order_of_its_own_calls(order: dict[int, str], departed: tuple[int, ...]) -> None:
    assert find_departed(in_groups(order), order) == departed
