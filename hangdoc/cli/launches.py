"""`hangdoc launch-diff` and `hangdoc launch-explain`: launch lines, read as text; nothing is executed."""

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from hangdoc.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from hangdoc.launch.layers import LaunchLine

_LONGEST_PATH = 1024


@click.command("launch-diff")
@click.argument("lines", nargs=-1, required=True, metavar="FILE|'COMMAND'...")
@click.option("--all", "whole", is_flag=True, help="Also show what is the same in all lines.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def diff(lines: tuple[str, ...], whole: bool, as_json: bool) -> int:
    """Compare the launch lines of the nodes of a run.

    Shows what must be equal, what must differ, and what is suspicious. Give each launch line as a file or as text. hangdoc
    reads it through ssh, tmux and shells down to torchrun, accelerate, srun or mpirun and the arguments of the script. It
    executes nothing. Exit code 1 if something is wrong.
    """
    from rich.console import Console

    from hangdoc.launch.compare import compare
    from hangdoc.launch.derived import derived
    from hangdoc.render.launch import comparison

    named = [one for text in lines for one in _read(text)]
    if len(named) < 2:
        raise CommandError(
            "one launch only: give the lines of two nodes at least, or hangdoc launch-explain it.", USAGE
        )
    found = [line for _, line in named]
    rows, numbers = compare(found), derived(found)
    if as_json:
        document = {"lines": [name for name, _ in named], "rows": rows, "derived": dict(numbers)}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        comparison([name for name, _ in named], rows, numbers, Console(soft_wrap=False), whole)
    return int(any(row.wrong for row in rows))


@click.command("launch-explain")
@click.argument("line", metavar="FILE|'COMMAND'")
def explain(line: str) -> int:
    """Explain the layers and the options of one launch line."""
    from rich.console import Console

    from hangdoc.launch.compare import compare
    from hangdoc.launch.derived import derived
    from hangdoc.render.launch import explanation

    console = Console(soft_wrap=False)
    for at, (_, found) in enumerate(_read(line)):
        if at:
            console.print()
        explanation(found, derived([found]), compare([found]), console)
    return 0


def _read(text: str) -> "list[tuple[str, LaunchLine]]":
    """The launches in a file or a command, each with a name for its column."""
    from hangdoc.launch.layers import launches
    from hangdoc.launch.shell import ShellError

    path = Path(text) if len(text) < _LONGEST_PATH and "\n" not in text else None
    is_file = path is not None and path.is_file()
    if path is not None and is_file:
        try:
            content = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}.", USAGE) from None
        name = path.name
    else:
        content, name = text, ""
        if " " not in text.strip():
            raise CommandError(f"{text[:80]!r} is neither a file nor a command.", USAGE)
    try:
        found = launches(content)
    except ShellError as error:
        raise CommandError(f"{name or 'the command'} can't be read: {error}.", USAGE) from None
    if not found:
        what = name or text.strip()[:60]
        raise CommandError(
            f"no launch in {what!r}: torchrun, accelerate, srun, mpirun or python with RANK was expected.", USAGE
        )
    return [(_column(name, line, number if len(found) > 1 else 0), line) for number, line in enumerate(found, 1)]


def _column(name: str, line: "LaunchLine", number: int) -> str:
    """How a line is called: its host, its file, its node rank."""
    if line.host is not None:
        return line.host
    plain = name or f"node {line.launched.options.get('node-rank', '?')}"
    return f"{plain}:{number}" if number else plain
