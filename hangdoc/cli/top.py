"""`hangdoc top`: the terminal UI, live or with recorded bundles."""

import asyncio
import contextlib
import os
import select
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangdoc.cli.fleet import fleet_options
from hangdoc.cli.numbers import Number
from hangdoc.cli.options import observation_options, patience_option, refuse_look_options
from hangdoc.commands.bundles import check_saved_or_running, files
from hangdoc.commands.errors import USAGE, CommandError, install_extra
from hangdoc.commands.hosts import Hosts
from hangdoc.commands.looking import described, looker
from hangdoc.observe.look.observe import Options
from hangdoc.priority import give_way

if TYPE_CHECKING:
    from hangdoc_tui.app import Top

_INTERVAL = Number(0.5, 3600)
_NO_TERMINALS = ("", "dumb", "unknown")
"""Values of TERM (term(7)) for what cannot show a screen."""


@click.command()
@click.argument("bundles", nargs=-1, type=click.Path(path_type=Path))
@observation_options(window=0.5, native=False, stacks=False, what="one poll")
@click.option(
    "--interval",
    type=_INTERVAL,
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Polling interval; longer when polling would use more than 5 % of a core. --pid limits polls to one run.",
)
@click.option("--rate", type=_INTERVAL, hidden=True, help="The former name of --interval.")
@patience_option()
@click.option(
    "--allow-signals",
    is_flag=True,
    help="Allow keys that continue a stopped rank or end an orphan process. They ask first.",
)
@fleet_options()
def command(
    bundles: tuple[Path, ...], options: Options, interval: float, rate: float | None, patience: float, allow_signals: bool,
    fleet: Hosts,
) -> int:  # fmt: skip
    """Watch live what each rank does and waits for.

    Observes this host or --hosts, or replays saved BUNDLES (files or directories) in the order in which they were saved.
    """
    check_saved_or_running(bundles, options.scope, fleet.hosts)
    if bundles:
        refuse_look_options(str(bundles[0]), "name no bundle", also=["allow_signals"])
    try:
        from hangdoc_tui.app import BUDGET, BUDGET_OF_HOSTS, Top
        from hangdoc_tui.source import Live, Recorded, Source
    except ModuleNotFoundError as error:
        raise CommandError(f"hangdoc top needs {error.name}. {install_extra('tui')}", USAGE) from None
    source: Source = (
        Recorded(files(bundles), patience)
        if bundles
        else Live(looker(options, fleet), described(options, fleet), patience, options.pids)
    )
    _check_terminal()
    if not bundles:
        give_way()
    threading.Thread(target=_end_with_terminal, name="terminal", daemon=True).start()
    budget = BUDGET if fleet.hosts is None else BUDGET_OF_HOSTS
    top = Top(
        source,
        rate=interval if rate is None else rate,
        budget=budget,
        run_option="--pid PID" if fleet.hosts is None else "--slurm-job JOBID",  # --pid names processes of this host
        allow_signals=allow_signals,
    )
    asyncio.run(_run(top))
    _end_children()
    return top.return_code or 0


def _check_terminal() -> None:
    """Raise CommandError if there is no terminal to draw on."""
    redirected = [name for number, name in enumerate(("input", "output", "error")) if not os.isatty(number)]
    if redirected:
        raise CommandError(
            f"hangdoc top needs a terminal, but standard {redirected[0]} is not one. `hangdoc diagnose` needs none.",
            USAGE,
        )
    if (term := os.environ.get("TERM", "")) in _NO_TERMINALS:
        raise CommandError(
            f"hangdoc top needs a terminal that can move its cursor, but TERM is {term!r}. `hangdoc diagnose` needs none.",
            USAGE,
        )


def _end_with_terminal() -> None:
    """End this process when its terminal is gone and no signal says so (under nohup, or in another session)."""
    terminal = select.poll()
    terminal.register(0, 0)  # POLLHUP and POLLERR are always reported
    terminal.poll()
    os._exit(128 + signal.SIGHUP)


def _end_children() -> None:
    """End what a poll has started that is still under way: py-spy, the connections with hosts. Nobody waits for its result."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()


async def _run(top: "Top") -> None:
    """Run the app. The first signal ends it, so that it leaves the terminal as it was."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda code: top.exit(return_code=code), 128 + number)
    await top.run_async()
