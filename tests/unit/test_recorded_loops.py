"""What the loops' own iterators say comes before what variables seem to count."""

import pytest
from msgspec.structs import replace

from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.ranks import iterators
from hangdoc.reasoning.ranks.counters import loop_view
from hangdoc.snapshot import Exit, Frame, Loader, Local, Loop, Loops, Process, TrainerCount
from tests.unit.builders import c10d, rank, snapshot

LOOP = Loop(
    line=10, end_line=14, header="for number, batch in enumerate(tqdm(loader))", counters=("number",), every=1, start=0
)
FRAME = Frame(
    function="Task.train", file="/w/train.py", line=12, locals=(Local(name="number", text="3"),), loops=(LOOP,)
)
ITERATOR = Loader(
    kind="_SingleProcessDataLoaderIter",
    done=8,
    total=40,
    name="loader",
    function="train",
    file="/w/train.py",
    line=12,
    begins=10,
)
HELD = replace(ITERATOR, kind="DataLoader", done=None, begins=0)
KEY = (FRAME.file, FRAME.function, LOOP.line)


def process(*loaders: Loader) -> Process:
    return Process(
        pid=1,
        ppid=0,
        role="rank",
        name="python",
        argv=(),
        state="S",
        started_seconds_ago=9.0,
        loops=Loops(loaders=loaders),
    )


def test_the_present_batch_is_not_done() -> None:
    view = loop_view(process(ITERATOR), (FRAME,), KEY)
    assert view is not None
    assert (view.done, view.by_iterator, view.total, view.recorded) == (7, True, 40, True)
    fetching = loop_view(process(ITERATOR), (replace(FRAME, line=10),), KEY)
    assert fetching is not None
    assert (fetching.done, fetching.by_iterator) == (8, True)


def test_a_loop_of_one_line_is_at_its_header_in_its_body() -> None:
    """`for x in loader: m(x).backward()`: only the instruction tells whether it asks for the next batch."""
    for asked, done in ((False, 7), (True, 8)):
        view = loop_view(process(replace(ITERATOR, asked=asked)), (replace(FRAME, line=10),), KEY)
        assert view is not None and view.done == done


COUNTS = Loop(line=10, end_line=14, header="for x in loader", counters=("step",), every=1, counted_at=(11,))


@pytest.mark.parametrize(("line", "done"), [(10, 60), (11, 60), (12, 59), (20, 60)])
def test_a_counter_that_is_increased_first_counts_the_present_batch(line: int, done: int) -> None:
    at = replace(FRAME, line=line, locals=(Local(name="step", text="60"),), loops=(COUNTS,))
    view = loop_view(process(), (at,), KEY)
    assert view is not None
    assert view.done == done


@pytest.mark.parametrize(("early", "done"), [("False", 40), ("True", None)])
def test_a_counter_of_all_epochs_is_no_number_of_batches(early: str, done: int | None) -> None:
    """`80/40`: it counts on in the second epoch. If no statement can have left the loop, all of the data was used."""
    exit_ = Exit(line=13, statement="break", conditions=("early and loss < best",))
    loop = replace(COUNTS, exits=(exit_,), settings=("early",))
    variables = (Local(name="step", text="80"), Local(name="early", text=early, argument=True))
    at = replace(FRAME, line=20, locals=variables, loops=(loop,))
    view = loop_view(process(HELD), (at,), KEY)
    assert view is not None
    assert (view.done, view.total) == (done, 40)


@pytest.mark.parametrize("header", ["for x in loader", "while step < n"])
@pytest.mark.parametrize(("counted_at", "done"), [(11, 39), (13, 40)])
def test_a_counter_that_is_increased_last_does_not_count_the_batch_of_a_break(
    counted_at: int, done: int, header: str
) -> None:
    loop = replace(
        COUNTS, header=header, bound="60", counted_at=(counted_at,), exits=(Exit(line=12, statement="break"),)
    )
    at = replace(FRAME, line=20, locals=(Local(name="step", text="40"),), loops=(loop,))
    view = loop_view(process(), (at,), KEY)
    assert view is not None
    assert (view.done, view.total) == (done, 60)


