"""Finds the tasks of an srun. They are children of slurmstepd, so srun is not among their ancestors."""

from hangdoc.observe.kernel.process_table import ProcessTable
from hangdoc.parse import natural
from hangdoc.snapshot import Unavailable

_PORTS = ("SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT")
"""srun listens on these ports; every task has them in its environment (srun(1), output environment variables)."""


def tasks_of(table: ProcessTable, srun: int) -> set[int]:
    """The processes on this host that the process `srun` started; empty if it is not an srun."""
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
    import psutil  # few hosts run srun

    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.Error:
        return set()
    return {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}
