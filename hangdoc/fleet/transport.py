"""Runs one command on many hosts through ClusterShell (https://clustershell.readthedocs.io): ssh with a fan-out, its tree mode if
there is a topology.conf, or any local command that contains the host's name.

Every host gives one `HostReply`: a bundle, or one clause that says why there is none."""

import contextlib
import logging
import os
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from ClusterShell.Task import Task, task_self, task_terminate
from ClusterShell.Task import TimeoutError as TaskTimeout
from ClusterShell.Worker.Exec import ExecClient, ExecWorker

from hangdoc import bundle_text
from hangdoc.fleet.shipment import Shipment
from hangdoc.phrases import printable
from hangdoc.version import __version__

_KEPT_LINES = 20
MAX_LINE = 2 << 20
"""Limit for a line from a host, in bytes."""
_MOST_TOGETHER = 1 << 30
"""Limit for the bundles of all hosts together, as text, in bytes. 100,000 hosts of 8 ranks send summaries of about 10 KiB."""
_NOT_FOUND, _SSH_FAILED = 127, 255
_TOO_OLD = "its hangdoc is too old: install the same version there"
_ABSENT = ("command not found", "No such file or directory", "executable file not found")
"""What shells, sudo, srun, docker and kubectl print for a command that is not there."""

logging.getLogger("ClusterShell").addHandler(
    logging.NullHandler()
)  # else it warns on stderr of hosts that stop reading


@dataclass(frozen=True)
class Transport:
    """How a command is run on a host."""

    via: tuple[str, ...] | None = None
    """A local command to which the remote command is appended; `{host}` in it is replaced by the host's name. None: ssh."""
    ssh_options: tuple[str, ...] = ()
    remote_command: tuple[str, ...] = ("hangdoc",)
    """The command that starts hangdoc on the host."""
    fanout: int = 64
    host_timeout: float = 20.0
    """Seconds for one host, from the start of its command."""
    timeout: float = 120.0
    """Seconds for all hosts together."""
    shipment: Shipment | None = None
    """The file to bring to hosts that lack hangdoc; None: it is brought to none."""
    always: bool = False
    """Whether the file is brought to each host, whatever is installed there."""

    @property
    def way(self) -> tuple[str, ...] | None:
        """The words of `remote_command` before hangdoc itself (`sudo -n`, `docker exec -i train`); None if it does not end with
        hangdoc, so that nothing else can be run in its place."""
        *way, program = self.remote_command
        return tuple(way) if os.path.basename(program) == "hangdoc" else None

    def brings(self) -> Shipment | None:
        """The file, if it can be brought."""
        return self.shipment if self.way is not None else None


@dataclass
class HostReply:
    """What one host sent."""

    host: str
    reader: bundle_text.Reader = field(default_factory=bundle_text.Reader)
    why: str | None = None
    """Why there is no bundle; None if there is one."""
    lacking: bool = False
    """Whether the host has no hangdoc, or another version of it."""
    note: str | None = None
    """What the report says about the bundle, in one clause."""
    ahead_seconds: float | None = None
    """Seconds by which the host's clock is at least ahead of ours. The transit time of the message is not known."""
    printed: list[str] = field(default_factory=list)
    """The first other lines that it printed, made safe for a terminal."""

    @property
    def raw(self) -> bytes | None:
        """The bundle."""
        return self.reader.raw if self.why is None else None

    def feed(self, line: bytes) -> None:
        """Read one line of its standard output."""
        if self.why is not None:
            return
        try:
            if self.reader.feed(line) and self.reader.clock is not None:
                self.ahead_seconds = self.reader.clock - time.time()
            elif self.reader.version is None:
                self.note_output(line)
        except bundle_text.BundleTextError as error:
            self.why = str(error)

    def instead_of(self, earlier: "HostReply | None") -> "HostReply":
        """This reply, for which hangdoc was brought; but the earlier one, of the hangdoc that is installed, if only that has a
        bundle."""
        if self.raw is not None or earlier is None or earlier.raw is None:
            return self
        earlier.note = f"its hangdoc is {earlier.reader.version} and this one is {__version__}: {self.why}"
        return earlier

    def note_output(self, line: bytes) -> None:
        """Keep one line that is not part of a bundle."""
        text = line[:400].decode("utf-8", "replace").strip()
        if text and len(self.printed) < _KEPT_LINES:
            self.printed.append(printable(text))


