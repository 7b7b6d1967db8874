"""What is known about launch arguments and environment variables: which must be the same on all ranks, and why.

Arguments are matched by the words their names are made of, so that `--grad-accum`, `gradient_accumulation_steps` and
`train.grad_accum=4` are one thing. Order matters: the first entry whose words match decides.
"""

# ruff: noqa: E501  (a table: one entry, one line)

import re
from typing import Literal

import msgspec

from hangdoc.regex import regex

Kind = Literal["collectives", "meeting", "numbers", "data", "differs", "tuning"]
"""`collectives`: must agree, it changes which collectives are called, how often or how large. `meeting`: must agree, it sets the
endpoint or the size of the rendezvous. `numbers`: should agree, or the results differ. `data`: names data. `differs`: is meant to
differ. `tuning`: harmless."""


class Setting(msgspec.Struct, frozen=True):
    """One entry of the table. `why` is a verb phrase about the setting."""

    pattern: str
    """A regular expression, compiled (and kept by `re`) when something differs."""
    kind: Kind
    why: str


# Names in lower case, words joined by `_`.
POSITIONAL = Setting(r"^argument \d+$", "data", "may name the data, or a file of settings")
"""The entry for a word of a command line that belongs to no option."""
ARGUMENTS: tuple[Setting, ...] = (
    POSITIONAL,
    Setting(r"(^|_)(local_?|node_?|machine_?|process_?|global_?)?(rank|process_index|index|id)$", "differs", "tells ranks apart"),
    Setting(r"(^|_)seed$", "differs", "may differ, unless it orders the data or sets the first weights"),
    Setting(r"(^|_)(tag|host|hostname|addr|address|port|device|gpu|gpus|cuda|socket|pid)$|^(run|exp|experiment|wandb|job)?_?(name|id)$",
           "differs", "names a run, a host or a device"),
    Setting(r"(^|_)(out|output|log|logs|logging|save|checkpoint|ckpt|cache|tmp|temp|scratch|wandb|report)_?(dir|path|file|root|folder|to)?$",
           "differs", "sets where to write"),
    Setting(r"(^|_)(accum\w*|accumulation)(_|$)", "collectives", "sets how many micro-batches are accumulated before gradients are reduced"),
    Setting(r"(^|_)(micro_?)?batch(_?size)?(_|$)|(^|_)bs$", "collectives", "changes the number of batches, or of micro-batches per step"),
    Setting(r"(^|_)(num_)?(iterations|iters|steps|epochs|epoch|max_steps|max_iters|updates)$", "collectives", "sets when the loop ends"),
    Setting(r"(^|_)(eval|evaluate|validation|val|sample|save|checkpoint|core_metric|log)_?\w*(every|interval|freq|frequency|steps)(_|$)",
           "collectives", "sets at which steps the ranks evaluate, sample, save or log"),
    Setting(r"(^|_)(every|interval|freq|frequency)$", "collectives", "sets at which steps the ranks do something besides training"),
    Setting(r"(^|_)(depth|layers?|n_?layers?|num_layers|hidden\w*|dim|d_?model|n_?embd|width|heads?|n_?heads?|head_dim|aspect_ratio"
           r"|vocab(_size)?|ffn\w*|experts?|rank_dim|lora_r)(_|$)", "collectives", "changes the sizes of the tensors that are reduced"),
    Setting(r"(^|_)(seq(uence)?_?len(gth)?|max_seq_len|max_length|block_size|context(_length)?)(_|$)", "collectives",
           "changes the number of batches and the sizes of the tensors in a pipeline"),
    Setting(r"(^|_)(dtype|precision|mixed_precision|bf16|fp16|fp32|tf32|amp|half|float16|bfloat16)(_|$)", "collectives",
           "changes the type of the tensors that are reduced"),
    Setting(r"(^|_)(backend|dist_backend)(_|$)", "collectives", "selects the backend, and ranks with different backends cannot connect"),
    Setting(r"(^|_)(world_size|nnodes|num_nodes|nproc\w*|n_?gpus|tensor\w*parallel\w*|pipeline\w*parallel\w*|tp|pp|dp|cp|ep|tp_size|pp_size"
           r"|zero(_stage)?|shard\w*strategy|fsdp\w*|deepspeed\w*)(_|$)", "collectives", "changes which ranks form a group"),
    Setting(r"(^|_)(find_unused\w*|bucket\w*|static_graph|gradient_checkpointing|compile|torch_compile|no_sync|overlap\w*|sync\w*)(_|$)",
           "collectives", "changes which reductions are made and in which order"),
    Setting(r"(^|_)(model|model_name\w*|arch|architecture|optim|optimizer|config|cfg|resume\w*)$", "collectives", "changes what is trained"),
    Setting(r"(^|_)(drop_last|pad\w*|shuffle|split|fraction|ratio|limit\w*|max_samples)(_|$)", "collectives", "changes the number of batches"),
    Setting(r"(^|_)(train|val|valid|validation|eval|test|data|dataset)_(size|len|length)$|(^|_)(max|num|n)_(train|val|eval|test|data)\w*_(samples|examples|rows)$",
           "collectives", "changes the number of batches"),
    Setting(r"(^|_)(data|datasets?|datadir|datapath|corpus|shards?|train|input|files?|tokens?)(_|$)", "data", "names the data"),
    Setting(r"(^|_)(lr|learning_rate|weight_decay|beta\d?|betas|eps|momentum|warmup\w*|dropout|clip\w*|grad_clip|schedule\w*|decay)(_|$)",
           "numbers", "makes the replicas diverge without an error"),
    Setting(r"(^|_)(num_)?(workers?|prefetch\w*|pin_memory|threads?|verbose|debug|profile\w*|tqdm|progress)(_|$)", "tuning",
           "changes only the speed"),
)  # fmt: skip

