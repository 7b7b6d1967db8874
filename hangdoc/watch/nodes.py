"""Combines the looks of several nodes at one run, each with its own `hangdoc run`.

The nodes share a directory. It contains a folder for each run, `.hangdoc-run-<digest>/`, with a file `wanted`, a file
`<host>-<pid>.here` for each node, and `<host>-<pid>.hangdoc` for each node with a bundle. A node whose ranks wait writes a nonce
into `wanted`. Then every node looks and writes its bundle with this nonce, and the node of rank 0 merges the bundles. Times are
those of the file system, because the clocks of the nodes may differ.
"""

import contextlib
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec.structs import replace

from hangdoc import codec, run_identity
from hangdoc.diagnosis import Diagnosis, Job, Verdict
from hangdoc.phrases import ranks as named
from hangdoc.private_directory import PrivateDirectory
from hangdoc.snapshot import Connection, Connections, Host, Listener, Process, RankIdentity, Snapshot, Unreached, merge
from hangdoc.watchdog.hang_directory import clean

_GATHER_SECONDS = 20.0
"""How long the node of rank 0 waits for the other bundles. A node notices the request within a second; its look takes a few."""
_POLL_SECONDS = 1.0
_LOOKS_BEFORE_REQUEST = 2
_WANTED, _REPORTED = "wanted", "reported"
_NONCE_BYTES = 16
_MOST_REPORTED = 4096
_OURS = re.compile(r"wanted|reported|\.?[\w.-]+\.(?:here|hangdoc)(?:\.[0-9a-f]{12})?")
"""The names of hangdoc's files in a folder, also of files that were not written to their end."""
_WORST: tuple[Verdict, ...] = ("hung", "unknown", "waiting", "healthy")


def name_of_run(identity: RankIdentity) -> str:
    """A name of the run that is the same for all of its ranks, on all nodes, and for no other run."""
    endpoint = (identity.run_id, identity.master_address, identity.master_port, identity.world_size)
    return run_identity.digest_of(identity) or run_identity.digest(repr(endpoint))


class _Folder:
    """The folder of one run, which only this user may write into. Errors of the file system are raised as OSError."""

    def __init__(self, base: Path, name: str, me: str) -> None:
        self._directory = PrivateDirectory(base / f".hangdoc-run-{name}", create=True)
        self._me = me
        for file in (_WANTED, _REPORTED):  # NFS checks an existing file each time, an absent one rarely
            if self._directory.claim(file):
                self._directory.date(file, 0)
        self._directory.claim(f"{me}.here")
        self.answered = self._directory.written_at(_WANTED)
        self._read = self._directory.written_at(_REPORTED)
        self._nonce = ""
        """Of the request that this node has answered last."""

    def requested(self) -> int | None:
        """When a node requested a look after the last answer, in nanoseconds of the file system; None if none did."""
        when = self._directory.written_at(_WANTED)
        return when if when > self.answered else None

    def request(self) -> int:
        """Request a look of all nodes. Returns the time as `requested`."""
        self._directory.overwrite(_WANTED, secrets.token_hex(_NONCE_BYTES).encode())
        return self._directory.written_at(_WANTED)

    def share(self, snapshot: Snapshot) -> None:
        """Answer the newest request with this node's bundle."""
        self._nonce = self._read_newest_nonce()
        self._directory.write(f"{self._me}.hangdoc", codec.encode(snapshot, self._nonce))

    def others(self, since: int) -> dict[str, Snapshot]:
        """Bundles that other nodes have written since then as answers, by node."""
        nonces = {self._nonce, self._read_newest_nonce()}
        bundles = {}
        for name in self._directory.names():
            node = name.removesuffix(".hangdoc")
            if node in (name, self._me) or name.startswith("."):
                continue
            with contextlib.suppress(
                OSError, codec.BundleError
            ):  # removed, from an earlier request, from another version
                if self._directory.written_at(name) >= since:
                    raw = self._directory.read(name, codec.MAX_FILE_BYTES)
                    bundles[node] = codec.decode(raw, name, nonces=nonces)
        return bundles

    def _read_newest_nonce(self) -> str:
        return self._directory.read(_WANTED, 2 * _NONCE_BYTES).decode("ascii", "replace")

    def present(self) -> set[str]:
        """The names of the other nodes."""
        names = self._directory.names()
        return {name.removesuffix(".here") for name in names if name.endswith(".here")} - {self._me}

    def report(self, where: str) -> None:
        self._directory.overwrite(_REPORTED, where.encode("utf-8", "replace")[:_MOST_REPORTED])
        self._read = self._directory.written_at(_REPORTED)

    def unread(self) -> bool:
        """Whether another node has reported a hang since `reported` was last asked."""
        return self._directory.written_at(_REPORTED) > self._read

    def reported(self) -> str | None:
        """Where another node has reported a hang; returned only once."""
        if not self.unread():
            return None
        self._read = self._directory.written_at(_REPORTED)
        return self._directory.read(_REPORTED, _MOST_REPORTED).decode("utf-8", "replace")

    def leave(self) -> None:
        """Remove this node's files. The last node also removes the folder, if nothing else is in it."""
        with contextlib.suppress(OSError):
            for kind in ("here", "hangdoc"):
                self._directory.remove(f"{self._me}.{kind}")
            if not self.present():
                for name in self._directory.names():
                    if _OURS.fullmatch(name):
                        self._directory.remove(name)
                self._directory.remove_if_empty()
        self._directory.close()


