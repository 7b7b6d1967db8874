"""`hangdoc schema`: the JSON Schemas of the documents that commands print with --json."""

import click

from hangdoc.cli.output import show
from hangdoc.commands.errors import USAGE, CommandError


@click.command("schema")
@click.argument("name", metavar="[COMMAND]", default="diagnose")
def command(name: str) -> int:
    """Print the JSON Schema of --json.

    COMMAND is diagnose (default), preflight, launch-diff, doctor or rules.
    """
    from hangdoc.commands import documents
    from hangdoc.schema import diagnosis_schema, published

    if name == "diagnose":
        show(documents.text(diagnosis_schema()))
        return 0
    if (kind := documents.BY_COMMAND.get(name)) is None:
        commands = ", ".join(("diagnose", *documents.BY_COMMAND))
        raise CommandError(f"{name!r} has no JSON document. Commands with one: {commands}.", USAGE)
    show(documents.text(published(kind, kind.__struct_defaults__[-1])))
    return 0
