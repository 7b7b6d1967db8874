"""A rank waits for a dataloader worker that is dead, stuck or starved.

## What it finds

A rank stands still in torch's DataLoader waiting for a batch, and the worker process that should bring it is gone, is a
zombie, is stopped, or itself stands still in the user's dataset code.

## Why it hangs

The loader waits for its worker without a bound (its `timeout` is 0 by default), and all other ranks wait for this rank
in their next collective.

## Evidence

The rank's stack inside the loader, the state of its worker processes, and the worker's own stack: the line of
`__getitem__` or of the iterator that does not come back, and what the kernel has it wait for.

## What to do

Look at the line the worker stands at. Give the loader a `timeout=`, so that it raises instead of waiting. A worker that
waits for a lock was forked while another thread held it: use `multiprocessing_context="spawn"`. A worker that was killed
may have been short of memory or of /dev/shm.

## When it would be wrong

A slow worker on a slow disk that delivers after the window: its CPU, reads and the silence of the run are looked at, and
below the patience it is a note, not an error.

## References

- torch.utils.data.DataLoader: https://docs.pytorch.org/docs/stable/data.html
"""

from collections.abc import Iterator
from typing import NamedTuple

from hangdoc.diagnose import facts, states, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnose.stopped import stopped_by
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.snapshot import Clocks, Frame, KernelThread, Machine, Process, PythonThread, Stack

CODE = "HD103"
NAME = "dataloader-stalled"
EXPLAINS = ("HD202", "HD901")

_SIGKILL = 9


class _Cause(NamedTuple):
    """Why a rank's loader gives it nothing."""

    about: str
    """Of the worker, or of the loader where no one worker is to blame."""
    confidence: float
    worker: Process | None = None
    hard: bool = False
    """Whether it can't end by itself."""
    shown: tuple[Process, ...] = ()
    """Workers that say something."""

    def __str__(self) -> str:
        return f"its worker (pid {self.worker.pid}) {self.about}" if self.worker is not None else self.about


def check(run: Run) -> Iterator[Finding]:
    """One finding for all ranks that wait for their loaders for the same reason."""
    alike: dict[object, list[tuple[Rank, _Cause]]] = {}
    for rank in run.ranks.values():
        if rank.state == "waiting-data" and _in_torch_loader(rank):
            cause = _cause(run, rank)
            alike.setdefault((cause.about, cause.worker is None), []).append((rank, cause))
    for group in alike.values():
        yield _finding(run, group)


def _in_torch_loader(rank: Rank) -> bool:
    return rank.thread is not None and any(f.file.endswith(facts.DATALOADER) for f in rank.thread.frames)


def _cause(run: Run, rank: Rank) -> _Cause:
    inside = _loads_itself(rank)
    workers = sorted((helper for helper in run.helpers(rank) if _is_worker(helper)), key=lambda worker: worker.pid)
    dead = [worker for worker in workers if worker.state in "ZX"]
    stopped = [worker for worker in workers if stopped_by(worker) is not None]
    stuck = [worker for worker in workers if worker not in dead + stopped and _place(worker) is not None]
    # The state says that its workers are not at work: one that could run is kept from it.
    starved = [w for w in workers if w.state == "R" or ((main := _main_thread(w)) is not None and main.state == "R")]
    shown = (*dead, *stopped, *stuck)[:4]
    likely = 0.9 if stuck else 0.6
    if inside is not None:
        return _Cause(
            f"it loads by itself (num_workers=0) and does not come back from {inside.function}", 0.9, shown=shown
        )
    if dead:
        return _Cause(f"is dead: {states.how_it_ended(dead[0])}", 0.95, dead[0], hard=True, shown=shown)
    if stopped:
        return _Cause("is stopped", 0.95, stopped[0], hard=True, shown=shown)
    if not workers:
        return _Cause("none of its worker processes was seen", likely)
    if starved:
        return _Cause("is runnable and gets next to no CPU", likely, starved[0], shown=shown)
    if not stuck:
        return _Cause("its workers stand still", likely, shown=tuple(workers[:1]))
    frame = _place(stuck[0])
    assert frame is not None  # noqa: S101  (that is what makes it stuck)
    lock = (frame.source or "").startswith("with ") or ".acquire(" in (frame.source or "")
    held = ": it waits for a lock, as one that was held when it was forked" if lock else ""
    return _Cause(f"does not come back from {frame.function}{held}", likely, stuck[0], shown=shown)


