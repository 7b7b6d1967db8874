"""`hangdoc top`: the terminal UI, live or with recorded bundles."""

import os
from pathlib import Path

import click

from hangdoc.cli.fleet import fleet_options
from hangdoc.cli.numbers import Number
from hangdoc.cli.options import observation_options, patience_option
from hangdoc.commands.bundles import check_saved_or_running, files
from hangdoc.commands.errors import USAGE, CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.commands.looking import described, looker
from hangdoc.observe.observe import Options

_INTERVAL = Number(0.5, 3600)


@click.command()
@click.argument("bundles", nargs=-1, type=click.Path(path_type=Path))
@observation_options(window=0.5, native=False, what="one poll")
@click.option(
    "--interval",
    type=_INTERVAL,
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Polling interval; longer when polling would use more than 5 % of a core.",
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
    try:
        from hangdoc_tui.app import Top
        from hangdoc_tui.source import Live, Recorded, Source
    except ModuleNotFoundError as error:
        raise CommandError(f"hangdoc top needs {error.name}: pip install 'hangdoc[tui]'.", USAGE) from None
    source: Source
    if bundles:
        source = Recorded(files(bundles), patience)
    else:
        os.nice(19)  # give way to the run
        source = Live(looker(options, fleet), described(options, fleet), patience)
    Top(source, rate=interval if rate is None else rate, allow_signals=allow_signals).run()
    return 0
