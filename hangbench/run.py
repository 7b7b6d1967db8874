"""Starts a case, waits until it has reached its final state, and ends every process that it started."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType

from hangbench.case import Case, Node, cases
from hangbench.situations import SITUATIONS
from hangdoc_trainer.offspring import Offspring, free_port, parent
from hangdoc_trainer.scenarios import SCENARIOS, Started

_READY = re.compile(r"(?<!al)ready")
"""NCCL's and torch's warnings have the word `already`."""
_MARGIN = 1.5
_ROOT = Path(__file__).parents[1]
_BEACONS = _ROOT / "hangbench" / "beacons"
"""A directory whose sitecustomize gives each rank a watchdog."""


class Running:
    """A started case. Leaving it ends all its processes, which have a mark in their environment.

    With `beacons`, every rank has a watchdog that its script does not know about. `variables` are added to the environment.
    `launchers` are the pids to observe. `while_starting` is called until all ranks are ready. `folder` keeps the output in its
    file `log`; by default it is removed at the end. Raises RuntimeError with the output of the ranks if the run does not start
    within `start_seconds`.
    """

    def __init__(
        self, case: Case, while_starting: Callable[["Running"], None] | None = None, *, beacons: bool = False,
        variables: Mapping[str, str] = MappingProxyType({}), folder: Path | None = None, start_seconds: float = 150.0,
    ) -> None:  # fmt: skip
        self.case = case
        self._watched = {"PYTHONPATH": f"{_BEACONS}:{_ROOT}"} if beacons else {}
        self._variables = variables
        self._while_starting = while_starting
        self._start_seconds = start_seconds
        self.address, self.port = "127.0.0.1", free_port()
        self.wrap: Callable[[int, list[str]], list[str]] = lambda node, command: command
        """Lets a situation wrap the command of a node into another one."""
        self.started_nodes = len(case.nodes)
        self.launchers: list[int] = []
        self._children: list[subprocess.Popen[bytes]] = []
        self._offspring = Offspring()
        self._temporary = tempfile.TemporaryDirectory(prefix="hangbench-")
        self._folder = folder or Path(self._temporary.name)
        self._stack = ExitStack()
        self._scenario: Started | None = None

    def __enter__(self) -> "Running":
        try:
            if self.case.launch == "scenario":
                name = self.case.name.removeprefix("trainer_").replace("_", "-")
                scenario = SCENARIOS[name]
                if self._watched:
                    scenario = replace(scenario, arguments=(*scenario.arguments, "--watchdog", "100000"))
                self._scenario = self._stack.enter_context(Started(scenario))
                self.launchers = list(self._scenario.pids)
                return self
            situation = SITUATIONS[self.case.situation](self) if self.case.situation else None
            if situation is not None:
                self._stack.enter_context(situation.around())
            for index, node in enumerate(self.case.nodes[: self.started_nodes]):
                self._start(index, node)
            self._wait_ready()
            if situation is not None:
                situation.when_ready()
            self._settle()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self, index: int, node: Node) -> None:
        ranks = node.ranks if node.ranks is not None else self.case.ranks // len(self.case.nodes)
        script = [str(self.case.script), *node.arguments]
        first = sum(n.ranks or ranks for n in self.case.nodes[:index])
        match self.case.launch:
            case "torchrun":
                many = [f"--nnodes={len(self.case.nodes)}", f"--node-rank={index}", f"--master-addr={self.address}"]
                self._spawn(index, node, {}, [sys.executable, "-m", "torch.distributed.run", *many,
                            f"--nproc-per-node={ranks}", f"--master-port={self.port}", *script])  # fmt: skip
            case "itself":
                self._spawn(index, node, {}, [sys.executable, script[0], str(self.port), *script[1:]])
            case "mpi":
                for rank in range(first, first + ranks):
                    who = {"RANK": rank, "SIZE": self.case.ranks, "LOCAL_RANK": rank - first, "LOCAL_SIZE": ranks}
                    variables = {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in who.items()}
                    self._spawn(index, node, variables, [sys.executable, script[0], str(self.port), *script[1:]])
            case "environment":
                for rank in range(first, first + ranks):
                    variables = {"RANK": str(rank), "WORLD_SIZE": str(self.case.ranks), "MASTER_ADDR": self.address,
                                 "MASTER_PORT": str(self.port)}  # fmt: skip
                    self._spawn(index, node, variables, [sys.executable, *script])

    def _spawn(self, index: int, node: Node, variables: dict[str, str], command: list[str]) -> None:
        environment = {
            **os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false",
            **self._variables, **self._watched, **variables, **node.environment, **self._offspring.mark,
        }  # fmt: skip
        with self._log.open("ab") as log:
            # A separate session, and a standard input that stays open for a rank that reads it.
            child = subprocess.Popen(self.wrap(index, command), env=environment, stdin=subprocess.PIPE, stdout=log,
                                     stderr=subprocess.STDOUT, start_new_session=True, cwd=self._folder)  # fmt: skip
        self._children.append(child)
        self.launchers.append(child.pid)

    @property
    def _log(self) -> Path:
        return self._folder / "log"

    def log(self) -> str:
        """The output of launchers and ranks."""
        return self._log.read_text("utf-8", "replace")

    def ready(self) -> int:
        """How many ranks have printed `ready`."""
        return len(_READY.findall(self.log()))

    def _wait_ready(self) -> None:
        wanted = self.case.ready if self.case.ready is not None else self.case.ranks
        until = time.monotonic() + self._start_seconds
        # If no rank will start, wait until the launcher listens.
        while self.ready() < wanted or (wanted == 0 and not self._listens()):
            if time.monotonic() > until or all(child.poll() is not None for child in self._children):
                raise RuntimeError(f"{self.case.name} did not start. It printed:\n{self.log()[-3000:]}")
            if self._while_starting is not None:
                self._while_starting(self)
            time.sleep(0.05)

    def _listens(self) -> bool:
        try:
            socket.create_connection((self.address, self.port), 1).close()
        except OSError:
            return False
        return True

    def _settle(self) -> None:
        """Wait until nothing was printed for longer than the patience, because a wait must be that old."""
        quiet = (2.0 if self.case.control else self.case.tolerance) + _MARGIN
        size, since = self._log.stat().st_size, time.monotonic()
        until = since + 30
        while time.monotonic() - since < quiet and time.monotonic() < until:
            time.sleep(0.1)
            if (now := self._log.stat().st_size) != size and not self.case.control:
                size, since = now, time.monotonic()

    def ranks(self) -> dict[int, int]:
        """Rank to pid, for the processes whose initial environment contains their rank."""
        if self._scenario is not None:
            return self._scenario.rank_pids()
        pids = {}
        for pid, environment in self.processes():
            rank = environment.get("RANK", environment.get("OMPI_COMM_WORLD_RANK"))
            if rank is not None and (parent(pid) in (*self.launchers, 1) or pid in self.launchers):
                pids[int(rank)] = pid
        return pids

    def vital_signs(self) -> dict[int, tuple[str, ...]]:
        """By rank, what a look must not change: whether the process exists, is stopped or traced, and its pending signals."""
        signs = {}
        for rank, pid in self.ranks().items():
            try:
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            except OSError:
                continue
            fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
            stopped = str(fields["State"][0] in "TtZX")
            signs[rank] = (stopped, *(fields.get(name, "") for name in ("TracerPid", "SigPnd", "ShdPnd")))
        return signs

    def beside(self, name: str) -> "Running":
        """A run of another case, for a situation."""
        return Running(cases()[name])

    def processes(self) -> list[tuple[int, dict[str, str]]]:
        """Every process of this run, with its initial environment."""
        return self._offspring.processes()

    def end_processes(self) -> None:
        """Kill all its processes. Another thread that waits for them gets an error."""
        self._offspring.end()

    def _stop(self) -> None:
        self.end_processes()
        for child in self._children:
            child.communicate()
        self._stack.close()  # other runs, namespaces and control groups, after the ranks that used them
        self._temporary.cleanup()
