"""What a run is called: one name for all of its ranks, on all hosts, whoever asks.

Discovery, jobs, beacons and the watchdog all take the name from here. The evidence, in order: the launcher's own name for the
run, then the meeting point. Connections and the process tree come after that (`hangdoc.diagnose.runs.gather`): they need
more than one process.

A name survives its carrier whole: where a field is short it holds `digest(name)`, never the name's beginning.
Standard library only: the watchdog brings this module into a trainer.
"""

import hashlib
import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol

DIGEST_LENGTH = 24
_TORCHRUN_DEFAULT = "none"
"""torchrun's run id where nobody gave one and the rendezvous is static (torch/distributed/run.py); it names no run."""


def name(environment: Mapping[str, str], network: str = "") -> str | None:
    """The name of the run that a process's variables belong to; None where they name none.

    `network` tells apart meeting points on loopback addresses: the network namespace as /proc/PID/ns/net names it.
    """
    torchrun = environment.get("TORCHELASTIC_RUN_ID")
    meeting = _meeting_point(environment, network)
    if torchrun not in (None, "", _TORCHRUN_DEFAULT):
        # People reuse `--rdzv-id job`: the port that the agents agreed on tells two such runs apart.
        return f"torchrun:{torchrun}@{environment.get('MASTER_PORT', '')}"
    if meeting is not None and "RANK" in environment:
        return meeting  # more exact than the launcher: one Slurm step may start several runs
    return _of_cluster(environment) or meeting


def digest(run: str) -> str:
    """`run` as 24 hexadecimal digits: equal for equal names only."""
    return hashlib.blake2b(run.encode(), digest_size=DIGEST_LENGTH // 2).hexdigest()


class Named(Protocol):
    """What carries a run's name, or its digest alone (hangdoc.snapshot.RankIdentity)."""

    @property
    def run(self) -> str | None:
        """The name."""

    @property
    def run_digest(self) -> str | None:
        """Its digest, where only that is known."""


def digest_of(who: Named) -> str | None:
    """Digest of the name of a rank's run; None where the run has no name."""
    return digest(who.run) if who.run is not None else who.run_digest


def slurm_job(environment: Mapping[str, str]) -> frozenset[str]:
    """All names under which Slurm knows the job of a process: `123`, `123.0`, `100_3`; empty outside of Slurm."""
    job = environment.get("SLURM_JOB_ID") or environment.get("SLURM_JOBID")
    if not job:
        return frozenset()
    names = {job}
    if step := environment.get("SLURM_STEP_ID"):
        names.add(f"{job}.{step}")
    array, task = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    if array and task:
        names.add(f"{array}_{task}")
    first, offset = environment.get("SLURM_HET_JOB_ID"), environment.get("SLURM_HET_JOB_OFFSET")
    if first and offset:
        names |= {first, f"{first}+{offset}"}
    return frozenset(names)


@lru_cache(4096)  # a run has few meeting points and many ranks
def is_loopback(address: str) -> bool:
    """Whether an address or a host's name means the host itself."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost" or address.startswith("localhost.")


def _of_cluster(environment: Mapping[str, str]) -> str | None:
    """The name that MPI (PMIx, Open MPI 4) or Slurm gives to the processes that one command started. A step of one task
    is a shell or a launcher, which may start several runs."""
    if _several(environment, "OMPI_COMM_WORLD_SIZE"):
        mpi = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid")
        if mpi:
            return f"mpi:{mpi}"
    job, step = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    several = _several(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    return f"slurm:{job}.{step}" if job and step and several else None


def _several(environment: Mapping[str, str], *names: str) -> bool:
    """Whether the first of these variables that is there is a number above 1."""
    known = next((environment[name] for name in names if name in environment), "")
    return known.isdigit() and int(known) > 1


def _meeting_point(environment: Mapping[str, str], network: str) -> str | None:
    address, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if not address or not port:
        return None
    return f"localhost({network}):{port}" if is_loopback(address) else f"{address}:{port}"
