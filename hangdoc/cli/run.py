"""`hangdoc run`: start a launcher and observe its processes from outside."""

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hangdoc.cli.fleet import fleet_options
from hangdoc.cli.numbers import Number
from hangdoc.cli.options import locals_option, native_option, ras_option, timeout_option, window_option
from hangdoc.cli.watch import make_directory, targets_of, watch_of, watching_options
from hangdoc.commands.errors import CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.phrases import beginning
from hangdoc.redact import Locals
from hangdoc.typed_programs import typed_programs
from hangdoc.watch import command as passthrough

if TYPE_CHECKING:
    from hangdoc.cli.pages import Pages
    from hangdoc.diagnosis import Job
    from hangdoc.fleet.transport import Transport
    from hangdoc.observe.look.observe import Options
    from hangdoc.snapshot import Snapshot
    from hangdoc.watch.act import Reaction, Targets
    from hangdoc.watch.confirm import Confirmed
    from hangdoc.watch.evidence import Kept
    from hangdoc.watch.loop import Seen
    from hangdoc.watch.messages import Format
    from hangdoc.watch.nodes import Nodes

_DEFER_SECONDS = 30.0
"""How long a node waits for the report of the node of rank 0."""
_PREFIX = "hangdoc: "
"""Of each line, because the command writes to the same stream."""
_ACTIONS = ("report", "stop")
"""What --on-hang takes besides a command."""
_STOPS = f"--on-hang stop: because of this hang, hangdoc ends the run, and exits with code {passthrough.STOPPED_CODE}."
_ELSEWHERE = {
    "srun": "Write `srun hangdoc run -- torchrun ...`.",
    "sbatch": "Write `srun hangdoc run -- torchrun ...` in the script.",
    "ssh": "Write `ssh host hangdoc run -- torchrun ...`.",
}


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """The values of the options."""

    program: str
    window: float
    native: str
    ras: str
    locals: Locals
    timeout: float
    interval: float
    patience: float
    output: Path
    stop: bool
    targets: "Targets"
    hosts: tuple[str, ...]
    transport: "Transport | None"


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command_line", nargs=-1, required=True, metavar="-- COMMAND", type=click.UNPROCESSED)
@window_option()
@native_option
@ras_option
@locals_option
@timeout_option("Time limit for one look.")
@watching_options
@click.option(
    "--on-hang", default="report", show_default=True, metavar="report|stop|CMD",
    help="On a hang: only report it, stop the command (exit code 86), or run CMD without a shell, with the report on its stdin.",
)  # fmt: skip
@click.option(
    "--grace", type=Number(0, 3600), default=10.0, show_default=True, metavar="SECONDS",
    help="With --on-hang stop, the time between SIGTERM and SIGKILL.",
)  # fmt: skip
@fleet_options()
def command(
    command_line: tuple[str, ...], window: float, native: str, ras: str, locals_: Locals, timeout: float,
    interval: float, patience: float, output: Path, on_hang: str, webhook: str | None, webhook_format: "Format", grace: float,
    fleet: Hosts,
) -> int:  # fmt: skip
    """Start a launcher and observe its processes from outside.

    Example: hangdoc run -- torchrun ... train.py

    The command keeps its standard input and output, its signals and its exit code. When its ranks hang, hangdoc prints the
    verdict on stderr and writes bundle, report and page into --output.

    On several nodes, start it on each node (srun hangdoc run -- torchrun ...) with a shared --output, or use --hosts. The node
    of rank 0 reports for all nodes.

    Exit code: that of the command; 86 if --on-hang stop ended it, 127 if it was not found, 126 if it could not be executed.
    """
    targets = targets_of(None if on_hang in _ACTIONS else on_hang, webhook, webhook_format, _ACTIONS)
    output = Path(os.path.realpath(output))  # the command may change the working directory
    make_directory(output)
    settings = _Settings(
        program=command_line[0],
        window=window, native=native, ras=ras, locals=locals_, timeout=timeout, interval=interval, patience=patience,
        output=output,
        stop=on_hang == "stop", targets=targets,
        hosts=fleet.names() if fleet.hosts is not None else (),
        transport=fleet.transport(timeout) if fleet.hosts is not None else None,
    )  # fmt: skip
    try:
        return passthrough.run(command_line, lambda pid, lifeline: _observe(pid, lifeline, settings), grace, _log)
    except passthrough.StartError as error:
        raise CommandError(str(error), error.exit_code) from None


