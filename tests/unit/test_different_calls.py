"""Ranks in different calls of one number: what the source around them explains, and what it can't."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Finding
from hangdoc.reasoning.engine import diagnose, examine
from hangdoc.reasoning.ledger import compare
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.kinds import SameCall
from hangdoc.reasoning.model.ledger import Call, GroupCalls, Ledger, Pending, RankCalls, Site
from hangdoc.reasoning.model.rank import Class, LoopView
from hangdoc.reasoning.rules import hd203_conditional_collective
from hangdoc.snapshot import (
    CallForm,
    Counter,
    Exit,
    FlightRecorder,
    Frame,
    Group,
    Interpreter,
    Local,
    Loop,
    Process,
    Progress,
)
from tests.unit.builders import backward, c10d, frame, local, native_backward, rank, snapshot
from tests.unit.recordings import T0_US, frames, history_of, recorder

PACKAGE = "/site-packages/package/trainer.py"


def form(op: str, line: int) -> CallForm:
    return CallForm(op=op, frames=frames(("train.py", line, "main")))


def recorded(number: int, calls: list[CallForm], *stack: Frame, world: int = 2) -> Process:
    """A rank that waits at `stack` in the last one of its calls, one a second, for 60 s."""
    forms: dict[CallForm, int] = {}
    entries = [(n, each, T0_US + n * 1_000_000, n == len(calls)) for n, each in enumerate(calls, 1)]
    group = history_of(entries, wall_us=T0_US + (len(calls) + 60) * 1_000_000, forms=forms)
    return rank(number, *stack, world=world, recorder=recorder(group, forms=forms))


def only_finding(*processes: Process) -> Finding:
    (finding,) = diagnose(snapshot(*processes)).jobs[0].findings
    return finding


def test_the_users_own_condition_goes_before_that_of_the_framework_around_it() -> None:
    """The framework's trainer evaluates on both ranks, and the metric of rank 0 makes a call of its own."""
    asked = frame("_maybe_evaluate", 30, PACKAGE, conditions=("self.control.should_evaluate",))
    trains = (frame("train", 20, PACKAGE), frame("main", 17))
    theirs = rank(1, *backward(), *trains, native=native_backward())
    metric = frame("metric", 14, conditions=("int(os.environ['RANK']) == 0",))
    finding = only_finding(rank(0, *c10d("barrier"), metric, asked, *trains), theirs)
    assert (finding.code, finding.culprits) == ("HD203", (0,))
    assert finding.summary.startswith("only rank 0 called barrier (inside `if int(os.environ['RANK']) == 0`)")


@pytest.mark.parametrize("inside", [False, True])
def test_a_condition_of_a_framework_counts_only_where_the_stacks_part(inside: bool) -> None:
    """Rank 0 evaluates, and so it comes to a metric, which tests what is the same on all ranks. In a loop, all ranks test what
    decides on that."""
    test = ("self.flag",)
    evaluate = frame("on_advance_end", 406, PACKAGE, conditions=() if inside else test)
    metric = frame("Metric.compute", 248, PACKAGE, conditions=test if inside else ())
    evaluates = (metric, frame("evaluate", 30, PACKAGE), evaluate, frame("loop", 154, PACKAGE), frame("main", 17))
    trains = (*c10d("broadcast"), frame("advance", 300, PACKAGE), frame("loop", 153, PACKAGE), frame("main", 17))
    usual = [form("broadcast", 17)] * 9
    theirs = recorded(1, [*usual, form("broadcast", 17)], *trains)
    finding = only_finding(recorded(0, [*usual, form("barrier", 17)], *c10d("barrier"), *evaluates), theirs)
    assert (finding.code, finding.culprits) == ("HD203", (0,))
    assert ["`self.flag`" in text for text in (finding.summary, finding.remedy)] == [not inside] * 2


def test_a_smaller_group_is_a_way_out_only_for_who_passes_one() -> None:
    """The user's own line makes the call, or a metric of a library does."""
    own, theirs = frame("main", 5, conditions=("rank == 0",)), rank(1, *c10d("all_reduce"), frame("main", 9))
    compute = frame("compute", 40, "/site-packages/torchmetrics/metric.py")
    itself, by_library = rank(0, *c10d("barrier"), own), rank(0, *c10d("barrier"), compute, own)
    every = "Make the call on every rank of the group, not only under `rank == 0`"
    assert only_finding(itself, theirs).remedy == f"{every}, or pass a group that contains only the ranks that call it."
    assert only_finding(by_library, theirs).remedy == f"{every}."


@pytest.mark.parametrize(
    ("test", "code"), [("get_rank() == rank", "HD203"), ("rank is not None", "HD105"), ("event_filter(event)", "HD105")]
)
def test_a_decorator_of_a_package_lets_only_some_ranks_call(test: str, code: str) -> None:
    """The engine of a package calls a handler after each epoch, and a decorator lets one rank into it. Nothing counts the epochs:
    the other rank is in the next one, and has not stayed in the loop over the data that all ranks end together."""
    file = "/site-packages/ignite/engine/engine.py"
    epochs = Loop(line=13, end_line=44, header="while not self._is_done()")
    batches = Loop(line=4, end_line=8, header="while True", counters=("n",))
    train = frame("training", 14)
    wrapper = frame("one_rank_only.<locals>.wrapper", 88, "/site-packages/ignite/utils.py", conditions=(test,))
    first = rank(0, *c10d("barrier"), frame("run_val", 13), wrapper, frame("run", 30, file, loops=(epochs,)), train)
    each = frame("run_once", 6, file, loops=(batches,), locals=(local("n", 1),))
    calls = (*backward(), frame("step", 9), each, frame("run", 23, file, loops=(epochs,)), train)
    finding = only_finding(first, rank(1, *calls, native=native_backward()))
    assert (finding.code, finding.culprits, finding.victims) == (code, (0,), (1,))
    named = f"under the condition `{test}` of one_rank_only in ignite" in str(finding.evidence)
    assert named == (code == "HD203")


def test_a_decorator_between_functions_of_the_user() -> None:
    """The same, in a loop of the user's own code."""
    epochs, batches = Loop(line=3, end_line=9, header="while True"), Loop(line=4, end_line=6, header="for x in loader")
    wrapper = frame("rank_zero_only.<locals>.wrapped", 88, "/site-packages/pl/rank.py", conditions=("rank == 0",))
    save = (*c10d("barrier"), frame("save", 30), wrapper, frame("main", 8, loops=(epochs, batches)))
    trains = rank(1, *c10d("all_reduce"), frame("main", 5, loops=(epochs, batches)))
    finding = only_finding(rank(0, *save), trains)
    assert (finding.code, finding.culprits) == ("HD203", (0,))