def test_the_framework_says_how_many_batches_are_completed() -> None:
    """transformers' Trainer fetches the batches of eight forward passes at once."""
    steps = TrainerCount(framework="transformers", name="TrainerState.global_step", done=1, total=38)
    batches = TrainerCount(framework="transformers", name="Trainer._run_epoch: step", done=9, batches=True)
    fetched = replace(
        ITERATOR, done=16, total=150, begins=0, pass_id=5, file="/v/transformers/trainer.py", function="_run_epoch"
    )
    evaluated = replace(fetched, done=0, total=4, begins=2986, pass_id=6, function="evaluation_loop")
    for loaders, counts, done in (
        ((fetched,), (steps, batches), 9),
        ((fetched,), (steps,), 15),
        ((evaluated, fetched), (steps, batches), 9),  # no `for` goes over the iterator of the training
    ):
        (job,) = diagnose(snapshot(rank(0, FRAME, loops=Loops(loaders=loaders, counts=counts)))).jobs
        assert (job.ranks[0].batches_done, job.ranks[0].batches_total, job.ranks[0].batches_pass) == (done, 150, 5)


@pytest.mark.parametrize(
    ("source", "line", "done"),
    [("loss = step(batch)", 12, 7), ("batch = next(batches)", 12, 8), ("dist.barrier()", 20, 8)],
    ids=["in a batch", "asks for the next one", "behind the loop"],
)
def test_batches_that_a_next_asks_for(source: str, line: int, done: int) -> None:
    loop = Loop(line=10, end_line=14, header="while True")
    at = replace(FRAME, line=line, source=source, loops=(loop,))
    (job,) = diagnose(snapshot(rank(0, at, loops=Loops(loaders=(replace(ITERATOR, begins=0),))))).jobs
    assert job.ranks[0].batches_done == done


def test_the_data_is_counted_and_not_the_rounds_of_a_loop_over_numbers() -> None:
    """`0/2` of an accumulation loop stood beside `83/100` of the ranks that were not in theirs."""
    accumulation = Loop(line=10, end_line=14, header="for k in range(2)", counters=("k",), every=1, start=0)
    at = replace(FRAME, source="loss.backward()", loops=(accumulation,))
    numbers = Loader(
        kind="range_iterator", done=1, total=2, begins=10, function="train", file="/w/train.py", asked=False
    )
    fetched = replace(ITERATOR, function="fit", line=30, begins=0)
    # An iterator that is left over hides no longer loop.
    for rounds, total, expected in (
        (2, 40, (7, 40)),
        (2, None, (7, None)),
        (1000, 40, (0, 1000)),
        (1000, None, (0, 1000)),
    ):
        loaders = (replace(numbers, total=rounds), replace(fetched, total=total))
        (job,) = diagnose(snapshot(rank(0, at, loops=Loops(loaders=loaders)))).jobs
        assert (job.ranks[0].batches_done, job.ranks[0].batches_total) == expected


def test_a_loop_that_asks_for_a_batch_in_each_round_ends_with_its_rounds() -> None:
    """`150/500` stood beside `150/200` of the ranks without a loader: the data has 500 batches, and the loop 200 rounds."""
    steps = Loop(line=10, end_line=14, header="for k in range(200)", counters=("k",), every=1, start=0)
    repeats = Loop(line=8, end_line=15, header="while True")
    within = replace(repeats, line=11, end_line=13)
    numbers = replace(ITERATOR, kind="range_iterator", name=None, done=151, total=200, asked=False)
    for loops, received, of_data, expected in (
        ((steps,), 151, 500, (150, 200)),
        ((), 151, 500, (150, 200)),  # without the source
        ((steps,), 151, None, (150, 200)),
        ((steps,), 302, 500, (301, 500)),  # two in each round
        ((repeats, steps), 151, 500, (150, 500)),  # it accumulates, in its first step
        ((steps, within), 151, 500, (150, 500)),  # it is an epoch
    ):
        fetched = replace(ITERATOR, done=received, total=of_data, begins=0, depth=1, pass_id=5)
        at = replace(FRAME, source="loss.backward()" if loops else None, loops=loops)
        (job,) = diagnose(snapshot(rank(0, at, loops=Loops(loaders=(fetched, numbers))))).jobs
        assert (job.ranks[0].batches_done, job.ranks[0].batches_total) == expected


@pytest.mark.parametrize(("rounds", "total"), [(2, 500), (4, 10)])
def test_without_the_source_the_first_rounds_may_be_epochs(rounds: int, total: int) -> None:
    numbers = replace(ITERATOR, kind="range_iterator", name=None, done=rounds, total=10, asked=False)
    fetched = replace(ITERATOR, done=rounds, total=500, begins=0, depth=1, pass_id=5)
    at = replace(FRAME, source=None, loops=())
    (job,) = diagnose(snapshot(rank(0, at, loops=Loops(loaders=(fetched, numbers))))).jobs
    assert job.ranks[0].batches_total == total


