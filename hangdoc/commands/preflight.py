"""A preflight: the master address of the run, the session with all nodes, and the result."""

import dataclasses
import os
import secrets
import shlex
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from hangdoc import redact, untrusted
from hangdoc.commands import launches
from hangdoc.commands.documents import Preflight
from hangdoc.commands.errors import USAGE, CommandError, find_similar, suggest
from hangdoc.commands.hosts import Hosts
from hangdoc.launch import launchers, layers
from hangdoc.launch.compare import RENDEZVOUS, compare
from hangdoc.launch.layers import LaunchLine
from hangdoc.launch.sizes import Size, find_decider, name_counted, needs_cards, size_of
from hangdoc.parse import natural
from hangdoc.phrases import amount, shorten
from hangdoc.portable import find_launcher_python
from hangdoc.preflight import session
from hangdoc.preflight.absence import ASK_ITS_USER, MISSING, find_absence
from hangdoc.preflight.plan import Check, Link, NodeReport, Plan
from hangdoc.run_identity import spell_endpoint, spell_number
from hangdoc.torch_facts.dtypes import BY_NUMBER, SHORT_NAMES
from hangdoc.torch_facts.launchers import AGENTS, FLAGS, MPI_AS_ROOT, NAME_HOW, OPEN_MPI, PROGRAMS, TORCHRUN_OPTIONS

_USED = frozenset({
    "nnodes", "node-rank", "nproc-per-node", "ranks", "standalone", "rdzv-backend", "rdzv-endpoint", "master-addr", "master-port",
    "main-process-ip", "main-process-port", "main-address", "main-port", "machine-rank", "host",
})  # fmt: skip
"""The options of launchers that a plan is made of, by torchrun's names where it has them."""
_ADDRESS_VARIABLE, _PORT_VARIABLE = "MASTER_ADDR", "MASTER_PORT"
_MAX_ANSWER_BYTES = 4 << 20


def parameters(text: str | None) -> int | None:
    """A number of parameters: `25M`, `1.3B`, `124439808`. Raises CommandError for other texts."""
    if text is None:
        return None
    factors = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
    factor = factors.get(text[-1:].lower(), 1.0)
    try:
        number = int(float(text[:-1] if factor != 1.0 else text) * factor)
    except (ValueError, OverflowError):
        number = 0
    if number <= 0:
        raise CommandError(f"--params {text!r} is not a number of parameters. Examples: 25M, 1.3B, 124439808.", USAGE)
    return number


def data_type(text: str | None) -> str | None:
    """The name that torch has for a type of tensors: `bfloat16` for `bf16` and `torch.bfloat16`. Raises CommandError for other
    texts."""
    if text is None:
        return None
    plain = text.lower().removeprefix("torch.")
    name = SHORT_NAMES.get(plain, plain)
    if name not in BY_NUMBER:
        examples = "Examples: float32, bfloat16, fp16."
        raise CommandError(f"--dtype {text[:40]!r} is no data type of torch. {examples}", USAGE)
    return name


def master_of(
    master: str | None, environment: Mapping[str, str], in_line: Mapping[str, str] = MappingProxyType({})
) -> tuple[str | None, str | None, list[Check]]:
    """(master address and port of the run, their origin if it is not the option, additional checks to report). `in_line`: the
    variables that the launch line sets."""
    if master is not None:
        address, _, port = master.rpartition(":")
        if not address or not _is_port(port):
            raise CommandError(f"--master {master!r} is not ADDR:PORT. Example: --master node0:29500.", USAGE)
        return spell_endpoint(master), None, []
    address, port = (in_line.get(name, environment.get(name, "")) for name in ("MASTER_ADDR", _PORT_VARIABLE))
    places = {name: "launch line" if name in in_line else "environment" for name in ("MASTER_ADDR", _PORT_VARIABLE)}
    if address and port:
        if not _is_port(port):
            where = places[_PORT_VARIABLE]
            raise CommandError(f"MASTER_PORT is {port!r} in the {where}. Set it to 1-65535, or give --master.", USAGE)
        return f"{address}:{spell_number(port)}", _name_origin(places), []
    if not address and not port:
        return None, None, []
    is_set, missing = ("MASTER_ADDR", "MASTER_PORT") if address else ("MASTER_PORT", "MASTER_ADDR")
    text = f"not checked: {is_set} is set in the {places[is_set]} and {missing} is not"
    return (
        None,
        None,
        [Check(name="master port", status="unknown", text=text, remedy="Set both, or give --master ADDR:PORT.")],
    )