def test_a_loop_over_the_layers_is_left_in_each_step() -> None:
    """Rank 0 has made one forward more than rank 1, which has come out of its own and is in the backward of the same step."""
    steps = Loop(line=4, end_line=9, header="for step in range(50)", counters=("step",), every=1, start=0, bound="50")
    layers = Loop(line=20, end_line=21, header="for b in self.blocks")
    usual = [form("all_gather", 21), form("all_gather", 21), form("reduce_scatter", 7)] * 8

    def at(number: int, op: str, line: int, calls: list[CallForm], *inner: Frame) -> Process:
        step = frame("main", line, loops=(steps,), locals=(local("step", 8),))
        made = recorded(number, [*usual, *calls], *c10d(op), *inner, step)
        assert isinstance(made.recorder, FlightRecorder)
        return replace(made, recorder=replace(made.recorder, whole=True))

    forward = frame("Model.forward", 21, loops=(layers,))
    gathers = [form("all_gather", 21)] * 2
    sample = [form("all_gather", 40)] * 2
    _, (run,) = examine(
        snapshot(
            at(0, "all_gather", 5, [*sample, gathers[0]], forward),
            at(1, "reduce_scatter", 7, [*gathers, form("reduce_scatter", 7)]),
        )
    )
    blamed = Blockage(kind=SameCall(), awaited=(), culprits=(1,))
    inside = Class(run.ranks[0], (0,))
    assert run.ledger.have_made_as_many(1, 0)
    assert hd203_conditional_collective._find_loop_of_skip(run, blamed, [inside]) is None
    over_layers = LoopView(loop=layers, inside=True, done=None, total=None)
    inside = Class(replace(run.ranks[0], loop=over_layers), (0,))  # if that were its loop over the batches
    assert hd203_conditional_collective._find_loop_of_skip(run, blamed, [inside]) == layers


def test_a_line_at_which_others_wait_too_explains_nothing() -> None:
    """Rank 0 serves, and ranks 1 and 2 are its workers. Rank 1 left out the last gather. Rank 2, in the same branch, made it."""
    round_of_0, round_of_others = (
        [form("broadcast", 17), form("gather", 12)],
        [form("broadcast", 27), form("gather", 12)],
    )
    serves = (*c10d("gather"), frame("run", 12), frame("main", 23, conditions=("rank == 0",)))
    works = (*c10d("broadcast"), frame("main", 27, conditions=("rank != 0",)))
    finding = only_finding(
        recorded(0, round_of_0 * 3, *serves, world=3),
        recorded(1, [*round_of_others * 2, form("broadcast", 27), form("broadcast", 27)], *works, world=3),
        recorded(2, [*round_of_others * 3, form("broadcast", 27)], *works, world=3),
    )
    assert (finding.code, finding.culprits) == ("HD203", (1,))
    assert finding.summary.startswith("rank 1 did not call the gather that rank 0 is waiting in")


def test_a_call_of_its_own_under_a_condition_on_the_rank() -> None:
    """The loop's counter is not known, so that rank 1 may be in the next round: its call is above that of rank 0."""
    loop = Loop(line=10, end_line=30, header="while not self.done")
    around = frame("run", 20, PACKAGE, loops=(loop,))
    usual = [form("all_reduce", 15), form("broadcast", 16)] * 8
    hook = frame("on_batch_end", 9, conditions=("step == 7 and trainer.is_global_zero",))
    finding = only_finding(
        recorded(0, [*usual, form("barrier", 9)], *c10d("barrier"), hook, frame("advance", 375, PACKAGE), around),
        recorded(1, [*usual, form("all_reduce", 15)], *c10d("all_reduce"), frame("advance", 300, PACKAGE), around),
    )
    assert (finding.code, finding.culprits) == ("HD203", (0,))
    assert finding.summary.startswith("only rank 0 called barrier (inside `if step == 7 and trainer.is_global_zero`)")


def test_a_rank_that_made_both_calls_before_may_make_the_missing_one_later() -> None:
    """The lines are in two functions that a loop calls: they do not show which call comes first."""
    usual = [form("all_reduce", 5), form("broadcast", 6)] * 8
    called = frame("main", 10)

    def at(number: int, op: str, line: int) -> Process:
        return recorded(number, [*usual, form(op, line)], *c10d(op), frame(op, line), called)

    finding = only_finding(at(0, "all_reduce", 5), at(1, "broadcast", 6))
    assert (finding.code, finding.culprits) == ("HD203", (1,))
    assert "If rank 1 makes the missing call after the one in which it waits, only the order" in (finding.remedy or "")


def test_the_condition_of_the_call_that_was_made_instead_is_named() -> None:
    """Each call was made before, on all ranks. Now only rank 0 met the condition."""
    usual = [form("broadcast", 4), form("barrier", 9), *[form("broadcast", 4)] * 8]
    first = frame("main", 9, conditions=("loss.item() < best",))
    finding = only_finding(
        recorded(0, [*usual, form("barrier", 9)], *c10d("barrier"), first, world=3),
        *(recorded(n, [*usual, form("broadcast", 4)], *c10d("broadcast"), frame("main", 4), world=3) for n in (1, 2)),
    )
    instead = (
        "rank 0 did not call the broadcast that ranks 1-2 are waiting in, but barrier (inside `if loss.item() < best`)"
    )
    assert (finding.code, finding.culprits) == ("HD203", (0,))
    assert finding.summary.startswith(instead)


def test_a_rank_that_makes_a_call_in_fewer_of_its_iterations() -> None:
    """Gradients are accumulated over 8 batches on rank 1, over 4 on rank 0."""
    loop = Loop(line=8, end_line=12, header="for i in range(400)", counters=("i",), every=1, start=0, advances=("i",))
    source = "accum = cfg['accum']\nfor i in range(400):\n    sync = (i + 1) % accum == 0\n    loss.backward()\ndist.barrier()"

    def at(number: int, accum: int, done: int, line: int, *inner: Frame) -> Process:
        values = {"accum": accum, "seed": number + 7, "r": number, "i": done}
        counters = tuple(
            Counter(
                name=name,
                function="main",
                file="/home/me/train.py",
                before=value,
                after=value,
                looped=name == "i",
                advances=name == "i",
            )
            for name, value in values.items()
        )
        own = frame("main", line, loops=(loop,), locals=(local("i", done),), context=source)
        calls = [form("all_reduce", 11)] * 50 + [form("barrier", 13) if number else form("all_reduce", 11)]
        return replace(recorded(number, calls, *inner, own), progress=Progress(counters=counters))

    finding = only_finding(at(0, 4, 203, 11, *backward()), at(1, 8, 399, 13, *c10d("barrier")))
    assert (finding.code, finding.culprits) == ("HD203", (1,))
    assert finding.summary.startswith("rank 1 left out a call in some iterations of the loop `for ")
    assert "after 400 iterations with as many calls as rank 0, which is still in it after 203" in finding.summary
    assert finding.commands == ()  # the stack that is read is no longer in one of those iterations
    assert "`accum`" in (finding.remedy or "") and "seed" not in (finding.remedy or "")
    assert "`accum` is 8 on rank 1, 4 on rank 0" in [line.text for line in finding.evidence]


