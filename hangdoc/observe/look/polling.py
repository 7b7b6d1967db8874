"""Observes this host repeatedly: clocks, sockets and states at each poll, stacks and memory only when they may be new.

The stack of a rank that has not run since the last reading is still current, so hangdoc does not attach to it. A rank that has
just stopped running is read at once, so that a freeze is reported within seconds. A rank whose record of calls has counted
since the previous poll makes progress: only its memory is read, and it is never paused. Other moving ranks are read
in turns, for a bounded share of a core; older readings carry their age (`Process.deep_seconds_ago`, and
`Process.counted_seconds_ago` where the last reading was that the rank made calls). If no bytes pass between the
ranks but some ranks still run (they poll or spin), all of them are read at every poll, so that their stacks are of one moment.
Such polls cost more, and the caller paces them.
"""

import datetime
import resource
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from hangdoc import redact
from hangdoc.observe.access import isolation
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.find.membership import Membership
from hangdoc.observe.gpu.cards import GpuCards
from hangdoc.observe.gpu.kernel_log import KernelLog
from hangdoc.observe.gpu.ras import PolledRas
from hangdoc.observe.kernel.clocks import CpuClocks, Threads
from hangdoc.observe.kernel.machine import machine, swapped
from hangdoc.observe.kernel.sockets import Sockets
from hangdoc.observe.kernel.storage import Storage
from hangdoc.observe.look import settling
from hangdoc.observe.look.deep_reader import DeepReader
from hangdoc.observe.look.glance import Glance
from hangdoc.observe.look.observe import (
    Options,
    each_process,
    machine_id,
    monotonic_at,
    not_read,
    prepare_redaction,
    process,
)
from hangdoc.observe.look.probes import Guard, evidence_of, in_closing_order, make_polled_probes, probe_of
from hangdoc.observe.stacks import native_stacks
from hangdoc.observe.stacks.call_sites import annotate_calls
from hangdoc.observe.stacks.python_stacks import (
    COUNTS,
    find_relevant_threads,
    has_run,
    helpers_of,
    no_stack_reason,
    waits_for_a_child,
    works_without_helpers,
)
from hangdoc.observe.stacks.source import Sources
from hangdoc.observe.torch.flight_recorder import FlightRecorders
from hangdoc.observe.torch.loops import TrainingLoops
from hangdoc.observe.torch.recorded_progress import has_counted, has_just_called, may_hang, rests_on_card
from hangdoc.observe.torch.stores import Stores
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Clocks, Host, Loops, Machine, Process, Snapshot, Stack, Unavailable
from hangdoc.version import __version__

_MOVING_SHARE = 0.02
"""Share of a core for reading moving processes, in turns."""
_OFF_CPU_SHARE = 0.02
"""Share of a core for reading processes that have stopped running. It is saved up, because often all stop at the same time."""
_SWEEP_SECONDS = 0.5
"""CPU that reading all moving ranks of a silent run may cost at one poll."""
_SAVED_SECONDS = 0.5
"""CPU that may be saved up for moving processes. With a poll every 15 s, this is enough to read most ranks at each poll."""
_QUIET_POLLS = 2
"""A run is silent after this number of polls without bytes between its ranks; after one, if polls are far apart."""
_NATIVE_SECONDS = 4.0
"""A rank is paused for its C++ frames only after its run has been silent for this time."""
_READ_SECONDS = 0.04
"""Estimated CPU for reading one process, until it has been measured."""
_SOCKETS_SHARE = 0.01
"""Share of a core for reading the sockets of runs that make calls."""
_MACHINE_SECONDS = 10.0
_LONGEST_WINDOW = 3.0
"""After a longer gap between two polls, a new window begins: over minutes, every process has moved a little."""
_FIRST_WINDOW = 0.25
"""The first poll shows what there is. Those after it tell what has moved."""
_JUST_SECONDS = 1.0
"""A rank whose last call is not older is taken to move until the first window has shown whether it does."""
_NOT_NEEDED = Unavailable(reason="not needed")
_ACTION_SECONDS, _ACTION_WINDOWS = 5.0, 2
"""What one action of a probe may take: a poll is late then, but shows the others."""
_T = TypeVar("_T")
_IDLE = 0.10
"""A rank that only polls uses less than this share of a core."""


