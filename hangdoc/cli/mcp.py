"""`hangdoc mcp`: a read-only Model Context Protocol server, for agents."""

import signal
import sys
from pathlib import Path

import click

from hangdoc.cli.fleet import fleet_options
from hangdoc.cli.options import locals_option
from hangdoc.commands.errors import USAGE, CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.redact import Locals


@click.command("mcp")
@click.option(
    "--bundles", type=click.Path(path_type=Path), multiple=True, metavar="PATH",
    help="A bundle, or a directory below which bundles may be opened (repeatable). Without it, none may.",
)  # fmt: skip
@locals_option
@fleet_options
def command(bundles: tuple[Path, ...], locals_: Locals, fleet: Hosts) -> int:
    """Serve the Model Context Protocol on stdin and stdout: diagnose a run from a coding agent. Reads only.

    With --hosts, agents may name these hosts only; otherwise any that --via or ssh reaches. See docs/agents.md for the
    agent's configuration.
    """
    try:
        from hangdoc.agents.server import serve
    except ModuleNotFoundError as error:
        raise CommandError(f"hangdoc mcp needs {error.name}: pip install 'hangdoc[mcp]'.", USAGE) from None
    from hangdoc.agents.confined import Confined
    from hangdoc.agents.looks import Looks

    missing = next((path for path in bundles if not path.exists()), None)
    if missing is not None:
        raise CommandError(f"--bundles {missing}: no such file or directory.", USAGE)
    if fleet.hosts is not None:
        fleet.names()  # what can't be read is said now, not in the middle of a talk
    if sys.stdin.isatty():
        click.echo(
            "hangdoc mcp: an MCP client is expected on standard input (docs/agents.md).",
            err=True,
        )
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
    ):  # the thread that reads standard input would hold up anything gentler
        signal.signal(number, signal.SIG_DFL)
    serve(Looks(Confined(bundles), fleet, locals_))
    return 0
