"""A GPU rank spins in the driver for a collective: 100 % CPU, and yet blocked.

## What it finds

Ranks with NCCL's threads whose training thread stands in a synchronization with the GPU at both looks, at full CPU, while
none of their counters moves. A rank in a call of a group that uses Gloo alone is not among them.

## Why it hangs

A NCCL collective is a kernel on the GPU. The host goes on until it needs a result (`.item()`, `.cpu()`, a synchronize) and
then waits for the stream by polling in the driver: one core at 100 %. By its CPU such a rank looks busy; it waits for the
collective, and the collective for a rank that has not called it.

## Evidence

NCCL's threads in the process, the native frames in libcuda, the same Python line at both looks, and counters that stand.

## What to do

Look at the rank that does not spin: it is the one they wait for. Where all spin, they are in different collectives: compare
with torch's flight recorder (TORCH_NCCL_TRACE_BUFFER_SIZE), or set TORCH_NCCL_DESYNC_DEBUG=1 on the next run.

## When it would be wrong

A long kernel of the rank's own (not a collective) looks the same from the host, so this is always a note: the error is the
finding about the rank that is elsewhere. Where all spin, look twice, a minute apart, and compare the lines.

No machine with a GPU was available for the development of this rule: the native frames are those of the reports below, and
no real rank that spins was looked at.

## References

- ProcessGroupNCCL environment variables: https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
- Stacks of such ranks, innermost in libcuda below cudaStreamSynchronize or `_local_scalar_dense_cuda`:
  https://github.com/pytorch/pytorch/issues/95944, https://github.com/rwth-i6/returnn/issues/1811
- Flight recorder: https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html
"""

from collections.abc import Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.kinds import Spinning
from hangdoc.diagnose.model import Run
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD701"
NAME = "gpu-collective-wait"
ABOUT = (Spinning,)


def say(run: Run, blockage: Blockage) -> Finding:
    """All ranks of a group spin in the GPU driver."""
    return _finding(run, ())


def check(run: Run) -> Iterator[Finding]:
    """Ranks that spin in the GPU driver while other ranks are elsewhere."""
    if any(one.first.spins for one in run.waiting) and not any(isinstance(b.kind, Spinning) for b in run.blockages):
        elsewhere = sorted(
            {n for blockage in run.blockages for one in blockage.at if not one.first.waits for n in one.ranks}
        )
        yield _finding(run, tuple(elsewhere))


def _finding(run: Run, elsewhere: tuple[int, ...]) -> Finding:
    spinning = [one for one in run.waiting if one.first.spins]
    who = sorted(number for one in spinning for number in one.ranks)
    return words.finding(
        CODE,
        NAME,
        severity="info",  # the host cannot tell a collective from a long kernel; the finding about the other ranks is the error
        confidence=0.7,
        culprits=elsewhere,
        victims=who,
        summary=f"{words.ranks(who)} {words.verb(who, 'spins', 'spin')} in the GPU driver: full CPU, but blocked"
        + (
            f", until {words.ranks(elsewhere)} {words.verb(elsewhere, 'joins', 'join')} the collective"
            if elsewhere
            else ""
        ),
        evidence=[
            Evidence(
                rank=one.first.rank,
                probe="stacks",
                text=f"{one.first.why} {words.place(one.first)}; {one.first.cpu_percent or 0:.0f}% CPU"
                + words.also(one.ranks),
            )
            for one in spinning[:4]
        ],
        remedy="Check the ranks that do not spin. If all spin, compare their collectives in the flight recorder.",
        commands=words.look_again(spinning[0].first),
    )
