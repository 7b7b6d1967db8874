"""Whether the processes for which a rank waits are at work, and if not, how long they sleep. They may belong to another job,
which is not observed."""

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Mapping, Set
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import msgspec

from hangdoc.observe.kernel import awaited_files, clocks, file_holders, process_table, system_calls
from hangdoc.observe.kernel.last_run import SchedulerClocks
from hangdoc.observe.memory.maps import is_python
from hangdoc.observe.outside import peers, receivers
from hangdoc.procfs import ProcError, ProcFS, age
from hangdoc.snapshot import AwaitedFile, Holder
from hangdoc.torch_facts import serving, thread_names

_SAMPLE_SECONDS = 0.5
_MAX_SAMPLE_SECONDS = 3.0
"""A process may pause between two pieces of work, like a rank (`look.settling`)."""
_ACCEPTS = frozenset({"accept", "accept4"})
_FOR_EVENTS = system_calls.SLEEPS | system_calls.POLLS | system_calls.SELECTS | system_calls.EPOLLS | _ACCEPTS
_FOR_CHILDREN = system_calls.CHILD_WAITS | {"rt_sigsuspend"}
_STANDARD_ERROR = 2
_LATELY = 10.0
"""Seconds since the last change of a file that a process at work writes."""
_CLOCK_SECONDS = 2.0
"""By which the age of a process and that of a file may be wrong: they are of two clocks."""
_TO_TAKE_REQUEST = 1.0
"""Seconds between the end of a request and the wait of the thread that has it."""
_MAX_HOLDERS = 8
_MAX_CONNECTED = 16
_MAX_TASKS = 100
_MAX_THREADS = 500
"""Of a process and its descendants. To read when one last ran takes 0.1 ms."""
COMMON = frozenset({"/", "/tmp", "/var/tmp", "/root"})  # noqa: S108  nothing is written there
"""Directories in which processes of any job work."""


class _Least(NamedTuple):
    """What a process at work does at least in a sample of up to three seconds: one that wakes up to check something does less."""

    ticks: int
    """Of CPU time."""
    share: float
    """Of a core."""
    size: int
    """Bytes read and written."""


ASKED = _Least(2, 0.0, 4096)
"""For a process that holds a lock, or that has to reply."""
_ANY = _Least(3, 0.0, 1 << 16)
"""For one of many that may end the wait: a launcher too has the pipes and semaphores of its ranks, and wakes up ten times a
second (torchrun: 0.3 % of a core)."""
_BUSY = _Least(3, 0.1, 1 << 62)
"""For one that may have nothing to do with the wait: daemons of a cluster and monitors use up to 5 % of a core."""
_OF_RUN = _Least(3, 0.1, 1 << 16)
"""For a rank or launcher of this look: the observer makes it run a little."""
INHERITED = _ANY
"""For one that has a pipe or shared memory: most of them only inherited it."""
POLLED = _BUSY
"""For one that replies several times a second: to reply is no work for the one that asks again."""


def judged(
    proc: ProcFS,
    holders: tuple[Holder, ...] | None,
    waiting: int,
    least: _Least = ASKED,
    observed: frozenset[int] = frozenset(),
    since: float | None = None,
) -> tuple[Holder, ...] | None:
    """The first few of some processes: those at work first, `waiting` and those that started it last. It takes up to three
    seconds, once for all processes of a look. A process that is not at work itself may wait for one that is: a server of queues,
    a proxy.

    `waiting`: the process that waits for them, whose own threads are observed anyway. `observed`: the ranks and
    launchers of this look, whose work is known to have no end for the run: they do not count behind another process. `least`:
    what each of the others does at least. `since`: when the thread began to wait, by the clock of `Target.last_run`.
    """
    if not holders:
        return holders
    above = frozenset(process_table.read_ancestry(proc, waiting))
    passed = above | observed | {waiting}
    judged_holders = [
        _judge(proc, holder, above, passed, _OF_RUN if holder.pid in observed else least, since)
        if holder.pid != waiting
        else holder
        for holder in holders
    ]
    first = sorted(judged_holders, key=lambda holder: (not holder.works, holder.pid in {waiting, *above}))[
        :_MAX_HOLDERS
    ]
    return tuple(
        holder if holder.pid == waiting else _add_receivers(proc, holder, waiting, observed) for holder in first
    )


