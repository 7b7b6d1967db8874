"""Commands that start ranks: their modules, programs and options.

Read in torch 2.13, torchtune 0.6, accelerate 1.15, deepspeed 0.19, lightning-fabric 2.6, Slurm 22.05 and Open MPI 4.1.
"""

MODULES = {"torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
           "accelerate.commands.launch": "accelerate", "accelerate.commands.accelerate_cli": "accelerate",
           "deepspeed.launcher.launch": "deepspeed",
           "lightning.fabric.cli": "fabric", "lightning_fabric.cli": "fabric"}  # fmt: skip
"""`python -m MODULE`, and the launcher."""
PROGRAMS = {"torchrun": "torchrun", "accelerate": "accelerate", "accelerate-launch": "accelerate",
            "mpirun": "mpirun", "mpiexec": "mpirun", "srun": "srun", "deepspeed": "deepspeed",
            "fabric": "fabric", "tune": "tune"}  # fmt: skip
AGENTS = frozenset({"torchrun", "accelerate", "deepspeed", "fabric", "tune"})
"""Launchers that start nothing but ranks."""
STARTS_ANYTHING = frozenset({"srun", "mpirun"})
MEETING_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR")
"""Variables of torch's rendezvous, of which a rank that is started by hand has at least one (torch/distributed/rendezvous.py)."""
NODE_RANK, DEFAULT_NODE_RANK = "NODE_RANK", "0"
"""The variable from which Lightning takes the rank of the node whose ranks it starts, and its value without it
(lightning_fabric/plugins/environments/lightning.py)."""
ONE_RANK = frozenset({"RANK", "LOCAL_RANK"})
"""Variables that say that Python is one rank. With the second one, Lightning starts no others (the same)."""
TAKES_TORCHRUN_OPTIONS = frozenset({"torchrun", "tune"})
"""Launchers whose options are torchrun's own. torchrun takes each from a variable too (torch/distributed/argparse_util.py)."""
TORCHRUN_OPTIONS = frozenset({
    "duplicate-stderr-filters", "duplicate-stdout-filters", "event-log-handler", "help", "local-addr", "local-ranks-filter",
    "log-dir", "logs-specs", "master-addr", "master-port", "max-restarts", "module", "monitor-interval", "nnodes", "no-python",
    "node-rank", "nproc-per-node", "numa-binding", "rdzv-backend", "rdzv-conf", "rdzv-endpoint", "rdzv-id", "redirects", "role",
    "run-path", "shutdown-timeout", "signals-to-handle", "standalone", "start-method", "tee", "virtual-local-rank",
})  # fmt: skip
"""Its long options, each also with underscores. argparse takes any unambiguous beginning of them."""
TORCHRUN_READ_IN = (2, 13)
"""The version of torch whose options these are. It had those of all earlier ones."""
SHORT_OF_TORCHRUN = frozenset({"h"})
"""Its short options that have no long name here."""
OF_LAUNCH_MODULE = frozenset({"use-env"})
"""What only `python -m torch.distributed.launch` has in addition."""
RANDOM_FOLDERS = r"(?<=/torchelastic_)[a-z0-9_]{8}(?=/|$)|(?<=_)[a-z0-9_]{8}(?=/attempt_\d)"
"""The random ends of the names of its log folders, of which some look like words (tempfile.mkdtemp,
torch/distributed/elastic/multiprocessing/api.py)."""
OPTION_VARIABLE = "PET_"
"""How the name of that variable begins: `PET_NNODES`."""
WITHOUT_VARIABLE = frozenset({"help", "logs-specs", "numa-binding"})
"""Its options that it takes from no variable."""
_TORCHRUN_DEFAULTS = {
    "nnodes": "1:1", "nproc-per-node": "1", "node-rank": "0", "master-addr": "127.0.0.1", "master-port": "29500",
    "rdzv-backend": "static", "rdzv-id": "none", "max-restarts": "0", "monitor-interval": "0.1", "start-method": "spawn",
    "role": "default", "event-log-handler": "null", "redirects": "0", "tee": "0",
    "signals-to-handle": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
}  # fmt: skip
DEFAULTS = {
    "torchrun": _TORCHRUN_DEFAULTS,
    "tune": _TORCHRUN_DEFAULTS,
    "fabric": {"devices": "1", "num-nodes": "1", "node-rank": "0", "main-address": "127.0.0.1", "main-port": "29400"},
    "deepspeed": {"master-port": "29500"},
}
"""What a launcher takes for an option that is left out (torch/distributed/run.py, lightning_fabric/cli.py,
deepspeed/launcher/runner.py). accelerate has a configuration file, which may hold others."""
_STATIC_OPTIONS = frozenset({"master-addr", "master-port", "node-rank"})
STATIC, C10D = "static", "c10d"
"""Backends of torchrun's rendezvous: its default, and that of `--standalone` (torch/distributed/run.py)."""
ONLY_STATIC = {"torchrun": _STATIC_OPTIONS, "tune": _STATIC_OPTIONS, "accelerate": frozenset({"machine-rank"})}
"""Options that a launcher uses only with the static rendezvous, and ignores with any other: that one numbers the nodes itself
(torch/distributed/run.py `config_from_args`, torch/distributed/elastic/rendezvous/dynamic_rendezvous.py). accelerate makes an
endpoint of its main process's address (accelerate/utils/launch.py)."""
DEFAULT_ENDPOINTS = {
    STATIC: f"{_TORCHRUN_DEFAULTS['master-addr']}:{_TORCHRUN_DEFAULTS['master-port']}",
    C10D: "localhost:29400",
}
"""Where torchrun meets other nodes without `--rdzv-endpoint`, by the backend of its rendezvous
(torch/distributed/run.py, torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py)."""
DEFAULT_PORTS = {C10D: "29400", "etcd": "2379", "etcd-v2": "2379"}
"""The port of an endpoint that names none, by the same (c10d_rendezvous_backend.py, etcd_rendezvous.py and
etcd_rendezvous_backend.py there). The static rendezvous refuses such an endpoint (torch/distributed/launcher/api.py,
`_get_addr_and_port`)."""
JOIN_SECONDS = 600.0
"""How long torchrun waits for the other nodes if its configuration has no `join_timeout`
(torch/distributed/elastic/rendezvous/dynamic_rendezvous.py)."""
STANDALONE_ENDPOINT = "localhost:0"
"""With `--standalone`, at a free port that no other node can know. `tune run` is standalone unless it is given `--rdzv-endpoint`
(torchtune/_cli/run.py)."""
WITH_UNDERSCORES = frozenset({"accelerate", "deepspeed"})
"""Launchers whose documentation writes long options with underscores."""
LONG_NAMES_ONLY = frozenset({"torchrun", "accelerate", "deepspeed", "tune"})
"""Launchers that also have their long options with one dash, and no short ones but these:"""
SHORT_WITH_VALUE = {
    **dict.fromkeys(TAKES_TORCHRUN_OPTIONS, frozenset("rt")),
    "accelerate": frozenset("t"),
    **dict.fromkeys(STARTS_ANYTHING, frozenset("nNcpw")),
}
"""Short options of launchers whose value may follow without a space: `-r3`, `-N2`."""
WITH_SUBCOMMAND = frozenset({"accelerate", "fabric", "tune"})
"""Programs whose first word is `launch` or `run`."""
FLAGS = frozenset({
    "standalone", "no-python", "run-path", "use-env", "module", "multi-gpu", "multi-node", "cpu", "use-fsdp", "use-deepspeed",
    "debug", "quiet", "overcommit", "exclusive", "overlap", "pty", "label", "unbuffered", "allow-run-as-root", "oversubscribe",
    "verbose", "tag-output", "report-bindings", "no-ssh-check", "virtual-local-rank",
})  # fmt: skip
"""Options without a value."""
SHORT_OPTIONS = {
    "np": "n",
    "N": "nodes",
    "H": "host",
    "w": "nodelist",
    "p": "partition",
    "J": "job-name",
    "r": "redirects",
    "t": "tee",
}
IN_TORCHRUN = {
    "accelerate": {"num-machines": "nnodes", "machine-rank": "node-rank", "main-process-ip": "master-addr",
                   "main-process-port": "master-port", "num-processes": "ranks"},
    "fabric": {"num-nodes": "nnodes", "devices": "nproc-per-node", "main-address": "master-addr", "main-port": "master-port"},
}  # fmt: skip
"""What torchrun calls the options of launchers that run it in their own process; `ranks` are those of all nodes."""
ONLY_SEVERAL = {"accelerate": frozenset({
    *IN_TORCHRUN["accelerate"], "multi-gpu", "tpu", "use-deepspeed", "use-fsdp", "use-megatron-lm",
})}  # fmt: skip
"""Options that have no effect with `--cpu`, with which accelerate starts the script once
(accelerate/commands/launch.py 1.15, `launch_command` and `simple_launcher`)."""
SIZES = {
    **IN_TORCHRUN,
    "deepspeed": {"num-nodes": "nnodes", "num-gpus": "nproc-per-node"},
    "srun": {"nodes": "nnodes", "ntasks-per-node": "nproc-per-node", "n": "ranks", "ntasks": "ranks"},
    # Open MPI's -N is `--npernode`, and has the long name of srun's -N here; -ppn is that of MPICH.
    "mpirun": {"n": "ranks", "npernode": "nproc-per-node", "nodes": "nproc-per-node", "ppn": "nproc-per-node"},
}
"""The same for the number of nodes and ranks, of all launchers."""
DEFAULT_RANKS_PER_NODE = {**{tool: DEFAULTS[tool]["nproc-per-node"] for tool in TAKES_TORCHRUN_OPTIONS},
                          "fabric": DEFAULTS["fabric"]["devices"], "srun": "1"}  # fmt: skip
