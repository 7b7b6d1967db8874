"""Nodes were launched with settings that do not fit together.

## What it finds

Agents of torchrun on several hosts that belong to one run and disagree on the number of nodes, on the master's address or
port, on the run id, or of which two claim one node rank.

## Why it hangs

Each agent waits at the meeting point that it was told for the number of nodes that it was told. At another port nobody
comes; two nodes of one rank wait for the rank that none has. torchrun says nothing for 10 to 15 minutes.

## Evidence

The launch lines of the agents, side by side, and the frame in which each of them waits.

## What to do

Launch every node with the same line but for `--node-rank`. `hangdoc launch-diff` compares the lines before the start.

## When it would be wrong

Where several runs of one program wait for nodes at the same time, agents of different runs may be taken for one. A run that
trains in spite of different `--nnodes` is not hung: the finding is then a warning.

## References

- torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from collections.abc import Callable, Iterator

from hangdoc.diagnose import launch, network, words
from hangdoc.diagnose.model import Placed, Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.parse import natural
from hangdoc.snapshot import Launch

CODE = "HD406"
NAME = "launch-mismatch"
EXPLAINS = ("HD401", "HD402", "HD901")

_MUST_AGREE: tuple[tuple[str, Callable[[Launch], str | None]], ...] = (
    ("--nnodes", lambda asked: asked.nnodes),
    ("master address", lambda asked: (asked.endpoint or "").rpartition(":")[0] or None),
    ("master port", lambda asked: (asked.endpoint or "").rpartition(":")[2] or None),
    ("run id", lambda asked: asked.run_id),
)


def check(run: Run) -> Iterator[Finding]:
    """One finding for all that the nodes disagree on."""
    agents = [
        (host, process) for host, process in run.launchers if process.launch and process.launch.tool == "torchrun"
    ]
    if len({host.name for host, _ in agents}) < 2:
        return
    reference = _reference(run, agents)
    wrong: dict[str, Placed] = {}
    said = []
    for name, read in _MUST_AGREE:
        if len({read(p.launch) for _, p in agents if p.launch}) > 1:
            said.append(f"{name} is " + ", ".join(f"{read(p.launch)} on {h.name}" for h, p in agents if p.launch))
            wrong |= {h.name: (h, p) for h, p in agents if p.launch and read(p.launch) != read(reference)}
    claimed: dict[int, list[Placed]] = {}
    for host, process in agents:
        if process.launch is not None and process.launch.node_rank is not None:
            claimed.setdefault(process.launch.node_rank, []).append((host, process))
    for number, both in claimed.items():
        if len(both) > 1:
            said.append(f"node rank {number} is claimed by " + " and ".join(host.name for host, _ in both))
            wrong |= {host.name: (host, p) for host, p in both if p.launch is not reference}
    if said:
        yield _finding(run, agents, said, list(wrong.values()))


def _reference(run: Run, agents: list[Placed]) -> Launch:
    """What the others must fit: the node on which the run meets, else node 0, else the first."""
    address = (run.master or "").rpartition(":")[0]
    owner = next(
        (p for h, p in agents if network.interface_with(h, network.namespace_of(p), address) is not None), None
    )
    zero = next((p for _, p in agents if p.launch and p.launch.node_rank == 0), agents[0][1])
    found = (owner or zero).launch
    assert found is not None  # noqa: S101  (only launchers with a launch get here)
    return found


def _finding(run: Run, agents: list[Placed], said: list[str], wrong: list[Placed]) -> Finding:
    stuck = not run.ranks
    old = min(process.started_seconds_ago for _, process in agents) >= run.patience
    culprits = sorted({rank.rank for rank in run.ranks.values() if rank.host in {host.name for host, _ in wrong}})
    for _, process in wrong:
        asked = process.launch
        per_node = natural(asked.nproc_per_node or "1") if asked else None
        if stuck and asked is not None and asked.node_rank is not None and per_node is not None and per_node < 1024:
            culprits += [asked.node_rank * per_node + n for n in range(per_node)]
    return words.finding(
        CODE,
        NAME,
        severity=("error" if old else "info") if stuck else "warning",
        confidence=0.92 if stuck else 0.7,
        culprits=sorted(set(culprits)),
        victims=(),
        summary=f"the nodes were launched differently: {'; '.join(said)}" + (", so they never meet" if stuck else ""),
        evidence=[
            Evidence(rank=None, probe="processes", text=f"{host.name}, pid {p.pid}: {' '.join(p.argv)}"[:300])
            for host, p in agents[:8]
        ]
        + [
            Evidence(rank=None, probe="stacks", text=f"{host.name}: torchrun waits in {frame.function}")
            for host, p in agents[:8]
            if (frame := launch.in_rendezvous(p)) is not None
        ],
        remedy="Launch every node with the same line but for --node-rank: "
        + ", ".join(sorted({host.name for host, _ in wrong})) + " does not fit the node on which the run meets.",
        commands=("hangdoc launch-diff FILE...   # before the next start",),
    )  # fmt: skip
