"""`hangdoc demo`: freezes the included trainer and diagnoses it, or keeps it for experiments."""

import shlex
import signal
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from hangdoc.cli.looking import look
from hangdoc.cli.output import show, tell
from hangdoc.commands.errors import USAGE, CommandError, install_extra, suggest
from hangdoc.diagnosis import exit_code
from hangdoc.observe.look.observe import Options
from hangdoc.portable import running_from
from hangdoc.reasoning.engine import diagnose
from hangdoc.typed_programs import typed_programs

if TYPE_CHECKING:
    from hangdoc_trainer.scenarios import Started

_POLL_SECONDS = 0.5
_NEEDED = ("torch", "numpy", "pyarrow")
"""What the trainer imports, in processes of its own."""


@click.command("demo")
@click.argument("name", default="shard-mismatch")
@click.option("--list", "list_them", is_flag=True, help="List the demos.")
@click.option("--hold", is_flag=True, help="Keep the run until Ctrl-C, and print its pids and commands to try.")
def command(name: str, list_them: bool, hold: bool) -> int:
    """Freeze a small training run on purpose, and diagnose it.

    NAME is one of `hangdoc demo --list`. The default is shard-mismatch: two nodes with different numbers of data shards.
    """
    from hangdoc_trainer.scenarios import SCENARIOS, Started

    if list_them:
        for scenario in SCENARIOS.values():
            show(f"{scenario.name:24} {scenario.summary}")
        return 0
    if name not in SCENARIOS:
        raise CommandError(
            f"there is no demo {name!r}.{suggest(name, SCENARIOS)} `hangdoc demo --list` lists them.", USAGE
        )
    if (missing := next((module for module in _NEEDED if find_spec(module) is None), None)) is not None:
        remedy = install_extra("trainer")
        if (file := running_from()) is not None:
            remedy = f"Run this file with a Python that has it: PYTHON {shlex.quote(str(file))} demo {name}"
        raise CommandError(f"the demo needs {missing}. {remedy}", USAGE)
    scenario = SCENARIOS[name]
    tell(f"{name}: {scenario.summary}")
    tell(f"starting torchrun and waiting until the run {_describe_state(scenario.frozen)} ...")
    _end_once()
    try:
        with Started(scenario) as run:
            if hold:
                return _hold(run)
            pids = " --pid ".join(map(str, run.pids))
            tell(f"$ {typed_programs()['hangdoc']} diagnose --pid {pids} --patience {scenario.patience:g}\n")
            snapshot = look(Options(pids=run.pids))
            diagnosis = diagnose(snapshot, patience=scenario.patience)
    except RuntimeError as error:
        raise CommandError(str(error), USAGE) from None
    from hangdoc.render.console import make_console
    from hangdoc.render.text import report

    report(diagnosis, make_console(), programs=typed_programs())
    return exit_code(diagnosis)


def _describe_state(frozen: bool) -> str:
    return "is frozen" if frozen else "trains"


def _end_once() -> None:
    """Let the first signal end the command, and ignore later ones, which would interrupt the cleanup (a closing terminal sends
    several). SIGHUP stays ignored under nohup. SIGINT always ends the command, although shells let background jobs ignore it."""
    ending = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        ending.append(signal.SIGHUP)

    def end(number: int, _frame: FrameType | None) -> None:
        for signal_number in ending:
            signal.signal(signal_number, lambda *_: None)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    for signal_number in ending:
        signal.signal(signal_number, end)


def _hold(run: "Started") -> int:
    """Keep the run until Ctrl-C (exit code 0), another signal, or its own end."""
    for line in _hold_text(run, typed_programs()):
        show(line)
    try:
        while run.launchers():
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        tell("\nending the run ...")
        return 0
    tell("the run has ended")
    return 0


def _hold_text(run: "Started", programs: Mapping[str, str]) -> list[str]:
    """Lines with the processes of a run, and with commands to try on it."""
    launchers, ranks = run.launchers(), run.rank_pids()
    of_run = "".join(f" --pid {pid}" for pid in launchers) + f" --patience {run.scenario.patience:g}"
    shown = [
        *(f"  launcher  pid {pid}" for pid in launchers),
        *(f"  rank {rank:<4} " + (f"pid {ranks[rank]}" if rank in ranks else "gone") for rank in range(run.world)),
    ]
    # py-spy can't pause a process that is already stopped.
    spied = [f"{pid} --nonblocking" if _is_stopped(pid) else str(pid) for _, pid in sorted(ranks.items())]
    return [
        f"The run {_describe_state(run.scenario.frozen)}:",
        *shown,
        "",
        "Try in another terminal:",
        f"  {programs['hangdoc']} diagnose{of_run}",
        f"  {programs['hangdoc']} top{of_run}",
        *(f"  {programs['py-spy']} dump --pid {target}" for target in spied),
        "",
        "Ctrl-C ends the run and removes its files.",
    ]


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False
