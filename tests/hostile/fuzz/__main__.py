"""`python -m tests.hostile.fuzz [--seconds 600] [--from SEED] [TARGET...]`: fuzz until the time is over or something is found.

A finding is printed with its seed; `--from SEED --seconds 0 TARGET` repeats it.
"""

import argparse
import random
import sys
import time
import traceback

from tests.hostile.fuzz import Target
from tests.hostile.fuzz.bounds import bounded, end_endless_attack
from tests.hostile.fuzz.targets import TARGETS

_TURN_SECONDS = 5.0
_ENDLESS_SECONDS = 60


def main() -> int:
    """1 if something was found."""
    options = argparse.ArgumentParser(
        prog="python -m tests.hostile.fuzz", description="Fuzz what reads what strangers wrote."
    )
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--from", dest="first", type=int, help="the first seed (default: from the clock)")
    options.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(target.name for target in TARGETS))
    given = options.parse_args()
    first = time.time_ns() // 1_000 if given.first is None else given.first
    chosen = [target for target in TARGETS if not given.targets or target.name in given.targets]
    done = {target.name: 0 for target in chosen}
    findings: dict[str, str] = {}
    end = time.monotonic() + given.seconds
    while True:
        for target in chosen:
            _take_turn(target, first, done, findings, min(end, time.monotonic() + _TURN_SECONDS))
        if time.monotonic() >= end:
            break
    print(", ".join(f"{name} {count}" for name, count in done.items()), f"attacks from seed {first}")
    for finding in findings.values():
        print(finding)
    return 1 if findings else 0


def _take_turn(target: Target, first: int, done: dict[str, int], findings: dict[str, str], end: float) -> None:
    while True:
        seed = first + done[target.name]
        done[target.name] += 1
        end_endless_attack(_ENDLESS_SECONDS)
        try:
            with bounded():
                target.attack(random.Random(seed))  # noqa: S311
        except Exception as error:
            lines = traceback.format_exception(error)
            place = "".join(traceback.format_tb(error.__traceback__)[-1:]).strip().splitlines()[0]
            if f"{type(error).__name__} {place}" not in findings:
                findings[f"{type(error).__name__} {place}"] = f"{target.name} --from {seed}\n" + "".join(lines[-12:])
                print(
                    f"found: {target.name} --from {seed}: {type(error).__name__}: {str(error)[:200]} {place}",
                    flush=True,
                )
        if time.monotonic() >= end:
            return


if __name__ == "__main__":
    sys.exit(main())
