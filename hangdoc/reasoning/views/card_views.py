"""The card of a rank, for tables and documents."""

from hangdoc.diagnosis import GpuView
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.card import card_of, errors_of, events_of, owners_of_event


def gpu_view(run: Run, rank: Rank) -> GpuView | None:
    """The card that a rank computes on; None if that is not known."""
    host = run.host.get(rank.host)
    card = card_of(host, rank) if host is not None else None
    if host is None or card is None:
        return None
    owners = ((event, owners_of_event(run, host, event)) for event in events_of(run, host))
    events = [event for event, them in owners if them is not None and rank.rank in them.ranks]
    return GpuView(
        index=card.index,
        name=card.name,
        utilisation=card.utilisation,
        memory_activity=card.memory_activity,
        power_watts=card.power_watts,
        power_limit_watts=card.power_limit_watts,
        memory_used_bytes=card.memory_used_bytes,
        memory_total_bytes=card.memory_total_bytes,
        temperature_celsius=card.temperature_celsius,
        throttle=card.throttle or (),
        errors=errors_of(card, events),
    )
