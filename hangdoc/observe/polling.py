"""Looks at this host again and again: at clocks, sockets and states each time, at stacks and memory where they may be new.

A rank that has not run since it was read stands where it stood: its stack is as good as one that is read now, and nobody attaches
to it. One that has just come to rest is read at once, so that a freeze is named within seconds. Of those that move, some are read
at each poll, in turns, for a bounded share of a processor; what is said of the others carries its age
(`Process.deep_seconds_ago`). Where nothing passes between the ranks any more and some still move (they poll, or spin), all that
moved are read at every poll, so that the picture is of one moment: then polls cost more, and whoever asks paces them.
"""

import datetime
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from hangdoc import redact
from hangdoc.observe import natives
from hangdoc.observe.clocks import CpuClocks
from hangdoc.observe.control_groups import ControlGroups
from hangdoc.observe.deadline import Deadline
from hangdoc.observe.deep import DeepReader
from hangdoc.observe.holds import Holds
from hangdoc.observe.machine import machine, swapped
from hangdoc.observe.membership import Membership
from hangdoc.observe.observation import Observation, Target
from hangdoc.observe.observe import Options, machine_id, not_read, process
from hangdoc.observe.procfs import ProcFS
from hangdoc.observe.progress import Beacons
from hangdoc.observe.sockets import Sockets
from hangdoc.observe.stacks import helpers_of, waits_for_a_child, why_not
from hangdoc.observe.storage import Storage
from hangdoc.snapshot import Clocks, Host, Machine, Process, Snapshot, Stack, Unavailable
from hangdoc.version import __version__

_SHARE_OF_TURNS = 0.02
"""Of a core, for reading in turns what moves."""
_SHARE_OF_RESTS = 0.02
"""Of a core, for reading what has come to rest; what is not needed is saved up for the moment when all do."""
_SWEEP_SECONDS = 0.5
"""CPU that reading all that moves may cost, where nothing passes between the ranks any more."""
_SAVED_SECONDS = 0.5
"""CPU that may be saved up for the turns: of somebody who looks every quarter of a minute, most ranks are read at each look."""
_QUIET_POLLS = 2
"""For so many, nothing must have passed; one is enough for somebody who looks seldom."""
_NATIVE_SECONDS = 4.0
"""So long nothing has passed between the ranks when one of them is paused for its C++ frames."""
_READ_SECONDS = 0.04
"""CPU that reading one process is thought to cost before it was measured."""
_MACHINE_SECONDS = 10.0
_LONGEST_WINDOW = 3.0
"""After a longer pause between two polls a window of its own begins: over minutes, everything has moved a little."""
_IDLE = 0.10
"""Share of a core that a rank uses which only polls."""


