"""What a rank does after its deadline: dump its stacks, have its host observed, and report the result.

Runs in the watchdog's thread. Every step has a time limit, and nothing raises: each failure is reported once.
"""

import contextlib
import faulthandler
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable

from hangdoc import beacon
from hangdoc.beacon import FLIGHT_SUFFIX
from hangdoc.phrases import beginning
from hangdoc.private_directory import PrivateDirectory
from hangdoc.watchdog import attach, recorder
from hangdoc.watchdog.hang_directory import Member, clean
from hangdoc.watchdog.joint_report import REPORT, JointReport
from hangdoc.watchdog.log import Log
from hangdoc.watchdog.run_store import RunStore

_PEERS_SECONDS = 1.5
_SNAPSHOT_SECONDS = 30
_REPORT_SECONDS = 20.0
_MAX_TEXT_BYTES = 16 << 20
_ANSWERS = (0, 1, 4)
"""Exit codes of `hangdoc` that come with a report on stdout; with 4 it lists what could not be observed."""


class Alarm:
    """One rank's part in a hang. The hosts of a run exchange messages through `run_store`. The ranks of this host have beacons in
    `beacons`, if that directory can be trusted. `closed`: other processes may attach to this one only while hangdoc observes the
    hang."""

    def __init__(
        self, member: Member, beacons: PrivateDirectory | None, run_store: RunStore, log: Log, *, closed: bool = False
    ) -> None:
        self._rank, self._world_size, self._run = member.rank, member.world_size, member.digest
        self._beacons, self._run_store, self._log = beacons, run_store, log
        self._closed = closed

    def raise_(self, folder: PrivateDirectory) -> None:
        """Save this rank's stacks in the directory. The first rank of a host also observes the host and diagnoses."""
        self._dump_stacks(folder)
        self.record(folder)
        host = socket.gethostname()
        try:
            first = folder.claim(f"host-{clean(host)}.claim")
        except OSError as error:
            self._log(f"cannot write into {folder.path}: {error}")
            return
        with attach.allowed_meanwhile(self._closed):
            self._print_verdict(folder, expected=not first or self._look(folder, clean(host)))

    def phase_allows_silence(self) -> bool:
        """Whether another rank is in a phase whose announced timeout has not passed. The other ranks may wait for it, so this
        is not a hang. Ranks of this host announce it in their beacons, ranks of other hosts in the run store."""
        now = time.monotonic_ns()
        peers = self._list_peers()
        for rank, beat in peers.items():
            asked = beat.patience_seconds
            if rank != self._rank and asked is not None and (now - beat.monotonic_ns) / 1e9 < asked:
                return True
        return self._run_store.silence_announced(self._list_elsewhere(peers))

    def _list_elsewhere(self, peers: Iterable[int]) -> list[int]:
        return sorted(set(range(self._world_size)) - set(peers))

    def _dump_stacks(self, folder: PrivateDirectory) -> None:
        try:
            with open(folder.open_new(f"rank-{self._rank}.stacks.txt"), "w") as file:
                faulthandler.dump_traceback(file, all_threads=True)
        except (OSError, ValueError, RuntimeError) as error:
            self._log(f"cannot dump the stacks into {folder.path}: {error}")

    def record(self, folder: PrivateDirectory | None = None) -> None:
        """Save the content of torch's flight recorder for readers outside, and in a hang's directory."""
        try:
            records = recorder.dump()
            if records is not None:
                if self._beacons is not None:
                    self._beacons.write(f"{os.getpid()}{FLIGHT_SUFFIX}", records)
                if folder is not None:
                    folder.write(f"rank-{self._rank}{FLIGHT_SUFFIX}", records)
        except Exception as error:  # torch may raise anything
            self._log(f"could not save the flight recorder: {error}")

    def forget(self) -> None:
        """Remove the saved flight recorder, which is outdated when the run makes progress again or ends."""
        if self._beacons is not None:
            with contextlib.suppress(OSError):
                self._beacons.remove(f"{os.getpid()}{FLIGHT_SUFFIX}")

    def _list_peers(self) -> dict[int, beacon.Beat]:
        """Ranks of this run on this host that have a beacon."""
        peers: dict[int, beacon.Beat] = {}
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = self._beacons.names() if self._beacons is not None else []
        for name in names:
            if self._beacons is None or not name.endswith(beacon.SUFFIX):
                continue
            try:
                beat = beacon.parse(self._beacons.read(name, beacon.SIZE))
            except OSError:
                continue
            if beat is not None and beat.rank is not None and beat.run_digest == self._run and _is_alive(beat.pid):
                peers[beat.rank] = beat
        return peers

    def _look(self, folder: PrivateDirectory, host: str) -> bool:
        """Observe the run's ranks on this host from outside, and diagnose all bundles that have arrived. Returns whether this
        host has a bundle; without one there will be no report."""
        peers = self._list_peers()
        until = time.monotonic() + _PEERS_SECONDS
        missing = set(peers)
        while missing and time.monotonic() < until:
            missing = {rank for rank in missing if not folder.has(f"rank-{rank}.stacks.txt")}
            time.sleep(0.05)
        for rank in sorted(missing):
            # A rank that is stopped, or whose GIL is never released, can still be read from outside.
            self._log(f"rank {rank} (pid {peers[rank].pid}) could not dump its own stacks")
            self._copy_timer_dump(folder, rank, peers[rank].pid)
        bundle = f"host-{host}.hangdoc"
        # Only this run, because another job of the host may hang too. The name of the run finds ranks without a watchdog.
        pids = [word for pid in self._list_pids(peers) for word in ("--pid", str(pid))]
        self._command(folder, ["snapshot", "-o", _inside(folder, bundle), "--run-of", str(os.getpid()), *pids], None)
        if not folder.has(bundle):
            return False
        elsewhere = self._list_elsewhere(peers)
        if elsewhere and self._run_store.silent:
            self._log(f"cannot reach the other hosts: {self._run_store.reason}")
        shared = JointReport(folder, host, sorted(peers), elsewhere, self._run_store)
        shared.share(bundle)
        if shared.reports():
            shared.gather()
            words = ["diagnose", "--patience", "1", "--html", _inside(folder, "report.html"), _inside(folder)]
            self._command(folder, words, REPORT)
            shared.publish()
        return True

    @staticmethod
    def _list_pids(peers: dict[int, beacon.Beat]) -> set[int]:
        return {os.getpid(), *(beat.pid for beat in peers.values())}

    def _copy_timer_dump(self, folder: PrivateDirectory, rank: int, pid: int) -> None:
        """Copy the stacks that the C timer of a rank has dumped without the GIL."""
        with contextlib.suppress(OSError):
            text = self._beacons.read(f"{pid}.stacks", _MAX_TEXT_BYTES) if self._beacons is not None else b""
            if text:
                folder.write(f"rank-{rank}.stacks.txt", text)

    def _command(self, folder: PrivateDirectory, words: list[str], output: str | None) -> None:
        environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "hangdoc", *words], env=environment, stdin=subprocess.DEVNULL,
                capture_output=True, timeout=_SNAPSHOT_SECONDS, check=False, pass_fds=(folder.descriptor,),
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            self._log(f"could not run `hangdoc {words[0]}`: {error}")
            return
        if done.returncode not in _ANSWERS:
            self._log(f"`hangdoc {words[0]}` failed: {done.stderr.decode('utf-8', 'replace').strip()[-300:]}")
        elif output is not None:
            try:
                folder.write(output, done.stdout)
            except OSError as error:
                self._log(f"cannot write {folder.path / output}: {error}")

    def _print_verdict(self, folder: PrivateDirectory, *, expected: bool) -> None:
        """Print the verdict in a few lines on this rank's stderr."""
        until = time.monotonic() + (_REPORT_SECONDS if expected else 0.0)
        while not folder.has(REPORT) and time.monotonic() < until:
            time.sleep(0.05)
        try:
            shown = beginning(folder.read(REPORT, _MAX_TEXT_BYTES).decode("utf-8", "replace"))
        except OSError:
            self._log(f"no report was written. To diagnose the evidence: hangdoc diagnose {folder.path}")
            return
        self._log(f"{shown}\nfull report: hangdoc diagnose {folder.path}")


def _inside(folder: PrivateDirectory, name: str = "") -> str:
    """A path for a child that inherits the descriptor of the directory. Another one under its name can't take its place."""
    return f"/proc/self/fd/{folder.descriptor}/{name}".rstrip("/")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
