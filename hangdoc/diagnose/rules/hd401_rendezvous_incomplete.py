"""k of n ranks arrived at the rendezvous; who is missing.

## What it finds

Ranks, or torchrun's agents before they have started any, that stand in the rendezvous while others of the run have not
come.

## Why it hangs

`init_process_group` and torchrun's rendezvous wait until all have arrived: 10 to 30 minutes by default, without a word.

## Evidence

The stacks of the agents and ranks (`next_rendezvous`, `_create_c10d_store`, `init_process_group`), the numbers of nodes
and ranks that the command lines and environments ask for, and who is there.

## What to do

Start the missing node, or look why it does not reach the master: name, port, firewall, a different `--nnodes`,
`--rdzv-id` or `--master-port`.

## When it would be wrong

At the start of a run, while the others are still importing: below the patience it is a note.

## References

- torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
- torch/distributed/elastic/rendezvous/dynamic_rendezvous.py
"""

from hangdoc.diagnose import words
from hangdoc.diagnose.blockages import Blockage
from hangdoc.diagnose.kinds import Apart, Rendezvous
from hangdoc.diagnose.model import Class, Run
from hangdoc.diagnose.ranks import torch_names
from hangdoc.diagnose.runs import launch
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.phrases import duration, numbers

CODE = "HD401"
NAME = "rendezvous-incomplete"
ABOUT = (Rendezvous, Apart)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks in the rendezvous without the others; agents that wait for nodes."""
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
        summary=f"{len(here)} of {run.world_size} ranks arrived at {run.master or 'the rendezvous'}; "
        f"{words.ranks(absent)} {words.verb(absent, 'has', 'have')} not"
        + (f", as far as was seen ({words.ranks(elsewhere)}: not among what was looked at)" if unsure else ""),
        evidence=[
            *words.class_evidence(kind.arrived),
            *(Evidence(rank=n, probe="processes", text=run.unseen[n].why) for n in absent[:8] if n in run.unseen),
            *words.class_evidence(blockage.at),
        ],
        remedy="Start the missing ranks, or find out on their node why they do not reach the master.",
        commands=_commands(run),
    )


def _counted(arrived: tuple[Class, ...]) -> bool:
    """Whether one of them counts who came. Only the store's own host does; a rank that connects to its peers may wait for one
    that is there."""
    frames = (frame for one in arrived if one.first.thread is not None for frame in one.first.thread.frames)
    return any(torch_names.plain(frame.function) == "_create_c10d_store" for frame in frames)


def _apart(run: Run, blockage: Blockage, kind: Apart) -> Finding:
    """Ranks in a rendezvous that the others have left behind, or never knew of: a group more, a check more."""
    arrived = [part for part in kind.parts if part.first.wait is not None and part.first.wait.kind == "rendezvous"]
    past = [part for part in kind.parts if part not in arrived]
    here, there = ([n for part in parts for n in part.ranks] for parts in (arrived, past))
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.5,
        summary=f"{words.ranks(here)} {words.verb(here, 'waits', 'wait')} in a rendezvous, while {words.ranks(there)} "
        f"{words.doing(past[0].first)}: none of these can end",
        evidence=[*words.class_evidence(kind.parts), *words.standstill(run)],
        remedy="Compare what the ranks were started with (TORCH_DISTRIBUTED_DEBUG, versions) and which groups they make.",
        commands=words.look_again(arrived[0].first),
    )


def _agents(run: Run, blockage: Blockage, kind: Rendezvous) -> Finding:
    waiting = [(process, frame) for (_, process), frame in kind.agents]
    asked = waiting[0][0].launch
    nodes = launch.nodes(waiting[0][0])
    complete = nodes is not None and len(waiting) >= nodes  # whatever they call themselves
    absent = launch.absent_nodes([process for process, _ in waiting])
    missing = (
        "all are there and have not met"
        if complete
        else f"node {numbers(absent)} is missing"
        if absent
        else "the others are missing"
    )
    meeting = asked.endpoint if asked and asked.endpoint else "the rendezvous"
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.5 if complete else 0.9,
        summary=f"{len(waiting)} of {nodes or '?'} nodes arrived at {meeting}; {missing}, and no rank has been started",
        evidence=[
            Evidence(
                rank=None,
                probe="stacks",
                text=f"torchrun pid {p.pid} waits in {frame.function} since {duration(p.started_seconds_ago)}: "
                f"{' '.join(p.argv[-12:])}"[:200],
            )
            for p, frame in waiting[:8]
        ],
        remedy="Find out what keeps the nodes apart: a name that takes long to resolve, a port that is closed, launch lines "
        "that differ."
        if complete
        else "Start torchrun on the missing node with the same --nnodes, endpoint and run id, or find out why it does not "
        "reach this one.",
        commands=_commands(run),
    )


def _commands(run: Run) -> tuple[str, ...]:
    if run.master is None:
        return ()
    host, _, port = run.master.rpartition(":")
    return (f"nc -vz {host} {port}   # on the missing node",)