def test_the_option_that_sets_the_variable_of_a_condition() -> None:
    test = ("a.aux_loss",)
    arguments = {0: (), 1: ("--aux-loss", "0.01")}

    def at(number: int, value: float, *inner: Frame) -> Process:
        own = frame("main", 9 - number, conditions=test if number else (), locals=(local("a.aux_loss", value),))
        calls = [form("all_reduce", 9)] * 3 + [form("broadcast", 8) if number else form("all_reduce", 9)]
        return replace(recorded(number, calls, *inner, own), argv=("python3", "train.py", *arguments[number]))

    finding = only_finding(at(0, 0.0, *backward()), at(1, 0.01, *c10d("broadcast")))
    assert (finding.code, finding.culprits) == ("HD203", (1,))
    assert "`--aux-loss` is 0.01 on rank 1, not given on rank 0" in [line.text for line in finding.evidence]


@pytest.mark.parametrize(
    ("test", "by_best"),
    [("loss.item() < best", False), ("best < 7", True), ("best < 7 and ok()", True), ("ok(best)", False)],
)
def test_one_equal_operand_is_no_remedy_if_the_other_one_is_not_known(test: str, by_best: bool) -> None:
    """The loss belongs to each rank."""
    own, theirs = (
        frame("main", line, conditions=(test,) if line == 9 else (), locals=(local("best", best),))
        for line, best in ((9, 5), (20, 8))
    )
    finding = only_finding(rank(0, *c10d("barrier"), own), rank(1, *c10d("all_reduce"), theirs))
    assert "`best` is 5 on rank 0, 8 on rank 1" in str(finding.evidence)
    assert ("Give `best` the same value" in str(finding.remedy)) == by_best


@pytest.mark.parametrize("theirs", ["/n1", "/n0"])
def test_the_variable_that_names_the_folder_of_a_path_in_a_condition(theirs: str) -> None:
    """Rank 1 has returned from the function: its `path` is gone."""
    resumes = frame("resume", 9, conditions=("os.path.exists(path)",), locals=(local("path", '"/n0/ckpt/last.pt"'),))
    here = rank(0, *c10d("barrier"), resumes, frame("main", 18), environment={"CKPT_DIR": "/n0", "TOP": "/n"})
    there = rank(1, *backward(), frame("main", 19), environment={"CKPT_DIR": theirs, "TOP": "/m"})
    lines = [line.text for line in only_finding(here, there).evidence if "CKPT_DIR" in line.text]
    differs = "`path` is /n0/ckpt/last.pt, and CKPT_DIR is /n0 on rank 0, /n1 on rank 1"
    assert lines == ([differs] if theirs == "/n1" else [])


def test_calls_of_its_own_that_met_those_of_the_next_step_by_chance() -> None:
    """Rank 0 validates, and its first two calls are as large as those of rank 1's next step: only the third one differs."""
    usual = [form("all_gather", 15), form("all_gather", 15), form("all_reduce", 16)] * 8
    validates = frame("main", 30, conditions=("step % 8 == 7 and rank == 0",))
    finding = only_finding(
        recorded(0, [*usual, *[form("all_gather", 30)] * 3], *c10d("all_gather"), validates),
        recorded(1, [*usual, *usual[:3]], *c10d("all_reduce"), frame("main", 16)),
    )
    assert (finding.code, finding.culprits) == ("HD203", (0,))
    assert finding.summary.startswith("only rank 0 called all_gather (inside `if step % 8 == 7 and rank == 0`)")


ROUNDS = Loop(line=10, end_line=20, header="for s in range(1, 1000)", counters=("s",), every=1, start=1)
EACH = Loop(line=4, end_line=5, header="for part in parts", advances=("part",))


def _in_round(number: int, s: int, calls: list[CallForm], *stack: Frame, line: int) -> Process:
    main = frame("main", line, loops=(ROUNDS,), locals=(local("s", s),))
    return recorded(number, calls, *stack, main, world=3)


def _reduces_in(round_of_rank_1: int) -> Finding:
    """Rank 1 waits in its 37th reduction. The others made 36, two in each of 18 rounds, and wait in a barrier."""
    usual = [form("all_reduce", 5)] * 36
    reduces = (*c10d("all_reduce"), frame("reduce", 5, loops=(EACH,)))
    return only_finding(
        _in_round(0, 18, [*usual, form("barrier", 19)], *c10d("barrier"), line=19),
        _in_round(1, round_of_rank_1, [*usual, form("all_reduce", 5)], *reduces, line=12),
        _in_round(2, 18, [*usual, form("barrier", 19)], *c10d("barrier"), line=19),
    )


def test_as_many_calls_in_fewer_rounds_are_more_calls_in_a_round() -> None:
    finding = _reduces_in(13)
    assert (finding.code, finding.culprits) == ("HD207", (1,))
    assert finding.summary.startswith(
        "rank 1 makes 3 calls of all_reduce (train.py:5) in each round of `for s in range(1, 1000)`, ranks 0, 2 make 2; "
        "rank 1 has completed 12 rounds, ranks 0, 2 have completed 17"
    )
    assert "`for part in parts`" in finding.remedy


def test_as_many_calls_in_nearly_as_many_rounds_show_no_number_per_round() -> None:
    """Rank 1 left out a call in some round; or nothing is known of its rounds, as it is in its first one."""
    for round_of_rank_1 in (19, 1, 0):
        finding = _reduces_in(round_of_rank_1)
        assert (finding.code, finding.culprits) == ("HD203", (1,))


_STEPS = Loop(line=3, end_line=9, header="for it in range(99)", counters=("it",), every=1, start=0, bound="99")
_PAIR = Group(address=7, name="1", ranks=(0, 1), default=False, backend="gloo")
_EVERY = Group(address=8, name="2", ranks=(0, 1, 2), default=False, backend="gloo")


