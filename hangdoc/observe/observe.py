"""Runs all probes across one window, under one deadline, and puts what they saw into a Snapshot."""

import datetime
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import msgspec

from hangdoc import redact
from hangdoc.observe import naps, natives
from hangdoc.observe.clocks import CpuClocks
from hangdoc.observe.control_groups import ControlGroups
from hangdoc.observe.data import TrainingData
from hangdoc.observe.deadline import Deadline
from hangdoc.observe.discover import Scope, discover
from hangdoc.observe.flight_recorder import FlightRecorders
from hangdoc.observe.holds import Holds
from hangdoc.observe.interpreter import InterpreterState
from hangdoc.observe.machine import HostMachine
from hangdoc.observe.observation import Observation, Probe, ProbeResult, Target
from hangdoc.observe.procfs import ProcError, ProcFS, age
from hangdoc.observe.progress import Beacons, counters
from hangdoc.observe.sockets import Sockets
from hangdoc.observe.stacks import Stacks
from hangdoc.observe.storage import Storage
from hangdoc.snapshot import Counter, Environment, Host, KernelState, Process, Progress, Snapshot, Unavailable
from hangdoc.version import __version__

# A new probe is one file and one line here. Clocks come first: they are read at the window's very ends.
PROBES: tuple[Callable[[], Probe], ...] = (
    CpuClocks,
    Holds,
    ControlGroups,
    Beacons,
    Storage,
    Stacks,
    Sockets,
    InterpreterState,
    FlightRecorders,
    TrainingData,
    HostMachine,
)


_LATE_SECONDS = 8.0
"""What a probe may take beyond the window on a machine that is not overloaded; one that takes longer is left behind."""
_MOST_LOAD = 3.0
_SHARE_OF_NAPS = 0.25
"""Of the time that is left, what may be spent on waiting for sleeping processes."""
_SHARE_BETWEEN = 0.7
"""Of the time for the whole look, when the second half of it must begin."""
_LEAST_SECONDS = 0.5


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to look. Times in seconds; `native` is `auto`, `never` or `always`."""

    window: float = 1.0
    timeout: float = 30.0
    native: str = "auto"
    pids: tuple[int, ...] = ()
    run_of: int | None = None
    slurm_job: str | None = None
    """See hangdoc.observe.discover.Scope."""
    locals: redact.Locals = "used"
    """Which texts of variables are kept."""

    @property
    def scope(self) -> Scope:
        """Which ranks to look at."""
        return Scope(pids=self.pids, run_of=self.run_of, slurm_job=self.slurm_job)


def observe(
    options: Options,
    progress: Callable[[str], None] = lambda text: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Look at this host once. Never raises for what it can't see.

    `progress` is told what is being looked at; `meanwhile` is called once in the window, beside the probes, for what
    the caller has to do anyway. Whoever looks again and again uses hangdoc.observe.polling.
    """
    deadline = Deadline(options.timeout)
    proc = ProcFS()
    taken_at = datetime.datetime.now(datetime.UTC)
    progress("looking for ranks")
    found = discover(proc, deadline, options.scope)
    pool = ThreadPoolExecutor(16, thread_name_prefix="hangdoc")
    observation = Observation(
        proc=proc,
        deadline=deadline,
        window=options.window,
        native=options.native,
        targets=found.targets,
        pool=pool,
        problems=list(found.problems),
    )
    evidence: dict[int | None, dict[str, Any]] = {}
    if observation.targets:
        try:
            evidence = _run(observation, progress, meanwhile)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    host = Host(
        name=socket.gethostname(),
        taken_at=taken_at.isoformat(timespec="milliseconds"),
        window_seconds=options.window,
        elapsed_seconds=round(deadline.elapsed(), 3),
        processes=tuple(
            _looked_at(observation, target, evidence.get(pid, {}))
            for pid, target in sorted(observation.targets.items())
        ),
        problems=tuple(dict.fromkeys([*observation.problems, *not_read(deadline)])),
        machine_id=machine_id(proc),
        restricted=found.restricted,
        **evidence.get(None, {}),
    )
    return redact.snapshot(Snapshot(hangdoc=__version__, hosts=(host,)), options.locals)


def not_read(deadline: Deadline) -> list[str]:
    """One sentence each: what there was no time for."""
    missed = deadline.missed()
    return [f"{text}; give the look more time with --timeout" for text in missed]


