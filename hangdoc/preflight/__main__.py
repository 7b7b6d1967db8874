"""`torchrun ARGS -m hangdoc.preflight -- SCRIPT ARGUMENTS`: runs the checks with the launcher and nodes of the training."""

import os
import sys

from hangdoc.cli.group import run
from hangdoc.cli.interrupts import end_with_cleanup
from hangdoc.cli.main import run_to_end
from hangdoc.cli.output import tell
from hangdoc.cli.preflight import show
from hangdoc.commands.preflight import concluded
from hangdoc.phrases import amount
from hangdoc.preflight import session
from hangdoc.preflight.plan import Check, Plan
from hangdoc.version import __version__


def main() -> int:
    """Run preflight, started by torchrun or by hand. Returns the exit code."""
    end_with_cleanup()
    if "RANK" not in os.environ or "MASTER_PORT" not in os.environ:
        return run(["preflight", *sys.argv[1:]])
    return _by_torchrun(tuple(word for word in sys.argv[1:] if word != "--"))


def _by_torchrun(arguments: tuple[str, ...]) -> int:
    local, node = os.environ.get("LOCAL_RANK", "0"), int(os.environ.get("GROUP_RANK", "0"))
    ranks, per_node = int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    nodes = int(os.environ.get("GROUP_WORLD_SIZE", str(max(1, ranks // per_node))))
    plan = Plan(ranks_per_node=per_node, nodes=nodes)
    own = session.Node(arguments) if local == "0" else None
    try:
        from hangdoc.preflight import rendezvous
    except ImportError as error:  # report what can be checked without torch
        if own is not None:
            reports, links = session.drive(session.conduct(plan), lambda message: {f"node {node}": own.answer(message)})
            failed = Check(name="torch", status="fail", text=f"can't be imported: {error}", remedy="pip install torch.")
            return show(concluded(reports, links, plan, {}, [failed]), as_json=False)
        return 1
    store = rendezvous.store()
    if own is None or node:
        if own is not None:
            rendezvous.answer(store, node, own)
            own.close()
        rendezvous.reduce(store)
        return 0
    tell(f"hangdoc {__version__} preflight: {amount(nodes, 'node')}, {amount(ranks, 'rank')}")
    reports, links, silent = rendezvous.conduct(store, plan, own)
    own.close()
    whole = not silent and all(link.outcome == "ok" for link in links)
    rendezvous.decide(store, whole)
    last = rendezvous.reduce(store) if whole else None
    skipped = Check(name="all-reduce", status="unknown", text="skipped, because connections failed")
    return show(concluded(reports, links, plan, silent, [last or skipped]), as_json=False)


if __name__ == "__main__":
    run_to_end(main)
