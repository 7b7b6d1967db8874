"""Python modules of torch, and the variables and classes in them that are read from a process's memory.

Read in torch 2.13 unless other versions are given.
"""

C10D = "torch.distributed.distributed_c10d"
GROUP_RANKS, GROUP_NAMES, GROUP_BACKENDS = "_pg_group_ranks", "_pg_names", "_pg_backend_config"
"""Its dicts by process group: members, name, backends. Older versions do not have all of them."""
RPC = "torch.distributed.rpc.api"
RPC_WORKERS = "_ALL_WORKER_NAMES"
"""Its set of all workers. It is empty before `init_rpc`."""
ENGINE_GROUPS = ("vllm.distributed.parallel_state", "sglang.srt.distributed.parallel_state")
"""Modules whose variables `_TP`, `_PP`, ... hold a serving engine's groups (vLLM 0.32 and 0.33; SGLang 0.5.23's sources)."""
ENGINE_GROUP = "GroupCoordinator"
"""Their class."""
ENGINE_GROUP_NAME, ENGINE_GROUP_MEMBERS = "unique_name", {"device_group": "", "cpu_group": " (cpu)"}
"""Its attributes: the name, `tp:0`, and torch's groups, one for the device and one with Gloo; with what tells them apart."""
DEBUG = "torch.distributed.debug"
WORKER_SERVER = "_WORKER_SERVER"
"""Its worker server; None as long as it does not run."""
USED_VARIABLES = {
    C10D: (GROUP_RANKS, GROUP_NAMES, GROUP_BACKENDS),
    DEBUG: (WORKER_SERVER,),
    RPC: (RPC_WORKERS,),
}
"""Modules with hundreds of variables, and the few that hangdoc looks up."""

TENSORS = frozenset({"Tensor", "Parameter", "Buffer", "DTensor", "torch.Tensor", "torch.nn.parameter.Parameter"})
"""Names of the types of tensors. Those of C have their module in them. A DTensor (FSDP2) has the sizes of the whole tensor."""
DTYPE = "torch.dtype"
WORKER_INFO = "torch._C._distributed_rpc.WorkerInfo"
"""The type of a worker's name in RPC."""