class _Listener(EventHandler):  # type: ignore[misc]
    def __init__(self, replies: dict[str, HostReply], done: Callable[[HostReply], None]) -> None:
        super().__init__()
        self._replies, self._done = replies, done
        self._volume = Volume()

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        reply = self._replies[str(node)]
        if sname == worker.SNAME_STDERR:
            reply.note_output(msg)
            return
        self._volume.feed(reply, msg)

    def ev_hup(self, worker: Any, node: str, rc: int) -> None:
        reply = self._replies[str(node)]
        if reply.raw is None and reply.why is None:
            reply.why = exit_reason(reply, rc)
            reply.lacking = is_absent(reply, rc) or reply.why == _TOO_OLD
        reply.lacking = reply.lacking or reply.reader.version not in (None, __version__)
        self._done(reply)

    def ev_timer(self, timer: Any) -> None:
        cut_off(timer.worker, MAX_LINE, self._replies, "it sends data that is not a bundle")


class Volume:
    """Limits what all hosts together may send."""

    def __init__(self) -> None:
        self._kept = 0

    def feed(self, reply: HostReply, line: bytes) -> None:
        """Read one line of a host's standard output."""
        before = reply.reader.size
        reply.feed(line)
        self._kept += max(0, reply.reader.size - before)
        if self._kept > _MOST_TOGETHER and reply.reader.raw is None and reply.why is None:
            reply.why = f"all hosts together sent more than {_MOST_TOGETHER >> 30} GiB: observe fewer hosts at once"
            reply.reader.drop()


def cut_off(worker: Any, limit: int, replies: dict[str, HostReply], why: str) -> None:
    """End the commands of hosts that have sent more than `limit` bytes without a line end, which would fill the memory."""
    for client in list(worker._engine_clients()):
        if any(len(stream.rbuf) > limit for stream in client.streams.values()) and client._engine is not None:
            replies[str(client.key)].why = why
            client._engine.remove(client, abort=True)


def run(
    hosts: tuple[str, ...],
    arguments: tuple[str, ...],
    transport: Transport,
    done: Callable[[HostReply], None] = lambda reply: None,
) -> list[HostReply]:
    """Run hangdoc with `arguments` on every host. Returns one reply per host, in their order, and calls `done` with each. Blocks
    for at most `transport.timeout` plus one second, and leaves no process running. Never raises: a reply has the reason why its
    host failed."""
    replies = {host: HostReply(host) for host in hosts}
    task: Task = task_self()
    listener = _Listener(replies, done)
    words = (*transport.remote_command, *arguments)
    worker = schedule(task, hosts, words, transport, listener, fanout=transport.fanout, timeout=transport.host_timeout)
    timer = task.timer(0.5, handler=listener, interval=0.5, autoclose=True)
    timer.worker = worker
    try:
        task.run(timeout=transport.timeout)
    except TaskTimeout:
        pass
    finally:
        timeouts = {str(node) for node in worker.iter_keys_timeout()}
        task.abort()
        task_terminate()
    for reply in replies.values():
        if reply.raw is None and reply.why is None:
            reply.why = _timeout_reason(reply, transport, reply.host in timeouts)
    return list(replies.values())


