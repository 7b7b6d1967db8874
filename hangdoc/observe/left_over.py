"""Whether the launcher of a process has ended."""

from hangdoc.observe import identity
from hangdoc.observe.process_table import ProcessTable
from hangdoc.snapshot import Unavailable
from hangdoc.torch_facts import environment_names


def launcher_gone(table: ProcessTable, pid: int) -> bool:
    """Whether a launcher started the process and is no longer among its ancestors. Only torchrun's agent and multiprocessing's
    `spawn` mark the processes that they start; False for all others."""
    entry = table[pid]
    above = [table[ancestor] for ancestor in table.ancestors(pid) if ancestor in table]
    if not isinstance(entry.environment, Unavailable) and environment_names.RUN_ID in entry.environment:
        if pid != 1 and entry.stat.ppid == 0:
            return False  # its parent is outside of this pid namespace
        return not any(identity.launch_of(e.stat.name, e.argv) and e.stat.state not in "ZX" for e in above)
    # `python -c "from multiprocessing.spawn import spawn_main; ..." --multiprocessing-fork`: its parent runs Python.
    spawned = "--multiprocessing-fork" in entry.argv
    return spawned and not any("python" in e.stat.name or "python" in "".join(e.argv[:1]) for e in above[:1])
