"""HD704: a snapshot that fires it, and the most similar one that must not."""

from hangdoc.snapshot import CardEvent, CardEvents, Cards, Snapshot
from tests.rules.shapes import card, gpu_rank
from tests.unit.builders import snapshot

GONE = CardEvent(
    kind="Xid", number=79, bus_id="0000:c1:00.0", pid=101, seconds_ago=61.0, text="GPU has fallen off the bus"
)  # fmt: skip


def of(event: CardEvent) -> Snapshot:
    return snapshot(
        gpu_rank(0),
        gpu_rank(1),
        cards=Cards(
            cards=(card(0, 100), card(1, lost=True, bus_id="0000:c1:00.0", pids=None, utilisation=None)),
            driver="580.159.04",
        ),
        card_events=CardEvents(events=(event,)),
    )


def fires() -> Snapshot:
    """The card of rank 1 has fallen off the bus, and both ranks spin in the driver."""
    return of(GONE)


def quiet() -> Snapshot:
    """The same error, of a card on which another run computes."""
    cards = (card(0, 100), card(1, 101), card(2, 900, bus_id="0000:c1:00.0"))
    event = CardEvent(kind="Xid", number=79, bus_id="0000:c1:00.0", pid=900, seconds_ago=61.0)
    return snapshot(gpu_rank(0), gpu_rank(1), cards=Cards(cards=cards), card_events=CardEvents(events=(event,)))
