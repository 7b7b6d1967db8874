"""All checks of reports and links. Pure."""

from collections.abc import Callable, Iterator, Sequence

from hangdoc.preflight import network_checks as network
from hangdoc.preflight import node_checks as node
from hangdoc.preflight import room_checks
from hangdoc.preflight.plan import Check, Link, NodeReport, Plan

# A new check is one function and one word here. The checks are in the order in which their problems should be fixed.
_CHECKS: tuple[Callable[[Sequence[NodeReport], Sequence[Link], Plan], Iterator[Check]], ...] = (
    network.names, network.own_names, network.port, network.interfaces, network.pairs, network.speed,
    node.options, node.cards, node.counted_cards, node.counted_ranks, node.versions, node.data, node.arguments, node.left_over,
    room_checks.room, node.attach,
)  # fmt: skip


def all_checks(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> list[Check]:
    """The results of all checks."""
    return [check for run_check in _CHECKS for check in run_check(reports, links, plan)]