class Polling:
    """Polls this host. One thread calls `look` repeatedly; the window of a poll is the time since the previous poll."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._proc = ProcFS()
        self._membership = Membership(self._proc, options.scope)
        self._observation = Observation(
            proc=self._proc,
            deadline=Deadline(options.timeout),
            window=options.window,
            native=options.native,
            targets={},
            ras=options.ras,
        )
        self._guard = Guard()
        self._probes = in_closing_order(make_polled_probes())
        self._clocks, self._sockets = probe_of(self._probes, CpuClocks), probe_of(self._probes, Sockets)
        self._recorders = probe_of(self._probes, FlightRecorders)
        probe_of(self._probes, Storage).find_counting = self._find_counting
        self._glance = Glance(self._recorders)
        self._loops, self._stores, self._sources = TrainingLoops(), Stores(), Sources(self._proc)
        self._clocks_of_loops: dict[int, Threads] = {}
        """The clocks of each rank when its loops were read, by pid."""
        self._ras = PolledRas()
        self._deep = DeepReader(self._clocks)
        self._budget = _Budget()
        self._ended: float | None = None
        """Monotonic time at which the last window ended."""
        self._wall_us: int | None = None
        """The host's wall clock then, as `Host.wall_us`."""
        self._silent: dict[str, tuple[int, float]] = {}
        """By run: for how many polls, and since when (monotonic), no byte has passed between its ranks."""
        self._sockets_kept = False
        """Whether this poll has the sockets of an earlier one."""
        self._after_gap = False
        """Whether the last poll was so long ago that a new window began."""
        self._just_read: set[int] = set()
        """Processes whose stack and memory were read in this poll."""
        self._machine: tuple[float, Machine | Unavailable] = (float("-inf"), Unavailable(reason="not looked at"))
        self._swapped: int | None = None

    def look(self) -> Snapshot:
        """One poll. Never raises: the snapshot has reasons for what can't be read. Waits until `Options.window` seconds have
        passed since the last poll: in a shorter window, a working rank would look frozen. The first poll comes earlier,
        if no rank sleeps: a loop with a sleep in it makes progress only after that."""
        observation = self._observation
        observation.deadline = deadline = Deadline(self._options.timeout)
        observation.problems, observation.late = [], []
        first = self._ended is None
        ago = time.monotonic() - self._ended if self._ended is not None else 0.0
        self._after_gap = ago > max(_LONGEST_WINDOW, 2 * self._options.window)
        window = min(self._options.window, _FIRST_WINDOW) if first else self._options.window
        if self._ended is None or self._after_gap:
            self._start_window(deadline)
            if settled := settling.seconds_until_settled(observation):
                window = max(window, time.monotonic() - (self._ended or 0.0) + settled)
            if first:
                prepare_redaction(observation)
        assert self._ended is not None  # noqa: S101
        began = self._ended
        time.sleep(max(0.0, began + window - time.monotonic()))
        new = self._update_targets(deadline)
        self._recorders.whole = first  # what happened before hangdoc came is asked once
        for probe in self._probes:
            if probe is self._sockets:
                self._read_sockets(observation, changed=bool(new) or self._after_gap or first)
            else:
                self._guarded(probe.name, probe.close, observation)
        self._ended = observation.ended = time.monotonic()
        self._wall_us = time.time_ns() // 1000
        # Right after the clocks: those tell which ranks are still where they were.
        read = self._guarded(self._loops.name, self._read_loops, observation) or {}
        gathered = self._gather_cheap_evidence()
        for pid, loops in read.items():
            gathered.setdefault(pid, {})["loops"] = loops
        self._just_read = set()
        self._read_deep(gathered, new)
        if self._silent:  # only ranks that wait need to know for what
            for pid, stores in (self._guarded(self._stores.name, self._stores.poll, observation) or {}).items():
                gathered.setdefault(pid, {})["stores"] = stores
            sites = self._guarded("call sites", lambda o: annotate_calls(o, self._sources, gathered), self._observation)
            for pid, record in (sites or {}).items():
                gathered[pid]["recorder"] = record
        ras = self._guarded("RAS", lambda s: self._ras.poll(s, lambda: self._with_deep(gathered)), observation)
        gathered.setdefault(None, {})["ras"] = ras or ()
        snapshot = self._make_snapshot(began, gathered)
        resting = self._find_resting(observation)
        for probe in self._probes:
            probe.start_next_window(observation)
        self._glance.begin(observation, self._ended - began, resting)
        return snapshot

    def confirms(self) -> bool | None:
        """Whether what the last look has shown of the ranks is still so: each has made a call since then, or since this was asked
        last, or none has run. None if that can't be told without a look. It costs a small part of one."""
        self._observation.deadline = Deadline(self._options.timeout)
        return self._guarded("a glance", self._glance.confirms, self._observation)

    def close(self) -> None:
        """End the polling: release its sockets and the kernel log, and end its threads and the child that asks for the cards."""
        self._guard.end()
        self._sockets.release()
        probe_of(self._probes, GpuCards).release()
        probe_of(self._probes, KernelLog).release()

    # --- targets ---------------------------------------------------------------------------------------------------------

    def _start_window(self, deadline: Deadline) -> None:
        """Begin a new window: the first one, or one after a long gap."""
        self._update_targets(deadline)
        for probe in self._probes:
            if probe is self._sockets:  # their owners are looked up at the end of the window
                self._guarded(probe.name, probe.open, self._observation)
                continue
            self._guarded(probe.name, probe.close, self._observation)
            probe.start_next_window(self._observation)
        self._swapped = swapped(self._proc)
        self._ended = time.monotonic()
        self._guarded(self._loops.name, self._read_loops, self._observation)
        first = [
            t
            for t in self._observation.ranks()
            if t.python and t.state not in "ZX" and t.pid not in self._deep.readings
        ]
        at_rest = {t.pid for t in first if t.at_rest}
        # Whether these count is known at the end of the window.
        counting = {
            pid
            for pid, _, record in self._recorders.evidence(self._observation)
            if pid not in at_rest and has_just_called(record, _JUST_SECONDS)
        }
        self._deep.read(self._observation, [t for t in first if t.pid not in counting], at_rest)

    def _update_targets(self, deadline: Deadline) -> set[int]:
        """Add processes that have started and drop those that have ended. Returns the pids of new processes."""
        observation = self._observation
        new = self._membership.refresh(deadline)
        observation.targets = self._membership.targets
        observation.problems += self._membership.discovered.problems
        observation.forget_images(new)
        self._deep.drop_ended(observation, new)
        if new:
            part = observation.part(new & observation.targets.keys())
            for probe in self._probes:
                if probe is not self._sockets or self._ended is None:
                    self._guarded(probe.name, probe.open, part)
        return new

    # --- readings --------------------------------------------------------------------------------------------------------

    def _gather_cheap_evidence(self) -> dict[int | None, dict[str, Any]]:
        """The results of the cheap probes in this window."""
        evidence: dict[int | None, dict[str, Any]] = {}
        for probe in self._probes:
            for pid, name, value in self._guarded(probe.name, evidence_of(probe), self._observation) or ():
                if pid is None or pid in self._observation.targets:
                    evidence.setdefault(pid, {})[name] = value
        return evidence

    def _read_sockets(self, observation: Observation, *, changed: bool) -> None:
        """Read the sockets. If each rank has made a call in the window, the runs move, whatever the sockets say, and many ranks
        have thousands: then the last reading is kept until another one is affordable. `changed`: there may be new processes."""
        ranks, counted = observation.ranks(), self._find_counting(observation)
        moves = bool(ranks) and all(target.pid in counted for target in ranks)
        self._sockets_kept = moves and not changed and not self._sockets.is_affordable(_SOCKETS_SHARE)
        if not self._sockets_kept:
            self._guarded(self._sockets.name, self._sockets.close, observation)

    def _find_counting(self, observation: Observation) -> set[int]:
        """The ranks that have made a call in the window."""
        records = self._recorders.evidence(observation)
        return {pid for pid, _, record in records if pid is not None and has_counted({"recorder": record})}

    def _read_loops(self, observation: Observation) -> dict[int, Loops | Unavailable]:
        """The loops of all ranks. Only those whose main thread has run since they were read are read again."""
        now = {target.pid: self._clocks.readings(target.pid)[1] for target in observation.ranks()}
        before = self._clocks_of_loops
        ran = [pid for pid in now if pid not in before or has_run(pid, _NOT_NEEDED, before[pid], now[pid])]
        loops = self._loops.poll(observation, ran, self._ended or time.monotonic())
        read = {pid: now[pid] for pid in self._loops.just_read}
        self._clocks_of_loops = {pid: clocks for pid, clocks in (before | read).items() if pid in now}
        return loops

    def _read_deep(self, gathered: dict[int | None, dict[str, Any]], new: set[int]) -> None:
        """Read stack and memory of the processes where they may be new, within the budget."""
        observation, used = self._observation, cpu_seconds()
        counting = {t.pid for t in observation.ranks() if has_counted(gathered.get(t.pid, {}))}
        for pid in counting:
            self._deep.drop_stack(pid)
        wanted = self._list_readable()
        off_cpu = {t.pid for t in wanted if t.pid not in new | counting and self._was_off_cpu(t.pid)}
        due = [t for t in wanted if t.pid not in counting and self._is_due(t.pid)]
        self._update_silence(gathered, wanted, off_cpu, counting)
        self._deep.read_memory(observation, [t for t in wanted if t.pid in counting])
        chosen = {t.pid: t for t in due if t.pid not in self._deep.readings}
        chosen |= {t.pid: t for t in due if t.pid in off_cpu and self._budget.spend_on_off_cpu(len(wanted))}
        moving = sorted((t for t in due if t.pid not in off_cpu and t.pid not in chosen), key=self._read_at)
        needed = 1 if self._after_gap else _QUIET_POLLS
        silent = [t for t in moving if t.role != "launcher" and self._silence(t)[0] >= needed]
        if len(silent) * self._budget.cost_each <= _SWEEP_SECONDS:
            chosen |= {t.pid: t for t in silent}
        alone = not any(t.role == "rank" for t in wanted)
        for target in moving:  # a launcher always polls, and matters only if it has no rank
            turn = target.role != "launcher" and target.pid not in chosen
            if alone or (turn and self._budget.spend_on_moving()):
                chosen[target.pid] = target
        if chosen:
            self._deep.read(observation, chosen.values(), off_cpu)
            self._budget.measure(len(chosen), cpu_seconds() - used)
            self._just_read = set(chosen)
        self._read_natives(gathered, {*chosen, *(pid for pid in off_cpu if not self._is_due(pid))})
        for pid in chosen:
            gathered.setdefault(pid, {})["clocks"] = self._clocks.across(observation, pid)

    def _list_readable(self) -> list[Target]:
        """The processes worth reading: ranks, launchers, and the helpers that a rank waits for."""
        observation = self._observation
        readable = [t for t in observation.alive() if t.python and t.role != "helper"]
        for rank in observation.ranks():
            readings = self._deep.readings.get(rank.pid)
            if readings is not None and waits_for_a_child(observation, rank, readings.stack):
                readable += helpers_of(observation, rank)
        return readable

    def _was_off_cpu(self, pid: int) -> bool:
        """Whether the process has not run in the window."""
        readings, (first, second) = self._deep.readings.get(pid), self._clocks.readings(pid)
        if readings is None:  # by its main thread alone; the reading of its stack tests the other threads
            return not has_run(pid, _NOT_NEEDED, first, second)
        return readings.was_off_cpu(first, second)

    def _find_resting(self, observation: Observation) -> dict[int, Threads]:
        """If neither a rank nor a helper that a rank may need ran in the window: the relevant threads of each, by pid. Otherwise
        empty."""
        stacks = {pid: readings.stack for pid, readings in self._deep.readings.items()}
        ranks = [target for target in observation.alive() if target.role == "rank"]
        if any(rank.pid not in stacks or not self._was_off_cpu(rank.pid) for rank in ranks):
            return {}
        alone = {rank.pid for rank in ranks if works_without_helpers(observation, rank, stacks[rank.pid])}
        helpers = [target for target in observation.alive() if target.role == "helper" and target.owner not in alone]
        if not all(self._was_off_cpu(helper.pid) for helper in helpers):
            return {}
        resting = {}
        for target in (*ranks, *helpers):
            threads = self._clocks.readings(target.pid)[1]
            relevant = find_relevant_threads(target.pid, stacks.get(target.pid, _NOT_NEEDED), threads)
            resting[target.pid] = {tid: threads[tid] for tid in relevant}
        return resting

    def _is_due(self, pid: int) -> bool:
        readings = self._deep.readings.get(pid)
        return readings is None or readings.out_of_date(self._clocks.readings(pid)[1])

    def _is_current(self, pid: int) -> bool:
        """Whether the last reading of the process is valid for the whole window."""
        readings = self._deep.readings.get(pid)
        if readings is None:
            return False
        return readings.off_cpu if pid in self._just_read else not self._is_due(pid)

    def _read_at(self, target: Target) -> float:
        readings = self._deep.readings.get(target.pid)
        return readings.read_at if readings is not None else float("-inf")

    def _run_of(self, target: Target) -> str:
        """A key for the run of a process: equal for its ranks and their helpers."""
        rank = self._observation.targets.get(target.owner or 0, target) if target.role == "helper" else target
        return rank.run

    def _silence(self, target: Target) -> tuple[int, float]:
        return self._silent.get(self._run_of(target), (0, 0.0))

    def _update_silence(
        self, gathered: native_stacks.Gathered, wanted: list[Target], off_cpu: set[int], counting: set[int]
    ) -> None:
        """Update which runs are silent: no byte passes between their ranks, none of them makes a call, and some ranks
        do not run or all are idle."""
        runs: dict[str, list[Target]] = {}
        for target in self._observation.ranks():
            runs.setdefault(self._run_of(target), []).append(target)
        moved, readable = native_stacks.moved_bytes(gathered), {t.pid for t in wanted}
        earlier, self._silent = self._silent, {}
        for run, ranks in runs.items():
            living = [t.pid for t in ranks if t.pid in readable]
            window = self._observation.window
            spinning = {pid for pid in living if rests_on_card(gathered.get(pid, {}), window)}
            idle = all(pid in spinning or self._cpu_share(gathered, pid) < _IDLE for pid in living)
            held = any(t.held or t.state in "ZX" for t in ranks)
            if not (moved | counting) & set(living) and (idle or held or (off_cpu | spinning) & set(living)):
                polls, since = earlier.get(run, (0, time.monotonic()))
                self._silent[run] = (polls + 1, since)

    def _cpu_share(self, gathered: native_stacks.Gathered, pid: int) -> float:
        clocks = gathered.get(pid, {}).get("clocks")
        if not isinstance(clocks, Clocks) or clocks.window_seconds <= 0:
            return 1.0
        return max((t.cpu_ns for t in clocks.threads), default=0) / 1e9 / clocks.window_seconds

    def _read_natives(self, gathered: dict[int | None, dict[str, Any]], current: set[int]) -> None:
        """Read the C++ frames of ranks whose Python stack does not show the operation, if their run is silent for long enough."""
        if self._options.native == "never":
            self._deep.refuse_natives()
            return
        now, wanted = time.monotonic(), set()
        for target in self._observation.ranks():
            polls, since = self._silence(target)
            if self._options.native == "always" or (polls and now - since >= _NATIVE_SECONDS):
                wanted |= {target.pid} & current & self._deep.readings.keys()
            elif not polls:
                self._deep.drop_native(target.pid)
        wanted = {pid for pid in wanted if not self._deep.readings[pid].native_tried}
        if wanted:
            seen = self._with_deep(gathered)
            self._guarded(
                "native stacks", lambda observation: self._deep.native(observation, seen, wanted), self._observation
            )

    # --- results ---------------------------------------------------------------------------------------------------------

    def _deep_fields(self, pid: int | None) -> dict[str, Any]:
        """Stack and memory of a process, by field of snapshot.Process."""
        readings = self._deep.readings.get(pid) if pid is not None else None
        if pid is None or readings is None:
            target = self._observation.targets.get(pid) if pid is not None else None
            return (
                dict.fromkeys(("stack", "stack_before"), Unavailable(reason=no_stack_reason(target))) if target else {}
            )
        return readings.fields(self._observation.deadline.started, current=self._is_current(pid))

    def _with_deep(self, gathered: dict[int | None, dict[str, Any]]) -> dict[int | None, dict[str, Any]]:
        """The evidence with stack and memory of each process."""
        return {pid: {**fields, **self._deep_fields(pid)} for pid, fields in gathered.items()}

    def _make_snapshot(self, began: float, gathered: dict[int | None, dict[str, Any]]) -> Snapshot:
        observation = self._observation
        assert self._ended is not None and self._wall_us is not None  # noqa: S101
        taken_at = datetime.datetime.fromtimestamp(self._wall_us / 1e6, datetime.timezone.utc)
        processes = each_process(observation, lambda target: self._make_process(target, gathered.get(target.pid, {})))
        host = Host(
            name=socket.gethostname(),
            taken_at=taken_at.isoformat(timespec="milliseconds"),
            window_seconds=round(self._ended - began, 3),
            elapsed_seconds=round(time.monotonic() - began, 3),
            processes=processes,
            problems=tuple(dict.fromkeys([*observation.problems, *self._deep.problems()])),
            late=tuple(
                dict.fromkeys([*observation.late, *isolation.shared.take_problems(), *not_read(observation.deadline)])
            ),
            machine_id=machine_id(observation.proc),
            restricted=self._membership.discovered.restricted,
            unread=self._membership.discovered.unread,
            machine=self._read_machine(),
            wall_us=self._wall_us,
            monotonic_us=monotonic_at(self._wall_us),
            connections_seconds_ago=self._sockets.seconds_ago if self._sockets_kept else None,
            **gathered.get(None, {}),
        )
        return redact.snapshot(Snapshot(hangdoc=__version__, hosts=(host,)), self._options.locals)

    def _make_process(self, target: Target, cheap: dict[str, Any]) -> Process:
        readings = self._deep.readings.get(target.pid)
        current, fresh = self._is_current(target.pid), target.pid in self._just_read
        counted = readings.current_counters(current=current) if readings is not None else ()
        result = process(self._observation, target, {**self._deep_fields(target.pid), **cheap}, counted)
        twice = readings is not None and isinstance(readings.stack_before, Stack)
        if readings is None or current or (fresh and twice):
            return result
        # A moving process that was read only once may be anywhere by now.
        ago = max(0.01, time.monotonic() - readings.read_at)
        if target.role == "helper":
            gone = Unavailable(reason=f"it has run since its stack was read {ago:.1f} s ago")
            return msgspec.structs.replace(result, stack=gone, stack_before=gone)
        result = msgspec.structs.replace(result, deep_seconds_ago=round(ago, 2))
        if readings.counted_at is None or has_counted(cheap):
            return result
        since = max(0.01, time.monotonic() - readings.counted_at)
        why = Unavailable(reason=f"not needed when the rank last made calls, {since:.1f} s ago, and not read since")
        if readings.stack is COUNTS:
            result = msgspec.structs.replace(result, stack=why, stack_before=why)
        if may_hang(cheap.get("recorder")) or self._was_off_cpu(target.pid):
            return result
        return msgspec.structs.replace(result, counted_seconds_ago=round(since, 2))

    def _read_machine(self) -> Machine | Unavailable:
        read_at, reading = self._machine
        if time.monotonic() - read_at > _MACHINE_SECONDS:
            reading = machine(self._proc)
            self._machine = (time.monotonic(), reading)
        before, self._swapped = self._swapped, swapped(self._proc)
        if isinstance(reading, Machine) and before is not None and self._swapped is not None:
            return msgspec.structs.replace(reading, swapped_bytes=self._swapped - before)
        return reading

    def _guarded(self, name: str, action: Callable[[Observation], _T], observation: Observation) -> _T | None:
        """The result of the action. One that does not end holds up the poll only for a while, and the next ones not at all."""
        seconds = min(observation.deadline.remaining(), max(_ACTION_SECONDS, _ACTION_WINDOWS * self._options.window))
        return self._guard.run(observation, name, action, seconds)


