"""`hangdoc doctor`: can hangdoc itself see enough here, and how to mend it."""

import click

from hangdoc.observe.abilities import Ability, check_all


@click.command("doctor")
def command() -> int:
    """Check whether hangdoc can see enough on this host: py-spy, ptrace, memory, sockets, permissions."""
    missing = 0
    for ability in check_all():
        missing += not ability.works
        click.echo(_line(ability))
        if not ability.works:
            click.echo(f"      {ability.remedy}")
    click.echo(
        "hangdoc sees all it needs here." if not missing else f"{missing} of these are missing; the rest is used."
    )
    return 0 if not missing else 4


def _line(ability: Ability) -> str:
    return f"{'ok  ' if ability.works else 'FAIL'}  {ability.name}: {ability.found}"