def _late(observation: Observation) -> float:
    """How long to wait for a probe after the window: longer where everything waits for a processor."""
    load = min(_MOST_LOAD, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
    deadline = observation.deadline
    return min(_LATE_SECONDS * load, max(0.0, _SHARE_BETWEEN * deadline.seconds - deadline.elapsed()))


def machine_id(proc: ProcFS) -> str | None:
    """The same for one machine under two names, another for each container on it."""
    try:
        return f"{proc.text('sys/kernel/random/boot_id').strip()} {proc.link('self/ns/pid')}"
    except ProcError:
        return None


def _run(
    observation: Observation,
    progress: Callable[[str], None],
    meanwhile: Callable[[], None],
) -> dict[int | None, dict[str, Any]]:
    """Open all probes, let them work through the window, close them, and gather their evidence."""
    stacks = Stacks()
    probes: list[Probe] = [stacks if make is Stacks else make() for make in PROBES]
    began = time.monotonic()
    ranks = len(observation.ranks())
    progress(f"reading {ranks} rank{'s' * (ranks != 1)}")
    for probe in probes:
        _guarded(observation, probe, probe.open)
    # In between, side by side. One that does not come back (a dead mount) is left behind, and said.
    between = ThreadPoolExecutor(len(probes), thread_name_prefix="between")
    observation.pool.submit(meanwhile)
    running = {probe.name: between.submit(_guarded, observation, probe, probe.during) for probe in probes}
    pause = (
        min(observation.window, observation.deadline.remaining()) - stacks.lead_seconds() - (time.monotonic() - began)
    )
    progress(f"watching for {observation.window:g} s whether anything moves")
    time.sleep(max(0.0, pause))
    longer = min(naps.until_awake(observation), observation.deadline.remaining() * _SHARE_OF_NAPS)
    time.sleep(longer)
    patience = Deadline(_late(observation))
    for name, job in running.items():
        try:
            job.result(patience.remaining())
        except FutureTimeout:
            observation.problems.append(
                f"the {name} probe was left behind: it had not ended {patience.seconds:.0f} s after the window"
            )
    between.shutdown(wait=False)
    aside = _Aside()
    # Stacks take longest, so they go first; the clocks are read last, when the window ends.
    for probe in sorted(probes, key=lambda p: (not isinstance(p, Stacks), isinstance(p, CpuClocks))):
        if isinstance(probe, CpuClocks):
            time.sleep(
                max(0.0, min(observation.deadline.remaining(), began + observation.window + longer - time.monotonic()))
            )
        aside.in_time(observation, probe, probe.close)
    gathered: dict[int | None, dict[str, Any]] = {}
    for probe in probes:
        for pid, field, value in aside.in_time(observation, probe, _evidence_of(probe)) or ():
            gathered.setdefault(pid, {})[field] = value
    aside.close()
    try:
        for pid, native in natives.take(observation, gathered, {}).items():
            gathered.setdefault(pid, {})["native"] = native
    except Exception as error:
        observation.problems.append(f"native stacks failed ({type(error).__name__}: {error}): please report it")
    return gathered


def _evidence_of(probe: Probe) -> Callable[[Observation], list[ProbeResult]]:
    return lambda observation: list(probe.evidence(observation))


class _Aside:
    """A thread beside ours, for what may not come back; one that is left behind gets a successor."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def in_time(self, observation: Observation, probe: Probe, action: Callable[[Observation], Any]) -> Any:
        """As `_guarded`, and one that does not end in time is left behind."""
        self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="aside")
        try:
            job = self._pool.submit(_guarded, observation, probe, action)
            return job.result(observation.deadline.remaining() + _LEAST_SECONDS)
        except FutureTimeout:
            observation.problems.append(
                f"the {probe.name} probe was left out: no time was left; give the look more with --timeout"
            )
            self.close()
            return None

    def close(self) -> None:
        """Nothing more comes."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None


def _guarded(observation: Observation, probe: Probe, action: Callable[[Observation], Any]) -> Any:
    """The action's result; a probe that raises becomes a problem, not a dead run."""
    try:
        return action(observation)
    except Exception as error:
        observation.problems.append(
            f"the {probe.name} probe failed ({type(error).__name__}: {error}): please report it"
        )
        return None


def _looked_at(observation: Observation, target: Target, evidence: dict[str, Any]) -> Process:
    """Everything about one process, with the integers that both looks have in common."""
    found: tuple[Counter, ...] = ()
    if target.role == "rank":
        unavailable = Unavailable(reason="not looked at")
        found = counters(
            evidence.get("stack_before", unavailable),
            evidence.get("stack", unavailable),
            evidence.get("interpreter", unavailable),
        )
    return process(observation, target, evidence, found)


def process(
    observation: Observation, target: Target, evidence: dict[str, Any], counted: tuple[Counter, ...]
) -> Process:
    """A process with its evidence, by the names of the fields, and what can be asked at any time; what it refuses stays at its
    default."""
    proc, pid = observation.proc, target.pid
    facts: dict[str, Any] = {}
    try:
        owner, resident = proc.fields(str(pid), "Uid", "VmRSS")
        facts["uid"] = int((owner or "").split()[0])
        facts["resident_bytes"] = int(resident.split()[0]) * 1024 if resident is not None else None
    except (ProcError, ValueError, IndexError):
        pass
    end = evidence.pop("at_end", None)
    state = target.state
    if isinstance(end, KernelState):
        state = end.state
        facts |= {"tracer_pid": end.tracer_pid, "tracer": end.tracer, "frozen": end.frozen}
    try:
        stat = proc.stat(str(pid))
        if stat.start_ticks == target.start_ticks and stat.state in "ZX":
            state = stat.state
            facts["exit_code"] = stat.exit_code
    except ProcError:
        state = "X"
    try:
        facts["cwd"] = proc.link(f"{pid}/cwd")
        facts["namespaces"] = {name: proc.link(f"{pid}/ns/{name}") for name in ("net", "pid", "mnt")}
    except ProcError:
        pass
    environment = target.environment
    progress = evidence.pop("progress", Progress(counters=()))
    if isinstance(progress, Progress):
        progress = msgspec.structs.replace(progress, counters=counted)
    return Process(
        pid=pid,
        ppid=target.ppid,
        role=target.role,
        name=target.name,
        argv=target.argv,
        state=state,
        started_seconds_ago=age(proc, target.start_ticks),
        identity=target.identity,
        launch=target.launch,
        owner=target.owner,
        launcher_gone=target.launcher_gone,
        whole_tree=target.whole_tree,
        unreadable_below=target.unreadable_below,
        environment=environment if isinstance(environment, Unavailable) else Environment(variables=environment),
        progress=progress,
        **facts,
        **evidence,
    )