def _finding(run: Run, group: list[tuple[Rank, _Cause]]) -> Finding:
    first, cause = group[0]
    ranks = [rank for rank, _ in group]
    numbers = [rank.rank for rank in ranks]
    victims = [rank.rank for rank in run.waiting()]
    wait = (
        f"rank {first.rank} waits for its dataloader: {cause}"
        if len(group) == 1
        else f"{words.ranks(numbers)} wait for their dataloaders, rank {first.rank} because {cause}"
    )
    waits = f", and {words.ranks(victims)} {words.verb(victims, 'waits', 'wait')} for it" if victims else ""
    look = cause.worker or next(iter(cause.shown), None)
    return words.finding(
        CODE,
        NAME,
        severity="error" if cause.hard else words.by_age(run),
        confidence=cause.confidence,
        culprits=numbers,
        victims=victims,
        summary=wait + waits,
        evidence=[
            *words.class_evidence(ranks),
            *dict.fromkeys(one for rank, why in group[:4] for one in _shortage(run, rank, why.shown)),
            *(
                Evidence(rank=rank.rank, probe="stacks", text=_describe(worker))
                for rank, why in group[:4]
                for worker in why.shown[: 4 if len(group) == 1 else 1]
            ),
            *words.standstill(run),
        ],
        remedy="Mend what the worker waits for; give the DataLoader a timeout= so that it raises instead of waiting.",
        commands=(f"py-spy dump --pid {look.pid}",) if look is not None else words.look_again(first),
    )


def _shortage(run: Run, rank: Rank, workers: tuple[Process, ...]) -> list[Evidence]:
    """Memory that workers die or wait for: kills of the control group, a full /dev/shm."""
    found = []
    for host in run.hosts:
        if host.name != rank.host:
            continue
        if any((worker.exit_code or 0) & 0x7F == _SIGKILL for worker in workers):
            found += [
                Evidence(
                    rank=None, probe="control groups", text=f"{group.oom_kills} out-of-memory kill(s) in {group.path}"
                )
                for group in host.control_groups
                if group.oom_kills
            ]
        machine = host.machine
        total = machine.shared_total_bytes if isinstance(machine, Machine) else None
        free = machine.shared_free_bytes if isinstance(machine, Machine) else None
        if total and free is not None and free < 0.02 * total:
            text = f"shared memory (/dev/shm) is full: {free / 1e6:.0f} of {total / 1e6:.0f} MB free"
            found.append(Evidence(rank=None, probe="machine", text=text))
    return found


def _main_thread(worker: Process) -> KernelThread | None:
    threads = worker.clocks.threads if isinstance(worker.clocks, Clocks) else ()
    return next((t for t in threads if t.tid == worker.pid), None)


def _loads_itself(rank: Rank) -> Frame | None:
    """The user's frame that the loader called in the rank itself; None where workers load."""
    frames = [] if rank.thread is None else [f for f in rank.thread.frames if not f.native]
    inner = next((i for i, f in enumerate(frames) if f.file.endswith(facts.DATALOADER)), 0)
    return next((f for f in frames[:inner] if not f.library), None)


def _is_worker(helper: Process) -> bool:
    return helper.name == "pt_data_worker" or _worker_thread(helper) is not None


def _worker_thread(helper: Process) -> PythonThread | None:
    if not isinstance(helper.stack, Stack):
        return None
    file, function = facts.DATALOADER_WORKER
    for thread in helper.stack.threads:
        if any(f.file.endswith(file) and f.function == function for f in thread.frames):
            return thread
    return None


def _place(helper: Process) -> Frame | None:
    """The innermost frame of the user's code above the worker loop; None where the worker idles in its own queue."""
    thread = _worker_thread(helper)
    if thread is None:
        return None
    for frame in thread.frames:
        if frame.file.endswith(facts.DATALOADER_WORKER[0]):
            return None
        if not frame.library and not frame.native:
            return frame
    return None


def _describe(worker: Process) -> str:
    if worker.state in "ZX":
        return f"worker pid {worker.pid}: {states.how_it_ended(worker)}"
    if (stopped := stopped_by(worker)) is not None:
        return f"worker pid {worker.pid} is {stopped.why}"
    frame = _place(worker)
    place = f"in {frame.function} ({frame.file}:{frame.line} `{frame.source or '?'}`)" if frame else "in its queue"
    main = _main_thread(worker)
    waiting = f", kernel: {main.wchan or 'running'}, {main.cpu_ns / 1e6:.0f} ms CPU in the window" if main else ""
    return f"worker pid {worker.pid} stands {place}{waiting}"
