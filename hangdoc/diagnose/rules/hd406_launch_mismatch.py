"""Nodes were launched with settings that do not fit together.

## What it finds

Agents of torchrun, on several hosts or on one, that belong to one run and disagree on the number of nodes, on the master's
address or port, on the run id, or of which two claim one node rank. Ranks that were started without a launcher and were given
different meeting points.

## Why it hangs

Each agent waits at the meeting point that it was told for the number of nodes that it was told. At another port nobody
comes; two nodes of one rank wait for the rank that none has. torchrun says nothing for 10 to 15 minutes.

## Evidence

The launch lines, side by side, and the frame in which each launcher waits. On one host two launches are taken for one run
only where they start the same program, their ranks complete each other and nobody listens at one of the meeting points.

## What to do

Launch every node with the same line but for `--node-rank`. `hangdoc launch-diff` compares the lines before the start.

## When it would be wrong

Where several runs of one program wait for nodes at the same time, agents of different runs may be taken for one. A run that
trains in spite of different `--nnodes` is not hung: the finding is then a warning.

## References

- torchrun: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hangdoc.diagnose import launch, network, words
from hangdoc.diagnose.model import Run, environment_of
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.parse import natural
from hangdoc.run_identity import is_loopback
from hangdoc.snapshot import Host, Process

CODE = "HD406"
NAME = "launch-mismatch"
EXPLAINS = ("HD401", "HD402", "HD901")


@dataclass(frozen=True)
class _Part:
    """A node's launcher, or a rank that was started without one, with what it was told."""

    host: Host
    process: Process
    place: str
    nodes: str | None
    address: str | None
    port: str | None
    run_id: str | None
    number: int | None
    """Node rank of a launcher, rank of a rank."""
    ranks: tuple[int, ...]
    """Those it stands for, as far as it says."""


# (what people call it, its value, whether it keeps the nodes apart only before they have met)
_MUST_AGREE: tuple[tuple[str, Callable[[_Part], str | None], bool], ...] = (
    ("--nnodes", lambda part: part.nodes if part.process.launch else None, False),
    ("WORLD_SIZE", lambda part: part.nodes if part.process.launch is None else None, False),
    ("master address", lambda part: "localhost" if is_loopback(part.address or "") else part.address, True),
    ("master port", lambda part: part.port, True),
    ("run id", lambda part: part.run_id, False),
)


def check(run: Run) -> Iterator[Finding]:
    """One finding for all that the nodes disagree on."""
    parts = _parts(run)
    if len(parts) < 2:
        return
    stuck = _stuck(run)
    reference = _reference(run, parts)
    wrong: dict[str, _Part] = {}
    differences = []
    for name, read, before_meeting in _MUST_AGREE:
        if before_meeting and not stuck:
            continue  # they have met: two spellings of one address
        if len({read(part) for part in parts}) > 1:
            differences.append(f"{name} is " + ", ".join(f"{read(part)} on {part.place}" for part in parts[:8]))
            wrong |= {part.place: part for part in parts if read(part) != read(reference)}
    claimed: dict[int, list[_Part]] = {}
    for part in parts:
        if part.number is not None and part.process.launch is not None:
            claimed.setdefault(part.number, []).append(part)
    for number, both in claimed.items():
        if len(both) > 1:
            differences.append(f"node rank {number} is claimed by " + " and ".join(part.place for part in both))
            wrong |= {part.place: part for part in both if part is not reference}
    if differences:
        yield _finding(run, parts, differences, list(wrong.values()), stuck=stuck)


def _parts(run: Run) -> list[_Part]:
    """The agents of the run's nodes; where it has none, its ranks, if they were told different meeting points."""
    agents = [(h, p) for h, p in run.launchers if p.launch is not None and p.launch.tool == "torchrun"]
    hosts = [host.name for host, _ in agents]
    if agents:
        return [_agent(h, p, h.name if hosts.count(h.name) == 1 else f"{h.name} (pid {p.pid})") for h, p in agents]
    by_name = {host.name: host for host in run.hosts}
    parts = [_rank(by_name[r.host], r.process, r.rank) for r in run.ranks.values() if r.process and r.host in by_name]
    return parts if len({(part.address, part.port, part.nodes) for part in parts}) > 1 else []