def connected(proc: ProcFS, waiting: int, observed: frozenset[int]) -> tuple[Holder, ...]:
    """The first few processes that are connected with `waiting` or a descendant and at work: one of them may have to reply. It
    takes up to three seconds, once for all processes of a look."""
    return _find_busy(proc, _find_connected(proc, waiting, observed), waiting, _BUSY)


def descendants_of(proc: ProcFS, pid: int) -> frozenset[int]:
    """The processes below another one."""
    return frozenset(read_table(proc, file_holders.period()).descendants(pid))


def stopped(proc: ProcFS, waiting: int, observed: frozenset[int]) -> tuple[Holder, ...]:
    """The first few processes that started `waiting` or are connected with it or a descendant, and that a signal has stopped: one
    of them may have to send something. If none is stopped: the workers of Ray that are, and for which a connected process may
    wait."""
    table = read_table(proc, file_holders.period())
    near = find_near(proc, waiting, observed)
    if halted := [pid for pid in near if table[pid].stat.state == "T"]:
        return file_holders.read_holders(proc, halted[:_MAX_HOLDERS])
    behind = {
        pid: caller for pid, caller in find_ray_workers(proc, near, observed).items() if table[pid].stat.state == "T"
    }
    return tuple(
        msgspec.structs.replace(holder, through=behind[holder.pid])
        for holder in file_holders.read_holders(proc, list(behind)[:_MAX_HOLDERS])
    )


def find_near(proc: ProcFS, waiting: int, observed: frozenset[int]) -> list[int]:
    """The processes that started `waiting`, and those that are connected with it or a descendant."""
    table = read_table(proc, file_holders.period())
    above = [pid for pid in process_table.starters(table, waiting) if pid not in observed]
    near = dict.fromkeys([*above, *sorted(_find_connected(proc, waiting, observed))])
    return [pid for pid in near if pid in table]


def find_ray_workers(proc: ProcFS, near: Iterable[int], observed: frozenset[int]) -> dict[int, int]:
    """The workers of Ray that are connected with one of some processes which may give tasks: by pid, that process."""
    period = file_holders.period()
    table = read_table(proc, period)
    callers = [pid for pid in near if not is_titled(table[pid], serving.RAY_SERVICES)][:_MAX_CONNECTED]
    return {
        pid: caller
        for caller in callers
        for pid in sorted(peers.of_processes(proc, {caller}, period) - observed)
        if pid in table and is_titled(table[pid], (serving.RAY_WORKER,))
    }


def is_titled(entry: process_table.Entry, titles: tuple[str, ...]) -> bool:
    """Whether the name or the title of a process begins with one of some words."""
    return any(name.startswith(titles) for name in (entry.stat.name, *entry.argv[:1]))


def _find_connected(proc: ProcFS, waiting: int, observed: frozenset[int]) -> set[int]:
    """The processes that are connected with `waiting` or a descendant."""
    period = file_holders.period()
    tree = read_table(proc, period).tree(waiting)
    return peers.of_processes(proc, tree, period, find_relatives(proc, observed)) - observed


def find_relatives(proc: ProcFS, pids: frozenset[int]) -> frozenset[int]:
    """Some processes with their ancestors and descendants."""
    return _find_relatives(proc, pids, file_holders.period())


@lru_cache(1)
def _find_relatives(proc: ProcFS, pids: frozenset[int], period: int) -> frozenset[int]:
    table = read_table(proc, period)
    return frozenset[int]().union(*map(table.tree, pids), *map(table.ancestors, pids))


