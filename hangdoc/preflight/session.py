"""The session between the nodes: first reports, then test connections, then a throughput test on all nodes at the same time.

`conduct` is a generator: it yields messages for all nodes, and receives the answers that came in time. The caller transports them
(ssh, torch's store, or a function call on one node). `Node` answers them."""

import contextlib
import secrets
from collections.abc import Callable, Generator, Mapping
from typing import Literal

import msgspec

from hangdoc.preflight import connections, node_report
from hangdoc.preflight.plan import MASTER, Link, NodeReport, Plan
from hangdoc.run_identity import is_loopback

ALL_PAIRS = 33
"""Up to this number of nodes, every pair is tested. With more, each node connects to those at distances 1, 2, 4, ... on both
sides."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to all nodes."""

    do: Literal["reports", "reach", "send", "end"]
    plan: Plan | None = None
    nodes: tuple[tuple[str, str, int, str], ...] = ()
    """Name, address, port and token of every node that answered."""
    nonce: str = ""
    """An answer repeats it."""


class NodeAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of one node."""

    reports: NodeReport | None = None
    links: tuple[Link, ...] = ()
    nonce: str = ""
    """That of the message."""


Conducting = Generator[Message, Mapping[str, NodeAnswer], tuple[list[NodeReport], list[Link]]]


class Node:
    """Answers messages on one node."""

    def __init__(self, arguments: tuple[str, ...] | None = None) -> None:
        """`arguments` are those of the training script on this node; None: use those of the plan."""
        self._arguments = arguments
        self._listener = connections.PortListener()
        self._master_listener: connections.PortListener | None = None
        self._master: tuple[str, int] | None = None
        self._token = secrets.token_hex(8)

    def answer(self, message: Message) -> NodeAnswer:
        """Answer a message. Blocks for some seconds at most. Never raises."""
        if message.do == "reports":
            plan = message.plan or Plan()
            if self._arguments is not None:
                plan = msgspec.structs.replace(plan, arguments=self._arguments)
            own = node_report.gather(plan)
            self._listen_on_master_port(plan, own)
            return NodeAnswer(reports=msgspec.structs.replace(own, port=self._listener.port, token=self._token))
        nodes = message.nodes
        me = next((index for index, node in enumerate(nodes) if node[3] == self._token), None)
        if me is None or message.do == "end":
            return NodeAnswer()
        name = nodes[me][0]
        if message.do == "reach":
            peers = [nodes[index][:3] for index in peers_of(me, len(nodes))]
            if self._master is not None:
                peers.append((MASTER, *self._master))
            return NodeAnswer(links=tuple(connections.reach(name, peers)))
        called, address, port, _ = nodes[(me + 1) % len(nodes)]
        rate = connections.throughput(address, port)
        outcome = "ok" if rate is not None else "the connection was lost"
        return NodeAnswer(
            links=(Link(caller=name, called=called, target=f"{address}:{port}", outcome=outcome, mbit=rate),)
        )

    def _listen_on_master_port(self, plan: Plan, own: NodeReport) -> None:
        """Listen on the master port if this node is the master and the port is free, so that other nodes can test it."""
        if plan.master is None:
            return
        address, _, port = plan.master.rpartition(":")
        self._master = (address, int(port))
        if own.is_master and own.holder is None:
            with contextlib.suppress(OSError):
                self._master_listener = connections.PortListener(int(port))

    def close(self) -> None:
        """Close all listeners."""
        self._listener.close()
        if self._master_listener is not None:
            self._master_listener.close()


def peers_of(index: int, count: int) -> list[int]:
    """The positions of the nodes to which the node at `index` connects, of `count` nodes."""
    if count <= ALL_PAIRS:
        return [other for other in range(count) if other != index]
    peers, step = set[int](), 1
    while step < count:
        peers |= {(index + step) % count, (index - step) % count}
        step *= 2
    return sorted(peers - {index})


def conduct(plan: Plan) -> Conducting:
    """The messages of a session. Returns the reports of all nodes that answered, and the links between them."""
    first = yield Message("reports", plan=plan)
    reports = [
        msgspec.structs.replace(answer.reports, node=name) for name, answer in sorted(first.items()) if answer.reports
    ]
    nodes = tuple(
        (report.node, report.address, report.port, report.token)
        for report in reports
        if report.address and not is_loopback(report.address)
    )
    if len(nodes) < 2:
        yield Message("end")
        return reports, []
    reached = yield Message("reach", nodes=nodes)
    links = [link for answer in reached.values() for link in answer.links]
    sent = yield Message("send", nodes=nodes)
    rates = {(link.caller, link.called): link.mbit for answer in sent.values() for link in answer.links}
    yield Message("end")
    return reports, [msgspec.structs.replace(link, mbit=rates.get((link.caller, link.called))) for link in links]


def drive(
    conducting: Conducting, ask: Callable[[Message], Mapping[str, NodeAnswer]]
) -> tuple[list[NodeReport], list[Link]]:
    """Run a session. `ask` sends a message to all nodes and returns their answers."""
    message = next(conducting)
    while True:
        try:
            message = conducting.send(ask(message))
        except StopIteration as ended:
            result: tuple[list[NodeReport], list[Link]] = ended.value
            return result
