"""`hangdoc top`: the live terminal UI, or recorded bundles in it."""

import os
from pathlib import Path

import click

from hangdoc.cli.bundles import files
from hangdoc.cli.errors import USAGE, CommandError
from hangdoc.cli.fleet import Hosts, fleet_options
from hangdoc.cli.looking import described, looker
from hangdoc.cli.options import locals_option, patience_option, pid_option, timeout_option, window_option
from hangdoc.observe.observe import Options
from hangdoc.redact import Locals


@click.command()
@click.argument("bundles", nargs=-1, type=click.Path(path_type=Path))
@pid_option
@click.option(
    "--rate",
    type=click.FloatRange(0.5, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Poll so often; less often where polling would take more than 5 % of a core.",
)
@window_option("Length of each look.", default=0.5)
@patience_option()
@locals_option
@timeout_option("Bound on one poll.")
@click.option(
    "--allow-signals", is_flag=True, help="Let keys continue a stopped rank or end an orphan, after a question."
)
@fleet_options
def command(
    bundles: tuple[Path, ...], pids: tuple[int, ...], rate: float, window: float, patience: float, locals_: Locals,
    timeout: float, allow_signals: bool, fleet: Hosts,
) -> int:  # fmt: skip
    """Watch every rank: what it does, who waits for whom, and why.

    Looks at this host or at --hosts, or replays saved BUNDLES (files, or directories of them) in the order of their times.
    """
    if bundles and (pids or fleet.hosts is not None):
        raise click.UsageError("--pid and --hosts look at running ranks, BUNDLES at saved evidence: give one of them.")
    try:
        from hangdoc_tui.app import Top
        from hangdoc_tui.source import Live, Recorded, Source
    except ModuleNotFoundError as error:
        raise CommandError(f"hangdoc top needs {error.name}: pip install 'hangdoc[tui]'.", USAGE) from None
    source: Source
    if bundles:
        source = Recorded(files(bundles), patience)
    else:
        os.nice(19)  # a run on full cores comes first
        options = Options(window=window, timeout=timeout, native="auto", pids=pids, locals=locals_)
        source = Live(looker(options, fleet), described(pids, fleet), patience)
    Top(source, rate=rate, allow_signals=allow_signals).run()
    return 0