def of_job(
    proc: ProcFS, waiting: int, observed: frozenset[int], *, for_files: bool, gone: AwaitedFile | None = None
) -> tuple[Holder, ...]:
    """The first few processes at work in the process groups of the job or in its directory, but outside of the run: one of them
    may make what `waiting` looks for. The job is `waiting`, the launchers above it, and all ranks below those. `for_files`:
    whether it looks for files, which another run may make. `gone`: the path whose end it waits for, if it is known; another run
    counts then only if it is as old as the path. As `connected`."""
    beside = _find_beside(proc, waiting, observed, for_files=for_files, gone=gone)
    return _find_busy(proc, beside, waiting, _BUSY)


def asleep(
    proc: ProcFS, waiting: int, observed: frozenset[int], *, for_files: bool, gone: AwaitedFile | None = None
) -> tuple[Holder, ...]:
    """The first few processes of the job, as in `of_job`, that sleep for a time: one of them may then make what `waiting` looks
    for."""
    period = file_holders.period()
    others = _find_beside(proc, waiting, observed, for_files=for_files, gone=gone)
    others -= frozenset(process_table.read_ancestry(proc, waiting))
    others -= _find_bystanders(proc, period)
    runs = _find_other_runs(proc, period)
    holders = (msgspec.structs.replace(holder, sleeps=_read_sleeps(proc, holder.pid, period, None, alone=False),
                                       of_run=holder.pid in runs)
               for holder in file_holders.read_holders(proc, sorted(others)[:_MAX_CONNECTED]))  # fmt: skip
    return tuple(islice((holder for holder in holders if holder.sleeps), _MAX_HOLDERS))


@lru_cache(1)
def _find_bystanders(proc: ProcFS, period: int) -> frozenset[int]:
    """This process with what started it (`watch hangdoc diagnose` sleeps too); other hangdocs, with tmux, which draws their
    screens; shells in which a person types; the `sleep` of what has started this process, which waits for its end; and launchers,
    which only look after their ranks."""
    table = read_table(proc, period)
    own = {os.getpid(), *table.ancestors(os.getpid())}
    others = {pid for pid, entry in table.items() if process_table.is_hangdoc(entry.argv)}
    screens = {above for pid in others for above in table.ancestors(pid) if table[above].stat.name.startswith("tmux")}
    shells = {pid for pid, entry in table.items() if process_table.is_typed_in(proc, entry)}
    idle = {pid for pid, entry in table.items() if entry.stat.name == "sleep" and entry.stat.ppid in own}
    launchers = {pid for pid, entry in table.items() if process_table.is_launcher(entry)}
    return frozenset(own | others | screens | shells | idle | launchers)


@lru_cache(1)
def _find_other_runs(proc: ProcFS, period: int) -> frozenset[int]:
    """The processes that launchers have started, and those above launchers that are shells or only wait for the end of a child
    process (`timeout`): what these do is mostly the work of their run. Two runs are often started from one directory, and have
    nothing else to do with each other."""
    table = read_table(proc, period)
    launchers = [pid for pid, entry in table.items() if process_table.is_launcher(entry)]
    above = {pid for launcher in launchers for pid in table.ancestors(launcher) if pid in table}
    starters = (pid for pid in above if process_table.is_shell(table[pid]) or _waits_for_child(proc, pid))
    return frozenset().union(starters, *map(table.tree, launchers))


def _waits_for_child(proc: ProcFS, pid: int) -> bool:
    """Whether the main thread of a process waits for the end of a child process, or for the signal that tells of it."""
    with contextlib.suppress(ProcError, ValueError):
        return system_calls.current(proc, f"{pid}/task/{pid}")[0] in _FOR_CHILDREN
    return False


def starting(proc: ProcFS, waiting: int, observed: frozenset[int]) -> tuple[Holder, ...]:
    """The first few of these processes that are at work at all: one of them may start the ranks for which `waiting` waits in a
    rendezvous, when it has copied its data. As `connected`."""
    return _find_busy(proc, _find_group_members(proc, waiting, observed), waiting, _ANY)


