"""The rank and run of a process, from the environment variables that launchers set.

torchrun, plain `RANK=... python`, Lightning and Accelerate use torch's names; Open MPI, MPICH/PMI and Slurm have their own
(torch/distributed/elastic/agent/server/local_elastic_agent.py; the launchers' manuals).
"""

from collections.abc import Mapping
from typing import TypedDict

from hangdoc import run_identity
from hangdoc.parse import natural
from hangdoc.snapshot import RankIdentity
from hangdoc.torch_facts import environment_names

# source, rank, world size, local rank, local world size, node rank
_SCHEMES = (
    ("environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
    (
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "",  # OMPI_COMM_WORLD_NODE_RANK is the rank within the node
    ),
    ("PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_NODE_RANK"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_NODEID"),
)

TORCH = "environment"


class RendezvousFields(TypedDict):
    """The fields of a RankIdentity for the rendezvous and the name of the run."""

    master_address: str | None
    master_port: int | None
    run_id: str | None
    run: str | None
    restart_count: int | None


def by_environment(environment: Mapping[str, str], network: str = "") -> RankIdentity | None:
    """The identity that `environment` names, or None. `network` is the process's network namespace."""
    for source, rank_name, world_name, local_name, local_world_name, node_name in _SCHEMES:
        rank, world = natural(environment.get(rank_name)), natural(environment.get(world_name))
        if rank is None or world is None or not (rank < world or (source == TORCH and "MASTER_ADDR" in environment)):
            continue  # a rank that its run has no room for waits for the others, too
        if source != TORCH and world == 1:
            continue  # an interactive shell (`srun --pty bash`), in which any program may run
        if source == "Slurm" and "SLURM_STEP_ID" not in environment:
            continue  # the batch script itself, whose children inherit SLURM_PROCID 0
        return RankIdentity(
            rank=rank,
            source=source,
            world_size=world,
            local_rank=natural(environment.get(local_name)),
            local_world_size=natural(environment.get(local_world_name)),
            node_rank=natural(environment.get(node_name) or environment.get("NODE_RANK")),
            **rendezvous_fields(environment, network),
        )
    # Lightning's own launcher sets everything but RANK (lightning/fabric/strategies/launchers/subprocess_script.py). Users who
    # start each process by hand may not set WORLD_SIZE either.
    local, world = natural(environment.get("LOCAL_RANK")), natural(environment.get("WORLD_SIZE"))
    if local is not None and "MASTER_ADDR" in environment:
        node = natural(environment.get("NODE_RANK")) or 0
        if node == 0 and (local < world if world is not None else "NODE_RANK" in environment):
            return RankIdentity(
                rank=local,
                source="LOCAL_RANK",
                world_size=world,
                local_rank=local,
                node_rank=node,
                **rendezvous_fields(environment, network),
            )
    # WORLD_SIZE was forgotten, and the script takes itself for a single process.
    rank = natural(environment.get("RANK"))
    if rank is not None and not {"MASTER_ADDR", "MASTER_PORT"} - set(environment) and "WORLD_SIZE" not in environment:
        return RankIdentity(rank=rank, source="RANK", **rendezvous_fields(environment, network))
    return None


def rendezvous_fields(environment: Mapping[str, str], network: str = "") -> RendezvousFields:
    """The rendezvous and the name of the run that `environment` names, as fields of a RankIdentity."""
    return {
        "master_address": environment.get("MASTER_ADDR") or None,
        "master_port": natural(environment.get("MASTER_PORT")),
        "run_id": environment.get(environment_names.RUN_ID) or None,
        "run": run_identity.name(environment, network),
        "restart_count": natural(environment.get(environment_names.RESTART_COUNT)),
    }
