"""Runs all probes across one window, under one deadline, and combines their results into a Snapshot."""

import contextlib
import datetime
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import Any

import msgspec

from hangdoc import redact
from hangdoc.observe.access import isolation
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.access.shares import is_share_taken
from hangdoc.observe.find.discover import Scope, discover
from hangdoc.observe.gpu.ras import read_ras
from hangdoc.observe.kernel.clocks import CpuClocks
from hangdoc.observe.kernel.targets import read_namespaces
from hangdoc.observe.look import settling
from hangdoc.observe.look.probes import Guard, attempt, evidence_of, in_closing_order, make_probes, probe_of
from hangdoc.observe.outside import awaited_processes, lock_files, newest_files, processes_at_work
from hangdoc.observe.stacks import native_stacks
from hangdoc.observe.stacks.call_sites import annotate_calls
from hangdoc.observe.stacks.counters import counters
from hangdoc.observe.stacks.python_stacks import Stacks, with_later_frames
from hangdoc.observe.stacks.source import Sources
from hangdoc.observe.torch.flight_recorder import FlightRecorders
from hangdoc.procfs import ProcError, ProcFS, age
from hangdoc.snapshot import (
    Clocks,
    Counter,
    Environment,
    Host,
    Interpreter,
    KernelState,
    Process,
    Progress,
    Snapshot,
    Stack,
    Unavailable,
)
from hangdoc.version import __version__

_GRACE_SECONDS = 8.0
"""A probe may run for this time after the window, and longer on an overloaded machine. After that it is abandoned."""
_TURN_SECONDS = 0.1
"""In the window, the next probe begins after this time even if the one before it has not ended."""
_TURNS_SHARE, _TURNS_SECONDS = 0.5, 0.4
"""After this share of the window, or this time if that is longer, all probes have begun."""
_SHORTEST_WINDOW = 0.1
_RECORD_SECONDS = 1.0
_MAX_LOAD = 3.0
_CLOSE_BEFORE = 0.7
"""The probes must close before this share of the time limit has passed."""
_SEARCH_SECONDS = 15.0
"""For the searches on behalf of one process, which watch for some seconds whether others are at work."""
_NOT_LOOKED_AT = Unavailable(reason="not looked at")
_MIN_SECONDS = 0.5
_SHARE_FOR_SECOND = 0.5
"""Of the time limit, for a second look."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to observe. Times in seconds; `native` and `ras` are `auto`, `never` or `always`."""

    window: float = 1.0
    shorten: bool = False
    """The window may be shorter, if the kernel shows that nothing has run for as long before it."""
    timeout: float = 30.0
    native: str = "auto"
    ras: str = "auto"
    stacks: bool = False
    """Also the stacks of ranks that make calls: each takes a pause of some milliseconds."""
    of_fleet: bool = False
    """As in hangdoc.observe.access.observation.Observation."""
    pids: tuple[int, ...] = ()
    run_of: int | None = None
    slurm_job: str | None = None
    """See hangdoc.observe.find.discover.Scope."""
    locals: redact.Locals = "used"
    """Which texts of variables are kept (`hangdoc.redact.LOCALS`)."""

    @property
    def scope(self) -> Scope:
        """Which ranks to observe."""
        return Scope(pids=self.pids, run_of=self.run_of, slurm_job=self.slurm_job)