def _agent(host: Host, process: Process, place: str) -> _Part:
    asked = process.launch
    assert asked is not None  # noqa: S101  (only launchers with a launch get here)
    address, _, port = (asked.endpoint or "").rpartition(":")
    per_node = natural(asked.nproc_per_node or "1")
    known = asked.node_rank is not None and per_node is not None and per_node < 1024
    ranks = tuple((asked.node_rank or 0) * (per_node or 0) + n for n in range(per_node or 0)) if known else ()
    return _Part(
        host, process, place, asked.nnodes, address or None, port or None, asked.run_id, asked.node_rank, ranks
    )


def _rank(host: Host, process: Process, number: int) -> _Part:
    variables = environment_of(process)
    return _Part(
        host, process, f"rank {number}", variables.get("WORLD_SIZE"), variables.get("MASTER_ADDR"),
        variables.get("MASTER_PORT"), variables.get("TORCHELASTIC_RUN_ID"), number, (number,),
    )  # fmt: skip


def _stuck(run: Run) -> bool:
    """Whether the nodes have not met."""
    waiting = run.waiting()
    return not run.ranks or (
        len(waiting) == len(run.ranks) and all(r.wait is not None and r.wait.kind == "rendezvous" for r in waiting)
    )


def _reference(run: Run, parts: list[_Part]) -> _Part:
    """What the others must fit: the node on which the run meets, else the first node."""
    address = (run.master or "").rpartition(":")[0]
    owner = next(
        (p for p in parts if network.interface_with(p.host, network.namespace_of(p.process), address) is not None), None
    )
    return owner or min(parts, key=lambda part: part.number or 0)


def _finding(run: Run, parts: list[_Part], differences: list[str], wrong: list[_Part], *, stuck: bool) -> Finding:
    old = min(part.process.started_seconds_ago for part in parts) >= run.patience
    hosts = {part.host.name for part in wrong}
    seen = [rank.rank for rank in run.ranks.values() if rank.host in hosts and len(hosts) < len(run.hosts)]
    culprits = {*seen, *(rank for part in wrong for rank in part.ranks if stuck)}
    return words.finding(
        CODE,
        NAME,
        severity=("error" if old else "info") if stuck else "warning",
        confidence=0.92 if stuck else 0.7,
        culprits=sorted(culprits),
        victims=sorted(set(run.ranks) - culprits) if stuck else (),
        summary=f"the nodes were launched differently: {'; '.join(differences)}"
        + (", so they never meet" if stuck else ""),
        evidence=[
            Evidence(rank=None, probe="processes", text=f"{part.place}{_pid(part)}: {_line(part)}"[:300])
            for part in parts[:8]
        ]
        + [
            Evidence(rank=None, probe="stacks", text=f"{part.place}: torchrun waits in {frame.function}")
            for part in parts[:8]
            if (frame := launch.in_rendezvous(part.process)) is not None
        ],
        remedy="Launch every node with the same line but for "
        + ("--node-rank" if parts[0].process.launch else "RANK and LOCAL_RANK")
        + f": {', '.join(sorted(part.place for part in wrong))} does not fit {_reference(run, parts).place}.",
        commands=("hangdoc launch-diff FILE...   # before the next start",),
    )


def _pid(part: _Part) -> str:
    return "" if "pid" in part.place else f", pid {part.process.pid}"


def _line(part: _Part) -> str:
    """The launch line; of a rank without a launcher with the variables that say where it meets."""
    line = " ".join(part.process.argv)
    if part.process.launch is not None:
        return line
    return f"RANK={part.number} WORLD_SIZE={part.nodes} MASTER_ADDR={part.address} MASTER_PORT={part.port} {line}"
