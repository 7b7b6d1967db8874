"""The command: python -m hangbench.blind FOLDER... [--hangdoc COMMAND] [--out FOLDER].

Each FOLDER is a case as BRIEF.md describes it, or a folder of cases. OUT gets the bundle, the report, the document and the output
of each run. Cases that already have a result there are skipped, because a first look cannot be repeated.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from hangbench.blind.case import Result, Truth, inside, rating

_NAMESPACES = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
_INIT = 'mount -t tmpfs tmpfs /tmp && "$@"; exit $?'
"""bash stays process 1 of the namespace, because process 1 must collect orphans."""


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--hangdoc", default=f"{sys.executable} -m hangdoc", help="The hangdoc command of the look.")
@click.option("--python", default=sys.executable, help="The interpreter of the jobs.")
@click.option(
    "--out", default="build/blind", type=click.Path(path_type=Path), show_default=True, help="Not below /tmp."
)
@click.option("--slack", default=1.0, show_default=True, help="Look so many times later: for a busy machine.")
@click.option("--inside", "alone", hidden=True, is_flag=True)
def main(folders: tuple[Path, ...], hangdoc: str, python: str, out: Path, slack: float, alone: bool) -> None:
    """Start each case in namespaces of its own, look once, and print what is right."""
    if alone:
        inside(folders[0], hangdoc.split(), Path(python), out, slack)
        return
    out.mkdir(parents=True, exist_ok=True)
    results = []
    for folder in folders:
        cases = (
            [folder] if (folder / "truth.toml").exists() else [p.parent for p in sorted(folder.glob("*/truth.toml"))]
        )
        for case in cases:
            truth = msgspec.toml.decode((case / "truth.toml").read_bytes(), type=Truth)
            name = f"{case.parent.name}-{case.name}"
            kept = out / f"{name}.result.json"
            if not kept.exists():
                _run(case, hangdoc, python, out / name, slack)
            if not kept.exists():
                click.echo(f"{name:<30} no result: see {out / name}.log")
                continue
            result = msgspec.json.decode(kept.read_bytes(), type=Result)
            results.append((truth, result))
            click.echo(f"{name:<30} {rating(truth, result)}")
    if results:
        _summary(results)


def _run(case: Path, hangdoc: str, python: str, stem: Path, slack: float) -> None:
    with tempfile.TemporaryDirectory(prefix="blind-", dir=stem.parent) as copy:
        shutil.copytree(case, Path(copy) / case.name)
        command = [*_NAMESPACES, "bash", "-c", _INIT, "bash", sys.executable, "-m", "hangbench.blind", "--inside",
                   str((Path(copy) / case.name).absolute()), "--hangdoc", hangdoc, "--python", python,
                   "--out", str(stem.absolute()), "--slack", str(slack)]  # fmt: skip
        subprocess.run(command, check=False, stdin=subprocess.DEVNULL, timeout=900)


def _summary(results: list[tuple[Truth, Result]]) -> None:
    hung = [(t, r) for t, r in results if "hung" in t.verdict]
    rest = [(t, r) for t, r in results if "hung" not in t.verdict]
    parts = {
        "verdict right": [r.verdict in t.verdict for t, r in results],
        "not hung, called hung": [r.verdict == "hung" for _, r in rest],
        "leading cause right, of the hung": [r.leading in t.leading for t, r in hung if t.leading],
        "culprits right, where named": [set(r.culprits) == set(t.culprits) for t, r in hung if t.culprits],
    }
    for name, flags in parts.items():
        click.echo(f"{name:<34}{sum(flags)} of {len(flags)}")


if __name__ == "__main__":
    main()
