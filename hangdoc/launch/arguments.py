"""Compares the arguments of the scripts and the variables of launch lines. Pure.

Their table is the one of HD501 and HD502 (`hangdoc.settings`)."""

import re
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from hangdoc import settings
from hangdoc.launch import launchers
from hangdoc.launch.layers import LaunchLine
from hangdoc.launch.rows import Row, Standing, align_by_name, are_different, depend_on_default, is_repeated
from hangdoc.launch.sizes import counts_cards
from hangdoc.launch.spelling import spell_unset, spell_value
from hangdoc.run_identity import spell_number
from hangdoc.torch_facts.environment_names import INTERFACE_ENDING
from hangdoc.torch_facts.launchers import (
    DEFAULT_NODE_RANK,
    NODE_RANK,
    ONE_RANK,
    TAKES_TORCHRUN_OPTIONS,
    TORCHRUN_OPTIONS,
)

_STANDINGS: dict[str, Standing] = {
    "collectives": "must agree", "meeting": "must agree", "numbers": "should agree", "data": "suspicious",
    "differs": "cosmetic", "tuning": "tuning",
}  # fmt: skip
_MISPLACED = "is after the script, so it is an argument of it: torchrun does not read it"
_CARDS = "CUDA_VISIBLE_DEVICES"
_WIRELESS = re.compile(r"^(wl|wlan|wifi|ath|ra\d)")


def compare_arguments(lines: list[LaunchLine]) -> Iterator[Row]:
    """A row for each argument of the script."""
    given = [("", *(word for word in line.launched.arguments if word != "--")) for line in lines]
    written = {name: shown for words in reversed(given) for name, shown in settings.names_as_written(words).items()}
    torchrun = all(line.launched.tool in TAKES_TORCHRUN_OPTIONS for line in lines)
    for name, values in align_by_name(settings.options(words) for words in given):
        row = _compare_argument(name, written[name], values)
        misplaced = torchrun and name.replace("_", "-") in TORCHRUN_OPTIONS and not are_different(values)
        yield replace(row, standing="unknown", why=_MISPLACED) if misplaced else row


def _compare_argument(name: str, written: str, values: tuple[str | None, ...]) -> Row:
    setting = settings.argument(name)
    standing = _STANDINGS[setting.kind] if setting is not None else "unknown"
    used = values if standing == "suspicious" else _spell_values(values)
    differs = are_different(used)
    why = setting.why if setting is not None else ("hangdoc does not know this argument" if differs else "")
    by_default = differs and standing in ("must agree", "should agree", "unknown") and depend_on_default(used)
    wrong = differs and standing == "must agree" and not by_default
    if by_default:
        standing, why = "suspicious", f"{why}; {_describe_default(values)}"
    elif differs and standing in ("unknown", "should agree"):
        standing, why = "suspicious", f"training arguments differ: {why}"
    elif standing == "suspicious" and differs:
        why = f"{why}: ranks with different amounts of data hang (HD101)"
    elif standing == "suspicious":
        standing = "unknown"
    return Row(name=written, origin="argument", standing=standing, values=values, used=used, why=why, wrong=wrong)


def _describe_default(values: tuple[str | None, ...]) -> str:
    given = sum(value is not None for value in values)
    lines = "one line" if given == 1 else f"{given} of {len(values)} lines"
    return f"given on {lines} only: the default of the script decides whether the others have the same value"


def _spell_values(values: tuple[str | None, ...]) -> tuple[str | None, ...]:
    return tuple(value if value is None else spell_value(value) for value in values)


def compare_variables(lines: list[LaunchLine]) -> Iterator[Row]:
    """A row for each variable that a line sets, without those with options of torchrun that have an effect."""
    backend = "gloo" if _on_cpu(lines) else None
    tools = {line.launched.tool for line in lines}
    per_card = any(counts_cards(line) for line in lines)
    one_rank = any(line.environment.keys() & ONE_RANK for line in lines)
    yield from _compare_options_in_variables(lines)
    for name, values in align_by_name(map(_read_own_variables, lines)):
        yield _compare_variable(name, values, backend, tools, per_card, one_rank)


def _on_cpu(lines: list[LaunchLine]) -> bool:
    """Whether the lines show that they train without GPUs: only then NCCL's variables have no effect."""
    words = {word for line in lines for word in line.launched.arguments}
    variables = [line.environment.get(_CARDS) for line in lines]
    return bool({"cpu", "--device=cpu", "--device-type=cpu", "gloo", "--backend=gloo"} & words) or all(
        value in ("", "-1") for value in variables
    )