"""How many ranks a launcher starts on each node without an option. Others take the number of cards or of slots."""
NAME_HOW = {"accelerate": frozenset({
    "config-file", "cpu", "mpirun-hostfile", "multi-gpu", "tpu", "use-deepspeed", "use-fsdp", "use-megatron-lm",
})}  # fmt: skip
"""Options that say how a launcher starts its processes. Without one of them, and if its default configuration file does not say
it either, accelerate starts as many as it is asked for only where it finds several cards; else it starts the script once, and
sets no RANK (accelerate/commands/launch.py 1.15, `_validate_launch_command` and `simple_launcher`)."""
COUNTED = {
    "gpu": "the number of cards of a node",
    "auto": "the number of cards of a node, or of its cores where torch sees no card",
    "cpu": "the number of cores of a node",
}
"""Values of `--nproc-per-node` with which torchrun counts, and what (torch/distributed/run.py, `determine_local_world_size`)."""
RANK_PER_CARD = frozenset({"gpu", "auto"})
"""Those of them with which it counts CUDA's devices, if there are any."""
RANK_PER_CORE = frozenset({"cpu", "auto"})
"""Those of them with which it counts the cores that the process may use, with `auto` if there is no card."""
ENDS_WITHOUT_CARD = frozenset({"gpu"})
"""Those of them with which it ends at once where torch sees no card (the same)."""
BUILD_WITHOUT_CARDS = "+cpu"
"""What the version of a torch contains that sees no card, whatever the node has."""
SIZE_FROM = {
    "python": "the script", "srun": "Slurm", "mpirun": "a host file, or the number of slots",
    "deepspeed": "a host file, or the number of cards", "accelerate": "its configuration file, or the number of cards",
}  # fmt: skip
"""What gives the number of ranks to a launch that does not state it."""
HOSTS_IN_FILE = frozenset({"hostfile", "machinefile", "config-file"})
"""Options that name a file which determines the nodes."""
OPEN_MPI = frozenset({"orterun", "prterun", "mpirun.openmpi"})
"""The programs that `mpirun` is of Open MPI, behind its links."""
MPI_AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
"""Variables that together do what its `--allow-run-as-root` does; without, it refuses to run as root (mpirun(1))."""
MPI_PAIRS = frozenset({"mca", "genv", "gmca"})
"""Options of mpirun with a name and a value."""
