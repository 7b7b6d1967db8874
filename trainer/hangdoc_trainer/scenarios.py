"""Scenarios of the included trainer, really started by torchrun, for `hangdoc demo` and the live tests.

A scenario prepares its data and starts one torchrun per node on free ports. It waits until the beacons of the ranks show that
the run is frozen or, for a healthy run, training. At the end it ends every process that it started, also after an error.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from hangdoc import beacon
from hangdoc.portable import running_from
from hangdoc_trainer.offspring import Offspring, free_port, parent

SMALL = [
    "--depth",
    "2",
    "--aspect-ratio",
    "16",
    "--head-dim",
    "16",
    "--max-seq-len",
    "64",
    "--device-batch-size",
    "4",
    "--log-every",
    "1000000",
]
_FROZEN_SECONDS = 3.0
"""Longer on an overloaded machine, where a step may take seconds."""
_MAX_LOAD = 4.0
_START_BOUND = 300.0


@dataclass(frozen=True)
class Node:
    """One torchrun."""

    shards: int = 12
    """Files in its data directory; the last one is for evaluation."""
    ranks: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """Nodes, arguments of the trainer, and changes of its data."""

    name: str
    summary: str
    nodes: tuple[Node, ...] = (Node(ranks=2),)
    arguments: tuple[str, ...] = ("--num-iterations", "100000")
    frozen: bool = True
    """Whether the run freezes. False for a run that trains."""
    prepare: Callable[[list[Path]], None] | None = None
    """Changes the data directories of the nodes before the start."""
    patience: float = 2.0
    """The value for `diagnose --patience`, so that the demo does not take half a minute."""


def _fifo_shard(folders: list[Path]) -> None:
    """Replace a shard with a FIFO without a writer, which blocks a reader like a file system that does not answer."""
    stuck = folders[-1] / "shard_00003.parquet"
    stuck.unlink()
    os.mkfifo(stuck)


_ONE_EPOCH = ("--num-iterations", "-1")

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("shard-mismatch", "two nodes, 201 shards against 4: one rank leaves its loop early",
                 (Node(shards=201), Node(shards=4)), _ONE_EPOCH),
        Scenario("empty-shards", "the second node has no training shard: its loader restarts forever",
                 (Node(shards=12), Node(shards=1))),
        Scenario("uneven-batches", "the same data, but rank 0 has one row group more",
                 (Node(ranks=2),), _ONE_EPOCH, prepare=lambda folders: _uneven(folders[0])),
        Scenario("skipped-collective", "rank 1 skips one broadcast",
                 arguments=("--num-iterations", "100000", "--fault", "skipped-collective:1:3")),
        Scenario("mismatched-collective", "rank 2 of 3 calls all_reduce where the others call broadcast",
                 (Node(ranks=3),), ("--num-iterations", "100000", "--fault", "mismatched-collective:2:3")),
        Scenario("rank-dies", "the rank of the second node is killed; the first waits for it on the store",
                 (Node(), Node()), ("--num-iterations", "100000", "--fault", "rank-dies:1:3")),
        Scenario("rank-stops", "rank 1 is stopped by SIGSTOP",
                 arguments=("--num-iterations", "100000", "--fault", "rank-stops:1:3")),
        Scenario("stuck-dataloader-worker", "a dataloader worker of rank 1 opens a file on a file system that does not respond",
                 (Node(), Node()), ("--num-iterations", "100000", "--workers", "1"), prepare=_fifo_shard),
        Scenario("endless-loop", "rank 1 computes forever",
                 arguments=("--num-iterations", "100000", "--fault", "endless-loop:1:3")),
        Scenario("waits-for-input", "rank 1 waits for user input",
                 arguments=("--num-iterations", "100000", "--fault", "waits-for-input:1:3")),
        Scenario("healthy", "a run that trains", frozen=False),
        Scenario("long-evaluation", "rank 0 computes a long metric alone while the others wait", frozen=False,
                 arguments=("--num-iterations", "100000", "--core-metric-every", "3", "--core-metric-tokens", "100000000")),
    )
}  # fmt: skip


def _uneven(folder: Path) -> None:
    """Shards with an odd number of row groups: rank 0 has one more of each."""
    from hangdoc_trainer import corpus

    shutil.rmtree(folder)
    corpus.make(folder, 5, groups=3, rows=1, size=300)


class Started:
    """A running scenario. Use it as a context manager: leaving it ends every process."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = sum(node.ranks for node in scenario.nodes)
        self.offspring = Offspring()
        self.folder = Path(tempfile.mkdtemp(prefix="hangdoc-demo-"))
        """Its data, its logs, and the files of its ranks."""
        self._launchers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Started":
        try:
            self._start()
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pids(self) -> tuple[int, ...]:
        """The pids of the launchers."""
        return tuple(launcher.pid for launcher in self._launchers)

    def launchers(self) -> tuple[int, ...]:
        """The pids of the launchers that have not ended."""
        return tuple(launcher.pid for launcher in self._launchers if launcher.poll() is None)

    def rank_pids(self) -> dict[int, int]:
        """Rank to pid, of the ranks that exist now."""
        found = {}
        for pid, environment in self.offspring.processes():
            if "RANK" in environment and parent(pid) in self.pids:
                found[int(environment["RANK"])] = pid
        return found

    def log(self) -> str:
        """The output of launchers and ranks."""
        return "\n".join(path.read_text("utf-8", "replace") for path in sorted(self.folder.glob("*.log")))

    def _start(self) -> None:
        from hangdoc_trainer import corpus  # needs pyarrow, which a list of the scenarios does not

        port = free_port()
        folders = []
        for index, node in enumerate(self.scenario.nodes):
            folders.append(self.folder / f"node{index}" / "shards")
            corpus.make(
                folders[-1], node.shards, groups=self.world, rows=1, size=300
            )  # a micro-batch per rank and shard
        if self.scenario.prepare is not None:
            self.scenario.prepare(folders)
        for index, node in enumerate(self.scenario.nodes):
            command = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(self.scenario.nodes)}",
                       f"--node-rank={index}", f"--nproc-per-node={node.ranks}", "--master-addr=127.0.0.1",
                       f"--master-port={port}", "-m", "hangdoc_trainer.base_train", "--", *SMALL,
                       *self.scenario.arguments]  # fmt: skip
            environment = {
                **os.environ, **node.environment, "OMP_NUM_THREADS": "1", **self.offspring.mark,
                "NANOCHAT_DATA_DIR": str(folders[index]), "PYTHONWARNINGS": "ignore",
                "XDG_RUNTIME_DIR": str(self.folder), "TMPDIR": str(self.folder),
            }  # fmt: skip
            if running_from() is not None:  # the ranks import what it has unpacked
                environment["PYTHONPATH"] = f"{Path(__file__).parents[1]}:{os.environ.get('PYTHONPATH', '')}".rstrip(
                    ":"
                )
            with (self.folder / f"node{index}.log").open("wb") as log:
                # A separate session, and a standard input that stays open for a rank that reads it.
                self._launchers.append(
                    subprocess.Popen(
                        command,
                        env=environment,
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                        cwd=self.folder,
                    )
                )

    def _wait(self) -> None:
        """Wait until every rank has a beacon, and then until all are silent for a while, or until three steps are done."""
        until = time.monotonic() + _START_BOUND
        while time.monotonic() < until:
            beats = self.beats()
            if len(beats) == self.world:
                if self.scenario.frozen:
                    newest = max(beat.monotonic_ns for beat in beats)
                    if time.monotonic_ns() - newest > _FROZEN_SECONDS * _load() * 1e9:
                        return
                elif max(beat.step or 0 for beat in beats) >= 3:
                    return
            elif all(launcher.poll() is not None for launcher in self._launchers):
                break
            time.sleep(0.1)
        raise RuntimeError(f"{self.scenario.name} did not start. Its ranks printed:\n{self.log()[-3000:]}")

    def beats(self) -> list[beacon.Beat]:
        """The current beats of the ranks."""
        found = []
        for path in beacon.directory(os.getuid(), str(self.folder)).glob("*.beacon"):
            beat = beacon.parse(path.read_bytes())
            if beat is not None:
                found.append(beat)
        return found

    def stop(self) -> None:
        """End all processes of this run, and only those, and remove its files."""
        self.offspring.end()
        for launcher in self._launchers:
            if launcher.stdin is not None:
                launcher.stdin.close()
            launcher.wait(timeout=100)
        shutil.rmtree(self.folder, ignore_errors=True)


def _load() -> float:
    """How much longer everything may take on this machine now."""
    return min(_MAX_LOAD, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def start(name: str) -> Started:
    """The scenario with this name, not started yet. Raises KeyError for an unknown name."""
    return Started(SCENARIOS[name])
