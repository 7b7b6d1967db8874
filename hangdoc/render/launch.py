"""Launch lines for a person: the table of a comparison, the layers of one line."""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hangdoc.launch.layers import LaunchLine
from hangdoc.launch.rows import Row
from hangdoc.render.console import print_blocks
from hangdoc.render.words import clean

_STYLE = {
    "must differ": "bold", "must agree": "bold", "suspicious": "yellow", "should agree": "", "tuning": "cyan", "inert": "dim",
    "cosmetic": "dim", "unknown": "",
}  # fmt: skip
_SETTINGS = ("launcher", "around", "argument", "variable")
"""The origins of rows that an explanation shows."""
_LEAST = 16
"""Columns for the name and the value of a setting."""


def comparison(
    names: Sequence[str], rows: Sequence[Row], numbers: Sequence[tuple[str, str]], console: Console, whole: bool
) -> None:
    """Print the table: errors and differences first. Settings that are equal in all lines are only counted, unless `whole`."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    table.add_column("what", overflow="fold")
    table.add_column("standing", no_wrap=True)
    for name in names:
        table.add_column(Text(clean(name)), overflow="fold")
    alike = 0
    for row in rows:
        if not (row.differs or row.wrong or row.standing == "suspicious" or whole):
            alike += any(value is not None for value in row.values)
            continue
        mark = (
            Text("✗", "bold red") if row.wrong else Text("!", "yellow") if row.standing == "suspicious" else Text(" ")
        )
        style = "bold red" if row.wrong else _STYLE[row.standing]
        table.add_row(
            mark, Text(_name(row), style), Text(row.standing, style), *(Text(_show_value(v)) for v in row.values)
        )
    print_blocks(console, [table])
    _print_reasons(rows, console, whole)
    if alike:
        console.print(Text(f"{alike} more settings are equal in all lines (--all shows them)", "dim"))
    if numbers:
        console.print()
    _print_numbers(numbers, console)


def _print_numbers(numbers: Sequence[tuple[str, str]], console: Console) -> None:
    if numbers:
        print_blocks(console, [Text.assemble((f"{what}: ", "bold"), clean(much)) for what, much in numbers])


def _print_reasons(rows: Sequence[Row], console: Console, whole: bool) -> None:
    shown = [row for row in rows if row.why and (row.differs or row.wrong or row.standing == "suspicious" or whole)]
    if shown:
        console.print()
    for row in shown:
        style = "bold red" if row.wrong else _STYLE[row.standing]
        print_blocks(console, [Text.assemble((f"{_name(row)}: ", style), row.why)])


def _show_value(value: str | None) -> str:
    return "-" if value is None else clean(value)


def _name(row: Row, value: str = "") -> str:
    """The name of a setting, and its value. srun around torchrun may have an option of the same name."""
    return f"{clean(row.name)}{value}{' (around)' if row.origin == 'around' else ''}"


def _joint(row: Row) -> str:
    """The text between name and value: variables and arguments without a dash, as Hydra has them, are written with `=`."""
    return " " if row.origin in ("launcher", "around") or row.name.startswith("-") else "="


def explanation(line: LaunchLine, numbers: Sequence[tuple[str, str]], rows: Sequence[Row], console: Console) -> None:
    """Print one launch line: its layers, and then what each setting is for."""
    layers = [(clean(layer.text), layer.why) for layer in line.layers]
    layers.append((f"{line.launched.tool} starts {clean(line.launched.program) or 'nothing'}", ""))
    settings = []
    for row in rows:
        if row.values[0] is not None and row.origin in _SETTINGS and row.name != "launcher":
            value = "" if row.values[0] == "(set)" else f"{_joint(row)}{clean(row.values[0])}"
            why = row.why or "hangdoc does not know this setting"
            settings.append((_name(row, value), f"{row.standing}: {why}"))
    for depth, (text, why) in enumerate(layers):
        parts = Text.assemble((text, "bold"), f"   {why}")
        print_blocks(console, [Padding(parts, (0, 0, 0, 2 * depth), expand=False)])
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(overflow="fold", max_width=max(_LEAST, console.width // 2))
    table.add_column(overflow="fold")
    for setting, why in settings:
        table.add_row(Text(setting, "bold"), Text(why))
    if settings:
        print_blocks(console, [Padding(table, (0, 0, 0, 2 * len(layers)), expand=False)])
    _print_numbers(numbers, console)