# Environment variables by their own names.
VARIABLES: tuple[Setting, ...] = (
    Setting(r"^TORCH_DISTRIBUTED_DEBUG$", "collectives", "adds collectives on the ranks where it is DETAIL"),
    Setting(r"^(WORLD_SIZE|NNODES|MASTER_PORT|MASTER_ADDR)$", "meeting", "must be the same, or the rendezvous cannot complete"),
    Setting(r"^GLOO_DEVICE_TRANSPORT$", "collectives", "selects the transport, and different transports cannot connect"),
    Setting(r"^NCCL_(ALGO|PROTO|COMM_ID|COLLNET_ENABLE|NVLS_ENABLE|MIN_NCHANNELS|MAX_NCHANNELS|NTHREADS|BUFFSIZE|LAUNCH_MODE"
           r"|P2P_LEVEL|CROSS_NIC)$", "collectives", "must be the same on all ranks for NCCL"),
    Setting(r"^ACCELERATE_(MIXED_PRECISION|GRADIENT_ACCUMULATION_STEPS|USE_\w+)$|^FSDP_\w+$", "collectives",
           "changes the reductions"),
    Setting(r"^NCCL_(IB_DISABLE|P2P_DISABLE|SHM_DISABLE|NET|NET_PLUGIN)$|^TORCH_NCCL_\w+$", "numbers", "changes which network path a rank uses"),
    Setting(r"^(PYTHONHASHSEED|CUBLAS_WORKSPACE_CONFIG)$|_DTYPE$|^NVTE_", "numbers", "makes the replicas diverge without an error"),
    Setting(r"(^|_)(DATA|DATASET|CORPUS|SHARDS?|BASE)_?(DIR|PATH|ROOT|HOME|FOLDER)$|^HF_(HOME|DATASETS_CACHE)$", "data",
           "sets where the data is; ranks without it use the default"),
    Setting(r"^LOCAL_WORLD_SIZE$", "tuning", "counts the ranks of the node"),
    Setting(r"^(GROUP|NODE)_RANK$", "differs", "tells nodes apart"),
    Setting(r"(^|_)RANK(_LOCAL)?$|^(CUDA_VISIBLE_DEVICES|HOSTNAME|TORCHELASTIC_ERROR_FILE)$",
           "differs", "tells ranks apart"),
    Setting(r"^(OMP_NUM_THREADS|MKL_NUM_THREADS|NCCL_DEBUG\w*|PYTHON\w*|TORCHINDUCTOR_\w+)$", "tuning", "changes only speed or logs"),
)  # fmt: skip
_OWNED = regex(
    r"^(TORCH|NCCL_|GLOO_|OMP_|MKL_|CUDA_|NVIDIA_|SLURM|OMPI_|PMI|HYDRA_|LSB_|PBS_|KUBERNETES_|SSH_|XDG_|LC_|PYTHON"
    r"|HIP_|ROCR_|ZE_|GPU_|PALS_|ALPS_|KMP_|GOMP_|TMUX|WINDOWID$|COLUMNS$|LINES$|JOURNAL_STREAM$|DISPLAY$"
    r"|(OLD)?PWD$|SHLVL$|_$)"
)
"""Of launchers, shells, terminals, clusters, cards and libraries: these differ for reasons of their own."""
_NCCL = regex(r"^(TORCH_)?NCCL_")


