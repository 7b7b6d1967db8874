"""The command that tries the cases of hangbench/gpu on one NVIDIA card: `make gpu`.

python -m hangbench.gpu [NAME...] [--out FOLDER] [--limit SECONDS] [--at-once N] [--backend gloo] [--list]
python -m hangbench.gpu --replay FOLDER [--record] [--write]   scores the unpacked evidence of an earlier run again
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

import click
import msgspec

from hangbench.gpu.bench import Bench
from hangbench.gpu.case import card_cases
from hangbench.gpu.table import markdown, results_table
from hangbench.gpu.trial import BUNDLE, Trial, look_at_bundle, note_score
from hangbench.leftovers import end_with_this_process
from hangbench.marks import between
from hangbench.readme import ACCURACY
from hangbench.record import CARD, record
from hangdoc import codec

PAGE = ACCURACY.with_name("accuracy-gpu.md")
_ASK_TORCH = "import torch; print(torch.cuda.device_count(), torch.__version__)"


def missing_card() -> str | None:
    """Why there is no card for torch, in a clause; None if there is one."""
    if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/proc/driver/nvidia/version").exists():
        return "this machine has no NVIDIA card"
    asked = subprocess.run([sys.executable, "-c", _ASK_TORCH], capture_output=True, text=True, check=False, timeout=120)
    count, _, version = asked.stdout.strip().partition(" ")
    if asked.returncode != 0:
        return f"torch cannot be imported: {asked.stderr.strip().splitlines()[-1:]}"
    return None if count != "0" else f"torch {version} sees no card"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/gpu"), show_default=True,
              help="Folder for the table and the packed evidence.")  # fmt: skip
@click.option("--limit", type=float, default=300.0, show_default=True, help="Seconds for everything but packing.")
@click.option("--at-once", type=int, default=8, show_default=True, help="How many cases run at the same time.")
@click.option("--backend", type=click.Choice(["nccl", "gloo"]), default="nccl", show_default=True,
              help="gloo: without a card, to try the bench itself.")  # fmt: skip
@click.option("--replay", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Score the bundles in this folder of unpacked evidence instead.")  # fmt: skip
@click.option("--record", "keep", is_flag=True, help="With --replay: write the bundles into tests/corpus/card.")
@click.option("--write", is_flag=True, help="With --replay: write the table of docs/accuracy-gpu.md.")
@click.option("--list", "listing", is_flag=True, help="Only list the cases.")
def main(names: tuple[str, ...], out: Path, limit: float, at_once: int, backend: str, replay: Path | None,
         keep: bool, write: bool, listing: bool) -> None:  # fmt: skip
    """Try frozen and healthy runs whose ranks share one NVIDIA card, diagnose them from outside, and score the answers."""
    if unknown := set(names) - set(card_cases()):
        raise click.UsageError(f"there is no case {', '.join(sorted(unknown))}. `--list` lists them.")
    chosen = [case for name, case in card_cases().items() if name in names or not names]
    if listing:
        for case in chosen:
            click.echo(f"{case.name:<32}{'/'.join(case.verdict):<18}{case.finding or '-'}")
        return
    if replay is not None:
        trials = rescored(replay, [case.name for case in chosen], keep)
        click.echo(results_table(trials, [], {}, replay / "nvml.jsonl"))
        if write:
            between(PAGE, "card", markdown(trials))
        return
    if keep or write:
        raise click.UsageError("--record and --write need --replay FOLDER.")
    card = backend == "nccl"
    if card and (reason := missing_card()):
        click.echo(f"make gpu is skipped: {reason}")
        return
    for case in chosen:
        if case.needs_card and not card:
            click.echo(f"{case.name}: skipped, it needs a card")
    chosen = [case for case in chosen if card or not case.needs_card]
    signal.signal(signal.SIGTERM, _interrupt)
    work = Path(tempfile.mkdtemp(prefix="hangbench-gpu-"))
    bench = Bench(chosen, work, card=card, limit=limit, log=lambda line: click.echo(line))
    try:
        bench.run(at_once)
    except KeyboardInterrupt:
        click.echo("interrupted: the evidence so far is packed")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        click.echo(bench.write_results(out))
        click.echo(f"{bench.clock():.0f} s; evidence: {out / 'gpu.tar.xz'} (unpacked: {work})")
    answered = [trial for trial in bench.trials if trial.right is not None]
    sys.stdout.flush()
    # Threads may still wait for what has no limit. leftovers.py ends the processes.
    os._exit(0 if answered and all(trial.right for trial in answered) else 1)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def rescored(folder: Path, names: list[str], keep: bool) -> list[Trial]:
    """The trials of an earlier run, its bundles diagnosed again. `keep` records them for the corpus."""
    written = folder / "results.json"
    earlier = msgspec.json.decode(written.read_bytes(), type=list[Trial]) if written.exists() else []
    trials = {trial.case: trial for trial in earlier}
    for name in names:
        path = folder / name / BUNDLE
        if path.exists():
            trial = trials.setdefault(name, Trial(name, 0.0))
            note_score(trial, look_at_bundle(card_cases()[name], path))
            if keep:
                record(CARD / f"{name}.hangdoc", codec.read(path))
    return [trials[name] for name in names if name in trials]


if __name__ == "__main__":
    end_with_this_process()
    main()
