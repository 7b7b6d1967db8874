"""Checks of names, ports, interfaces and links between the nodes. Pure."""

import ipaddress
from collections.abc import Iterator, Sequence

from hangdoc.phrases import duration
from hangdoc.preflight.agreement import agree
from hangdoc.preflight.plan import MASTER, Agent, Check, Link, NodeReport, Plan
from hangdoc.reasoning.evidence.observed import within
from hangdoc.run_identity import is_loopback
from hangdoc.snapshot import Interface, Machine, Unavailable
from hangdoc.torch_facts.environment_names import GLOO_INTERFACE, NCCL_INTERFACE

_LOW_BANDWIDTH = 200.0
"""Below this throughput in Mbit/s, the all-reduce of gradients dominates every step."""
_TOGETHER = "all nodes are on this host"
"""Under which a loopback address harms no launch; unknown if only one host was checked."""
_VIRTUAL = (
    "docker",
    "br-",
    "virbr",
    "veth",
    "tun",
    "tap",
    "wg",
    "tailscale",
    "zt",
    "cni",
    "flannel",
    "vmnet",
    "vboxnet",
)


def names(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """The master's name resolves on all nodes, to the same address."""
    master = (plan.master or "").rpartition(":")[0]
    passes, judged = True, [report for report in reports if not _reaches_itself(master, report, reports)]
    for report in judged:
        addresses = report.resolved.get(master)
        if master and not isinstance(addresses, tuple):
            why = addresses.reason if addresses is not None else "not resolved"
            yield Check(name="master's name", status="fail", nodes=(report.node,), text=f"{report.node}: {why}",
                        remedy=f"Add {master} to DNS or to /etc/hosts on {report.node}, or use its address.")  # fmt: skip
        elif _is_loopback(addresses) and _may_be_apart(reports, plan):
            passes = False
            yield _judge_loopback(master, report, plan, alone=len(reports) == 1)
    answers = {
        report.node: ", ".join(answer) if isinstance(answer := report.resolved.get(master), tuple) else None
        for report in judged
    }
    if master and None not in answers.values():
        remedy = "Nodes that resolve it differently connect to different machines. Use an address."
        same = agree("master's name", {node: f"{master} is {value}" for node, value in answers.items()}, remedy, "warn")
        if passes or same.status != "pass":
            yield same


def _is_loopback(addresses: tuple[str, ...] | Unavailable | None) -> bool:
    return isinstance(addresses, tuple) and all(map(is_loopback, addresses))


def _reaches_itself(master: str, report: NodeReport, reports: Sequence[NodeReport]) -> bool:
    """Whether a node is the master, whose name it resolves to loopback and another node to an address of it. Debian gives each
    host's own name such an address."""
    mine = (
        {a for each in report.machine.interfaces for a in each.addresses}
        if isinstance(report.machine, Machine)
        else set()
    )
    others = [other.resolved.get(master) for other in reports if other is not report]
    named = {
        address for answer in others if isinstance(answer, tuple) for address in answer if not is_loopback(address)
    }
    return _is_loopback(report.resolved.get(master)) and not named.isdisjoint(mine)


def _judge_loopback(master: str, report: NodeReport, plan: Plan, *, alone: bool) -> Check:
    """A master that a node resolves to itself. All nodes do so with a loopback address. Of a name, the master itself may do so;
    `alone`, it is not known what the others make of it."""
    addresses = report.resolved.get(master)
    shown = ", ".join(addresses) if isinstance(addresses, tuple) else ""
    itself = f"{report.node} resolves {master} to itself ({shown})"
    remedy = "On several hosts, use the master's address in their network."
    if alone and not is_loopback(master) and not plan.node_rank:
        text = f"{itself}, which only the master may do, and how the other nodes resolve it was not checked"
        return Check(name="master's name", status="unknown", text=text, remedy=remedy)
    who, unless = "each node" if is_loopback(master) else "it", _TOGETHER if alone else ""
    text = f"{itself}, so {who} connects to itself{_name_condition(unless)}"
    return Check(name="master's name", status="fail", nodes=(report.node,), unless=unless, text=text, remedy=remedy)


def _name_condition(unless: str) -> str:
    return f", unless {unless}" if unless else ""


def _count_nodes(reports: Sequence[NodeReport], plan: Plan) -> int:
    """The nodes of the launch, or at least so many; not all of them need be checked."""
    return max(len(reports), plan.nodes or (plan.node_rank or 0) + 1)


def _may_be_apart(reports: Sequence[NodeReport], plan: Plan) -> bool:
    """Whether the launch has several nodes, and they are not known to be on one host: that all reports are of one, or that the
    other nodes already run on it."""
    nodes = _count_nodes(reports, plan)
    if nodes == 1:
        return False
    if len(reports) == 1:
        return len(_other_agents(reports[0], reports, plan)) + 1 < nodes
    places = {
        (report.machine_id, report.machine.net_namespace if isinstance(report.machine, Machine) else None)
        for report in reports
    }
    return len(reports) < nodes or len(places) > 1 or any(None in place for place in places)


def _other_agents(report: NodeReport, reports: Sequence[NodeReport], plan: Plan) -> list[Agent]:
    """The waiting launchers on a node that are other nodes of the launch, one for each node rank. If as many wait as the launch
    has nodes, they are another run of the same line."""
    waiting = {(each.machine_id or each.node, agent.pid) for each in reports for agent in each.agents}
    if len(waiting) >= _count_nodes(reports, plan):
        return []
    if plan.node_rank is None:
        return list(report.agents)
    by_rank = {agent.node_rank or 0: agent for agent in report.agents}  # 0 is torchrun's default
    return [agent for node_rank, agent in by_rank.items() if node_rank != plan.node_rank]


def own_names(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """The address that Gloo publishes of each node can be reached from the others."""
    for report in reports:
        own = report.resolved.get(report.name)
        named = report.environment.get(GLOO_INTERFACE)
        alone = not _may_be_apart(reports, plan)
        what = ", ".join(own) if isinstance(own, tuple) else (own.reason if own is not None else "not resolved")
        if isinstance(own, tuple) and not all(is_loopback(a) for a in own):
            yield Check(name="own name", status="pass", text=f"{report.node}: {report.name} is {', '.join(own)}")
        elif _names_unusable(report):
            continue  # the check of interfaces fails
        elif not named and alone and plan.nodes is None and len(reports) == 1:
            yield Check(name="own name", status="unknown", nodes=(report.node,),
                        text=f"{report.node}: {report.name} is {what}, which other nodes can't use. The line does not say "
                        "whether there are others",
                        remedy="With several nodes, set GLOO_SOCKET_IFNAME to the interface that they share.")  # fmt: skip
        elif named or alone:
            reason = f"{GLOO_INTERFACE}={named} is used" if named else "all ranks are on this host"
            yield Check(
                name="own name",
                status="pass",
                text=f"{report.node}: {report.name} is {what}, which other nodes can't use, but {reason}",
            )
        else:
            harmless = _all_lower(report, reports)
            unless = _TOGETHER if len(reports) == 1 else ""
            text = (
                f"{report.node}: {report.name} is {what}, so the other nodes would connect to themselves"
                f"{_name_condition(unless)} (HD405)"
            )
            yield Check(name="own name", status="warn" if harmless else "fail", nodes=(report.node,), unless=unless,
                        text=text + (". This is harmless while this node only connects to others" if harmless else ""),
                        remedy=f"Set GLOO_SOCKET_IFNAME on {report.node} to the interface that the nodes share, or correct the "
                        f"address of {report.name} in its /etc/hosts.")  # fmt: skip


def _all_lower(report: NodeReport, reports: Sequence[NodeReport]) -> bool:
    """Whether all other nodes have lower addresses than this one. With Gloo, the rank with the lower address listens."""
    try:
        mine = ipaddress.ip_address(report.address or "")
        others = [ipaddress.ip_address(other.address or "") for other in reports if other is not report]
    except ValueError:
        return False
    return bool(others) and all(other.version == mine.version and int(other) < int(mine) for other in others)


def port(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """The master port is free, and all nodes can connect to it."""
    if plan.master is None:
        return
    origin = f" ({plan.master_origin})" if plan.master_origin is not None else ""
    for report in reports:
        if (holder := report.holder) is not None:
            old = (
                f", started {duration(holder.started_seconds_ago)} ago"
                if holder.started_seconds_ago is not None
                else ""
            )
            orphan = ", an orphan" if holder.orphan else ""
            command = report.holder_command or holder.name
            if holder.pid in [agent.pid for agent in _other_agents(report, reports, plan)]:
                yield Check(name="master port", status="pass",
                            text=f"{holder.port}{origin} on {report.node} belongs to a node of this launch, pid {holder.pid} "
                            f"({command}{old})")  # fmt: skip
                return
            who = (
                f"pid {holder.pid} ({command}{old}{orphan})" if holder.pid else "another user's or container's process"
            )
            remedy = f"End that process if it belongs to an earlier run, or use another {plan.port_setting}."
            if not holder.pid:
                remedy = f"Use another {plan.port_setting}, or ask the user of that process to end it."
            elif report.holder_role is not None:
                who += f", {'a rank' if report.holder_role == 'rank' else 'the launcher'} of another run"
                remedy = f"In use: use another {plan.port_setting}, or end that run if it is no longer needed."
            yield Check(
                name="master port",
                status="fail",
                nodes=(report.node,),
                text=f"{holder.port}{origin} on {report.node} belongs to {who} (HD402)",
                remedy=remedy,
            )
            return
        if report.port_error is not None:
            yield Check(name="master port", status="fail", nodes=(report.node,),
                        text=f"{plan.master}{origin} cannot be bound on {report.node}: {report.port_error}",
                        remedy=f"Use another {plan.port_setting}.")  # fmt: skip
            return
    if not any(report.is_master for report in reports):
        alone = len(reports) == 1
        who = f"no interface of {reports[0].node}" if alone else "no node"
        yield Check(name="master port", status="unknown" if alone else "fail",
                    text=f"{who} has the address of {plan.master}{origin}",
                    remedy=_find_master(plan.node_rank if alone else None, plan.address_setting))  # fmt: skip
        return
    calls = [link for link in links if link.called == MASTER]
    for link in calls:
        if link.outcome != "ok":
            yield Check(name="master port", status="fail", nodes=(link.caller,),
                        text=f"{link.caller} cannot connect to {link.target}: {link.outcome}",
                        remedy=f"Open the port on the master, or correct {plan.address_setting}.")  # fmt: skip
    if all(link.outcome == "ok" for link in calls):
        reached = f", and {len(calls)} nodes can connect to it" if calls else ""
        yield Check(name="master port", status="pass", text=f"{plan.master}{origin} is free{reached}")


def _find_master(node_rank: int | None, setting: str) -> str:
    """What to do where no node has the master's address. `node_rank`: of the only node that was checked, if its line gives it."""
    if node_rank == 0:
        return f"Node 0, which the line starts, must have it: run preflight on that node, or correct {setting}."
    where = "node 0, which must have it" if node_rank is not None else "all nodes"
    return f"Run preflight on {where}, or correct {setting}."


def interfaces(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """The interfaces in SOCKET_IFNAME variables exist, are up, and are in a network that all nodes share."""
    shared = _find_shared_networks([report for report in reports if isinstance(report.machine, Machine)])
    for report in reports:
        if not isinstance(report.machine, Machine):
            continue
        interfaces = report.machine.interfaces
        for variable in (GLOO_INTERFACE, NCCL_INTERFACE):
            name = report.environment.get(variable)
            if name and not _is_list(name):
                yield _check_named_interface(report, variable, name, interfaces, shared)
        used = next((i for i in interfaces if report.address in i.addresses), None)
        if used is None:
            continue
        card = next((card for card in report.cards if card.name == used.name), None)
        loopback = is_loopback(report.address or "")
        if card is not None and not (
            loopback and _may_be_apart(reports, plan)
        ):  # which `own_names` and HD404 are about
            speed = f", {card.speed_mbit:,} Mbit/s" if card.speed_mbit is not None else ""
            kind = "loopback" if loopback else "wireless" if card.wireless else "wired"
            text = f"{report.node} uses {used.name}: {kind}{speed}, MTU {card.mtu or 'unknown'}"
            yield Check(name="link", status="warn" if card.wireless else "pass", text=text,
                        nodes=(report.node,) if card.wireless else (),
                        remedy="Use a cable. Every step waits for the slowest link." if card.wireless else "")  # fmt: skip
        if used.name.startswith(_VIRTUAL) and not report.environment.get(GLOO_INTERFACE):
            yield Check(name="interface", status="warn", nodes=(report.node,),
                        text=f"{report.node} will use {used.name} ({report.address}), which is a bridge, a tunnel, "
                        "or a container's interface",
                        remedy="Set GLOO_SOCKET_IFNAME to the interface that the nodes share.")  # fmt: skip
    sizes = {link.mtu for link in links if link.mtu}
    if len(sizes) > 1:
        yield Check(name="MTU", status="warn", text=f"connections have different MTUs: {', '.join(map(str, sorted(sizes)))}",
                    remedy="Set the same MTU on all nodes. Otherwise connections open, but large packets get lost.")  # fmt: skip


def _find_shared_networks(reports: Sequence[NodeReport]) -> set[str]:
    """The networks that all nodes are in."""
    each = [
        {n for i in report.machine.interfaces for n in i.networks if not is_loopback(n)}
        for report in reports
        if isinstance(report.machine, Machine)
    ]
    return set.intersection(*each) if each else set()


def _check_named_interface(
    report: NodeReport, variable: str, name: str, interfaces: tuple[Interface, ...], shared: set[str]
) -> Check:
    interface = next((i for i in interfaces if i.name == name), None)
    remedy = f"Set {variable} on {report.node} to the interface that the nodes share."
    if (why := _find_fault(name, interfaces)) is not None:
        return Check(name="interface", status="fail", nodes=(report.node,), remedy=remedy,
                     text=f"{report.node}: {variable}={name}, but {name} {why} (HD404)")  # fmt: skip
    assert interface is not None  # noqa: S101
    if shared and not any(within(a, network) for a in interface.addresses for network in shared):
        return Check(name="interface", status="fail", nodes=(report.node,), remedy=remedy,
                     text=f"{report.node}: {variable}={name} ({interface.addresses[0]}) is in no network that all nodes "
                     f"share ({', '.join(sorted(shared))}) (HD404)")  # fmt: skip
    return Check(name="interface", status="pass", text=f"{report.node}: {name} is up, {interface.addresses[0]}")


def _is_list(name: str) -> bool:
    """Whether the value of a variable names several interfaces, or others than those."""
    return any(c in name for c in ",^=")


def _find_fault(name: str, interfaces: tuple[Interface, ...]) -> str | None:
    """Why no peer can reach an interface of the node; None if one may."""
    interface = next((i for i in interfaces if i.name == name), None)
    if interface is None:
        return f"does not exist there (it has {', '.join(i.name for i in interfaces)})"
    if not interface.up:
        return "is down"
    if not any(":" not in a for a in interface.addresses):
        return "has no address"
    return "is loopback" if all(is_loopback(a) for a in interface.addresses) else None


def _names_unusable(report: NodeReport) -> bool:
    """Whether a variable names an interface that Gloo cannot use, so that the own name is not looked at."""
    name = report.environment.get(GLOO_INTERFACE)
    seen = report.machine.interfaces if isinstance(report.machine, Machine) else ()
    return bool(name and seen and not _is_list(name) and _find_fault(name, seen))


def pairs(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """Every node can connect to every other on ephemeral ports."""
    if not links:
        return
    links = [link for link in links if link.called != MASTER]
    bad = [link for link in links if link.outcome != "ok"]
    for link in bad[:16]:
        how = {
            "timeout": "no reply: a firewall drops the packets, or there is no route",
            "refused": "refused: no process listens there, or a firewall rejects the connection",
            "unreachable": "no route",
        }.get(link.outcome, link.outcome)
        back = next((other for other in links if (other.caller, other.called) == (link.called, link.caller)), None)
        one_way = "; the other direction works" if back is not None and back.outcome == "ok" else ""
        yield Check(name="connections", status="fail", nodes=(link.caller, link.called),
                    text=f"{link.caller} to {link.called} ({link.target}): {how}{one_way} (HD403)",
                    remedy=f"Allow connections from {link.caller} to {link.called} on ephemeral ports "
                    "(net.ipv4.ip_local_port_range). Gloo needs both directions.")  # fmt: skip
    if len(bad) > 16:
        yield Check(name="connections", status="fail", text=f"and {len(bad) - 16} more pairs")
    if not bad:
        yield Check(name="connections", status="pass", text=f"all {len(links)} connections on ephemeral ports work")


def speed(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """The throughput of the slowest link, and how long an all-reduce over it takes."""
    link = slowest(links)
    if link is None or link.mbit is None:
        return
    rtts = [link.rtt_ms for link in links if link.rtt_ms is not None]
    text = f"slowest {link.mbit:,.0f} Mbit/s ({link.caller} to {link.called}), round trip up to {max(rtts, default=0):.2f} ms"
    status = "warn" if link.mbit < _LOW_BANDWIDTH else "pass"
    seconds = all_reduce_seconds(plan.parameters, link.mbit, len(reports))
    if seconds is not None:
        text += (
            f"; an all-reduce of {plan.parameters:,} fp32 gradients will take about {_describe_time(seconds)} per step"
        )
        text += f", so {len(reports)} nodes are faster than one only if each computes much longer than that per step"
    slow = status == "warn"
    yield Check(name="throughput", status=status, text=text, nodes=(link.caller, link.called) if slow else (),
                remedy="Use a faster link, fewer steps (gradient accumulation), or one node." if slow else "")  # fmt: skip


def slowest(links: Sequence[Link]) -> Link | None:
    """The measured link with the lowest throughput."""
    return min((link for link in links if link.mbit), key=lambda link: link.mbit or 0.0, default=None)


def all_reduce_seconds(parameters: int | None, mbit: float, nodes: int) -> float | None:
    """Seconds for a ring all-reduce of fp32 gradients over links of this rate: it sends 2 (n - 1) / n × parameters × 4 bytes over
    each link. None for one node or an unknown model."""
    if not parameters or nodes < 2:
        return None
    return 2 * (nodes - 1) / nodes * parameters * 4 * 8 / (mbit * 1e6)


def _describe_time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else duration(seconds)