def _observe(pid: int, lifeline: passthrough.Lifeline, settings: _Settings) -> str | None:
    """Watch the command until it ends or must be stopped. Returns why it must be stopped, else None."""
    from hangdoc.cli.pages import Pages
    from hangdoc.observe.look.observe import Options
    from hangdoc.observe.look.polling import Polling
    from hangdoc.watch.act import Reaction
    from hangdoc.watch.allocator import give_back_memory
    from hangdoc.watch.evidence import EvidenceDirectory
    from hangdoc.watch.nodes import Nodes
    from hangdoc.watch.state import Ledger

    give_back_memory()
    if sys.stderr.isatty():
        _log(f"watching pid {pid}; a hang that lasts {settings.patience:g} s is reported here and in {settings.output}")
    _report_missing_permissions()
    options = Options(
        window=settings.window,
        timeout=settings.timeout,
        native=settings.native,
        ras=settings.ras,
        pids=(pid,),
        locals=settings.locals,
    )
    alone = watch_of(Polling(options).look, settings.interval, settings.patience)
    nodes = Nodes(pid, alone.look, alone.diagnose, settings.output, _log, _reach(options, settings))
    watch = alone._replace(
        look=nodes.look, diagnose=lambda snapshot: nodes.mine(alone.diagnose(snapshot)), pause=nodes.pause
    )
    pages = Pages(settings.patience)
    reaction = Reaction(
        EvidenceDirectory(
            settings.output,
            pages.page,
            closing=_STOPS if settings.stop else None,
            programs=typed_programs(),
            margin=len(_PREFIX),
        ),
        Ledger(None, _log),
        settings.targets,
        _log,
        _show,
    )
    if (better := _ELSEWHERE.get(os.path.basename(settings.program))) is not None:
        _log(f"{settings.program} starts the ranks where hangdoc does not observe them. {better}")
    lifeline.at_end = nodes.leave
    reporter = _Reporter(nodes, reaction, pages, settings.patience)
    try:
        reported = filter(None, (reporter.report(seen, lifeline) for seen in watch.looks()))
        return next((hang for hang in reported if settings.stop), None)
    finally:
        nodes.leave()


class _Reporter:
    """Decides what to report about a run and when. One node reports a hang and its end, once."""

    def __init__(self, nodes: "Nodes", reaction: "Reaction", pages: "Pages", patience: float) -> None:
        self._nodes, self._reaction, self._pages, self._patience = nodes, reaction, pages, patience
        self._deferred: float | None = None
        """When this node began to wait for the report of the node of rank 0; None if it does not wait."""
        self._reported: set[str] = set()
        """Ids of the hangs that this node has reported. It also reports their end."""
        self._unclear: dict[str, float] = {}
        """Since when bundles of other nodes have been missing for a verdict, by job; infinite once that was reported."""

    def report(self, seen: "Seen", lifeline: passthrough.Lifeline) -> str | None:
        """Report what a look showed. Returns the hang that was reported, here or on another node, as one sentence; None for
        none."""
        nodes, changes, now = self._nodes, seen.changes, time.monotonic()
        self._pages.add(seen.snapshot, seen.diagnosis)
        for end in changes.over:
            self._deferred = None
            if end.hang.id in self._reported:
                self._reaction.act(seen.snapshot, seen.diagnosis, (), (end,))
            elif end.ending == "goes-on":
                _log(f"job {end.hang.job} is making progress again")
        if (where := nodes.announced()) is not None:
            self._deferred = None
            _log(f"HUNG: {where}")
            return where
        self._report_missing_nodes(seen, now)
        hung = changes.confirmed or [job for job in seen.diagnosis.jobs if job.verdict == "hung"]
        if not hung or (self._deferred is None and not changes.confirmed):
            return None
        if not all(nodes.reports_here(job) for job in hung):
            if self._deferred is None:
                self._deferred = now
                _log("HUNG: the node of rank 0 writes the report, because it has the bundles of all nodes")
            if now - self._deferred < _DEFER_SECONDS:
                return None
            _log(
                f"the node of rank 0 has not reported within {_DEFER_SECONDS:g} s, so {nodes.host} reports its own ranks"
            )
        self._deferred = None
        with lifeline.held():
            confirmed = _confirm_hangs(hung, seen)
            self._reported |= {confirmation.hang.id for confirmation in confirmed}
            kept = self._reaction.act(seen.snapshot, seen.diagnosis, confirmed)
            self._reaction.finish()
            for text in filter(None, map(nodes.missing, hung)):
                _log(text)
            report = kept[0].report if kept else None
            nodes.announce(f"reported by {nodes.host}" + (f" in {report}" if report else ""))
        return _describe_hang(hung[0], report)

    def _report_missing_nodes(self, seen: "Seen", now: float) -> None:
        """Report once that bundles of other nodes are missing for a verdict, when a hang would be confirmed."""
        unclear = {}
        for job in seen.diagnosis.jobs:
            missing = self._nodes.missing(job) if job.verdict == "unknown" and self._nodes.reports_here(job) else None
            if missing is not None:
                since = unclear[job.id] = self._unclear.get(job.id, now)
                if now - since >= self._patience:
                    _log(f"job {job.id} makes no progress on {self._nodes.host}, and the verdict is unknown: {missing}")
                    unclear[job.id] = math.inf
        self._unclear = unclear


