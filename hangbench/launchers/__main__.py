"""`python -m hangbench.launchers [NAME...]`: the matrix of launchers, each beside the next one of the table.

It runs in pid, network, mount and /tmp namespaces of its own, so that nothing else is on its host; that takes root.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from hangbench.launchers.launched import Part
from hangbench.launchers.scene import Outcome, play
from hangbench.launchers.table import BY_NAME, TABLE, Launcher

_INSIDE = "HANGDOC_LAUNCHERS_INSIDE"
_ENTER = """
mount -t tmpfs tmpfs /tmp
ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add 10.77.0.1/24 dev v0 && ip link set v0 up && ip link set v1 up
"$@"; exit $?
"""
"""An address beside loopback's: with none, the resolver finds no address family. The shell stays, to reap orphans as pid 1."""
_WATCHDOG_SECONDS = 5.0


def isolated() -> None:
    """Go on in namespaces of its own; raises SystemExit with their exit code, or with a remedy where that is forbidden."""
    if os.environ.get(_INSIDE):
        return
    if os.geteuid() != 0:
        sys.exit("the matrix of launchers needs namespaces of its own: run it as root")
    os.environ[_INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--pid", "--fork", "--net", "--mount", "--mount-proc", "--kill-child", "sh", "-c",
                          _ENTER, "sh", sys.executable, "-m", "hangbench.launchers", *sys.argv[1:]])  # noqa: S606  # fmt: skip


def scenes(chosen: list[Launcher], around: list[Launcher]) -> list[tuple[Part, ...]]:
    """Two for each launcher beside its neighbour: hung beside healthy, and both hung with a watchdog in each. Round the whole
    table every launcher is healthy once, and hung in each way."""
    found: list[tuple[Part, ...]] = []
    for launcher in chosen:
        other = around[(around.index(launcher) + 1) % len(around)]
        found += [
            (Part(launcher, "uneven"), Part(other)),
            (Part(launcher, "uneven", _WATCHDOG_SECONDS), Part(other, "stopped", _WATCHDOG_SECONDS)),
        ]
    return found


def main() -> None:
    """Play the scenes, print what was wrong, and write all outcomes as JSON."""
    parser = argparse.ArgumentParser(prog="python -m hangbench.launchers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BY_NAME)}")
    parser.add_argument("--all-at-once", choices=("even", "odd"), help="one scene of all: the even or the odd ones hung")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the outcomes to this file, one a line")
    parser.add_argument("--bundles", type=Path, metavar="FOLDER", help="leave the bundles of all looks here")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BY_NAME):
        parser.error(f"no such launcher: {', '.join(sorted(unknown))}")
    isolated()
    for launcher in TABLE:
        if not launcher.here:
            print(f"left out: {launcher.name} ({launcher.program} is not installed)", flush=True)
    around = [launcher for launcher in TABLE if launcher.here]
    chosen = [launcher for launcher in around if not options.names or launcher.name in options.names]
    todo = (
        [all_at_once(chosen, options.all_at_once == "odd")] if options.all_at_once else scenes(chosen, around)
    )
    right = True
    for parts in todo:
        began = time.monotonic()
        try:
            outcomes = play(parts, options.bundles)
        except RuntimeError as error:
            print(f"FAILED  {' | '.join(map(str, parts))}: {error}", flush=True)
            right = False
            continue
        right = report(outcomes, options.json) and right
        print(f"        ({time.monotonic() - began:.0f} s)", flush=True)
    sys.exit(0 if right else 1)


def all_at_once(chosen: list[Launcher], odd: bool) -> tuple[Part, ...]:
    """Every launcher on one host: each second one hung, in turn by uneven data and by a stopped rank."""
    faults = ("uneven", "none", "stopped", "none")
    return tuple(
        Part(launcher, faults[(number + odd) % len(faults)], _WATCHDOG_SECONDS) for number, launcher in enumerate(chosen)
    )


def report(outcomes: list[Outcome], file: Path | None) -> bool:
    """Print the outcomes of a scene and append them to a file; whether all was right."""
    for outcome in outcomes:
        beside = " | ".join(map(str, outcome.beside))
        for kind, wrong in outcome.wrong.items():
            print(f"{'WRONG ' if wrong else 'right '}  {outcome.part}  by {kind}, beside {beside}"
                  f"  {outcome.findings.get(kind, '')}", flush=True)  # fmt: skip
            for line in wrong:
                print(f"            {line}", flush=True)
        if file is not None:
            with file.open("a") as lines:
                lines.write(json.dumps({
                    "launcher": outcome.part.launcher.name, "fault": outcome.part.fault,
                    "watchdog": outcome.part.watchdog is not None,
                    "beside": [(part.launcher.name, part.fault) for part in outcome.beside],
                    "wrong": outcome.wrong, "said": outcome.findings}) + "\n")  # fmt: skip
    return not any(wrong for outcome in outcomes for wrong in outcome.wrong.values())


if __name__ == "__main__":
    main()
