"""`hangdoc demo`: a real hang of the included trainer, diagnosed from outside."""

import click

from hangdoc.cli.errors import USAGE, CommandError
from hangdoc.cli.looking import look
from hangdoc.diagnose.engine import diagnose
from hangdoc.diagnosis import exit_code
from hangdoc.observe.observe import Options


@click.command("demo")
@click.argument("name", default="shard-mismatch")
@click.option("--list", "list_them", is_flag=True, help="List the situations.")
def command(name: str, list_them: bool) -> int:
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
    click.echo("starting torchrun and waiting until the run stands still ...", err=True)
    try:
        with Started(scenario) as run:
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