def _waits_at(line: int, number: int, round_now: int, lines: list[int], *conditions: str) -> Process:
    """A rank in the last one of its calls at these lines, one a second. All ranks broadcast at lines 4 and 5, and ranks 0 and 1
    reduce in their group at line 8."""
    forms: dict[CallForm, int] = {}
    calls = [(second, at, form("all_reduce" if at == 8 else "broadcast", at)) for second, at in enumerate(lines)]
    records = []
    for group, of_group in ((_PAIR, [8]), (_EVERY, [4, 5])):
        those = [(second, call) for second, at, call in calls if at in of_group]
        entries = [
            (n, call, T0_US + second * 1_000_000, second == len(lines) - 1) for n, (second, call) in enumerate(those, 1)
        ]
        if entries:
            wall_us = T0_US + 100_000_000
            records.append(history_of(entries, name=group.name, wall_us=wall_us, forms=forms, ranks=group.ranks))
    given = local("group", "<ProcessGroup>", address=(_PAIR if line == 8 else _EVERY).address)
    shown = (local("it", round_now), local("rank", number))
    main = frame("main", line, loops=(_STEPS,), locals=shown, conditions=conditions)
    inside = Interpreter(environment={}, globals=(), groups=(_PAIR, _EVERY) if number < 2 else (_EVERY,))
    calls_it = c10d("all_reduce" if line == 8 else "broadcast", given)
    return rank(number, *calls_it, main, world=3, interpreter=inside, recorder=recorder(*records, forms=forms))


@pytest.mark.parametrize(("round_of_0", "code"), [(8, "HD203"), (7, "HD205")])
def test_a_rank_in_a_later_round_left_out_a_call_of_another_group(round_of_0: int, code: str) -> None:
    """Rank 0 has not reduced in round 7. In the same round, it may have taken the groups in another order."""
    skips = _waits_at(4, 0, round_of_0, [*[4, 5, 8] * 7, 4, 5, 4])
    reduces = _waits_at(8, 1, 7, [4, 5, 8] * 8)
    finding = only_finding(skips, reduces, _waits_at(5, 2, 8, [4, 5] * 9))
    assert (finding.code, finding.culprits) == (code, (0,))
    if code == "HD203":
        assert finding.summary.startswith("rank 0 did not call the all_reduce of group 1 that rank 1 is waiting in")


_MESH = {"dp": ((0, 2), (1, 3)), "tp": ((0, 1), (2, 3)), "world": ((0, 1, 2, 3),)}


def _waits_in_mesh(number: int, round_now: int, calls: list[tuple[str, int]], *, labels: bool) -> Process:
    """A rank of a mesh in the last of its calls, one a second, each given by the kind of its group and its line."""
    groups = {
        kind: next(Group(address=10 * at + n, name=f"{at}{n}", ranks=ranks, default=kind == "world", backend="gloo")
                   for n, ranks in enumerate(all_of_kind) if number in ranks)
        for at, (kind, all_of_kind) in enumerate(_MESH.items())
    }  # fmt: skip
    forms: dict[CallForm, int] = {}
    wall_us, records = T0_US + 100_000_000, []
    for kind, group in groups.items():
        made = [
            (second, line, second == len(calls) - 1) for second, (called, line) in enumerate(calls) if called == kind
        ]
        entries = [
            (n, form("all_reduce", line), T0_US + second * 1_000_000, last)
            for n, (second, line, last) in enumerate(made, 1)
        ]
        if entries:
            record = history_of(entries, name=group.name, wall_us=wall_us, forms=forms, ranks=group.ranks)
            described = kind if labels and kind != "world" else ""
            records.append(replace(record, default=group.default, description=described))
    kind, line = calls[-1]
    main = frame("main", line, loops=(_STEPS,), locals=(local("it", round_now), local("rank", number)))
    inside = Interpreter(environment={}, globals=(), groups=tuple(groups.values()))
    in_call = c10d("all_reduce", local("group", "<ProcessGroup>", address=groups[kind].address))
    whole = replace(recorder(*records, forms=forms), whole=True)
    return rank(number, *in_call, main, world=4, interpreter=inside, recorder=whole)


@pytest.mark.parametrize("labels", [True, False])
def test_a_rank_that_departs_from_the_calls_of_most_left_one_out(labels: bool) -> None:
    """All ranks go through forward (in `tp`) and backward (in `dp`) of each step, but rank 3 leaves a backward out in the first
    round. No rank has made these calls before. `labels`: whether the record tells the two kinds of groups apart."""
    step = [("tp", 4), ("dp", 5)]
    waits = {0: (1, [*step, ("tp", 4)]), 1: (0, step), 2: (1, [*step, *step]), 3: (2, [("tp", 4)] * 3)}
    finding = only_finding(*(_waits_in_mesh(number, *waits[number], labels=labels) for number in waits))
    assert (finding.code, finding.culprits) == ("HD203", (3,))
    assert finding.summary.startswith("rank 3 did not call the all_reduce of group 01")


def _ledger_of(
    groups: dict[str, tuple[tuple[int, ...], str]],
    calls: Sequence[Sequence[tuple[str, int]]],
    *,
    kept: Sequence[int] = (),
) -> Ledger:
    """By rank its calls, each given by its group and its line; all wait in the last one. `groups`: by name the members and the
    description. `kept`: how many of the last calls are in the record of each rank; empty for all."""
    made = {name: dict[int, RankCalls]() for name in groups}
    for number, of_rank in enumerate(calls):
        for name, (members, _) in groups.items():
            if number not in members:
                continue
            times = [at for at, (called, _) in enumerate(of_rank) if called == name]
            forms = [Call("all_reduce", sites=(Site("train.py", of_rank[at][1], "main"),)) for at in times]
            pending = (Pending(len(times), forms[-1]),) if of_rank[-1][0] == name else ()
            begin = sum(at < len(of_rank) - kept[number] for at in times) if kept else 0
            made[name][number] = RankCalls(
                number,
                "host",
                made=len(times),
                pending=pending,
                numbers=tuple(range(begin + 1, len(times) + 1)),
                calls=tuple(forms[begin:]),
                made_us=tuple(times[begin:]),
                whole=not kept,
            )
    return Ledger(tuple(GroupCalls(name, of[0], made[name], description=of[1]) for name, of in groups.items()))


_DP, _TP = {"d0": ((0, 2), "dp"), "d1": ((1, 3), "dp")}, {"t0": ((0, 1), "tp"), "t1": ((2, 3), "tp")}
_PLAIN = {name: (members, "") for name, (members, _) in {**_DP, **_TP}.items()}
_PAIRS = {f"p{worker}": ((0, worker), "") for worker in (1, 2, 3)}
_BACKWARDS = [[("t0", 4), ("d0", 4)], [("t0", 4), ("d1", 4)], [("t1", 4), ("d0", 4)]]
_ORDERS = [[("t0", 4), ("d0", 4)], [("t0", 4)], [("t1", 4)], [("d1", 4)]]


