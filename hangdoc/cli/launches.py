"""`hangdoc launch-diff` and `hangdoc launch-explain`: read launch lines as text, and execute nothing."""

import click

from hangdoc.cli.output import show


@click.command("launch-diff")
@click.argument("lines", nargs=-1, required=True, metavar="FILE|'COMMAND'...")
@click.option("--all", "whole", is_flag=True, help="Also show what is the same in all lines.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def diff(lines: tuple[str, ...], whole: bool, as_json: bool) -> int:
    """Compare the launch lines of the nodes of a run.

    Shows what must be equal, what must differ, and what is suspicious. Give each launch line as a file or as text. hangdoc
    reads it through ssh, tmux and shells down to torchrun, accelerate, srun or mpirun and the arguments of the script. It
    executes nothing. Exit code 1 if something is wrong.
    """
    from hangdoc.commands import documents
    from hangdoc.commands.launches import compared, read

    differences = compared([launch for text in lines for launch in read(text)])
    if as_json:
        show(documents.text(differences))
    else:
        from hangdoc.render.console import make_console
        from hangdoc.render.launch import comparison

        comparison(differences.lines, differences.rows, tuple(differences.derived.items()), make_console(), whole)
    return int(any(row.wrong for row in differences.rows))


@click.command("launch-explain")
@click.argument("line", metavar="FILE|'COMMAND'")
def explain(line: str) -> int:
    """Explain the layers and the options of one launch line."""
    from hangdoc.commands.launches import read
    from hangdoc.launch.compare import compare
    from hangdoc.launch.derived import derived
    from hangdoc.render.console import make_console
    from hangdoc.render.launch import explanation

    console = make_console()
    for at, (_, launch_line) in enumerate(read(line)):
        if at:
            console.print()
        explanation(launch_line, derived([launch_line]), compare([launch_line]), console)
    return 0
