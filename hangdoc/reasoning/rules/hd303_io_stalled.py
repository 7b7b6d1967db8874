"""A rank is stuck on a file, a file system or a pipe.

## What it finds

A rank that others wait for is stuck in a system call on a file: it opens,
reads, writes or looks up a path, or it writes to a pipe that no process reads.
Or it waits for a child process that itself waits for the rank. Only the rank
could read its full pipe, take from its full queue, or write to its empty pipe.
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
should read it. A rank in state D cannot be traced, so py-spy and gdb hang, too:
read `/proc/PID/wchan` and, as root, `/proc/PID/stack` instead.

## How hangdoc knows

It reads the system call, the path or file descriptor, the mount, the kernel
function in which the thread waits, and for a pipe the processes that hold its
other end.

## When it can be wrong

A slow disk under load responds later. Bytes that are read or written during the
observation count as progress. Before the patience has passed, the finding is an
`info`, not an error.

## References

- proc_pid_wchan(5), proc_pid_syscall(5):
  https://man7.org/linux/man-pages/man5/proc_pid_syscall.5.html
- nfs(5), hard and soft mounts: https://man7.org/linux/man-pages/man5/nfs.5.html
- pipe(7), fifo(7): https://man7.org/linux/man-pages/man7/pipe.7.html
"""

from hangdoc.diagnosis import Evidence
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.holds import BlocksItsChild, InFile, are_stopped
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks.movement import kernel_thread
from hangdoc.reasoning.ranks.waiter import is_fifo
from hangdoc.reasoning.rules.draft import Draft, WithRemedy, about
from hangdoc.reasoning.text import children, next_steps, words
from hangdoc.reasoning.text.next_steps import Command, command, operand
from hangdoc.snapshot import AwaitedFile, Holder

_TERMINALS = ("/dev/pts/", "/dev/tty")
# What it means that a thread waits in one of these kernel functions. The first match wins.
_MEANINGS = {
    "an NFS server does not respond": ("nfs", "rpc_wait"),
    "a FUSE daemon does not respond": ("fuse", "request_wait"),
    "a Ceph server does not respond": ("ceph",),
    "an SMB server does not respond": ("cifs",),
    "a Lustre server does not respond": ("lustre", "cl_sync"),
    "no process opens the other end of the FIFO": ("wait_for_partner",),
    "the pipe is full": ("pipe_write",),
    "it is waiting for the disk": ("io_schedule", "folio_wait"),
}

_SLOW_READER = "Let the reader read faster, or write less: the rank can write only as fast as the other process reads."


@about(InFile)
def describe_file(run: Run, blockage: Blockage, kind: InFile) -> Draft:
    first, file = blockage.awaited[0].first, kind.file
    kernel = kernel_thread(first.process, first.thread) if first.process is not None else None
    state = kernel.state if kernel is not None else "?"
    meant = next((text for text, names in _MEANINGS.items() if any(name in kind.wchan for name in names)), "")
    if _is_terminal(file):
        meant = "the terminal takes no output"
    reason = ", ".join(filter(None, (meant, _describe_holders(file, first.pid))))
    holds = (run.ranks[number].hold for number in blockage.culprits)
    several = len({_name_file(hold.file) for hold in holds if isinstance(hold, InFile)}) > 1
    what = f"{'files such as ' if several else ''}{_name_file(file)} {words.place(first)}"
    stuck = f"{words.are(blockage.culprits)} stuck on {what}"
    if kind.ends == "by-itself":
        stuck = f"{words.are(blockage.culprits)} writing to {what}, and another process reads it"
    stopped = [holder.pid for holder in _list_readers(file, first.pid) if holder.state == "T"]
    stat = (command("timeout", "5", "stat", operand(file.name)),) if file is not None and file.kind == "path" else ()
    return Draft(
        confidence=0.92 if meant and file else 0.85 if meant or file else 0.75,
        summary=f"{stuck}{f': {reason}' if reason else ''}; {words.victims_wait(blockage) or 'no rank is making progress'}",
        evidence=[
            Evidence(
                first.rank,
                "kernel",
                f"pid {first.pid} is in state {state}, wchan {kind.wchan or '?'}; "
                f"{_describe_descriptor(file) or first.why}",
            ),
            *(
                [WithRemedy(first.rank, "kernel", "another process reads it", remedy=_SLOW_READER)]
                if kind.ends == "by-itself"
                else []
            ),
            *words.sides(run, blockage),
        ],
        remedy=_remedy(file, kind.wchan, first.pid)
        + (" Until then, py-spy and debuggers that attach to it hang, too." if state == "D" else ""),
        commands=(*stat, *_kernel_stack(first.pid, state))
        or next_steps.continue_after_signal(stopped, "signal")
        or next_steps.show(reader.pid for reader in _list_readers(file, first.pid))
        or None,
    )


