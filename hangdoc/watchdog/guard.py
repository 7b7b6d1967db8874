"""The watchdog's own thread: it looks at the beats, and acts when none comes."""

import contextlib
import faulthandler
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from hangdoc.beacon import Beacon, directory
from hangdoc.watchdog import attach
from hangdoc.watchdog.hang_directory import Call, Member, clean, make_room, name_of_hang
from hangdoc.watchdog.log import Log
from hangdoc.watchdog.patience import Patience
from hangdoc.watchdog.run_store import RunStore

if TYPE_CHECKING:
    from hangdoc.watchdog.alarm import Alarm

EXIT_CODE = 86
"""With which `on_hang="abort"` ends the process, so that a launcher restarts the run."""
_TICK_SECONDS = 1.0
_SWITCH_SECONDS = 1.0
OnHang = Literal["report", "raise", "abort"] | Callable[[Path], object]


class HangError(RuntimeError):
    """What `on_hang="raise"` raises in the main thread."""


class Guard(threading.Thread):
    """Watches one beacon. `base` is where directories of hangs are made; `chosen` says that somebody named it, so that
    several hosts may share it."""

    def __init__(
        self,
        member: Member,
        beacon: Beacon,
        patience: Patience,
        run_store: RunStore,
        say: Log,
        *,
        on_hang: OnHang,
        base: Path,
        chosen: bool,
        allow_attach: bool,
    ) -> None:
        super().__init__(name="hangdoc-watchdog", daemon=True)
        self._member, self._beacon, self._patience, self._run_store, self._say = (
            member,
            beacon,
            patience,
            run_store,
            say,
        )
        self._on_hang, self._base, self._allow_attach = on_hang, base, allow_attach
        beacons = directory(os.getuid(), os.environ.get("XDG_RUNTIME_DIR"))
        self._beacons = beacons
        self._calls = [Call(beacons, member.run)]
        if chosen:
            self._calls.append(Call(base, member.run, time.time))
        self._stopped = threading.Event()
        self._fired_ns: int | None = None
        self._hang: tuple[int, Path] | None = None
        """(last beat before it, directory) of the last hang that was dumped."""
        self._switch: IO[str] | None = None
        self._armed_ns = 0

    def end(self) -> None:
        """Stop watching; safe in the thread itself."""
        self._stopped.set()
        self._moves_again()
        with contextlib.suppress(Exception):
            faulthandler.cancel_dump_traceback_later()
            if self._switch is not None:
                self._switch.close()
                Path(self._switch.name).unlink(missing_ok=True)
        if self is not threading.current_thread() and self.is_alive():
            self.join(2 * _TICK_SECONDS)

    def disown(self) -> None:
        """In a forked child: the thread is not there, and the switch is not its own."""
        self._stopped.set()
        self._switch = None

    def run(self) -> None:
        """Until the end."""
        # Loaded beside the training, and before anything is stuck: the file system may be what hangs.
        from hangdoc.watchdog.alarm import Alarm

        if self._allow_attach:
            attach.allow()
        alarm = Alarm(self._member, self._beacons, self._run_store, self._say, closed=not self._allow_attach)
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
                    self._moves_again()
                    if recorded:
                        alarm.forget()
                        recorded = False
                    self.arm()
                urgent = pause > self._allowed() / 2
                if urgent and not recorded:  # who looks from outside before the deadline finds it too
                    alarm.record()
                    recorded = True
                if pause <= self._allowed():
                    called = self._called(urgent)
                    if called is not None and called.name != answered:  # another rank's deadline came first
                        answered, recorded = called.name, True
                        self._raise(alarm, called)
                elif self._fired_ns is None and not alarm.somebody_has_time():
                    self._fired_ns, recorded = last_ns, True
                    self._fire(alarm, pause)
                    answered = self._hang[1].name if self._hang is not None else None
            except Exception as error:  # a watchdog that fails must not take the trainer along
                self._say(f"the watchdog failed ({type(error).__name__}: {error})")
        alarm.forget()

    def arm(self) -> None:
        """The C timer: a thread that needs no GIL dumps all stacks if this thread cannot run any more."""
        if time.monotonic_ns() - self._armed_ns < _SWITCH_SECONDS * 1e9:
            return
        self._armed_ns = time.monotonic_ns()
        try:
            if self._switch is None:
                self._switch = self._beacon.path.with_suffix(".stacks").open("w")
            faulthandler.dump_traceback_later(self._allowed() + _SWITCH_SECONDS, file=self._switch)
        except (OSError, ValueError, RuntimeError) as error:
            self._say(f"no dump without the interpreter: {error}")

    def _allowed(self) -> float:
        return self._patience.allowed(self._beacon.phase[1])

    def _tick(self) -> float:
        return min(_TICK_SECONDS, max(0.05, self._allowed() / 10))

    def _called(self, urgent: bool) -> Path | None:
        """The directory of a hang that another rank has called out, on this host or on another."""
        self._run_store.listen(urgent)
        for call in self._calls if urgent else self._calls[:1]:
            if (found := call.heard()) is not None:
                return found
        name = self._run_store.heard()
        return None if name is None else self._base / clean(name)

    def _raise(self, alarm: "Alarm", folder: Path) -> None:
        """Dump into a directory, or the one that another rank has called out."""
        place = self._place(folder)
        if place is None:
            return
        agreed = place
        for call in self._calls:
            agreed = call.out(agreed)
        if agreed != place:
            place = self._place(agreed) or place
        self._hang = (self._beacon.last_ns, place)
        alarm.raise_(place)

    def _place(self, folder: Path) -> Path | None:
        """A directory, made, that takes this rank's evidence: the wanted one, else one of that name among the system's
        temporary files."""
        for wanted in (folder, Path("/tmp") / folder.name):  # noqa: S108
            try:
                make_room(wanted, self._member.rank)
                return wanted
            except OSError as error:
                self._say(f"no place for the evidence: {error}")
        return None

    def _fire(self, alarm: "Alarm", pause: float) -> None:
        self._say(
            f"no progress for {pause:.0f} s (step {self._beacon.step}, phase {self._beacon.phase[0]})", always=True
        )
        if self._hang is None or self._hang[0] != self._fired_ns:  # one that was called has dumped this already
            self._raise(alarm, self._base / clean(self._run_store.agree(name_of_hang(self._member.run))))
        if self._beacon.last_ns != self._fired_ns:
            return  # it moved meanwhile: nothing is to be done
        if callable(self._on_hang):
            self._on_hang(self._hang[1] if self._hang is not None else self._base)
        elif self._on_hang == "raise":
            _raise_in_main(HangError)
        elif self._on_hang == "abort":
            self._say(f"ending the process with code {EXIT_CODE}", always=True)
            os._exit(EXIT_CODE)

    def _moves_again(self) -> None:
        """Say so where a hang that it fired for is over."""
        if self._fired_ns is None or self._beacon.last_ns == self._fired_ns:
            return
        stood = (self._beacon.last_ns - self._fired_ns) / 1e9
        self._say(f"makes progress again after {stood:.0f} s (step {self._beacon.step})", always=True)
        self._fired_ns = None


def _raise_in_main(kind: type[BaseException]) -> None:
    """Raised as soon as the main thread runs Python again; one that stays in C never does."""
    import ctypes

    main: Any = threading.main_thread().ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(kind))