def _find_beside(
    proc: ProcFS, waiting: int, observed: frozenset[int], *, for_files: bool, gone: AwaitedFile | None = None
) -> Set[int]:
    """The processes of the job, of the user of `waiting` or of root: any user may work in the same directory."""
    users = {process_table.user_of(proc, waiting), 0}
    pids = _find_group_members(proc, waiting, observed) | _find_in_directory(proc, waiting, observed)
    others = pids & _find_other_runs(proc, file_holders.period())
    if not for_files:
        pids -= others
    elif gone is not None:
        pids -= {pid for pid in others if not _may_remove(proc, pid, gone)}
    return {pid for pid in pids if process_table.user_of(proc, pid) in users}


def _may_remove(proc: ProcFS, pid: int, gone: AwaitedFile) -> bool:
    """Whether a process of another run may remove a path: it is no younger."""
    entry = read_table(proc, file_holders.period())[pid]
    return age(proc, entry.stat.start_ticks) >= max(0.0, (gone.changed_seconds_ago or 0.0) - _CLOCK_SECONDS)


def _find_group_members(proc: ProcFS, waiting: int, observed: frozenset[int]) -> Set[int]:
    table = read_table(proc, file_holders.period())
    launchers = [pid for pid in table.ancestors(waiting) if pid in observed]
    own = observed & table.tree(launchers[-1]) if launchers else {waiting}
    groups = {table[pid].stat.group for pid in own if pid in table}
    mates = {pid for pid, entry in table.items() if entry.stat.group in groups}
    return mates.difference(*map(table.tree, observed | {waiting}))


def _find_in_directory(proc: ProcFS, waiting: int, observed: frozenset[int]) -> Set[int]:
    """The processes outside of the run that work in the directory of `waiting`: a daemon that was started from there. Of a
    directory that belongs to no job, none."""
    table = read_table(proc, file_holders.period())
    mine = _read_directory(proc, waiting)
    if mine is None or mine in COMMON or mine == os.path.expanduser("~"):
        return set()
    beside = {pid for pid in table if _read_directory(proc, pid) == mine}
    return beside.difference(*map(table.tree, observed | {waiting}))


def _read_directory(proc: ProcFS, pid: int) -> str | None:
    try:
        return proc.link(f"{pid}/cwd")
    except ProcError:
        return None


def _find_busy(proc: ProcFS, candidates: Set[int], waiting: int, least: _Least) -> tuple[Holder, ...]:
    period = file_holders.period()
    others = candidates - frozenset(process_table.read_ancestry(proc, waiting)) - _find_bystanders(proc, period)
    runs = _find_other_runs(proc, period)
    busy = (pid for pid in sorted(others)[:_MAX_CONNECTED] if _works(proc, pid, period, least, alone=False))
    return tuple(
        msgspec.structs.replace(holder, works=True, of_run=holder.pid in runs)
        for holder in file_holders.read_holders(proc, islice(busy, _MAX_HOLDERS))
    )


def _judge(
    proc: ProcFS, holder: Holder, above: frozenset[int], passed: frozenset[int], least: _Least, since: float | None
) -> Holder:
    period = file_holders.period()
    if holder.state == "T":  # what it did a moment ago is over, and nobody gets anything through it
        return holder
    works = _works(proc, holder.pid, period, least, alone=holder.pid in above)
    if not works and least is not INHERITED:
        behind = sorted(peers.of_processes(proc, {holder.pid}, period) - passed)[:_MAX_CONNECTED]
        busy = next((pid for pid in behind if _works(proc, pid, period, _ANY, alone=False)), None)
        holder = msgspec.structs.replace(holder, behind=busy)
    if not works and least is ASKED:
        tree = {holder.pid} if holder.pid in above else read_table(proc, period).tree(holder.pid)
        works = any(_writes_file(proc, pid, period) for pid in tree)
    if works or holder.behind is not None:
        return msgspec.structs.replace(holder, works=True)
    of_run, related = least is _OF_RUN, least is INHERITED
    sleeps = _read_sleeps(proc, holder.pid, period, since, alone=holder.pid in above, related=related, of_run=of_run)
    for_events = _waits_for_events(proc, holder.pid)
    accepts = for_events and _waits_for_connections(proc, holder.pid, period)
    return msgspec.structs.replace(holder, sleeps=sleeps, waits_for_events=for_events, accepts=accepts)


