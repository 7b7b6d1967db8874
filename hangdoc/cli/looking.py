"""One look for a command, with a spinner on a terminal and within the time limit of the command."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from hangdoc.commands.errors import USAGE, CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.commands.looking import look_at_hosts, look_here
from hangdoc.file_writer import WriteError, check_target
from hangdoc.observe.look.observe import Options
from hangdoc.procfs import ProcFS, age
from hangdoc.snapshot import Snapshot

_REPORT_SECONDS = 0.5
"""CPU time for the diagnosis and the report."""


def look(
    options: Options, fleet: Hosts | None = None, *, reports: bool = True, summary: bool | None = None
) -> Snapshot:
    """Observe this host, or those of the fleet, with a spinner on a terminal. Raises CommandError if there is nothing to
    observe. `reports`: a text report follows. `summary`: whether the hosts of the fleet send only a summary; None: if they are
    many."""
    with ExitStack() as stack:
        progress = _start_spinner(stack) if sys.stderr.isatty() else lambda text: None
        if fleet is not None and fleet.hosts is not None:
            return look_at_hosts(options, fleet, progress, summary=summary)
        bounded = msgspec.structs.replace(options, timeout=left(options.timeout))
        return look_here(bounded, progress, _preload if reports else _preload_rules)


def left(timeout: float) -> float:
    """The part of the time limit, in seconds, that is left for the look. The rest is for the start, the diagnosis and the report,
    which take longer on a busy machine."""
    proc, cpu = ProcFS(), os.times()
    started = age(proc, proc.stat("self").start_ticks)
    busy = max(1.0, started / max(0.05, cpu.user + cpu.system))
    return max(timeout - started - min(_REPORT_SECONDS * busy, timeout / 3), timeout / 3)


def _preload() -> None:
    """Import what the report needs, while the ranks are observed."""
    _preload_rules()
    import rich.console
    import rich.padding
    import rich.table  # noqa: F401


def _preload_rules() -> None:
    from hangdoc.reasoning.rules import all_rules

    all_rules()


def _start_spinner(stack: ExitStack) -> Callable[[str], None]:
    from rich.text import Text

    from hangdoc.render.console import make_console

    console = make_console(stderr=True)
    status = stack.enter_context(console.status("looking for ranks"))
    return lambda text: status.update(Text(text))  # a string would be markup


def check_writable(path: Path | None) -> None:
    """Raise CommandError before the look if an output can't be written."""
    if path is None:
        return
    try:
        check_target(path)
    except WriteError as error:
        raise CommandError(str(error), USAGE) from None
