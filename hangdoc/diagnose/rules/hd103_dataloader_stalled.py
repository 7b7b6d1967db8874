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

from hangdoc.diagnose import facts, states, words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnosis import Evidence, Finding
from hangdoc.snapshot import Clocks, Frame, KernelThread, Machine, Process, PythonThread, Stack

CODE = "HD103"
NAME = "dataloader-stalled"
EXPLAINS = ("HD202",)

_SIGKILL = 9


def check(run: Run) -> Iterator[Finding]:
    """Every rank that waits for its loader."""
    for rank in run.ranks.values():
        if rank.state == "waiting-data" and _in_torch_loader(rank):
            yield _finding(run, rank)


def _in_torch_loader(rank: Rank) -> bool:
    return rank.thread is not None and any(f.file.endswith(facts.DATALOADER) for f in rank.thread.frames)


def _finding(run: Run, rank: Rank) -> Finding:
    inside = _loads_itself(rank)
    workers = [helper for helper in run.helpers(rank) if _is_worker(helper)]
    dead = [worker for worker in workers if worker.state in "ZX"]
    stopped = [worker for worker in workers if worker.state in "Tt" or worker.frozen]
    stuck = [worker for worker in workers if worker not in dead + stopped and _place(worker) is not None]
    # The state says that its workers are not at work: one that could run is kept from it.
    starved = [w for w in workers if w.state == "R" or ((main := _main_thread(w)) is not None and main.state == "R")]
    evidence = [words.stack_evidence(rank)]
    if inside is not None:
        what, hard = f"it loads by itself (num_workers=0) and does not come back from {inside.function}", False
    elif dead:
        what, hard = f"its worker (pid {dead[0].pid}) is dead: {states.how_it_ended(dead[0])}", True
    elif stopped:
        what, hard = f"its worker (pid {stopped[0].pid}) is stopped", True
    elif not workers:
        what, hard = "none of its worker processes was seen", False
    elif starved:
        what, hard = f"its worker (pid {starved[0].pid}) is runnable and gets next to no CPU", False
    elif stuck:
        frame = _place(stuck[0])
        assert frame is not None  # noqa: S101  (that is what makes it stuck)
        lock = (frame.source or "").startswith("with ") or ".acquire(" in (frame.source or "")
        held = ": it waits for a lock, as one that was held when it was forked" if lock else ""
        what, hard = f"its worker (pid {stuck[0].pid}) does not come back from {frame.function}{held}", False
    else:
        what, hard = "its workers stand still", False
    evidence += _shortage(run, rank, dead)
    shown = (*dead, *stopped, *stuck)[:4]
    evidence += [Evidence(rank=rank.rank, probe="stacks", text=_describe(worker)) for worker in shown]
    victims = [r.rank for r in run.waiting()]
    waits = f", and {words.ranks(victims)} {words.verb(victims, 'waits', 'wait')} for it" if victims else ""
    blamed = (dead or stopped or stuck or workers)[:1]
    return words.finding(
        CODE,
        NAME,
        severity="error" if hard else words.by_age(run),
        confidence=0.95 if dead or stopped else 0.9 if stuck or inside is not None else 0.6,
        culprits=[rank.rank],
        victims=victims,
        summary=f"rank {rank.rank} waits for its dataloader: {what}{waits}",
        evidence=[*evidence, *words.standstill(run)],
        remedy="Mend what the worker waits for; give the DataLoader a timeout= so that it raises instead of waiting.",
        commands=tuple(f"py-spy dump --pid {worker.pid}" for worker in blamed),
    )


def _shortage(run: Run, rank: Rank, dead: list[Process]) -> list[Evidence]:
    """Memory that workers die or wait for: kills of the control group, a full /dev/shm."""
    found = []
    for host in run.hosts:
        if host.name != rank.host:
            continue
        if any((worker.exit_code or 0) & 0x7F == _SIGKILL for worker in dead):
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
    if worker.state in "Tt" or worker.frozen:
        return f"worker pid {worker.pid} is stopped (state {worker.state})"
    frame = _place(worker)
    place = f"in {frame.function} ({frame.file}:{frame.line} `{frame.source or '?'}`)" if frame else "in its queue"
    main = _main_thread(worker)
    waiting = f", kernel: {main.wchan or 'running'}, {main.cpu_ns / 1e6:.0f} ms CPU in the window" if main else ""
    return f"worker pid {worker.pid} stands {place}{waiting}"
