"""Why a rank is slower than another one: by its card, its settings, and the stages of a step."""

from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.card import card_of, slowed_by
from hangdoc.snapshot import Process, Runtime

_STAGES = ("data", "forward", "backward", "optimizer")


def reasons(run: Run, slow: Rank, other: Rank) -> str:
    """What makes a rank slower, as clauses; empty if nothing differs."""
    return "; ".join(filter(None, (_card(run, slow, other), _resources(slow, other), _stage(slow, other))))


def _card(run: Run, slow: Rank, other: Rank) -> str:
    """What holds down the clocks of the slow rank's card, and not those of the other one's."""
    mine, theirs = (card_of(run.host[rank.host], rank) if rank.host in run.host else None for rank in (slow, other))
    if mine is None or theirs is None or slowed_by(theirs) or not slowed_by(mine):
        return ""
    clocks = f": {mine.sm_clock_mhz} MHz, rank {other.rank}'s {theirs.sm_clock_mhz}" if mine.sm_clock_mhz else ""
    return f"its card slows itself down ({', '.join(slowed_by(mine))}{clocks})"


def _stage(slow: Rank, other: Rank) -> str:
    """The stage of the step in which the slow rank takes longer, if both ranks publish their stages. A fast rank waits for the
    others inside its backward, so its backward is not compared."""
    mine, theirs = _stages(slow), _stages(other)
    later = {name: mine[name] - theirs[name] for name in mine if name in theirs}
    name = max(later, key=lambda stage: later[stage], default=None)
    if name is None or later[name] <= 0.1 * sum(mine.values()):
        return ""
    return (
        f"its {name} stage takes {mine[name] * 1000:.1f} ms per step, rank {other.rank}'s {theirs[name] * 1000:.1f} ms"
    )


def _stages(rank: Rank) -> dict[str, float]:
    beacon = known.beacon(rank.process)
    published = beacon.stages if beacon is not None else ()
    return dict(zip(_STAGES, published, strict=True)) if len(published) == len(_STAGES) else {}


def _resources(slow: Rank, other: Rank) -> str:
    """Which setting gives the slow rank less of its CPU."""
    mine, theirs = (known.environment(rank.process).get("OMP_NUM_THREADS") for rank in (slow, other))
    if mine != theirs:
        return (
            f"OMP_NUM_THREADS is {mine or 'not set'} on rank {slow.rank} and {theirs or 'not set'} on rank {other.rank}"
        )
    few, many = _cores(slow.process), _cores(other.process)
    return f"rank {slow.rank} may use {few} cores, rank {other.rank} {many}" if few and many and few < many else ""


def _cores(process: Process | None) -> int | None:
    runtime = process.runtime if process is not None else None
    return runtime.cpus_allowed if isinstance(runtime, Runtime) else None
