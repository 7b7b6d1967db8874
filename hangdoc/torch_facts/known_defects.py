"""Known defects of NCCL and torch that let a run hang, in one table (HD703).

An entry needs a public source that says in which versions the defect is, and a sign by which a process shows it. That the
versions match is no sign: most runs with these versions are healthy.
"""

from typing import Literal, NamedTuple

from hangdoc.torch_facts.file_names import C10D
from hangdoc.torch_facts.nccl import Version

State = Literal["destroys-with-graphs", "destroys-alone", "sends-through-pxn"]
"""What a process is in, beside its frames: it destroys a communicator that CUDA graphs use; it destroys its process groups while
other ranks wait in a collective; a communicator of several nodes uses PXN."""


class KnownDefect(NamedTuple):
    """A defect of a library."""

    name: str
    library: Literal["nccl", "torch"]
    what: str
    """What goes wrong, as a clause."""
    remedy: str
    """Sentences: what to install or change."""
    sources: tuple[str, ...]
    """Addresses, the first one for the report."""
    confidence: float
    """That it is the cause, if a rank that makes no progress shows the sign."""
    since: Version | None = None
    fixed: Version | None = None
    """It is in versions from `since` on and before `fixed`; None if there is no such limit."""
    architecture: str | None = None
    """`aarch64`; None for every one."""
    native: str | None = None
    """The C++ function that a thread is in."""
    python: tuple[str, str | None] | None = None
    """Part of the path of the file of a Python frame, and its function; None for any function of the file."""
    state: State | None = None
    only_matches: bool = False
    """The sign is a setting of many healthy runs too. Then the finding is an `info`."""

    def affects(self, version: Version | None, architecture: str) -> bool:
        """Whether a version of the library has it. An unknown version has none."""
        if version is None or self.architecture not in (None, architecture):
            return False
        return (self.since is None or version >= self.since) and (self.fixed is None or version < self.fixed)


KNOWN_DEFECTS = (
    KnownDefect(
        name="proxy-slots-lost",
        library="nccl",
        what="NCCL's proxy loses free slots on aarch64, and a rank that finds none waits for one forever",
        remedy="Install NCCL 2.29.3 or newer (nvidia-nccl-cu12 or nvidia-nccl-cu13).",
        # A weak compare-and-exchange whose result was ignored: it came with 2.28.9, and 2.29.3 tests the result (src/proxy.cc).
        # Released wheels were bisected in the issue: 2.28.9 and 2.29.2 hang, 2.29.3 and 2.30.7 do not.
        sources=(
            "https://github.com/NVIDIA/nccl/issues/2353",
            "https://github.com/NVIDIA/nccl/releases/tag/v2.29.3-1",
            "https://github.com/marin-community/marin/issues/7344",
        ),
        confidence=0.9,
        since=(2, 28, 9),
        fixed=(2, 29, 3),
        architecture="aarch64",
        native="ncclLocalOpAppend",
    ),
    KnownDefect(
        name="proxy-order",
        library="nccl",
        what="NCCL's main thread and its proxy thread see each other's operations in the wrong order, at large scale",
        remedy="Install a newer NCCL (nvidia-nccl-cu12 or nvidia-nccl-cu13): 2.28.9, or on aarch64 2.29.3, which fixes another "
        "defect at the same place.",
        sources=(
            "https://github.com/NVIDIA/nccl/releases/tag/v2.28.9-1",
            "https://github.com/NVIDIA/nccl/commit/dbc86fd06e8b0c4517b95d8958a09ccacf9520c9",
        ),
        confidence=0.7,
        fixed=(2, 28, 9),
        native="ncclLocalOpAppend",
    ),
    KnownDefect(
        name="pxn-at-runtime",
        library="nccl",
        what="NCCL can hang when it connects two nodes through the card of a rank that takes no part (PXN)",
        remedy="Install NCCL 2.30.7 or newer, or start the run with NCCL_PXN_DISABLE=1.",
        # 2.29.7 added a memset that waits for the card (ncclCudaMemset in src/transport/p2p.cc), and 2.30.7 took it back.
        sources=(
            "https://github.com/NVIDIA/nccl/commit/d199bff4f1ee66c006cbafb80898dbc44d17e009",
            "https://docs.nvidia.com/cuda/cuest/troubleshooting/index.html",
            "https://github.com/meta-pytorch/torchcomms/pull/1074",
        ),
        confidence=0.3,
        since=(2, 29, 7),
        fixed=(2, 30, 7),
        state="sends-through-pxn",
        only_matches=True,
    ),
    KnownDefect(
        name="graphs-before-communicator",
        library="nccl",
        what="NCCL destroys a communicator only when all CUDA graphs that captured its collectives are destroyed, and waits for "
        "that without end",
        remedy="Delete the CUDA graphs, and what refers to them, before `destroy_process_group()`; or end the process without it "
        "(`os._exit`).",
        # `while (comm->localPersistentRefs != 0)` in commDestroySync (src/init.cc) of all versions from 2.17 to 2.30; up to 2.25
        # the member is `persistentRefs`. ncclCommAbort and ncclCommFinalize do the same.
        sources=(
            "https://github.com/pytorch/pytorch/issues/115388",
            "https://github.com/vllm-project/vllm/pull/39846",
            "https://github.com/NVIDIA/nccl/blob/v2.28.9-1/src/init.cc",
        ),
        confidence=0.85,
        state="destroys-with-graphs",
    ),
    KnownDefect(
        name="all-to-all-overlap",
        library="torch",
        what="Megatron's overlap of all-to-all with computation hangs with torch before 2.6",
        remedy="Install torch 2.6 or newer, or start without `--overlap-moe-expert-parallel-comm`.",
        # Megatron-LM asserts it: megatron/training/arguments.py and megatron/core/transformer/transformer_config.py. Why it hangs
        # is not public.
        sources=("https://github.com/NVIDIA/Megatron-LM/issues/1828",),
        confidence=0.5,
        fixed=(2, 6, 0),
        python=("megatron/core/pipeline_parallel/combined_1f1b.py", None),
    ),
    KnownDefect(
        name="destroy-hides-exception",
        library="torch",
        what="with NCCL, `destroy_process_group` waits for the other ranks, so the exception with which a rank left its loop is "
        "never shown if a `finally` calls it",
        remedy="Look for an exception in the rank: print its traceback before `destroy_process_group()`, and do not call it in a "
        "`finally`. A rank that has failed must just end.",
        sources=("https://github.com/pytorch/torchtitan/pull/1342",),
        confidence=0.6,
        python=(C10D, "destroy_process_group"),
        state="destroys-alone",
    ),
)
"""The most specific first."""
