"""The card of a rank, and what its meters say.

A rank and a card are joined by the address of the card that NCCL has in the rank's communicators, or by the processes that the
driver names for the card. In most containers it names none. Which of the cards CUDA_VISIBLE_DEVICES and LOCAL_RANK mean would be
a guess.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from hangdoc.reasoning.evidence.kernel import concerns_process_alone
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.snapshot import Card, CardEvent, CardEvents, Cards, Communicators, Host, Runtime

WORKING_MEMORY_PERCENT = 5
BUSY_PERCENT, QUIET_MEMORY_PERCENT, QUIET_POWER_SHARE = 99, 2, 0.3
"""H100s with a limit of 700 W had, in kernels of NCCL that wait, 100 %, 0 % and 120 to 134 W; with a tiny model, 100 %, 1 %
and 145 W; in large matrix products, 100 %, 31 % and 698 W; idle, 0 %, 0 % and 73 W."""
_OLD_SECONDS = 10.0
"""An older answer of the driver shows nothing about the look."""
_SLOWED = frozenset(("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"))
"""A power cap alone (`sw_power_cap`) is normal under load."""

Use = Literal["waits", "idle", "works"]


class Owners(NamedTuple):
    """The ranks of a run on a card."""

    ranks: tuple[int, ...]
    sure: bool
    """Whether the driver names their processes."""


def cards_on(host: Host) -> tuple[Card, ...]:
    """The cards of a host; none if they could not be read."""
    return host.cards.cards if isinstance(host.cards, Cards) else ()


def card_of(host: Host, rank: Rank) -> Card | None:
    """The card that a rank computes on: that of its NCCL communicators, or one on which the driver names its process. Of several
    on which it has contexts, it is that of its local rank, or else none."""
    if not (cards := cards_on(host)):
        return None
    read = rank.process.communicators if rank.process is not None else None
    used = {each.pci_address for each in read.communicators} if isinstance(read, Communicators) else set()
    if len(of_nccl := [card for card in cards if _same_address(card.bus_id, used)]) == 1:
        return of_nccl[0]
    mine = [card for card in cards if rank.pid is not None and rank.pid in (card.pids or ())]
    if len(mine) < 2:
        return mine[0] if mine else None
    return next((card for card in mine if card.index == rank.local_rank), None)


def _same_address(bus_id: str | None, addresses: set[str | None]) -> bool:
    return bus_id is not None and bus_id.lower() in addresses


def use_of_rank(run: Run, rank: Rank) -> Use | None:
    """What the card of a rank did; None if that is not known. It works only if it uses its memory too: with a low power limit, a
    card that waits may need half of that."""
    host = run.host.get(rank.host)
    card = card_of(host, rank) if host is not None else None
    use = use_of(host, card) if host is not None and card is not None else None
    if use == "works" and card is not None and (card.memory_activity or 0) < WORKING_MEMORY_PERCENT:
        return None
    return use


def users_of(run: Run, host: Host) -> tuple[Rank, ...]:
    """The ranks of a host that use a GPU, as far as is known; a rank about which nothing is known may."""
    return tuple(rank for rank in sorted(run.on(host.name), key=lambda rank: rank.rank) if _may_use_gpu(rank))


def _may_use_gpu(rank: Rank) -> bool:
    runtime = rank.process.runtime if rank.process is not None else None
    return not isinstance(runtime, Runtime) or runtime.gpu


def use_of(host: Host, card: Card) -> Use | None:
    """What a card did: it waits in a kernel or does very little work (`waits`), runs no kernel (`idle`), or `works`. None if that
    is not known. Never more than supporting evidence: a small model looks as if it waited."""
    if card.utilisation is None or (isinstance(host.cards, Cards) and host.cards.age_seconds > _OLD_SECONDS):
        return None
    if card.utilisation == 0:
        return "idle"
    watts, limit, memory = card.power_watts, card.power_limit_watts, card.memory_activity
    if watts is None or not limit or memory is None:
        return None
    quiet = memory <= QUIET_MEMORY_PERCENT and watts < QUIET_POWER_SHARE * limit
    return "waits" if card.utilisation >= BUSY_PERCENT and quiet else "works"


def slowed_by(card: Card) -> tuple[str, ...]:
    """What holds its clocks down although it should not: heat, or the supply of power."""
    return tuple(reason for reason in card.throttle or () if reason in _SLOWED)


def events_of(run: Run, host: Host) -> tuple[CardEvent, ...]:
    """The errors in the kernel log since the run's ranks on a host began."""
    if not isinstance(host.card_events, CardEvents):
        return ()
    ranks = run.on(host.name)
    processes = [rank.process for rank in ranks if rank.process is not None]
    launchers = [process for where, process in run.launchers if where.name == host.name]
    if len(processes) < len(ranks) or not processes:
        processes += launchers  # a rank that is gone began after its launcher
    began = max((process.started_seconds_ago for process in processes), default=0.0)
    return tuple(event for event in host.card_events.events if event.seconds_ago <= began)


def owners_of(run: Run, host: Host, card: Card) -> Owners | None:
    """The ranks of the run on a card; None if it is known to be a card of others.

    For a card that is lost, and for a process that is gone, the driver names nobody. Then it is the card of the ranks that have
    no other one, if nobody else uses it."""
    ranks = run.on(host.name)
    named = tuple(sorted(rank.rank for rank in ranks if rank.pid is not None and rank.pid in (card.pids or ())))
    if named:
        return Owners(named, sure=True)
    users = users_of(run, host)
    if card.pids or not users:
        return None
    if not any(other.pids for other in cards_on(host)):
        return Owners((), sure=False)
    without = tuple(rank.rank for rank in users if card_of(host, rank) is None)
    return Owners(without, sure=False) if without else None


def owners_of_event(run: Run, host: Host, event: CardEvent) -> Owners | None:
    """The ranks that an error in the kernel log is about; None if it is about none of this run."""
    ranks = run.on(host.name)
    named = tuple(rank.rank for rank in ranks if event.pid is not None and event.pid in _list_pids(run, rank))
    if named:
        return Owners(named, sure=True)
    if concerns_process_alone(event) and all(rank.pid is not None for rank in ranks):
        return None
    card = next((card for card in cards_on(host) if card.bus_id == event.bus_id), None)
    if card is not None:
        return owners_of(run, host, card)
    whole = cards_on(host) and all(card.bus_id is not None for card in cards_on(host))
    return None if whole or not users_of(run, host) else Owners((), sure=False)


def _list_pids(run: Run, rank: Rank) -> set[int]:
    """A rank's process and its helpers."""
    return {helper.pid for helper in run.helpers(rank)} | ({rank.pid} if rank.pid is not None else set())


def errors_of(card: Card, events: Iterable[CardEvent]) -> tuple[str, ...]:
    """What is wrong with a card, in a few words each, for the tables of ranks."""
    errors = ["lost"] if card.lost else []
    errors += dict.fromkeys(f"{event.kind} {event.number}" for event in events if event.bus_id == card.bus_id)
    if card.uncorrected_errors:
        errors.append(f"{card.uncorrected_errors} ECC")
    return (*errors, *(["remapping failed"] if card.remapping_failed else []))
