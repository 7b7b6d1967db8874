"""What is wrong with the hardware of a run: its cards and their driver, the links between them (InfiniBand, RoCE, NVLink)."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hangdoc.diagnosis import Evidence, Severity
from hangdoc.phrases import duration
from hangdoc.reasoning.evidence.kernel import WEIGHTS, Weight, meaning_of, name_of
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.holds import Dead, Unseen
from hangdoc.reasoning.model.kinds import LaunchedNotFinished, SameCall, Spinning
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.card import Owners, cards_on, events_of, owners_of, owners_of_event, users_of
from hangdoc.snapshot import Card, CardEvent, Cards, Host, LinkPort, Links

_CONFIDENCE = {"ends": 0.95, "program": 0.85, "link": 0.7, "hint": 0.6}
_UNSURE = 0.8
"""By this, the confidence is multiplied if the driver does not name the ranks."""
_MOST_EVIDENCE = 8
_WAITS_FOR_CARDS = (LaunchedNotFinished, Spinning, SameCall)
_ACTIVE = "ACTIVE"
_LINK_ERRORS = frozenset(
    {
        "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
        "local_link_integrity_errors", "excessive_buffer_overrun_errors", "local_ack_timeout_err", "rnr_nak_retry_err",
    }
)  # fmt: skip
"""Counters that do not grow on a link in order. The others that are read (out of sequence, congestion marks, discards) also grow
on busy fabrics."""


class Fault(NamedTuple):
    """One kind of fault of the cards of a host."""

    host: Host
    cards: tuple[str, ...]
    """PCI addresses, or NVML's numbers of cards that have none; empty for the driver of all."""
    weight: Weight
    meaning: str
    """One clause."""
    owners: Owners
    severity: Severity
    confidence: float
    evidence: tuple[Evidence, ...]


class CardFault(Cause, frozen=True, kw_only=True):
    """A card on which kernels never finish."""

    NAME = "gpu-fault"
    fault: Fault


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


class _Sign(NamedTuple):
    """One fact about a card."""

    card: str
    weight: Weight
    meaning: str
    owners: Owners
    evidence: Evidence


# --- cards ---------------------------------------------------------------------------------------------------------------


def find_card_fault(run: Run, blockage: Blockage) -> CardFault | None:
    """The cause of a blockage in which ranks wait for their cards, or in which the rank that all wait for has a card that has
    failed. A driver that does not answer may answer later, so it is none."""
    if isinstance(blockage.kind, Dead | Unseen):
        return None
    for fault in find_faults(run):
        blamed, ranks = set(blockage.culprits), set(fault.owners.ranks)
        about = isinstance(blockage.kind, _WAITS_FOR_CARDS) or (blamed and blamed <= ranks)
        if about and fault.weight == "ends" and fault.cards and fault.severity == "error":
            return CardFault(fault=fault, culprits=fault.owners.ranks, ends="never")
    return None


def find_faults(run: Run) -> list[Fault]:
    """The faults of cards, the most severe first. A fault of a card that others use is none of the run."""
    waits = bool(run.blockages) or any(rank.label == "dead" for rank in run.ranks.values())
    faults: list[Fault] = []
    for host in run.hosts:
        if not users_of(run, host):
            continue
        faults += _faults_of_driver(run, host, waits=waits)
        by_meaning: dict[str, list[list[_Sign]]] = {}
        for signs in _by_card(_signs(run, host, waits=waits)):
            if signs[0].weight != "consequence":
                by_meaning.setdefault(signs[0].meaning, []).append(signs)
        faults += [_fault(host, alike, waits=waits) for alike in by_meaning.values()]
    return sorted(faults, key=lambda fault: (fault.severity != "error", WEIGHTS.index(fault.weight)))


def _faults_of_driver(run: Run, host: Host, *, waits: bool) -> Iterator[Fault]:
    cards = host.cards
    if not isinstance(cards, Cards) or cards.unanswered_seconds is None:
        return
    ranks = tuple(rank.rank for rank in users_of(run, host))
    asked = cards.problem or f"no answer for {duration(cards.unanswered_seconds)}"
    yield Fault(
        host=host,
        cards=(),
        weight="ends",
        meaning="the NVIDIA driver does not answer",
        owners=Owners(ranks, sure=True),
        severity="error" if waits else "warning",
        confidence=0.9,
        evidence=(Evidence(None, "card", f"{asked}; it takes some milliseconds otherwise"),),
    )


def _by_card(signs: Iterable[_Sign]) -> list[list[_Sign]]:
    """What is known of each card, the strongest first."""
    by_card: dict[str, list[_Sign]] = {}
    for sign in signs:
        by_card.setdefault(sign.card, []).append(sign)
    return [sorted(some, key=lambda sign: WEIGHTS.index(sign.weight)) for some in by_card.values()]


def _fault(host: Host, cards: list[list[_Sign]], *, waits: bool) -> Fault:
    """One fault of the cards for which the strongest sign is the same."""
    first = cards[0][0]
    strongest = [signs[0] for signs in cards]
    ranks = tuple(sorted({rank for sign in strongest for rank in sign.owners.ranks}))
    sure = all(sign.owners.sure for sign in strongest)
    severe = waits and bool(ranks) and (first.weight in ("ends", "link") or (first.weight == "program" and sure))
    evidence = [sign.evidence for signs in cards for sign in signs]
    return Fault(
        host=host,
        cards=tuple(sorted(sign.card for sign in strongest)),
        weight=first.weight,
        meaning=first.meaning,
        owners=Owners(ranks, sure),
        severity="error" if severe else "warning",
        confidence=_CONFIDENCE[first.weight] * (1 if sure else _UNSURE),
        evidence=tuple(evidence[:_MOST_EVIDENCE]),
    )