def _name_origin(places: Mapping[str, str]) -> str:
    """`MASTER_ADDR and MASTER_PORT of the environment`."""
    if len(set(places.values())) == 1:
        return f"{' and '.join(places)} of the {places[_PORT_VARIABLE]}"
    return " and ".join(f"{name} of the {place}" for name, place in places.items())


def _is_port(text: str) -> bool:
    return 0 < (natural(text) or 0) < 65536


def planned(
    plan: Plan,
    words: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    master: str | None,
    ranks_per_node: int | None,
) -> tuple[Plan, list[Check]]:
    """(a plan with what the words after `--` say, additional checks to report). The words are a launch line or the arguments of
    a script; `master` and `ranks_per_node` are options. Raises CommandError if a command has not exactly one
    launch, or if the options contradict it."""
    line = _read_launch(words, ranks_per_node)
    if line is None:
        address, origin, more = master_of(master, environment)
        plan = replace(plan, master=address, master_origin=origin, ranks_per_node=ranks_per_node or 1, arguments=words,
                       port_setting=_PORT_VARIABLE if origin is not None else plan.port_setting,
                       address_setting=_ADDRESS_VARIABLE if origin is not None else plan.address_setting)  # fmt: skip
        return plan, [*_describe_no_launch(words, ranks_per_node), *more]
    here = environment if line.host is None else {}  # ssh starts another shell
    in_line = launchers.meeting_point(line.launched.tool, line.launched.options, line.environment)
    line = dataclasses.replace(line, launched=launchers.with_variables(line.launched, here))
    size, tool, merged = size_of(line), line.launched.tool, {**here, **line.environment}
    meets = launchers.meeting_point(tool, line.launched.options, merged)
    if meets is not None and meets[1] == launchers.IN_LINE and in_line != meets:
        meets = meets[0], "PET_ variables of the environment"
    _refuse_contradiction("--ranks-per-node", ranks_per_node, size.ranks_per_node)
    _refuse_contradiction("--master", master and spell_endpoint(master), meets and meets[0])
    more = []
    if master is not None or tool not in AGENTS:
        address, origin, more = master_of(master, here, line.environment)
    elif meets is not None and _is_port(meets[0].rpartition(":")[2]):
        address, origin = meets
    else:
        address = origin = None
    settings = _ADDRESS_VARIABLE, _PORT_VARIABLE
    if tool in AGENTS:
        options = line.launched.options
        settings = (
            launchers.meeting_option(tool, options, merged, "master-addr"),
            launchers.meeting_option(tool, options, merged, "master-port"),
        )
    plan = replace(
        plan, master=address, master_origin=origin, ranks_per_node=ranks_per_node or size.ranks_per_node,
        arguments=tuple(word for word in line.launched.arguments if word != "--"), nodes=size.nodes, launcher=tool,
        address_setting=settings[0] if master is None else plan.address_setting, port_setting=settings[1],
        node_rank=launchers.node_rank(tool, line.launched.options, merged),
        environment=line.environment, python=_find_python(words), needs_cards=needs_cards(line),
        counted=name_counted(line),
        unknown_options={f"--{name}": [f"--{known}" for known in find_similar(name, TORCHRUN_OPTIONS)]
                         for name in launchers.unknown_options(tool, line.launched.options)},
    )  # fmt: skip
    return plan, [
        _describe_launch(plan, line, size, merged),
        *_check_line(line, plan),
        *_check_files(plan, line, words),
        *more,
    ]


