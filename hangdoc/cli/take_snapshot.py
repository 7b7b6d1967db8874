"""`hangdoc snapshot`: save evidence to diagnose it later or elsewhere."""

import time
from pathlib import Path

import click
import msgspec

from hangdoc import bundle_text, codec
from hangdoc.cli.fleet import fleet_options
from hangdoc.cli.looking import check_writable, left, look
from hangdoc.cli.options import observation_options
from hangdoc.cli.output import show, tell
from hangdoc.commands.errors import NO_RANK, USAGE, CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.commands.looking import check_pids
from hangdoc.file_writer import WriteError, make_directory
from hangdoc.observe.look.observe import Options, observe
from hangdoc.snapshot import Snapshot
from hangdoc.version import __version__


@click.command("snapshot")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Bundle to write; with --hosts, a directory for one bundle per host.",
)
@click.option(
    "--as-text", "as_text", is_flag=True, help="Print the bundle as text on stdout. --hosts uses this on each host."
)
@click.option("--nonce", default="", hidden=True, help="Repeated in the bundle, which then answers this request.")
@click.option(
    "--summary",
    is_flag=True,
    help="Keep full evidence for one rank of each group that waits in the same collective (automatic above 256 hosts).",
)
@observation_options()
@fleet_options()
def command(output: Path | None, as_text: bool, nonce: str, summary: bool, options: Options, fleet: Hosts) -> int:
    """Save the evidence of this host as a bundle.

    Save one on every host of the run, or use --hosts. Then run `hangdoc diagnose BUNDLE...` on any machine.

    Secrets in the environment, arguments, variables and source are removed before anything is stored.
    """
    if as_text:
        if output is not None or fleet.hosts is not None:
            raise click.UsageError(
                "--as-text prints the bundle of this host. It cannot be combined with --output or --hosts."
            )
        return _print(options, nonce, summary=summary)
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    if fleet.hosts is not None:
        return _save_fleet(output, options, fleet, summary=summary)
    check_writable(output)
    snapshot = look(options, fleet, reports=False)
    codec.write(_shorten(snapshot, summary=summary), output)
    ranks = sum(process.role == "rank" for host in snapshot.hosts for process in host.processes)
    tell(f"{output}: {ranks} rank{'s' * (ranks != 1)} of {snapshot.hosts[0].name}")
    return 0


def _shorten(snapshot: Snapshot, *, summary: bool) -> Snapshot:
    if not summary:
        return snapshot
    from hangdoc.reasoning.summary import summarized  # a bundle with all evidence needs no reasoning

    return summarized(snapshot)


def _print(options: Options, nonce: str, *, summary: bool) -> int:
    """Print the bundle. A host without a rank prints one too, because the other hosts may wait for its ranks."""
    show(bundle_text.begin(__version__, time.time()))
    check_pids(options)
    options = msgspec.structs.replace(options, timeout=left(options.timeout), of_fleet=bool(nonce))
    for line in bundle_text.lines(codec.encode(_shorten(observe(options), summary=summary), nonce)):
        show(line)
    return 0


def _save_fleet(folder: Path, options: Options, fleet: Hosts, *, summary: bool) -> int:
    if folder.exists() and not folder.is_dir():
        raise CommandError(f"{folder} is a file. With --hosts, -o names a directory for one bundle per host.", USAGE)
    check_writable(folder / "host" if folder.is_dir() else folder)
    snapshot = look(options, fleet, reports=False, summary=summary)
    try:
        make_directory(folder)
    except WriteError as error:
        raise CommandError(str(error), USAGE) from None
    for host in snapshot.hosts:
        name = "".join(c if c.isalnum() or c in "._-#" else "_" for c in host.name)[:120].lstrip(".") or "host"
        codec.write(msgspec.structs.replace(snapshot, hosts=(host,)), folder / f"{name}.hangdoc")
    for unreached in snapshot.unreached:
        tell(f"{unreached.host}: {unreached.why}")
    tell(f"{folder}: {len(snapshot.hosts)} bundles")
    return 0 if snapshot.hosts else NO_RANK
