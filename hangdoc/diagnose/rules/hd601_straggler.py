"""One rank is persistently behind and sets the pace.

## What it finds

A run that moves, in which one rank computes nearly all the time and the others mostly wait for it, over several rounds of
their loop.

## Why it hangs

It does not. Every step lasts as long as its slowest rank, and all others spend the difference waiting: a rank with half the
speed halves the whole run.

## Evidence

For each rank the share of the window its training thread was on a core, the rounds done in the window, and what differs on
the slow one: threads, cores it may use, throttling; the stage of the step, where the trainer publishes stages.

## What to do

Balance the work (sort or bucket samples by length), give the rank the same threads and cores as the others, look for
neighbours on its host.

## When it would be wrong

A window shorter than a step shows one phase of it; several rounds must have passed for a finding. Pipelines wait by
design.

## References

- DistributedDataParallel, uneven workloads: https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.model import Rank, Run, environment_of
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.snapshot import Clocks, Progress, Runtime, Stack

CODE = "HD601"
NAME = "straggler"

_BUSY, _WAITING = 0.75, 0.45
_ROUNDS = 3
_STAGES = ("data", "forward", "backward", "optimizer")


def check(run: Run) -> Iterator[Finding]:
    """One finding for a minority of ranks that the rest waits for, round after round."""
    ranks = [rank for rank in run.ranks.values() if rank.process is not None and rank.label != "dead"]
    if len(ranks) < 2 or run.unseen or run.backend != "gloo" or not all(_rounds(rank) >= _ROUNDS for rank in ranks):
        return  # a NCCL rank spins while it waits: its CPU time says nothing
    busy = [rank for rank in ranks if (rank.training_share or 0.0) >= _BUSY]
    rest = [rank for rank in ranks if (rank.training_share or 0.0) < _BUSY]
    if busy and len(busy) <= len(rest) and all((rank.training_share or 1.0) <= _WAITING for rank in rest):
        yield _finding(busy, rest)


def _rounds(rank: Rank) -> int:
    """How often the rank's loop went round in the window, as far as counters tell: those of two stacks that may be further apart
    than the window is long, where somebody polls."""
    process = rank.process
    if process is None or not isinstance(process.progress, Progress) or not isinstance(process.clocks, Clocks):
        return 0
    counted = max((c.after - c.before for c in process.progress.counters if c.looped), default=0)
    before, after = process.stack_before, process.stack
    apart = after.at_seconds - before.at_seconds if isinstance(before, Stack) and isinstance(after, Stack) else 0.0
    window = process.clocks.window_seconds
    return int(counted * min(1.0, window / apart)) if apart > 2 * window else counted


def _finding(busy: list[Rank], rest: list[Rank]) -> Finding:
    slow = [rank.rank for rank in busy]
    why = "; ".join(part for part in (_why(busy[0], rest[0]), _stage(busy[0], rest[0])) if part)
    return words.finding(
        CODE,
        NAME,
        severity="warning",
        confidence=0.75,
        culprits=slow,
        victims=(rank.rank for rank in rest),
        summary=f"{words.ranks(slow)} {words.verb(slow, 'sets', 'set')} the pace: on a core "
        f"{busy[0].training_share or 0:.0%} of the time, while {words.ranks(r.rank for r in rest)} mostly wait"
        + (f" ({why})" if why else ": more work, as nothing else differs"),
        evidence=[
            Evidence(
                rank=rank.rank,
                probe="cpu",
                text=f"training thread on a core {rank.training_share or 0:.0%} of the window, {_rounds(rank)} rounds done",
            )
            for rank in (*busy[:4], *rest[:4])
        ],
        remedy="Balance the work of the ranks, or mend what slows this one down.",
        commands=words.look_again(busy[0]),
    )


def _stage(slow: Rank, other: Rank) -> str:
    """In which stage of the step the delay becomes visible, where both publish theirs. Whoever is fast waits for the others
    inside its backward, so a backward that is no longer there says nothing."""
    mine, theirs = _stages(slow), _stages(other)
    if not mine or not theirs:
        return ""
    later = {name: mine[name] - theirs[name] for name in mine if mine[name] - theirs[name] > 0.1 * sum(mine.values())}
    if not later:
        return ""
    name = max(later, key=lambda stage: later[stage])
    return f"its {name} takes {mine[name] * 1000:.1f} ms a step, theirs {theirs[name] * 1000:.1f} ms"


def _stages(rank: Rank) -> dict[str, float]:
    progress = rank.process.progress if rank.process is not None else None
    beacon = progress.beacon if isinstance(progress, Progress) else None
    return (
        dict(zip(_STAGES, beacon.stages, strict=True))
        if beacon is not None and len(beacon.stages) == len(_STAGES)
        else {}
    )


def _why(slow: Rank, other: Rank) -> str:
    if slow.process is None or other.process is None:
        return ""
    mine, theirs = (environment_of(p).get("OMP_NUM_THREADS") for p in (slow.process, other.process))
    if mine != theirs:
        return f"OMP_NUM_THREADS is {mine or 'not set'} there and {theirs or 'not set'} elsewhere"
    a, b = slow.process.runtime, other.process.runtime
    if (
        isinstance(a, Runtime)
        and isinstance(b, Runtime)
        and a.cpus_allowed
        and b.cpus_allowed
        and a.cpus_allowed < b.cpus_allowed
    ):
        return f"it may use {a.cpus_allowed} cores, the others {b.cpus_allowed}"
    return ""
