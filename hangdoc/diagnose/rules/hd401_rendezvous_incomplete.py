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

from collections.abc import Iterator

from hangdoc.diagnose import facts, launch, words
from hangdoc.diagnose.jobs import MAX_RANKS
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.parse import natural
from hangdoc.phrases import duration, numbers
from hangdoc.snapshot import Frame, Process

CODE = "HD401"
NAME = "rendezvous-incomplete"
EXPLAINS = ("HD202", "HD901")


def check(run: Run) -> Iterator[Finding]:
    """Ranks in the rendezvous without the others; agents that wait for nodes."""
    arrived = [r for r in run.ranks.values() if r.waits and r.wait is not None and r.wait.kind == "rendezvous"]
    if arrived:
        yield from _ranks(run)
    elif not run.ranks:
        waiting = [(p, frame) for _, p in run.launchers if (frame := launch.in_rendezvous(p)) is not None]
        if waiting:
            yield _agents(run, waiting)


def _ranks(run: Run) -> Iterator[Finding]:
    arrived = [r for r in run.ranks.values() if r.waits and r.wait is not None and r.wait.kind == "rendezvous"]
    # A rank that could not be looked into may have arrived.
    absent = sorted({*run.unseen, *(n for n, r in run.ranks.items() if r not in arrived and r.label is not None)})
    if not absent:
        return
    past = [run.ranks[n] for n in absent if n in run.ranks and run.ranks[n].waits]
    if past:
        yield _apart(run, arrived, past)
        return
    here = [rank.rank for rank in arrived]
    seen = [run.ranks[number] for number in absent if number in run.ranks]
    # Only the store's own host counts who came to it; a rank that connects to its peers may wait for one that is there.
    frames = (frame for r in arrived if r.thread is not None for frame in r.thread.frames)
    counted = any(facts.plain(frame.function) == "_create_c10d_store" for frame in frames)
    elsewhere = [n for n in absent if n in run.unseen and "looked at" in run.unseen[n]]
    unsure = bool(elsewhere) and not counted
    yield words.finding(
        CODE,
        NAME,
        severity=words.by_age(run, working=any(rank.moving for rank in seen)),
        confidence=0.6 if unsure else 0.7 if seen else 0.9,
        culprits=absent,
        victims=here,
        summary=f"{len(here)} of {run.world_size} ranks arrived at {run.master or 'the rendezvous'}; "
        f"{words.ranks(absent)} {words.verb(absent, 'has', 'have')} not"
        + (f", as far as was seen ({words.ranks(elsewhere)}: not among what was looked at)" if unsure else ""),
        evidence=[
            *words.class_evidence(arrived),
            *(Evidence(rank=n, probe="processes", text=run.unseen[n]) for n in absent[:8] if n in run.unseen),
            *words.class_evidence(seen),
        ],
        remedy="Start the missing ranks, or find out on their node why they do not reach the master.",
        commands=_commands(run),
    )


def _apart(run: Run, arrived: list[Rank], past: list[Rank]) -> Finding:
    """Ranks in a rendezvous that the others have left behind, or never knew of: a group more, a check more."""
    both = [*arrived, *past]
    return words.finding(
        CODE,
        NAME,
        severity=words.by_age(run),
        confidence=0.5,
        culprits=(rank.rank for rank in both),
        victims=(rank.rank for rank in run.waiting()),
        summary=f"{words.ranks(r.rank for r in arrived)} {words.verb([r.rank for r in arrived], 'waits', 'wait')} in a "
        f"rendezvous, while {words.ranks(r.rank for r in past)} {words.doing(past[0])}: none of these can end",
        evidence=[*words.class_evidence(both), *words.standstill(run)],
        remedy="Compare what the ranks were started with (TORCH_DISTRIBUTED_DEBUG, versions) and which groups they make.",
        commands=words.look_again(arrived[0]),
    )


def _agents(run: Run, waiting: list[tuple[Process, Frame]]) -> Finding:
    first = waiting[0][0]
    asked = first.launch
    nodes = launch.nodes(first)
    per_node = (natural(asked.nproc_per_node or "1")) if asked else None
    present = sorted(p.launch.node_rank for p, _ in waiting if p.launch and p.launch.node_rank is not None)
    absent_nodes = (
        [n for n in range(min(nodes or 0, MAX_RANKS)) if n not in present] if len(present) == len(waiting) else []
    )
    absent = (
        [n * per_node + i for n in absent_nodes for i in range(per_node)][:MAX_RANKS]
        if per_node and per_node < 1024
        else []
    )
    age = min(p.started_seconds_ago for p, _ in waiting)
    missing = f"node {numbers(absent_nodes)} is missing" if absent_nodes else "the others are missing"
    complete = nodes is not None and len(waiting) >= nodes  # whatever they call themselves
    if complete:
        absent = []
        missing = "all are there and have not met"
    meeting = asked.endpoint if asked and asked.endpoint else "the rendezvous"
    return words.finding(
        CODE,
        NAME,
        severity="error" if age >= run.patience else "info",
        confidence=0.5 if complete else 0.9,
        culprits=absent,
        victims=(),
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
