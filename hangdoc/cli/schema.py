"""`hangdoc schema`: the JSON Schema of the diagnosis document."""

import click


@click.command("schema")
def command() -> int:
    """Print the JSON Schema of what `hangdoc diagnose --json` prints."""
    from hangdoc.commands import documents
    from hangdoc.schema import diagnosis_schema

    click.echo(documents.text(diagnosis_schema()))
    return 0
