"""Compares launch lines: what must agree, what must differ, what is suspicious, and why. Pure.

The table of arguments and variables is the one of HD501 and HD502 (`hangdoc.settings`)."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from hangdoc import settings
from hangdoc.launch import launchers, options
from hangdoc.launch.layers import LaunchLine
from hangdoc.launch.rows import ORDER, Row, Standing
from hangdoc.launch.sizes import are_separate, counts_cards, size_of
from hangdoc.parse import natural
from hangdoc.torch_facts.environment_names import INTERFACE_ENDING
from hangdoc.torch_facts.launchers import TAKES_TORCHRUN_OPTIONS

_STANDINGS: dict[str, Standing] = {
    "collectives": "must agree", "meeting": "must agree", "numbers": "should agree", "data": "suspicious",
    "differs": "cosmetic", "tuning": "tuning",
}  # fmt: skip
RENDEZVOUS = "rendezvous"
"""The name of the row about where the nodes meet."""
_CARDS = "CUDA_VISIBLE_DEVICES"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ONE_HOST = re.compile(r"[\w.-]+")
"""A name or an address, and no list of hosts and no variable."""
_WIRELESS = re.compile(r"^(wl|wlan|wifi|ath|ra\d)")


def compare(lines: list[LaunchLine]) -> list[Row]:
    """A row for each option, argument and variable of the lines, the most severe first."""
    backend = "gloo" if _on_cpu(lines) else None
    tools = {line.launched.tool for line in lines}
    per_card = any(counts_cards(line) for line in lines)
    rows = [
        *_compare_places(lines),
        *_compare_launcher_options(lines),
        *_compare_arguments(lines),
        *(
            _compare_variable(name, values, backend, tools, per_card)
            for name, values in _align_by_name(line.environment for line in lines)
        ),
    ]
    return sorted(
        rows, key=lambda row: (not row.wrong, not row.differs, ORDER.index(row.standing), row.origin, row.name)
    )


def _align_by_name(lines: Iterable[dict[str, str]]) -> list[tuple[str, tuple[str | None, ...]]]:
    values_by_line = list(lines)
    names = sorted({name for values in values_by_line for name in values})
    return [(name, tuple(values.get(name) for values in values_by_line)) for name in names]


def _compare_arguments(lines: list[LaunchLine]) -> Iterator[Row]:
    given = [("", *(word for word in line.launched.arguments if word != "--")) for line in lines]
    written = {name: shown for words in reversed(given) for name, shown in settings.names_as_written(words).items()}
    for name, values in _align_by_name(settings.options(words) for words in given):
        yield _compare_argument(name, written[name], values)


def _on_cpu(lines: list[LaunchLine]) -> bool:
    """Whether the lines show that they train without GPUs: only then NCCL's variables have no effect."""
    words = {word for line in lines for word in line.launched.arguments}
    variables = [line.environment.get(_CARDS) for line in lines]
    return bool({"cpu", "--device=cpu", "--device-type=cpu", "gloo", "--backend=gloo"} & words) or all(
        value in ("", "-1") for value in variables
    )


def _compare_places(lines: list[LaunchLine]) -> list[Row]:
    hosts = tuple(line.host for line in lines)
    folders = tuple(line.folder or None for line in lines)
    programs = tuple(line.launched.program or None for line in lines)
    tools = tuple(line.launched.tool for line in lines)
    return [
        Row(name="host", origin="where", standing="cosmetic", values=hosts, why="the host on which the line starts the node"),
        Row(name="directory", origin="where", standing="cosmetic", values=folders,
            why="another directory may contain another version of the code, or other data at a relative path"),
        Row(name="launcher", origin="launcher", standing="must agree", values=tools,
            why="different launchers use different rendezvous", wrong=len(set(tools)) > 1),
        Row(name="program", origin="program", standing="must agree", values=programs,
            why="different programs call different collectives", wrong=len({_strip_folder(p) for p in programs}) > 1),
    ]  # fmt: skip


def _strip_folder(program: str | None) -> str:
    return (program or "").rpartition("/")[2]


def _compare_launcher_options(lines: list[LaunchLine]) -> list[Row]:
    ignored = [_list_ignored(line) for line in lines]
    refused = [launchers.refused(line.launched.tool, line.launched.options, line.environment) for line in lines]
    given = {name for line in lines for name in line.launched.options}
    used = _align_by_name(
        launchers.with_defaults(line.launched.tool, line.launched.options, line.environment) for line in lines
    )
    return [
        *(_compare_launcher_option(name, values, ignored, refused) for name, values in used if name in given),
        *(
            _compare_option(name, values, "around", *options.option(name, around=True))
            for name, values in _align_by_name(line.around for line in lines)
        ),
        *_check_rendezvous(lines),
    ]


def _list_ignored(line: LaunchLine) -> dict[str, str]:
    return launchers.without_effect(line.launched.tool, line.launched.options, line.environment)