def _describe_no_launch(words: tuple[str, ...], ranks_per_node: int | None) -> Iterator[Check]:
    """What is assumed of a launch whose line is not given."""
    assumed = "1 rank on each node is assumed" if ranks_per_node is None else ""
    named = words and not words[0].startswith("-")
    arguments = f"the arguments of the script are `{shorten(' '.join(redact.argv(words)), 60)}`" if named else ""
    if not assumed and not arguments:
        return
    meant = suggest(words[0], PROGRAMS).strip() if named else ""
    yield Check(
        name="launch",
        status="warn" if meant else "unknown" if assumed else "pass",
        text=f"no launch line: {', and '.join(filter(None, (arguments, assumed)))}",
        remedy=meant or ("Give the launch line after `--`, or --ranks-per-node." if assumed else ""),
    )


def _check_line(line: LaunchLine, plan: Plan) -> Iterator[Check]:
    """What is wrong with a launch line, whatever the other nodes are started with. Whether they can meet at the
    plan's master is a check of the hosts."""
    for row in compare([line]):
        if row.wrong and not (row.name == RENDEZVOUS and plan.master is not None):
            yield Check(name="launch", status="fail", text=f"{row.name}: {row.values[0] or '-'}", remedy=f"{row.why}.")


def _read_launch(words: Sequence[str], ranks_per_node: int | None) -> LaunchLine | None:
    """The launch line; None for the arguments of a script, of which `ranks_per_node` says that they are no mistyped launch."""
    lines = _parse_lines(words)
    if len(lines) == 1:
        return lines[0]
    meant = _find_meant_launcher(words) if not lines and ranks_per_node is None else ""
    if lines or meant or (words and shutil.which(words[0]) is not None):
        what = f"{len(lines)} launches" if lines else "no launch"
        raise CommandError(
            f"preflight finds {what} in `{shorten(' '.join(words), 60)}`.{meant} After `--`, write one command of "
            f"{layers.ACCEPTED}; or give --ranks-per-node and --master, and after `--` only the arguments of the script.",
            USAGE,
        )
    return None


def _parse_lines(words: Sequence[str]) -> list[LaunchLine]:
    try:
        return [line for _, line in launches.parsed(shlex.join(words))] if words else []
    except CommandError:
        return []


def _find_meant_launcher(words: Sequence[str]) -> str:
    """` Did you mean torchrun?` of words that are the launch of a script with that name in front; else empty. Without a script,
    they may be the arguments of one, such as `finetune --lr 1`."""
    similar = find_similar(words[0], PROGRAMS) if words else []
    lines = (line for name in similar for line in _parse_lines((name, *words[1:])))
    return suggest(words[0], PROGRAMS) if any(line.launched.program for line in lines) else ""


def _find_python(words: Sequence[str]) -> str | None:
    """The interpreter that a launch line starts: the one that it names, or that of the first launcher in it."""
    for word in words:
        name = os.path.basename(word)
        if name.startswith("python"):
            return shutil.which(word)
        if name in PROGRAMS and (python := find_launcher_python(word)) is not None:
            return python
    return None


def _refuse_contradiction(option: str, given: int | str | None, in_line: int | str | None) -> None:
    if given is not None and in_line is not None and given != in_line:
        raise CommandError(f"{option} is {given}, but {in_line} in the launch line. Leave out {option}.", USAGE)