def observe(
    options: Options,
    progress: Callable[[str], None] = lambda text: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Observe this host once, or twice if a run stopped in the window: what that shows of its ranks is of before. Never raises:
    the snapshot has reasons for what can't be read.

    `progress` is called with a short text at each step. `meanwhile` is called once during the window, in parallel to the
    probes, for work that the caller has to do anyway. For repeated observations, use hangdoc.observe.look.polling.
    """
    deadline = Deadline(options.timeout)
    host, stopped = _observe_host(options, deadline, progress, meanwhile)
    if stopped and deadline.remaining() >= _SHARE_FOR_SECOND * deadline.seconds:
        host, _ = _observe_host(options, Deadline(deadline.remaining()), progress, lambda: None)
        host = msgspec.structs.replace(host, elapsed_seconds=round(deadline.elapsed(), 3))
    return redact.snapshot(Snapshot(hangdoc=__version__, hosts=(host,)), options.locals)


def _observe_host(
    options: Options, deadline: Deadline, progress: Callable[[str], None], meanwhile: Callable[[], None]
) -> tuple[Host, bool]:
    """This host, and whether a run on it stopped in the window."""
    proc = ProcFS()
    progress("looking for ranks")
    discovered = discover(proc, deadline, options.scope)
    observation = Observation(
        proc=proc,
        deadline=deadline,
        window=options.window,
        native=options.native,
        targets=discovered.targets,
        problems=list(discovered.problems),
        ras=options.ras,
        of_fleet=options.of_fleet,
    )
    evidence: dict[int | None, dict[str, Any]] = {}
    wall_us, stopped = time.time_ns() // 1000, False
    if observation.targets:
        evidence, wall_us, stopped = _run(observation, progress, meanwhile, options)
    taken_at = datetime.datetime.fromtimestamp(wall_us / 1e6, datetime.timezone.utc)
    processes = each_process(
        observation, lambda target: _make_process(observation, target, evidence.get(target.pid, {}))
    )
    host = Host(
        name=socket.gethostname(),
        taken_at=taken_at.isoformat(timespec="milliseconds"),
        window_seconds=observation.window,
        elapsed_seconds=round(deadline.elapsed(), 3),
        processes=processes,
        problems=tuple(dict.fromkeys(observation.problems)),
        late=tuple(dict.fromkeys([*observation.late, *isolation.shared.take_problems(), *not_read(deadline)])),
        machine_id=machine_id(proc),
        wall_us=wall_us,
        monotonic_us=monotonic_at(wall_us),
        restricted=discovered.restricted,
        unread=discovered.unread,
        **evidence.get(None, {}),
    )
    return host, stopped


def monotonic_at(wall_us: int) -> int:
    """The monotonic clock of this host, in microseconds, at a time of its wall clock."""
    return wall_us - (time.time_ns() - time.monotonic_ns()) // 1000


def not_read(deadline: Deadline) -> list[str]:
    """Problems for what was skipped for lack of time, one sentence each."""
    missed = deadline.missed()
    return [f"{text}; allow more time with --timeout" for text in missed]


def _grace_seconds(observation: Observation) -> float:
    """How long to wait for a probe after the window: longer on an overloaded machine."""
    load = min(_MAX_LOAD, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
    deadline = observation.deadline
    return min(_GRACE_SECONDS * load, max(0.0, _CLOSE_BEFORE * deadline.seconds - deadline.elapsed()))


def machine_id(proc: ProcFS) -> str | None:
    """The same for one machine under two names, different for each container on it; None if unknown."""
    try:
        return f"{proc.text('sys/kernel/random/boot_id').strip()} {proc.link('self/ns/pid')}"
    except ProcError:
        return None


def _run(
    observation: Observation,
    progress: Callable[[str], None],
    meanwhile: Callable[[], None],
    options: Options,
) -> tuple[dict[int | None, dict[str, Any]], int, bool]:
    """Open all probes, run them through the window, close them, and gather their evidence. With it, when the window ended, by
    the wall clock in microseconds: all ages in the evidence are from then. And whether a run stopped in the window."""
    probes, guard = make_probes(), Guard()
    stacks, recorders = probe_of(probes, Stacks), probe_of(probes, FlightRecorders)
    if not options.stacks:
        stacks.find_moving = recorders.find_moving
    began = time.monotonic()
    ranks = len(observation.ranks())
    progress(f"reading {ranks} rank{'s' * (ranks != 1)}")
    between = ThreadPoolExecutor(1 + len(probes), thread_name_prefix="between")
    prepared: list[Future[None]] = []
    for probe in probes:
        if probe is stacks:  # it waits for programs, which leaves time for something else
            prepared.append(between.submit(_prepare, observation, meanwhile))
        attempt(observation, probe.name, probe.open)
    if options.shorten and recorders.are_of_gloo(observation):
        rest_since = probe_of(probes, CpuClocks).rest_since(observation)
        if rest_since is not None and began - rest_since >= observation.window:
            observation.window = min(observation.window, _SHORTEST_WINDOW)
    # In turns: threads that use the processor at the same time interrupt each other at every system call. But a probe that
    # takes long does not hold up the others, and one that does not return (a dead mount) is abandoned and reported.
    turns = Deadline(max(_TURNS_SECONDS, _TURNS_SHARE * observation.window))
    wait(prepared, min(_TURN_SECONDS, turns.remaining()))
    running = {}
    for probe in probes:
        running[probe.name] = between.submit(attempt, observation, probe.name, probe.during)
        wait([running[probe.name]], min(_TURN_SECONDS, turns.remaining()))
    pause = (
        min(observation.window, observation.deadline.remaining()) - stacks.lead_seconds() - (time.monotonic() - began)
    )
    progress(f"watching for {observation.window:g} s whether anything moves")
    time.sleep(max(0.0, pause))
    paused_until = time.monotonic()
    wait([running[recorders.name]], _RECORD_SECONDS)  # it tells since when a rank is in its call
    moving = recorders.find_moving(observation, observation.ranks())
    stopped = settling.wait_until_settled(
        observation,
        frozenset(pid for pid, moved in moving.items() if moved),
        partial(recorders.count_calls, observation),
    )
    extra = time.monotonic() - paused_until
    grace = Deadline(_grace_seconds(observation))
    for name, job in running.items():
        try:
            job.result(grace.remaining())
        except FutureTimeout:
            observation.late.append(
                f"the {name} probe was abandoned: it had not ended {grace.seconds:.0f} s after the window"
            )
    between.shutdown(wait=False)
    # Stacks take longest, so they are read first. The clocks are read last, exactly at the end of the window.
    for probe in in_closing_order(probes):
        if isinstance(probe, CpuClocks):
            time.sleep(
                max(0.0, min(observation.deadline.remaining(), began + observation.window + extra - time.monotonic()))
            )
        guard.run(observation, probe.name, probe.close, observation.deadline.remaining() + _MIN_SECONDS)
    ended_us, observation.ended = time.time_ns() // 1000, time.monotonic()
    gathered: dict[int | None, dict[str, Any]] = {}
    for probe in probes:
        left = observation.deadline.remaining() + _MIN_SECONDS
        for pid, field, value in guard.run(observation, probe.name, evidence_of(probe), left) or ():
            gathered.setdefault(pid, {})[field] = value
    guard.end()
    for pid, native in (attempt(observation, "native stacks", lambda o: native_stacks.read(o, gathered)) or {}).items():
        gathered.setdefault(pid, {})["native"] = native
    sources = Sources(observation.proc)
    for pid, record in (
        attempt(observation, "call sites", lambda o: annotate_calls(o, sources, gathered)) or {}
    ).items():
        gathered[pid]["recorder"] = record
    gathered.setdefault(None, {})["ras"] = attempt(observation, "RAS", lambda o: read_ras(o, gathered)) or ()
    return gathered, ended_us, stopped


def _prepare(observation: Observation, meanwhile: Callable[[], None]) -> None:
    """Do meanwhile what would take time afterwards."""
    meanwhile()
    prepare_redaction(observation)


def prepare_redaction(observation: Observation) -> None:
    """Do in the window what would take time after it: what is kept of variables is remembered by their names, and the table of
    settings takes 20 ms to compile."""
    environments = (target.environment for target in observation.targets.values())
    for name in {name for variables in environments if isinstance(variables, dict) for name in variables}:
        redact.variable(name, "x")


def _make_process(observation: Observation, target: Target, evidence: dict[str, Any]) -> Process:
    """One process with its evidence, and with the integers that are in both readings."""
    counted: tuple[Counter, ...] = ()
    before, after = evidence.get("stack_before", _NOT_LOOKED_AT), evidence.get("stack", _NOT_LOOKED_AT)
    if target.role == "rank":
        counted = counters(before, after, evidence.get("interpreter", _NOT_LOOKED_AT))
    if isinstance(before, Stack) and isinstance(after, Stack):
        evidence = {**evidence, "stack_before": with_later_frames(before, after)}
    return process(observation, target, evidence, counted)


def each_process(observation: Observation, build: Callable[[Target], Process]) -> tuple[Process, ...]:
    """`build` of every target, by pid, with what is searched in the rest of the host. A process that spoils its evidence stays
    without it; one whose searches take too long stays without what they would have found."""
    targets = [observation.targets[pid] for pid in sorted(observation.targets)]
    processes: dict[int, Process] = {}
    for pid, result in observation.read_each(targets, build, always=True).items():
        if isinstance(result, Unavailable):
            observation.problems.append(f"the evidence of pid {pid}: {result.reason}")
            result = _make_bare_process(observation, observation.targets[pid], result)
        processes[pid] = result
    searched = observation.search_each(
        targets, lambda target: _with_others(observation, target, processes[target.pid]), _SEARCH_SECONDS
    )
    for pid, result in searched.items():
        if not isinstance(result, Unavailable):
            processes[pid] = result
        elif not is_share_taken(result.reason):
            observation.late.append(f"pid {pid}: {result.reason}")
    return tuple(processes[pid] for pid in sorted(processes))


def _make_bare_process(observation: Observation, target: Target, why: Unavailable) -> Process:
    """A process with nothing but what its discovery found."""
    return Process(
        **_discovered_fields(observation, target),
        state=target.state,
        environment=why,
        stack=why,
        stack_before=why,
    )


def _discovered_fields(observation: Observation, target: Target) -> dict[str, Any]:
    """What discovery found of a process, by field of Process."""
    return {
        "pid": target.pid,
        "ppid": target.ppid,
        "role": target.role,
        "name": target.name,
        "argv": target.argv,
        "parent_argv": target.parent_argv,
        "started_seconds_ago": age(observation.proc, target.start_ticks),
        "identity": target.identity,
        "launch": target.launch,
        "uid": target.uid,
        "namespaces": target.namespaces,
        "owner": target.owner,
        "launcher_gone": target.launcher_gone,
        "whole_tree": target.whole_tree,
        "unreadable_below": target.unreadable_below,
    }


def process(
    observation: Observation, target: Target, evidence: dict[str, Any], counted: tuple[Counter, ...]
) -> Process:
    """A process with its evidence (by field) and with what is read from /proc now. What can't be read keeps its default."""
    proc, pid = observation.proc, target.pid
    fields = _discovered_fields(observation, target)
    try:
        owner, resident = proc.fields(str(pid), "Uid", "VmRSS")
        fields["uid"] = int((owner or "").split()[0])
        fields["resident_bytes"] = int(resident.split()[0]) * 1024 if resident is not None else None
    except (ProcError, ValueError, IndexError):
        pass
    end = evidence.pop("at_end", None)
    state = target.state
    if isinstance(end, KernelState):
        state = end.state
        fields |= {"tracer_pid": end.tracer_pid, "tracer": end.tracer, "frozen": end.frozen}
    try:
        stat = proc.stat(str(pid))
        if stat.start_ticks == target.start_ticks and stat.state in "ZX":
            state = stat.state
            fields["exit_code"] = stat.exit_code
    except ProcError:
        state = "X"
    with contextlib.suppress(ProcError):
        fields["cwd"] = proc.link(f"{pid}/cwd")
    fields["namespaces"] = read_namespaces(proc, pid) or target.namespaces
    environment = target.environment
    progress = evidence.pop("progress", Progress(counters=()))
    if isinstance(progress, Progress):
        progress = msgspec.structs.replace(progress, counters=counted)
    return Process(
        state=state,
        environment=environment if isinstance(environment, Unavailable) else Environment(variables=environment),
        progress=progress,
        **fields,
        **evidence,
    )


def _with_others(observation: Observation, target: Target, process: Process) -> Process:
    """A process with those for which it waits, or which may end its wait: they are searched on the whole host."""
    proc, pid, stack, clocks = observation.proc, target.pid, process.stack, process.clocks
    if not isinstance(stack, Stack) or not isinstance(clocks, Clocks):
        return process
    of_runs = frozenset(member.pid for member in observation.targets.values() if member.role in ("rank", "launcher"))
    is_rank = target.role == "rank"
    clocks = awaited_processes.named(
        proc, pid, clocks, stack, of_runs, inherited=is_rank, since=target.last_run if is_rank else None
    )
    fields: dict[str, Any] = {"clocks": clocks}
    if is_rank:
        module = process.interpreter.globals if isinstance(process.interpreter, Interpreter) else ()
        polled = lock_files.polled(proc, pid, target.start_ticks, stack, clocks, module)
        fields["polled_lock"] = awaited_processes.with_lock(proc, pid, polled, of_runs)
        others = awaited_processes.beside(proc, pid, clocks, stack, of_runs, polled, process.recorder)
        fields["others_at_work"] = tuple(other for other in others if other.works)
        fields["others_asleep"] = tuple(other for other in others if other.sleeps)
        fields["others_stopped"] = tuple(other for other in others if other.state == "T" and not other.works)
        fields["ray_tasks"] = awaited_processes.tasks_beside(proc, pid, stack, of_runs, observation.ended)
        fields["others_in_memory"] = awaited_processes.sharing_memory(proc, pid, clocks, stack, of_runs)
        fields["arrival"] = newest_files.newest(proc, pid, target.start_ticks, target.argv, stack, clocks)
    elif target.role == "launcher" and target.launch is None:
        fields["others_stopped"] = processes_at_work.stopped(proc, pid, of_runs)
    if target.role in ("rank", "launcher"):
        starting = awaited_processes.starting_beside(proc, pid, stack, of_runs)
        fields["others_at_work"] = fields.get("others_at_work") or starting
    return msgspec.structs.replace(process, **fields)
