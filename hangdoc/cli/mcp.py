"""`hangdoc mcp`: a read-only Model Context Protocol server, for agents."""

import sys
from pathlib import Path

import click

from hangdoc.cli.fleet import fleet_options
from hangdoc.cli.interrupts import end_at_once
from hangdoc.cli.options import locals_option, native_option, ras_option
from hangdoc.cli.output import raise_lost, tell
from hangdoc.commands.errors import USAGE, CommandError, install_extra
from hangdoc.commands.hosts import Hosts
from hangdoc.portable import NAME, running_from
from hangdoc.redact import Locals


@click.command("mcp")
@click.option(
    "--bundles", type=click.Path(path_type=Path), multiple=True, metavar="PATH",
    help="A bundle, or a directory with bundles, that agents may open. Repeatable. Without it, they may open none.",
)  # fmt: skip
@native_option
@ras_option
@locals_option
@fleet_options("Hosts that agents may name")
def command(bundles: tuple[Path, ...], native: str, ras: str, locals_: Locals, fleet: Hosts) -> int:
    """Run a read-only MCP server for coding agents.

    MCP is the Model Context Protocol, here on stdin and stdout: a coding agent starts this command and diagnoses a run with it.
    With --hosts, agents may name only these hosts, otherwise any host that --via or ssh reaches. docs/agents.md shows the
    configuration of an agent.
    """
    # An exception in an import of the SDK becomes an error of that import, and none could stop the thread that reads stdin.
    end_at_once()
    try:
        from hangdoc.agents.server import serve
    except ModuleNotFoundError as error:
        lacks = f"{NAME} does not contain it. " if running_from() is not None else ""
        remedy = f"{lacks}{install_extra('mcp')}"
        raise CommandError(f"hangdoc mcp needs {error.name}. {remedy}", USAGE) from None
    from hangdoc.agents.confined import Confined
    from hangdoc.agents.looks import Looks

    missing = next((path for path in bundles if not path.exists()), None)
    if missing is not None:
        raise CommandError(f"--bundles {missing}: no such file or directory.", USAGE)
    if sys.stdin.isatty():
        tell("hangdoc mcp: waiting for an MCP client on standard input (docs/agents.md).")
    looks = Looks(Confined(bundles), fleet, locals_, native, ras)  # raises for invalid hosts now, not during a session
    try:
        serve(looks)
    except BaseException as group:  # the SDK writes to standard output in a task of its own
        errors = _leaves(group)
        if errors == [group] or not all(isinstance(error, OSError) for error in errors):
            raise
        raise_lost(errors[0])  # type: ignore[arg-type]
    return 0


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors of a group; of any other error, itself. Python 3.10 lacks the class: there the SDK raises that of a backport."""
    inside = getattr(error, "exceptions", None)
    return [error] if inside is None else [leaf for each in inside for leaf in _leaves(each)]
