"""`hangdoc rules`: the catalogue of findings."""

import inspect

import click

from hangdoc.cli.errors import USAGE, CommandError
from hangdoc.diagnose.rules import all_rules


@click.command("rules")
@click.argument("name", required=False)
def command(name: str | None) -> int:
    """List all findings; with a NAME or code, that rule's whole page."""
    rules = all_rules()
    if name is None:
        for rule in rules:
            click.echo(f"{rule.CODE}  {rule.NAME:24} {inspect.cleandoc(rule.__doc__).splitlines()[0]}")
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
