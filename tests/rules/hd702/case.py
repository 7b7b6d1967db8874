"""HD702: a snapshot that fires it, and the most similar one that must not."""

from msgspec.structs import replace

from hangdoc.snapshot import CallForm, Process, Snapshot
from tests.rules.shapes import gpu_rank
from tests.unit.builders import snapshot
from tests.unit.recordings import T0_US, frames, history_of, recorder

_SUM = CallForm(op="all_reduce", inputs=("float32[1048576]",), frames=frames(("train.py", 9, "main")))
_CALLS, _WALL_US = 11, T0_US + 300_000_000


def _rank(number: int, *, made: int = _CALLS) -> Process:
    forms: dict[CallForm, int] = {}
    entries = [(at, _SUM, T0_US + at * 1000, at == _CALLS) for at in range(1, made + 1)]
    group = history_of(entries, wall_us=_WALL_US, forms=forms, ranks=(0, 1), timeout=600.0, before=made)
    return replace(
        gpu_rank(number), started_seconds_ago=900.0, recorder=recorder(replace(group, on_card=True), forms=forms)
    )


def fires() -> Snapshot:
    """Both ranks have made call 11, and no card finishes it."""
    return snapshot(_rank(0), _rank(1), wall_us=_WALL_US)


def quiet() -> Snapshot:
    """Rank 1 has not made call 11: its card has nothing of NCCL to do."""
    return snapshot(_rank(0), _rank(1, made=_CALLS - 1), wall_us=_WALL_US)
