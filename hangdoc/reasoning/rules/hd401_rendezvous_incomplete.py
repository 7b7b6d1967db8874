"""Some ranks or nodes reached the rendezvous, and others are missing.

## What it finds

Ranks, or torchrun agents that have not started any rank yet, that wait in the
rendezvous while other ranks or nodes of the run are missing.

## Why it hangs

`init_process_group` and torchrun's rendezvous wait until everyone has arrived.
The default timeout is 10 to 30 minutes, and nothing is logged until then.

## Example

```sh
# The job script of node 1.
cp -r /mnt/nfs/shards /scratch &&  # fails: the disk is full
torchrun --nnodes 2 --node-rank 1 --master-addr node0 train.py  # <- not run
```

## Use instead

```sh
# Under Slurm, a failed node ends the whole job.
srun --kill-on-bad-exit=1 bash node.sh
```

Start the missing node. If it is running, find out why it cannot reach the
master: host name, port, firewall, or a different `--nnodes`, `--rdzv-id` or
`--master-port`.

## How hangdoc knows

It reads the stacks of agents and ranks (`next_rendezvous`,
`_create_c10d_store`, `init_process_group`), the numbers of nodes and ranks in
their command lines and environments, and which of them exist.

## When it can be wrong

At the start of a run, the other ranks may still be importing modules. Before
the patience has passed, the finding is an `info`, not an error.

## References

- torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
- torch/distributed/elastic/rendezvous/dynamic_rendezvous.py
"""

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.phrases import duration, numbers
from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.kinds import Apart, Rendezvous
from hangdoc.reasoning.model import Class, Run
from hangdoc.reasoning.ranks import torch_names
from hangdoc.reasoning.runs import launch

CODE = "HD401"
NAME = "rendezvous-incomplete"
ABOUT = (Rendezvous, Apart)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks in an incomplete rendezvous; agents that wait for other nodes."""
    kind = blockage.kind
    if isinstance(kind, Apart):
        return _apart(run, blockage, kind)
    assert isinstance(kind, Rendezvous)  # noqa: S101  (see ABOUT)
    return _agents(run, blockage, kind) if kind.agents else _ranks(run, blockage, kind)


def _ranks(run: Run, blockage: Blockage, kind: Rendezvous) -> Finding:
    absent = blockage.culprits
    here = [number for one in kind.arrived for number in one.ranks]
    elsewhere = [n for n in absent if n in run.unseen and run.unseen[n].elsewhere]
    unsure = bool(elsewhere) and not _counted(kind.arrived)
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.6 if unsure else 0.7 if blockage.at else 0.9,
        summary=f"{len(here)} of {run.world_size} ranks reached the rendezvous{f' at {run.master}' if run.master else ''}; "
        + (
            f"{words.ranks(absent)} {words.verb(absent, 'was', 'were')} not found there "
            f"({words.ranks(elsewhere)} may be on a host that was not observed)"
            if unsure
            else f"{words.ranks(absent)} {words.be(absent)} missing"
        ),
        evidence=[
            *words.class_evidence(kind.arrived),
            *(Evidence(rank=n, probe="processes", text=run.unseen[n].why) for n in absent[:8] if n in run.unseen),
            *words.class_evidence(blockage.at),
        ],
        remedy="Start the missing ranks, or find out on their node why they cannot reach the master.",
        commands=_commands(run),
    )


def _counted(arrived: tuple[Class, ...]) -> bool:
    """Whether one of them counts the ranks that arrive. Only the host of the store does; a rank that connects to its peers may
    wait for one that is there."""
    frames = (frame for one in arrived if one.first.thread is not None for frame in one.first.thread.frames)
    return any(torch_names.plain(frame.function) == "_create_c10d_store" for frame in frames)


def _apart(run: Run, blockage: Blockage, kind: Apart) -> Finding:
    """Ranks in a rendezvous that the others have passed or never enter: one more group, one more check."""
    arrived = [part for part in kind.parts if part.first.wait is not None and part.first.wait.kind == "rendezvous"]
    past = [part for part in kind.parts if part not in arrived]
    here, there = ([n for part in parts for n in part.ranks] for parts in (arrived, past))
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.5,
        summary=f"{words.ranks(here)} {words.be(here)} waiting in a rendezvous that {words.ranks(there)} "
        f"{words.verb(there, 'has', 'have')} not entered: {words.ranks(past[0].ranks)} {words.be(past[0].ranks)} "
        f"{words.doing(past[0].first)}",
        evidence=[*words.class_evidence(kind.parts), *words.standstill(run)],
        remedy="Compare the settings (TORCH_DISTRIBUTED_DEBUG, versions) of the ranks, and the groups that they create.",
        commands=words.look_again(arrived[0].first),
    )


def _agents(run: Run, blockage: Blockage, kind: Rendezvous) -> Finding:
    waiting = [(process, frame) for (_, process), frame in kind.agents]
    asked = waiting[0][0].launch
    nodes = launch.nodes(waiting[0][0])
    complete = nodes is not None and len(waiting) >= nodes  # whatever node ranks they claim
    absent = launch.absent_nodes([process for process, _ in waiting])
    started = f" ({words.ranks(blockage.culprits)})" if blockage.culprits else ""
    missing = (
        "all nodes are there, but the rendezvous is not complete"
        if complete
        else f"node{'s' * (len(absent) > 1)} {numbers(absent)}{started} {words.be(absent)} missing"
        if absent
        else "the others are missing"
    )
    meeting = f" at {asked.endpoint}" if asked and asked.endpoint else ""
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.5 if complete else 0.9,
        summary=f"{len(waiting)} of {nodes or '?'} nodes reached the rendezvous{meeting}; {missing}; no rank has started yet",
        evidence=[
            Evidence(
                rank=None,
                probe="stacks",
                text=f"torchrun (pid {p.pid}), started {duration(p.started_seconds_ago)} ago, is waiting in "
                f"{frame.function}; its command: {' '.join(p.argv[-12:])}"[:200],
            )
            for p, frame in waiting[:8]
        ],
        remedy="Find out what keeps the nodes apart: slow name resolution, a closed port, or different launch commands."
        if complete
        else "Start torchrun on the missing node with the same --nnodes, endpoint and run id, or find out why it cannot "
        "reach this node.",
        commands=_commands(run),
    )


def _commands(run: Run) -> tuple[str, ...]:
    if run.master is None:
        return ()
    host, _, port = run.master.rpartition(":")
    return (f"nc -vz {host} {port}   # on the missing node",)
