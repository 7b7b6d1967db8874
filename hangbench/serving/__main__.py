"""The command: python -m hangbench.serving [SYSTEM|SYSTEM/STATE]... [--out FOLDER] [--hangdoc COMMAND] [--list].

The environments and the model lie in $HANGDOC_SERVING; `make serving` creates them. The namespaces take root.
OUT gets the bundles, the documents, the output and the result of each run. The folder above it gets first_looks.md, and
the facts about each idle system. A state that has a result there is skipped, because a first look cannot be repeated.
"""

import json
import os
import sys
from pathlib import Path

import click

from hangbench.leftovers import end_with_this_process
from hangbench.serving.rows import rows, write_table
from hangbench.serving.run import inside, isolated
from hangbench.serving.system import HOME
from hangbench.serving.table import SYSTEMS


@click.command()
@click.argument("names", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path, resolve_path=True), default=HOME / "bundles", show_default=True)
@click.option("--hangdoc", type=click.Path(path_type=Path), default=Path(sys.executable).with_name("hangdoc"))
@click.option("--list", "listing", is_flag=True, help="Only list systems and states.")
@click.option("--inside", "alone", is_flag=True, hidden=True)
def main(names: tuple[str, ...], out: Path, hangdoc: Path, listing: bool, alone: bool) -> None:
    """Start systems, bring each into its states, and record what hangdoc answers."""
    if not listing and os.geteuid() != 0:
        raise click.ClickException("the systems need separate namespaces. Run it as root.")
    out.mkdir(parents=True, exist_ok=True)
    table = out.parent / "first_looks.md"
    for system in SYSTEMS:
        for state in system.states:
            key = f"{system.name}/{state.name}"
            result = out / f"{system.name}-{state.name}.result.json"
            if names and key not in names and system.name not in names:
                continue
            if listing:
                click.echo(f"{key:<32}{'/'.join(state.verdict):<18}{', '.join(state.cause)}")
            elif alone:
                inside(system, state, out, hangdoc)
            elif not system.python.exists():
                raise click.ClickException(f"{system.python} is missing. `make serving` creates it.")
            elif not result.exists():
                isolated(system, state, out, hangdoc)
                if not result.exists():
                    click.echo(f"{key:<32}no result: see {out}/{system.name}-{state.name}.log")
                    continue
                click.echo(rows(system, state, json.loads(result.read_text())))
                write_table(table, out)


if __name__ == "__main__":
    end_with_this_process()
    main()
