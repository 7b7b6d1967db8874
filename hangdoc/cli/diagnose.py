"""`hangdoc diagnose`: observe, diagnose, report."""

import datetime
import shlex
from pathlib import Path

import click

from hangdoc import codec
from hangdoc.cli.fleet import fleet_options
from hangdoc.cli.looking import check_writable, left, look
from hangdoc.cli.options import observation_options, patience_option, refuse_look_options
from hangdoc.cli.output import show, tell
from hangdoc.commands.bundles import check_saved_or_running, evidence
from hangdoc.commands.errors import CommandError, no_such_job
from hangdoc.commands.hosts import Hosts
from hangdoc.diagnosis import Diagnosis, exit_code
from hangdoc.observe.look.observe import Options
from hangdoc.snapshot import Snapshot
from hangdoc.typed_programs import typed_programs
from hangdoc.version import __version__

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("bundles", nargs=-1, type=_FILE)
@observation_options()
@fleet_options()
@click.option("--verbose", "-v", is_flag=True, help="Show all evidence of each finding.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
@click.option("--html", type=_FILE, metavar="FILE", help="Also write the report as one self-contained HTML file.")
@click.option("--save", type=_FILE, metavar="FILE", help="Save the evidence as a bundle.")
@click.option(
    "--dumps",
    type=_FILE,
    metavar="DIR",
    help="Read the dumps of torch's flight recorder that a timeout has left in this directory.",
)
@click.option("--job", metavar="ID", help="Report only this job. --save still saves all that was observed.")
@patience_option()
def command(
    bundles: tuple[Path, ...],
    options: Options,
    verbose: bool,
    as_json: bool,
    html: Path | None,
    save: Path | None,
    dumps: Path | None,
    job: str | None,
    patience: float,
    fleet: Hosts,
) -> int:
    """Find out why a run is frozen, and which rank it waits for.

    Observes every torch.distributed rank on this host or on --hosts. Or reads what was saved: BUNDLES (files or directories), or
    --dumps of torch's own recorder. The score of a finding says how well the evidence matches its rule, from 0 to 99.

    Exit code: 0 no error found, 1 error found, 2 bad usage, 3 no rank found, 4 not enough could be observed.
    """
    check_saved_or_running(bundles, options.scope, fleet.hosts, dumps)
    if bundles:
        refuse_look_options(str(bundles[0]), "name no bundle")
    if dumps is not None:
        refuse_look_options(f"--dumps {dumps}", "leave out --dumps", but=["timeout"])
    check_writable(html)
    check_writable(save)
    try:
        snapshot = _read_evidence(bundles, dumps, options, fleet, reports=not as_json)
    except CommandError as error:
        if as_json:  # scripts always get a document
            _print_json(_make_empty_diagnosis(str(error)))
        raise
    written = []
    if save is not None:
        codec.write(snapshot, save)
        only = f" --job {shlex.quote(job)}" if job is not None else ""  # it has all runs that were observed
        again = f"{typed_programs()['hangdoc']} diagnose {shlex.quote(str(save))}{only}"
        written.append(f"{save}: the evidence, for `{again}`")
    from hangdoc.reasoning.engine import diagnose, examine  # imported during the look

    diagnosis, runs = examine(snapshot, patience=patience, job=job)
    if job is not None and not diagnosis.jobs:
        from hangdoc.render.words import job_names

        names = job_names(diagnose(snapshot).jobs)
        raise no_such_job(job, [f"{job_id} ({name})" for job_id, name in names.items()])
    try:
        _show(diagnosis, as_json, verbose=verbose)
    finally:  # also if the report was not read to its end: `hangdoc diagnose --html FILE | head`
        if html is not None:
            from hangdoc.reasoning.views.detail import details
            from hangdoc.reasoning.views.past import timelines
            from hangdoc.render.html import page

            drawn = page(diagnosis, details(diagnosis, runs), timelines(diagnosis, runs))
            codec.write_aside(html, drawn.encode())
            written.append(f"{html}: the report as a page")
        for line in () if as_json else written:
            tell(f"wrote {line}")
    return exit_code(diagnosis)


def _read_evidence(
    bundles: tuple[Path, ...], dumps: Path | None, options: Options, fleet: Hosts, *, reports: bool
) -> Snapshot:
    """What is saved, if the caller names that; else what is observed now."""
    if dumps is not None:
        from hangdoc.commands.dumps import dumps_evidence  # which decodes them, as nothing else here does

        return dumps_evidence(dumps, left(options.timeout))
    return evidence(bundles) if bundles else look(options, fleet, reports=reports)


def _make_empty_diagnosis(why: str) -> Diagnosis:
    """The document if nothing could be observed."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
    return Diagnosis(
        hangdoc=__version__,
        taken_at=now,
        window_seconds=0.0,
        elapsed_seconds=0.0,
        verdict="unknown",
        jobs=(),
        problems=(why,),
    )


def _show(diagnosis: Diagnosis, as_json: bool, *, verbose: bool) -> None:
    if as_json:
        _print_json(diagnosis)
        return
    from hangdoc.render.console import make_console
    from hangdoc.render.text import report

    report(diagnosis, make_console(), verbose=verbose, programs=typed_programs())


def _print_json(diagnosis: Diagnosis) -> None:
    from hangdoc.commands import documents  # which knows all documents

    show(documents.text(diagnosis))
