"""One look for a person: with a spinner on a terminal, and within the time that the whole command has."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from hangdoc.commands.errors import USAGE, CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.commands.looking import look_at_hosts, look_here
from hangdoc.observe.observe import Options
from hangdoc.observe.procfs import ProcFS, age
from hangdoc.snapshot import Snapshot

_TO_TELL_SECONDS = 0.5
"""CPU that the diagnosis and the report take."""


def look(options: Options, fleet: Hosts | None = None) -> Snapshot:
    """Observe this host, or those of the fleet, with a spinner on a terminal. Raises CommandError where there is nothing to
    look at."""
    with ExitStack() as stack:
        progress = _spinner(stack) if sys.stderr.isatty() else lambda text: None
        if fleet is not None and fleet.hosts is not None:
            return look_at_hosts(options, fleet, progress)
        return look_here(msgspec.structs.replace(options, timeout=left(options.timeout)), progress, _preload)


def left(timeout: float) -> float:
    """Of the seconds for the whole command, those for looking: it has taken some to start, and will take some to diagnose and
    to print, the more the busier the machine is."""
    proc, cpu = ProcFS(), os.times()
    started = age(proc, proc.stat("self").start_ticks)
    busy = max(1.0, started / max(0.05, cpu.user + cpu.system))
    return max(timeout - started - min(_TO_TELL_SECONDS * busy, timeout / 3), timeout / 3)


def _preload() -> None:
    """What is needed only at the end loads while the ranks are watched."""
    from hangdoc.diagnose.rules import all_rules

    all_rules()
    import rich.console
    import rich.padding
    import rich.table  # noqa: F401


def _spinner(stack: ExitStack) -> Callable[[str], None]:
    from rich.console import Console

    console = Console(stderr=True)
    status = stack.enter_context(console.status("looking for ranks"))
    return lambda text: status.update(text)


def check_writable(path: Path | None) -> None:
    """Fail before looking, not after, where an output can't be written."""
    if path is None:
        return
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        why = (
            "it is a directory"
            if path.is_dir()
            else "no such directory"
            if not folder.is_dir()
            else "permission denied"
        )
        raise CommandError(f"cannot write {path}: {why}. Choose another place.", USAGE)
