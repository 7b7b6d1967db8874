"""The nodes were launched with settings that do not match.

## What it finds

torchrun agents of one run, on one or several hosts, with different numbers of
nodes, master addresses, ports or run ids, or two agents with the same node
rank. Also ranks without a launcher that were given different rendezvous
endpoints.

## Why it hangs

Each agent waits at its own endpoint for its own number of nodes. On a different
port, no other node arrives. Two agents with node rank 0 wait for node rank 1,
which does not exist. torchrun logs nothing for 10 to 15 minutes.

## Example

```sh
torchrun --nnodes 2 --node-rank 0 --master-port 29500 train.py   # node 0
torchrun --nnodes 2 --node-rank 1 --master-port 29501 train.py   # <- node 1
```

## Use instead

```sh
hangdoc launch-diff node0.sh node1.sh   # before the start
torchrun --nnodes 2 --node-rank 0 --master-port 29500 train.py   # node 0
torchrun --nnodes 2 --node-rank 1 --master-port 29500 train.py   # node 1
```

## How hangdoc knows

It compares the launch commands side by side, and reads the frame in which each
launcher waits. It treats two launches on one host as one run only if they start
the same program, their ranks complete each other, and no process listens at one
of the endpoints.

## When it can be wrong

If several runs of one program wait for nodes at the same time, agents of
different runs may look like one run. If the run trains in spite of different
`--nnodes`, the finding is a warning.

## References

- torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from collections.abc import Iterator

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.causes.launches import LaunchesDiffer, Part
from hangdoc.reasoning.model import Run
from hangdoc.reasoning.runs import launch

CODE = "HD406"
NAME = "launch-mismatch"
ABOUT = (LaunchesDiffer,)


def say(run: Run, blockage: Blockage) -> Finding:
    """Nodes that were launched with different settings and cannot complete the rendezvous."""
    cause = blockage.cause
    assert isinstance(cause, LaunchesDiffer)  # noqa: S101  (see ABOUT)
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.92,
        summary=f"the nodes were launched with different settings and cannot connect: {'; '.join(cause.differences)}",
        evidence=_evidence(cause),
        remedy=_remedy(cause),
        commands=_COMMANDS,
    )


def check(run: Run) -> Iterator[Finding]:
    """Nodes that completed the rendezvous in spite of different settings."""
    found = run.launches
    if found is not None and found.met:
        yield words.finding(
            CODE,
            NAME,
            confidence=0.7,
            culprits=found.culprits or (),
            summary=f"the nodes were launched with different settings: {'; '.join(found.differences)}",
            evidence=_evidence(found),
            remedy=_remedy(found),
            commands=_COMMANDS,
        )


_COMMANDS = ("hangdoc launch-diff FILE...   # before the next start",)


def _evidence(found: LaunchesDiffer) -> list[Evidence]:
    lines = [
        Evidence(rank=None, probe="processes", text=f"{part.place}{_pid(part)}: {_line(part)}"[:300])
        for part in found.parts[:8]
    ]
    waiting = [
        Evidence(rank=None, probe="stacks", text=f"{part.place}: torchrun is waiting in {frame.function}")
        for part in found.parts[:8]
        if (frame := launch.in_rendezvous(part.process)) is not None
    ]
    return lines + waiting


def _remedy(found: LaunchesDiffer) -> str:
    own = "--node-rank" if found.parts[0].process.launch else "RANK and LOCAL_RANK"
    wrong = sorted(part.place for part in found.wrong)
    what = "rank" if found.parts[0].process.launch is None else "node"
    do = "does" if len(wrong) == 1 else "do"
    return (
        f"Launch every {what} with the same command, except for {own}: {', '.join(wrong)} {do} not match "
        f"{found.reference.place}."
    )


def _pid(part: Part) -> str:
    return "" if "pid" in part.place else f", pid {part.process.pid}"


def _line(part: Part) -> str:
    """The launch command. For a rank without a launcher, with the variables of its rendezvous."""
    line = " ".join(part.process.argv)
    if part.process.launch is not None:
        return line
    return f"RANK={part.number} WORLD_SIZE={part.nodes} MASTER_ADDR={part.address} MASTER_PORT={part.port} {line}"
