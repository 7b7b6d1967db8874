"""The watchdog's thread: it observes the beats, and acts when they stop."""

import contextlib
import faulthandler
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from hangdoc.beacon import Beacon, directory
from hangdoc.private_directory import PrivateDirectory
from hangdoc.watchdog import attach
from hangdoc.watchdog.hang_directory import Announcement, Member, clean, make_room, name_of_hang
from hangdoc.watchdog.log import Log
from hangdoc.watchdog.patience import Patience
from hangdoc.watchdog.run_store import RunStore

if TYPE_CHECKING:
    from hangdoc.watchdog.alarm import Alarm

EXIT_CODE = 86
"""Exit code of the process with `on_hang="abort"`, so that a launcher restarts the run."""
_TICK_SECONDS = 1.0
_DUMP_MARGIN_SECONDS = 1.0
OnHang = Literal["report", "raise", "abort"] | Callable[[Path], object]


class HangError(RuntimeError):
    """What `on_hang="raise"` raises in the main thread."""


class Guard(threading.Thread):
    """Watches one beacon. `base` is where directories of hangs are created. `chosen`: the user named it, so several hosts may
    share it."""

    def __init__(
        self,
        member: Member,
        beacon: Beacon,
        patience: Patience,
        run_store: RunStore,
        log: Log,
        *,
        on_hang: OnHang,
        base: Path,
        chosen: bool,
        allow_attach: bool,
    ) -> None:
        super().__init__(name="hangdoc-watchdog", daemon=True)
        self._member, self._beacon, self._patience, self._run_store, self._log = (
            member,
            beacon,
            patience,
            run_store,
            log,
        )
        self._on_hang, self._base, self._allow_attach = on_hang, base, allow_attach
        beacons = directory(os.getuid(), os.environ.get("XDG_RUNTIME_DIR"))
        self._announcements = [Announcement(beacons, member.run, private=True)]
        if chosen:
            self._announcements.append(Announcement(base, member.run, time.time))
        self._stopped = threading.Event()
        self._alarmed_ns: int | None = None
        self._hang: tuple[int, Path] | None = None
        """(last beat before it, directory) of the last hang that was dumped."""
        self._dump_file: IO[str] | None = None
        self._armed_ns = 0

    def end(self) -> None:
        """Stop watching. Safe to call in the thread itself."""
        self._stopped.set()
        self._report_resumed()
        with contextlib.suppress(Exception):
            faulthandler.cancel_dump_traceback_later()
            if self._dump_file is not None:
                self._dump_file.close()
                if self._beacon.directory is not None:
                    self._beacon.directory.remove(self._dump_name)
        if self is not threading.current_thread() and self.is_alive():
            self.join(2 * _TICK_SECONDS)

    def disown(self) -> None:
        """In a forked child: the thread does not exist there, and the dump file belongs to the parent."""
        self._stopped.set()
        self._dump_file = None

    def run(self) -> None:
        """Watch until `end` is called."""
        # Imported now, while nothing is stuck: later, the file system itself may hang.
        from hangdoc.watchdog.alarm import Alarm

        if self._allow_attach:
            attach.allow()
        alarm = Alarm(self._member, self._beacon.directory, self._run_store, self._log, closed=not self._allow_attach)
        answered: str | None = None
        recorded = False
        last_ns, looked = self._beacon.last_ns, time.monotonic_ns()
        last_beats = self._beacon.beats
        while not self._stopped.wait(self._tick()):
            try:
                now, beats = time.monotonic_ns(), self._beacon.beats
                pause = (now - self._beacon.last_ns) / 1e9
                self._patience.observe(beats - last_beats, (now - looked) / 1e9, pause if beats == last_beats else 0.0)
                looked, last_beats = now, beats
                if self._beacon.last_ns != last_ns:
                    last_ns = self._beacon.last_ns
                    self._report_resumed()
                    if recorded:
                        alarm.forget()
                        recorded = False
                    self.arm()
                urgent = pause > self._allowed() / 2
                if urgent and not recorded:  # so that a look from outside finds it before the deadline
                    alarm.record()
                    recorded = True
                if pause <= self._allowed():
                    announced = self._announced_hang(urgent)
                    if announced is not None and announced.name != answered:  # another rank reached its deadline first
                        answered, recorded = announced.name, True
                        self._join_hang(alarm, announced)
                elif self._alarmed_ns is None and not alarm.phase_allows_silence():
                    self._alarmed_ns, recorded = last_ns, True
                    self._on_deadline(alarm, pause)
                    answered = self._hang[1].name if self._hang is not None else None
            except Exception as error:  # a failing watchdog must not end the trainer
                self._log(f"the watchdog failed ({type(error).__name__}: {error})")
        alarm.forget()

    def arm(self) -> None:
        """Start the C timer: if this thread can no longer run, a thread that needs no GIL dumps all stacks."""
        if time.monotonic_ns() - self._armed_ns < _DUMP_MARGIN_SECONDS * 1e9:
            return
        self._armed_ns = time.monotonic_ns()
        try:
            if self._dump_file is None:
                if self._beacon.directory is None:
                    return  # it was reported when the beacon could not be created
                self._dump_file = open(self._beacon.directory.open_new(self._dump_name), "w")  # noqa: SIM115
            faulthandler.dump_traceback_later(self._allowed() + _DUMP_MARGIN_SECONDS, file=self._dump_file)
        except (OSError, ValueError, RuntimeError) as error:
            self._log(f"could not start the timer that dumps stacks without the GIL: {error}")

    @property
    def _dump_name(self) -> str:
        return self._beacon.path.with_suffix(".stacks").name

    def _allowed(self) -> float:
        return self._patience.allowed(self._beacon.phase[1])

    def _tick(self) -> float:
        return min(_TICK_SECONDS, max(0.05, self._allowed() / 10))

    def _announced_hang(self, urgent: bool) -> Path | None:
        """The directory of a hang that another rank has announced, on this host or on another one."""
        self._run_store.listen(urgent)
        for announcement in self._announcements if urgent else self._announcements[:1]:
            if (folder := announcement.announced()) is not None:
                return folder
        name = self._run_store.announced()
        return None if name is None else self._base / clean(name)

    def _join_hang(self, alarm: "Alarm", folder: Path) -> None:
        """Dump into this directory, or into the one that another rank has announced."""
        place = self._place(folder)
        if place is None:
            return
        try:
            agreed = place.path
            for announcement in self._announcements:
                agreed = announcement.announce(agreed)
            if agreed != place.path and (other := self._place(agreed)) is not None:
                place.close()
                place = other
            self._hang = (self._beacon.last_ns, place.path)
            alarm.raise_(place)
        finally:
            place.close()

    def _place(self, folder: Path) -> PrivateDirectory | None:
        """Create a directory for this rank's evidence: the wanted one, else one with the same name in /tmp."""
        for wanted in (folder, Path("/tmp") / folder.name):  # noqa: S108
            try:
                return make_room(wanted, self._member.rank)
            except OSError as error:
                self._log(f"cannot write evidence into {wanted}: {error}")
        return None

    def _on_deadline(self, alarm: "Alarm", pause: float) -> None:
        self._log(
            f"no progress for {pause:.0f} s (step {self._beacon.step}, phase {self._beacon.phase[0]})", always=True
        )
        if self._hang is None or self._hang[0] != self._alarmed_ns:  # else dumped when another rank announced it
            self._join_hang(alarm, self._base / clean(self._run_store.agree(name_of_hang(self._member.run))))
        if self._beacon.last_ns != self._alarmed_ns:
            return  # the rank made progress meanwhile
        if callable(self._on_hang):
            self._on_hang(self._hang[1] if self._hang is not None else self._base)
        elif self._on_hang == "raise":
            _raise_in_main(HangError)
        elif self._on_hang == "abort":
            self._log(f"ending the process with code {EXIT_CODE}", always=True)
            os._exit(EXIT_CODE)

    def _report_resumed(self) -> None:
        """Report that a hang is over, if it was reported."""
        if self._alarmed_ns is None or self._beacon.last_ns == self._alarmed_ns:
            return
        frozen_seconds = (self._beacon.last_ns - self._alarmed_ns) / 1e9
        self._log(f"makes progress again after {frozen_seconds:.0f} s (step {self._beacon.step})", always=True)
        self._alarmed_ns = None


def _raise_in_main(kind: type[BaseException]) -> None:
    """Raise it as soon as the main thread runs Python code again. A thread that stays in C never does."""
    import ctypes

    main: Any = threading.main_thread().ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(kind))
