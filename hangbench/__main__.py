"""The command that runs cases live, diagnoses them and prints the scores; `make hangbench`.

python -m hangbench [NAME...] [--record] [--soak LOOKS] [--replay] [--window S] [--native MODE] [--beacons] [--write] [--list]
"""

import importlib.metadata
import sys
import time
from pathlib import Path

import click
from rich.console import Console

from hangbench import report
from hangbench.case import Case, cases
from hangbench.leftovers import end_with_this_process
from hangbench.look import Look, judged
from hangbench.record import bundle, record
from hangbench.run import Running
from hangdoc import codec
from hangdoc.observe.look.observe import Options, observe
from hangdoc.reasoning.engine import diagnose


def live(case: Case, options: Options, keep: bool, beacons: bool) -> Look:
    """Run a case and look at it once. `keep` records the look for the corpus. `beacons` gives its ranks a watchdog."""
    with Running(case, beacons=beacons) as run:
        began = time.monotonic()
        alive = tuple(pid for pid in run.launchers if _alive(pid))
        before = run.vital_signs()
        snapshot = observe(Options(window=options.window, native=options.native, pids=alive))
        seconds = time.monotonic() - began
        after = run.vital_signs()
    if keep:
        record(bundle(case.name), snapshot)
    disturbed = [rank for rank, signs in before.items() if after.get(rank) != signs]
    return judged(case, snapshot, seconds, (len(before) - len(disturbed), len(before)))


def _alive(pid: int) -> bool:
    import psutil

    return bool(psutil.pid_exists(pid))


def missing(case: Case) -> list[str]:
    """Python distributions that a case needs and that are not installed."""
    absent = []
    for name in case.requires:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
    return absent


@click.command()
@click.argument("names", nargs=-1)
@click.option("--record", "keep", is_flag=True, help="Write each look into tests/corpus.")
@click.option("--replay", is_flag=True, help="Score the recorded looks instead of live runs.")
@click.option(
    "--soak", "soak_looks", type=int, default=0, help="Take this number of looks at the controls, with short windows."
)
@click.option("--window", type=float, default=1.0, show_default=True)
@click.option("--native", type=click.Choice(["auto", "never", "always"]), default="auto", show_default=True)
@click.option("--beacons", is_flag=True, help="Give every rank a watchdog that its script does not know about.")
@click.option("--write", is_flag=True, help="Write docs/accuracy.md and the README's table.")
@click.option("--list", "listing", is_flag=True, help="Only list the cases.")
def main(names: tuple[str, ...], keep: bool, replay: bool, soak_looks: int, window: float, native: str,
         beacons: bool, write: bool, listing: bool) -> None:  # fmt: skip
    """Run cases of frozen and healthy training, diagnose them from outside, and score the answers."""
    console = Console(highlight=False)
    unknown = set(names) - set(cases())
    if unknown:
        raise click.UsageError(f"there is no case {', '.join(sorted(unknown))}. `--list` lists them.")
    chosen = [case for name, case in cases().items() if name in names or not names]
    if listing:
        for case in chosen:
            console.print(f"{case.name:<32}{'/'.join(case.verdict):<18}{case.finding or '-'}")
        return
    if soak_looks:
        sys.exit(soak(console, [case for case in chosen if case.control], soak_looks, write))
    looks: list[Look] = []
    left_out = []
    for case in chosen:
        if absent := missing(case) if not replay else []:
            left_out.append(f"{case.name} (needs {', '.join(absent)})")
            continue
        try:
            look = (
                judged(case, codec.read(bundle(case.name)))
                if replay
                else live(case, Options(window=window, native=native), keep, beacons)
            )
        except (RuntimeError, OSError, codec.BundleError) as error:
            console.print(f"[red]{case.name}: {error}[/]", markup=True)
            left_out.append(f"{case.name} (did not run)")
            continue
        looks.append(look)
        console.print(report.line(look.score))
    console.print()
    console.print(report.table(looks))
    for name in left_out:
        console.print(f"left out: {name}")
    if write and beacons:
        report.write_beacons(looks, left_out)
    elif write:
        report.write(looks, left_out, window, native)
    sys.exit(0 if all(look.score.right for look in looks) and not left_out else 1)


def soak(console: Console, controls: list[Case], wanted: int, write: bool) -> int:
    """Take many short looks at every control, at random moments, from its first import on."""
    runnable = [case for case in controls if not missing(case)]
    each = -(-wanted // len(runnable))
    total = hung = errors = 0
    for case in runnable:
        looks = Looks(case)
        with Running(case, while_starting=looks.take if case.situation is None else None) as run:
            while looks.taken < each and any(_alive(pid) for pid in run.launchers):
                looks.take(run)
        total += looks.taken
        errors += len(looks.bad)
        hung += sum(text.startswith("hung") for text in looks.bad)
        console.print(f"{case.name:<32}{looks.taken:>5} looks  {', '.join(looks.bad[:3])}")
    console.print(f"{total} looks at {len(runnable)} controls: {hung} called hung, {errors} with an error")
    if write:
        report.write_soak(total, len(runnable), hung, errors)
    return 1 if errors else 0


class Looks:
    """Short looks at one control. A wrong one is saved as a bundle in the working directory."""

    def __init__(self, case: Case) -> None:
        self.case, self.taken, self.bad = case, 0, list[str]()

    def take(self, run: Running) -> None:
        """Take one more look. The window and the mode of native stacks vary."""
        alive = tuple(pid for pid in run.launchers if _alive(pid))
        window, native = (0.1, 0.2, 0.4, 1.0)[self.taken % 4], ("auto", "never")[self.taken % 2]
        snapshot = observe(Options(window=window, native=native, pids=alive))
        diagnosis = diagnose(snapshot, patience=self.case.tolerance)
        self.taken += 1
        wrong = [f.code for job in diagnosis.jobs for f in job.findings if f.severity == "error"]
        if diagnosis.verdict == "hung" or wrong:
            self.bad.append(f"{diagnosis.verdict} {wrong}")
            codec.write(snapshot, Path(f"soak-{self.case.name}-{self.taken}.hangdoc"))


if __name__ == "__main__":
    end_with_this_process()
    main()
