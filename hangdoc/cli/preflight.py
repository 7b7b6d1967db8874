"""`hangdoc preflight`: can this topology work at all?"""

import os
import sys
from collections.abc import Generator, Mapping

import click
import msgspec

from hangdoc.cli.errors import USAGE, CommandError
from hangdoc.cli.fleet import Hosts, fleet_options
from hangdoc.preflight import session
from hangdoc.preflight.plan import Check, Facts, Link, Plan

_IDLE_SECONDS = 120
"""How long a node waits for the next line of a talk: the node that runs the checks may be gone."""


@click.command(context_settings={"ignore_unknown_options": False})
@click.option(
    "--master",
    metavar="ADDR:PORT",
    help="Master address and port of the run. Default: MASTER_ADDR and MASTER_PORT from the environment.",
)
@click.option(
    "--ranks-per-node",
    type=click.IntRange(1, 4096),
    default=1,
    show_default=True,
    metavar="N",
    help="Ranks on each node, as torchrun --nproc-per-node.",
)
@click.option(
    "--params",
    metavar="N",
    help="Number of model parameters (25M, 1.3B), to check memory and disk and to predict an all-reduce.",
)
@click.option("--dtype", metavar="NAME", help="Data type of the training, for example bfloat16.")
@click.option(
    "--data",
    multiple=True,
    metavar="DIR",
    help="A data directory. Repeatable. Directories in *_DATA_DIR and similar variables are found without it.",
)
@click.option("--checkpoints", metavar="DIR", help="Directory for checkpoints.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
@click.option(
    "--timeout",
    type=click.FloatRange(5, 3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for the whole command.",
)
@click.option(
    "--answer", is_flag=True, hidden=True, help="Answer the node that runs the checks: what --hosts starts on a host."
)
@fleet_options
@click.argument("script_arguments", nargs=-1, metavar="[-- SCRIPT ARGUMENTS...]")
def command(
    master: str | None, ranks_per_node: int, params: str | None, dtype: str | None, data: tuple[str, ...],
    checkpoints: str | None, as_json: bool, timeout: float, answer: bool, fleet: Hosts, script_arguments: tuple[str, ...],
) -> int:  # fmt: skip
    """Check hosts, network, data and settings before the launch.

    Without --hosts it checks this host. With --hosts it checks these hosts and the connections between them. Started by
    torchrun, it checks the nodes that will train: torchrun ARGS -m hangdoc.preflight -- SCRIPT ARGUMENTS.
    """
    if answer:
        return _answer()
    meeting, origin, unused = _meeting(master, os.environ)
    plan = Plan(
        master=meeting, master_origin=origin, ranks_per_node=ranks_per_node, parameters=parameters(params), dtype=dtype,
        data=data, arguments=script_arguments, checkpoints=checkpoints, nodes=1,
    )  # fmt: skip
    silent: dict[str, str] = {}
    if fleet.hosts is None:
        node = session.Node()
        facts, links = session.drive(session.conduct(plan), lambda message: {"this host": node.answer(message)})
        node.close()
    else:
        facts, links, silent = _over(fleet, plan, timeout)
        plan = msgspec.structs.replace(plan, nodes=len(facts) + len(silent))
    return conclude(facts, links, plan, silent, as_json, unused)


def parameters(text: str | None) -> int | None:
    """`25M`, `1.3B`, `124439808`; raises CommandError."""
    if text is None:
        return None
    factors = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
    factor = factors.get(text[-1:].lower(), 1.0)
    try:
        number = int(float(text[:-1] if factor != 1.0 else text) * factor)
    except (ValueError, OverflowError):
        number = 0
    if number <= 0:
        raise CommandError(f"--params {text!r} is no number of parameters: write 25M, 1.3B or 124439808.", USAGE)
    return number


def _meeting(master: str | None, environment: Mapping[str, str]) -> tuple[str | None, str | None, list[Check]]:
    """(address and port at which the run will meet, where they come from if not from the option, what to report)."""
    if master is not None:
        address, _, port = master.rpartition(":")
        if not address or not _is_port(port):
            raise CommandError(f"--master {master!r}: give ADDR:PORT, for example node0:29500.", USAGE)
        return master, None, []
    address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if address and port:
        if not _is_port(port):
            raise CommandError(
                f"MASTER_PORT is {port!r} in the environment: set it to 1-65535, or give --master.", USAGE
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


def _over(fleet: Hosts, plan: Plan, timeout: float) -> tuple[list[Facts], list[Link], dict[str, str]]:
    from hangdoc.fleet.talk import talk

    result, silent = talk(fleet.names(), ("preflight", "--answer"), fleet.transport(timeout), _script(plan))
    facts, links = result if result is not None else ([], [])
    return facts, links, silent


def _script(plan: Plan) -> Generator[bytes, Mapping[str, bytes], tuple[list[Facts], list[Link]]]:
    """`session.conduct` in lines of JSON. What comes back is untrusted: what does not fit is left out."""
    conducting = session.conduct(plan)
    message = next(conducting)
    while True:
        said = yield msgspec.json.encode(message)
        answers = {}
        for host, line in said.items():
            try:
                answers[host] = msgspec.json.decode(line, type=session.Answer)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
        try:
            message = conducting.send(answers)
        except StopIteration as ended:
            result: tuple[list[Facts], list[Link]] = ended.value
            return result


def _answer() -> int:
    """A line in, a line out, until the node that runs the checks ends it or is gone."""
    import select

    from hangdoc.fleet.talk import MARK

    node = session.Node()
    while select.select([sys.stdin], [], [], _IDLE_SECONDS)[0] and (line := sys.stdin.buffer.readline()):
        message = msgspec.json.decode(line, type=session.Message)
        sys.stdout.buffer.write(MARK + msgspec.json.encode(node.answer(message)) + b"\n")
        sys.stdout.buffer.flush()
        if message.do == "end":
            break
    node.close()
    return 0


def conclude(
    facts: list[Facts], links: list[Link], plan: Plan, silent: Mapping[str, str], as_json: bool, more: list[Check] | None = None
) -> int:  # fmt: skip
    """Check, print, and the exit code: 1 where something fails."""
    from hangdoc.preflight.checks import all_checks

    checks = [
        Check(name="reached", status="fail", nodes=(host,), text=f"{host}: {why}", remedy="This node was not checked.")
        for host, why in sorted(silent.items())
    ]
    checks += all_checks(facts, links, plan) if facts else []
    checks += more or []
    if as_json:
        from hangdoc.preflight.network_checks import all_reduce_seconds, slowest

        link = slowest(links)
        seconds = all_reduce_seconds(plan.parameters, link.mbit, len(facts)) if link is not None and link.mbit else None
        document = {"nodes": [one.node for one in facts], "checks": checks, "all_reduce_seconds": seconds, "links": links,
                    "facts": facts}  # fmt: skip
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        from rich.console import Console

        from hangdoc.render.preflight import report

        report(checks, len(facts) + len(silent), Console(soft_wrap=False))
    return int(any(check.status == "fail" for check in checks))