@pytest.mark.parametrize(
    ("groups", "calls", "ranks"),
    [
        pytest.param({**_DP, **_TP}, [*_BACKWARDS, [("t1", 4), ("t1", 4)]], (3,), id="one left a backward out"),
        pytest.param({**_DP, **_TP}, [*_BACKWARDS, [("t1", 4), ("t1", 5)]], (3,), id="and made another call"),
        pytest.param({**_DP, **_TP}, _ORDERS, (3,), id="one took another group first"),
        pytest.param(_PLAIN, _ORDERS, None, id="groups that nothing tells apart"),
        pytest.param(
            {**_DP, **_TP, "t2": ((4, 5), "tp"), "d2": ((4, 5), "dp"), "more": ((4, 6), "dp")},
            [*_BACKWARDS, [("t1", 4), ("t1", 4)], [("t2", 4), ("more", 9)], [("t2", 4), ("d2", 4)]],
            None,
            id="two did, and one is in one more group of that kind",
        ),
        pytest.param(
            {"all": ((0, 1, 2), "all"), "pair": ((0, 1), "pair")},
            [[("all", 4)], [("pair", 4)], [("all", 4)]],
            None,
            id="one of them is not in both groups",
        ),
        pytest.param(
            {**_PAIRS, "workers": ((1, 2, 3), "workers")},
            [[("p1", 10), ("p1", 11)], [("p1", 20), ("workers", 30)], [("p2", 20)], [("p3", 20)]],
            None,
            id="a server with a group for each worker",
        ),
        pytest.param(
            {"t0": ((0, 1), ""), "t1": ((2, 3), ""), "lead": ((0, 2), ""), "all": ((0, 1, 2, 3), "all")},
            [
                [("t0", 4), ("all", 5), ("lead", 6)],
                [("t0", 4), ("all", 5), ("t0", 4)],
                *[[("t1", 4), ("all", 5), ("t1", 4), ("all", 5)]] * 2,
            ],
            None,
            id="some ranks are also in a group of leaders",
        ),
    ],
)
def test_the_call_that_most_ranks_made_and_few_left_out(
    groups: dict[str, tuple[tuple[int, ...], str]], calls: list[list[tuple[str, int]]], ranks: tuple[int, ...] | None
) -> None:
    left_out = compare.find_left_out_by_few(_ledger_of(groups, calls), range(len(calls)))
    assert (left_out.ranks if left_out is not None else None) == ranks


def test_a_rank_whose_number_of_calls_is_not_known_is_not_behind() -> None:
    ledger = _ledger_of({**_DP, **_TP}, [*_BACKWARDS, [("t1", 4), ("t1", 4)]])
    of_rank = next(group.ranks for group in ledger.groups if group.name == "d1")
    assert compare.find_left_out_by_few(ledger, range(4)) is not None
    of_rank[3] = of_rank[3]._replace(made=None)
    assert compare.find_left_out_by_few(ledger, range(4)) is None


@pytest.mark.parametrize(("kept", "ranks"), [((7, 20, 6, 7), (3,)), ((5, 20, 5, 5), None)])
def test_records_that_were_overwritten_are_compared_from_where_all_begin(
    kept: tuple[int, ...], ranks: tuple[int, ...] | None
) -> None:
    """Rank 3 left out the last backward. Too few calls that agreed show nothing."""
    steps = [[(f"t{n // 2}", 4), (f"d{n % 2}", 5)] * 6 for n in range(4)]
    calls = [*steps[:3], [*steps[3][:-1], ("t1", 4)]]
    left_out = compare.find_left_out_by_few(_ledger_of({**_DP, **_TP}, calls, kept=kept), range(4))
    assert (left_out.ranks if left_out is not None else None) == ranks


@pytest.mark.parametrize("round_of_2", [30, 29])
def test_most_ranks_meet_in_a_first_call_that_one_left_out(round_of_2: int) -> None:
    """A first checkpoint after 30 steps. In the same round, rank 2 may come to it later, so the past of all ranks tells."""
    steps = [("tp", 4), ("dp", 5)] * 30
    saves = [_waits_in_mesh(number, 29, [*steps, ("world", 7)], labels=True) for number in (0, 1, 3)]
    finding = only_finding(*saves, _waits_in_mesh(2, round_of_2, [*steps, ("tp", 4)], labels=True))
    assert (finding.code, finding.culprits) == ("HD203", (2,) if round_of_2 == 30 else (0, 1, 3))


@pytest.mark.parametrize(("reduced_before", "culprits"), [(7, (0,)), (2, (0, 1, 2))])
def test_the_members_of_a_group_show_who_left_its_call_out(reduced_before: int, culprits: tuple[int, ...]) -> None:
    """Three calls, none of which meets another one. Where rank 1 has not always reduced before, it may be odd as well."""
    before = [*[4, 5] * (7 - reduced_before), *[4, 5, 8] * reduced_before]
    tests = "not (rank == 0 and loss > best)", "rank in members"
    skips = _waits_at(5, 0, 8, [*before, 4, 5, 4, 5])
    reduces = _waits_at(8, 1, 7, [*before, 4, 5, 8], *tests)
    finding = only_finding(skips, reduces, _waits_at(4, 2, 8, [*[4, 5] * 8, 4]))
    assert finding.culprits == culprits
    if culprits == (0,):
        texts = " ".join(line.text for line in finding.evidence)
        assert "has made 7 calls in group 1, the last one" in texts
        assert "does not run under the condition `rank == 0 and loss > best`" in texts
        assert "rank in members" not in texts + finding.remedy


def test_a_rank_without_a_history_shows_nobody_who_left_its_call_out() -> None:
    """Its record has a pending call only: a bundle may be damaged, or a summary of equal ranks."""
    before = [4, 5, 8] * 7
    reduces = _waits_at(8, 1, 7, [*before, 4, 5, 8])
    assert isinstance(reduces.recorder, FlightRecorder)
    groups = tuple(replace(group, history=None) for group in reduces.recorder.groups)
    reduces = replace(reduces, recorder=replace(reduces.recorder, groups=groups))
    finding = only_finding(_waits_at(5, 0, 8, [*before, 4, 5, 4, 5]), reduces, _waits_at(4, 2, 8, [*[4, 5] * 8, 4]))
    assert finding.culprits == (0, 1, 2)


def _calls_at(number: int, call: Call, seconds: Sequence[int], *, waits: bool) -> RankCalls:
    """The calls of a rank in a group, all of one form, and whether it waits in the last one."""
    numbers = tuple(range(1, len(seconds) + 1))
    pending = (Pending(numbers[-1], call),) if waits else ()
    calls = (call,) * len(numbers)
    return RankCalls(
        number, "host", pending=pending, numbers=numbers, calls=calls, made_us=tuple(seconds), made=numbers[-1]
    )


