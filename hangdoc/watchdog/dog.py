"""`Watchdog`: two lines in a trainer, and a run that freezes leaves behind what a diagnosis needs."""

import atexit
import contextlib
import faulthandler
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, TypeVar

from hangdoc.beacon import STAGES, Beacon, directory
from hangdoc.watchdog.board import Board
from hangdoc.watchdog.patience import Patience
from hangdoc.watchdog.scene import Call, clean, name_of_hang

if TYPE_CHECKING:
    from hangdoc.watchdog.alarm import Alarm

EXIT_CODE = 86
"""With which `on_hang="abort"` ends the process, so that a launcher restarts the run."""
_TICK_SECONDS = 1.0
_SWITCH_SECONDS = 1.0
T = TypeVar("T")
OnHang = Literal["report", "raise", "abort"] | Callable[[Path], object]

_running: "weakref.WeakSet[Watchdog]" = weakref.WeakSet()


def _in_child() -> None:
    for dog in _running:
        dog.disown()


os.register_at_fork(after_in_child=_in_child)


class HangError(RuntimeError):
    """What `on_hang="raise"` raises in the main thread."""


class Watchdog:
    """Publishes progress, and acts when none comes for `timeout` seconds.

    `timeout` is a number of seconds, or `"auto"`: as the run's own steps have it, never below `floor`. `on_hang` is what
    happens after the evidence lies in `directory` (the working directory by default): `report` (go on waiting), `raise`
    (HangError in the main thread), `abort` (end the process with EXIT_CODE), or a callable that is given the hang's own
    directory. `rank`, `world_size` and `run` are taken from torchrun's variables where they are not given. With
    `allow_attach`, other processes of the same user may look into this one where Yama would forbid it.

    Raises ValueError for a timeout or an `on_hang` that is none. Nothing else that goes wrong reaches the trainer: it is
    said on stderr, once.
    """

    def __init__(
        self,
        timeout: float | Literal["auto"] = 300.0,
        *,
        on_hang: OnHang = "report",
        directory: str | os.PathLike[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        run: str | None = None,
        floor: float = 30.0,
        allow_attach: bool = True,
    ) -> None:
        if not callable(on_hang) and on_hang not in ("report", "raise", "abort"):
            raise ValueError(f"on_hang must be 'report', 'raise', 'abort' or a callable, not {on_hang!r}")
        self._patience = Patience(timeout, floor)
        self._on_hang = on_hang
        self._base = Path(directory) if directory is not None else Path.cwd()
        self._rank = rank if rank is not None else int(os.environ.get("RANK", "0"))
        world = world_size if world_size is not None else int(os.environ.get("WORLD_SIZE", "1"))
        named = os.environ.get("TORCHELASTIC_RUN_ID", "none")  # torchrun's own default says nothing
        parts = (named if named != "none" else "", os.environ.get("MASTER_PORT", ""))
        self._run = run or "-".join(part for part in parts if part) or "run"
        self._said: set[str] = set()
        self._world_size = world
        self._board = Board()
        self._beacon = self._make_beacon(world)
        self.beat = self._beacon.beat
        """`beat(step, batches=, of=, epoch=, shards=, digest=)`: see hangdoc.beacon.Beacon.beat. Below a microsecond."""
        self._allow_attach = allow_attach
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._fired_ns: int | None = None
        self._stage_seconds = dict.fromkeys(STAGES, 0.0)
        self._switch: IO[str] | None = None
        self._armed_ns = 0

    def _make_beacon(self, world: int) -> Beacon:
        try:
            return Beacon(rank=self._rank, world_size=world, run=self._run)
        except OSError as error:
            self._say(f"no beacon for readers outside: {error}")
            return Beacon(rank=self._rank, world_size=world, run=self._run, published=False)

    # --- what a trainer calls ------------------------------------------------------------------------------------------

    def watch(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches, with a beat for each; how many are expected is published where `len()` knows it."""
        try:
            total: int | None = len(batches)  # type: ignore[arg-type]
        except TypeError:
            total = None
        self.beat(0, batches=0, of=total)
        for done, batch in enumerate(batches):
            yield batch
            self.beat(done + 1, batches=done + 1)

    @contextlib.contextmanager
    def phase(self, name: str, timeout: float | None = None) -> Iterator[None]:
        """Work with a name, and a patience of its own in seconds: `evaluate`, `checkpoint`, `sample`."""
        before = self._beacon.phase
        self._enter(name, timeout or 0.0)
        try:
            yield
        finally:
            self._enter(*before)

    def _enter(self, phase: str, patience: float) -> None:
        if patience != self._beacon.phase[1]:
            self._board.promise(self._rank, patience)
        self.beat(phase=phase, patience=patience)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """One of `data`, `forward`, `backward`, `optimizer`: how long each takes is published when the last is through.
        Raises KeyError for another name."""
        began, known = time.perf_counter(), self._stage_seconds[name]
        try:
            yield
        finally:
            self._stage_seconds[name] = known + time.perf_counter() - began
            if name == STAGES[-1]:
                self._beacon.stages(tuple(self._stage_seconds.values()))
                self._stage_seconds = dict.fromkeys(STAGES, 0.0)

    def start(self) -> "Watchdog":
        """Begin to watch; `with` does it too."""
        if self._thread is None:
            self.beat()
            self._arm()
            self._thread = threading.Thread(target=self._watch, name="hangdoc-watchdog", daemon=True)
            self._thread.start()
            _running.add(self)
            atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Stop watching and take the beacon back; safe to call twice, at exit and in a forked child."""
        if self._thread is None or self._stopped.is_set():
            return
        self._stopped.set()
        self._moves_again()
        with contextlib.suppress(Exception):
            faulthandler.cancel_dump_traceback_later()
            if self._switch is not None:
                self._switch.close()
                Path(self._switch.name).unlink(missing_ok=True)
        if self._thread is not threading.current_thread():
            self._thread.join(2 * _TICK_SECONDS)
        self._beacon.close()

    close = stop

    def __enter__(self) -> "Watchdog":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def disown(self) -> None:
        """In a forked child (a dataloader worker): it inherits the object, not the watchdog."""
        self._stopped.set()
        self._switch = None

    # --- the watchdog's own thread -------------------------------------------------------------------------------------

    def _watch(self) -> None:
        # Beside the training, and before anything is stuck: the file system may be what hangs.
        from hangdoc.watchdog.alarm import Alarm

        if self._allow_attach:
            _let_others_attach()
        beacons = directory(os.getuid(), os.environ.get("XDG_RUNTIME_DIR"))
        call = Call(beacons, self._run)
        alarm = Alarm(self._rank, self._world_size, self._run, beacons, self._board, self._say)
        heard: str | None = None
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
                    if self._moves_again():
                        alarm.forget()
                    self._arm()
                expired = pause > self._patience.allowed(self._beacon.phase[1])
                if expired and self._fired_ns is None and not alarm.somebody_has_time():
                    self._fired_ns = self._beacon.last_ns
                    heard = self._fire(call, alarm, pause)
                elif not expired and (called := self._called(call, pause)) is not None and called.name != heard:
                    heard = called.name  # another rank's deadline came first
                    alarm.raise_(call.out(called))
            except Exception as error:  # a watchdog that fails must not take the trainer along
                self._say(f"the watchdog failed ({type(error).__name__}: {error})")

    def _tick(self) -> float:
        return min(_TICK_SECONDS, max(0.05, self._patience.allowed(self._beacon.phase[1]) / 10))

    def _called(self, call: Call, pause: float) -> Path | None:
        """The directory of a hang that another rank has called out, on this host or on another."""
        self._board.listen(urgent=pause > self._patience.allowed(self._beacon.phase[1]) / 2)
        name = self._board.heard()
        return call.heard() or (None if name is None else self._base / clean(name))

    def _fire(self, call: Call, alarm: "Alarm", pause: float) -> str | None:
        self._say(
            f"no progress for {pause:.0f} s (step {self._beacon.step}, phase {self._beacon.phase[0]})", always=True
        )
        folder: Path | None = None
        try:
            folder = call.out(self._base / clean(self._board.agree(name_of_hang(self._run))))
        except OSError as error:
            self._say(f"no directory for the evidence: {error}")
        if folder is not None:
            alarm.raise_(folder)
        if self._beacon.last_ns != self._fired_ns:
            return folder.name if folder is not None else None  # it moved meanwhile: nothing is to be done
        if callable(self._on_hang):
            self._on_hang(folder or self._base)
        elif self._on_hang == "raise":
            _raise_in_main(HangError)
        elif self._on_hang == "abort":
            self._say(f"ending the process with code {EXIT_CODE}", always=True)
            os._exit(EXIT_CODE)
        return folder.name if folder is not None else None

    def _moves_again(self) -> bool:
        """Whether a hang that it fired for is over; says so."""
        if self._fired_ns is not None and self._beacon.last_ns != self._fired_ns:
            stood = (self._beacon.last_ns - self._fired_ns) / 1e9
            self._say(f"moves again after {stood:.0f} s (step {self._beacon.step})", always=True)
            self._fired_ns = None
            return True
        return False

    def _arm(self) -> None:
        """The dead man's switch: a C thread that needs no GIL dumps all stacks if this thread can't run any more."""
        if time.monotonic_ns() - self._armed_ns < _SWITCH_SECONDS * 1e9:
            return
        self._armed_ns = time.monotonic_ns()
        try:
            if self._switch is None:
                self._switch = self._beacon.path.with_suffix(".stacks").open("w")
            faulthandler.dump_traceback_later(
                self._patience.allowed(self._beacon.phase[1]) + _SWITCH_SECONDS, file=self._switch
            )
        except (OSError, ValueError, RuntimeError) as error:
            self._say(f"no dump without the interpreter: {error}")

    def _say(self, text: str, always: bool = False) -> None:
        """On stderr; the same trouble is said once."""
        if always or text not in self._said:
            self._said.add(text)
            with contextlib.suppress(Exception):
                sys.stderr.write("".join(f"hangdoc[rank {self._rank}] {line}\n" for line in text.splitlines()))
                sys.stderr.flush()


def _let_others_attach() -> None:
    """prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY): where Yama asks for it, processes of the same user may attach."""
    import ctypes

    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)


def _raise_in_main(kind: type[BaseException]) -> None:
    """Raised as soon as the main thread runs Python again; one that is in C for ever never does."""
    import ctypes

    main: Any = threading.main_thread().ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(kind))
