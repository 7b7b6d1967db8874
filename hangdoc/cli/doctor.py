"""`hangdoc doctor`: what hangdoc can access here, and how to fix what is missing."""

import click

from hangdoc.observe.abilities import Ability, check_all


@click.command("doctor")
def command() -> int:
    """Check what hangdoc can access here, and how to fix the rest."""
    missing = 0
    for ability in check_all():
        missing += not ability.works
        click.echo(_line(ability))
        if not ability.works:
            click.echo(f"      {ability.remedy}")
    click.echo(
        "hangdoc can access all it needs here."
        if not missing
        else f"{missing} of these are missing. hangdoc uses the others."
    )
    return 0 if not missing else 4


def _line(ability: Ability) -> str:
    return f"{'ok  ' if ability.works else 'FAIL'}  {ability.name}: {ability.found}"
