"""The Python API: diagnoses running ranks, or saved bundles, and returns the result as a value.

    import hangdoc

    result = hangdoc.diagnose()                        # every rank of this host
    result = hangdoc.diagnose(pids=[launcher.pid])     # the ranks of a launcher
    result = hangdoc.diagnose(hosts="node[0-63]")      # all hosts, over ssh
    result = hangdoc.diagnose(bundles=["hang.hangdoc"])

    for job in result.jobs:
        for finding in job.findings:
            print(job.verdict, finding.code, finding.summary, finding.culprits)

Call it in a process that is not a rank: a rank that calls it would observe its own call. In a rank, use `hangdoc.watchdog`.
"""

import html
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from hangdoc.commands.errors import CommandError
from hangdoc.diagnosis import Diagnosis
from hangdoc.redact import Locals

if TYPE_CHECKING:
    from hangdoc.snapshot import Snapshot

_FRAME_PIXELS = 640
_PLURALS = {"pid": "pids", "ssh_option": "ssh_options"}


class DiagnoseError(Exception):
    """Nothing could be diagnosed. The message gives the reason and the remedy. `exit_code` is that of `hangdoc diagnose`: 2 for a
    wrong argument, 3 if there is no rank, 4 if too little could be observed."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Result(Diagnosis, frozen=True, kw_only=True, dict=True, gc=True):
    """A `hangdoc.diagnosis.Diagnosis` together with its evidence. `msgspec.json.encode(result)` gives the diagnosis without the
    evidence. A notebook displays it as the HTML page."""

    @property
    def evidence(self) -> "Snapshot":
        """What was observed: a `hangdoc.snapshot.Snapshot`."""
        snapshot: Snapshot = self.__dict__["snapshot"]
        return snapshot

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Write the evidence to a bundle, for `hangdoc diagnose FILE`. Raises hangdoc.codec.BundleError."""
        from hangdoc import codec

        codec.write(self.evidence, Path(path))

    def text(self, width: int = 100) -> str:
        """The report that `hangdoc diagnose` prints, in lines of at most `width` characters."""
        from hangdoc.render.console import record_console
        from hangdoc.render.text import report

        console = record_console(width)
        report(self, console)
        return console.export_text()

    def html(self) -> str:
        """The page that `hangdoc diagnose --html` writes: one self-contained document."""
        from hangdoc.reasoning.engine import examine
        from hangdoc.reasoning.views.detail import details
        from hangdoc.render.html import page

        _, runs = examine(self.evidence, patience=self.__dict__["patience"], job=self.__dict__["job"])
        return page(self, details(self, runs))

    def _repr_html_(self) -> str:
        """For Jupyter: the page in a sandboxed frame without access to the notebook or the network."""
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{html.escape(self.html(), quote=True)}" '
            f'style="width:100%;height:{_FRAME_PIXELS}px;border:0" title="hangdoc: {self.verdict}"></iframe>'
        )


def diagnose(
    *,
    pids: Iterable[int] = (),
    run_of: int | None = None,
    slurm_job: str | None = None,
    hosts: str | Iterable[str] | None = None,
    bundles: "Iterable[str | os.PathLike[str]]" = (),
    job: str | None = None,
    window: float = 1.0,
    patience: float = 30.0,
    timeout: float = 30.0,
    native: Literal["auto", "never", "always"] = "auto",
    ras: Literal["auto", "never", "always"] = "auto",
    stacks: bool = False,
    locals: Locals = "used",
    via: str | None = None,
    ssh_options: Iterable[str] = (),
    remote_command: str = "hangdoc",
    fanout: int = 64,
    host_timeout: float = 20.0,
    ship: Literal["auto", "always", "never"] = "auto",
) -> Result:
    """Observe the ranks once, and find out which rank is waiting for which, and why. It only reads, and changes no rank.

    Without arguments, it diagnoses every readable rank of this host. These arguments choose others:

    - `pids`: only ranks in the process trees of these pids.
    - `run_of`: only the run that this pid is a rank of.
    - `slurm_job`: only the processes of this Slurm job.
    - `hosts`: the ranks of these hosts, as a node set (`"node[0-63]"`, `"slurm:JOBID"`) or as names. `via`, `ssh_options`,
      `remote_command`, `fanout`, `host_timeout` and `ship` say how to reach the hosts, like the options of `hangdoc diagnose`.
    - `bundles`: saved evidence.
    - `job`: only the job with this id.

    `window` is the length of the observation, `timeout` its time limit, and `patience` the age at which a wait for a rank without
    progress becomes an error; all in seconds. `stacks`: also read the stacks of ranks that make calls. Raises DiagnoseError.
    """
    from hangdoc.codec import BundleError
    from hangdoc.commands.bundles import check_saved_or_running, evidence
    from hangdoc.commands.errors import no_such_job
    from hangdoc.commands.hosts import Hosts
    from hangdoc.commands.looking import look_at_hosts, look_here
    from hangdoc.observe.look.observe import Options
    from hangdoc.reasoning.engine import examine

    for argument, seconds in (
        ("window", window), ("patience", patience), ("timeout", timeout), ("host_timeout", host_timeout),
    ):  # fmt: skip
        if not 0 <= seconds < math.inf:
            raise DiagnoseError(f"`{argument}` is {seconds}. Give a number of seconds.", 2)
    options = Options(
        pids=tuple(pids),
        run_of=run_of,
        slurm_job=slurm_job,
        window=window,
        timeout=timeout,
        native=native,
        ras=ras,
        stacks=stacks,
        locals=locals,
    )
    names = hosts if hosts is None or isinstance(hosts, str) else ",".join(hosts)
    fleet = Hosts(
        hosts=names, via=via, ssh_option=tuple(ssh_options), remote_command=remote_command, fanout=fanout,
        host_timeout=host_timeout, ship=ship,
    )  # fmt: skip
    try:
        if saved := tuple(map(Path, bundles)):
            check_saved_or_running(saved, options.scope, fleet.hosts)
            snapshot = evidence(saved)
        elif fleet.hosts is None:
            snapshot = look_here(options)
        else:
            snapshot = look_at_hosts(options, fleet)
        diagnosis, _ = examine(snapshot, patience=patience, job=job)
        if job is not None and not diagnosis.jobs:
            raise no_such_job(job, [available.id for available in examine(snapshot, patience=patience)[0].jobs])
    except CommandError as error:
        raise DiagnoseError(_with_arguments(str(error)), error.exit_code) from None
    except BundleError as error:
        raise DiagnoseError(str(error), 2) from None
    result = Result(**msgspec.structs.asdict(diagnosis))
    result.__dict__.update(snapshot=snapshot, patience=patience, job=job)
    return result


def _with_arguments(message: str) -> str:
    """An error message of the command line with arguments (`run_of`) instead of options (`--run-of`)."""

    def argument(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        return f"`{_PLURALS.get(name, name)}`"

    return re.sub(r"(?<!\S)--([a-z]+(?:-[a-z]+)*)", argument, message)
