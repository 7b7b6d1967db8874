"""Several launch lines side by side: what must agree, what must differ, what is suspicious, and why. Pure.

What is known of arguments and variables is the table that HD501 and HD502 use (`hangdoc.diagnose.causes.settings`)."""

import re
from collections.abc import Callable, Iterable

from hangdoc.diagnose.causes import settings
from hangdoc.launch import launchers
from hangdoc.launch.layers import LaunchLine
from hangdoc.launch.rows import ORDER, Row, Standing
from hangdoc.parse import natural

_STANDINGS: dict[str, Standing] = {
    "collectives": "must agree", "numbers": "should agree", "data": "suspicious", "differs": "cosmetic", "tuning": "tuning",
}  # fmt: skip
_WIRELESS = re.compile(r"^(wl|wlan|wifi|ath|ra\d)")
_OPTIONS: dict[str, tuple[Standing, str]] = {
    "nnodes": ("must agree", "each agent waits for this number of nodes"),
    "node-rank": ("must differ", "tells the nodes apart; the master is 0"),
    "master-addr": ("must agree", "where all nodes meet"),
    "master-port": ("must agree", "where all nodes meet"),
    "rdzv-endpoint": ("must agree", "where all nodes meet"),
    "rdzv-id": ("must agree", "nodes of another id belong to another run"),
    "rdzv-backend": ("must agree", "nodes that meet differently never meet"),
    "nproc-per-node": (
        "should agree",
        "nodes may have different numbers of ranks; work is shared by ranks, not by nodes",
    ),
    "num-machines": ("must agree", "each node waits for this number of nodes"),
    "machine-rank": ("must differ", "tells the nodes apart"),
    "main-process-ip": ("must agree", "where all nodes meet"),
    "main-process-port": ("must agree", "where all nodes meet"),
    "num-processes": ("must agree", "accelerate's number of all ranks"),
    "mixed-precision": ("must agree", "changes the type of the tensors that are reduced"),
}


def compare(lines: list[LaunchLine]) -> list[Row]:
    """Everything that the lines say, the gravest first."""
    backend = "gloo" if _on_cpu(lines) else None
    rows = [
        *_where(lines),
        *_launcher(lines),
        *(_argument(name, values) for name, values in _columns(_arguments(line) for line in lines)),
        *(_variable(name, values, backend) for name, values in _columns(line.environment for line in lines)),
    ]
    return sorted(
        rows, key=lambda row: (not row.wrong, not row.differs, ORDER.index(row.standing), row.origin, row.name)
    )


def _columns(given: Iterable[dict[str, str]]) -> list[tuple[str, tuple[str | None, ...]]]:
    known = list(given)
    names = sorted({name for one in known for name in one})
    return [(name, tuple(one.get(name) for one in known)) for name in names]


def _arguments(line: LaunchLine) -> dict[str, str]:
    words = tuple(word for word in line.launched.arguments if word != "--")
    return settings.options(("", *words))


def _on_cpu(lines: list[LaunchLine]) -> bool:
    """Whether the lines say that they train without GPUs: only then NCCL's variables do nothing."""
    words = {word for line in lines for word in line.launched.arguments}
    variables = [line.environment.get("CUDA_VISIBLE_DEVICES") for line in lines]
    return bool({"cpu", "--device=cpu", "--device-type=cpu", "gloo", "--backend=gloo"} & words) or all(
        value in ("", "-1") for value in variables
    )


def _where(lines: list[LaunchLine]) -> list[Row]:
    hosts = tuple(line.host for line in lines)
    folders = tuple(line.folder or None for line in lines)
    programs = tuple(line.launched.program or None for line in lines)
    tools = tuple(line.launched.tool for line in lines)
    return [
        Row(name="host", origin="where", standing="cosmetic", values=hosts, why="where the line starts the node"),
        Row(name="directory", origin="where", standing="cosmetic", values=folders,
            why="another directory may hold another version of the code, or other data behind a relative path"),
        Row(name="launcher", origin="launcher", standing="must agree", values=tools, why="they meet in different ways",
            wrong=len(set(tools)) > 1),
        Row(name="program", origin="program", standing="must agree", values=programs,
            why="different programs make different collectives", wrong=len({_plain(p) for p in programs}) > 1),
    ]  # fmt: skip


def _plain(program: str | None) -> str:
    return (program or "").rpartition("/")[2]


