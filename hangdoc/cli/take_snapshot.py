"""`hangdoc snapshot`: evidence only, to be diagnosed later or elsewhere."""

from pathlib import Path

import click

from hangdoc import codec
from hangdoc.cli.looking import check_writable, look, observation_options
from hangdoc.observe.observe import Options


@click.command("snapshot")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="The bundle to write.",
)
@observation_options
def command(output: Path, pids: tuple[int, ...], window: float, native: str, timeout: float) -> int:
    """Collect the evidence of this host into a bundle, without a diagnosis.

    Take one on every host of the run, then `hangdoc diagnose BUNDLE...` anywhere. Secrets in environments and arguments
    are removed before anything is stored.
    """
    check_writable(output)
    snapshot = look(Options(window=window, timeout=timeout, native=native, pids=pids))
    codec.write(snapshot, output)
    ranks = sum(process.role == "rank" for host in snapshot.hosts for process in host.processes)
    click.echo(f"{output}: {ranks} rank{'s' * (ranks != 1)} of {snapshot.hosts[0].name}", err=True)
    return 0
