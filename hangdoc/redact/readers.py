"""Which settings the rules of the diagnosis read. Only the values of these are kept."""

from functools import lru_cache

from hangdoc import settings
from hangdoc.regex import regex

NOTHING, NUMBERS, WORDS, PLACE, ID = 0, 1, 2, 3, 4
"""How much of a value is kept: nothing; numbers, words of the field and paths; also a few other words; the names of
hosts and devices, which may have digits; the ids of runs, which may look random."""
STRANGERS = {NOTHING: 0, NUMBERS: 0, WORDS: 2, PLACE: 2, ID: 2}

# Names in lower case, words joined by `_`. These options and variables tell where ranks meet, and on which hosts and devices.
_ID = regex(r"rdzv_id|(?:torchelastic_)?run_id|job_id|slurm_\w*id|ray_raylet_pid|ray_job_id")
_PLACE = regex(
    r"(?:rdzv_(?:endpoint|conf|backend)|(?:main_process_|master_|dist_)?(?:addr|address|ip|url)|master_port|main_process_port|init_method"
    r"|(?:slurm_)?(?:step_|job_)?node_?list|nodelist|hosts?|hostname|hostfile|slurmd_\w*(?:name|addr)"
    r"|local_addr|\w*socket_ifname|\w*_hca|nccl_net\w*|pmix?_\w+|ompi_\w+)"
)
_LAUNCHERS = regex(
    r"nnodes|nproc\w*|n|np|nodes|ntasks\w*|max_restarts|monitor_interval|start_method|role|tee|redirects|local_ranks_filter"
    r"|no_python|run_path|standalone|log_dir|num_\w+|machine_rank|main_process_\w+|mixed_precision|dynamo_\w+|config_file|gpus_per_\w+"
    r"|cpus_per_\w+|mem\w*|partition|time|include|exclude|launcher|bind_to|map_by|mca|devices|accelerator|strategy|precision|module"
)
_VARIABLES = regex(
    r"TORCH(?!.*(?:URL|HEADER))\w*|NCCL_\w+|GLOO_\w+|TP_\w+|UCX_\w+|FI_\w+|OMP_\w+|MKL_\w+|OPENBLAS_\w+|CUDA_\w+|NVIDIA_\w+|HIP_\w+|ROCR_\w+"
    r"|SLURM_\w+|OMPI_\w+|PMIX?_\w+|ACCELERATE_\w+|FSDP_\w+|DS_\w+|PYTORCH_\w+|RANK|LOCAL_\w+|GROUP_\w+|ROLE_\w+|NODE_RANK|NNODES|WORLD_SIZE"
    r"|MASTER_\w+|CROSS_RANK|RAY_RAYLET_PID|PYTHON(?:UNBUFFERED|HASHSEED|FAULTHANDLER|NOUSERSITE)|TOKENIZERS_PARALLELISM|XDG_RUNTIME_DIR"
    r"|HF_(?:HOME|HUB_OFFLINE|DATASETS_\w+)|HOSTNAME"
)
_DATA = regex(
    r"\w*(?:DATA|DATASET|CORPUS|SHARD|TRAIN|INPUT|TOKEN|PARQUET)S?\w*|\w*_(?:DIR|PATH|ROOT|BASE|HOME|FOLDER)|(?:DIR|ROOT|BASE)"
)
_OF_SHELLS = frozenset(
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "SHLVL", "TERM", "LANG", "PWD", "OLDPWD", "LS_COLORS", "EDITOR", "DISPLAY",
     "MAIL", "_", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "DEBIAN_FRONTEND", "HISTSIZE", "TZ", "LC_ALL", "PS1", "MANPATH",
     "LESSOPEN"]
)  # fmt: skip
_OF_FRAMES = frozenset(
    ["to", "dst", "src", "init_method", "endpoint", "master_addr", "master_port", "address", "host", "hostname", "addr",
     "method", "url_parts", "url"]
)  # fmt: skip
_WORDS_OF_FRAMES = frozenset(
    ["op", "opname", "tag", "group", "group_name", "backend", "backend_str", "device", "device_type", "device_id", "dtype",
     "state", "role", "phase", "mode", "stage", "split", "kind", "entrypoint_name", "mod_name", "pkg_name", "leader_name",
     "self_name", "name"]
)  # fmt: skip


@lru_cache(2048)
def of_option(name: str) -> int:
    """How much is kept of the value of an option, a key or an attribute."""
    plain = name.lstrip("-+").rpartition(".")[2].lower().replace("-", "_").strip("_")
    if _ID.fullmatch(plain):
        return ID
    if _PLACE.fullmatch(plain):
        return PLACE
    if settings.argument(name.lstrip("-+")) is not None or _LAUNCHERS.fullmatch(plain):
        return WORDS
    return NUMBERS


@lru_cache(2048)
def of_variable(name: str) -> int:
    """How much is kept of the value of an environment variable."""
    if _ID.fullmatch(name.lower()):
        return ID
    if _PLACE.fullmatch(name.lower()):
        return PLACE
    if _VARIABLES.fullmatch(name):
        return WORDS
    if _DATA.fullmatch(name):
        return WORDS if settings.variable(name) is not None else NUMBERS
    # The patterns of the table are compiled on first use, which takes some ms.
    return WORDS if name not in _OF_SHELLS and settings.variable(name) is not None else NOTHING


def of_local(name: str, *, tested: bool) -> int:
    """How much is kept of the text of a variable. `tested`: a condition or a loop around a frame's line reads it."""
    last = name.rpartition(".")[2]
    if last in _OF_FRAMES:
        return PLACE
    return WORDS if tested or last in _WORDS_OF_FRAMES else NUMBERS
