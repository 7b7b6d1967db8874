"""`diagnose` and the report never raise, whatever a valid snapshot holds."""

import io
import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect as structure
from rich.console import Console

from hangdoc.diagnosis import exit_code
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.ranks.operations import find_operation
from hangdoc.render.text import report
from hangdoc.snapshot import Host, PythonThread, Snapshot
from tests.unit.builders import native_backward, rank, train

# Values that mean something to the rules, so that the search gets past the first `if`.
_TEXTS = (
    ["", "0", "1", "-3", "all_reduce", "recv", "barrier", "init_process_group", "train", "step", "MainThread", "S", "T",
     "Z", "rank", "rank", "rank", "helper", "launcher", "for step in range(n)", "while i < n", "10.0.0.1", "src",
     "/e/site-packages/torch/distributed/distributed_c10d.py", "/e/site-packages/torch/utils/data/dataloader.py",
     "/home/me/train.py", "c10d::Reducer::x", "c10d::Work::wait", "x\x1b[31m[bold]", "_engine_run_backward", "\n\0\u202e",
     "ESTABLISHED", "next_rendezvous", "/e/site-packages/torch/distributed/elastic/rendezvous/x.py", "日本"]
)  # fmt: skip
_NUMBERS = [0, 0, 1, 1, 2, 3, 4, -1, 100, 1 << 40]


def arbitrary(kind: structure.Type, dice: random.Random, depth: int = 0) -> object:
    """A value of a msgspec type. Hypothesis draws the dice; drawing every field by itself takes it minutes."""
    if isinstance(kind, structure.StructType):
        return kind.cls(**{field.encode_name: arbitrary(field.type, dice, depth + 1) for field in kind.fields})
    if isinstance(kind, structure.UnionType):
        return arbitrary(dice.choice(kind.types), dice, depth)
    if isinstance(kind, structure.VarTupleType):
        return tuple(arbitrary(kind.item_type, dice, depth + 1) for _ in range(dice.randint(0, 4 if depth < 3 else 2)))
    if isinstance(kind, structure.DictType):
        keys = [dice.choice(_TEXTS) for _ in range(dice.randint(0, 2))]
        return {key: arbitrary(kind.value_type, dice, depth + 1) for key in keys}
    if isinstance(kind, structure.StrType):
        return dice.choice(_TEXTS)
    if isinstance(kind, structure.IntType):
        low, high = (-(1 << 70) if kind.ge is None else kind.ge), (1 << 70 if kind.le is None else kind.le)
        return dice.choice([number for number in _NUMBERS if low <= number <= high])
    if isinstance(kind, structure.FloatType):
        floats = [0.0, 0.5, 1.0, 40.0, -1.0, 1e9]
        low, high = (-1e12 if kind.ge is None else kind.ge), (1e12 if kind.le is None else kind.le)
        return dice.choice([number for number in floats if low <= number <= high])
    if isinstance(kind, structure.BoolType):
        return dice.random() < 0.5
    if isinstance(kind, structure.NoneType):
        return None
    raise TypeError(kind)


HOST = structure.type_info(Host)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 64), st.integers(1, 2))
def test_nothing_raises(seed: int, count: int) -> None:
    dice = random.Random(seed)  # noqa: S311
    hosts = [arbitrary(HOST, dice) for _ in range(count)]
    snapshot = Snapshot(hangdoc="x", hosts=tuple(host for host in hosts if isinstance(host, Host)))
    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot) == snapshot
    diagnosis = diagnose(snapshot)
    assert not [problem for problem in diagnosis.problems if "please report it" in problem]
    assert diagnose(snapshot) == diagnosis
    assert exit_code(diagnosis) in (0, 1, 3, 4)
    out = io.StringIO()
    report(diagnosis, Console(file=out, width=80))
    assert "\x1b" not in out.getvalue()
    for job in diagnosis.jobs:
        assert job.verdict != "hung" or job.findings[0].severity == "error"
        for finding in job.findings:
            assert 0 <= finding.confidence < 1
            assert not set(finding.culprits) & set(finding.victims)


def test_a_native_wait_of_a_thread_without_a_python_frame() -> None:
    """It names its operation, and nobody who called it."""
    process = rank(0, train(15), native=native_backward())
    bare = PythonThread(tid=process.pid, name="MainThread", active=False, owns_gil=False, frames=())
    wait = find_operation(process, bare)
    assert wait is not None
    assert (wait.operation.op, wait.operation.origin) == ("all_reduce", "ddp-backward")
