"""How many nodes and ranks a launch line starts, and where its nodes meet. Pure."""

from typing import NamedTuple

from hangdoc.launch import launchers
from hangdoc.launch.layers import LaunchLine
from hangdoc.parse import natural
from hangdoc.torch_facts.launchers import (
    COUNTED,
    DEFAULT_RANKS_PER_NODE,
    HOSTS_IN_FILE,
    NAME_HOW,
    RANK_PER_CARD,
    SIZE_FROM,
    STARTS_ANYTHING,
    TAKES_TORCHRUN_OPTIONS,
)


class Size(NamedTuple):
    """What a launch starts. None is what the line does not determine: a host file, Slurm or the number of cards does."""

    nodes: int | None
    ranks_per_node: int | None
    ranks: int | None


def size_of(line: LaunchLine) -> Size:
    """The size of the run that a line starts, or of which it starts one node."""
    tool, options = line.launched.tool, launchers.sizes_in_torchrun(line.launched.tool, line.launched.options)
    if tool == "python":
        on_node, all_ranks = (natural(line.environment.get(name)) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
        return Size(1 if all_ranks is not None and all_ranks in (1, on_node) else None, on_node, all_ranks)
    in_file = HOSTS_IN_FILE & line.launched.options.keys()
    nodes = natural(options.get("nnodes", "" if in_file or tool == "srun" else "1").rpartition(":")[2])
    if tool == "mpirun" and "host" in options:
        nodes = len({host.partition(":")[0] for host in options["host"].split(",")})
    ranks = natural(options.get("ranks"))
    given = options.get("nproc-per-node", "" if ranks is not None else DEFAULT_RANKS_PER_NODE.get(tool, ""))
    per_node = natural(given)
    if per_node is None and ranks is not None and nodes and ranks % nodes == 0:
        per_node = ranks // nodes
    if ranks is None and per_node is not None and nodes is not None:
        ranks = per_node * nodes
    return Size(nodes, per_node, ranks)


def counts_cards(line: LaunchLine) -> bool:
    """Whether torchrun starts one rank for each card that the node has."""
    return line.launched.options.get("nproc-per-node") in RANK_PER_CARD


def name_counted(line: LaunchLine) -> str | None:
    """The value of `--nproc-per-node` with which torchrun counts what the node has; None if it does not count."""
    given = line.launched.options.get("nproc-per-node")
    return given if given in COUNTED and line.launched.tool in TAKES_TORCHRUN_OPTIONS else None


def find_decider(line: LaunchLine) -> str | None:
    """What decides how many ranks a launch has, if its line does not: `the script`; None if the line does."""
    if size_of(line).ranks is not None:
        return None
    if (counted := name_counted(line)) is not None:
        return COUNTED[counted]
    tool, given = line.launched.tool, launchers.sizes_in_torchrun(line.launched.tool, line.launched.options)
    sizes = (given.get(name, "").rpartition(":")[2] for name in ("nnodes", "nproc-per-node", "ranks"))
    unread = next((size for size in sizes if size and natural(size) is None), None)
    if HOSTS_IN_FILE & line.launched.options.keys():
        return "the file that it names"
    return f"`{unread}`" if unread is not None else SIZE_FROM.get(tool)


def needs_cards(line: LaunchLine) -> bool:
    """Whether the launcher starts several ranks only where it finds several cards, as far as the line says."""
    named = NAME_HOW.get(line.launched.tool)
    return named is not None and not named & line.launched.options.keys() and (size_of(line).ranks or 0) > 1


def are_separate(lines: list[LaunchLine]) -> bool:
    """Whether several lines are not the nodes of one run: each starts a run on one node, or, with srun and mpirun, on all."""
    return len(lines) > 1 and all(line.launched.tool != "python" and _is_whole(line) for line in lines)


def _is_whole(line: LaunchLine) -> bool:
    return line.launched.tool in STARTS_ANYTHING or size_of(line).nodes == 1


def contradict(lines: list[LaunchLine]) -> bool:
    """Whether each line determines the size of the run, and two give different numbers of nodes or of all ranks."""
    sizes = [size_of(line) for line in lines]
    nodes = {size.nodes for size in sizes} - {None}
    totals = {size.ranks for line, size in zip(lines, sizes, strict=True) if _gives_total(line)}
    return all(size.ranks is not None for size in sizes) and max(len(nodes), len(totals)) > 1


def _gives_total(line: LaunchLine) -> bool:
    """Whether a line gives the number of ranks on all nodes together, not that of its own node."""
    launched = line.launched
    return launched.tool == "python" or "ranks" in launchers.sizes_in_torchrun(launched.tool, launched.options)


def world_size(lines: list[LaunchLine]) -> int | None:
    """Number of ranks of the run of which these are the nodes; None if the lines do not determine it."""
    first, *others = sizes = [size_of(line) for line in lines]
    if contradict(lines):
        return None
    if len(lines) == first.nodes and all(size.ranks_per_node is not None for size in sizes):
        return sum(size.ranks_per_node or 0 for size in sizes)
    return first.ranks if all(other.ranks == first.ranks for other in others) else None
