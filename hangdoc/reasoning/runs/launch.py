"""The settings of launchers, and whether they still wait for other nodes."""

from collections.abc import Iterable, Mapping, Sequence

from hangdoc import settings
from hangdoc.launch import launchers
from hangdoc.parse import natural
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.records import last_call
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.regex import regex
from hangdoc.snapshot import Frame, Process
from hangdoc.torch_facts import file_names
from hangdoc.torch_facts.launchers import JOIN_SECONDS, MODULES

MAX_RANKS = 1 << 20
"""More than any run has; a number beyond it is damaged or foreign."""
_RUNNERS = frozenset(
    {"pdb", "ipdb", "debugpy", "cProfile", "profile", "trace", "coverage", "viztracer", "memray", "scalene"}
)
"""Modules that run another program."""
_INSTALLED = regex(r"/bin/[\w.-]+$")
"""A command that a package has installed, which an interpreter runs."""


def in_rendezvous(process: Process) -> Frame | None:
    """The frame in which an agent waits for the other nodes."""
    for frame in observed.frames(process):
        if file_names.bare_name(frame.function) in file_names.AGENT_WAITS and file_names.AGENT in frame.file:
            return frame
    return None


def nodes(process: Process) -> int | None:
    """The minimum number of nodes that an agent expects (`--nnodes 2` or `2:4`)."""
    return natural((process.launch.nnodes or "").partition(":")[0]) if process.launch is not None else None


def waits_for_nodes(process: Process) -> bool:
    """Whether it is an agent of a run over several nodes that waits in its rendezvous."""
    return (nodes(process) or 0) > 1 and in_rendezvous(process) is not None


def meets_alone(process: Process) -> bool:
    """Whether an agent waits for other nodes at a free port of its own, which they cannot know."""
    frame = in_rendezvous(process)
    dynamic = frame is not None and file_names.DYNAMIC_RENDEZVOUS in frame.file
    return dynamic and takes_free_port(process) and waits_for_nodes(process)


def seconds_to_join(process: Process) -> float | None:
    """How long an agent waits for the other nodes before it gives up; None for one that torchrun's dynamic rendezvous does not
    hold. `--rdzv-conf join_timeout=1200,...`."""
    frame = in_rendezvous(process)
    if frame is None or file_names.DYNAMIC_RENDEZVOUS not in frame.file:
        return None
    words = [word for argument in process.argv if (word := argument.partition("join_timeout=")[2])]
    given = natural(words[0].partition(",")[0]) if words else None
    return JOIN_SECONDS if given is None else float(given)


def takes_free_port(process: Process) -> bool:
    """Whether the rendezvous endpoint of a launcher has port 0: each one that has it waits at another port."""
    endpoint = process.launch.endpoint if process.launch is not None else None
    return endpoint is not None and natural(endpoint.rpartition(":")[2]) == 0


def program(argv: tuple[str, ...]) -> str:
    """The name of the script or module that a command line runs, also behind a launcher; empty if unknown."""
    launched = launchers.split("", argv)
    if launched is not None and launched[0] == "tune":  # its recipe has a name, and no file
        return launchers.read(*launched).program
    words = list(argv)
    behind = len(words) - len(launched[1]) - 1 if launched is not None else 0
    start = next((at for at, word in enumerate(words) if word.endswith(("torchrun", *MODULES))), behind)
    for at, word in enumerate(words[start + 1 :], start + 1):
        if word == "-m" and at + 1 < len(words) and words[at + 1] not in _RUNNERS:
            return words[at + 1]
        if word.endswith(".py") or (_INSTALLED.search(word) and "python" in words[at - 1]):
            return word.rpartition("/")[2]
    return ""


def read_arguments(processes: Mapping[int, Process]) -> dict[int, dict[str, str]]:
    """The options of each rank's command line, and its other arguments. Ranks with one line share one dict."""
    lines = {
        argv: settings.options(launchers.program_words(argv)) | settings.positionals(argv, program(argv))
        for argv in {process.argv for process in processes.values()}
    }
    return {rank: lines[process.argv] for rank, process in processes.items()}


def script(run: Run) -> str | None:
    """The script or module of a run's ranks, else of its launchers (`mp.spawn` gives its children no command line), else the file
    of the training function (Ray renames its workers)."""
    processes = [rank.process for rank in run.ranks.values() if rank.process is not None]
    processes += [process for _, process in run.launchers]
    name = next((name for process in processes if (name := program(process.argv))), None)
    if name is None:
        own = ([frame for frame in _frames(rank) if not frame.library] for rank in run.ranks.values())
        outermost = (frames[-1].file.rpartition("/")[2] for frames in own if frames)
        return next((file for file in outermost if file.endswith(".py")), None)
    if name.endswith(".py"):
        return name
    file = f"/{name.replace('.', '/')}.py"  # a module, unless it is a package; a stack shows which
    is_module = any(frame.file.endswith(file) for rank in run.ranks.values() for frame in _frames(rank))
    return file.rpartition("/")[2] if is_module else name


def _frames(rank: Rank) -> Iterable[Frame]:
    """Of the user's code in its stack; of a rank that moves and whose stack was not read, all of its last call."""
    if rank.own or rank.process is None:
        return rank.own
    call = last_call(rank.process, None)
    return call.frames if call is not None else ()


def absent_nodes(agents: Sequence[Process]) -> list[int] | None:
    """The node ranks without a waiting agent; None if a waiting agent does not state its node rank, or if enough agents wait."""
    needed = nodes(agents[0])
    present = sorted(p.launch.node_rank for p in agents if p.launch and p.launch.node_rank is not None)
    if needed is None or len(agents) >= needed or len(present) < len(agents):
        return None
    return [n for n in range(min(needed, MAX_RANKS)) if n not in present]


def absent_ranks(agents: Sequence[Process]) -> tuple[int, ...]:
    """The ranks of these nodes."""
    asked = agents[0].launch
    per_node = natural(asked.nproc_per_node or "1") if asked is not None else None
    if not per_node or per_node >= 1024:
        return ()
    return tuple(n * per_node + i for n in absent_nodes(agents) or () for i in range(per_node))[:MAX_RANKS]
