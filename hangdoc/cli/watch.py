"""`hangdoc watch`: watch unattended, and act on a confirmed hang."""

import datetime
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hangdoc.cli.fleet import fleet_options
from hangdoc.cli.numbers import ByteSize, Number
from hangdoc.cli.options import observation_options, patience_option
from hangdoc.cli.output import OutputLost, show, tell
from hangdoc.commands.errors import USAGE, CommandError, install_extra
from hangdoc.commands.hosts import Hosts, command_words
from hangdoc.file_writer import WriteError
from hangdoc.file_writer import make_directory as make_private_directory
from hangdoc.parse import natural
from hangdoc.priority import give_way
from hangdoc.typed_programs import typed_programs

if TYPE_CHECKING:
    from hangdoc.cli.pages import Pages
    from hangdoc.diagnosis import Diagnosis, Job
    from hangdoc.observe.look.observe import Options
    from hangdoc.snapshot import Snapshot
    from hangdoc.watch.act import Reaction, Targets
    from hangdoc.watch.evidence import Kept
    from hangdoc.watch.loop import Watch
    from hangdoc.watch.messages import Format
    from hangdoc.watch.metrics import Exposed

F = TypeVar("F", bound=Callable[..., Any])


def watching_options(command: F) -> F:
    """Add the options for the interval, confirmation, evidence and web hooks to a command that watches."""
    for option in (
        click.option(
            "--webhook-format", type=click.Choice(["generic", "slack"]), default="generic", show_default=True,
            help="What to post: generic (event and diagnosis as JSON) or slack (a message for Slack and compatible receivers).",
        ),
        click.option(
            "--webhook", metavar="URL", envvar="HANGDOC_WEBHOOK", show_envvar=True,
            help="Post a hang and its end to this URL.",
        ),
        click.option(
            "-o", "--output", type=click.Path(path_type=Path, file_okay=False), default=Path(), metavar="DIR",
            help="Directory for bundle, report and page; created if missing.  [default: the current directory]",
        ),
        patience_option(
            "How long a hang must last before it is reported. Also how long ranks may wait without progress before it is an "
            "error."
        ),
        click.option(
            "--interval", type=Number(1, 86400), default=15.0, show_default=True, metavar="SECONDS",
            help="Time between two looks; longer when looking would use more than 5 % of a core.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command()
@observation_options(stacks=False, what="one look")
@watching_options
@click.option(
    "--on-hang",
    metavar="CMD",
    help="On a hang, run this without a shell, with the report on its stdin and the paths in its environment.",
)
@click.option(
    "--metrics", metavar="[ADDR:]PORT", help="Serve OpenMetrics on this port, on loopback unless ADDR is given."
)
@click.option("--keep", is_flag=True, help="Keep watching after a hang instead of exiting with 1.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Remember reported hangs and undelivered messages in FILE, so that a restart loses and repeats nothing.",
)
@click.option(
    "--keep-bytes",
    type=ByteSize(),
    metavar="SIZE",
    help="Limit for the evidence in --output (500M, 20G). The oldest hangs are removed first.",
)
@fleet_options()
def command(
    options: "Options", interval: float, patience: float, output: Path, on_hang: str | None, webhook: str | None,
    webhook_format: "Format", metrics: str | None, keep: bool, state: Path | None, keep_bytes: int | None, fleet: Hosts,
) -> int:  # fmt: skip
    """Watch unattended, and act on a confirmed hang.

    Observes this host or --hosts at each --interval. A hang is confirmed when it is found twice in a row and has lasted
    --patience. hangdoc then writes bundle, report and page, runs --on-hang, posts to --webhook, and exits with 1.
    With --keep it continues, and reports each hang and its end once. With --pid or --run-of it exits with 0 when these
    processes have ended.
    """
    from hangdoc.cli.pages import Pages
    from hangdoc.commands.looking import described, looker
    from hangdoc.watch.act import Reaction
    from hangdoc.watch.allocator import give_back_memory
    from hangdoc.watch.evidence import EvidenceDirectory
    from hangdoc.watch.state import Ledger, StateError

    give_back_memory()
    targets = targets_of(on_hang, webhook, webhook_format)
    make_directory(output)
    look = looker(options, fleet).look
    try:
        ledger = Ledger(state, log)
    except StateError as error:
        raise CommandError(str(error), USAGE) from None
    exposed = _expose(metrics)
    give_way()
    log(f"watching {described(options, fleet)}")
    pages = Pages(patience)
    evidence = EvidenceDirectory(output, pages.page, keep_bytes, programs=typed_programs())
    reaction = Reaction(evidence, ledger, targets, log, _show)
    watch = watch_of(look, interval, patience)._replace(hangs=ledger.hangs)
    return _watch(watch, pages, reaction, exposed, keep, _gone(options))


def targets_of(on_hang: str | None, webhook: str | None, form: "Format", names: Sequence[str] = ()) -> "Targets":
    """The targets of messages about a hang. `on_hang`: the command, if there is one. `names`: what --on-hang takes besides a
    command. Raises CommandError for an invalid command or URL."""
    from hangdoc.watch.act import Targets

    if webhook is not None and not webhook.startswith(("http://", "https://")):
        raise CommandError(f"--webhook {webhook!r} is not a URL. It must begin with http:// or https://.", USAGE)
    return Targets(command_words(on_hang, "--on-hang", names) if on_hang is not None else (), webhook, form)


def make_directory(folder: Path) -> None:
    """Create the directory for the evidence if it is missing. Raises CommandError if it is not writable."""
    try:
        make_private_directory(folder)
    except WriteError as error:
        raise CommandError(str(error), USAGE) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CommandError(f"cannot write into {folder}: permission denied. Choose another directory.", USAGE)


def watch_of(look: "Callable[[], Snapshot]", interval: float, patience: float) -> "Watch":
    """The loop that watches, with the diagnosis and the CPU clock that it needs."""
    from hangdoc.observe.look.polling import cpu_seconds
    from hangdoc.reasoning.engine import diagnose
    from hangdoc.watch.loop import Watch

    return Watch(look, lambda snapshot: diagnose(snapshot, patience=patience), cpu_seconds, interval, patience)


def _expose(metrics: str | None) -> "Exposed | None":
    if metrics is None:
        return None
    address, _, digits = metrics.rpartition(":")
    port = natural(digits)
    if port is None or port > 65535:
        raise CommandError(f"--metrics {metrics!r} is neither a port nor ADDR:PORT. Example: --metrics 9464.", USAGE)
    try:
        from hangdoc.watch.metrics import serve

        exposed, bound, _ = serve(address.strip("[]") or "127.0.0.1", port)
    except ModuleNotFoundError as error:
        raise CommandError(f"--metrics needs {error.name}. {install_extra('watch')}", USAGE) from None
    except OSError as error:
        raise CommandError(f"--metrics {metrics}: {error.strerror or error}. Choose another port.", USAGE) from None
    tell(f"metrics on {address or '127.0.0.1'}:{bound}")
    return exposed


def _show(kept: "Kept") -> None:
    try:
        show(kept.text)
    except OutputLost as lost:  # the report is in --output, too
        log(str(lost))


def _gone(options: "Options") -> Callable[[], bool]:
    """A function that returns whether all named processes have ended; always False if none is named."""
    pids = (*options.pids, *((options.run_of,) if options.run_of is not None else ()))
    return lambda: bool(pids) and not any(Path(f"/proc/{pid}").exists() for pid in pids)


def _watch(
    watch: "Watch", pages: "Pages", reaction: "Reaction", exposed: "Exposed | None", keep: bool, gone: Callable[[], bool],
) -> int:  # fmt: skip
    last: object = None
    for seen in watch.looks():
        pages.add(seen.snapshot, seen.diagnosis)
        state = [(job.id, job.verdict, [f.code for f in job.findings[:1]]) for job in seen.diagnosis.jobs]
        if state != last:
            last = state
            for line in _describe_jobs(seen.diagnosis):
                log(line)
        reaction.ledger.counts.looks += 1
        if seen.changes.began or seen.changes.over:
            reaction.act(seen.snapshot, seen.diagnosis, seen.changes.began, seen.changes.over, seen.hangs)
        else:
            reaction.remember(seen.hangs)
        if exposed is not None:
            exposed.add(seen, reaction)
        if seen.changes.began and not keep:
            reaction.finish()
            return 1
        if not seen.hangs and not seen.diagnosis.jobs and gone():
            log("the watched processes have ended")
            reaction.finish()
            return 0
    return 0


def _describe_jobs(diagnosis: "Diagnosis") -> list[str]:
    if not diagnosis.jobs:
        # A rank of which no reading came in time may be there.
        found = "no torch.distributed rank was read in time" if diagnosis.late else "no torch.distributed rank found"
        return ["; ".join((found, *diagnosis.problems[:2]))]
    from hangdoc.render.words import job_names

    names = job_names(diagnosis.jobs)
    return [f"{job.verdict}: {names[job.id]}{_describe_job(job)}" for job in diagnosis.jobs]


def _describe_job(job: "Job") -> str:
    """The first finding; without one, what that means, unless the job is healthy."""
    from hangdoc.render.words import without_finding

    if job.findings:
        return f", {job.findings[0].code} {job.findings[0].name}: {job.findings[0].summary}"
    return f". {without_finding(job)}" if job.verdict != "healthy" else ""


def log(text: str) -> None:
    """Print a line with its time (UTC) on stderr."""
    from hangdoc.render.words import clean

    now = datetime.datetime.now(datetime.timezone.utc).strftime("%H:%M:%S")
    tell(f"{now} {clean(text)}")
