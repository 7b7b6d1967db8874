"""Frameworks that have the training loop: which frames are the program, and what they tell of a hang."""

import math

import pytest

from hangdoc.diagnosis import Finding
from hangdoc.program import asks_store, ends_at_a_time, path_that_must_go, program, seconds_left
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Exit, Frame, Loop, Process
from tests.unit.builders import TORCH, backward, c10d, frame, local, rank, snapshot

FIT = "/env/lib/python3.11/site-packages/lightning/pytorch/loops/fit_loop.py"
EPOCH = "/env/lib/python3.11/site-packages/transformers/trainer.py"
COMMAND = "/env/bin/chemprop"


def user(line: int = 30) -> Frame:
    return frame("<module>", line, source="trainer.fit(model)")


def found(*processes: Process) -> Finding:
    diagnosis = diagnose(snapshot(*processes))
    assert not diagnosis.problems
    return diagnosis.jobs[0].findings[0]


def test_the_program_ends_where_torch_begins() -> None:
    """A model's layers are no part of it, whoever wrote them; a decorator of torch's is passed over."""
    layer = frame("Block.forward", 9, "/env/lib/python3.11/site-packages/timm/models/vit.py")
    mine = frame("Model.forward", 4, "/home/me/model.py")
    thread = (
        mine,
        layer,
        frame("Module._call_impl", 1, TORCH + "nn/modules/module.py"),
        frame("FitLoop.advance", 2, FIT),
        frame("decorate_context", 3, TORCH + "utils/_contextlib.py"),
        frame("run", 4, "/usr/lib/python3.11/contextlib.py", library=True),
        user(),
    )
    assert program(thread) == (mine, thread[3], thread[-1])


def epoch(line: int, step: int, total: int) -> Frame:
    """A framework's epoch: its loop takes lines 10 to 20, and evaluates behind them."""
    loop = Loop(line=10, end_line=20, header="for step in range(steps)", counters=("step",), start=0, bound="steps")
    return frame("Trainer._run_epoch", line, EPOCH, loops=(loop,), locals=(local("step", step), local("steps", total)))


def test_a_frameworks_loop_that_ends_early() -> None:
    """Rank 1 evaluates, as its 5 steps are done; rank 0 is in its sixth of 50. No loop of the user's says so."""
    finding = found(
        rank(0, *c10d("all_reduce"), *backward(), epoch(15, 5, 50), user()),
        rank(1, *c10d("all_gather"), epoch(25, 4, 5), user()),
    )
    assert (finding.code, finding.culprits, finding.victims) == ("HD101", (1,), (0,))
    assert "after 5 iterations (rank 0 expects 50)" in finding.summary


@pytest.mark.parametrize(
    ("counter", "header", "counts"),
    [
        ("i", "for x, y in loader", None),
        ("i", "for p in model.parameters()", 2),
        ("epoch", "for p in model.parameters()", None),
        ("_epoch", "for step in range(10)", None),
        ("epochs_done", "for step in range(10)", None),
    ],
)
def test_a_loop_around_the_one_over_the_loader_counts_epochs(counter: str, header: str, counts: int | None) -> None:
    """Nothing counts the batches. A loop over anything else is a part of a step, unless the user calls the
    outer one an epoch."""
    epochs = Loop(line=10, end_line=30, header=f"for {counter} in range(3)", counters=(counter,), start=0)
    batches = Loop(line=12, end_line=20, header=header)
    variables = (local(counter, 2), local("loader", "<DataLoader at 0x7f>"))
    main = frame("main", 15, loops=(epochs, batches), locals=variables)
    (job,) = diagnose(snapshot(rank(0, *c10d("all_reduce"), main), rank(1, frame("read", 3), main, state="T"))).jobs
    assert [one.batches_done for one in job.ranks] == [counts, counts]


def test_the_import_of_the_compiler_is_no_compilation() -> None:
    """torch imports torch._inductor when an optimizer is made."""
    body = frame("<module>", 5, TORCH + "_inductor/config.py")
    caller = frame("_call_with_frames_removed", 241, "<frozen importlib._bootstrap>", library=True)
    compiles = frame("compile_fx", 9, TORCH + "_inductor/compile_fx.py")
    seen = [rank(n, *frames, user(), cpu=0.9) for n, frames in enumerate([(body, caller), (compiles,)])]
    (job,) = diagnose(snapshot(*seen)).jobs
    assert [one.state for one in job.ranks] == ["computing", "compiling"]


def fit(line: int, batches: int) -> Frame:
    """A framework's loop without a counter, whose body trains and validates."""
    loop = Loop(line=10, end_line=20, header="while not self.done")
    return frame("FitLoop.run", line, FIT, loops=(loop,), locals=(local("self.max_batches", batches),))


def test_a_packages_loop_below_the_users_call_is_not_left() -> None:
    """Rank 0 gathers in a helper that goes through a list; rank 1 is at the user's next line. Nobody left a loop."""
    loop = Loop(line=10, end_line=20, header="for key, value in data.items()")
    helper = frame("gather", 12, "/env/lib/python3.11/site-packages/accelerate/utils/operations.py", loops=(loop,))
    finding = found(rank(0, *c10d("all_gather"), helper, user(30)), rank(1, *c10d("all_reduce"), user(31)))
    assert finding.code in ("HD201", "HD203")