def _read_own_variables(line: LaunchLine) -> dict[str, str]:
    """The variables of a line that are no options of torchrun, each with one spelling of other variables in it."""
    takes = line.launched.tool in TAKES_TORCHRUN_OPTIONS
    return {
        name: spell_unset(value)
        for name, value in line.environment.items()
        if not takes or launchers.variable_option(name) is None
    }


def _compare_options_in_variables(lines: list[LaunchLine]) -> Iterator[Row]:
    """The variables with options of torchrun that have no effect. The others are rows of the options."""
    overridden = [
        {name: value for name, value in line.environment.items() if _find_override(name, value, line) is not None}
        for line in lines
    ]
    for name, values in align_by_name(overridden):
        option = launchers.variable_option(name)
        yield Row(
            name=name, origin="variable", standing="inert", values=values, why=f"the option --{option} is used instead"
        )


def _find_override(name: str, value: str, line: LaunchLine) -> str | None:
    """The value of the option that a line gives instead of this variable; None if it does not."""
    option = launchers.variable_option(name) if line.launched.tool in TAKES_TORCHRUN_OPTIONS else None
    used = line.launched.options.get(option) if option is not None else None
    return used if used not in (None, value, "(set)") else None


_RANK = "RANK"
_TUNING: dict[str, Callable[[tuple[str | None, ...]], str]] = {
    "OMP_NUM_THREADS": lambda values: (
        "threads per rank; ranks × threads should not exceed the cores"
        if len(set(values)) == 1
        else "all ranks wait for the rank with the fewest threads"
        + (
            "; where neither the line nor its shell sets it, torchrun sets 1 for several ranks"
            if None in values
            else ""
        )
    ),
}


def _compare_meeting(name: str, values: tuple[str | None, ...], why: str, tools: set[str]) -> Row:
    """A variable of the rendezvous. A node that does not set it in its line may have it from elsewhere."""
    # torchrun sets them for its ranks (torch/distributed/elastic/agent/server/local_elastic_agent.py)
    if tools <= TAKES_TORCHRUN_OPTIONS:
        return Row(name=name, origin="variable", standing="inert", values=values, why="torchrun does not read it")
    used = tuple(value if value is None else spell_number(value) for value in values)
    wrong = len(set(used) - {None}) > 1
    return Row(name=name, origin="variable", standing="must agree", values=values, used=used, why=why, wrong=wrong)


def _compare_variable(
    name: str, values: tuple[str | None, ...], backend: str | None, tools: set[str], per_card: bool, one_rank: bool
) -> Row:
    """`per_card`: the launcher starts one rank for each card that it sees. `one_rank`: Python is one rank."""
    setting = settings.variable(name)
    differs = len(set(values)) > 1
    if name == _CARDS and per_card:
        return Row(name=name, origin="variable", standing="should agree", values=values,
                   why="sets how many ranks the node has: one for each of its cards")  # fmt: skip
    if setting is not None and setting.kind == "meeting":
        return _compare_meeting(name, values, setting.why, tools)
    if name == _RANK and tools == {"python"}:
        return _compare_ranks(name, values)
    if name == NODE_RANK and tools == {"python"}:
        return _compare_node_ranks(values, one_rank)
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
    wrong = is_repeated(values)
    why = (
        "two lines start the same rank, so another one is missing" if wrong else "numbers the rank that the line starts"
    )
    return Row(name=name, origin="variable", standing="must differ", values=values, why=why, wrong=wrong)


def _compare_node_ranks(values: tuple[str | None, ...], one_rank: bool) -> Row:
    """Where each line starts the ranks of a node without a launcher, as with Lightning; or `one_rank` of it."""
    if one_rank:
        return Row(
            name=NODE_RANK, origin="variable", standing="cosmetic", values=values, why="numbers the node of the rank"
        )
    used = tuple(DEFAULT_NODE_RANK if value is None else value for value in values)
    wrong, default = is_repeated(used), f"; without it, it is {DEFAULT_NODE_RANK}" if None in values else ""
    why = "numbers the node whose ranks the line starts (Lightning)"
    why = f"two lines start the same node: {why}{default}" if wrong else why
    return Row(
        name=NODE_RANK, origin="variable", standing="must differ", values=values, used=used, why=why, wrong=wrong
    )


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
