"""What is wrong with the cards of a run: errors in the kernel log, lost cards, memory errors, a driver that does not answer."""

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
from hangdoc.snapshot import Card, CardEvent, Cards, Host

_CONFIDENCE = {"ends": 0.95, "program": 0.85, "link": 0.7, "hint": 0.6}
_UNSURE = 0.8
"""By this, the confidence is multiplied if the driver does not name the ranks."""
_MOST_EVIDENCE = 8
_WAITS_FOR_CARDS = (LaunchedNotFinished, Spinning, SameCall)


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


class _Sign(NamedTuple):
    """One fact about a card."""

    card: str
    weight: Weight
    meaning: str
    owners: Owners
    evidence: Evidence


def find_faults(run: Run) -> list[Fault]:
    """The faults of cards, the most severe first. A fault of a card that others use is none of the run."""
    waits = bool(run.blockages) or any(rank.label == "dead" for rank in run.ranks.values())
    found: list[Fault] = []
    for host in run.hosts:
        if not users_of(run, host):
            continue
        found += _of_driver(run, host, waits=waits)
        by_meaning: dict[str, list[list[_Sign]]] = {}
        for signs in _by_card(_signs(run, host, waits=waits)):
            if signs[0].weight != "consequence":
                by_meaning.setdefault(signs[0].meaning, []).append(signs)
        found += [_fault(host, alike, waits=waits) for alike in by_meaning.values()]
    return sorted(found, key=lambda fault: (fault.severity != "error", WEIGHTS.index(fault.weight)))


def find(run: Run, blockage: Blockage) -> CardFault | None:
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


def _of_driver(run: Run, host: Host, *, waits: bool) -> Iterator[Fault]:
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
    found: dict[str, list[_Sign]] = {}
    for sign in signs:
        found.setdefault(sign.card, []).append(sign)
    return [sorted(some, key=lambda sign: WEIGHTS.index(sign.weight)) for some in found.values()]


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
            known = meaning_of(event)
            yield _Sign(event.bus_id, known.weight, known.meaning, owners, _event(event, owners))
    for card in cards_on(host):
        facts = list(_facts(card, waits=waits))
        owners = owners_of(run, host, card) if facts else None
        if owners is not None:
            name = card.bus_id or f"card {card.index}"
            for weight, meaning, text in facts:
                evidence = Evidence(_one(owners), "card", f"card {card.index} ({name}): {text}")
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


def _event(event: CardEvent, owners: Owners) -> Evidence:
    times = f", {event.count} times" if event.count > 1 else ""
    text = f"{name_of(event)} of {event.bus_id} {duration(event.seconds_ago)} ago{times}"
    return Evidence(_one(owners), "kernel log", f"{text}: {event.text}" if event.text else text)


def _one(owners: Owners) -> int | None:
    return owners.ranks[0] if len(owners.ranks) == 1 else None