def test_a_rank_without_source_is_taken_to_be_in_the_batch_that_it_received_last() -> None:
    for source, done in ((None, 7), ("barrier()", 8)):
        at = replace(FRAME, source=source, loops=())
        (job,) = diagnose(snapshot(rank(0, at, loops=Loops(loaders=(replace(ITERATOR, begins=0),))))).jobs
        assert job.ranks[0].batches_done == done


def test_a_rank_that_left_the_epochs_shows_its_step() -> None:
    epochs = Loop(line=30, end_line=32, header="for epoch in range(2)", counters=("epoch",), every=1, start=0)
    fits = Frame(function="fit", file="/w/train.py", line=31, loops=(epochs,))
    count = TrainerCount(framework="transformers", name="TrainerState.global_step", done=18, total=300)
    ranks = [
        rank(number, *c10d(op), replace(fits, line=line), loops=Loops(counts=(count,)))
        for number, (op, line) in enumerate((("all_reduce", 31), ("barrier", 34)))
    ]
    (job,) = diagnose(snapshot(*ranks, silence=600.0)).jobs
    texts = {each.rank: each.text for each in job.findings[0].evidence if each.probe == "loops"}
    assert (job.findings[0].code, texts) == ("HD105", dict.fromkeys((0, 1), "TrainerState.global_step is 18 of 300"))


def test_the_loop_around_says_the_number_of_the_pass() -> None:
    """`0/40` of a rank that is in the next epoch looked like less than `40/40`."""
    epochs = Loop(
        line=8, end_line=20, header="for epoch in range(50)", counters=("epoch",), every=1, start=0, bound="50",
        exits=(Exit(line=19, statement="break"),),
    )  # fmt: skip

    def at(line: int, epoch: int, around: Loop = epochs) -> Frame:
        return replace(FRAME, line=line, locals=(Local(name="epoch", text=str(epoch)),), loops=(around, LOOP))

    def views(*frames: Frame, loops: tuple[Loops, ...], ago: float = 0.0) -> list[tuple[int | None, int | None, bool]]:
        ranks = [
            rank(number, *c10d("barrier"), frame, loops=read, deep_seconds_ago=ago)
            for number, (frame, read) in enumerate(zip(frames, loops, strict=True))
        ]
        (job,) = diagnose(snapshot(*ranks)).jobs
        return [(view.batches_pass_number, view.batches_done, view.batches_ended) for view in job.ranks]

    read = Loops(loaders=(replace(ITERATOR, done=0, asked=True),))
    held = Loops(loaders=(HELD,))
    # In the seventh pass; behind the sixth, in it; and behind the loop around, which a `break` left in the sixth.
    found = views(at(10, 6), at(16, 5), at(22, 5), loops=(read, held, held))
    assert found == [(7, 0, False), (6, 40, True), (6, 40, True)]
    # All fifty rounds are done.
    assert views(at(10, 6), at(22, 49), loops=(read, held))[1] == (50, 40, True)
    # A stack that is older than the count of the iterator may show an earlier pass.
    counted = Loops(loaders=(ITERATOR,), seconds_ago=0.5)
    assert [views(at(10, 6), loops=(counted,), ago=ago)[0][0] for ago in (0.4, 5.0)] == [7, None]
    # A `while` may count before or after the pass.
    assert views(at(10, 6, replace(epochs, header="while epoch < 50")), loops=(read,))[0][0] is None
    # A validation inside the loop over the batches of the training.
    assert views(at(10, 6, replace(epochs, header="for epoch, batch in enumerate(train)")), loops=(read,))[0][0] is None


@pytest.mark.parametrize(
    ("header", "numbers"),
    [
        ("for epoch in range(50)", True),
        ("for epoch in tqdm(range(first, last), desc='x')", True),
        ("for epoch in trange(3)", True),
        ("for epoch in itertools.count()", True),
        ("for step, batch in enumerate(DataLoader(Subset(data, range(1000)), 8))", False),
        ("for batch in np.arange(9)", False),
        ("for batch in loader", False),
    ],
)
def test_a_loop_over_numbers(header: str, numbers: bool) -> None:
    assert iterators.goes_over_range(replace(LOOP, header=header)) is numbers


