"""The GPUs of the run's hosts, one row each."""

from collections.abc import Iterator

from rich.text import Text

from hangdoc.phrases import duration, numbers
from hangdoc.reasoning.ranks.card import card_of, errors_of, events_of, slowed_by
from hangdoc.render import words
from hangdoc.snapshot import NOT_LOOKED_AT, Card, Host, Unavailable
from hangdoc_tui.grid import Column
from hangdoc_tui.tables import Listing
from hangdoc_tui.view_model import ViewModel

_BAR = 10
"""Cells of a bar."""
_PARTS = " ▏▎▍▌▋▊▉"
_BUSY, _FULL = 90, 0.9
_COLUMNS = (
    Column("card", most=24),
    Column("ranks", most=14),
    Column("state", most=40),
    Column("use"),
    Column("power", gives_way=1),
    Column("memory", gives_way=2),
    Column("clocks", gives_way=3),
)


class CardTable(Listing):
    """What each card does, how full its memory is, its power, and what is wrong with it."""

    def __init__(self) -> None:
        super().__init__("cards", _COLUMNS)

    def show(self, model: ViewModel) -> None:
        """Draw the cards, by host and number."""
        several = len(model.run.hosts) > 1
        rows = [row for host in model.run.hosts for row in _make_host_rows(model, host, name=several)]
        self.list(rows, [] if rows else [Text("No GPU was observed.", "dim")])


def has_cards(model: ViewModel) -> bool:
    """Whether a host of the run has cards, or a driver that could not be asked."""
    return any(host.cards != NOT_LOOKED_AT for host in model.run.hosts)


def _make_host_rows(model: ViewModel, host: Host, *, name: bool) -> Iterator[tuple[Text, ...]]:
    where = f"{words.clean(host.name)} " if name else ""
    cards = host.cards
    if isinstance(cards, Unavailable):
        if has_cards(model):
            yield _make_remark(f"{where}{words.clean(cards.reason)}")
        return
    if cards.unanswered_seconds is not None:
        yield _make_remark(f"{where}the driver has not answered for {duration(cards.unanswered_seconds)}", "bold red")
    elif cards.problem is not None:
        yield _make_remark(f"{where}{words.clean(cards.problem)}", "yellow")
    users = _list_users(model, host)
    for card in cards.cards:
        yield _make_row(where, card, users.get(card.index, []), errors_of(card, events_of(model.run, host)))


def _list_users(model: ViewModel, host: Host) -> dict[int, list[int]]:
    """The ranks on each card, by its number."""
    ranks_by_card: dict[int, list[int]] = {}
    for rank in model.run.on(host.name):
        if (card := card_of(host, rank)) is not None:
            ranks_by_card.setdefault(card.index, []).append(rank.rank)
    return ranks_by_card


def _make_row(where: str, card: Card, ranks: list[int], errors: tuple[str, ...]) -> tuple[Text, ...]:
    model = words.clean((card.name or "").removeprefix("NVIDIA "))
    slowed = slowed_by(card)
    state = [(error, "bold red") for error in errors] + [(reason, "yellow") for reason in slowed]
    state += [(reason, "dim") for reason in card.throttle or () if reason not in slowed]
    state += [(f"NVLinks {numbers(card.links_inactive)} inactive", "yellow")] if card.links_inactive else []
    watts = f"{card.power_watts:.0f}" if card.power_watts is not None else "-"
    limit = f"/{card.power_limit_watts:.0f}" if card.power_limit_watts is not None else ""
    degrees = f" {card.temperature_celsius}°C" if card.temperature_celsius is not None else ""
    activity = f" mem {card.memory_activity}%" if card.memory_activity is not None else ""
    return (
        Text.assemble((f"{where}{card.index}", "bold"), (f" {model}", "dim")),
        Text(numbers(ranks) if ranks else "-", "bold" if ranks else "dim"),
        Text(", ").join(Text(words.clean(text), style) for text, style in state),
        Text.assemble(_draw_bar(card.utilisation, 100), (activity, "dim")),
        Text(f"{watts}{limit} W{degrees}"),
        _draw_memory(card),
        Text(f"{card.sm_clock_mhz} MHz" if card.sm_clock_mhz is not None else "-"),
    )


def _draw_memory(card: Card) -> Text:
    used, total = card.memory_used_bytes, card.memory_total_bytes
    if used is None or not total:
        return Text("-", "dim")
    return Text.assemble(_draw_bar(used, total), (f" {used / (1 << 30):.0f}/{total / (1 << 30):.0f} GiB", "dim"))


def _draw_bar(amount: int | None, whole: int) -> Text:
    """`██████▌    65%`, green up to nine tenths."""
    if amount is None:
        return Text("-", "dim")
    share = min(1.0, amount / whole)
    full, part = divmod(round(share * _BAR * 8), 8)
    drawn = "█" * full + (_PARTS[part] if part else "")
    return Text.assemble((f"{drawn:{_BAR}}", "green" if share < _FULL else "yellow"), f" {share:4.0%}")


def _make_remark(text: str, style: str = "dim") -> tuple[Text, ...]:
    """A row that is one text."""
    return (Text(text, style),)
