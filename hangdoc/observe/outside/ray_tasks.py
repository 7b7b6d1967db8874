"""What other workers of Ray do while a rank waits for its next task: the driver may wait for them."""

import time

from hangdoc.observe.kernel import clocks, file_holders
from hangdoc.observe.kernel.last_run import SchedulerClocks
from hangdoc.observe.outside import processes_at_work
from hangdoc.observe.outside.receivers import may_be_shown
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import RayTask
from hangdoc.torch_facts import serving

_MOST, _MOST_READ = 3, 16


def read_tasks(proc: ProcFS, waiting: int, observed: frozenset[int], until: float | None = None) -> tuple[RayTask, ...]:
    """The workers of Ray in a task, behind the processes that may give tasks to `waiting`, a worker too. Those that have not run
    for longest come first. `until`: the monotonic time to which that is counted, as all other ages of a look; now without one."""
    table = processes_at_work.read_table(proc, file_holders.period())
    if waiting not in table or not processes_at_work.is_titled(table[waiting], (serving.RAY_WORKER,)):
        return ()
    workers = processes_at_work.find_ray_workers(
        proc, processes_at_work.find_near(proc, waiting, observed), observed | {waiting}
    )
    titles = {pid: table[pid].argv[0] for pid in workers if table[pid].argv and may_be_shown(proc, pid, waiting)}
    tasks = [
        RayTask(pid=pid, title=title, idle_seconds=_read_idle_seconds(proc, pid, until))
        for pid, title in list(titles.items())[:_MOST_READ]
        if "." in title
    ]
    return tuple(sorted(tasks, key=lambda task: -(task.idle_seconds or 0.0))[:_MOST])


def _read_idle_seconds(proc: ProcFS, pid: int, until: float | None) -> float | None:
    """For how long the main thread of a process had not run then; None if that is not known."""
    threads = clocks.threads_of(proc, pid)
    main = threads.get(pid) if isinstance(threads, dict) else None
    if main is None or main.state == "R":
        return None
    last_run = SchedulerClocks(proc).last_run(f"{pid}/task/{pid}", main.processor, main.switches)
    until = until if until is not None else time.monotonic()
    return round(max(0.0, until - last_run), 1) if last_run is not None else None
