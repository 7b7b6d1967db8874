"""`hangdoc doctor`: what hangdoc can access here, and how to fix what is missing."""

import click

from hangdoc.cli.output import show
from hangdoc.observe.look.abilities import Ability, check_all


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def command(as_json: bool) -> int:
    """Check what hangdoc can access here.

    It also shows how to fix what is missing."""
    missing, abilities = 0, []
    for ability in check_all():
        missing += not ability.works
        abilities.append(ability)
        if not as_json:
            _show(ability)
    if as_json:
        _print_json(abilities, missing)
    else:
        only = [ability.only for ability in abilities if ability.only]
        whose = f" of {' and '.join(only)}" if only else ""
        show(
            f"hangdoc can access all it needs{whose} here."
            if not missing
            else f"{missing} of these are missing. hangdoc uses the others."
        )
    return 0 if not missing else 4


def _show(ability: Ability) -> None:
    show(f"{'ok  ' if ability.works else 'FAIL'}  {ability.name}: {ability.found}")
    if not ability.works:
        show(f"      {ability.remedy}")


def _print_json(abilities: list[Ability], missing: int) -> None:
    from hangdoc.commands import documents
    from hangdoc.version import __version__

    described = tuple(
        documents.Able(
            name=ability.name, works=ability.works, found=ability.found, remedy="" if ability.works else ability.remedy
        )
        for ability in abilities
    )
    show(documents.text(documents.Doctor(hangdoc=__version__, abilities=described, missing=missing)))
