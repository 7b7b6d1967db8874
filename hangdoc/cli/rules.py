"""`hangdoc rules`: the catalogue of findings."""

import inspect

import click

from hangdoc.cli.errors import USAGE, CommandError
from hangdoc.diagnose.rules import Rule, all_rules


@click.command("rules")
@click.argument("name", required=False)
def command(name: str | None) -> int:
    """List all findings. With a NAME or code, print the page of that finding."""
    rules = all_rules()
    if name is None:
        _list(rules)
        return 0
    for rule in rules:
        if name.lower() in (rule.NAME, rule.CODE.lower()):
            from rich.console import Console
            from rich.markdown import Markdown

            page = f"# {rule.CODE} {rule.NAME}\n\n{inspect.cleandoc(rule.__doc__)}"
            console = Console()
            if console.is_terminal:
                console.print(Markdown(page))
            else:
                click.echo(page)
            return 0
    raise CommandError(f"no rule {name!r}: `hangdoc rules` lists them.", USAGE)


def _list(rules: tuple[Rule, ...]) -> None:
    """One line each, whole for a pipe and wrapped for a terminal."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        for rule in rules:
            click.echo(f"{rule.CODE}  {rule.NAME:24} {inspect.cleandoc(rule.__doc__).splitlines()[0]}")
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for rule in rules:
        table.add_row(rule.CODE, rule.NAME, inspect.cleandoc(rule.__doc__).splitlines()[0])
    console.print(table)
