"""What is wrong with the links between the cards of a run: ports of InfiniBand and RoCE, NVLinks, NVSwitches."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from hangdoc.diagnosis import Evidence, Severity
from hangdoc.phrases import duration
from hangdoc.reasoning.evidence.kernel import meaning_of, name_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.card import cards_on, events_of, owners_of, users_of
from hangdoc.snapshot import Host, LinkPort, Links

_ACTIVE = "ACTIVE"
_ERRORS = frozenset(
    {
        "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
        "local_link_integrity_errors", "excessive_buffer_overrun_errors", "local_ack_timeout_err", "rnr_nak_retry_err",
    }
)  # fmt: skip
"""Counters that do not grow on a link in order. The others that are read (out of sequence, congestion marks, discards) also grow
on busy fabrics."""


class LinkFault(NamedTuple):
    """One fault of a link."""

    host: Host
    ranks: tuple[int, ...]
    severity: Severity
    confidence: float
    summary: str
    """One clause, without the ranks."""
    is_port: bool
    """A port of InfiniBand or RoCE; else an NVLink or a switch."""
    evidence: tuple[Evidence, ...]


def find_link_faults(run: Run) -> list[LinkFault]:
    """The faults of links that ranks of the run use, the most severe first."""
    found = [fault for host in run.hosts for fault in (*_ports(run, host), *_nvlinks(run, host), *_switches(run, host))]
    return sorted(found, key=lambda fault: (fault.severity != "error", -fault.confidence))


def _ports(run: Run, host: Host) -> Iterator[LinkFault]:
    ports = host.links.ports if isinstance(host.links, Links) else ()
    active = {port.device for port in ports if port.state == _ACTIVE}
    still = {number for one in run.still for number in one.ranks}
    for port in ports:
        users = tuple(sorted(rank.rank for rank in run.on(host.name) if rank.pid is not None and rank.pid in port.pids))
        if not users:
            continue
        name = f"port {port.port} of {port.device}"
        grown = {counter: more for counter, more in port.grown.items() if counter in _ERRORS}
        if port.state != _ACTIVE and port.device not in active:
            state = f"{(port.state or 'in an unknown state').lower()} ({port.physical_state or 'unknown'})"
            severity: Severity = "error" if still & set(users) else "warning"
            yield _port(host, port, users, severity, 0.9, f"{name} is {state}")
        elif grown:
            counts = ", ".join(f"{counter} +{more}" for counter, more in sorted(grown.items()))
            yield _port(host, port, users, "warning", 0.75, f"errors of {name} grow ({counts})")


def _port(
    host: Host, port: LinkPort, users: tuple[int, ...], severity: Severity, confidence: float, summary: str
) -> LinkFault:
    counts = ", ".join(f"{name} +{more}" for name, more in sorted(port.grown.items())) or "no counter of errors grew"
    text = (
        f"{port.device}/{port.port} ({port.layer or 'unknown link'}): {port.state or '?'}, {port.physical_state or '?'}; in the "
        f"observation {port.received_bytes or 0} bytes received, {port.sent_bytes or 0} sent; {counts}"
    )
    return LinkFault(host, users, severity, confidence, summary, True, (Evidence(None, "links", text),))


def _nvlinks(run: Run, host: Host) -> Iterator[LinkFault]:
    """Cards with fewer active NVLinks than most others of the same model on the host. How many a model should have depends on the
    machine, so a card alone shows nothing."""
    cards = [card for card in cards_on(host) if card.links_active is not None]
    usual = {
        name: Counter(card.links_active or 0 for card in cards if card.name == name).most_common(1)[0]
        for name in {card.name for card in cards}
    }
    for card in cards:
        links, count = usual[card.name]
        alike = sum(one.name == card.name for one in cards)
        owners = owners_of(run, host, card)
        if owners is None or 2 * count <= alike or (card.links_active or 0) >= links:
            continue
        text = (
            f"card {card.index} ({card.bus_id}): NVLinks {', '.join(map(str, card.links_inactive)) or 'all'} inactive"
        )
        yield LinkFault(
            host=host,
            ranks=owners.ranks,
            severity="warning",
            confidence=0.75,
            summary=f"card {card.index} has {card.links_active} active NVLinks, the others of {host.name} {links}",
            is_port=False,
            evidence=(Evidence(None, "card", text),),
        )


def _switches(run: Run, host: Host) -> Iterator[LinkFault]:
    """Errors of NVSwitches since the ranks began. All cards of the host are behind them."""
    users = tuple(rank.rank for rank in users_of(run, host))
    events = [one for one in events_of(run, host) if one.kind == "SXid" and meaning_of(one).weight == "link"]
    if users and events:
        last = events[-1]
        yield LinkFault(
            host=host,
            ranks=users,
            severity="error" if run.still else "warning",
            confidence=0.8,
            summary=f"an NVSwitch of {host.name} has reported a fatal error ({name_of(last)})",
            is_port=False,
            evidence=tuple(
                Evidence(
                    None, "kernel log", f"{name_of(one)} of {one.bus_id} {duration(one.seconds_ago)} ago: {one.text}"
                )
                for one in events[-4:]
            ),
        )
