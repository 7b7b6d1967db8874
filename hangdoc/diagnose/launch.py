"""What launchers were asked for, and whether they still wait for other nodes."""

from hangdoc.diagnose import facts
from hangdoc.parse import natural
from hangdoc.snapshot import Frame, Process, Stack

_AGENT_WAITS = ("next_rendezvous", "_assign_worker_ranks")
"""Where an agent of torchrun waits for the other nodes: for their coming, and for what they say of themselves."""


def in_rendezvous(process: Process) -> Frame | None:
    """The frame in which an agent waits for the other nodes."""
    if not isinstance(process.stack, Stack):
        return None
    for thread in process.stack.threads:
        for frame in thread.frames:
            if facts.plain(frame.function) in _AGENT_WAITS and "torch/distributed/elastic/" in frame.file:
                return frame
    return None


def nodes(process: Process) -> int | None:
    """How many nodes an agent was told that there are, at the least (`--nnodes 2` or `2:4`)."""
    return natural((process.launch.nnodes or "").partition(":")[0]) if process.launch is not None else None


def waits_for_nodes(process: Process) -> bool:
    """Whether it is an agent of a run over several nodes that stands in its rendezvous."""
    return (nodes(process) or 0) > 1 and in_rendezvous(process) is not None


def program(argv: tuple[str, ...]) -> str:
    """The name of the script or module that a command line runs, also behind a launcher; empty where it can't be told."""
    words = list(argv)
    start = next((at for at, word in enumerate(words) if word.endswith(("torchrun", "torch.distributed.run"))), 0)
    for at, word in enumerate(words[start + 1 :], start + 1):
        if word == "-m" and at + 1 < len(words):
            return words[at + 1]
        if word.endswith(".py"):
            return word.rpartition("/")[2]
    return ""
