"""`hangdoc watch`: no screen; poll, and act on a confirmed hang."""

import datetime
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangdoc.cli.errors import USAGE, CommandError
from hangdoc.cli.fleet import Hosts, fleet_options, words
from hangdoc.cli.looking import check_writable, described, looker
from hangdoc.cli.options import observation_options, patience_option
from hangdoc.diagnosis import Diagnosis, Job
from hangdoc.observe.again import cpu_seconds
from hangdoc.observe.observe import Options
from hangdoc.redact import Locals
from hangdoc.snapshot import Snapshot

if TYPE_CHECKING:
    from hangdoc.watch.metrics import Exposed

_MOST_OF_A_CORE = 0.05


@click.command()
@observation_options
@click.option(
    "--interval",
    type=click.FloatRange(1, 86400),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="From one look to the next; more where looking would take more than 5 % of a core.",
)
@patience_option("How long a hang must last, and how long a wait for a working rank is no error.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="DIR",
    help="Where bundle and report are written.  [default: here]",
)
@click.option("--on-hang", metavar="CMD", help="Run this on a hang: the report on its stdin, paths in its environment.")
@click.option("--webhook", metavar="URL", help="Post the diagnosis as JSON on a hang.")
@click.option("--metrics", metavar="[ADDR:]PORT", help="Expose OpenMetrics; on loopback unless ADDR says otherwise.")
@click.option("--keep", is_flag=True, help="Go on after a hang, instead of ending with exit code 1.")
@fleet_options
def command(
    pids: tuple[int, ...], window: float, native: str, locals_: Locals, timeout: float,
    interval: float, patience: float, output: Path,
    on_hang: str | None, webhook: str | None, metrics: str | None, keep: bool, fleet: Hosts,
) -> int:  # fmt: skip
    """Watch without a screen: poll this host or --hosts, and act on a confirmed hang.

    A hang is confirmed when two looks in a row say the same and it has lasted --patience. Then the bundle and the report are
    written, --on-hang and --webhook are called, and the exit code is 1.
    """
    if webhook is not None and not webhook.startswith(("http://", "https://")):
        raise CommandError(f"--webhook {webhook!r} is no address of the web: http://... or https://...", USAGE)
    check_writable(output / "bundle")
    called = words(on_hang, "--on-hang") if on_hang is not None else ()
    look = looker(Options(window=window, timeout=timeout, native=native, pids=pids, locals=locals_), fleet)
    exposed = _expose(metrics)
    os.nice(19)  # as `top`: a run on full cores comes first
    return _watch(look, _Reaction(output, called, webhook, keep), exposed, interval, patience, described(pids, fleet))


def _expose(metrics: str | None) -> "Exposed | None":
    if metrics is None:
        return None
    address, _, port = metrics.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise CommandError(f"--metrics {metrics!r}: a port or ADDR:PORT is expected, for instance 9464.", USAGE)
    try:
        from hangdoc.watch.metrics import serve

        exposed, bound, _ = serve(address.strip("[]") or "127.0.0.1", int(port))
    except ModuleNotFoundError as error:
        raise CommandError(f"--metrics needs {error.name}: pip install 'hangdoc[watch]'.", USAGE) from None
    except OSError as error:
        raise CommandError(f"--metrics {metrics}: {error.strerror or error}. Choose another port.", USAGE) from None
    click.echo(f"metrics on {address or '127.0.0.1'}:{bound}", err=True)
    return exposed


class _Reaction:
    """What to do about a hang."""

    def __init__(self, folder: Path, command: tuple[str, ...], webhook: str | None, keep: bool) -> None:
        self._folder, self._command, self._webhook, self.keep = folder, command, webhook, keep

    def act(self, snapshot: Snapshot, diagnosis: Diagnosis, jobs: list[Job]) -> None:
        """Write, call, post; what fails is said, and the rest is done all the same."""
        from hangdoc.codec import BundleError
        from hangdoc.watch import act

        try:
            kept = act.keep(snapshot, diagnosis, self._folder)
        except BundleError as error:
            _say(str(error))
            kept = None
        if kept is not None:
            click.echo(kept.text)
            _say(f"bundle {kept.bundle}, report {kept.report}")
        wrong = []
        if self._command and kept is not None:
            wrong.append(act.call(self._command, kept, diagnosis, tuple(job.id for job in jobs)))
        if self._webhook is not None:
            wrong.append(act.post(self._webhook, diagnosis))
        for text in filter(None, wrong):
            _say(text)


def _watch(
    look: Callable[[], Snapshot], reaction: _Reaction, exposed: "Exposed | None", interval: float, patience: float, what: str
) -> int:  # fmt: skip
    from hangdoc.diagnose.engine import diagnose
    from hangdoc.watch.confirm import Confirmation

    confirmation = Confirmation(patience)
    last: object = None
    first = True
    _say(f"watching {what}")
    while True:
        began, used = time.monotonic(), cpu_seconds()
        snapshot = look()
        diagnosis = diagnose(snapshot, patience=patience)
        story = [(job.id, job.verdict, [f.code for f in job.findings[:1]]) for job in diagnosis.jobs]
        if story != last:
            last = story
            for line in _lines(diagnosis):
                _say(line)
        if exposed is not None:
            exposed.diagnosis, exposed.seconds = diagnosis, time.monotonic() - began
            exposed.looks += 1
        sure = confirmation.add(diagnosis, time.monotonic())
        if sure:
            if exposed is not None:
                exposed.hangs += len(sure)
            reaction.act(snapshot, diagnosis, sure)
            if not reaction.keep:
                return 1
        pace = interval if first else max(interval, (cpu_seconds() - used) / _MOST_OF_A_CORE)
        first = False  # which also loads what it needs
        time.sleep(max(0.0, began + pace - time.monotonic()))


def _lines(diagnosis: Diagnosis) -> list[str]:
    if not diagnosis.jobs:
        return [" ".join(("no rank of torch.distributed", *diagnosis.problems[:2]))]
    return [
        f"{job.verdict}: {job.id}, {len(job.ranks)} ranks"
        + (f", {job.findings[0].code} {job.findings[0].name}: {job.findings[0].summary}" if job.findings else "")
        for job in diagnosis.jobs
    ]


def _say(text: str) -> None:
    from hangdoc.render.words import clean

    now = datetime.datetime.now(datetime.UTC).strftime("%H:%M:%S")
    click.echo(f"{now} {clean(text)}", err=True)