def schedule(
    task: Task,
    hosts: tuple[str, ...],
    words: tuple[str, ...],
    transport: Transport,
    listener: EventHandler,
    *,
    fanout: int,
    timeout: float | None = None,
    stdin: bool = False,
    tree: bool | None = None,
) -> Any:
    """Schedule a command on every host in a task, and return ClusterShell's worker. `timeout` is in seconds per host. `stdin`
    keeps the standard input open, for a session. `tree`: whether ClusterShell's tree mode is used; None: if it is configured."""
    task.set_info("fanout", fanout)
    for stream in ("stdout_msgtree", "stderr_msgtree"):
        task.set_default(stream, False)  # else ClusterShell keeps a second copy of all that is sent
    remote = shlex.join(words)
    nodes = NodeSet.fromlist(hosts, resolver=RESOLVER_NOGROUP)
    if transport.via is None:
        task.set_info("ssh_options", shlex.join(transport.ssh_options) or None)
        task.set_info("connect_timeout", max(1, int(transport.host_timeout // 2)))
        return task.shell(
            remote, nodes=nodes, stdin=stdin, remote=True, handler=listener, timeout=timeout, stderr=True, tree=tree
        )
    worker = _GroupWorker(nodes, command=_local(transport.via, words), handler=listener, timeout=timeout, stderr=True)
    task.schedule(worker)
    if not stdin:
        worker.set_write_eof()
    return worker


class _GroupClient(ExecClient):  # type: ignore[misc]
    """A local command that is ended with all that it has started: a script may have started ssh."""

    def _close(self, abort: bool, timeout: bool) -> None:
        if (
            abort and self.popen is not None and self.popen.poll() is None
        ):  # while it lives, its pid is that of its group
            with contextlib.suppress(OSError):
                os.killpg(self.popen.pid, signal.SIGKILL)
        super()._close(abort, timeout)


class _GroupWorker(ExecWorker):  # type: ignore[misc]
    SHELL_CLASS = _GroupClient


def _local(via: tuple[str, ...], remote: tuple[str, ...]) -> str:
    """The shell command for ClusterShell's local worker. Every word is quoted, and ClusterShell's placeholders are escaped.
    `setsid` prevents password prompts on our terminal. `exec` replaces the shell, so that a timeout ends the command itself."""
    if any(os.path.basename(word).endswith("ssh") for word in via):
        remote = (shlex.join(remote),)  # ssh gives its words to a shell on the host, and so does what is named after it
    words = [shlex.quote(word.replace("%", "%%")).replace("{host}", "%host") for word in (*via, *remote)]
    return "exec setsid " + " ".join(words)


def _timeout_reason(reply: HostReply, transport: Transport, timed_out: bool) -> str:
    if reply.reader.version is not None:
        return f"its hangdoc started but did not finish within {transport.host_timeout:g} s"
    if timed_out:
        printed = f" (it printed: {reply.printed[-1]})" if reply.printed else ""
        return f"no reply within {transport.host_timeout:g} s{printed}"
    return f"the time limit for all hosts ({transport.timeout:g} s) passed before its turn: raise --timeout or --fanout"


def is_absent(reply: HostReply, code: int) -> bool:
    """Whether a host's command ended because it is not there."""
    return code == _NOT_FOUND or any(text in line for line in reply.printed[-2:] for text in _ABSENT)


def exit_reason(reply: HostReply, code: int) -> str:
    """Why a host's command ended without a bundle, in one clause."""
    last = reply.printed[-1] if reply.printed else ""
    if reply.reader.version is not None:
        return f"its hangdoc ended before the bundle was complete (exit code {code})"
    if is_absent(reply, code):
        return (
            "hangdoc was not found there: install it, give its path with --remote-command, or bring it along: name a "
            f"hangdoc.pyz with HANGDOC_PYZ ({last or 'exit code 127'})"
        )
    if code == _SSH_FAILED:
        return f"ssh failed: {last or 'no reason given'}"
    if "No such option" in last or "no such option" in last:
        return _TOO_OLD
    if last.startswith("hangdoc: "):
        return last.removeprefix("hangdoc: ")
    return f"it sent no bundle (exit code {code}" + (f": {last})" if last else ")")