def _describe_launch(plan: Plan, line: LaunchLine, size: Size, environment: Mapping[str, str]) -> Check:
    """What was taken from the launch line, and what preflight or the launcher does not use of it."""
    where = "one node" if plan.nodes == 1 else f"each of {amount(plan.nodes, 'node')}" if plan.nodes else "each node"
    ranks, remedy = f"{amount(plan.ranks_per_node or 0, 'rank')} on {where}", ""
    if plan.ranks_per_node is None and plan.counted is not None:
        ranks = f"on {where}, a rank for each card or core that it counts"
    elif plan.ranks_per_node is None:
        ranks = f"{amount(size.ranks, 'rank')} on all nodes together" if size.ranks else "an unknown number of ranks"
        decider = find_decider(line)
        why = f"leaves the number of ranks to {decider}" if decider else "does not say how many of them each node has"
        remedy = f"Give --ranks-per-node: the line {why}."
    tool, given = line.launched.tool, line.launched.options
    options = launchers.sizes_in_torchrun(tool, given)
    used = _USED | (NAME_HOW.get(tool, frozenset()) & FLAGS)
    without_effect = launchers.without_effect(tool, given, environment)
    used |= {name.removeprefix("--") for name in plan.unknown_options} | without_effect.keys()  # named elsewhere
    unused = [f"--{name}" for name in options if name not in used and not name.startswith(launchers.EXPORTED)]
    unused += [f"`{shorten(layer.text, 40)}`" for layer in _list_other_layers(line)]
    ignored = f"; not used here: {', '.join(unused)}" if unused else ""
    if inert := [name for name in given if name in without_effect]:
        names = ", ".join(launchers.write_option(tool, name) for name in inert)
        ignored += f"; without effect: {names} ({without_effect[inert[0]]})"
    meets = f", meeting at {plan.master}" if plan.master is not None else ""
    status = "unknown" if remedy else "pass"
    if launchers.starts_fewer(tool, given):
        status, remedy = "warn", "For several ranks, give --multi_gpu instead of --cpu, also for ranks on the CPU."
    return Check(
        name="launch",
        status=status,
        text=f"{plan.launcher}: {ranks}{', if it finds several cards' if plan.needs_cards else ''}{meets}{ignored}",
        remedy=remedy,
    )


def _list_other_layers(line: LaunchLine) -> list[layers.Layer]:
    """The layers that do more than set variables."""
    return [layer for layer in line.layers if layer.why not in layers.SETS_VARIABLES]


def _check_files(plan: Plan, line: LaunchLine, words: Sequence[str]) -> Iterator[Check]:
    """Whether the launcher and the script are there, if nothing (a container, another host) puts the launch elsewhere."""
    if line.host is not None or _list_other_layers(line):
        return
    status = "fail" if plan.nodes == 1 else "warn"  # this host may not be one of several nodes
    if (tool := line.launched.tool) in words and shutil.which(tool) is None:
        yield Check(name="launcher", status=status, text=f"{tool} is not in PATH", remedy="Give its whole path.")
    elif tool == "mpirun" and _refuses_root(line, words):
        text = "mpirun of Open MPI refuses to run as root, as preflight does here"
        yield Check(
            name="launcher", status="warn", text=text, remedy="Start it as another user, or add --allow-run-as-root."
        )
    script = line.launched.program
    absence = find_absence(script) if script.endswith(".py") else None
    if absence == MISSING:
        text = f"{shorten(script, 60)} does not exist in {shorten(os.getcwd(), 60)}"
        yield Check(name="script", status=status, text=text, remedy="Correct the path.")
    elif absence is not None:
        text = f"{shorten(script, 60)} cannot be checked by this user: {absence}"
        yield Check(name="script", status="unknown", text=text, remedy=ASK_ITS_USER)


def _refuses_root(line: LaunchLine, words: Sequence[str]) -> bool:
    """Whether the mpirun of a line is Open MPI's and would not start for the user of this process."""
    program = next((shutil.which(word) for word in words if PROGRAMS.get(os.path.basename(word)) == "mpirun"), None)
    if program is None or os.geteuid() != 0 or os.path.basename(os.path.realpath(program)) not in OPEN_MPI:
        return False
    environment = {**os.environ, **line.environment}
    allowed = all(environment.get(name) == "1" for name in MPI_AS_ROOT)
    return not allowed and "allow-run-as-root" not in line.launched.options


