"""`hangdoc snapshot`: evidence only, to be diagnosed later or elsewhere."""

import time
from pathlib import Path

import click
import msgspec

from hangdoc import armor, codec
from hangdoc.cli.fleet import fleet_options
from hangdoc.cli.looking import check_writable, left, look
from hangdoc.cli.options import observation_options
from hangdoc.commands.errors import NO_RANK, USAGE, CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.commands.looking import check_pids
from hangdoc.observe.observe import Options, observe
from hangdoc.version import __version__


@click.command("snapshot")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The bundle to write; with --hosts a directory for one bundle per host.",
)
@click.option("--armor", "armored", is_flag=True, help="Print the bundle as text: what --hosts asks a host for.")
@observation_options()
@fleet_options
def command(output: Path | None, armored: bool, options: Options, fleet: Hosts) -> int:
    """Collect the evidence of this host into a bundle, without a diagnosis.

    Take one on every host of the run, then `hangdoc diagnose BUNDLE...` anywhere; or let --hosts do it. Secrets in
    environments, arguments, variables and source are removed before anything is stored.
    """
    if armored:
        if output is not None or fleet.hosts is not None:
            raise click.UsageError("--armor prints this host's bundle: leave out --output and --hosts.")
        return _print(options)
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    if fleet.hosts is not None:
        return _of_fleet(output, options, fleet)
    check_writable(output)
    snapshot = look(options, fleet)
    codec.write(snapshot, output)
    ranks = sum(process.role == "rank" for host in snapshot.hosts for process in host.processes)
    click.echo(f"{output}: {ranks} rank{'s' * (ranks != 1)} of {snapshot.hosts[0].name}", err=True)
    return 0


def _print(options: Options) -> int:
    """A host without a rank answers too: that nobody is there is what the others may wait for."""
    click.echo(armor.begin(__version__, time.time()))
    check_pids(options)
    options = msgspec.structs.replace(options, timeout=left(options.timeout))
    for line in armor.lines(codec.encode(observe(options))):
        click.echo(line)
    return 0


def _of_fleet(folder: Path, options: Options, fleet: Hosts) -> int:
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{folder} is a file: with --hosts, -o names a directory for one bundle per host.", USAGE)
    check_writable(folder / "host" if folder.is_dir() else folder)
    snapshot = look(options, fleet)
    folder.mkdir(parents=True, exist_ok=True)
    for host in snapshot.hosts:
        name = "".join(c if c.isalnum() or c in "._-#" else "_" for c in host.name)[:120].lstrip(".") or "host"
        codec.write(msgspec.structs.replace(snapshot, hosts=(host,)), folder / f"{name}.hangdoc")
    for one in snapshot.unreached:
        click.echo(f"{one.host}: {one.why}", err=True)
    click.echo(f"{folder}: {len(snapshot.hosts)} bundles", err=True)
    return 0 if snapshot.hosts else NO_RANK
