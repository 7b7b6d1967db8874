"""One command on many hosts through ClusterShell (https://clustershell.readthedocs.io): ssh with a fan-out, its tree mode where
a topology.conf is there, or any local command with the host's name in it.

Whatever a host does, it ends with one `HostReply`: a bundle, or one clause that says why there is none."""

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.NodeSet import NodeSet
from ClusterShell.Task import Task, task_self, task_terminate
from ClusterShell.Task import TimeoutError as TaskTimeout
from ClusterShell.Worker.Exec import ExecWorker

from hangdoc import bundle_text

_KEPT_LINES = 20
_MAX_LINE = 2 << 20
"""Bytes that a host may send without ending the line."""
_NOT_FOUND, _SSH_FAILED = 127, 255


@dataclass(frozen=True)
class Transport:
    """How a command gets to a host."""

    via: tuple[str, ...] | None = None
    """A local command that the remote one is appended to, with `{host}` for the host's name; None: ssh."""
    ssh_options: tuple[str, ...] = ()
    remote_command: tuple[str, ...] = ("hangdoc",)
    """How hangdoc is started on the host."""
    fanout: int = 64
    host_timeout: float = 20.0
    """Seconds for one host, from when its turn comes."""
    timeout: float = 120.0
    """Seconds for all."""


@dataclass
class HostReply:
    """What one host sent."""

    host: str
    reader: bundle_text.Reader = field(default_factory=bundle_text.Reader)
    why: str | None = None
    """Why there is no bundle."""
    ahead_seconds: float | None = None
    """How far the host's clock is before ours, at the least: a message travels for a while."""
    said: list[str] = field(default_factory=list)
    """What it printed beside the bundle, made safe for a terminal."""

    @property
    def raw(self) -> bytes | None:
        """The bundle."""
        return self.reader.raw if self.why is None else None

    def take(self, line: bytes) -> None:
        """One line of its standard output."""
        if self.why is not None:
            return
        try:
            if self.reader.feed(line) and self.reader.clock is not None:
                self.ahead_seconds = self.reader.clock - time.time()
            elif self.reader.version is None:
                self.hear(line)
        except bundle_text.BundleTextError as error:
            self.why = str(error)

    def hear(self, line: bytes) -> None:
        """One line that is not part of a bundle."""
        text = line[:400].decode("utf-8", "replace").strip()
        if text and len(self.said) < _KEPT_LINES:
            self.said.append("".join(c if c.isprintable() else "·" for c in text))


class _Listener(EventHandler):  # type: ignore[misc]
    def __init__(self, answers: dict[str, HostReply], done: Callable[[HostReply], None]) -> None:
        super().__init__()
        self._answers, self._done = answers, done

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        answer = self._answers[str(node)]
        if sname == worker.SNAME_STDERR:
            answer.hear(msg)
        else:
            answer.take(msg)

    def ev_hup(self, worker: Any, node: str, rc: int) -> None:
        answer = self._answers[str(node)]
        if answer.raw is None and answer.why is None:
            answer.why = explain(answer, rc)
        self._done(answer)

    def ev_timer(self, timer: Any) -> None:
        cut_off(timer.worker, _MAX_LINE, self._answers, "it sends something that is no bundle")


def cut_off(worker: Any, limit: int, answers: dict[str, HostReply], why: str) -> None:
    """End the hosts that have sent more than `limit` bytes of a line: one that never ends would be kept forever."""
    for client in list(worker._engine_clients()):
        if any(len(stream.rbuf) > limit for stream in client.streams.values()) and client._engine is not None:
            answers[str(client.key)].why = why
            client._engine.remove(client, abort=True)


def run(
    hosts: tuple[str, ...],
    arguments: tuple[str, ...],
    transport: Transport,
    done: Callable[[HostReply], None] = lambda answer: None,
) -> list[HostReply]:
    """Run hangdoc with `arguments` on every host; one reply for each, in their order. `done` is called for each.
    Blocks for at most `transport.timeout` and a second; leaves no process behind. Never raises for what a host does."""
    answers = {host: HostReply(host) for host in hosts}
    task: Task = task_self()
    listener = _Listener(answers, done)
    worker = schedule(task, hosts, arguments, transport, listener, timeout=transport.host_timeout)
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
    for answer in answers.values():
        if answer.raw is None and answer.why is None:
            answer.why = _silence(answer, transport, answer.host in timeouts)
    return list(answers.values())


def schedule(
    task: Task,
    hosts: tuple[str, ...],
    arguments: tuple[str, ...],
    transport: Transport,
    listener: EventHandler,
    *,
    timeout: float | None = None,
    stdin: bool = False,
) -> Any:
    """Have a task run hangdoc with `arguments` on every host; ClusterShell's worker. `timeout` in seconds for each host."""
    together = stdin  # who talks with the others is there with them
    task.set_info("fanout", len(hosts) if together else transport.fanout)
    remote = shlex.join((*transport.remote_command, *arguments))
    nodes = NodeSet.fromlist(hosts)
    if transport.via is None:
        task.set_info("ssh_options", shlex.join(transport.ssh_options) or None)
        task.set_info("connect_timeout", max(1, int(transport.host_timeout // 2)))
        return task.shell(remote, nodes=nodes, stdin=stdin, remote=True, handler=listener, timeout=timeout, stderr=True)
    worker = ExecWorker(nodes, command=_local(transport.via, remote), handler=listener, timeout=timeout, stderr=True)
    task.schedule(worker)
    if not stdin:
        worker.set_write_eof()
    return worker


def _local(via: tuple[str, ...], remote: str) -> str:
    """ClusterShell's local worker takes a line for the shell: every word is quoted, and what it would replace is escaped. The
    command gets a session of its own, so that it can't ask for a password at our terminal, and takes the shell's place, so
    that it is it that is ended."""
    words = [shlex.quote(word.replace("%", "%%")).replace("{host}", "%host") for word in (*via, *shlex.split(remote))]
    return "exec setsid " + " ".join(words)


def _silence(answer: HostReply, transport: Transport, timed_out: bool) -> str:
    if answer.reader.version is not None:
        return f"it began to look but did not finish within {transport.host_timeout:g} s"
    if timed_out:
        said = f" (it printed: {answer.said[-1]})" if answer.said else ""
        return f"no answer within {transport.host_timeout:g} s{said}"
    return f"the time for all hosts ({transport.timeout:g} s) ended before its turn (--timeout, --fanout)"


def explain(answer: HostReply, code: int) -> str:
    """Why a host that has ended sent nothing, in one clause."""
    last = answer.said[-1] if answer.said else ""
    if answer.reader.version is not None:
        return f"its hangdoc ended in the middle of the bundle (exit code {code})"
    if code == _NOT_FOUND or "command not found" in last or "No such file or directory" in last:
        return f"hangdoc was not found there. Install it, or give its path with --remote-command ({last or 'exit code 127'})"
    if code == _SSH_FAILED:
        return f"ssh failed: {last or 'no reason given'}"
    if "No such option" in last or "no such option" in last:
        return "its hangdoc is too old to be asked from here: install the same version"
    if last.startswith("hangdoc: "):
        return last.removeprefix("hangdoc: ")
    return f"it sent no bundle (exit code {code}" + (f": {last})" if last else ")")
