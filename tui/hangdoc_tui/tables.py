"""Three tables of evidence: sockets between ranks, settings that differ, events."""

from collections.abc import Iterable, Sequence

from rich.text import Text

from hangdoc.phrases import duration, shorten_values, values_by_rank
from hangdoc.reasoning.views.detail import Compared, compare_settings
from hangdoc.render import words
from hangdoc.snapshot import Connection
from hangdoc_tui.grid import Column, Grid, join_cells
from hangdoc_tui.view_model import ViewModel

_PAIRS_SHOWN = 60


class Listing(Grid):
    """A table whose rows are all known in advance."""

    def list(self, rows: Iterable[tuple[Text, ...]], remarks: Sequence[Text] = ()) -> None:
        """Show those of the rows that contain the words of the filter, and below them the remarks."""
        row_list = self.filtered(rows, join_cells)
        self.fill(len(row_list), row_list.__getitem__, remarks=remarks)


class Sockets(Listing):
    """Connections between ranks, both ends of each in one row."""

    def __init__(self) -> None:
        super().__init__(
            "sockets",
            ("ranks", "state", "queues out/in", "last byte", "resent", Column("addresses", least=12, flexible=True)),
        )

    def show(self, model: ViewModel) -> None:
        """Draw the connections. Those that are not established, or that have bytes in their queues, come first."""
        ends: dict[tuple[str, str, int, str, int], tuple[int, Connection]] = {}
        for owner in model.run.ranks.values():
            for c in owner.connections:
                ends[c.namespace, c.local_address, c.local_port, c.remote_address, c.remote_port] = (owner.rank, c)
        pairs: list[tuple[tuple[int, int], int, Connection, tuple[int, Connection] | None]] = []
        done: set[tuple[str, str, int, str, int]] = set()
        for key, (rank, mine) in ends.items():
            if key in done:
                continue
            back = (mine.namespace, mine.remote_address, mine.remote_port, mine.local_address, mine.local_port)
            other = ends.get(back)
            done |= {key, back}
            pairs.append((_sort_key(rank, mine, other[1] if other else None), rank, mine, other))
        pairs.sort(key=lambda pair: pair[0])
        pairs = self.filtered(pairs, lambda pair: join_cells(_make_pair_row(*pair[1:])))
        remarks = []
        if len(pairs) > _PAIRS_SHOWN:
            remarks.append(Text(f"and {len(pairs) - _PAIRS_SHOWN} more with shorter queues", style="dim"))
        ago = max((host.connections_seconds_ago or 0.0 for host in model.run.hosts), default=0.0)
        if ago:
            remarks.append(Text(f"read {duration(ago)} ago", style="dim"))
        self.list((_make_pair_row(*pair[1:]) for pair in pairs[:_PAIRS_SHOWN]), remarks)


def _sort_key(rank: int, mine: Connection, theirs: Connection | None) -> tuple[int, int]:
    both = [mine] + ([theirs] if theirs is not None else [])
    queued = sum(c.send_queue_bytes + c.receive_queue_bytes for c in both)
    odd = any(c.state != "ESTABLISHED" or c.retransmits for c in both)
    return (-(queued + (1 << 40) * odd), rank)


def _make_pair_row(rank: int, mine: Connection, other: tuple[int, Connection] | None) -> tuple[Text, ...]:
    theirs = other[1] if other is not None else None
    both = [mine] + ([theirs] if theirs is not None else [])
    states = " | ".join(dict.fromkeys(c.state for c in both))
    queues = " | ".join(f"{c.send_queue_bytes}/{c.receive_queue_bytes}" for c in both)
    ages = [
        min(c.last_sent_ms, c.last_received_ms)
        for c in both
        if c.last_sent_ms is not None and c.last_received_ms is not None
    ]
    retransmits = sum(c.retransmits or 0 for c in both)
    odd = any(c.send_queue_bytes or c.receive_queue_bytes for c in both)
    return (
        Text(f"{rank} — {other[0] if other is not None else '?'}", style="bold"),
        Text(states, style="" if states == "ESTABLISHED" else "bold yellow"),
        Text(queues, style="bold yellow" if odd else "dim"),
        Text(duration(min(ages) / 1000) if ages else "-"),
        Text(str(retransmits), style="bold red" if retransmits else "dim"),
        Text(f"{mine.local_address}:{mine.local_port} — {mine.remote_address}:{mine.remote_port}", style="dim"),
    )  # fmt: skip


_STANDING_STYLE = {"must agree": "bold red", "should agree": "yellow", "names data": "yellow", "unknown": ""}


class Settings(Listing):
    """Arguments and environment variables that differ between ranks. `whole` shows the others too."""

    def __init__(self) -> None:
        columns = (
            Column("name", most=40),
            "standing",
            Column("values", least=20, flexible=True),
            Column("why", gives_way=1),
        )
        super().__init__("settings", columns)
        self.whole = False

    def show(self, model: ViewModel) -> None:
        """Draw the settings, the most serious first."""
        settings = compare_settings(model.run)
        alike = sum(not setting.differs for setting in settings)
        rows = [_make_setting_row(setting) for setting in settings if setting.differs or self.whole]
        remark = Text(f"{alike} settings are equal on all ranks (a shows them)", style="dim")
        self.list(rows, [] if self.whole else [remark])


def _make_setting_row(setting: Compared) -> tuple[Text, ...]:
    first = setting.values.values[:6]
    values = values_by_rank(first, 6) if setting.differs else shorten_values(first)[0][0]
    return (
        Text(words.clean(setting.shown_name), style="bold" if setting.differs else ""),
        Text(setting.standing, style=_STANDING_STYLE.get(setting.standing, "dim") if setting.differs else "dim"),
        Text(words.clean(values)),
        Text(setting.why, style="dim"),
    )


class Events(Listing):
    """What changed, the newest first."""

    def __init__(self) -> None:
        super().__init__("events", ("time (UTC)", "rank", Column("what", least=20, flexible=True)))

    def show(self, model: ViewModel) -> None:
        """Draw the events."""
        events = model.history.events
        rows = (
            (
                Text(f"{'≤' if event.at_most else ' '}{event.at:%H:%M:%S}", style="dim"),
                Text("-" if event.rank is None else str(event.rank)),
                Text(words.clean(event.text), style="bold red" if event.serious else ""),
            )
            for event in reversed(events)
        )
        remark = Text("≤ the poll that saw it: it may have been earlier", style="dim")
        self.list(rows, [remark] if any(event.at_most for event in events) else [])