def _describe_hang(job: "Job", report: Path | None) -> str:
    """`rank 1 did not call ...; rank 1 is waiting in barrier; rank 0 is at train.py:27 in main; report FILE`."""
    from hangdoc.render.words import place

    text = "no rank makes progress"
    if job.findings:
        text = job.findings[0].summary
        places = ((view.rank, at) for view in job.ranks if view.rank in job.findings[0].culprits and (at := view.where))
        if (found := next(places, None)) is not None and f"{found[1].file}:{found[1].line}" not in text:
            text += f"; rank {found[0]} is at {place(found[1])}"
    return f"{text}; report {report}" if report is not None else text


def _confirm_hangs(jobs: "list[Job]", seen: "Seen") -> "list[Confirmed]":
    """The hangs of these jobs. A report that another node did not write may be several looks late."""
    from hangdoc.watch.confirm import Confirmed
    from hangdoc.watch.hangs import hang_of, observed_in

    hangs = {hang.job: hang for hang in seen.hangs if not hang.looks_without}
    now = time.monotonic()
    observed = observed_in(seen.snapshot, now)
    return [Confirmed(hangs.get(job.id) or hang_of(job, now, seen.diagnosis.taken_at, observed), job) for job in jobs]


def _reach(options: "Options", settings: _Settings) -> "Callable[[], Snapshot] | None":
    transport = settings.transport
    if transport is None:
        return None
    from msgspec.structs import replace

    from hangdoc.fleet.courier import Courier
    from hangdoc.fleet.gather import gather

    there = replace(options, pids=())
    courier = Courier(transport, keep=True) if transport.brings() is not None else None
    return lambda: gather(settings.hosts, there, transport, courier=courier)


def _report_missing_permissions() -> None:
    """Check what a look needs, and report what does not work. The command continues anyway."""
    from hangdoc.observe.look.abilities import check_all

    missing = [ability for ability in check_all() if not ability.works]
    if missing:
        problems = "; ".join(f"{ability.name}: {ability.found}" for ability in missing)
        _log(f"hangdoc cannot read everything here, so it may miss hangs ({problems}). {missing[0].remedy}")


def _show(kept: "Kept") -> None:
    _log(beginning(kept.text))


def _log(text: str) -> None:
    """Print lines on stderr with one write, because the command writes there too."""
    from hangdoc.render.words import clean

    lines = "".join(f"{_PREFIX}{clean(line)}\n" for line in text.splitlines())
    with contextlib.suppress(OSError):
        os.write(2, lines.encode("utf-8", "replace"))
