"""A rank is stuck on a file, a file system or a pipe.

## What it finds

A rank that others wait for is stuck in a system call on a file: it opens,
reads, writes or looks up a path, or it writes to a pipe that no process reads.
Or no rank makes progress, because the storage of all ranks is gone.

## Why it hangs

A call into a file system whose server is gone does not return. Neither does a
write to a full pipe, or the opening of a FIFO that no other process opens. The
rank never reaches the operation that the others wait in. It uses no CPU and
shows no error. In state D, not even SIGKILL ends it.

## Example

```python
for path in shards:
    table = pq.read_table(path)  # <- on an NFS mount whose server went away
    train_on(table)
```

## Use instead

```python
local = Path(os.environ["TMPDIR"]) / "shards"
if local_rank == 0:
    shutil.copytree("/mnt/nfs/shards", local)  # once, before training
dist.barrier()
for path in sorted(local.glob("*.parquet")):
    train_on(pq.read_table(path))
```

Check the file from another shell with a time limit: `timeout 5 stat PATH`. For
a mount, check its server and the network. For a pipe, check the process that
should read it.

## How hangdoc knows

It reads the system call, the path or file descriptor, the mount, the kernel
function in which the thread waits, and for a pipe the processes that hold its
other end.

## When it can be wrong

A slow disk under load responds later. Bytes that are read or written during the
observation count as progress. Before the patience has passed, the finding is a
note, not an error.

## References

- proc_pid_wchan(5), proc_pid_syscall(5):
  https://man7.org/linux/man-pages/man5/proc_pid_syscall.5.html
- nfs(5), hard and soft mounts: https://man7.org/linux/man-pages/man5/nfs.5.html
- pipe(7), fifo(7): https://man7.org/linux/man-pages/man7/pipe.7.html
"""

import shlex

from hangdoc.diagnosis import Evidence, Finding
from hangdoc.reasoning import words
from hangdoc.reasoning.blockages import Blockage
from hangdoc.reasoning.model import Run
from hangdoc.reasoning.ranks.holds import InFile
from hangdoc.reasoning.ranks.movement import kernel_thread
from hangdoc.reasoning.ranks.standing import in_words

CODE = "HD303"
NAME = "io-stalled"
ABOUT = (InFile,)

# The kernel function in which a thread waits, and what that means. The first match wins.
_PLACES = (
    ("nfs", "an NFS server does not respond"),
    ("rpc_wait", "an NFS server does not respond"),
    ("fuse", "a FUSE daemon does not respond"),
    ("request_wait", "a FUSE daemon does not respond"),
    ("ceph", "a Ceph server does not respond"),
    ("cifs", "an SMB server does not respond"),
    ("lustre", "a Lustre server does not respond"),
    ("cl_sync", "a Lustre server does not respond"),
    ("wait_for_partner", "no process opens the other end of the FIFO"),
    ("pipe_write", "the pipe is full"),
    ("pipe_read", "the pipe is empty"),
    ("io_schedule", "it is waiting for the disk"),
    ("folio_wait", "it is waiting for the disk"),
)


def say(run: Run, blockage: Blockage) -> Finding:
    """Ranks that are stuck on a file while others wait for them, or while no rank makes progress."""
    kind = blockage.kind
    assert isinstance(kind, InFile)  # noqa: S101  (see ABOUT)
    first, blamed = blockage.at[0].first, blockage.culprits
    meant = next((text for name, text in _PLACES if name in kind.wchan), "")
    file = kind.file
    path = file.name if file is not None and file.kind == "path" else ""
    pipe = file is not None and file.kind == "pipe"
    dead = words.ended_children(run, first) if pipe else []  # one of them may be the process that should have written
    parts = (meant, _holders(kind, first.pid), *(evidence.text for evidence in dead[:1]))
    reason = ", ".join(part for part in parts if part)
    return words.blocked(
        (CODE, NAME),
        blockage,
        confidence=0.92 if meant and file else 0.85 if meant or file else 0.75,
        summary=f"{words.ranks(blamed)} {words.be(blamed)} stuck on "
        f"{_what(run, blockage, kind) or 'the file system'} {words.place(first)}{f': {reason}' if reason else ''}; "
        + (words.victims_wait(blockage) or "no rank is making progress"),
        evidence=[
            Evidence(
                rank=first.rank,
                probe="kernel",
                text=f"pid {first.pid}: state {_state(blockage)}, wchan {kind.wchan or '?'}, {in_words(file) or first.why}",
            ),
            *dead,
            *words.class_evidence(blockage.at),
            *words.class_evidence(blockage.waiting),
            *words.standstill(run),
        ],
        remedy="Find out why the file does not respond: check its server or mount, the disk, or the other end of the pipe. "
        "The rank continues by itself once the file responds.",
        commands=(f"timeout 5 stat {shlex.quote(path)}",) if path else words.look_again(first),
    )


def _what(run: Run, blockage: Blockage, kind: InFile) -> str:
    """The file, as text."""
    what = in_words(kind.file)
    holds = (run.ranks[number].hold for number in blockage.culprits)
    several = len({in_words(hold.file) for hold in holds if isinstance(hold, InFile)}) > 1
    return f"files such as {what}" if several and what else what


def _holders(kind: InFile, own: int | None) -> str:
    """Which processes hold the other end of a pipe; `own` is the pid of the rank."""
    file = kind.file
    if file is None or file.kind != "pipe" or file.holders is None:
        return ""
    who = ", ".join(f"pid {one.pid} ({one.name}, state {one.state})" for one in file.holders) or "no process"
    if file.holders and all(one.pid == own for one in file.holders):
        who = f"only the rank itself (pid {own})"
    return f"its {'read' if file.writes else 'write'} end is held by {who}"


def _state(blockage: Blockage) -> str:
    first = blockage.at[0].first
    kernel = kernel_thread(first.process, first.thread) if first.process is not None else None
    return kernel.state if kernel is not None else "?"