def _add_receivers(proc: ProcFS, holder: Holder, waiting: int, observed: frozenset[int]) -> Holder:
    """A process with those for which it waits to send data, if it is not at work. The last of them may be."""
    if holder.works or holder.state == "T":
        return holder
    period = file_holders.period()
    chain = receivers.find_receivers(proc, holder.pid, waiting, period)
    if not chain:
        return holder
    last = chain[-1].pid
    if last not in observed and _works(
        proc, last, period, _ANY, alone=last in process_table.read_ancestry(proc, waiting)
    ):
        return msgspec.structs.replace(holder, works=True, behind=last)
    return msgspec.structs.replace(holder, sends_to=chain)


@lru_cache(256)
def _writes_file(proc: ProcFS, pid: int, period: int) -> bool:
    """Whether a process has changed a file a short while ago that it has open for writing, but for its standard streams: a slow
    download does little in a sample. Files on anything but a local file system are not touched: it may be dead."""
    now = time.time()
    try:
        links = proc.links(f"{pid}/fd", _MAX_TASKS)
    except ProcError:
        return False
    return any(
        _was_changed(proc, pid, int(number), link, now)
        for number, link in links.items()
        if int(number) > _STANDARD_ERROR and link.startswith("/")
    )


def _was_changed(proc: ProcFS, pid: int, descriptor: int, path: str, now: float) -> bool:
    try:
        if awaited_files.read_mode(proc, pid, descriptor) == os.O_RDONLY:
            return False
        if awaited_files.is_remote(proc, pid, path):
            return False
        status = proc.open_file(pid, descriptor)
    except (ProcError, ValueError):
        return False
    # A lock file is empty, or has a pid.
    written = stat.S_ISREG(status.st_mode) and status.st_size >= ASKED.size
    return written and 0 <= now - status.st_mtime <= _LATELY


def _waits_for_events(proc: ProcFS, pid: int) -> bool:
    """Whether the main thread does, or another one accepts connections: that of a manager of multiprocessing only waits for the
    end of the server."""
    for tid in (pid, *proc.tids(pid)[:_MAX_TASKS]):
        with contextlib.suppress(ProcError, ValueError):
            if system_calls.current(proc, f"{pid}/task/{tid}")[0] in (_FOR_EVENTS if tid == pid else _ACCEPTS):
                return True
    return False


def _waits_for_connections(proc: ProcFS, pid: int, period: int) -> bool:
    """Whether the main thread waits at a socket that listens."""
    try:
        call, arguments = system_calls.current(proc, f"{pid}/task/{pid}")
        files = awaited_files.awaited(proc, pid, call, arguments, search=False) if call in _FOR_EVENTS else ()
    except (ProcError, ValueError):
        return False
    inodes = [file.inode for file in files if file.kind == "socket" and file.inode is not None]
    return any(peers.accepts(proc, inode, period) for inode in inodes)