def _compare_launcher_option(
    name: str, values: tuple[str | None, ...], ignored: Sequence[dict[str, str]], refused: Sequence[dict[str, str]]
) -> Row:
    """`ignored`: the options of each line that have no effect, and why. `refused`: those with which the launcher ends at once."""
    if all(value is None or name in of_line for value, of_line in zip(values, ignored, strict=True)):
        why = next(of_line[name] for of_line in ignored if name in of_line)
        return Row(name=name, origin="launcher", standing="inert", values=values, why=why)
    row = _compare_option(name, values, "launcher", *options.option(name, around=False))
    ends = next((of_line[name] for of_line in refused if name in of_line), None)
    return replace(row, wrong=True, why=ends) if ends is not None else row


def _compare_option(
    name: str, values: tuple[str | None, ...], origin: Literal["launcher", "around"], standing: Standing, why: str
) -> Row:
    differs, wrong = len(set(values)) > 1, False
    if standing == "must differ":
        set_values = [value for value in values if value is not None]
        wrong = len(set(set_values)) < len(set_values)
        why = f"two nodes have the same value: {why}" if wrong else why
    elif standing == "must agree":
        wrong = differs
    elif standing == "unknown" and differs:
        why = why or "hangdoc does not know this option"
    return Row(name=name, origin=origin, standing=standing, values=values, why=why, wrong=wrong)


def _check_rendezvous(lines: list[LaunchLine]) -> list[Row]:
    nodes = [natural((line.launched.options.get("nnodes") or "1").partition(":")[0]) for line in lines]
    rows = [*_check_separate(lines)]
    several = max((count or 1 for count in nodes), default=1) > 1
    rows += _check_loopback(lines) if several else ()
    ranks = [
        natural(line.launched.options.get("node-rank")) if "node-rank" not in _list_ignored(line) else None
        for line in lines
    ]
    if any(count is not None and rank is not None and rank >= count for count, rank in zip(nodes, ranks, strict=True)):
        rows.append(Row(name="node rank", origin="launcher", standing="must differ", wrong=True,
                        values=tuple(f"{rank} of {count} nodes" for rank, count in zip(ranks, nodes, strict=True)),
                        why="nodes are numbered from 0, so the rank of a node is less than their number"))  # fmt: skip
    if several and len(lines) > 1 and nodes[0] is not None and set(nodes) == {nodes[0]} and len(lines) != nodes[0]:
        counts = tuple(str(count) for count in nodes)
        rows.append(Row(name="number of lines", origin="launcher", standing="must agree", values=counts, wrong=True,
                        why=f"{len(lines)} lines for --nnodes {nodes[0]}: "
                        + ("a node is missing" if len(lines) < nodes[0] else "there is a node too many")))  # fmt: skip
    return rows


def _check_loopback(lines: list[LaunchLine]) -> Iterator[Row]:
    """Whether the nodes meet at a loopback address, which only nodes of one host can do."""
    endpoints = [
        launchers.given_endpoint(line.launched.tool, line.launched.options, line.environment) or "" for line in lines
    ]
    addresses = tuple(endpoint.rpartition(":")[0] or endpoint or None for endpoint in endpoints)
    masters = [line for line in lines if _is_master(line)]
    reaches_itself = masters[0] if len(masters) == 1 and len(set(addresses) - {None}) > 1 else None
    looped = sorted({
        address for line, address in zip(lines, addresses, strict=True)
        if address in _LOOPBACK and line is not reaches_itself
    })  # fmt: skip
    if not looped:
        return
    hosts = {line.host if line.host is not None and _ONE_HOST.fullmatch(line.host) else None for line in lines}
    known = hosts - {None}
    together = len(lines) > 1 and None not in hosts and len(hosts) == 1
    why = "each node connects to itself through loopback, so the nodes never find each other"
    if not set(addresses) <= {None, *_LOOPBACK}:
        why = f"a node with {' or '.join(looped)} connects to itself through loopback, so it never finds the others"
    if together:
        why = f"all nodes are on {lines[0].host}, where they find each other through loopback"
    elif len(known) < 2:
        why += ", unless all of them are on one host. On several hosts, use an address of the master that all can reach"
    yield Row(name=RENDEZVOUS, origin="launcher", standing="must agree", values=addresses, wrong=not together, why=why)


def _is_master(line: LaunchLine) -> bool:
    """Whether the line starts the node at which the others meet. With another rendezvous than the static one, it is not known."""
    return launchers.node_rank(line.launched.tool, line.launched.options, line.environment) == 0


def _check_separate(lines: list[LaunchLine]) -> Iterator[Row]:
    if are_separate(lines):
        nodes = (size_of(line).nodes for line in lines)
        yield Row(name="number of nodes", origin="launcher", standing="suspicious",
                  values=tuple(str(count) if count is not None else None for count in nodes),
                  why=f"each line starts a run of its own{_explain_separate(lines)}")  # fmt: skip


def _explain_separate(lines: list[LaunchLine]) -> str:
    if all(launchers.starts_once(line.launched.tool, line.launched.options) for line in lines):
        return f": {launchers.STARTED_ONCE}"
    return ". For one run, give each node the number of nodes and its own rank (torchrun: --nnodes, --node-rank)"


