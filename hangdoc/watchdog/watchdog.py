"""`Watchdog`: with two lines in a trainer, a frozen run saves the evidence for a diagnosis."""

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
    """Publishes progress, and acts if there is none for `timeout` seconds.

    `timeout` is a number of seconds, or `"auto"`: computed from the duration of the run's own steps, never below `floor`.
    `on_hang` decides what happens after the evidence is in `directory` (the working directory by default). It is `report`
    (keep waiting), `raise` (HangError in the main thread), `abort` (end the process with EXIT_CODE), or a callable that gets
    the hang's own directory. `rank` and `world_size` default to those of torch's process group, or else to torchrun's
    variables. With `allow_attach`, other processes of the same user may read this one even if Yama restricts ptrace.

    Raises ValueError for an unknown timeout or `on_hang`. Any other problem does not reach the trainer: it is
    reported on stderr, once.
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
        known_rank, known_world = _rank_and_size()
        rank = rank if rank is not None else known_rank
        world = world_size if world_size is not None else known_world
        self._member = Member(rank, world, run or _run_name())
        self._log = Log(rank)
        self._run_store = RunStore()
        self._beacon = self._make_beacon()
        self.beat = self._beacon.beat
        """`beat(step, batches=, of=, epoch=, shards=, digest=)`: see hangdoc.beacon.Beacon.beat. Below a microsecond."""
        self._guard = Guard(
            self._member,
            self._beacon,
            Patience(timeout, floor),
            self._run_store,
            self._log,
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
        """The file of its beacon, for readers outside this process."""
        return self._beacon.path

    def _make_beacon(self) -> Beacon:
        rank, world_size, run = self._member
        try:
            return Beacon(rank=rank, world_size=world_size, run=run)
        except OSError as error:
            self._log(f"could not create the heartbeat file, so other processes cannot read the progress: {error}")
            return Beacon(rank=rank, world_size=world_size, run=run, published=False)

    # --- what a trainer calls ------------------------------------------------------------------------------------------

    def watch(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the same batches, with a beat for each. Publishes the expected number if `len()` knows it."""
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
        """Install hooks on a module (plain or DDP) and its optimizer that find the stages and beat at each step, so that the loop
        needs no other change. The stage `data` is the time before the forward pass, and what `watch` measures."""
        from hangdoc.watchdog import follow

        if self._follower is not None:
            self._follower.remove()
        self._follower = follow.Follower(module, optimizer, self._on_step)

    def _on_step(self, stages: tuple[float, ...]) -> None:
        self._beacon.stages(stages)
        self._steps += 1
        self.beat(self._steps)

    @contextlib.contextmanager
    def phase(self, name: str, timeout: float | None = None) -> Iterator[None]:
        """A phase of the training with its own timeout in seconds: `evaluate`, `checkpoint`, `sample`."""
        before = self._beacon.phase
        self._enter(name, timeout or 0.0)
        try:
            yield
        finally:
            self._enter(*before)

    def _enter(self, phase: str, patience: float) -> None:
        if patience != self._beacon.phase[1]:
            self._run_store.announce_silence(self._member.rank, patience)
        self.beat(phase=phase, patience=patience)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time one of `data`, `forward`, `backward`, `optimizer`. The times are published when the last stage has ended. Raises
        KeyError for another name."""
        began, earlier_seconds = time.perf_counter(), self._stage_seconds[name]
        try:
            yield
        finally:
            self._stage_seconds[name] = earlier_seconds + time.perf_counter() - began
            if name == STAGES[-1]:
                self._beacon.stages(tuple(self._stage_seconds.values()))
                self._stage_seconds = dict.fromkeys(STAGES, 0.0)

    def start(self) -> "Watchdog":
        """Start watching; `with` does the same. Raises RuntimeError if the watchdog was stopped."""
        if self._state == "stopped":
            raise RuntimeError("this watchdog was stopped. Create a new one.")
        if self._state == "new":
            self._state = "running"
            self.beat()
            self._guard.arm()
            self._guard.start()
            _running.add(self)
            atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Stop watching and remove the beacon. Safe to call twice, at exit, and in a forked child."""
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
        """Disable the copy of this object in a forked child (a dataloader worker), which has no watchdog thread."""
        self._state = "stopped"
        self._guard.disown()


def _rank_and_size() -> tuple[int, int]:
    """(rank, world size) from the process group if there is one already, else from torchrun's variables."""
    group = sys.modules.get("torch.distributed")
    if group is not None and group.is_initialized():
        return int(group.get_rank()), int(group.get_world_size())
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _run_name() -> str:
    """The name of the run: from the launcher's variables, else from its store, else from the parent that spawned this rank and
    its siblings. Without any of these the rank is a run of its own, so that it is not mixed up with the ranks of another
    run."""
    try:
        network = os.readlink("/proc/self/ns/net")
    except OSError:
        network = ""
    name = run_identity.name(os.environ, network) or _store_name(network)
    if name is None:
        multiprocessing = sys.modules.get("multiprocessing")
        spawned = multiprocessing is not None and multiprocessing.parent_process() is not None
        name = f"children of {os.getppid()}" if spawned else f"process {os.getpid()}"
    return name


def _store_name(network: str) -> str | None:
    """The name from the endpoint of the run's store, if there is one already (torch.distributed's TCPStore below its
    prefixes)."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized():
        return None
    with contextlib.suppress(Exception):  # another kind of store
        store = c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        return run_identity.name({"MASTER_ADDR": str(store.host), "MASTER_PORT": str(store.port)}, network)
    return None