@lru_cache(256)
def _works(proc: ProcFS, pid: int, period: int, least: _Least, *, alone: bool) -> bool:
    """Whether a process or a descendant uses a processor, reads or writes. `alone`: only itself, because it is an ancestor of the
    process that waits for it."""
    tree = {pid} if alone else read_table(proc, period).tree(pid)
    if (last_runs := _read_last_runs(proc, tree)) is not None:
        rest = time.monotonic() - max(last_runs.values(), default=0.0)
        left = _MAX_SAMPLE_SECONDS - rest
        if left <= 0 or (rest >= _SAMPLE_SECONDS and not _wakes(proc, last_runs, left)):
            return False
    sample, earlier = _samples.take_first(proc, period), _samples.earlier
    if last_runs is not None and earlier is not None and earlier.age() >= _MAX_SAMPLE_SECONDS and pid in earlier.work:
        return _has_worked(proc, tree, earlier, least)
    if pid not in sample.work:  # it is new, and starting is work
        sample = _take_sample(proc, tree)
    time.sleep(max(0.0, _SAMPLE_SECONDS - sample.age()))
    while not _has_worked(proc, tree, sample, least):
        left = _MAX_SAMPLE_SECONDS - sample.age()
        last_runs = _read_last_runs(proc, tree)
        if left <= 0 or (last_runs is not None and not _wakes(proc, last_runs, left)):
            return False
        time.sleep(_SAMPLE_SECONDS)
    return True


def _read_last_runs(proc: ProcFS, tree: set[int]) -> dict[tuple[int, int], float] | None:
    """When each thread of some processes last ran (monotonic), by pid and tid: a sample that the kernel has taken already. None
    if one runs, or if that is not known."""
    scheduler = SchedulerClocks(proc)
    last_runs: dict[tuple[int, int], float] = {}
    for pid in tree:
        threads = clocks.threads_of(proc, pid)
        if not isinstance(threads, dict) or len(last_runs) + len(threads) > _MAX_THREADS:
            return None
        for tid, reading in threads.items():
            if reading.state == "R":
                return None
            last_run = scheduler.last_run(f"{pid}/task/{tid}", reading.processor, reading.switches)
            if last_run is None:
                return None
            last_runs[pid, tid] = last_run
    return last_runs


@lru_cache(64)
def _read_sleeps(
    proc: ProcFS,
    pid: int,
    period: int,
    since: float | None,
    *,
    alone: bool,
    related: bool = False,
    of_run: bool = False,
) -> tuple[float, ...]:
    """How long each sleep of the threads of a process and its descendants takes, in seconds. One that is stopped does not wake
    up, and a thread of torch's backends only serves torch. `since`: as for `judged`. `related`: it shares what was made for both,
    so its main thread waits for its own time, and not for requests of anybody. `of_run`: its main thread may wait in a call of
    torch, whose timeout is the end of the run."""
    scheduler = SchedulerClocks(proc)
    table = read_table(proc, period)
    durations = []
    for member in {pid} if alone else table.tree(pid) - (_find_bystanders(proc, period) - {pid}):
        if member in table and table[member].stat.state == "T":
            continue
        threads = clocks.threads_of(proc, member)
        for tid, reading in list(threads.items())[:_MAX_TASKS] if isinstance(threads, dict) else ():
            if tid != member and reading.name.startswith(thread_names.BACKENDS):
                continue
            try:
                is_main = tid == pid
                asked = None if of_run and is_main else since
                durations.append(
                    _read_sleep(proc, member, tid, reading, scheduler, asked, own_time=related and is_main)
                )
            except (ProcError, ValueError):
                continue
    return tuple(sorted(round(seconds, 3) for seconds in durations if seconds is not None))


def _read_sleep(
    proc: ProcFS,
    pid: int,
    tid: int,
    reading: clocks.Reading,
    scheduler: SchedulerClocks,
    since: float | None,
    *,
    own_time: bool,
) -> float | None:
    """How long the sleep of a thread takes; None if it does not sleep. An event loop of Python sleeps until its next timer, and
    a thread with a request may wait for its time with a timeout: it last ran when the request came. With `own_time`, any wait
    with a timeout is one for its time. Raises ProcError and ValueError for what can't be read."""
    task = f"{pid}/task/{tid}"
    call, arguments = system_calls.current(proc, task)
    if not call or not arguments:
        return None
    if call in system_calls.EPOLLS:
        waits = system_calls.timeout(proc, pid, call, arguments) if is_python(proc, pid) else None
        return waits[0] if waits is not None else None
    lasts = system_calls.sleep(proc, pid, call, arguments)
    if lasts is None and (call != system_calls.FUTEX or since is None):
        return None
    began = scheduler.last_run(task, reading.processor, reading.switches)
    age = time.monotonic() - began if began is not None else None
    if lasts is not None:
        return clocks.whole_timeout(lasts, age or 0.0)
    if since is None or began is None or not is_python(proc, pid):
        return None
    if not own_time and abs(began - since) > _TO_TAKE_REQUEST:
        return None
    return clocks.whole_timeout(system_calls.timeout(proc, pid, call, arguments), age)