def _compare_argument(name: str, written: str, values: tuple[str | None, ...]) -> Row:
    setting = settings.argument(name)
    standing = _STANDINGS[setting.kind] if setting is not None else "unknown"
    differs = len(set(values)) > 1
    why = setting.why if setting is not None else ("hangdoc does not know this argument" if differs else "")
    wrong = differs and standing == "must agree"
    if differs and standing in ("unknown", "should agree"):
        standing, why = "suspicious", f"training arguments differ: {why}"
    elif standing == "suspicious" and differs:
        why = f"{why}: ranks with different amounts of data hang (HD101)"
    elif standing == "suspicious":
        standing = "unknown"
    return Row(name=written, origin="argument", standing=standing, values=values, why=why, wrong=wrong)


_RANK = "RANK"
_TUNING: dict[str, Callable[[tuple[str | None, ...]], str]] = {
    "OMP_NUM_THREADS": lambda values: (
        "all ranks wait for the rank with the fewest threads"
        if len(set(values)) > 1
        else "threads per rank; ranks × threads should not exceed the cores"
    ),
}


def _compare_meeting(name: str, values: tuple[str | None, ...], why: str, tools: set[str]) -> Row:
    """A variable of the rendezvous. A node that does not set it in its line may have it from elsewhere."""
    # torchrun sets them for its ranks (torch/distributed/elastic/agent/server/local_elastic_agent.py)
    if tools <= TAKES_TORCHRUN_OPTIONS:
        return Row(name=name, origin="variable", standing="inert", values=values, why="torchrun does not read it")
    wrong = len({value for value in values if value is not None}) > 1
    return Row(name=name, origin="variable", standing="must agree", values=values, why=why, wrong=wrong)


def _compare_variable(
    name: str, values: tuple[str | None, ...], backend: str | None, tools: set[str], per_card: bool
) -> Row:
    """`per_card`: the launcher starts one rank for each card that it sees."""
    setting = settings.variable(name)
    differs = len(set(values)) > 1
    if name == _CARDS and per_card:
        return Row(name=name, origin="variable", standing="should agree", values=values,
                   why="sets how many ranks the node has: one for each of its cards")  # fmt: skip
    if setting is not None and setting.kind == "meeting":
        return _compare_meeting(name, values, setting.why, tools)
    if name == _RANK and tools == {"python"}:
        return _compare_ranks(name, values)
    if name.endswith(INTERFACE_ENDING):
        return _compare_interface(name, values, backend)
    if settings.inert(name, backend):
        return Row(name=name, origin="variable", standing="inert", values=values, why=f"has no effect with {backend}")
    standing: Standing = _STANDINGS[setting.kind] if setting is not None else "unknown"
    why = setting.why if setting is not None else ("hangdoc does not know this variable" if differs else "")
    wrong = differs and standing == "must agree"
    if name in _TUNING:
        why = _TUNING[name](values)
    elif standing == "suspicious" and differs and None in values:
        why = "only some nodes set the data directory, and the others use their default: ranks with different amounts of data " \
              "hang (HD101)"  # fmt: skip
    elif standing == "suspicious" and differs:
        why = f"{why}: compare the number of files there (HD101)"
    elif standing == "suspicious":
        standing = "unknown"
    return Row(name=name, origin="variable", standing=standing, values=values, why=why, wrong=wrong)


def _compare_ranks(name: str, values: tuple[str | None, ...]) -> Row:
    """Where each line starts one rank without a launcher."""
    ranks = [value for value in values if natural(value or "") is not None]  # in a loop of the shell, it is $i
    wrong = len(set(ranks)) < len(ranks)
    why = (
        "two lines start the same rank, so another one is missing" if wrong else "numbers the rank that the line starts"
    )
    return Row(name=name, origin="variable", standing="must differ", values=values, why=why, wrong=wrong)


def _compare_interface(name: str, values: tuple[str | None, ...], backend: str | None) -> Row:
    if settings.inert(name, backend):
        return Row(name=name, origin="variable", standing="inert", values=values, why=f"has no effect with {backend}")
    interfaces = [value or "" for value in values]
    wireless = [bool(_WIRELESS.match(value)) for value in interfaces if value]
    if any(wireless) and not all(wireless):
        why = "some links are wireless: every step waits for the slowest link"
    elif any(wireless):
        why = "a wireless link: every step waits for it"
    elif any(value in ("lo", "docker0") or value.startswith(("br-", "virbr", "tun", "wg")) for value in interfaces):
        why = "other hosts can rarely reach such an interface (HD404)"
    elif "" in interfaces and any(interfaces):
        why = "nodes without it use the interface of the address that their host name resolves to (HD405)"
    else:
        why = "the network interface of the node; it may differ if the interfaces have different names"
        return Row(name=name, origin="variable", standing="cosmetic", values=values, why=why)
    return Row(name=name, origin="variable", standing="suspicious", values=values, why=why)
