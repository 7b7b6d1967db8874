"""A rank is stuck in the file system or on a pipe.

## What it finds

A rank that others wait for stands still in a system call on a file: it opens, reads, writes or looks up a path, in an
uninterruptible sleep or in a wait of a network file system, or it writes into a pipe that nobody empties. Or no rank waits
for another, and none does anything: the storage of all of them is gone.

## Why it hangs

A call into a file system whose server is gone does not come back, and neither does a write into a full pipe or the
opening of a FIFO without another end. The rank never reaches the operation that the others wait in. It uses no CPU and
shows no error; in state D not even SIGKILL ends it.

## Evidence

The system call, the path or descriptor it was given, the mount it lies on, where the kernel has the thread wait, and for
a pipe the processes that hold its other end.

## What to do

Look at the file from another shell on that host with a bound (`timeout 5 stat PATH`). For a mount: its server, the
network to it, `dmesg`. For a pipe: the process that should read it. Copy shards to local disks before training.

## When it would be wrong

A slow disk under load answers later; bytes read or written in the window count as movement, and below the patience it is
a note.

## References

- proc_pid_wchan(5), proc_pid_syscall(5): https://man7.org/linux/man-pages/man5/proc_pid_syscall.5.html
- nfs(5), hard and soft mounts: https://man7.org/linux/man-pages/man5/nfs.5.html
- pipe(7), fifo(7): https://man7.org/linux/man-pages/man7/pipe.7.html
"""

import shlex
from collections.abc import Iterator

from hangdoc.diagnose import words
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnose.states import kernel_thread
from hangdoc.diagnosis import Evidence, Finding

CODE = "HD303"
NAME = "io-stalled"
EXPLAINS = ("HD202", "HD401", "HD901")

# What the kernel calls the place where a thread waits, and what that means (first match wins).
_PLACES = (
    ("nfs", "an NFS server that does not answer"),
    ("rpc_wait", "an NFS server that does not answer"),
    ("fuse", "a FUSE daemon that does not answer"),
    ("request_wait", "a FUSE daemon that does not answer"),
    ("ceph", "a Ceph server that does not answer"),
    ("cifs", "an SMB server that does not answer"),
    ("lustre", "a Lustre server that does not answer"),
    ("cl_sync", "a Lustre server that does not answer"),
    ("wait_for_partner", "the other end of a FIFO, which nobody opens"),
    ("pipe_write", "a full pipe, which nobody empties"),
    ("pipe_read", "a pipe that nobody writes into"),
    ("io_schedule", "its disk"),
    ("folio_wait", "its disk"),
)


def check(run: Run) -> Iterator[Finding]:
    """Every rank that stands still on a file while others wait for it, or while all stand still."""
    suspects = run.ranks.values() if run.standstill else run.awaited()
    stuck = [r for r in suspects if r.state == "waiting-io" and not r.moving and "socket:" not in _file(r)]
    victims = [rank.rank for rank in run.waiting() if not rank.moving]
    if victims or run.standstill:
        for group in words.classes(stuck):
            yield _finding(run, group, victims)


def _file(rank: Rank) -> str:
    """What the system call that a rank stands in was given."""
    kernel = kernel_thread(rank.process, rank.thread) if rank.process is not None else None
    return (kernel.syscall_file if kernel is not None else None) or ""


def _finding(run: Run, group: list[Rank], victims: list[int]) -> Finding:
    first = group[0]
    blamed = [rank.rank for rank in group]
    kernel = kernel_thread(first.process, first.thread) if first.process is not None else None
    wchan = (kernel.wchan if kernel else None) or ""
    file = _file(first)
    meant = next((text for name, text in _PLACES if name in wchan), "")
    path = file.removeprefix("path ").partition(" on ")[0] if file.startswith("path ") else ""
    descriptor, _, rest = file.partition(": ")
    target, _, holders = rest.partition(", ")
    what = (
        file.removeprefix("path ")
        if path
        else f"{'a pipe' if 'pipe:' in target else target} ({descriptor})"
        if rest
        else ""
    )
    dead = words.ended_children(run, first) if "pipe" in file else []  # one of them may be who should have written
    parts = (f"it waits for {meant}" if meant else "", holders, *(evidence.text for evidence in dead[:1]))
    reason = "; ".join(part for part in parts if part)
    if what and len({_file(rank) for rank in group}) > 1:
        what = f"files like {what}"
    waits = (
        f"{words.ranks(victims)} {words.verb(victims, 'waits', 'wait')} for it" if victims else "no rank does anything"
    )
    return words.finding(
        CODE,
        NAME,
        severity=words.by_age(run),
        confidence=0.92 if meant and file else 0.85 if meant or file else 0.75,
        culprits=blamed,
        victims=victims,
        summary=f"{words.ranks(blamed)} {words.verb(blamed, 'is', 'are')} stuck on "
        f"{what or 'the file system'} {words.place(first)}{f' ({reason})' if reason else ''}; {waits}",
        evidence=[
            Evidence(
                rank=first.rank,
                probe="kernel",
                text=f"pid {first.pid}: state {kernel.state if kernel else '?'}, wchan {wchan or '?'}, {file or first.why}",
            ),
            *dead,
            *words.class_evidence(group),
            *words.class_evidence(run.ranks[number] for number in victims),
            *words.standstill(run),
        ],
        remedy="Find out why the file does not answer: its server or mount, the other end of the pipe, the disk. The rank "
        "goes on by itself as soon as it does.",
        commands=(f"timeout 5 stat {shlex.quote(path)}",) if path else words.look_again(first),
    )