@lru_cache(1)
def read_table(proc: ProcFS, period: int) -> process_table.ProcessTable:
    """The processes of the host. `period`: as for `peers.of_socket`."""
    return process_table.read(proc)


class _Sample(NamedTuple):
    """What processes had done at one moment."""

    at: float
    """Monotonic."""
    work: Mapping[int, tuple[int, int]]
    """By pid: as in `_read_work`."""

    def age(self) -> float:
        """In seconds."""
        return time.monotonic() - self.at


class _Samples:
    """One of every process of the host in each period. It serves all holders of a look, and in `top` and `watch` also those of
    the next period, which then wait for none."""

    def __init__(self) -> None:
        self._period: int | None = None
        self._current: _Sample | None = None
        self.earlier: _Sample | None = None
        """That of the period before, if there was a look in it."""

    def take_first(self, proc: ProcFS, period: int) -> _Sample:
        """The sample of this period."""
        if self._current is None or period != self._period:
            self.earlier = self._current if self._period == period - 1 else None
            self._period, self._current = period, _take_sample(proc, proc.pids())
        return self._current


_samples = _Samples()


def _take_sample(proc: ProcFS, pids: Iterable[int]) -> _Sample:
    return _Sample(time.monotonic(), {pid: work for pid in pids if (work := _read_work(proc, pid)) is not None})


def _has_worked(proc: ProcFS, tree: set[int], since: _Sample, least: _Least) -> bool:
    ticks = size = 0
    for pid in tree:
        if (after := _read_work(proc, pid)) is not None:
            before = since.work.get(pid, (0, 0))
            ticks += after[0] - before[0]
            size += after[1] - before[1]
    age = since.age()
    times = max(1.0, age / _MAX_SAMPLE_SECONDS)
    share = least.share * age * proc.ticks_per_second
    return ticks >= max(least.ticks * times, share) or size >= least.size * times


def _read_work(proc: ProcFS, pid: int) -> tuple[int, int] | None:
    """CPU ticks of a process, and bytes that it has read and written; None if that can't be read."""
    try:
        stat, counts = proc.stat(str(pid)), proc.io(pid)
    except ProcError:
        return None
    return stat.cpu_ticks + stat.children_ticks, counts["rchar"] + counts["wchar"]


def _wakes(proc: ProcFS, last_runs: Mapping[tuple[int, int], float], within: float) -> bool:
    """Whether one of some threads (`_read_last_runs`) may wake up by itself in so many seconds: it may be in a pause between two
    pieces of work."""
    return any(
        _ends_by_itself(proc, pid, tid, time.monotonic() - last_run, within)
        for (pid, tid), last_run in last_runs.items()
    )


def _ends_by_itself(proc: ProcFS, pid: int, tid: int, age: float, within: float) -> bool:
    """Whether the call in which a thread has been for `age` seconds ends by itself in the next `within`."""
    try:
        call, arguments = system_calls.current(proc, f"{pid}/task/{tid}")
        if call == system_calls.RESTART:
            return True
        if call is None or not system_calls.timed(call, arguments):
            return False
        lasts = system_calls.sleep(proc, pid, call, arguments) or system_calls.timeout(proc, pid, call, arguments)
    except (ProcError, ValueError):
        return False
    if lasts is None:
        return True
    seconds, from_now = lasts
    return seconds - (0.0 if from_now else age) <= within
