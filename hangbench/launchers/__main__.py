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

from hangbench.launchers.launched import Fault, Part
from hangbench.launchers.page import table
from hangbench.launchers.round import Outcome, Round, play
from hangbench.launchers.table import BY_NAME, TABLE, Launcher

_INSIDE = "HANGDOC_LAUNCHERS_INSIDE"
_ENTER = """
case "$PWD" in
    /tmp/*)
        mount --bind "$PWD" /mnt && mount -t tmpfs tmpfs /tmp && mkdir -p "$PWD" && mount --bind /mnt "$PWD" && cd "$PWD" ;;
    *) mount -t tmpfs tmpfs /tmp ;;
esac
ip link set lo up && ip link add v0 type veth peer name v1 && ip addr add 10.77.0.1/24 dev v0
ip link set v0 up && ip link set v1 up
"$@"; exit $?
"""
"""A checkout below /tmp stays where it is. The interface v0 exists because with only loopback, the
resolver finds no address family. The shell stays as pid 1 and reaps orphans."""
_WATCHDOG_SECONDS = 8.0


def isolated() -> None:
    """Restart this program in separate namespaces. Raises SystemExit with the remedy if that is not allowed."""
    if os.environ.get(_INSIDE):
        return
    if os.geteuid() != 0:
        sys.exit("the matrix of launchers needs separate namespaces. Run it as root.")
    os.environ[_INSIDE] = "1"
    apart = ["unshare", "--pid", "--fork", "--net", "--mount", "--mount-proc", "--kill-child", "sh", "-c", _ENTER, "sh"]
    os.execvp(apart[0], [*apart, sys.executable, "-m", "hangbench.launchers", *sys.argv[1:]])  # noqa: S606


def pairs(chosen: list[Launcher], around: list[Launcher]) -> Iterator[Round]:
    """Two rounds for each launcher and the next one in the table, without and with watchdogs: both healthy, one hung, both hung.
    Over the whole table, each launcher hangs in both ways."""
    for launcher in chosen:
        other = around[(around.index(launcher) + 1) % len(around)]
        yield Round((Part(launcher, "uneven"), Part(other, "stopped")), rounds=((0,), (1,)))
        parts = (Part(launcher, "uneven", _WATCHDOG_SECONDS), Part(other, "stopped", _WATCHDOG_SECONDS))
        yield Round(parts, rounds=((0, 1),), by_pid=())


def all_at_once(chosen: list[Launcher], turn: int) -> Round:
    """All launchers on one host. Every second run fails first, then the others too. In turn 0 a third of the runs has a
    watchdog, in turn 1 the others have one. The turns also exchange the faults."""
    faults: tuple[Fault, Fault] = ("stopped", "uneven") if turn else ("uneven", "stopped")
    parts = tuple(
        Part(launcher, faults[number // 2 % 2], _WATCHDOG_SECONDS if (number % 3 == 0) == (turn == 0) else None)
        for number, launcher in enumerate(chosen)
    )
    return Round(parts, (tuple(range(turn, len(parts), 2)), tuple(range(1 - turn, len(parts), 2))))


def main() -> None:
    """Run the matrix and print what was wrong."""
    parser = argparse.ArgumentParser(prog="python -m hangbench.launchers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(BY_NAME)}")
    parser.add_argument(
        "--together", action="store_true", help="all at once on one host, in two turns, instead of in pairs"
    )
    parser.add_argument("--ci", action="store_true", help="those that run in CI, together")
    parser.add_argument(
        "--json", action="store_true", help="the outcomes on stdout, one a line; what people read on stderr"
    )
    parser.add_argument("--bundles", type=Path, metavar="FOLDER", help="leave the bundles of all looks here (not in /tmp: the "
                        "matrix has one of its own)")  # fmt: skip
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE", help="only print the table of these outcomes")
    options = parser.parse_args()
    if options.table:
        decoder = msgspec.json.Decoder(Outcome)
        print(table(outcome for file in options.table for outcome in decoder.decode_lines(file.read_bytes())))
        return
    if unknown := set(options.names) - set(BY_NAME):
        parser.error(f"unknown launcher: {', '.join(sorted(unknown))}")
    isolated()
    around = []
    for launcher in TABLE:
        if launcher.here:
            around.append(launcher)
        elif not options.ci or launcher.in_ci:
            print(f"left out: {launcher.name} ({launcher.program} is not installed)", file=sys.stderr)
    chosen = [
        launcher
        for launcher in around
        if (launcher.in_ci if options.ci else not options.names or launcher.name in options.names)
    ]
    right = True
    if options.ci or options.together:
        todo = iter([all_at_once(chosen, turn) for turn in ((0,) if options.ci else (0, 1))])
    else:
        todo = pairs(chosen, around)
    for round_ in todo:
        began = time.monotonic()
        try:
            for outcome in play(round_, options.bundles):
                right = report(outcome, options.json) and right
        except RuntimeError as error:
            right = False
            print(f"FAILED  {error}", file=sys.stderr)
        print(f"        ({time.monotonic() - began:.0f} s)", file=sys.stderr)
    sys.exit(0 if right else 1)


def report(outcome: Outcome, as_json: bool) -> bool:
    """Print an outcome. Returns whether all of it was right."""
    out = sys.stderr if as_json else sys.stdout
    others = " | ".join(outcome.beside) if len(outcome.beside) < 3 else f"{len(outcome.beside)} others"
    about = f"{outcome.launcher}, {outcome.state}, by {outcome.kind}, beside {others}"
    print(f"{'WRONG' if outcome.wrong else 'right'}   {about}", file=out, flush=True)
    for line in outcome.wrong:
        print(f"            {line}", file=out, flush=True)
    if as_json:
        print(msgspec.json.encode(outcome).decode(), flush=True)
    return not outcome.wrong


if __name__ == "__main__":
    main()
