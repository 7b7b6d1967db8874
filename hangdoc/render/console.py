"""The one place where hangdoc makes a console of rich.

Text of processes, hosts and bundles is never markup: `[/]` in the name of a script would end the report, and `[link=...]` would
write what its owner likes. So a console of hangdoc reads neither markup nor emoji codes in any string, and styles are given as
`rich.text.Text`. tests/hostile/test_markup.py keeps it so.
"""

import io
from collections.abc import Iterable
from typing import IO

from rich.console import Console, RenderableType


def make_console(
    *, file: IO[str] | None = None, width: int | None = None, stderr: bool = False, highlight: bool = True
) -> Console:
    """A console on stdout, on stderr or on a file, which takes every string as it is. `width` in columns."""
    return Console(
        file=file, width=width, stderr=stderr, highlight=highlight, soft_wrap=False, markup=False, emoji=False,
    )  # fmt: skip


def print_blocks(console: Console, blocks: Iterable[RenderableType]) -> None:
    """Print blocks without the blanks with which rich fills lines and cells: a pasted report should not have them."""
    with console.capture() as captured:
        for block in blocks:
            console.print(block, highlight=False, markup=False, emoji=False)
    console.out("\n".join(line.rstrip() for line in captured.get().splitlines()), highlight=False)


def record_console(width: int) -> Console:
    """A console that prints nothing and keeps the text for `export_text`."""
    return Console(file=io.StringIO(), width=width, record=True, markup=False, emoji=False)
