"""Faults that data and environment cannot cause: `--fault NAME[:rank[:step]]`.

The rank itself causes the fault at one step. The other faults of the demo (different shards, no shards, an uneven split, a
worker stuck in the file system) are real conditions that a scenario prepares.
"""

import os
import signal
from dataclasses import dataclass

import torch
import torch.distributed as dist

NAMES = (
    "skipped-collective",
    "mismatched-collective",
    "rank-dies",
    "rank-stops",
    "endless-loop",
    "waits-for-input",
)


@dataclass(frozen=True)
class Fault:
    """What goes wrong, on which rank, at which step."""

    name: str
    rank: int
    step: int

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """Parse `NAME[:rank[:step]]`. Raises ValueError."""
        name, *rest = text.split(":")
        if name not in NAMES:
            raise ValueError(f"unknown fault {name!r}. Choose one of {', '.join(NAMES)}")
        rank = int(rest[0]) if rest else 1
        step = int(rest[1]) if len(rest) > 1 else 3
        return cls(name, rank, step)

    def hits(self, name: str, rank: int, step: int) -> bool:
        """Whether this fault happens here. It happens once, and not again after a restart of the run."""
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        return first and (self.name, self.rank, self.step) == (name, rank, step)


def before_step(fault: Fault | None, rank: int, step: int) -> None:
    """Cause the faults that stop one rank."""
    if fault is None:
        return
    if fault.name == "rank-dies" and step == fault.step:
        _die(fault, rank)
    if fault.hits("rank-stops", rank, step):
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault.hits("endless-loop", rank, step):
        _spin()
    if fault.hits("waits-for-input", rank, step):
        input("continue? ")


def _die(fault: Fault, rank: int) -> None:
    """Kill one rank. The others wait for a key that it would have written into the run's store."""
    if rank == fault.rank:
        os.kill(os.getpid(), signal.SIGKILL)
    store = dist.distributed_c10d._get_default_store()
    store.wait([f"plan of rank {fault.rank}"])


def _spin() -> None:
    """Run an iteration that never converges."""
    value = torch.ones(64)
    while value.sum() < 1e9:
        value = value / value.norm()
