"""What a rank does when its deadline has passed: dump, have its host looked at, and say what came of it.

Runs in the watchdog's thread. Everything is bounded in time, and nothing raises: what was not possible is reported once.
"""

import contextlib
import faulthandler
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from hangdoc import beacon
from hangdoc.beacon import FLIGHT_SUFFIX
from hangdoc.phrases import beginning
from hangdoc.watchdog import attach, recorder
from hangdoc.watchdog.hang_directory import Member, claim, clean
from hangdoc.watchdog.log import Log
from hangdoc.watchdog.meeting import Meeting
from hangdoc.watchdog.run_store import RunStore

_PEERS_SECONDS = 1.5
_SNAPSHOT_SECONDS = 30
_REPORT_SECONDS = 20.0
_ANSWERS = (0, 1, 4)
"""Exit codes of `hangdoc` with something to read on its stdout; 4 says what could not be seen."""


class Alarm:
    """One rank's part in a hang. The hosts of a run exchange messages through `run_store`; the ranks of this host have beacons in
    `beacons`. `closed`: other processes may look into this one only while it is looked at for the hang."""

    def __init__(self, member: Member, beacons: Path, run_store: RunStore, say: Log, *, closed: bool = False) -> None:
        self._rank, self._world_size, self._run = member.rank, member.world_size, member.digest
        self._beacons, self._run_store, self._say = beacons, run_store, say
        self._closed = closed

    def raise_(self, folder: Path) -> None:
        """Leave this rank's stacks in the directory; if nobody else does, look at the whole host and diagnose."""
        self._stacks(folder)
        self.record(folder)
        host = socket.gethostname()
        try:
            first = claim(folder / f"host-{clean(host)}.claim")
        except OSError as error:
            self._say(f"cannot write into {folder}: {error}")
            return
        with attach.allowed_meanwhile(self._closed):
            self._tell(folder, expected=not first or self._look(folder, clean(host)))

    def somebody_has_time(self) -> bool:
        """Whether another rank is in a phase that announced a patience which has not run out: the others wait for it, and
        that is no hang. Ranks of this host say so in their beacons, those of others on the run_store."""
        now = time.monotonic_ns()
        peers = self._peers()
        for rank, beat in peers.items():
            asked = beat.patience_seconds
            if rank != self._rank and asked is not None and (now - beat.monotonic_ns) / 1e9 < asked:
                return True
        return self._run_store.promised(self._elsewhere(peers))

    def _elsewhere(self, peers: Iterable[int]) -> list[int]:
        return sorted(set(range(self._world_size)) - set(peers))

    def _stacks(self, folder: Path) -> None:
        try:
            with (folder / f"rank-{self._rank}.stacks.txt").open("w") as file:
                faulthandler.dump_traceback(file, all_threads=True)
        except (OSError, ValueError, RuntimeError) as error:
            self._say(f"cannot dump the stacks into {folder}: {error}")

    def record(self, folder: Path | None = None) -> None:
        """Leave what torch's flight recorder knows for readers outside, and in a hang's directory."""
        try:
            known = recorder.dump()
            if known is not None:
                (self._beacons / f"{os.getpid()}{FLIGHT_SUFFIX}").write_bytes(known)
                if folder is not None:
                    (folder / f"rank-{self._rank}{FLIGHT_SUFFIX}").write_bytes(known)
        except Exception as error:  # whatever torch raises
            self._say(f"the flight recorder could not be kept: {error}")

    def forget(self) -> None:
        """Take back what is no longer true when the run moves again, or ends."""
        with contextlib.suppress(OSError):
            (self._beacons / f"{os.getpid()}{FLIGHT_SUFFIX}").unlink(missing_ok=True)

    def _peers(self) -> dict[int, beacon.Beat]:
        """Ranks of this run on this host that have a beacon."""
        found: dict[int, beacon.Beat] = {}
        for path in self._beacons.glob("*.beacon"):
            try:
                beat = beacon.parse(path.read_bytes())
            except OSError:
                continue
            if beat is not None and beat.rank is not None and beat.run_digest == self._run and _alive(beat.pid):
                found[beat.rank] = beat
        return found

    def _look(self, folder: Path, host: str) -> bool:
        """One look at the run's ranks of this host from outside, and the diagnosis of everything that has come in; whether there
        is a bundle, without which no report can come."""
        peers = self._peers()
        until = time.monotonic() + _PEERS_SECONDS
        missing = set(peers)
        while missing and time.monotonic() < until:
            missing = {rank for rank in missing if not (folder / f"rank-{rank}.stacks.txt").exists()}
            time.sleep(0.05)
        for rank in sorted(missing):
            # A rank that is stopped, or whose GIL is never given back, is read from outside all the same.
            self._say(f"rank {rank} (pid {peers[rank].pid}) could not dump its own stacks")
            self._adopt(folder, rank, peers[rank].pid)
        bundle = folder / f"host-{host}.hangdoc"
        # This run only, never the whole host: another job may hang as well. Ranks without a watchdog are found by the run's name.
        pids = [word for pid in self._pids(peers) for word in ("--pid", str(pid))]
        self._command(["snapshot", "-o", str(bundle), "--run-of", str(os.getpid()), *pids], None)
        if not bundle.exists():
            return False
        elsewhere = self._elsewhere(peers)
        if elsewhere and self._run_store.silent:
            self._say(f"cannot reach the other hosts: {self._run_store.reason}")
        meeting = Meeting(folder, host, sorted(peers), elsewhere, self._run_store)
        meeting.share(bundle)
        if meeting.reports():
            meeting.gather()
            page = folder / "report.html"
            self._command(["diagnose", "--patience", "1", "--html", str(page), str(folder)], folder / "report.txt")
            meeting.publish()
        return True

    @staticmethod
    def _pids(peers: dict[int, beacon.Beat]) -> set[int]:
        return {os.getpid(), *(beat.pid for beat in peers.values())}

    def _adopt(self, folder: Path, rank: int, pid: int) -> None:
        """The stacks that the C timer of a rank has written without its interpreter."""
        try:
            text = (self._beacons / f"{pid}.stacks").read_text()
            if text:
                (folder / f"rank-{rank}.stacks.txt").write_text(text)
        except OSError:
            pass

    def _command(self, words: list[str], output: Path | None) -> None:
        environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "hangdoc", *words], env=environment, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=_SNAPSHOT_SECONDS, check=False,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            self._say(f"`hangdoc {words[0]}` did not work: {error}")
            return
        if done.returncode not in _ANSWERS:
            self._say(f"`hangdoc {words[0]}`: {done.stderr.strip()[-300:]}")
        elif output is not None:
            fresh = output.with_suffix(".new")
            fresh.write_text(done.stdout)
            fresh.replace(output)

    def _tell(self, folder: Path, *, expected: bool) -> None:
        """The verdict, in a few lines, on every rank's own stderr."""
        report = folder / "report.txt"
        until = time.monotonic() + (_REPORT_SECONDS if expected else 0.0)
        while not report.exists() and time.monotonic() < until:
            time.sleep(0.05)
        try:
            shown = beginning(report.read_text())
        except OSError:
            self._say(f"there is no report. The evidence is in {folder}: hangdoc diagnose {folder}")
            return
        self._say(f"{shown}\nthe whole report: hangdoc diagnose {folder}")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