@pytest.mark.parametrize(
    ("tests", "repeated", "number"),
    [
        ((), 0, 7),
        (("training",), 0, 7),
        (("epoch % 3 == 0",), 0, None),  # the rounds before had fewer passes
        (("epoch % 3 == 0",), 1, 7),  # a condition in the pass
        (("not (epoch > last)",), 0, 7),  # else the loop ended
    ],
)
def test_a_pass_in_some_rounds_of_the_loop_around_has_no_number(
    tests: tuple[str, ...], repeated: int, number: int | None
) -> None:
    leaves = Exit(line=9, statement="break", conditions=("epoch > last",))
    epochs = Loop(
        line=8, end_line=20, header="for epoch in range(50)", counters=("epoch",), every=1, start=0, exits=(leaves,)
    )
    read = Loops(loaders=(replace(ITERATOR, done=0, asked=True),))
    values = (Local(name="epoch", text="6"),)
    within = replace(FRAME, line=10, locals=values, loops=(epochs, LOOP), conditions=tests, repeated=repeated)
    called = replace(within, function="fit", line=12, loops=(epochs,), conditions=tests, repeated=len(tests) - repeated)
    for frames in ((within,), (replace(FRAME, line=10), called)):
        (job,) = diagnose(snapshot(rank(0, *c10d("barrier"), *frames, loops=read))).jobs
        assert job.ranks[0].batches_pass_number == number


def test_an_enumerate_says_its_index() -> None:
    loop = replace(LOOP, start=5)
    counted = replace(ITERATOR, kind="enumerate", total=None)
    view = loop_view(process(counted), (replace(FRAME, loops=(loop,)),), KEY)
    assert view is not None
    assert (view.done, view.by_iterator, view.total) == (2, True, None)


@pytest.mark.parametrize(
    "loader",
    [replace(ITERATOR, begins=20), replace(ITERATOR, file="/w/other.py"), replace(ITERATOR, function="evaluate"), HELD],
)
def test_the_iterator_of_another_loop_says_nothing(loader: Loader) -> None:
    view = loop_view(process(loader), (FRAME,), KEY)
    assert view is not None
    assert (view.done, view.by_iterator, view.total) == (3, False, None)


def test_a_loop_that_has_ended_with_its_data() -> None:
    behind = replace(FRAME, line=20)
    view = loop_view(process(HELD), (behind,), KEY)
    assert view is not None
    assert (view.inside, view.done, view.by_iterator, view.total) == (False, 40, True, 40)
    breaks = replace(LOOP, exits=(Exit(line=13, statement="break"),))
    left = loop_view(process(HELD), (replace(behind, loops=(breaks,)),), KEY)
    assert left is not None
    assert (left.done, left.by_iterator, left.total) == (3, False, 40)  # by its variable: it left in the fourth batch


@pytest.mark.parametrize("header", ["for step in range(steps)", "for step, batch in enumerate(loader)"])
def test_a_round_in_which_other_data_ended_is_not_done(header: str) -> None:
    """`try: x = next(it)` with `except StopIteration: break`: in the fourth round, the rank did nothing."""
    end = Exit(line=13, statement="break", conditions=("rank == 0", "except StopIteration"))
    bound = "steps" if "range" in header else None
    loop = Loop(line=10, end_line=14, header=header, counters=("step",), every=1, start=0, bound=bound, exits=(end,))
    variables = (Local(name="step", text="3"), Local(name="steps", text="40"))
    view = loop_view(process(HELD), (replace(FRAME, line=20, loops=(loop,), locals=variables),), KEY)
    assert view is not None
    assert (view.done, view.total) == (3, 40)


def test_a_counter_that_a_later_loop_uses_again() -> None:
    """`for step, batch in enumerate(eval_loader)` has set `step` of the training loop back. Behind it, nothing shows whether it
    ran: 14 of 37 training batches were the 14 steps of an evaluation."""
    evaluates = Loop(line=30, end_line=35, header="for i, x in enumerate(others)", counters=LOOP.counters)
    frame = replace(FRAME, line=32, loops=(LOOP, evaluates))
    view = loop_view(process(), (frame,), KEY)
    assert view is not None
    assert (view.inside, view.done) == (False, None)
    behind, before = (loop_view(process(), (replace(frame, line=line),), KEY) for line in (40, 25))
    assert behind is not None and behind.done is None
    assert before is not None and before.done is not None


@pytest.mark.parametrize(
    ("header", "total"),
    [
        ("for x in loader", 40), ("for x in enumerate(loader, 1)", 40), ("for i, (x, y) in enumerate(tqdm.tqdm(loader))", 40),
        ("for x in zip(loader, other)", None), ("for x in batches(loader)", None), ("for x in self.loader", None),
        ("for x in loader[:3]", None), ("while loader", None), ("for x in [loader]", None), ("for (", None),
    ],
)  # fmt: skip
def test_only_what_gives_all_of_the_dataloader(header: str, total: int | None) -> None:
    loader = iterators.find_loader_behind(process(HELD), FRAME, replace(LOOP, header=header))
    assert (loader.total if loader is not None else None) == total


