"""Which rank of which job a process is, by the environment that launchers give.

torchrun, plain `RANK=... python`, Lightning and Accelerate use torch's own names; Open MPI, MPICH/PMI and Slurm theirs
(torch/distributed/elastic/agent/server/local_elastic_agent.py; the launchers' manuals).
"""

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import TypedDict

from hangdoc.parse import natural
from hangdoc.snapshot import Launch, RankIdentity

# source, rank, world size, local rank, local world size, node rank
_SCHEMES = (
    ("environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
    (
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_NODE_RANK",
    ),
    ("PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_NODE_RANK"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_NODEID"),
)
TORCH = "environment"


class Meeting(TypedDict):
    """The fields of a RankIdentity that say where the job meets."""

    master_address: str | None
    master_port: int | None
    run_id: str | None
    restart_count: int | None


def by_environment(environment: Mapping[str, str]) -> RankIdentity | None:
    """The identity that `environment` gives, or None."""
    for source, rank_name, world_name, local_name, local_world_name, node_name in _SCHEMES:
        rank, world = natural(environment.get(rank_name)), natural(environment.get(world_name))
        if rank is None or world is None or not 0 <= rank < world:
            continue
        return RankIdentity(
            rank=rank,
            source=source,
            world_size=world,
            local_rank=natural(environment.get(local_name)),
            local_world_size=natural(environment.get(local_world_name)),
            node_rank=natural(environment.get(node_name) or environment.get("NODE_RANK")),
            **meeting_point(environment),
        )
    # Lightning's own launcher names everything but the rank (lightning/fabric/strategies/launchers/subprocess_script.py).
    local, world = natural(environment.get("LOCAL_RANK")), natural(environment.get("WORLD_SIZE"))
    if local is not None and world is not None and "MASTER_ADDR" in environment:
        node = natural(environment.get("NODE_RANK")) or 0
        if node == 0 and local < world:
            return RankIdentity(
                rank=local,
                source="LOCAL_RANK",
                world_size=world,
                local_rank=local,
                node_rank=node,
                **meeting_point(environment),
            )
    return None


def meeting_point(environment: Mapping[str, str]) -> Meeting:
    """Where the job meets, as fields of a RankIdentity."""
    return {
        "master_address": environment.get("MASTER_ADDR") or None,
        "master_port": natural(environment.get("MASTER_PORT")),
        "run_id": environment.get("TORCHELASTIC_RUN_ID") or None,
        "restart_count": natural(environment.get("TORCHELASTIC_RESTART_COUNT")),
    }


_LAUNCHER_MODULES = {"torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
                     "accelerate.commands.launch": "accelerate"}  # fmt: skip
_LAUNCHER_PROGRAMS = {"torchrun": "torchrun", "accelerate": "accelerate", "accelerate-launch": "accelerate",
                      "mpirun": "mpirun", "mpiexec": "mpirun", "srun": "srun", "deepspeed": "deepspeed"}  # fmt: skip
_OPTIONS = {
    "--nnodes": "nnodes",
    "--nproc-per-node": "nproc_per_node",
    "--node-rank": "node_rank",
    "--rdzv-endpoint": "endpoint",
    "--rdzv-id": "run_id",
    "--master-addr": "master_addr",
    "--master-port": "master_port",
}


def launch_of(name: str, argv: tuple[str, ...]) -> Launch | None:
    """What a launcher's command line asks for; None where the process is none.

    `name` is the kernel's short name: torchrun calls itself `pt_elastic`.
    """
    tool, words = _launcher(name, argv)
    if tool is None:
        return None
    found: dict[str, str] = {}
    index = 0
    while index < len(words):
        option, equals, value = words[index].partition("=")
        field = _OPTIONS.get(option.replace("_", "-"))
        if field is None:
            if words[index] == "-m" or not words[index].startswith("-"):
                break  # the training script and what belongs to it
            # `--standalone` and the like take no value; any other unknown option's value is passed over.
            takes_value = not equals and index + 1 < len(words) and re.fullmatch(r"--?[a-z_-]+", option)
            flags = ("--standalone", "--no-python", "--no_python", "--run-path", "--use-env", "--module")
            index += 2 if takes_value and option not in flags and not words[index + 1].startswith("-") else 1
            continue
        if equals:
            found[field] = value
            index += 1
        else:
            found[field] = words[index + 1] if index + 1 < len(words) else ""
            index += 2
    endpoint = found.get("endpoint") or None
    if endpoint is None and ("master_addr" in found or "master_port" in found):
        endpoint = f"{found.get('master_addr', '127.0.0.1')}:{found.get('master_port', '29500')}"
    return Launch(
        tool=tool,
        nnodes=found.get("nnodes"),
        nproc_per_node=found.get("nproc_per_node"),
        node_rank=natural(found.get("node_rank")),
        endpoint=endpoint,
        run_id=found.get("run_id"),
    )


def _launcher(name: str, argv: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """The launcher's name and the words behind it."""
    words = list(argv)
    if words and re.match(r"(python|pypy)[\d.]*$", PurePath(words[0]).name):
        words.pop(0)
        while words and words[0].startswith("-") and words[0] not in ("-m", "-c"):
            words.pop(0)  # -u, -O, ...: what a launcher is started with takes no value
    if words[:1] == ["-m"] and len(words) > 1 and words[1] in _LAUNCHER_MODULES:
        return _LAUNCHER_MODULES[words[1]], tuple(words[2:])
    program = PurePath(words[0]).name if words else ""
    if program in _LAUNCHER_PROGRAMS:
        rest = tuple(words[1:])
        return _LAUNCHER_PROGRAMS[program], rest[1:] if program == "accelerate" else rest
    return ("torchrun", ()) if name == "pt_elastic" else (None, ())