def _launcher(lines: list[LaunchLine]) -> list[Row]:
    rows = []
    for name, values in _columns(line.launched.options for line in lines):
        standing, why = _OPTIONS.get(name, ("cosmetic", ""))
        wrong = False
        if standing == "must differ":
            given = [value for value in values if value is not None]
            wrong = len(set(given)) < len(given) and len(lines) > 1
            why = f"two nodes claim the same one: {why}" if wrong else why
        elif standing == "must agree":
            wrong = len(set(values)) > 1
        rows.append(Row(name=name, origin="launcher", standing=standing, values=values, why=why, wrong=wrong))
    return [*rows, *_about_meeting(lines)]


def _about_meeting(lines: list[LaunchLine]) -> list[Row]:
    nodes = [natural((line.launched.options.get("nnodes") or "1").partition(":")[0]) for line in lines]
    rows = []
    addresses = tuple((launchers.endpoint(line.launched.options) or "").rpartition(":")[0] or None for line in lines)
    several = max((count or 1 for count in nodes), default=1) > 1
    if several and any(a in ("localhost", "127.0.0.1", "::1") for a in addresses):
        rows.append(Row(name="meeting point", origin="launcher", standing="must agree", values=addresses, wrong=True,
                        why="loopback is another machine on each node: the others never reach it"))  # fmt: skip
    if several and len(lines) > 1 and nodes[0] is not None and set(nodes) == {nodes[0]} and len(lines) != nodes[0]:
        said = tuple(str(count) for count in nodes)
        rows.append(Row(name="number of lines", origin="launcher", standing="must agree", values=said, wrong=True,
                        why=f"{len(lines)} lines for --nnodes {nodes[0]}: "
                        + ("a node is missing" if len(lines) < nodes[0] else "a node too many")))  # fmt: skip
    return rows


def _argument(name: str, values: tuple[str | None, ...]) -> Row:
    known = settings.argument(name)
    standing = _STANDINGS[known.kind] if known is not None else "unknown"
    differs = len(set(values)) > 1
    why = known.why if known is not None else ("nothing is known of it" if differs else "")
    wrong = differs and standing == "must agree"
    if differs and standing in ("unknown", "should agree"):
        standing, why = "suspicious", f"training arguments are not equal: {why}"
    elif standing == "suspicious":
        why = f"{why}: ranks that see a different amount of data hang (HD101)" if differs else why
    return Row(name=f"--{name}", origin="argument", standing=standing, values=values, why=why, wrong=wrong)


_TUNING: dict[str, Callable[[tuple[str | None, ...]], str]] = {
    "OMP_NUM_THREADS": lambda values: (
        "the rank with the fewest threads sets the pace of all"
        if len(set(values)) > 1
        else "threads of each rank; ranks × threads should not exceed the cores"
    ),
}


def _variable(name: str, values: tuple[str | None, ...], backend: str | None) -> Row:
    known = settings.variable(name)
    differs = len(set(values)) > 1
    if name.endswith("SOCKET_IFNAME"):
        return _interface(name, values, backend)
    if settings.inert(name, backend):
        return Row(name=name, origin="variable", standing="inert", values=values, why=f"does nothing under {backend}")
    standing: Standing = _STANDINGS[known.kind] if known is not None else "unknown"
    why = known.why if known is not None else ""
    wrong = differs and standing == "must agree"
    if name in _TUNING:
        why = _TUNING[name](values)
    elif standing == "suspicious" and differs and None in values:
        why = "the data directory is named on some nodes only: the others fall back to their default, and ranks that see a " \
              "different amount of data hang (HD101)"  # fmt: skip
    elif standing == "suspicious" and differs:
        why = f"{why}: compare the number of files there (HD101)"
    elif standing == "suspicious":
        standing = "unknown"
    return Row(name=name, origin="variable", standing=standing, values=values, why=why, wrong=wrong)


def _interface(name: str, values: tuple[str | None, ...], backend: str | None) -> Row:
    if settings.inert(name, backend):
        return Row(name=name, origin="variable", standing="inert", values=values, why=f"does nothing under {backend}")
    given = [value or "" for value in values]
    wireless = [bool(_WIRELESS.match(value)) for value in given if value]
    if any(wireless) and not all(wireless):
        why = "wireless against wired: the slower link sets the pace of every step"
    elif any(wireless):
        why = "a wireless link: steps will wait for it"
    elif any(value in ("lo", "docker0") or value.startswith(("br-", "virbr", "tun", "wg")) for value in given):
        why = "this interface is seldom one that other hosts can reach (HD404)"
    elif "" in given and any(given):
        why = "nodes without it use the interface that their own name resolves to (HD405)"
    else:
        why = "names a card of the node; may differ where the cards are called differently"
        return Row(name=name, origin="variable", standing="cosmetic", values=values, why=why)
    return Row(name=name, origin="variable", standing="suspicious", values=values, why=why)
