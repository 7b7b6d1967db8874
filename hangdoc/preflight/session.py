"""The talk between the nodes and whoever conducts it: reports, then calls, then sending all at once.

`conduct` is a generator of messages that go to all nodes and takes the answers that came in time; how they travel (ssh, torch's
store, not at all) is the driver's business. `Node` answers them."""

import contextlib
import secrets
from collections.abc import Callable, Generator, Mapping
from typing import Literal

import msgspec

from hangdoc.preflight import calls, node_report
from hangdoc.preflight.plan import MASTER, Link, NodeReport, Plan

ALL_PAIRS = 33
"""Up to so many nodes every pair is tried; of more, each node calls those at distances 1, 2, 4, ... on either side."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """To all nodes."""

    do: Literal["reports", "reach", "send", "end"]
    plan: Plan | None = None
    nodes: tuple[tuple[str, str, int, str], ...] = ()
    """Name, address, port and token of every node that answered."""


class NodeAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """From one node."""

    reports: NodeReport | None = None
    links: tuple[Link, ...] = ()


Conducting = Generator[Message, Mapping[str, NodeAnswer], tuple[list[NodeReport], list[Link]]]


class Node:
    """Answers messages."""

    def __init__(self, arguments: tuple[str, ...] | None = None) -> None:
        """`arguments` of the training script, where each node has its own; else the plan's."""
        self._arguments = arguments
        self._ear = calls.PortListener()
        self._at_master: calls.PortListener | None = None
        self._master: tuple[str, int] | None = None
        self._token = secrets.token_hex(8)

    def answer(self, message: Message) -> NodeAnswer:
        """Blocks for seconds at most; never raises for what can't be seen."""
        if message.do == "reports":
            plan = message.plan or Plan()
            if self._arguments is not None:
                plan = msgspec.structs.replace(plan, arguments=self._arguments)
            own = node_report.gather(plan)
            self._take_the_masters_place(plan, own)
            return NodeAnswer(reports=msgspec.structs.replace(own, port=self._ear.port, token=self._token))
        nodes = message.nodes
        me = next((index for index, node in enumerate(nodes) if node[3] == self._token), None)
        if me is None or message.do == "end":
            return NodeAnswer()
        name = nodes[me][0]
        if message.do == "reach":
            peers = [nodes[index][:3] for index in peers_of(me, len(nodes))]
            if self._master is not None:
                peers.append((MASTER, *self._master))
            return NodeAnswer(links=tuple(calls.reach(name, peers)))
        called, address, port, _ = nodes[(me + 1) % len(nodes)]
        rate = calls.throughput(address, port)
        outcome = "ok" if rate is not None else "broke off"
        return NodeAnswer(
            links=(Link(caller=name, called=called, target=f"{address}:{port}", outcome=outcome, mbit=rate),)
        )

    def _take_the_masters_place(self, plan: Plan, own: NodeReport) -> None:
        """Where the run will meet on this node and nobody is there yet, listen there, so that the others can try."""
        if plan.master is None:
            return
        address, _, port = plan.master.rpartition(":")
        self._master = (address, int(port))
        if own.is_master and own.holder is None:
            with contextlib.suppress(OSError):
                self._at_master = calls.PortListener(int(port))

    def close(self) -> None:
        """Take no more calls."""
        self._ear.close()
        if self._at_master is not None:
            self._at_master.close()


def peers_of(index: int, count: int) -> list[int]:
    """Whom a node calls."""
    if count <= ALL_PAIRS:
        return [other for other in range(count) if other != index]
    found, step = set[int](), 1
    while step < count:
        found |= {(index + step) % count, (index - step) % count}
        step *= 2
    return sorted(found - {index})


def conduct(plan: Plan) -> Conducting:
    """NodeReport of all nodes that answered, and what their calls came to."""
    first = yield Message("reports", plan=plan)
    known = [
        msgspec.structs.replace(answer.reports, node=name) for name, answer in sorted(first.items()) if answer.reports
    ]
    nodes = tuple(
        (one.node, one.address, one.port, one.token) for one in known if one.address and not _loopback(one.address)
    )
    if len(nodes) < 2:
        yield Message("end")
        return known, []
    reached = yield Message("reach", nodes=nodes)
    links = [link for answer in reached.values() for link in answer.links]
    sent = yield Message("send", nodes=nodes)
    rates = {(link.caller, link.called): link.mbit for answer in sent.values() for link in answer.links}
    yield Message("end")
    return known, [msgspec.structs.replace(link, mbit=rates.get((link.caller, link.called))) for link in links]


def drive(
    conducting: Conducting, ask: Callable[[Message], Mapping[str, NodeAnswer]]
) -> tuple[list[NodeReport], list[Link]]:
    """Conduct with a function that asks all nodes and waits."""
    message = next(conducting)
    while True:
        try:
            message = conducting.send(ask(message))
        except StopIteration as ended:
            result: tuple[list[NodeReport], list[Link]] = ended.value
            return result


def _loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