def checked(plan: Plan, fleet: Hosts, timeout: float, more: Sequence[Check] = ()) -> Preflight:
    """The preflight of this host, or of all hosts of the fleet. `timeout` in seconds limits the latter. `more`: additional
    checks to report. Raises CommandError for invalid hosts."""
    silent: dict[str, str] = {}
    hosts = 1 if fleet.hosts is None else len(fleet.names())
    if plan.launcher is not None and plan.nodes is not None and plan.nodes != hosts:
        more = [*more, _describe_nodes(plan.nodes, hosts, alone=fleet.hosts is None)]
    if fleet.hosts is None:
        node = session.Node()
        reports, links = session.drive(session.conduct(plan), lambda message: {"this host": node.answer(message)})
        node.close()
    else:
        reports, links, silent = _check_hosts(fleet, plan, timeout)
        plan = replace(plan, nodes=len(reports) + len(silent))
    return concluded(reports, links, plan, silent, more)


def _describe_nodes(nodes: int, hosts: int, *, alone: bool) -> Check:
    whole = f"the launch has {amount(nodes, 'node')}, and"
    if alone:
        remedy = "Give --hosts, or let the launcher start preflight on its nodes: torchrun ... -m hangdoc.preflight."
        return Check(name="nodes", status="unknown", text=f"{whole} only this host was checked", remedy=remedy)
    remedy = "Name the hosts on which the run will start, or correct the number of nodes."
    return Check(name="nodes", status="warn", text=f"{whole} --hosts names {amount(hosts, 'host')}", remedy=remedy)


def concluded(
    reports: Sequence[NodeReport],
    links: Sequence[Link],
    plan: Plan,
    silent: Mapping[str, str],
    more: Sequence[Check] = (),
) -> Preflight:
    """The result of reports and links. `silent`: nodes that did not answer, and why."""
    from hangdoc.preflight.checks import all_checks
    from hangdoc.preflight.network_checks import all_reduce_seconds, slowest

    checks = [
        Check(name="reached", status="fail", nodes=(host,), text=f"{host}: {why}", remedy="This node was not checked.")
        for host, why in sorted(silent.items())
    ]
    checks += all_checks(reports, links, plan) if reports else []
    link = slowest(links)
    seconds = all_reduce_seconds(plan.parameters, link.mbit, len(reports)) if link is not None and link.mbit else None
    return Preflight(
        nodes=tuple(report.node for report in reports),
        checks=(*more, *checks),
        all_reduce_seconds=seconds,
        links=tuple(links),
        reports=tuple(reports),
    )


def _check_hosts(fleet: Hosts, plan: Plan, timeout: float) -> tuple[list[NodeReport], list[Link], dict[str, str]]:
    from hangdoc.fleet.session import run_session

    refused: dict[str, str] = {}
    script = _conduct_session(plan, refused)
    result, silent = run_session(fleet.names(), ("preflight", "--answer"), fleet.transport(timeout), script)
    reports, links = result if result is not None else ([], [])
    return [report for report in reports if report.node not in refused], links, refused | silent


def _conduct_session(
    plan: Plan, refused: dict[str, str]
) -> Generator[bytes, Mapping[str, bytes], tuple[list[NodeReport], list[Link]]]:
    """`session.conduct` as lines of JSON. Answers are untrusted: those that do not match the schema, or that do not repeat the
    nonce of the message, are not used, and their hosts are `refused`, with the reason."""
    conducting = session.conduct(plan)
    message = next(conducting)
    while True:
        nonce = secrets.token_hex(16)
        lines = yield msgspec.json.encode(replace(message, nonce=nonce))
        answers = {}
        for host, line in lines.items():
            try:
                answer = untrusted.decode(line, session.NodeAnswer, _MAX_ANSWER_BYTES)
            except untrusted.UntrustedError as error:
                refused[host] = f"its answer {error}"
                continue
            if answer.nonce != nonce:
                refused[host] = "its answer is not one to this request: install the same version of hangdoc there"
                continue
            answers[host] = answer
        try:
            message = conducting.send(answers)
        except StopIteration as ended:
            result: tuple[list[NodeReport], list[Link]] = ended.value
            return result