class _Part:
    """This node's ranks of a run that has ranks on other nodes too."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.pids: dict[int, int] = {}
        """By rank."""
        self.local: set[int] = set()
        """The ranks that must be below the command, whether or not they were observed."""
        self.elsewhere: frozenset[int] = frozenset()

    def add(self, pid: int, who: RankIdentity, launched_here: bool) -> None:
        """Add a rank. A launcher below the command has started all ranks of the node. If `hangdoc run` itself was started once
        per rank (srun, mpirun), the other ranks of the node are below other commands."""
        self.pids[who.rank] = pid
        self.local.add(who.rank)
        if launched_here and who.local_rank is not None and who.local_world_size is not None:
            first = who.rank - who.local_rank
            self.local |= set(range(first, first + who.local_world_size))
        self.elsewhere = frozenset(range(self.world_size)) - self.local

    def owns(self, job: Job) -> bool:
        pids = set(self.pids.values())
        return any(view.pid in pids for view in job.ranks)


class Nodes:
    """This node's part in runs over several nodes.

    `look` observes the ranks below `command`, a pid. `reach`, if given, observes all nodes (a fleet), and then no folder is
    needed."""

    def __init__(
        self,
        command: int,
        look: Callable[[], Snapshot],
        diagnose: Callable[[Snapshot], Diagnosis],
        base: Path,
        log: Callable[[str], None],
        reach: Callable[[], Snapshot] | None = None,
    ) -> None:
        self._command, self._look, self._diagnose = command, look, diagnose
        self._base, self._log, self._reach = base, log, reach
        self.host = socket.gethostname()
        self._me = f"{clean(self.host)}-{os.getpid()}"
        self._parts: dict[str, _Part] = {}
        self._folders: dict[str, _Folder] = {}
        self._looks_unhealthy: dict[str, int] = {}
        """How many looks in a row a run was not healthy, by its name."""
        self._silent: dict[str, frozenset[int]] = {}
        """Ranks whose nodes did not answer the last request, by run."""
        self._unreached: tuple[Unreached, ...] = ()
        self._printed: set[str] = set()
        self._own: set[tuple[str, int]] = set()

    def look(self) -> Snapshot:
        """Observe this node. If a run has ranks on other nodes and makes no progress, add the looks of those nodes."""
        snapshot = self._look()
        self._own = {(host.name, p.pid) for host in snapshot.hosts for p in host.processes if p.role == "rank"}
        self._parts = _find_parts(snapshot, self._command)
        for name in set(self._folders) - set(self._parts):
            self._folders.pop(name).leave()
        if not self._parts:
            return snapshot
        jobs = self._diagnose(snapshot).jobs
        healthy = {
            name for name, part in self._parts.items() for job in jobs if part.owns(job) and job.verdict == "healthy"
        }
        self._looks_unhealthy = {
            name: self._looks_unhealthy.get(name, 0) + 1 for name in self._parts if name not in healthy
        }
        others: list[Snapshot] = []
        for name, part in self._parts.items():
            try:
                others += self._ask_others(name, part, snapshot)
            except OSError as error:
                self._log_once(f"cannot exchange bundles with the other nodes in {self._base}: {error}")
        return _merge_snapshots([snapshot, *others]) if others else snapshot

    def mine(self, diagnosis: Diagnosis) -> Diagnosis:
        """The diagnosis without jobs that have no rank on this node, and with `unknown` instead of `hung` if ranks of other
        nodes were not observed: this node observes only its own processes, so the absence of other ranks means nothing."""
        jobs = tuple(
            replace(job, verdict="unknown") if job.verdict == "hung" and self._absent_elsewhere(job) else job
            for job in diagnosis.jobs
            if not self._parts or any((view.host, view.pid) in self._own for view in job.ranks)
        )
        verdicts = [job.verdict for job in jobs]
        worst = next((v for v in _WORST if v in verdicts), diagnosis.verdict)
        return replace(diagnosis, jobs=jobs, verdict=worst)

    def pause(self, seconds: float) -> None:
        """Sleep for so long, or until another node requests a look or reports."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))
            with contextlib.suppress(OSError):
                if any(folder.requested() or folder.unread() for folder in self._folders.values()):
                    return

    def reports_here(self, job: Job) -> bool:
        """Whether this node reports a job: it has all of its ranks, or rank 0."""
        part = self._find_part(job)
        return part is None or 0 in part.local

    def announce(self, where: str) -> None:
        """Announce to the other nodes where the report is."""
        for folder in self._folders.values():
            with contextlib.suppress(OSError):
                folder.report(where)

    def announced(self) -> str | None:
        """Where another node has reported; returned only once."""
        for folder in self._folders.values():
            with contextlib.suppress(OSError):
                if (where := folder.reported()) is not None:
                    return where
        return None

    def leave(self) -> None:
        """Remove this node's files from the shared directory."""
        for folder in self._folders.values():
            folder.leave()

    def missing(self, job: Job) -> str | None:
        """A sentence about ranks of other nodes that were not observed; None if all were."""
        part = self._find_part(job)
        absent = (part.elsewhere if part is not None else frozenset()) - {
            v.rank for v in job.ranks if v.pid is not None
        }
        if not absent:
            return None
        if self._reach is not None:
            why = "; ".join(f"{unreached.host}: {unreached.why}" for unreached in self._unreached[:3])
            return f"{named(absent)} not observed with --hosts" + (f" ({why})" if why else "")
        return (
            f"{named(absent)} not observed: their nodes wrote no bundle into {self._base}. All nodes must share this directory, "
            "and `hangdoc run` must run on each of them"
        )

    def _find_part(self, job: Job) -> _Part | None:
        return next((part for part in self._parts.values() if part.owns(job)), None)

    def _absent_elsewhere(self, job: Job) -> bool:
        part = self._find_part(job)
        return part is not None and any(view.pid is None and view.rank in part.elsewhere for view in job.ranks)

    def _ask_others(self, name: str, part: _Part, own: Snapshot) -> list[Snapshot]:
        first = 0 in part.local
        needed = self._looks_unhealthy.get(name, 0) >= _LOOKS_BEFORE_REQUEST
        if self._reach is not None:
            if not (first and needed):
                return []
            all_nodes = self._reach()
            self._unreached = all_nodes.unreached
            return [all_nodes]
        folder = self._folders.get(name)
        if folder is None:
            folder = self._folders[name] = _Folder(self._base, name, self._me)
        since = folder.requested() or (folder.request() if needed else None)
        if since is None:
            return []
        folder.answered = since
        folder.share(own)
        return list(self._gather_bundles(name, part, folder, since).values()) if first else []

    def _gather_bundles(self, name: str, part: _Part, folder: _Folder, since: int) -> dict[str, Snapshot]:
        """The bundles of the other nodes. Waits until they have all ranks, but not again for ranks that were missing last
        time."""
        wanted = part.elsewhere
        until = time.monotonic() + (_GATHER_SECONDS if wanted != self._silent.get(name) else _POLL_SECONDS)
        while True:
            bundles = folder.others(since)
            absent = wanted - _list_ranks(bundles.values())
            if not absent or time.monotonic() > until:
                self._silent[name] = absent
                return bundles
            time.sleep(0.2)

    def _log_once(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            self._log(text)


def _find_parts(snapshot: Snapshot, command: int) -> dict[str, _Part]:
    """Runs with ranks on other nodes, by name."""
    parts: dict[str, _Part] = {}
    for host in snapshot.hosts:
        launchers = {p.pid for p in host.processes if p.role == "launcher" and _descends(p.pid, command)}
        for process in host.processes:
            who = process.identity
            if process.role == "rank" and who is not None and who.world_size is not None:
                part = parts.setdefault(name_of_run(who), _Part(who.world_size))
                part.add(process.pid, who, process.owner in launchers)
    return {name: part for name, part in parts.items() if part.elsewhere}


def _descends(pid: int, ancestor: int) -> bool:
    while pid not in (ancestor, 0):
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return False
    return pid == ancestor


def _list_ranks(snapshots: Iterable[Snapshot]) -> set[int]:
    processes = (process for snapshot in snapshots for host in snapshot.hosts for process in host.processes)
    return {process.identity.rank for process in processes if process.identity is not None}


def _merge_snapshots(snapshots: list[Snapshot]) -> Snapshot:
    """Like `merge`, but if several nodes of a run are one machine (each rank has its own `hangdoc run`), all processes are
    kept."""
    alike: dict[tuple[str, str | None], list[Host]] = {}
    for snapshot in snapshots:
        for host in snapshot.hosts:
            alike.setdefault((host.name, host.machine_id), []).append(host)
    hosts = tuple(_merge_looks(group) for group in alike.values())
    unreached = tuple(gone for snapshot in snapshots for gone in snapshot.unreached)
    return merge((replace(snapshots[0], hosts=hosts, unreached=unreached),))


def _merge_looks(looks: list[Host]) -> Host:
    """Combine looks at one machine, each at some of its processes. The newest look at a process counts."""
    looks = sorted(looks, key=lambda host: host.taken_at)
    newest = looks[-1]
    if len(looks) == 1:
        return newest
    processes: dict[int, Process] = {}
    connections: dict[tuple[object, ...], Connection] = {}
    listeners: dict[tuple[object, ...], Listener] = {}
    for host in looks:
        processes |= {process.pid: process for process in host.processes}
        if isinstance(host.connections, Connections):
            connections |= {(c.pid, c.namespace, c.local_address, c.local_port, c.remote_address, c.remote_port): c
                            for c in host.connections.connections}  # fmt: skip
            listeners |= {(listener.namespace, listener.port): listener for listener in host.connections.listeners}
    return replace(
        newest,
        processes=tuple(process for _, process in sorted(processes.items())),
        connections=Connections(connections=tuple(connections.values()), listeners=tuple(listeners.values()))
        if connections
        else newest.connections,
        control_groups=tuple({group.path: group for host in looks for group in host.control_groups}.values()),
        ras=tuple({(ras.namespace, ras.address, ras.processes): ras for host in looks for ras in host.ras}.values()),
        problems=tuple(dict.fromkeys(problem for host in looks for problem in host.problems)),
        late=tuple(dict.fromkeys(text for host in looks for text in host.late)),
    )
