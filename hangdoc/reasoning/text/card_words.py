"""Phrases about the cards of ranks."""

from collections.abc import Iterable

from hangdoc.diagnosis import Evidence
from hangdoc.phrases import also
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.card import Use, card_of, use_of
from hangdoc.snapshot import Card

PROBE = "card"
_MEANS: dict[Use, str] = {
    "waits": "it waits in a kernel, or does very little work",
    "idle": "no kernel runs on it",
}
_MOST = 4


def evidence(run: Run, ranks: Iterable[int]) -> list[Evidence]:
    """What the cards of some ranks of a blockage do, where that shows that they wait or have nothing to do. Equal ones share a
    line. Without differing cards nothing is shown of idle ones: on a host whose ranks wait on the CPU, all are."""
    found: dict[Use, list[tuple[int, Card]]] = {}
    for number in sorted(set(ranks)):
        rank = run.ranks.get(number)
        host = run.host.get(rank.host) if rank is not None else None
        card = card_of(host, rank) if rank is not None and host is not None else None
        if host is not None and card is not None and (use := use_of(host, card)) is not None:
            found.setdefault(use, []).append((number, card))
    if "waits" not in found:
        return []
    lines = []
    for use, means in _MEANS.items():
        for number, card in found.get(use, ())[:1]:
            others = tuple(rank for rank, _ in found[use])
            lines.append(Evidence(number, PROBE, f"{meters(card)}: {means}{also(others)}"))
    return lines[:_MOST]


def meters(card: Card) -> str:
    """`card 0 at 100%, memory 0%, 131 of 700 W`."""
    parts = [f"card {card.index}" + (f" at {card.utilisation}%" if card.utilisation is not None else "")]
    if card.memory_activity is not None:
        parts.append(f"memory {card.memory_activity}%")
    if card.power_watts is not None:
        limit = f" of {card.power_limit_watts:.0f}" if card.power_limit_watts else ""
        parts.append(f"{card.power_watts:.0f}{limit} W")
    return ", ".join(parts)