def _signs(run: Run, host: Host, *, waits: bool) -> Iterator[_Sign]:
    for event in events_of(run, host):
        if event.kind == "Xid" and (owners := owners_of_event(run, host, event)) is not None:
            xid = meaning_of(event)
            yield _Sign(event.bus_id, xid.weight, xid.meaning, owners, _kernel_line(event, _only_rank(owners)))
    for card in cards_on(host):
        facts = list(_facts(card, waits=waits))
        owners = owners_of(run, host, card) if facts else None
        if owners is not None:
            name = card.bus_id or f"card {card.index}"
            for weight, meaning, text in facts:
                evidence = Evidence(_only_rank(owners), "card", f"card {card.index} ({name}): {text}")
                yield _Sign(name, weight, meaning, owners, evidence)


def _facts(card: Card, *, waits: bool) -> Iterator[tuple[Weight, str, str]]:
    """Weight, meaning and text of what the driver knows of a card. Errors of its memory may be older than the run, so they count
    only where ranks wait."""
    if card.lost:
        yield "ends", "the driver has lost it", "it answers nothing (NVML_ERROR_GPU_IS_LOST)"
    if card.remapping_failed:
        yield "hint", "a row of its memory could not be replaced", "row remapping has failed"
    if card.uncorrected_errors and waits:
        count = card.uncorrected_errors
        text = f"{count} uncorrected ECC error{'s' * (count != 1)} since the driver was loaded"
        yield "hint", "its memory has errors that ECC could not correct", text


def _kernel_line(event: CardEvent, rank: int | None = None) -> Evidence:
    times = f", {event.count} times" if event.count > 1 else ""
    text = f"{name_of(event)} of {event.bus_id} {duration(event.seconds_ago)} ago{times}"
    return Evidence(rank, "kernel log", f"{text}: {event.text}" if event.text else text)


def _only_rank(owners: Owners) -> int | None:
    return owners.ranks[0] if len(owners.ranks) == 1 else None


# --- links between cards -------------------------------------------------------------------------------------------------


def find_link_faults(run: Run) -> list[LinkFault]:
    """The faults of links that ranks of the run use, the most severe first."""
    faults = [
        fault for host in run.hosts for fault in (*_ports(run, host), *_nvlinks(run, host), *_switches(run, host))
    ]
    return sorted(faults, key=lambda fault: (fault.severity != "error", -fault.confidence))


def _ports(run: Run, host: Host) -> Iterator[LinkFault]:
    ports = host.links.ports if isinstance(host.links, Links) else ()
    active = {port.device for port in ports if port.state == _ACTIVE}
    for port in ports:
        users = tuple(sorted(rank.rank for rank in run.on(host.name) if rank.pid is not None and rank.pid in port.pids))
        if not users:
            continue
        name = f"port {port.port} of {port.device}"
        grown = {counter: more for counter, more in port.grown.items() if counter in _LINK_ERRORS}
        if port.state != _ACTIVE and port.device not in active:
            state = f"{(port.state or 'in an unknown state').lower()} ({port.physical_state or 'unknown'})"
            severity: Severity = "error" if run.still_numbers.intersection(users) else "warning"
            yield LinkFault(host, users, severity, 0.9, f"{name} is {state}", True, (_port_line(port),))
        elif grown:
            counts = ", ".join(f"{counter} +{more}" for counter, more in sorted(grown.items()))
            text = f"errors of {name} grow ({counts})"
            yield LinkFault(host, users, "warning", 0.75, text, True, (_port_line(port),))


def _port_line(port: LinkPort) -> Evidence:
    counts = ", ".join(f"{name} +{more}" for name, more in sorted(port.grown.items())) or "no counter of errors grew"
    text = (
        f"{port.device}/{port.port} ({port.layer or 'unknown link'}): {port.state or '?'}, {port.physical_state or '?'}; in the "
        f"observation {port.received_bytes or 0} bytes received, {port.sent_bytes or 0} sent; {counts}"
    )
    return Evidence(None, "links", text)


def _nvlinks(run: Run, host: Host) -> Iterator[LinkFault]:
    """Cards with fewer active NVLinks than most others of the same model on the host. How many a model should have depends on the
    machine, so a card alone shows nothing."""
    cards = [card for card in cards_on(host) if card.links_active is not None]
    for card in cards:
        active = Counter(other.links_active or 0 for other in cards if other.name == card.name)
        usual, count = active.most_common(1)[0]
        owners = owners_of(run, host, card)
        if owners is None or 2 * count <= active.total() or (card.links_active or 0) >= usual:
            continue
        inactive = ", ".join(map(str, card.links_inactive)) or "all"
        text = f"card {card.index} has {card.links_active} active NVLinks, the others of {host.name} {usual}"
        line = Evidence(None, "card", f"card {card.index} ({card.bus_id}): NVLinks {inactive} inactive")
        yield LinkFault(host, owners.ranks, "warning", 0.75, text, False, (line,))


def _switches(run: Run, host: Host) -> Iterator[LinkFault]:
    """Errors of NVSwitches since the ranks began. All cards of the host are behind them."""
    users = tuple(rank.rank for rank in users_of(run, host))
    events = [event for event in events_of(run, host) if event.kind == "SXid" and meaning_of(event).weight == "link"]
    if users and events:
        text = f"an NVSwitch of {host.name} has reported a fatal error ({name_of(events[-1])})"
        severity: Severity = "error" if run.still else "warning"
        yield LinkFault(host, users, severity, 0.8, text, False, tuple(map(_kernel_line, events[-4:])))
