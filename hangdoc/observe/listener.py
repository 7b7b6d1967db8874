"""The process that listens on a port."""

from hangdoc.observe.left_over import launcher_gone
from hangdoc.observe.process_table import read_ancestry
from hangdoc.procfs import ProcFS, age
from hangdoc.snapshot import Listener


def listener(proc: ProcFS, port: int, namespace: str, pid: int | None) -> Listener:
    """Describe the process that listens on `port`, as far as it can be read. `pid` is None if it was not found."""
    table = read_ancestry(proc, pid or 0)
    if pid is None or pid not in table:
        return Listener(port=port, namespace=namespace, pid=pid)
    entry = table[pid]
    return Listener(
        port=port,
        namespace=namespace,
        pid=pid,
        name=entry.stat.name,
        argv=entry.argv,
        orphan=launcher_gone(table, pid),
        started_seconds_ago=age(proc, entry.stat.start_ticks),
    )
