"""The identity of a run: one name that is the same for all of its ranks, on all hosts.

Discovery, jobs, beacons and the watchdog get the name from here. It is the launcher's own name for the run, or else the
rendezvous. Connections and the process tree are used later (`hangdoc.reasoning.runs.gather`), because they need more than one
process.

A name is never truncated: a short field has `digest(name)` instead.
Only the standard library is used, because the watchdog imports this module in trainers.
"""

import hashlib
import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, Protocol

from hangdoc.parse import natural
from hangdoc.torch_facts.environment_names import NO_RUN_ID, RUN_ID

DIGEST_LENGTH = 24


def name(environment: Mapping[str, str], network: str = "") -> str | None:
    """The name of the run that a process's environment variables identify; None if they identify none.

    `network` is the network namespace as in /proc/PID/ns/net. It distinguishes rendezvous on loopback addresses.
    """
    torchrun, rendezvous, cluster = names(environment, network)
    if torchrun is None and "RANK" in environment:
        return rendezvous or cluster  # more exact than the launcher: one Slurm step may start several runs
    return torchrun or cluster or rendezvous


class Names(NamedTuple):
    """All names that the environment of a process has for its run, the most exact one first."""

    torchrun: str | None
    rendezvous: str | None
    cluster: str | None
    """MPI's or Slurm's."""


def names(environment: Mapping[str, str], network: str = "") -> Names:
    """All of these names; `network` is as in `name`."""
    run_id = environment.get(RUN_ID)
    # Users reuse ids such as `--rdzv-id job`. The port that the agents agreed on distinguishes two such runs.
    has_run_id = run_id not in (None, "", NO_RUN_ID)
    torchrun = f"torchrun:{run_id}@{spell_number(environment.get('MASTER_PORT', ''))}" if has_run_id else None
    return Names(torchrun, _rendezvous(environment, network), _cluster_name(environment))


def are_same(first: Names, second: Names) -> bool:
    """Whether two processes belong to one run, by the most exact name that both have. What a rank sets in `os.environ`, such as
    RANK, gives the processes that it starts another name than its own."""
    return next((a == b for a, b in zip(first, second, strict=True) if a is not None and b is not None), False)


def digest(run: str) -> str:
    """24 hexadecimal digits that stand for the name `run`."""
    return hashlib.blake2b(run.encode(), digest_size=DIGEST_LENGTH // 2).hexdigest()


class HasRun(Protocol):
    """An object with the name of a run, or only with its digest (hangdoc.snapshot.RankIdentity)."""

    @property
    def run(self) -> str | None:
        """The name."""

    @property
    def run_digest(self) -> str | None:
        """The digest, if only that is known."""


def digest_of(who: HasRun) -> str | None:
    """The digest of the name of a rank's run; None if the run has no name."""
    return digest(who.run) if who.run is not None else who.run_digest


def slurm_job(environment: Mapping[str, str]) -> frozenset[str]:
    """All names that Slurm has for the job of a process: `123`, `123.0`, `100_3`; empty outside of Slurm."""
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


@lru_cache(4096)  # many ranks share few addresses
def is_loopback(address: str) -> bool:
    """Whether a host name, or an address with or without the length of its network, is of the loopback interface."""
    try:
        return ipaddress.ip_interface(address).is_loopback
    except ValueError:
        return address == "localhost" or address.startswith("localhost.")


def _cluster_name(environment: Mapping[str, str]) -> str | None:
    """The name that MPI (PMIx, Open MPI 4) or Slurm gives to the processes of one command; None for a command with one task:
    this is a shell or a launcher, which may start several runs."""
    if _several(environment, "OMPI_COMM_WORLD_SIZE"):
        mpi = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_ess_base_jobid")
        if mpi:
            return f"mpi:{mpi}"
    job, step = environment.get("SLURM_JOB_ID"), environment.get("SLURM_STEP_ID")
    several = _several(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    return f"slurm:{job}.{step}" if job and step and several else None


def _several(environment: Mapping[str, str], *names: str) -> bool:
    """Whether the first of these variables that is set is a number above 1."""
    value = next((environment[name] for name in names if name in environment), "")
    return value.isdigit() and int(value) > 1


def _rendezvous(environment: Mapping[str, str], network: str) -> str | None:
    address, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    if not address or not port:
        return None
    port = spell_number(port)
    return f"localhost({network}):{port}" if is_loopback(address) else f"{address}:{port}"


def spell_number(text: str) -> str:
    """`29500` of `029500`: torch reads ports and sizes with Python's `int`. Any other text as it is."""
    number = natural(text)
    return str(number) if number is not None else text


def spell_endpoint(endpoint: str) -> str:
    """`host:29500` of `host:029500`, `::1:29500` of `[::1]:29500`."""
    address, colon, port = endpoint.rpartition(":")
    if not colon or port.endswith("]"):  # without a port
        return endpoint
    return f"{address.removeprefix('[').removesuffix(']')}:{spell_number(port)}"