def test_a_packages_command_is_no_place() -> None:
    """`sys.exit(main())` of a console script says nothing; the package's own frame does."""
    script = frame("<module>", 8, COMMAND, source="sys.exit(main())")
    job = diagnose(snapshot(*(rank(n, *c10d("barrier"), fit(12, 3), script) for n in (0, 1)))).jobs[0]
    assert {view.where.file for view in job.ranks if view.where is not None} == {"loops/fit_loop.py"}


@pytest.mark.parametrize(
    ("header", "exits", "ends"),
    [
        ("while time.monotonic() < end", (), True),
        ("while time.time() - began < args.hours * 3600", (), True),
        ("while datetime.datetime.now() <= self.until", (), True),
        ("while time.monotonic() < end and not ready", (), False),
        ("while end > time.monotonic()", (), True),
        ("while time.monotonic() < read_limit(path)", (), False),
        ("while time.monotonic() > end", (), False),
        ("while time.monotonic() - self.last_beat < 60", (), False),  # another thread may renew it
        ("while time.monotonic() - last < 60", (), False),
        ("while progress.time() < end", (), False),
        ("while step < steps", (), False),
        ("while True", (), False),
        ("for _ in range(9)", (), False),
        ("while time.monotonic() < end", (Exit(line=3, statement="break", conditions=("ready()",)),), False),
    ],
)
def test_a_loop_that_ends_at_a_time(header: str, exits: tuple[Exit, ...], ends: bool) -> None:
    """It polls nothing."""
    loop = Loop(
        line=1, end_line=5, header=header, counters=(), every=0, start=None, exits=exits, advances=("last", "step")
    )
    assert ends_at_a_time(loop) is ends


@pytest.mark.parametrize(
    ("header", "left"),
    [
        ("while time.monotonic() < end", 50.0),
        ("while end > time.monotonic()", 50.0),
        ("while time.time() - begin < 60 * 3", 80.0),
        ("while time.monotonic_ns() < end_ns", -10.0),
        ("while time.monotonic() < never", math.inf),
        ("while time.monotonic() < never * 0", math.inf),
        (f"while time.monotonic() < {'9' * 400}", math.inf),
        (f"while time.monotonic() < {'1+' * 900}1", None),
        ("while time.monotonic() < other", None),
        ("while time.monotonic() < limits[0]", None),
        ("while datetime.now() < end", None),
        ("while not done", None),
    ],
)
def test_when_a_loop_ends(header: str, left: float | None) -> None:
    """By the clock that it reads itself."""
    numbers = {"end": 150.0, "begin": 1000.0, "end_ns": 90e9, "never": math.inf}
    loop = Loop(line=1, end_line=5, header=header)
    assert seconds_left(loop, numbers.get, 100_000_000, 1_100_000_000) == left


@pytest.mark.parametrize(
    ("header", "conditions", "asks"),
    [
        ("while store.add(name, 0) < total", (), True),
        ("while int(self.store.get(key)) < world", (), True),
        ("while not kv_store.check([key])", (), True),
        ("while True", ("store.num_keys() > 7",), True),
        ("while True", (), False),
        ("while not store.check([key]) and not os.path.exists(path)", (), False),
        ("while not store.find(key)", (), False),
        ("while not ready.get(key)", (), False),
        ("while True", ("store.check([key])", "server.ready()"), False),
        ("for _ in range(9)", ("store.check([key])",), False),
    ],
)
def test_a_loop_that_only_a_store_ends(header: str, conditions: tuple[str, ...], asks: bool) -> None:
    exits = tuple(Exit(line=3, statement="break", conditions=(test,)) for test in conditions)
    assert asks_store(Loop(line=1, end_line=5, header=header, exits=exits)) is asks


@pytest.mark.parametrize(
    ("header", "conditions", "path"),
    [
        ("while os.path.exists(lock)", (), "lock"),
        ("while isfile(lock)", (), "lock"),
        ("while True", ("not os.path.exists(lock)",), "lock"),
        ("while not os.path.exists(done)", (), None),
        ("while True", ("os.path.exists(done)",), None),
        ("while os.path.exists(lock) and tries < 9", (), None),
        ("while os.path.exists(lock)", ("time.time() > end",), None),
        ("while True", ("not os.path.exists(lock)", "tries > 9"), None),
        ("while os.path.exists(folder + name)", (), None),
        ("while os.path.getsize(lock)", (), None),
        ("while client.exists(lock)", (), None),
        ("for _ in range(9)", ("not os.path.exists(lock)",), None),
    ],
)
def test_the_path_that_a_loop_waits_to_be_gone(header: str, conditions: tuple[str, ...], path: str | None) -> None:
    exits = tuple(Exit(line=3, statement="break", conditions=(test,)) for test in conditions)
    assert path_that_must_go(Loop(line=1, end_line=5, header=header, exits=exits)) == path