class Polling:
    """Polls of this host. `look` is called again and again by one thread; a poll's window is the time since the one before."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._proc = ProcFS()
        self._membership = Membership(self._proc, options.scope)
        self._scene = Observation(
            proc=self._proc,
            deadline=Deadline(options.timeout),
            window=options.window,
            native=options.native,
            targets={},
            pool=ThreadPoolExecutor(16, thread_name_prefix="hangdoc"),
        )
        self._clocks, self._holds, self._groups = CpuClocks(), Holds(), ControlGroups()
        self._storage, self._beacons, self._sockets = Storage(), Beacons(), Sockets()
        self._probes = (self._holds, self._groups, self._beacons, self._storage, self._sockets, self._clocks)
        self._deep = DeepReader(self._clocks)
        self._purse = _Purse()
        self._ended: float | None = None
        """When the last window ended, monotonic."""
        self._silent: dict[str, tuple[int, float]] = {}
        """For how many polls, and since when, nothing has passed between the ranks of a run."""
        self._seldom = False
        """Whether the last poll was so long ago that a window of its own began."""
        self._fresh: set[int] = set()
        """Who was read in this poll."""
        self._machine: tuple[float, Machine | Unavailable] = (float("-inf"), Unavailable(reason="not looked at"))
        self._swapped: int | None = None

    def look(self) -> Snapshot:
        """One poll. Never raises for what can't be seen. Where the last one was less than `Options.window` ago, it waits until
        that has passed: over a moment, everything stands still."""
        observation = self._scene
        observation.deadline = deadline = Deadline(self._options.timeout)
        observation.problems = []
        ago = time.monotonic() - self._ended if self._ended is not None else 0.0
        self._seldom = ago > max(_LONGEST_WINDOW, 2 * self._options.window)
        if self._ended is None or self._seldom:
            self._begin(deadline)
        assert self._ended is not None  # noqa: S101
        began = self._ended
        time.sleep(max(0.0, self._ended + self._options.window - time.monotonic()))
        new = self._follow(deadline)
        taken_at = datetime.datetime.now(datetime.UTC)
        for probe in self._probes:
            self._guarded(probe.name, probe.close, observation)
        self._ended = time.monotonic()
        gathered = self._cheap()
        self._fresh = set()
        self._read_deep(gathered, new)
        snapshot = self._snapshot(taken_at, began, gathered)
        for probe in self._probes:
            probe.again(observation)
        return snapshot

    def close(self) -> None:
        """No more polls."""
        self._sockets.end()
        self._scene.pool.shutdown(wait=False, cancel_futures=True)

    # --- who is looked at ------------------------------------------------------------------------------------------------

    def _begin(self, deadline: Deadline) -> None:
        """The beginning of a window: the first one, or one after a long pause."""
        self._follow(deadline)
        for probe in self._probes:
            self._guarded(probe.name, probe.close, self._scene)
            probe.again(self._scene)
        self._swapped = swapped(self._proc)
        self._ended = time.monotonic()
        first = [t for t in self._scene.ranks() if t.python and t.state not in "ZX" and t.pid not in self._deep.known]
        self._deep.read(self._scene, first, set())

    def _follow(self, deadline: Deadline) -> set[int]:
        """Take in who has started and ended; the pids of those that are new."""
        observation = self._scene
        new = self._membership.refresh(deadline)
        observation.targets = self._membership.targets
        observation.problems += self._membership.found.problems
        observation.forget_images(new)
        self._deep.forget(observation, new)
        if new:
            part = observation.part(new & observation.targets.keys())
            for probe in self._probes:
                if probe is not self._sockets or self._ended is None:
                    self._guarded(probe.name, probe.open, part)
        return new

    # --- what is read ----------------------------------------------------------------------------------------------------

    def _cheap(self) -> dict[int | None, dict[str, Any]]:
        """What the cheap probes saw in this window."""
        found: dict[int | None, dict[str, Any]] = {}
        for probe in self._probes:
            for pid, name, value in (
                self._guarded(probe.name, lambda s, probe=probe: list(probe.evidence(s)), self._scene) or ()
            ):
                if pid is None or pid in self._scene.targets:
                    found.setdefault(pid, {})[name] = value
        return found

    def _read_deep(self, gathered: dict[int | None, dict[str, Any]], new: set[int]) -> None:
        """Read the processes of which something new may be learned and that can be afforded."""
        observation, used = self._scene, cpu_seconds()
        wanted = self._readable()
        still = {t.pid for t in wanted if t.pid not in new and self._rested(t.pid)}
        due = [t for t in wanted if self._is_due(t.pid)]
        self._note_silence(gathered, wanted, still)
        chosen = {t.pid: t for t in due if t.pid not in self._deep.known}
        chosen |= {t.pid: t for t in due if t.pid in still and self._purse.take_rest(len(wanted))}
        moving = sorted((t for t in due if t.pid not in still and t.pid not in chosen), key=self._read_at)
        needed = 1 if self._seldom else _QUIET_POLLS
        silent = [t for t in moving if t.role != "launcher" and self._silence(t)[0] >= needed]
        if len(silent) * self._purse.each <= _SWEEP_SECONDS:
            chosen |= {t.pid: t for t in silent}
        alone = not any(t.role == "rank" for t in wanted)
        for target in moving:  # a launcher ticks for ever, and says something only where it has no rank
            turn = target.role != "launcher" and target.pid not in chosen
            if alone or (turn and self._purse.take_turn()):
                chosen[target.pid] = target
        if chosen:
            self._deep.read(observation, chosen.values(), still)
            self._purse.measure(len(chosen), cpu_seconds() - used)
            self._fresh = set(chosen)
        self._read_natives(gathered, {*chosen, *(pid for pid in still if not self._is_due(pid))})
        for pid in chosen:
            gathered.setdefault(pid, {})["clocks"] = self._clocks.across(observation, pid)

    def _readable(self) -> list[Target]:
        """Ranks, launchers, and the helpers that a rank waits for."""
        observation = self._scene
        found = [t for t in observation.alive() if t.python and t.role != "helper"]
        for rank in observation.ranks():
            known = self._deep.known.get(rank.pid)
            if known is not None and waits_for_a_child(known.stack):
                found += helpers_of(observation, rank)
        return found

    def _rested(self, pid: int) -> bool:
        """Whether the process has not run over the window."""
        known, (first, second) = self._deep.known.get(pid), self._clocks.seen(pid)
        return known is not None and known.rested(first, second)

    def _is_due(self, pid: int) -> bool:
        known = self._deep.known.get(pid)
        return known is None or known.moved(self._clocks.seen(pid)[1])

    def _stands(self, pid: int) -> bool:
        """Whether what is known of the process is so now, and was so over the window."""
        known = self._deep.known.get(pid)
        if known is None:
            return False
        return known.still if pid in self._fresh else not self._is_due(pid)

    def _read_at(self, target: Target) -> float:
        known = self._deep.known.get(target.pid)
        return known.read_at if known is not None else float("-inf")

    def _run_of(self, target: Target) -> str:
        """Equal for ranks of one run, and their helpers."""
        rank = self._scene.targets.get(target.owner or 0, target) if target.role == "helper" else target
        who = rank.identity
        return (who.run or who.run_digest if who is not None else None) or f"{rank.owner}"

    def _silence(self, target: Target) -> tuple[int, float]:
        return self._silent.get(self._run_of(target), (0, 0.0))

    def _note_silence(self, gathered: natives.Gathered, wanted: list[Target], still: set[int]) -> None:
        """In which runs nothing passes between the ranks, and some of them stand still or all are idle."""
        runs: dict[str, list[Target]] = {}
        for target in self._scene.ranks():
            runs.setdefault(self._run_of(target), []).append(target)
        moved, readable = natives.moved_bytes(gathered), {t.pid for t in wanted}
        earlier, self._silent = self._silent, {}
        for run, ranks in runs.items():
            living = [t.pid for t in ranks if t.pid in readable]
            idle = all(self._share(gathered, pid) < _IDLE for pid in living)
            held = any(t.held or t.state in "ZX" for t in ranks)
            if not moved & set(living) and (idle or held or still & set(living)):
                polls, since = earlier.get(run, (0, time.monotonic()))
                self._silent[run] = (polls + 1, since)

    def _share(self, gathered: natives.Gathered, pid: int) -> float:
        clocks = gathered.get(pid, {}).get("clocks")
        if not isinstance(clocks, Clocks) or clocks.window_seconds <= 0:
            return 1.0
        return max((t.cpu_ns for t in clocks.threads), default=0) / 1e9 / clocks.window_seconds

    def _read_natives(self, gathered: dict[int | None, dict[str, Any]], current: set[int]) -> None:
        """C++ frames of ranks whose Python stack leaves open what they wait in, once their run has been silent for a while."""
        if self._options.native == "never":
            return
        now, wanted = time.monotonic(), set()
        for target in self._scene.ranks():
            polls, since = self._silence(target)
            if self._options.native == "always" or (polls and now - since >= _NATIVE_SECONDS):
                wanted |= {target.pid} & current & self._deep.known.keys()
            elif not polls:
                self._deep.without_native(target.pid)
        if any(not self._deep.known[pid].native_tried for pid in wanted):
            seen: dict[int | None, dict[str, Any]] = {
                pid: {**fields, **self._deep_fields(pid)} for pid, fields in gathered.items()
            }
            self._guarded(
                "native stacks", lambda observation: self._deep.native(observation, seen, wanted), self._scene
            )

    # --- what is handed over ---------------------------------------------------------------------------------------------

    def _deep_fields(self, pid: int | None) -> dict[str, Any]:
        """What is known of a process, by the names of the fields."""
        known = self._deep.known.get(pid) if pid is not None else None
        if pid is None or known is None:
            target = self._scene.targets.get(pid) if pid is not None else None
            return dict.fromkeys(("stack", "stack_before"), Unavailable(reason=why_not(target))) if target else {}
        return known.fields(self._scene.deadline.started, stands=self._stands(pid))

    def _snapshot(
        self, taken_at: datetime.datetime, began: float, gathered: dict[int | None, dict[str, Any]]
    ) -> Snapshot:
        observation = self._scene
        assert self._ended is not None  # noqa: S101
        processes = tuple(
            self._process(target, gathered.get(pid, {})) for pid, target in sorted(observation.targets.items())
        )
        host = Host(
            name=socket.gethostname(),
            taken_at=taken_at.isoformat(timespec="milliseconds"),
            window_seconds=round(self._ended - began, 3),
            elapsed_seconds=round(observation.deadline.elapsed(), 3),
            processes=processes,
            problems=tuple(
                dict.fromkeys([*observation.problems, *self._deep.problems(), *not_read(observation.deadline)])
            ),
            machine_id=machine_id(observation.proc),
            restricted=self._membership.found.restricted,
            machine=self._about_machine(),
            **gathered.get(None, {}),
        )
        return redact.snapshot(Snapshot(hangdoc=__version__, hosts=(host,)), self._options.locals)

    def _process(self, target: Target, cheap: dict[str, Any]) -> Process:
        known = self._deep.known.get(target.pid)
        stands, fresh = self._stands(target.pid), target.pid in self._fresh
        counted = known.counted(stands=stands) if known is not None else ()
        found = process(self._scene, target, {**self._deep_fields(target.pid), **cheap}, counted)
        twice = known is not None and isinstance(known.stack_before, Stack)
        if known is None or stands or (fresh and twice):
            return found
        # What moves and was read once so far may be anywhere, too.
        ago = max(0.01, time.monotonic() - known.read_at)
        if target.role == "helper":
            gone = Unavailable(reason=f"it has run since its stack was read {ago:.1f} s ago")
            return msgspec.structs.replace(found, stack=gone, stack_before=gone)
        return msgspec.structs.replace(found, deep_seconds_ago=round(ago, 2))

    def _about_machine(self) -> Machine | Unavailable:
        read_at, known = self._machine
        if time.monotonic() - read_at > _MACHINE_SECONDS:
            known = machine(self._proc)
            self._machine = (time.monotonic(), known)
        before, self._swapped = self._swapped, swapped(self._proc)
        if isinstance(known, Machine) and before is not None and self._swapped is not None:
            return msgspec.structs.replace(known, swapped_bytes=self._swapped - before)
        return known

    def _guarded(self, name: str, action: Any, observation: Observation) -> Any:
        """The action's result; a probe that raises becomes a problem, not a dead watch."""
        try:
            return action(observation)
        except Exception as error:
            self._scene.problems.append(f"the {name} probe failed ({type(error).__name__}: {error}): please report it")
            return None


