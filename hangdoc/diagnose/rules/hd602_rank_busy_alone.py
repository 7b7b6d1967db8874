"""The others wait for a rank that is legitimately busy: an evaluation, a checkpoint, a compile.

## What it finds

Ranks wait in an operation for one that is at work: its counters move, or it evaluates, samples, writes a checkpoint,
compiles or loads data, and its stack or its CPU time moves.

## Why it hangs

It does not: the others go on when it comes back. It looks like a hang from outside, and it costs all other ranks' time. A
timeout of the process group (30 minutes by default) ends the run if the work takes longer.

## Evidence

What the busy rank does and where, which of its clocks moved in the window, and the stacks of those that wait.

## What to do

Wait. To shorten it: share the evaluation over the ranks, write checkpoints in the background
(torch.distributed.checkpoint.async_save), warm the compile cache; raise the group's timeout where the work is known to be
long.

## When it would be wrong

A rank that counts for ever (a search that does not converge, a retry loop) looks the same for as long as its counters
move: look twice, minutes apart, and compare the numbers.

## References

- torch.distributed.checkpoint: https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
- init_process_group, timeout: https://docs.pytorch.org/docs/stable/distributed.html
"""

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.model import Run
from hangdoc.diagnose.ranks.holds import Serves, Works
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD602"
NAME = "rank-busy-alone"
ABOUT = (Works, Serves)


def say(run: Run, blockage: Blockage) -> Finding:
    """Busy ranks that others wait for."""
    kind = blockage.kind
    first, blamed = blockage.at[0].first, blockage.culprits
    why = kind.what if isinstance(kind, Works) else f"listening on {kind.address}" if isinstance(kind, Serves) else ""
    because = f"; {why}" if isinstance(kind, Works) else ""
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.85 if isinstance(kind, Works) and kind.certain else 0.75,
        summary=f"{words.awaited(run, blockage)}{because}",
        evidence=[
            *words.class_evidence(blockage.at),
            *words.counters(first),
            Evidence(rank=first.rank, probe="cpu", text=why if why == first.why else f"{first.why}; {why}"),
            *words.class_evidence(blockage.waiting),
            *words.standstill(run),
        ],
        remedy=f"{words.ranks(blamed).capitalize()} {words.be(blamed)} working, so this is not a hang. To save the time of the "
        f"other ranks, share the work among all ranks or do it in the background.",
        commands=words.look_again(first),
    )
