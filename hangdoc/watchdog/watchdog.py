"""`Watchdog`: two lines in a trainer, and a run that freezes leaves behind what a diagnosis needs."""

import atexit
import contextlib
import os
import sys
import time
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeVar

from hangdoc import run_identity
from hangdoc.beacon import STAGES, Beacon
from hangdoc.watchdog.guard import Guard, OnHang
from hangdoc.watchdog.hang_directory import Member
from hangdoc.watchdog.log import Log
from hangdoc.watchdog.patience import Patience
from hangdoc.watchdog.run_store import RunStore

if TYPE_CHECKING:
    from hangdoc.watchdog import follow

T = TypeVar("T")

_running: "weakref.WeakSet[Watchdog]" = weakref.WeakSet()


def _in_child() -> None:
    for watchdog in _running:
        watchdog.disown()


os.register_at_fork(after_in_child=_in_child)


class Watchdog:
    """Publishes progress, and acts when none comes for `timeout` seconds.

    `timeout` is a number of seconds, or `"auto"`: computed from the duration of the run's own steps, never below `floor`.
    `on_hang` decides what happens after the evidence is in `directory` (the working directory by default). It is `report`
    (keep waiting), `raise` (HangError in the main thread), `abort` (end the process with EXIT_CODE), or a callable that gets
    the hang's own directory. `rank` and `world_size` default to those of torch's process group, or else to torchrun's
    variables. With `allow_attach`, other processes of the same user may read this one where Yama would forbid it.

    Raises ValueError for an unknown timeout or `on_hang`. Any other problem never reaches the trainer: it is reported on
    stderr, once.
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
        known_rank, known_world = _who_am_i()
        rank = rank if rank is not None else known_rank
        world = world_size if world_size is not None else known_world
        self._member = Member(rank, world, run or _run_name())
        self._say = Log(rank)
        self._run_store = RunStore()
        self._beacon = self._make_beacon()
        self.beat = self._beacon.beat
        """`beat(step, batches=, of=, epoch=, shards=, digest=)`: see hangdoc.beacon.Beacon.beat. Below a microsecond."""
        self._guard = Guard(
            self._member,
            self._beacon,
            Patience(timeout, floor),
            self._run_store,
            self._say,
            on_hang=on_hang,
            base=Path(directory) if directory is not None else Path.cwd(),
            chosen=directory is not None,
            allow_attach=allow_attach,
        )
        self._state = "new"
        self._stage_seconds = dict.fromkeys(STAGES, 0.0)
        self._follower: follow.Follower | None = None
        self._steps = 0

    @property
    def beacon_path(self) -> Path:
        """Where its beacon lies for readers outside."""
        return self._beacon.path

    def _make_beacon(self) -> Beacon:
        rank, world_size, run = self._member
        try:
            return Beacon(rank=rank, world_size=world_size, run=run)
        except OSError as error:
            self._say(f"no beacon for readers outside: {error}")
            return Beacon(rank=rank, world_size=world_size, run=run, published=False)

    # --- what a trainer calls ------------------------------------------------------------------------------------------

    def watch(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches, with a beat for each; how many are expected is published where `len()` knows it."""
        try:
            total: int | None = len(batches)  # type: ignore[arg-type]
        except TypeError:
            total = None
        self.beat(0, batches=0, of=total)
        began = time.perf_counter()
        for done, batch in enumerate(batches):
            if self._follower is not None:
                self._follower.data(time.perf_counter() - began)
            yield batch
            self.beat(done + 1 if self._follower is None else None, batches=done + 1)
            began = time.perf_counter()

    def follow(self, module: "follow.Module", optimizer: object) -> None:
        """Let hooks on a module (plain or DDP) and its optimizer find the stages and beat with each step: nothing else in
        the loop needs to change. Data are what lies before the forward pass, and what `watch` sees."""
        from hangdoc.watchdog import follow

        if self._follower is not None:
            self._follower.remove()
        self._follower = follow.Follower(module, optimizer, self._stepped)

    def _stepped(self, stages: tuple[float, ...]) -> None:
        self._beacon.stages(stages)
        self._steps += 1
        self.beat(self._steps)

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
            self._run_store.promise(self._member.rank, patience)
        self.beat(phase=phase, patience=patience)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """One of `data`, `forward`, `backward`, `optimizer`: how long each takes is published when the last has ended.
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
        """Begin to watch; `with` does it too. Raises RuntimeError for a watchdog that was stopped."""
        if self._state == "stopped":
            raise RuntimeError("this watchdog was stopped: make a new one")
        if self._state == "new":
            self._state = "running"
            self.beat()
            self._guard.arm()
            self._guard.start()
            _running.add(self)
            atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Stop watching and take the beacon back; safe to call twice, at exit and in a forked child."""
        if self._state == "running":
            if self._follower is not None:
                self._follower.remove()
            self._guard.end()
            atexit.unregister(self.stop)
            self._beacon.close()
        self._state = "stopped"

    close = stop

    def __enter__(self) -> "Watchdog":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def disown(self) -> None:
        """In a forked child (a dataloader worker): it inherits the object, not the watchdog."""
        self._state = "stopped"
        self._guard.disown()


def _who_am_i() -> tuple[int, int]:
    """(rank, world size) by the process group where there is one yet, else by torchrun's variables."""
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_initialized():
        return int(group.get_rank()), int(group.get_world_size())
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _run_name() -> str:
    """What the run is called: by the launcher's variables, else by the store that it met in, else by the parent that spawned
    this rank and its siblings. A rank of which none of these is known is a run of its own: it must not take another's ranks
    for its own."""
    try:
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        network = ""
    known = run_identity.name(os.environ, network) or _store_name(network)
    if known is None:
        multiprocessing = sys.modules.get("multiprocessing")
        spawned = multiprocessing is not None and multiprocessing.parent_process() is not None
        known = f"children of {os.getppid()}" if spawned else f"process {os.getpid()}"
    return known


def _store_name(network: str) -> str | None:
    """The meeting point by the run's own store, where there is one yet (torch.distributed's TCPStore behind its prefixes)."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized():
        return None
    with contextlib.suppress(Exception):  # another kind of store
        store = c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        return run_identity.name({"MASTER_ADDR": str(store.host), "MASTER_PORT": str(store.port)}, network)
    return None
