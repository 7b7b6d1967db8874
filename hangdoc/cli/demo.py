"""`hangdoc demo`: a real hang of the included trainer, diagnosed from outside or left in place."""

import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from hangdoc.cli.looking import look
from hangdoc.commands.errors import USAGE, CommandError
from hangdoc.diagnose.engine import diagnose
from hangdoc.diagnosis import exit_code
from hangdoc.observe.observe import Options

if TYPE_CHECKING:
    from hangdoc_trainer.scenarios import Started

_POLL_SECONDS = 0.5


@click.command("demo")
@click.argument("name", default="shard-mismatch")
@click.option("--list", "list_them", is_flag=True, help="List the situations.")
@click.option("--hold", is_flag=True, help="Leave the run in place until Ctrl-C, and print its pids and what to try.")
def command(name: str, list_them: bool, hold: bool) -> int:
    """Start the included trainer with a fault, wait until it is frozen, diagnose it, clean up.

    NAME is one of `hangdoc demo --list`; the default is the classic: two nodes whose shard directories differ.
    """
    try:
        from hangdoc_trainer.scenarios import SCENARIOS, Started
    except ModuleNotFoundError as error:
        raise CommandError(f"the demo needs {error.name}: pip install 'hangdoc[trainer]'.", USAGE) from None
    if list_them:
        for scenario in SCENARIOS.values():
            click.echo(f"{scenario.name:24} {scenario.summary}")
        return 0
    if name not in SCENARIOS:
        raise CommandError(f"no demo {name!r}: `hangdoc demo --list` lists them.", USAGE)
    scenario = SCENARIOS[name]
    click.echo(f"{name}: {scenario.summary}", err=True)
    click.echo(f"starting torchrun and waiting until the run {_awaited(scenario.frozen)} ...", err=True)
    _end_once()
    try:
        with Started(scenario) as run:
            if hold:
                return _hold(run)
            command_line = (
                f"hangdoc diagnose --pid {' --pid '.join(map(str, run.pids))} --patience {scenario.patience:g}"
            )
            click.echo(f"$ {command_line}\n", err=True)
            snapshot = look(Options(pids=run.pids))
            diagnosis = diagnose(snapshot, patience=scenario.patience)
    except RuntimeError as error:
        raise CommandError(str(error), USAGE) from None
    from rich.console import Console

    from hangdoc.render.text import report

    report(diagnosis, Console())
    return exit_code(diagnosis)


def _awaited(frozen: bool) -> str:
    return "stands still" if frozen else "trains"


def _end_once() -> None:
    """The first signal that ends a command also disarms the others: a second one (a terminal that closes sends several) must
    not interrupt the cleanup that the first one started. Under nohup, SIGHUP stays ignored; SIGINT, which a shell lets its
    background jobs ignore, always ends it."""
    ending = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        ending.append(signal.SIGHUP)

    def end(number: int, _frame: FrameType | None) -> None:
        for one in ending:
            signal.signal(one, lambda *_: None)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        sys.exit(128 + number)

    for one in ending:
        signal.signal(one, end)


def _hold(run: "Started") -> int:
    """Keep the run until Ctrl-C (exit code 0), another signal, or its own end."""
    for line in _to_try(run, _program):
        click.echo(line)
    try:
        while run.launchers():
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        click.echo("\nending the run ...", err=True)
        return 0
    click.echo("the run has ended by itself", err=True)
    return 0


def _to_try(run: "Started", program: Callable[[str], str]) -> list[str]:
    """The processes of a run, and commands that show something of it."""
    launchers, ranks = run.launchers(), run.rank_pids()
    of_run = "".join(f" --pid {pid}" for pid in launchers) + f" --patience {run.scenario.patience:g}"
    shown = [
        *(f"  launcher  pid {pid}" for pid in launchers),
        *(f"  rank {rank:<4} " + (f"pid {ranks[rank]}" if rank in ranks else "gone") for rank in range(run.world)),
    ]
    # py-spy can't pause a process that is stopped already.
    spied = [f"{pid} --nonblocking" if _is_stopped(pid) else str(pid) for _, pid in sorted(ranks.items())]
    return [
        f"The run {_awaited(run.scenario.frozen)}:",
        *shown,
        "",
        "Try in another terminal:",
        f"  {program('hangdoc')} diagnose{of_run}",
        f"  {program('hangdoc')} top{of_run}",
        *(f"  {program('py-spy')} dump --pid {target}" for target in spied),
        "",
        "Ctrl-C ends the run and removes its files.",
    ]


def _program(name: str) -> str:
    """How to type a program of this environment: by its name where the PATH has it."""
    return name if shutil.which(name) is not None else str(Path(sys.executable).with_name(name))


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return False
