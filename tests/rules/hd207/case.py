"""HD207: a snapshot that fires it, and the most similar one that must not."""

from collections.abc import Iterator

from hangdoc.snapshot import CallForm, Process, Snapshot
from tests.unit.builders import c10d, frame, rank, snapshot
from tests.unit.recordings import T0_US, frames, history_of, recorder

SYNC = CallForm(op="all_reduce", inputs=("float32[64, 64]",), frames=frames(("train.py", 12, "sync_grads")))
LOG = CallForm(op="all_reduce", inputs=("float32[64, 64]",), frames=frames(("train.py", 15, "log_stats")))
LOG_OF_1 = CallForm(op="all_reduce", inputs=("float32[64, 64]",), frames=frames(("train.py", 18, "log_stats")))
LAST = CallForm(op="broadcast", inputs=("float32[3]",), frames=frames(("train.py", 30, "main")))
_STEPS, _SKIPPED = 120, 90
_WALL_US = T0_US + 100_000_000


def _calls(log: CallForm, skips: bool) -> Iterator[CallForm]:
    for step in range(_STEPS):
        yield from [SYNC] * (3 if skips and step == _SKIPPED else 4)
        yield log
    yield LAST


def _rank(number: int, *, skips: bool = False, leaves: bool = False, log: CallForm = LOG, stop: int) -> Process:
    forms: dict[CallForm, int] = {}
    calls = list(_calls(log, skips))[:stop]
    calls[-1] = LAST if leaves else calls[-1]
    entries = [(at, form, T0_US + at * 1000, at == stop) for at, form in enumerate(calls, 1)]
    last = calls[-1]
    return rank(
        number, *c10d(last.op), frame("main", last.frames[0].line), world=4,
        recorder=recorder(history_of(entries, wall_us=_WALL_US, forms=forms, before=stop), forms=forms),
    )  # fmt: skip


def fires() -> Snapshot:
    """Rank 1 skips one gradient in step 90. The run stands still when it is a call ahead at the end, 30 steps later."""
    stop = _STEPS * 5
    return snapshot(*(_rank(number, skips=number == 1, stop=stop) for number in range(4)), wall_us=_WALL_US)


def quiet() -> Snapshot:
    """Rank 1 has always logged at a line of its own. It leaves the loop before its last reduction, so nothing differed before."""
    stop = _STEPS * 5
    odd = _rank(1, log=LOG_OF_1, leaves=True, stop=stop)
    ranks = [odd if number == 1 else _rank(number, stop=stop) for number in range(4)]
    return snapshot(*ranks, wall_us=_WALL_US)
