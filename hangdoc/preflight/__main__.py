"""`torchrun ARGS -m hangdoc.preflight -- SCRIPT ARGUMENTS`: the checks over the very topology that will train."""

import os
import sys

import click

from hangdoc.cli.group import run
from hangdoc.cli.preflight import show
from hangdoc.commands.preflight import concluded
from hangdoc.preflight import session
from hangdoc.preflight.plan import Check, Plan
from hangdoc.version import __version__


def main() -> int:
    """Started by torchrun or by hand; the exit code."""
    if "RANK" not in os.environ or "MASTER_PORT" not in os.environ:
        return run(["preflight", *sys.argv[1:]])
    return _by_torchrun(tuple(word for word in sys.argv[1:] if word != "--"))


def _by_torchrun(arguments: tuple[str, ...]) -> int:
    local, node = os.environ.get("LOCAL_RANK", "0"), int(os.environ.get("GROUP_RANK", "0"))
    ranks, per_node = int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    plan = Plan(ranks_per_node=per_node, nodes=int(os.environ.get("GROUP_WORLD_SIZE", str(max(1, ranks // per_node)))))
    own = session.Node(arguments) if local == "0" else None
    try:
        from hangdoc.preflight import meeting
    except ImportError as error:  # what torch would need is not there: say what is known without it
        if own is not None:
            facts, links = session.drive(session.conduct(plan), lambda message: {f"node {node}": own.answer(message)})
            failed = Check(name="torch", status="fail", text=f"can't be imported: {error}", remedy="pip install torch.")
            return show(concluded(facts, links, plan, {}, [failed]), as_json=False)
        return 1
    board = meeting.store()
    if own is None or node:
        if own is not None:
            meeting.answer(board, node, own)
            own.close()
        meeting.reduce(board)
        return 0
    click.echo(f"hangdoc {__version__} preflight: {plan.nodes} nodes, {ranks} ranks", err=True)
    facts, links, silent = meeting.conduct(board, plan, own)
    own.close()
    whole = not silent and all(link.outcome == "ok" for link in links)
    meeting.decide(board, whole)
    last = meeting.reduce(board) if whole else None
    skipped = Check(name="all-reduce", status="unknown", text="not tried: the connections failed")
    return show(concluded(facts, links, plan, silent, [last or skipped]), as_json=False)


if __name__ == "__main__":
    sys.exit(main())