class _Purse:
    """How much reading can be afforded: CPU seconds, in two pockets."""

    def __init__(self) -> None:
        self.each = _READ_SECONDS
        """What reading one process costs, as measured lately."""
        self._filled_at = time.monotonic()
        self._turns, self._rests = 0.0, float("inf")

    def take_turn(self) -> bool:
        """Whether one more process that moves can be read now."""
        self._fill(1)
        if self._turns <= 0:
            return False
        self._turns -= self.each
        return True

    def take_rest(self, processes: int) -> bool:
        """Whether one more process that came to rest can be read now, of so many that could be."""
        self._fill(processes)
        if self._rests <= 0:
            return False
        self._rests -= self.each
        return True

    def measure(self, count: int, cost: float) -> None:
        """Reading so many processes cost so many CPU seconds."""
        self.each = 0.7 * self.each + 0.3 * max(0.005, min(0.5, cost / count))

    def _fill(self, processes: int) -> None:
        now = time.monotonic()
        passed, self._filled_at = now - self._filled_at, now
        self._turns = min(self._turns + passed * _SHARE_OF_TURNS, _SAVED_SECONDS)
        self._rests = min(self._rests + passed * _SHARE_OF_RESTS, max(0.5, 2 * processes * self.each))


def cpu_seconds() -> float:
    """What looking has cost so far: CPU of this process and of its children that have ended."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
