"""What srun started: its tasks are children of slurmstepd, and nothing of srun is among their ancestors."""

from hangdoc.observe.process_table import ProcessTable
from hangdoc.parse import natural
from hangdoc.snapshot import Unavailable

_PORTS = ("SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT")
"""srun listens on these; every task has them in its environment (srun(1), output environment variables)."""


def tasks_of(table: ProcessTable, srun: int) -> set[int]:
    """The processes that an srun on this host started on it; empty for any other process."""
    if srun not in table or table[srun].stat.name != "srun":
        return set()
    ports = {port for pid in table.tree(srun) for port in _listens_on(pid)}
    return {
        pid
        for pid, entry in table.items()
        if not isinstance(entry.environment, Unavailable)
        and any(natural(entry.environment.get(name)) in ports for name in _PORTS)
    }


def _listens_on(pid: int) -> set[int]:
    import psutil  # hardly any look has an srun

    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.Error:
        return set()
    return {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}