class _Budget:
    """CPU seconds that may be spent on reading: one account for moving processes, one for those that have stopped running."""

    def __init__(self) -> None:
        self.cost_each = _READ_SECONDS
        """CPU seconds for reading one process, as a moving average."""
        self._updated_at = time.monotonic()
        self._moving, self._off_cpu = 0.0, float("inf")

    def spend_on_moving(self) -> bool:
        """Whether one more moving process may be read now."""
        self._accrue(1)
        if self._moving <= 0:
            return False
        self._moving -= self.cost_each
        return True

    def spend_on_off_cpu(self, processes: int) -> bool:
        """Whether one more process that has stopped running may be read now. `processes` is the number of readable ones."""
        self._accrue(processes)
        if self._off_cpu <= 0:
            return False
        self._off_cpu -= self.cost_each
        return True

    def measure(self, count: int, cost: float) -> None:
        """Record that reading `count` processes took `cost` CPU seconds."""
        self.cost_each = 0.7 * self.cost_each + 0.3 * max(0.005, min(0.5, cost / count))

    def _accrue(self, processes: int) -> None:
        now = time.monotonic()
        passed, self._updated_at = now - self._updated_at, now
        self._moving = min(self._moving + passed * _MOVING_SHARE, _SAVED_SECONDS)
        self._off_cpu = min(self._off_cpu + passed * _OFF_CPU_SHARE, max(0.5, 2 * processes * self.cost_each))


def cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
