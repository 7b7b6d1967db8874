"""Nodes that were launched with different settings: number of nodes, rendezvous endpoint, run id, or one node rank twice."""

from collections import Counter
from collections.abc import Callable

import msgspec

from hangdoc.parse import natural
from hangdoc.reasoning.evidence import observed as addresses
from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.evidence.stack import MeetingCall, meeting_call_of
from hangdoc.reasoning.model.cause import LaunchesDiffer, Part
from hangdoc.reasoning.model.run import Run
from hangdoc.snapshot import Environment, Host, Launch, Process
from hangdoc.torch_facts import environment_names

# (its usual name, its value, whether it matters only before the rendezvous is complete)
_MUST_AGREE: tuple[tuple[str, Callable[[Part], str | None], bool], ...] = (
    ("--nnodes", lambda part: part.nodes if part.process.launch else None, False),
    ("WORLD_SIZE", lambda part: part.nodes if part.process.launch is None else None, False),
    ("init_method", lambda part: part.init_method, True),
    ("master address", lambda part: part.meets_at, True),
    ("master port", lambda part: part.port, True),
    ("run id", lambda part: part.run_id, False),
)


def find(run: Run) -> LaunchesDiffer | None:
    """All settings that differ between the nodes, else those that differ between the ranks."""
    stuck = _stuck(run)
    agents = _agents(run)
    found = _differences(run, agents, stuck)
    return _differences(run, _ranks(run, stuck), stuck) if found is None and (stuck or not agents) else found


def _differences(run: Run, parts: list[Part], stuck: bool) -> LaunchesDiffer | None:
    if len(parts) < 2:
        return None
    reference = _reference(run, parts)
    wrong: dict[str, Part] = {}
    differences = []
    for name, read, before_meeting in _MUST_AGREE:
        if before_meeting and not stuck:
            continue  # the rendezvous is complete: two spellings of one address
        if len({read(part) for part in parts}) > 1:
            differences.append(f"{name} is " + ", ".join(f"{read(part)} on {part.place}" for part in parts[:8]))
            wrong |= {part.place: part for part in parts if read(part) != read(reference)}
    claimed: dict[int, list[Part]] = {}
    for part in parts:
        if part.number is not None and part.process.launch is not None:
            claimed.setdefault(part.number, []).append(part)
    for number, both in claimed.items():
        if len(both) > 1:
            differences.append(f"node rank {number} is used by " + " and ".join(part.place for part in both))
            wrong |= {part.place: part for part in both if part is not reference}
    if not differences:
        return None
    return LaunchesDiffer(
        parts=tuple(parts), differences=tuple(differences), wrong=tuple(wrong.values()), reference=reference,
        met=not stuck, culprits=_culprits(run, list(wrong.values()), stuck),
    )  # fmt: skip


def _culprits(run: Run, wrong: list[Part], stuck: bool) -> tuple[int, ...]:
    hosts = {part.host.name for part in wrong}
    seen = [rank.rank for rank in run.ranks.values() if rank.host in hosts and len(hosts) < len(run.hosts)]
    return tuple(sorted({*seen, *(rank for part in wrong for rank in part.ranks if stuck)}))


def _agents(run: Run) -> list[Part]:
    """The agents of the nodes."""
    agents = [(h, p, p.launch) for h, p in run.launchers if p.launch is not None and p.launch.tool == "torchrun"]
    agents_on = Counter(host.name for host, _, _ in agents)
    alone = {name for name, number in agents_on.items() if number == 1}
    return [_agent(h, p, asked, h.name if h.name in alone else f"{h.name} (pid {p.pid})") for h, p, asked in agents]


def _ranks(run: Run, stuck: bool) -> list[Part]:
    """The ranks, if they were given different rendezvous endpoints."""
    seen = [
        (run.host[r.host], r.process, r.rank)
        for r in run.ranks.values()
        if r.process and isinstance(r.process.environment, Environment)
    ]
    calls = [meeting_call_of(process) if stuck else None for _, process, _ in seen]
    if None in calls:  # else a rank that has made the call would differ from one that has not
        calls = [None] * len(seen)
    ranks = [_rank(*one, call) for one, call in zip(seen, calls, strict=True)]
    if not stuck and any(one.nodes is None for one in ranks):
        # A launcher that becomes rank 0 itself (Lightning) passes the number of ranks in the call.
        ranks = [msgspec.structs.replace(one, nodes=None) for one in ranks]
    different = {(one.meets_at, one.port, one.nodes, one.init_method) for one in ranks}
    return ranks if len(different) > 1 else []


def _agent(host: Host, process: Process, asked: Launch, place: str) -> Part:
    address, _, port = (asked.endpoint or "").rpartition(":")
    per_node = natural(asked.nproc_per_node or "1")
    ranks: tuple[int, ...] = ()
    if asked.node_rank is not None and per_node is not None and per_node < 1024:
        ranks = tuple(range(asked.node_rank * per_node, (asked.node_rank + 1) * per_node))
    return Part(host, process, place, asked.nnodes, address or None, port or None, asked.run_id, asked.node_rank, ranks)


def _rank(host: Host, process: Process, number: int, call: MeetingCall | None) -> Part:
    variables = known.environment(process)
    method = call.init_method if call is not None else None
    size = call.world_size if call is not None else None
    nodes = str(size) if size is not None else variables.get("WORLD_SIZE")
    # Only `env://` reads these variables (torch/distributed/rendezvous.py).
    address, port = (variables.get(name) if method is None else None for name in ("MASTER_ADDR", "MASTER_PORT"))
    run_id = variables.get(environment_names.RUN_ID)
    return Part(host, process, f"rank {number}", nodes, address, port, run_id, number, (number,), method)


def _stuck(run: Run) -> bool:
    """Whether the nodes have not completed the rendezvous."""
    return all(one.first.in_rendezvous for one in run.classes)


def _reference(run: Run, parts: list[Part]) -> Part:
    """The part that the others must match: the node with the rendezvous endpoint, else the first node."""
    address, _ = run.endpoint
    owner = next(
        (p for p in parts if addresses.interface_with(p.host, addresses.namespace_of(p.process), address) is not None),
        None,
    )
    return owner or min(parts, key=lambda part: part.number or 0)
