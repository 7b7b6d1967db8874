"""`python -m hangbench.launchers [NAME...]`: the matrix of launchers, each beside the next one of the table.

It runs in pid, network, mount and /tmp namespaces of its own, so that nothing else is on its host; that takes root.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hangbench.launchers.launched import Part
from hangbench.launchers.page import table
from hangbench.launchers.scene import Outcome, Scene, play
from hangbench.launchers.table import BY_NAME, TABLE, Launcher

_INSIDE = "HANGDOC_LAUNCHERS_INSIDE"
_ENTER = """
mount -t tmpfs tmpfs /tmp
ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add 10.77.0.1/24 dev v0
ip link set v0 up && ip link set v1 up
"$@"; exit $?
"""
"""An address beside loopback's: with none, the resolver finds no address family. The shell stays, to reap orphans as pid 1."""
_WATCHDOG_SECONDS = 8.0


def isolated() -> None:
    """Go on in namespaces of its own; raises SystemExit with their exit code, or with a remedy where that is forbidden."""
    if os.environ.get(_INSIDE):
        return
    if os.geteuid() != 0:
        sys.exit("the matrix of launchers needs namespaces of its own: run it as root")
    os.environ[_INSIDE] = "1"
    apart = ["unshare", "--pid", "--fork", "--net", "--mount", "--mount-proc", "--kill-child", "sh", "-c", _ENTER, "sh"]
    os.execvp(apart[0], [*apart, sys.executable, "-m", "hangbench.launchers", *sys.argv[1:]])  # noqa: S606


def pairs(chosen: list[Launcher], around: list[Launcher]) -> Iterator[Scene]:
    """Two for each launcher beside the next one, without and with watchdogs: both healthy, one hung beside the other healthy,
    both hung. Round the table each launcher is hung in both ways."""
    for launcher in chosen:
        other = around[(around.index(launcher) + 1) % len(around)]
        yield Scene((Part(launcher, "uneven"), Part(other, "stopped")), rounds=((0,), (1,)))
        parts = (Part(launcher, "uneven", _WATCHDOG_SECONDS), Part(other, "stopped", _WATCHDOG_SECONDS))
        yield Scene(parts, rounds=((0, 1),), by_pid=())


def all_at_once(chosen: list[Launcher]) -> Scene:
    """Every launcher on one host, half of them with a watchdog: each second one goes wrong, then the others too."""
    parts = tuple(
        Part(launcher, "uneven" if number % 4 < 2 else "stopped", None if number % 3 else _WATCHDOG_SECONDS)
        for number, launcher in enumerate(chosen)
    )
    return Scene(parts, (tuple(range(0, len(parts), 2)), tuple(range(1, len(parts), 2))))


def main() -> None:
    """Play the scenes, print what was wrong, and write all outcomes as JSON."""
    parser = argparse.ArgumentParser(prog="python -m hangbench.launchers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BY_NAME)}")
    parser.add_argument("--together", action="store_true", help="all at once on one host, instead of in pairs")
    parser.add_argument("--ci", action="store_true", help="those that run in CI, together")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the outcomes to this file, one a line")
    parser.add_argument("--bundles", type=Path, metavar="FOLDER", help="leave the bundles of all looks here")
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE", help="only print the table of these outcomes")
    options = parser.parse_args()
    if options.table:
        decoder = msgspec.json.Decoder(Outcome)
        print(table(outcome for file in options.table for outcome in decoder.decode_lines(file.read_bytes())))
        return
    if unknown := set(options.names) - set(BY_NAME):
        parser.error(f"no such launcher: {', '.join(sorted(unknown))}")
    isolated()
    around = []
    for launcher in TABLE:
        if launcher.here:
            around.append(launcher)
        elif not options.ci or launcher.in_ci:
            print(f"left out: {launcher.name} ({launcher.program} is not installed)", flush=True)
    chosen = [one for one in around if (one.in_ci if options.ci else not options.names or one.name in options.names)]
    right = True
    for scene in [all_at_once(chosen)] if options.ci or options.together else pairs(chosen, around):
        began = time.monotonic()
        try:
            for outcome in play(scene, options.bundles):
                right = report(outcome, options.json) and right
        except RuntimeError as error:
            right = False
            print(f"FAILED  {error}", flush=True)
        print(f"        ({time.monotonic() - began:.0f} s)", flush=True)
    sys.exit(0 if right else 1)


def report(outcome: Outcome, file: Path | None) -> bool:
    """Print an outcome and append it to a file; whether all was right."""
    others = " | ".join(outcome.beside) if len(outcome.beside) < 3 else f"{len(outcome.beside)} others"
    print(f"{'WRONG' if outcome.wrong else 'right'}   {outcome.launcher}, {outcome.state}, by {outcome.kind}, beside {others}",
          flush=True)  # fmt: skip
    for line in outcome.wrong:
        print(f"            {line}", flush=True)
    if file is not None:
        with file.open("ab") as lines:
            lines.write(msgspec.json.encode(outcome) + b"\n")
    return not outcome.wrong


if __name__ == "__main__":
    main()
