"""Calls of several groups by ranks with roles of their own: who left one out, and which condition explains it."""

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from hangdoc.diagnosis import Finding
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import CallForm, Frame, Group, Interpreter, Loop, Process
from tests.unit.builders import c10d, frame, local, rank, snapshot
from tests.unit.recordings import T0_US, frames, history_of, recorder


class Made(NamedTuple):
    """A call: its group, its operation, its lines (innermost first), each in a function, and the elements of its tensor."""

    group: str
    op: str
    lines: tuple[tuple[str, int], ...]
    elements: int = 4


def waits(
    number: int, groups: Mapping[str, Sequence[int]], calls: Sequence[Made], stack: Sequence[Frame] = ()
) -> Process:
    """A rank in the last one of its calls, one a second. The group "all" is the default one."""
    mine = {name: Group(address=100 + at, name=name, ranks=tuple(members), default=name == "all", backend="gloo")
            for at, (name, members) in enumerate(groups.items()) if number in members}  # fmt: skip
    forms: dict[CallForm, int] = {}
    records = []
    for name, group in mine.items():
        made = [(second, call) for second, call in enumerate(calls) if call.group == name]
        entries = [(n, _form(call), T0_US + second * 1_000_000, second == len(calls) - 1)
                   for n, (second, call) in enumerate(made, 1)]  # fmt: skip
        if entries:
            wall_us = T0_US + (len(calls) + 60) * 1_000_000
            records.append(history_of(entries, name=name, wall_us=wall_us, forms=forms, ranks=group.ranks))
    last = calls[-1]
    passed = () if last.group == "all" else (local("group", "<ProcessGroup>", address=mine[last.group].address),)
    inside = Interpreter(environment={}, globals=(), groups=tuple(mine.values()))
    frames_of_call = stack or [frame(function, line) for function, line in last.lines]
    return rank(number, *c10d(last.op, *passed), *frames_of_call, world=len(groups["all"]), interpreter=inside,
                recorder=recorder(*records, forms=forms))  # fmt: skip


def _form(call: Made) -> CallForm:
    tensor = (f"float32[{call.elements}]",)
    return CallForm(op=call.op, frames=frames(*(("train.py", line, function) for function, line in call.lines)),
                    inputs=tensor, outputs=tensor)  # fmt: skip


def only_finding(*processes: Process) -> Finding:
    (finding,) = diagnose(snapshot(*processes, wall_us=T0_US + 1_000_000_000)).jobs[0].findings
    return finding


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("world", [2, 4])
def test_where_only_amounts_tell_calls_apart_they_count(seed: int, world: int) -> None:
    """A forward has 8 elements, but after one of 128 the ranks hand over. Rank 1 left that out."""
    groups = {"all": range(world), "model": range(world), "hand": range(world)}
    plan = random.Random(seed)  # noqa: S311
    decode, prefill = (Made("model", "all_reduce", (("forward", 20),), size) for size in (8, 128))
    hand_over = Made("hand", "broadcast", (("serve", 30),))
    calls: list[Made] = []
    for _ in range(12):
        calls += [*[decode] * plan.randint(20, 60), prefill, hand_over]
    calls += [*[decode] * plan.randint(20, 60), prefill]
    finding = only_finding(*(waits(n, groups, [*calls, decode if n == 1 else hand_over]) for n in range(world)))
    assert finding.culprits == (1,)


_STEPS = Loop(line=39, end_line=45, header="for it in range(99)", counters=("it",), every=1, start=0, bound="99")


@pytest.mark.parametrize("line", [10, 14])
def test_a_rank_that_is_no_member_left_nothing_out(line: int) -> None:
    """Rank 0 hands out work at line 10, and at line 14 for the first time. Worker 3 left out the last reduction."""
    groups = {"all": range(6), "workers": range(1, 6)}
    gets, reduces = Made("all", "all_gather", (("work", 40),)), Made("workers", "all_reduce", (("work", 41),), 64)
    gives, other = Made("all", "all_gather", (("feed", 10),)), Made("all", "all_gather", (("feed", line),))

    def at(place: int, step: int) -> list[Frame]:
        return [frame("work", place, loops=(_STEPS,), locals=(local("it", step),)), frame("main", 92)]

    working = [gets, reduces] * 20
    finding = only_finding(
        waits(0, groups, [*[gives] * 20, other]),
        *(waits(n, groups, working, at(41, 19)) for n in (1, 2, 4, 5)),
        waits(3, groups, [*working[:-1], gets], at(40, 20)),
    )
    assert (finding.code, finding.culprits) == ("HD203", (3,))
    assert "inside" not in finding.summary


@pytest.mark.parametrize("last", [5, 8])
def test_who_waits_in_a_pair_for_the_rank_that_left_its_call_out_is_not_odd(last: int) -> None:
    """Three pairs, each of which reduces three times before all do. Rank 5 left out its last calls; the last batch is smaller."""
    groups = {"all": range(6), "pair0": (0, 1), "pair1": (2, 3), "pair2": (4, 5)}
    alls = Made("all", "all_reduce", (("step", 30),), 64)

    def steps(pair: int, elements: int) -> list[Made]:
        inner = Made(f"pair{pair}", "all_reduce", (("step", 20),), 8)
        return [*[inner, inner, inner, alls] * 20, *[inner._replace(elements=elements)] * 3, alls]

    whole = [steps(pair, last if pair == 2 else 8) for pair in range(3)]
    finding = only_finding(
        *(waits(n, groups, whole[n // 2]) for n in range(4)),
        waits(4, groups, whole[2][:-3]),
        waits(5, groups, [*whole[2][:-4], alls]),
    )
    assert finding.culprits == (5,)


@pytest.mark.parametrize("elements", [1, 4])
def test_a_helper_that_every_rank_has_called_elsewhere_does_not_hide_a_condition(elements: int) -> None:
    groups = {"all": range(3)}
    usual = [Made("all", "all_reduce", (("reduce_mean", 5), ("main", 17))), Made("all", "barrier", (("main", 18),))] * 8
    logs = Made("all", "all_reduce", (("reduce_mean", 5), ("main", 30)), elements)
    decided = [frame("reduce_mean", 5), frame("main", 30, conditions=("rank == 0",), locals=(local("rank", 0),))]
    waiting = [Made("all", "barrier", (("main", 31),))]
    finding = only_finding(
        waits(0, groups, [*usual, logs], decided),
        *(waits(n, groups, [*usual, *waiting], [frame("main", 31, locals=(local("rank", n),))]) for n in (1, 2)),
    )
    assert (finding.code, finding.culprits) == ("HD203", (0,))
    assert "not only under `rank == 0`" in (finding.remedy or "")


def test_a_condition_is_compared_with_that_of_a_rank_whose_lines_were_read() -> None:
    groups = {"all": range(4)}
    usual = [Made("all", "all_reduce", (("main", 20),)), Made("all", "all_gather", (("main", 21),))] * 12

    def at(number: int, line: int, *conditions: str) -> list[Frame]:
        return [frame("main", line, source="x", conditions=conditions, locals=(local("found_inf", number == 0),))]

    barrier = [*usual, Made("all", "barrier", (("main", 32),))]
    finding = only_finding(
        waits(0, groups, [*usual, Made("all", "broadcast", (("main", 30),))], at(0, 30, "found_inf")),
        *(waits(n, groups, barrier, at(n, 32, "not found_inf")) for n in (1, 2)),
        waits(3, groups, barrier, [frame("main", 32)]),
    )
    assert (finding.code, finding.culprits) == ("HD201", (0,))
    assert "Give `found_inf` the same value on all ranks" in (finding.remedy or "")
