"""What is known about launch arguments and environment variables: which must agree over the ranks, and why.

Arguments are matched by the words their names are made of, so that `--grad-accum`, `gradient_accumulation_steps` and
`train.grad_accum=4` are one thing. Order matters: the first entry whose words match decides.
"""

# ruff: noqa: E501  (a table: one entry, one line)

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["collectives", "meeting", "numbers", "data", "differs", "tuning"]
"""`collectives`: must agree, it changes which collectives are called, how often or how large. `meeting`:
must agree, it says where and with how many the run meets. `numbers`: should agree, the
results differ. `data`: names data. `differs`: is meant to differ. `tuning`: harmless."""


@dataclass(frozen=True)
class Setting:
    """One entry of the table."""

    pattern: re.Pattern[str]
    kind: Kind
    why: str


def _entry(pattern: str, kind: Kind, why: str) -> Setting:
    return Setting(re.compile(pattern), kind, why)


# Names in lower case, words joined by `_`.
ARGUMENTS: tuple[Setting, ...] = (
    _entry(r"(^|_)(local_?|node_?|machine_?|process_?|global_?)?(rank|process_index|index|id)$", "differs", "tells ranks apart"),
    _entry(r"(^|_)(seed|tag|host|hostname|addr|address|port|device|gpu|gpus|cuda|socket|pid)$|^(run|exp|experiment|wandb|job)?_?(name|id)$",
           "differs", "is a rank's own"),
    _entry(r"(^|_)(out|output|log|logs|logging|save|checkpoint|ckpt|cache|tmp|temp|scratch|wandb|report)_?(dir|path|file|root|folder|to)?$",
           "differs", "says where to write"),
    _entry(r"(^|_)(accum\w*|accumulation)(_|$)", "collectives", "changes after how many micro-batches gradients are reduced"),
    _entry(r"(^|_)(micro_?)?batch(_?size)?(_|$)|(^|_)bs$", "collectives", "changes the number of batches, or of micro-batches per step"),
    _entry(r"(^|_)(num_)?(iterations|iters|steps|epochs|epoch|max_steps|max_iters|updates)$", "collectives", "changes when the loop ends"),
    _entry(r"(^|_)(eval|evaluate|validation|val|sample|save|checkpoint|core_metric|log)_?\w*(every|interval|freq|frequency|steps)(_|$)",
           "collectives", "changes when ranks meet for it"),
    _entry(r"(^|_)(every|interval|freq|frequency)$", "collectives", "changes when ranks meet for it"),
    _entry(r"(^|_)(depth|layers?|n_?layers?|num_layers|hidden\w*|dim|d_?model|n_?embd|width|heads?|n_?heads?|head_dim|aspect_ratio"
           r"|vocab(_size)?|ffn\w*|experts?|rank_dim|lora_r)(_|$)", "collectives", "changes the sizes of the tensors that are reduced"),
    _entry(r"(^|_)(seq(uence)?_?len(gth)?|max_seq_len|max_length|block_size|context(_length)?)(_|$)", "collectives",
           "changes the number of batches and the sizes that a pipeline passes on"),
    _entry(r"(^|_)(dtype|precision|mixed_precision|bf16|fp16|fp32|tf32|amp|half|float16|bfloat16)(_|$)", "collectives",
           "changes the type of the tensors that are reduced"),
    _entry(r"(^|_)(backend|dist_backend)(_|$)", "collectives", "ranks of different backends cannot meet"),
    _entry(r"(^|_)(world_size|nnodes|num_nodes|nproc\w*|n_?gpus|tensor\w*parallel\w*|pipeline\w*parallel\w*|tp|pp|dp|cp|ep|tp_size|pp_size"
           r"|zero(_stage)?|shard\w*strategy|fsdp\w*|deepspeed\w*)(_|$)", "collectives", "changes the groups"),
    _entry(r"(^|_)(find_unused\w*|bucket\w*|static_graph|gradient_checkpointing|compile|torch_compile|no_sync|overlap\w*|sync\w*)(_|$)",
           "collectives", "changes which reductions are made, and in which order"),
    _entry(r"(^|_)(model|model_name\w*|arch|architecture|optim|optimizer|config|cfg|resume\w*)$", "collectives", "changes what is trained"),
    _entry(r"(^|_)(drop_last|pad\w*|shuffle|split|fraction|ratio|limit\w*|max_samples)(_|$)", "collectives", "changes the number of batches"),
    _entry(r"(^|_)(data|dataset|corpus|shards?|train|input|files?|tokens?)(_|$)", "data", "names the data"),
    _entry(r"(^|_)(lr|learning_rate|weight_decay|beta\d?|betas|eps|momentum|warmup\w*|dropout|clip\w*|grad_clip|schedule\w*|decay)(_|$)",
           "numbers", "the replicas drift apart without a word"),
    _entry(r"(^|_)(num_)?(workers?|prefetch\w*|pin_memory|threads?|verbose|debug|profile\w*|tqdm|progress)(_|$)", "tuning",
           "changes speed alone"),
)  # fmt: skip