@pytest.mark.parametrize("behind", [1, 2, 3])
def test_most_members_did_not_leave_out_a_call(behind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ranks reduce after each broadcast, but the last time only some of them. However many are behind, the calls of the rank
    that waits are put in order and searched once."""
    broadcast, reduce = (
        Call(op, sites=(Site("train.py", at, "main"),)) for op, at in (("broadcast", 4), ("all_reduce", 8))
    )
    broadcasts, reductions = dict[int, RankCalls](), dict[int, RankCalls]()
    for number in range(4):
        skips = number < behind
        broadcasts[number] = _calls_at(number, broadcast, range(0, 22 if skips else 20, 2), waits=skips)
        reductions[number] = _calls_at(number, reduce, range(1, 19 if skips else 21, 2), waits=not skips)
    everyone = tuple(range(4))
    group = GroupCalls("1", everyone, reductions)
    work: list[str] = []
    for name in ("_order_calls", "what_followed"):
        done = getattr(compare, name)
        monkeypatch.setattr(compare, name, lambda *given, name=name, done=done: (work.append(name), done(*given))[1])
    answer = compare.compare(group)
    assert isinstance(answer, compare.Behind)
    left_out = compare.find_left_out(Ledger((GroupCalls(None, everyone, broadcasts), group)), group, answer)
    assert left_out == {1: (0,), 2: (0, 1), 3: ()}[behind]
    assert behind == 3 or work == ["_order_calls"] * (1 + behind) + ["what_followed"]


@pytest.mark.parametrize("agreed_before", [True, False])
def test_an_earlier_call_at_another_line_is_the_first_difference(agreed_before: bool) -> None:
    """A callback of rank 1 has made a barrier that met another one of rank 0. Where ranks make one call at two lines, no
    difference is the first."""
    usual = [form("all_reduce", 5)] * 8
    other = usual if agreed_before else [*usual[:2], form("all_reduce", 6), *usual[3:]]
    both = (frame("fit", 67), frame("main", 20))
    first = recorded(0, [*usual, form("barrier", 67), form("all_reduce", 67)], *c10d("all_reduce"), *both)
    finding = only_finding(
        first, recorded(1, [*other, form("barrier", 13), form("barrier", 67)], *c10d("barrier"), *both)
    )
    text = "first differ in number 9: a barrier (train.py:67) on rank 0; a barrier (train.py:13) on rank 1"
    shown = [line.text for line in finding.evidence if "first differ" in line.text]
    assert shown == [f"the calls of the default group {text}"] * agreed_before


def test_calls_of_one_line_are_named_by_the_line_at_which_their_ways_part() -> None:
    """The trainer of a library makes another call behind its loop than in it."""

    def gather(line: int, *inner: tuple[str, int, str]) -> CallForm:
        ways = frames(*inner, ("trainer.py", line, "train"), ("train.py", 77, "main"))
        return CallForm(op="all_gather", frames=tuple(replace(each, library=each.line != 77) for each in ways))

    usual = [form("all_reduce", 5)] * 8
    behind, within = gather(1676, ("utils.py", 290, "gather")), gather(1660, ("trainer.py", 2350, "count"))
    both = (frame("fit", 67), frame("main", 20))
    first = recorded(0, [*usual, behind, form("barrier", 78)], *c10d("barrier"), *both)
    finding = only_finding(first, recorded(1, [*usual, within, form("all_reduce", 77)], *c10d("all_reduce"), *both))
    (text,) = [line.text for line in finding.evidence if "first differ" in line.text]
    mine, theirs = (f"an all_gather (train.py:77, through trainer.py:{line})" for line in (1676, 1660))
    assert text.endswith(f"in number 9: {mine} on rank 0; {theirs} on rank 1")


def test_a_skipped_call_of_one_line_is_named_by_its_way() -> None:
    """Rank 1 has skipped the second of two gathers of a library, which the program calls at one line. The call of the hang
    itself fits no shift: a shift by steps more, which ends before it, is no better."""

    def gather(line: int) -> CallForm:
        ways = frames(("trainer.py", line, "train"), ("train.py", 77, "main"))
        return CallForm(op="all_gather", frames=tuple(replace(each, library=each.line != 77) for each in ways))

    usual = [*[gather(90), gather(95), form("all_reduce", 5)] * 6, form("barrier", 20)] * 10
    both = (frame("fit", 67), frame("main", 20))
    first = recorded(0, [*usual[:150], form("barrier", 67)], *c10d("barrier"), *both)
    skips = [*usual[:39], *usual[40:151]]
    finding = only_finding(first, recorded(1, [*skips, form("all_reduce", 77)], *c10d("all_reduce"), *both))
    assert finding.code == "HD207"
    call = "an all_gather (train.py:77, through trainer.py:95)"
    assert finding.summary.startswith(
        f"rank 1 skipped {call}, or rank 0 made it in addition, at number 40 of the default"
    )
    around = [line.text.partition(": ")[2] for line in finding.evidence if line.text.startswith("calls 39 to 41")]
    first, second = ("all_gather (train.py:77, through trainer.py:90)", call.removeprefix("an "))
    assert around == [f"{first}, all_reduce (train.py:5), {first}", f"{first}, {second}, all_reduce (train.py:5)"]


@pytest.mark.parametrize(
    ("done", "whole", "header", "culprits"),
    [
        (3, True, "x, y in loader", (0, 1)),
        (2, True, "x, y in loader", (2,)),
        (4, True, "x, y in loader", (2,)),
        (3, False, "x, y in loader", (2,)),
        (3, True, "name in seen", (2,)),  # rank 2 may have seen one class more
    ],
)
def test_most_ranks_left_out_a_call_of_a_loop(done: int, whole: bool, header: str, culprits: tuple[int, ...]) -> None:
    """Ranks 0-1 catch an exception in the loop. Rank 2 did not, if it has made one call in each of its rounds: if it has done
    fewer rounds, then it made a call in addition. `whole`: only the data ends the loop."""
    ends = () if whole else (Exit(line=13, statement="break", conditions=("bad",)),)
    batches = Loop(line=10, end_line=14, header=f"for {header}", counters=("step",), every=1, start=0, exits=ends)
    usual = [form("all_reduce", 5), *[form("all_reduce", 12)] * 3]
    loader = local("loader", "<DataLoader>")
    out = frame("main", 20, loops=(batches,), locals=(local("step", 4), loader))
    within = frame("main", 12, loops=(batches,), locals=(local("step", done), loader))
    finding = only_finding(
        recorded(0, [*usual, form("barrier", 20)], *c10d("barrier"), out, world=3),
        recorded(1, [*usual, form("barrier", 20)], *c10d("barrier"), out, world=3),
        recorded(2, [*usual, form("all_reduce", 12)], *c10d("all_reduce"), within, world=3),
    )
    assert (finding.code, finding.culprits) == ("HD203", culprits)
    assert ("left out a call in some iterations" in finding.summary) == (culprits == (0, 1))


@pytest.mark.parametrize("more", [1, 2])
def test_an_additional_call_before_the_loop_is_no_call_that_the_others_left_out(more: int) -> None:
    """Of equal operation and size, it met a call of the others by chance. They made one call in each round."""
    batches = Loop(line=10, end_line=14, header="for x, y in loader", counters=("step",), every=1, start=0)
    shown = (local("step", 2 + more), local("loader", "<DataLoader>"))
    first, each = form("all_reduce", 5), form("all_reduce", 12)
    out = frame("main", 20, loops=(batches,), locals=shown)
    within = frame("main", 12, loops=(batches,), locals=(local("step", 3), shown[1]))
    barrier = [first, *[each] * (3 + more), form("barrier", 20)]
    finding = only_finding(
        *(recorded(number, barrier, *c10d("barrier"), out, world=3) for number in range(2)),
        recorded(2, [first, *[form("all_reduce", 6)] * more, *[each] * 4], *c10d("all_reduce"), within, world=3),
    )
    assert finding.culprits == (2,)


@pytest.mark.parametrize("in_function", [False, True])
def test_an_unknown_number_of_rounds_is_no_proof_that_a_call_was_left_out(in_function: bool) -> None:
    """The others have left the function with the loop, and an exception may have ended it."""
    batches = Loop(line=10, end_line=14, header="for x, y in loader", counters=("step",), every=1, start=0)
    usual, loader = [form("all_reduce", 5), *[form("all_reduce", 12)] * 3], local("loader", "<DataLoader>")
    loops = (batches,)
    if in_function:
        out = [frame("main", 20, caught=())]
        main = frame("main", 18, caught=("except ValueError",))
        within = [frame("train", 12, loops=loops, locals=(local("step", 3), loader)), main]
    else:
        out = [frame("main", 20, loops=loops, locals=(local("step", 4), loader))]
        within = [frame("main", 12, loops=loops, locals=(local("step", 3), loader))]
    finding = only_finding(
        *(recorded(n, [*usual, form("barrier", 20)], *c10d("barrier"), *out, world=3) for n in range(2)),
        recorded(2, [*usual, form("all_reduce", 12)], *c10d("all_reduce"), *within, world=3),
    )
    assert (finding.code, finding.culprits, finding.confidence) == ("HD203", (0, 1), 0.6 if in_function else 0.9)
    text = "how many iterations it did is not known: its data may also have ended earlier (also rank 1)"
    assert (text in [line.text for line in finding.evidence]) is in_function


@pytest.mark.parametrize(("counts_rounds", "all_left"), [(True, True), (True, False), (False, True)])
def test_the_calls_of_a_loop_show_who_left_one_out(counts_rounds: bool, all_left: bool) -> None:
    """Unless one of the others is still in the loop, or the counter of the loop may count the calls."""
    batches = Loop(
        line=10,
        end_line=14,
        header="for x, y in loader",
        counters=("step",),
        every=1 if counts_rounds else 0,
        start=0 if counts_rounds else None,
    )
    usual, loader = [form("all_reduce", 5), *[form("all_reduce", 12)] * 3], local("loader", "<DataLoader>")
    shown = (local("step", 4), loader) if counts_rounds else (loader,)
    test = () if counts_rounds else ("loss > limit",)

    def at(number: int, op: str, line: int, *values: Local, conditions: tuple[str, ...] = ()) -> Process:
        main = frame("main", line, loops=(batches,), locals=values, conditions=conditions, repeated=len(conditions))
        return recorded(number, [*usual, form(op, line)], *c10d(op), main, world=4)

    out = [at(number, "barrier", 20, *shown) for number in range(2)]
    inside = at(2, "all_reduce", 12, local("step", 3), loader, conditions=test)
    last = at(3, "barrier", 20, *shown) if all_left else at(3, "barrier", 13, local("step", 3), loader)
    finding = only_finding(*out, inside, last)
    assert ("left out a call in " in finding.summary) == (counts_rounds and all_left)
    assert finding.culprits == ((0, 1, 3) if counts_rounds and all_left else (2,))


@pytest.mark.parametrize(("met", "read"), [(True, True), (False, True), (True, False)])
def test_a_role_that_left_the_loop_of_its_round_is_in_no_wrong_branch(met: bool, read: bool) -> None:
    """A scheduler and its workers each broadcast at a line of their own, and then reduce in a loop over the steps. The scheduler
    broadcasts anew while the workers still reduce. `read`: the loop was found in the source."""
    steps = Loop(line=20, end_line=22, header="for step in range(n)", counters=("step",), every=1)
    rounds = {6: Loop(line=5, end_line=8, header="while True"), 10: Loop(line=9, end_line=12, header="while True")}

    def call(line: int, *inner: tuple[str, int, str]) -> CallForm:
        return CallForm(op="all_reduce" if inner else "broadcast", frames=frames(*inner, ("train.py", line, "serve")))

    def take_part(number: int, test: str, line: int, *, ahead: bool) -> Process:
        asked, reduced = call(line), call(line + 1, ("train.py", 21, "work"))
        calls = [*([asked] if met or number else [reduced]), *[reduced] * 5, asked if ahead else reduced]
        at = frame("serve", line if ahead else line + 1, loops=(rounds[line],), conditions=(test,))
        inside = (*c10d("all_reduce"), frame("work", 21, loops=(steps,) if read else ()))
        return recorded(number, calls, *(c10d("broadcast") if ahead else inside), at, world=3)

    workers = [take_part(number, "rank != 0", 10, ahead=False) for number in (1, 2)]
    finding = only_finding(take_part(0, "rank == 0", 6, ahead=True), *workers)
    assert finding.culprits == (0,)
    if not read:
        assert finding.code == "HD201" and "came to the next call earlier" in finding.remedy
        assert any("have met before" in line.text for line in finding.evidence)
    elif met:
        left = "rank 0 left the loop `for step in range(n)` and is back in broadcast; ranks 1-2 are still inside it"
        assert (finding.code, finding.summary.startswith(left)) == ("HD105", True)
        assert "rank == 0" not in finding.remedy
    else:
        assert "in the other branch of a condition" in finding.summary


@pytest.mark.parametrize(
    ("rounds", "whole", "code"), [(50, True, "HD203"), (49, True, "HD105"), (50, False, "HD105"), (49, False, "HD105")]
)
def test_a_rank_with_all_batches_left_no_loop_early(rounds: int, whole: bool, code: str) -> None:
    """Rank 1 has left the loop with a call fewer than rank 0, and is in no call now. Rank 0 made one in each of its rounds, so
    rank 1 left one out if it did more rounds. `whole`: only the data ends the loop."""
    ends = () if whole else (Exit(line=13, statement="break", conditions=("bad",)),)
    skips = (Exit(line=11, statement="continue", conditions=("isnan(x).any()",)),)
    batches = Loop(
        line=10, end_line=14, header="for i, x in enumerate(loader)", counters=("i",), every=1, start=0, exits=ends,
        skips=skips,
    )  # fmt: skip
    calls, loader = [form("all_reduce", 5), *[form("all_reduce", 12)] * 49], local("loader", "<DataLoader>")
    within = frame("main", 12, loops=(batches,), locals=(local("i", 49), loader), conditions=("not isnan(x).any()",))
    inside = recorded(0, [*calls, form("all_reduce", 12)], *backward(), replace(within, repeated=1))
    forms: dict[CallForm, int] = {}
    entries = [(n, each, T0_US + n * 1_000_000, False) for n, each in enumerate(calls, 1)]
    group = history_of(entries, wall_us=T0_US + 111_000_000, forms=forms)
    at = frame("main", 20, loops=(batches,), locals=(local("i", rounds - 1), loader))
    outside = rank(1, at, world=2, recorder=recorder(group, forms=forms))
    job = diagnose(snapshot(inside, outside, silence=60.0)).jobs[0]
    (finding,) = job.findings
    assert (finding.code, finding.culprits) == (code, (1,))
    sleep = {"syscall": "clock_nanosleep", "wchan": "hrtimer_nanosleep", "sleep_seconds": 900.0}
    sleeps = rank(1, at, world=2, recorder=outside.recorder, kernel=sleep)
    assert diagnose(snapshot(inside, sleeps, silence=60.0)).jobs[0].verdict == "hung"
    # In a loop over epochs, rank 1 makes the call again in the next one.
    epochs = Loop(line=8, end_line=22, header="for e in range(3)", counters=("e",), every=1, start=0, bound="3")
    for epoch, verdict in ((0, "waiting"), (2, "hung")):
        in_epoch = {"loops": (epochs, batches), "locals": (local("e", epoch), *within.locals)}
        stays = recorded(0, [*calls, form("all_reduce", 12)], *backward(), replace(within, repeated=1, **in_epoch))
        in_epoch["locals"] = (local("e", epoch), *at.locals)
        sleeps = rank(1, replace(at, **in_epoch), world=2, recorder=outside.recorder, kernel=sleep)
        job = diagnose(snapshot(stays, sleeps, silence=60.0)).jobs[0]
        assert (job.verdict, job.findings[0].code) == (verdict, code)
    if code == "HD203":
        assert finding.summary.startswith(
            "rank 1 left out a call in an iteration of the loop `for i, x in enumerate(loader)`: it has left it after 50 "
            "iterations with fewer calls than rank 0, which is still in it after 49, waiting in all_reduce"
        )
        assert "a condition such as `isnan(x).any()` (`continue` at" in (finding.remedy or "")
        assert not [line for line in finding.evidence if line.rank == 1 and line.text.startswith("its call")]


def _left_after(rounds: int, *inner: Loop, op: str = "all_reduce", rounds_inside: int = 4, **values: object) -> Finding:
    """Rank 0 waits in a call in a loop of ten rounds, and rank 1 has left that after some rounds. Nothing records the calls."""
    outer = Loop(line=10, end_line=20, header="for i in range(10)", counters=("i",), every=1, start=0, bound="10")
    call = c10d(op, *([local("src", 1)] if op == "recv" else []))
    stack = {"loops": (outer, *inner), "conditions": ("rank == 0",) if op == "recv" else ()}
    numbers = tuple(local(name, value) for name, value in values.items())
    within = frame("main", 15, locals=(local("i", rounds_inside), *numbers), **stack)
    sleeps = frame("main", 30, loops=(outer, *inner), locals=(local("i", rounds - 1), *numbers))
    return only_finding(rank(0, *call, within), rank(1, sleeps))


@pytest.mark.parametrize(("op", "code"), [("all_reduce", "HD203"), ("recv", "HD202"), ("gather", "HD202")])
def test_only_a_call_that_all_meet_in_was_left_out_by_who_did_all_rounds(op: str, code: str) -> None:
    """Rank 1 sends what rank 0 receives, and comes out of a gather before others have come to it."""
    finding = _left_after(10, op=op)
    assert (finding.code, finding.culprits) == (code, (1,))


@pytest.mark.parametrize(
    ("rounds", "rounds_inside", "named"), [(10, 4, "for i in range(10)"), (10, 9, "for m in range(3)"), (9, 4, None)]
)
def test_all_rounds_of_a_loop_inside_are_no_sign_of_a_call_left_out(
    rounds: int, rounds_inside: int, named: str | None
) -> None:
    """Each round of the loop around has three of them."""
    inner = Loop(line=12, end_line=18, header="for m in range(3)", counters=("m",), every=1, start=0, bound="3")
    finding = _left_after(rounds, inner, rounds_inside=rounds_inside, m=2)
    assert (finding.code == "HD203") == (named is not None)
    assert named is None or f"of the loop `{named}`" in finding.summary


@pytest.mark.parametrize(
    ("epoch", "at", "early", "code"),
    [(0, 4, True, "HD203"), (0, 4, False, "HD203"), (1, 4, True, "HD202"), (1, 4, False, "HD203"), (0, 9, True, "HD202"),
     (0, 9, False, "HD203")],
)  # fmt: skip
def test_a_rank_that_may_have_left_a_loop_early_left_out_no_call(epoch: int, at: int, early: bool, code: str) -> None:
    """In an earlier epoch, or in the last round, in which the other one is."""
    exits = (Exit(line=13, statement="break", conditions=("bad",)),) if early else ()
    epochs = Loop(line=8, end_line=40, header="for epoch in range(2)", counters=("epoch",), every=1, start=0, bound="2")
    batches = Loop(
        line=10, end_line=20, header="for i in range(10)", counters=("i",), every=1, start=0, bound="10", exits=exits
    )
    inside, outside = (
        frame("main", line, loops=(epochs, batches), locals=(local("epoch", epoch), local("i", i)))
        for line, i in ((15, at), (30, 9))
    )
    finding = only_finding(rank(0, *c10d("all_reduce"), inside), rank(1, outside))
    assert (finding.code, finding.culprits) == (code, (1,))


@pytest.mark.parametrize("alike", [True, False])
def test_the_call_that_was_left_out_may_be_one_before_it(alike: bool) -> None:
    """The reductions since were equal, so each met the one after it. A broadcast in each step would have met none."""
    step = [form("all_reduce", 12)] if alike else [form("broadcast", 4), form("all_reduce", 12)]
    past = [*([*step] * 10), form("reduce", 20)] * 2 + [*step] * 4
    before = past if alike else [*past, form("broadcast", 4)]
    finding = only_finding(
        recorded(0, [*before, form("all_reduce", 12)], *backward(), frame("main", 12)),
        recorded(1, [*before, form("reduce", 20)], *c10d("reduce"), frame("main", 20)),
    )
    assert (finding.code, finding.culprits) == ("HD203", (1,))
    assert (" is waiting in, or one before it;" in finding.summary) == alike
