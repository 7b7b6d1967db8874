"""Compares launch lines: what must agree, what must differ, what is suspicious, and why. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from hangdoc.launch import launchers, options
from hangdoc.launch.arguments import compare_arguments, compare_variables
from hangdoc.launch.layers import LaunchLine
from hangdoc.launch.rows import ORDER, Row, Standing, align_by_name, are_different, is_repeated
from hangdoc.launch.sizes import are_separate, size_of
from hangdoc.launch.spelling import spell_option, spell_program
from hangdoc.parse import natural
from hangdoc.phrases import amount
from hangdoc.torch_facts.launchers import DEFAULTS

RENDEZVOUS = "rendezvous"
"""The name of the row about where the nodes meet."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ONE_HOST = re.compile(r"[\w.-]+")
"""A name or an address, and no list of hosts and no variable."""


def compare(lines: list[LaunchLine]) -> list[Row]:
    """A row for each option, argument and variable of the lines, the most severe first."""
    rows = [
        *_compare_places(lines),
        *_compare_launcher_options(lines),
        *compare_arguments(lines),
        *compare_variables(lines),
    ]
    return sorted(
        rows, key=lambda row: (not row.wrong, not row.differs, ORDER.index(row.standing), row.origin, row.name)
    )


def _compare_places(lines: list[LaunchLine]) -> list[Row]:
    hosts = tuple(line.host for line in lines)
    folders = tuple(line.folder or None for line in lines)
    tools = tuple(line.launched.tool for line in lines)
    return [
        Row(name="host", origin="where", standing="cosmetic", values=hosts, why="the host on which the line starts the node"),
        Row(name="directory", origin="where", standing="cosmetic", values=folders,
            why="another directory may contain another version of the code, or other data at a relative path"),
        Row(name="launcher", origin="launcher", standing="must agree", values=tools,
            why="different launchers use different rendezvous", wrong=len(set(tools)) > 1),
        _compare_programs(tuple(line.launched.program or None for line in lines)),
    ]  # fmt: skip


def _compare_programs(programs: tuple[str | None, ...]) -> Row:
    used = tuple(spell_program(program or "") or None for program in programs)
    names = tuple((program or "").rpartition("/")[2] for program in used)
    standing: Standing = "must agree"
    why = "different programs call different collectives"
    if are_different(used) and not are_different(names):
        standing, why = "should agree", "programs of one name in different directories may be different versions"
    return Row(name="program", origin="program", standing=standing, values=programs, used=used, why=why,
               wrong=are_different(names))  # fmt: skip


def _compare_launcher_options(lines: list[LaunchLine]) -> list[Row]:
    ignored = [_list_ignored(line) for line in lines]
    refused = [launchers.refused(line.launched.tool, line.launched.options, line.environment) for line in lines]
    given = [launchers.as_used(line.launched.tool, line.launched.options, line.environment) for line in lines]
    used = dict(align_by_name(map(_list_used, lines)))
    names = {name for line in lines for name in line.launched.options} | _find_needed(lines)
    return [
        *(
            _compare_launcher_option(
                Option(
                    name,
                    "launcher",
                    tuple(options.get(name) for options in given),
                    used[name],
                    _name_default(name, lines),
                ),
                ignored,
                refused,
            )
            for name in sorted(names)
        ),
        *(
            _compare_option(Option(name, "around", values, values), *options.option(name, around=True))
            for name, values in align_by_name(line.around for line in lines)
        ),
        *_check_rendezvous(lines),
    ]


def _list_used(line: LaunchLine) -> dict[str, str]:
    """The options as the launcher of a line uses them, each in one spelling."""
    used = launchers.with_defaults(line.launched.tool, line.launched.options, line.environment)
    return {name: spell_option(name, value) for name, value in used.items()}


def _find_needed(lines: list[LaunchLine]) -> set[str]:
    """The options that each node needs, and that no line need give: without one, all of them are node 0."""
    numbered = all(
        "node-rank" in DEFAULTS.get(line.launched.tool, {}) and _is_numbered(line) and (size_of(line).nodes or 1) > 1
        for line in lines
    )
    return {"node-rank"} if numbered and len(lines) > 1 else set()


def _is_numbered(line: LaunchLine) -> bool:
    return launchers.node_rank(line.launched.tool, line.launched.options, line.environment) is not None


def _name_default(name: str, lines: list[LaunchLine]) -> str:
    """`; without it or PET_NODE_RANK, torchrun takes 0` of an option that a line leaves out; empty if there is no default."""
    without = (line.launched for line in lines if name not in line.launched.options)
    defaults = ((each.tool, launchers.with_defaults(each.tool, each.options, {}).get(name)) for each in without)
    tool, default = next(((tool, default) for tool, default in defaults if default is not None), ("", ""))
    variable = launchers.option_variable(tool, name)
    return f"; without it{f' or {variable}' if variable else ''}, {tool} takes {default}" if tool else ""


def _list_ignored(line: LaunchLine) -> dict[str, str]:
    return launchers.without_effect(line.launched.tool, line.launched.options, line.environment)


class Option(NamedTuple):
    """An option in all lines."""

    name: str
    origin: Literal["launcher", "around"]
    values: tuple[str | None, ...]
    used: tuple[str | None, ...]
    default: str = ""
    """A clause about it, if a line leaves the option out."""


def _compare_launcher_option(
    option: Option, ignored: Sequence[dict[str, str]], refused: Sequence[dict[str, str]]
) -> Row:
    """`ignored`: the options of each line that have no effect, and why. `refused`: those with which the launcher ends at once."""
    name, values = option.name, option.values
    if all(value is None or name in of_line for value, of_line in zip(values, ignored, strict=True)) and set(
        values
    ) != {None}:
        why = next(of_line[name] for of_line in ignored if name in of_line)
        return Row(name=name, origin="launcher", standing="inert", values=values, used=option.used, why=why)
    row = _compare_option(option, *options.option(name, around=False))
    ends = next((of_line[name] for of_line in refused if name in of_line), None)
    return replace(row, wrong=True, why=ends) if ends is not None else row


def _compare_option(option: Option, standing: Standing, why: str) -> Row:
    differs, wrong = are_different(option.used), False
    if standing == "must differ":
        wrong = is_repeated(option.used)
        why = f"two nodes have the same value: {why}" if wrong else why
    elif standing == "must agree":
        wrong = differs
    elif standing == "unknown" and differs:
        why = why or "hangdoc does not know this option"
    return Row(name=option.name, origin=option.origin, standing=standing, values=option.values, used=option.used,
               why=f"{why}{option.default}" if differs or wrong else why, wrong=wrong)  # fmt: skip


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
                        values=tuple(map(_describe_rank, ranks, nodes)),
                        why="nodes are numbered from 0, so the rank of a node is less than their number"))  # fmt: skip
    if several and len(lines) > 1 and nodes[0] is not None and set(nodes) == {nodes[0]} and len(lines) != nodes[0]:
        places = tuple(f"{at} of {amount(nodes[0], 'node')}" for at in range(1, len(lines) + 1))
        rows.append(Row(name="number of lines", origin="launcher", standing="must agree", values=places, wrong=True,
                        why=f"{len(lines)} lines for --nnodes {nodes[0]}: "
                        + ("a node is missing" if len(lines) < nodes[0] else "there is a node too many")))  # fmt: skip
    return rows


def _describe_rank(rank: int | None, nodes: int | None) -> str | None:
    """`1 of 2 nodes`; None if the line does not give both."""
    return f"{rank} of {amount(nodes, 'node')}" if rank is not None and nodes is not None else None


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