_LET_CONTINUE = {
    "output": "Read the output of the child process while it runs, for example with subprocess.run(capture_output=True) or "
    "Popen.communicate(), or redirect it to a file.",
    "input": "Write what the child process waits for and flush it. Or tell the child process that nothing more comes: close the "
    "pipe before the wait, as Popen.communicate() does, or put an entry into the queue that ends it.",
    "queue": "Take all entries from the queue before the child process is joined or the program ends. Or let the child process "
    "call cancel_join_thread() of the queue, if they may be lost.",
    "full-queue": "Take entries from the queue while the rank waits for the child process, in a thread of its own. Or let the "
    "child process put them without waiting (`put_nowait`, a timeout), and answer in between.",
}
"""What ends the wait of a child process, by what it waits at."""
_READ_WHILE_IT_REPLIES = (
    "Read the output of the child process in a thread of its own for as long as the child process runs, or redirect it to a "
    "file or to subprocess.DEVNULL."
)


@about(BlocksItsChild)
def describe_unread_output(run: Run, blockage: Blockage, kind: BlocksItsChild) -> Draft:
    first = blockage.awaited[0].first
    return Draft(
        confidence=0.9,
        summary=words.awaited(run, blockage),
        evidence=words.sides(run, blockage, children.places(run, first)),
        remedy=_READ_WHILE_IT_REPLIES if kind.replies and kind.at == "output" else _LET_CONTINUE[kind.at],
        commands=children.look(run, first) or None,
    )


def _remedy(file: AwaitedFile | None, wchan: str, own: int | None) -> str:
    if file is not None and file.kind == "pipe":
        if file.holders is None:
            return "Find out which process holds the other end of the pipe, and why it does not read."
        readers = _list_readers(file, own)
        if not readers:
            return "Read the pipe in another process or thread, or write the output to a file."
        if are_stopped(readers):
            return next_steps.RESUME["signal"]
        who = ", ".join(str(reader.pid) for reader in readers)
        return f"Find out why pid {who} does not read the pipe. The rank continues as soon as somebody reads it."
    if "wait_for_partner" in wchan:
        return "Start the process that opens the other end of the FIFO. The rank continues as soon as it is open."
    if _is_terminal(file):
        return "If somebody pressed Ctrl-S in the terminal, press Ctrl-Q. Otherwise find out why ssh or tmux reads nothing."
    if file is not None and file.full:
        return "Free some space on the file system."
    where = "the server of the mount" if file is not None and file.mount is not None else "the disk or the file server"
    return f"Find out why {where} does not respond. The rank continues once it does."


def _is_terminal(file: AwaitedFile | None) -> bool:
    return file is not None and file.name.startswith(_TERMINALS)


def _list_readers(file: AwaitedFile | None, own: int | None) -> list[Holder]:
    """The processes that should read a full pipe; `own` is the pid of the rank."""
    return [holder for holder in (file.holders if file is not None else None) or () if holder.pid != own]


def _kernel_stack(pid: int | None, state: str) -> tuple[Command, ...]:
    """How to see where a process waits that no tool can attach to."""
    return (command("cat", f"/proc/{pid}/wchan"), command("sudo", "cat", f"/proc/{pid}/stack")) if state == "D" else ()


def _describe_descriptor(file: AwaitedFile | None) -> str:
    """`file descriptor 7 is /data/x`, `its system call names /data/x`; empty for none."""
    if file is None:
        return ""
    source = "its system call names" if file.descriptor is None else f"file descriptor {file.descriptor} is"
    return f"{source} {_name_file(file)}"


def _name_file(file: AwaitedFile | None) -> str:
    """`/data/x (on the nfs4 mount server:/x)`, `a pipe`."""
    if file is None:
        return "the file system"
    what = file.name if is_fifo(file) else {"pipe": "a pipe", "socket": "a socket"}.get(file.kind, file.name)
    if file.mount is not None and not _is_terminal(file):
        system, _, source = file.mount.partition(" ")
        return f"{what} (on the {system} mount {source.strip('()')})"
    return f"{what} (on a full file system)" if file.full else what


def _describe_holders(file: AwaitedFile | None, own: int | None) -> str:
    """Which processes hold the read end of a full pipe; `own` is the pid of the rank."""
    if file is None or file.kind != "pipe" or file.holders is None:
        return ""
    who = (
        ", ".join(f"pid {holder.pid} ({holder.name}, state {holder.state})" for holder in file.holders) or "no process"
    )
    if file.holders and all(holder.pid == own for holder in file.holders):
        who = f"only the rank itself (pid {own})"
    return f"its read end is held by {who}"