def test_the_training_loop_is_the_outermost_over_batches() -> None:
    outer, inner = ITERATOR, replace(ITERATOR, begins=30, depth=2, done=2, total=5, name="validation")
    numbers = Loader(kind="range_iterator", done=1, total=3, begins=5)
    assert iterators.find_training_iterator(process(inner, outer, numbers, HELD)) == outer
    assert iterators.find_training_iterator(process(numbers, HELD)) is None
    assert iterators.find_training_iterator(process(outer, replace(outer, begins=50))) is None


def test_a_counter_that_an_inner_loop_assigns_is_not_one() -> None:
    """`for _ in range(6)` around `for _ in range(20)`: the report said 12 of 6."""
    outer = Loop(line=10, end_line=14, header="for _ in range(6)", counters=("_",), every=1, start=0, bound="6")
    inner = replace(outer, line=11, end_line=13, header="for _ in range(20)", bound="20")
    frame = replace(FRAME, locals=(Local(name="_", text="12"),), loops=(outer, inner))
    views = [loop_view(process(), (frame,), (FRAME.file, FRAME.function, line)) for line in (10, 11)]
    assert [(view.done, view.total) for view in views if view is not None] == [(None, 6), (12, 20)]
    # A variable that the inner loop only counts up is still that of a loop that tests it.
    steps = replace(outer, header="while step < 6", counters=("step",))
    counts = replace(inner, header="for batch in loader", counters=("step",), advances=("step",))
    frame = replace(frame, locals=(Local(name="step", text="4"),), loops=(steps, counts))
    view = loop_view(process(), (frame,), (FRAME.file, FRAME.function, 10))
    assert view is not None
    assert view.done == 4
    # Of a `for` around, it counts the batches of all files.
    frame = replace(frame, loops=(replace(steps, header="for file in files"), counts))
    view = loop_view(process(), (frame,), (FRAME.file, FRAME.function, 10))
    assert view is not None
    assert view.done is None


@pytest.mark.parametrize(
    ("totals", "found"),
    [((60, 40), ["HD102"]), ((60, 60), []), ((60, None), [])],
    ids=["different", "equal", "one is not known"],
)
def test_loaders_of_different_lengths_are_told_before_one_has_ended(
    totals: tuple[int | None, int | None], found: list[str]
) -> None:
    ranks = [
        rank(number, FRAME, cpu=0.9, loops=Loops(loaders=(replace(ITERATOR, total=total),)))
        for number, total in enumerate(totals)
    ]
    (job,) = diagnose(snapshot(*ranks, silence=0.1)).jobs
    assert job.verdict == "healthy"
    assert [(finding.code, finding.severity) for finding in job.findings] == [(code, "info") for code in found]
    if found:
        assert "60 on rank 0; 40 on rank 1" in job.findings[0].summary


@pytest.mark.parametrize(("total", "code"), [(40, "HD101"), (60, "HD105")])
def test_epochs_with_fewer_batches_are_over_sooner(total: int, code: str) -> None:
    """The ranks part in the loop over epochs. Why, the loader of the loop inside it shows."""
    epochs = Loop(line=30, end_line=32, header="for epoch in range(50)", counters=("epoch",), every=1, start=0)
    fits = Frame(function="Task.fit", file="/w/train.py", line=31, loops=(epochs,))
    of_one_pass = replace(ITERATOR, dataset="Texts", sampler="SequentialSampler", total=60)
    kept = replace(of_one_pass, kind="DataLoader", done=None, begins=0, total=total)
    inside = rank(0, *c10d("all_reduce"), FRAME, fits, loops=Loops(loaders=(of_one_pass,)))
    outside = rank(1, *c10d("barrier"), replace(fits, line=34, loops=()), loops=Loops(loaders=(kept,)))
    (job,) = diagnose(snapshot(inside, outside, silence=600.0)).jobs
    assert (job.verdict, job.findings[0].code, job.findings[0].culprits) == ("hung", code, (1,))
    assert ("(40 batches vs. 60 on rank 0)" in job.findings[0].summary) is (code == "HD101")
    stops = replace(epochs, exits=(Exit(line=32, statement="break", conditions=("val_loss > best",)),))
    frames = [replace(frame, loops=(stops,) if frame is fits else ()) for frame in (fits, replace(fits, line=34))]
    inside = rank(0, *c10d("all_reduce"), FRAME, frames[0], loops=Loops(loaders=(of_one_pass,)))
    outside = rank(1, *c10d("barrier"), frames[1], loops=Loops(loaders=(kept,)))
    (job,) = diagnose(snapshot(inside, outside, silence=600.0)).jobs
    assert job.findings[0].code == "HD105"
