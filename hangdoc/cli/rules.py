"""`hangdoc rules`: the catalogue of findings."""

import click

from hangdoc.cli.output import show
from hangdoc.commands import documents, rules
from hangdoc.commands.documents import Rules


@click.command("rules")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def command(name: str | None, as_json: bool) -> int:
    """List all findings, or explain one.

    With a NAME or code, print the page of that finding."""
    catalogue = rules.catalogue() if name is None else Rules(rules=(rules.page(name),))
    if as_json:
        show(documents.text(catalogue))
    elif name is None:
        _print_list(catalogue)
    else:
        _print_page(catalogue.rules[0].page or "")
    return 0


def _print_page(page: str) -> None:
    from rich.markdown import Markdown

    from hangdoc.render.console import make_console

    console = make_console()
    if console.is_terminal:
        console.print(Markdown(page))
    else:
        show(page)


def _print_list(catalogue: Rules) -> None:
    """Print one line per rule, wrapped on a terminal."""
    from rich.table import Table

    from hangdoc.render.console import make_console

    console = make_console(highlight=False)
    if not console.is_terminal:
        for rule in catalogue.rules:
            show(f"{rule.code}  {rule.name:24} {rule.says}")
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for rule in catalogue.rules:
        table.add_row(rule.code, rule.name, rule.says)
    console.print(table)
