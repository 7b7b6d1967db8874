"""The command: python -m hangbench.foreign [NAME...] [--write] [--list]; `make foreign`.

A NAME is a program, or PROGRAM/SITUATION.
"""

import json
import subprocess
import sys
from pathlib import Path

import click

from hangbench.foreign import results
from hangbench.foreign.run import WORK, inside, isolated, prepare
from hangbench.foreign.table import PROGRAMS
from hangbench.leftovers import end_with_this_process


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--write",
    is_flag=True,
    help="Store the results, and write them into docs/ and the README.",
)
@click.option(
    "--bundles",
    type=click.Path(path_type=Path),
    default=WORK / "bundles",
    show_default=True,
    help="Directory for the evidence.",
)
@click.option("--list", "listing", is_flag=True, help="Only list programs and situations.")
@click.option("--inside", "alone", hidden=True)
@click.option("--bundle", type=click.Path(path_type=Path), hidden=True)
def main(
    names: tuple[str, ...], write: bool, bundles: Path, listing: bool, alone: str | None, bundle: Path | None
) -> None:
    """Start foreign programs, healthy and with faults, and compare hangdoc's diagnosis with the truth."""
    chosen = {
        f"{program.name}/{situation.name}": (program, situation)
        for program in PROGRAMS
        for situation in program.situations
    }  # fmt: skip
    if alone is not None and bundle is not None:
        bundle.with_suffix(".result.json").write_text(json.dumps(inside(*chosen[alone], bundle)))
        return
    if unknown := [name for name in names if not any(key == name or key.startswith(f"{name}/") for key in chosen)]:
        raise click.UsageError(f"there is no program {', '.join(unknown)}. `--list` lists them.")
    all_right = True
    bundles.mkdir(parents=True, exist_ok=True)
    for key, (program, situation) in chosen.items():
        if names and key not in names and program.name not in names:
            continue
        if listing:
            click.echo(f"{key:<36}{'/'.join(situation.verdict):<18}{' '.join(situation.codes) or '-'}")
            continue
        try:
            version = prepare(program)
            seen = isolated(program, situation, bundles / f"{key.replace('/', '--')}.hangdoc")
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            click.echo(f"{key:<36}did not run: {error}")
            all_right = False
            continue
        answer = results.judged(program, situation, version, seen)
        (bundles / f"{key.replace('/', '--')}.truth.json").write_text(
            json.dumps(results.truth(program, situation), indent=1)
        )
        click.echo(f"{key:<36}{answer.line()}")
        all_right &= answer.right
        if write:
            results.keep(key, answer)
    if write:
        results.write_page(PROGRAMS)
    sys.exit(0 if all_right else 1)


if __name__ == "__main__":
    end_with_this_process()
    main()
