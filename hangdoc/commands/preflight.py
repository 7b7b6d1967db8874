"""A preflight: the master address of the run, the session with all nodes, and the result."""

import secrets
from collections.abc import Generator, Mapping, Sequence

import msgspec

from hangdoc import untrusted
from hangdoc.commands.documents import Preflight
from hangdoc.commands.errors import USAGE, CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.preflight import session
from hangdoc.preflight.plan import Check, Link, NodeReport, Plan

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


def master_of(master: str | None, environment: Mapping[str, str]) -> tuple[str | None, str | None, list[Check]]:
    """(master address and port of the run, their origin if it is not the option, additional checks to report)."""
    if master is not None:
        address, _, port = master.rpartition(":")
        if not address or not _is_port(port):
            raise CommandError(f"--master {master!r} is not ADDR:PORT. Example: --master node0:29500.", USAGE)
        return master, None, []
    address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if address and port:
        if not _is_port(port):
            raise CommandError(
                f"MASTER_PORT is {port!r} in the environment. Set it to 1-65535, or give --master.", USAGE
            )
        return f"{address}:{port}", "MASTER_ADDR and MASTER_PORT of the environment", []
    if not address and not port:
        return None, None, []
    is_set, missing = ("MASTER_ADDR", "MASTER_PORT") if address else ("MASTER_PORT", "MASTER_ADDR")
    text = f"not checked: {is_set} is set in the environment and {missing} is not"
    return (
        None,
        None,
        [Check(name="master port", status="unknown", text=text, remedy="Set both, or give --master ADDR:PORT.")],
    )


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 65536


def checked(plan: Plan, fleet: Hosts, timeout: float, more: Sequence[Check] = ()) -> Preflight:
    """The preflight of this host, or of all hosts of the fleet. `timeout` in seconds limits the latter. `more`: additional
    checks to report. Raises CommandError for invalid hosts."""
    silent: dict[str, str] = {}
    if fleet.hosts is None:
        node = session.Node()
        reports, links = session.drive(session.conduct(plan), lambda message: {"this host": node.answer(message)})
        node.close()
    else:
        reports, links, silent = _check_hosts(fleet, plan, timeout)
        plan = msgspec.structs.replace(plan, nodes=len(reports) + len(silent))
    return concluded(reports, links, plan, silent, more)


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
        checks=(*checks, *more),
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
        lines = yield msgspec.json.encode(msgspec.structs.replace(message, nonce=nonce))
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