# Environment variables by their own names.
VARIABLES: tuple[Setting, ...] = (
    _entry(r"^TORCH_DISTRIBUTED_DEBUG$", "collectives", "with DETAIL a rank makes extra collectives that the others know nothing of"),
    _entry(r"^(WORLD_SIZE|NNODES|MASTER_PORT|MASTER_ADDR)$", "meeting", "ranks that disagree on it cannot meet"),
    _entry(r"^GLOO_DEVICE_TRANSPORT$", "collectives", "the transports do not speak to each other"),
    _entry(r"^NCCL_(ALGO|PROTO|COMM_ID|COLLNET_ENABLE|NVLS_ENABLE|MIN_NCHANNELS|MAX_NCHANNELS|NTHREADS|BUFFSIZE|LAUNCH_MODE"
           r"|P2P_LEVEL|CROSS_NIC)$", "collectives", "NCCL requires the same on all ranks"),
    _entry(r"^ACCELERATE_(MIXED_PRECISION|GRADIENT_ACCUMULATION_STEPS|USE_\w+)$|^FSDP_\w+$", "collectives",
           "changes the reductions"),
    _entry(r"^NCCL_(IB_DISABLE|P2P_DISABLE|SHM_DISABLE|NET|NET_PLUGIN)$|^TORCH_NCCL_\w+$", "numbers", "ranks then use different paths"),
    _entry(r"^(PYTHONHASHSEED|CUBLAS_WORKSPACE_CONFIG)$|_DTYPE$|^NVTE_", "numbers", "the replicas drift apart without a word"),
    _entry(r"(^|_)(DATA|DATASET|CORPUS|SHARDS?|BASE)_?(DIR|PATH|ROOT|HOME|FOLDER)$|^HF_(HOME|DATASETS_CACHE)$", "data",
           "names where the data lies, or decides it where it is not set"),
    _entry(r"^(RANK|LOCAL_RANK|GROUP_RANK|ROLE_RANK|NODE_RANK|CUDA_VISIBLE_DEVICES|HOSTNAME|TORCHELASTIC_ERROR_FILE)$", "differs",
           "tells ranks apart"),
    _entry(r"^(OMP_NUM_THREADS|MKL_NUM_THREADS|NCCL_DEBUG\w*|PYTHON\w*|TORCHINDUCTOR_\w+)$", "tuning", "changes speed or logs alone"),
)  # fmt: skip
_OWNED = re.compile(
    r"^(TORCH|NCCL_|GLOO_|OMP_|MKL_|CUDA_|NVIDIA_|SLURM|OMPI_|PMI|HYDRA_|LSB_|PBS_|KUBERNETES_|SSH_|XDG_|LC_|PYTHON)"
)
"""Of launchers, clusters and libraries: these differ between nodes for reasons of their own."""
_NCCL = re.compile(r"^(TORCH_)?NCCL_")


def argument(name: str) -> Setting | None:
    """The entry for an option, an attribute or a variable of a script; None where nothing is known of it."""
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition(".")[2]).lower().replace("-", "_").strip("_")
    return next((setting for setting in ARGUMENTS if setting.pattern.search(plain)), None)


def variable(name: str) -> Setting | None:
    """The entry for an environment variable. One that nobody else owns may carry a script's own setting (`GRAD_ACCUM=4`)."""
    known = next((setting for setting in VARIABLES if setting.pattern.search(name)), None)
    if known is not None or _OWNED.match(name):
        return known
    own = argument(name)
    return own if own is not None and own.kind == "collectives" else None


def inert(name: str, backend: str | None) -> bool:
    """Whether a variable has no effect under the run's backend: NCCL's under Gloo."""
    return backend == "gloo" and bool(_NCCL.match(name))


def options(argv: tuple[str, ...]) -> dict[str, str]:
    """The options of a command line: `--name value`, `--name=value`, `-x value`, and Hydra's `name=value`."""
    found: dict[str, str] = {}
    words = list(argv)
    for index, word in enumerate(words[1:], 1):
        if word.startswith("-") and len(word) > 1 and not re.fullmatch(r"-[\d.]+.*", word):
            name, equals, value = word.lstrip("-").partition("=")
            if not equals:
                following = words[index + 1] if index + 1 < len(words) else "-"
                value = (
                    following if not following.startswith("-") or re.fullmatch(r"-[\d.e+-]+", following) else "(set)"
                )
            found[name] = value
        elif re.fullmatch(r"\+*[A-Za-z_][\w.]*=.*", word):
            name, _, value = word.lstrip("+").partition("=")
            found[name] = value
    return found
