"""`hangdoc preflight`: can this topology work at all?"""

import os
import sys

import click
import msgspec

from hangdoc import untrusted
from hangdoc.cli import output
from hangdoc.cli.fleet import fleet_options
from hangdoc.cli.numbers import Number
from hangdoc.commands import documents
from hangdoc.commands.documents import Preflight
from hangdoc.commands.errors import USAGE, CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.commands.preflight import checked, data_type, parameters, planned
from hangdoc.preflight import session
from hangdoc.preflight.plan import Plan

_MOST_BYTES = 4 << 20
"""Of a message."""
_IDLE_SECONDS = 120
"""How long a node waits for the next message. The node that runs the checks may be gone."""


@click.command(context_settings={"ignore_unknown_options": False})
@click.option(
    "--master",
    metavar="ADDR:PORT",
    help="Master address and port of the run. Default: MASTER_ADDR and MASTER_PORT from the environment.",
)
@click.option(
    "--ranks-per-node",
    type=Number(1, 4096, whole=True),
    metavar="N",
    help="Ranks on each node, as torchrun --nproc-per-node. Default: as in the launch line, else 1.",
)
@click.option(
    "--params",
    metavar="N",
    help="Number of model parameters (25M, 1.3B), to check memory and disk and to predict an all-reduce.",
)
@click.option(
    "--dtype",
    metavar="NAME",
    help="Data type of the training, for example bfloat16. With --params, memory and disk are counted in it, too.",
)
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
    type=Number(5, 3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for the whole command.",
)
@click.option(
    "--answer",
    is_flag=True,
    hidden=True,
    help="Answer the node that runs the checks. --hosts starts this on each host.",
)
@fleet_options("Check these hosts")
@click.argument("script_arguments", nargs=-1, metavar="[-- LAUNCH LINE | SCRIPT ARGUMENTS]")
def command(
    master: str | None, ranks_per_node: int | None, params: str | None, dtype: str | None, data: tuple[str, ...],
    checkpoints: str | None, as_json: bool, timeout: float, answer: bool, fleet: Hosts, script_arguments: tuple[str, ...],
) -> int:  # fmt: skip
    """Check hosts, network, data and settings before the launch.

    Without --hosts it checks this host. With --hosts it checks these hosts and the connections between them. Started by
    torchrun, it checks the nodes that will train: torchrun ARGS -m hangdoc.preflight -- SCRIPT ARGUMENTS.

    After `--`, give the line that you will start (torchrun --nproc-per-node 2 train.py --lr 1): ranks, nodes, master, variables
    and arguments come from it. Nothing of it is executed. Or give the arguments of the script only.
    """
    if answer:
        return _answer()
    given = Plan(parameters=parameters(params), dtype=data_type(dtype), data=data, checkpoints=checkpoints)
    plan, more = planned(given, script_arguments, os.environ, master=master, ranks_per_node=ranks_per_node)
    return show(checked(plan, fleet, timeout, more), as_json)


def _answer() -> int:
    """Answer each line with a line, until the node that runs the checks ends the session or is gone."""
    import select

    from hangdoc.fleet.session import MARK

    node = session.Node()
    while select.select([sys.stdin], [], [], _IDLE_SECONDS)[0] and (line := sys.stdin.buffer.readline(_MOST_BYTES + 1)):
        try:
            message = untrusted.decode(line, session.Message, _MOST_BYTES)
        except untrusted.UntrustedError as error:
            raise CommandError(f"a message of the node that runs the checks {error}.", USAGE) from None
        answer = msgspec.structs.replace(node.answer(message), nonce=message.nonce)
        sys.stdout.buffer.write(MARK + msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()
        if message.do == "end":
            break
    node.close()
    return 0


def show(done: Preflight, as_json: bool) -> int:
    """Print the result. Returns the exit code: 1 if a check fails."""
    if as_json:
        output.show(documents.text(done))
    else:
        from hangdoc.render.console import make_console
        from hangdoc.render.preflight import report

        silent = sum(check.name == "reached" for check in done.checks)
        report(done.checks, len(done.nodes) + silent, make_console())
    return int(any(check.status == "fail" for check in done.checks))