def argument(name: str) -> Setting | None:
    """The entry for an option, an attribute or a variable of a script; None where nothing is known of it."""
    section, _, own = name.rpartition(".")
    if re.fullmatch(r"(?i)paths?|dir|root|folder|files?|urls?", own):
        own = f"{section.rpartition('.')[2]}_{own}"  # Hydra's `data.path` says only together what it is
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", own).lower().replace("-", "_").strip("_")
    return next((setting for setting in ARGUMENTS if re.search(setting.pattern, plain)), None)


def is_positional(name: str) -> bool:
    """Whether a name is that of a word that belongs to no option."""
    return re.search(POSITIONAL.pattern, name) is not None


def variable(name: str) -> Setting | None:
    """The entry for an environment variable. One that nobody else owns may carry a script's own setting (`GRAD_ACCUM=4`)."""
    setting = next((setting for setting in VARIABLES if re.search(setting.pattern, name)), None)
    if setting is not None or _OWNED.match(name):
        return setting
    own = argument(name)
    return own if own is not None and own.kind == "collectives" else None


def may_be_own(name: str) -> bool:
    """Whether an environment variable may be one of the script itself, of which nothing else is known."""
    known = (
        not name.isidentifier() or any(re.search(setting.pattern, name) for setting in VARIABLES) or _OWNED.match(name)
    )
    own = argument(name)
    return not known and (own is None or own.kind != "differs")


def inert(name: str, backend: str | None) -> bool:
    """Whether a variable has no effect under the run's backend: NCCL's under Gloo."""
    return backend == "gloo" and bool(_NCCL.match(name))


def options(argv: tuple[str, ...]) -> dict[str, str]:
    """The options of a command line: `--name value`, `--name=value`, `-x value`, and Hydra's `name=value`."""
    return {name: value for name, (_, value) in _read_options(argv).items()}


def names_as_written(argv: tuple[str, ...]) -> dict[str, str]:
    """How a command line writes the names of its options: `--name`, `-x`, or Hydra's `name` and `+name`."""
    return {name: written for name, (written, _) in _read_options(argv).items()}


def _read_options(argv: tuple[str, ...]) -> dict[str, tuple[str, str]]:
    """(name as written, value) of each option, by its plain name."""
    found: dict[str, tuple[str, str]] = {}
    words = list(argv)
    for index, word in enumerate(words[1:], 1):
        written, equals, value = word.partition("=")
        if word.startswith("-") and len(word) > 1 and not re.fullmatch(r"-[\d.]+.*", word):
            if not equals:
                following = words[index + 1] if index + 1 < len(words) else "-"
                value = (
                    following if not following.startswith("-") or re.fullmatch(r"-[\d.e+-]+", following) else "(set)"
                )
            found[written.lstrip("-")] = (written, value)
        elif re.fullmatch(r"\+*[A-Za-z_][\w.]*=.*", word):
            found[written.lstrip("+")] = (written, value)
    return found


def positionals(argv: tuple[str, ...], program: str) -> dict[str, str]:
    """The words after the program of a command line that belong to no option, by `argument 1`, ..."""
    at = next((at for at, word in enumerate(argv) if program and word.rpartition("/")[2] == program), len(argv))
    words = [
        word
        for before, word in zip(argv[at:], argv[at + 1 :], strict=False)
        if not word.startswith("-") and "=" not in word and (not before.startswith("-") or "=" in before)
    ]
    return {f"argument {number}": word for number, word in enumerate(words, 1)}
