"""What the options of launchers are for: which must be the same on all nodes, which must differ, and why. srun and mpirun start
the ranks, or another launcher on each node: a number of processes is not the same in both cases."""

from hangdoc.launch.rows import Standing

CONTAINER_IMAGE = "container-image"
"""The option of srun with pyxis. The image of another container has this name too."""
_UNKNOWN: tuple[Standing, str] = ("unknown", "")
_ADDRESS: tuple[Standing, str] = ("must agree", "all nodes connect to this address")
_PORT: tuple[Standing, str] = ("must agree", "all nodes connect to this port")
_IMAGE: tuple[Standing, str] = ("should agree", "the container decides the versions of Python, torch and NCCL")
_RANKS_PER_NODE: tuple[Standing, str] = ("should agree", "ranks on each node")
_RANKS: tuple[Standing, str] = ("must agree", "the number of ranks on all nodes together")
_NODES: tuple[Standing, str] = ("must agree", "each node waits for this number of nodes")
_HOSTS: tuple[Standing, str] = ("cosmetic", "the hosts on which it starts")
_OUTPUT: tuple[Standing, str] = ("cosmetic", "where the output of the ranks goes")
_PRINTED: tuple[Standing, str] = ("cosmetic", "changes only what is printed")
_STARTED: tuple[Standing, str] = ("should agree", "how many times it starts the launcher, on all nodes together")
_STARTED_PER_NODE: tuple[Standing, str] = ("should agree", "how many times it starts the launcher on each node")
_IN_BOTH: dict[str, tuple[Standing, str]] = {
    **dict.fromkeys(("label", "quiet", "report-bindings", "tag-output", "unbuffered", "verbose"), _PRINTED),
    "host": _HOSTS,
    "nodelist": _HOSTS,
    "partition": ("cosmetic", "the queue of the cluster"),
    "job-name": ("cosmetic", "the name of the job"),
    CONTAINER_IMAGE: _IMAGE,
    "container": _IMAGE,
    "container-name": _IMAGE,
    "container-mounts": ("should agree", "the directories of the host that the container has: code and data"),
    "x": ("unknown", "exports a variable, whose value this text does not contain"),
    "mca": ("should agree", "a parameter of MPI"),
    "gmca": ("should agree", "a parameter of MPI"),
    "genv": ("should agree", "a variable of all ranks"),
}
_OPTIONS: dict[str, tuple[Standing, str]] = {
    **_IN_BOTH,
    "nnodes": ("must agree", "each agent waits for this number of nodes"),
    "node-rank": ("must differ", "each node has a number of its own; the master is 0"),
    "master-addr": _ADDRESS,
    "master-port": _PORT,
    "rdzv-endpoint": ("must agree", "all nodes connect to this endpoint; c10d takes port 29400 if it names none"),
    "rdzv-id": ("must agree", "nodes with another id belong to another run"),
    "rdzv-backend": ("must agree", "nodes with different backends never find each other"),
    "nproc-per-node": (
        "should agree",
        "nodes may have different numbers of ranks, but the work is divided by ranks, not by nodes",
    ),
    "max-restarts": ("should agree", "how often the ranks are started again after an error"),
    "local-addr": ("cosmetic", "the address of the node, which differs"),
    "log-dir": _OUTPUT,
    "redirects": _OUTPUT,
    "tee": _OUTPUT,
    "cpu": ("must agree", "accelerate starts the script once, in one process that meets no other"),
    "multi-gpu": ("should agree", "accelerate starts the ranks that it is asked for, also without several cards"),
    "standalone": ("should agree", "starts a run of its own on its node, at a free port"),
    "num-machines": _NODES,
    "machine-rank": ("must differ", "identifies the node"),
    "main-process-ip": _ADDRESS,
    "main-process-port": _PORT,
    "main-address": _ADDRESS,
    "main-port": _PORT,
    "devices": _RANKS_PER_NODE,
    "num-nodes": _NODES,
    "nodes": ("should agree", "the number of nodes"),
    "ntasks-per-node": ("should agree", "processes that it starts on each node"),
    "num-gpus": _RANKS_PER_NODE,
    "n": _RANKS,
    "num-processes": _RANKS,
    "config-file": ("unknown", "hangdoc does not read it; it sets the ranks, nodes and master that the line does not"),
    "use-env": ("should agree", "the script finds its local rank in LOCAL_RANK, not in an argument --local-rank"),
    "mixed-precision": ("must agree", "sets the dtype of the tensors that are reduced"),
}
"""Of the launcher that starts the ranks."""
_AROUND: dict[str, tuple[Standing, str]] = {
    **_IN_BOTH,
    "n": _STARTED,
    "ntasks": _STARTED,
    "nodes": ("should agree", "the number of nodes on which it starts the launcher"),
    "ntasks-per-node": _STARTED_PER_NODE,
    "npernode": _STARTED_PER_NODE,
    "ppn": _STARTED_PER_NODE,
}
"""Of srun, mpirun and containers around it."""


def option(name: str, *, around: bool) -> tuple[Standing, str]:
    """The standing of an option of the launcher, or of one around it, and why: a clause about the option, empty where nothing is
    known. `x NAME` and `mca NAME` are options that have a name themselves."""
    known = _AROUND if around else _OPTIONS
    return known.get(name) or known.get(name.partition(" ")[0], _UNKNOWN)
