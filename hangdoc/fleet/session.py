"""A session with many hosts, in rounds: each round sends one line to all hosts and reads one line from each.

As in `transport`, ClusterShell connects to the hosts (through ssh, or any local command that forwards its standard input)."""

import time
from collections.abc import Generator, Mapping
from typing import Any, Generic, TypeVar

from ClusterShell.Event import EventHandler
from ClusterShell.Task import Task, task_self, task_terminate
from ClusterShell.Task import TimeoutError as TaskTimeout

from hangdoc.fleet.transport import HostReply, Transport, cut_off, exit_reason, schedule

MARK = b"-----HANGDOC ANSWER-----"
"""The prefix of each line that is an answer."""
MAX_LINE = 4 << 20
T = TypeVar("T")


class _Session(EventHandler, Generic[T]):  # type: ignore[misc]
    """Drives a generator. It sends the lines that the generator yields, and passes it the answers by host."""

    def __init__(
        self, hosts: tuple[str, ...], script: Generator[bytes, Mapping[str, bytes], T], seconds: float
    ) -> None:
        super().__init__()
        self.replies = {host: HostReply(host) for host in hosts}
        self.result: T | None = None
        self.worker: Any = None
        self._script, self._seconds = script, seconds
        self._received: dict[str, bytes] = {}
        self._present = set(hosts)
        self._ended: dict[str, str] = {}
        """Hosts whose command has ended, with the reason. This is an error, except after an answer in the last round."""
        self._until = time.monotonic() + seconds
        self._finished = False

    def begin(self) -> None:
        """Send the first line. Each host reads it when its command has started."""
        self.worker.write(next(self._script) + b"\n")

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        reply = self.replies[str(node)]
        if sname != worker.SNAME_STDERR and msg.startswith(MARK):
            self._received[str(node)] = msg[len(MARK) :]
            self._advance()
        else:
            reply.note_output(msg)

    def ev_hup(self, worker: Any, node: str, rc: int) -> None:
        self._present.discard(str(node))
        if not self._finished:
            self._ended[str(node)] = exit_reason(self.replies[str(node)], rc)
        self._advance()

    def ev_timer(self, timer: Any) -> None:
        cut_off(timer.worker, MAX_LINE, self.replies, "it sends data that is not an answer")
        self._advance()

    def _advance(self) -> None:
        """Send the next line, when all hosts have answered or the time is up. Hosts that did not answer take no further part."""
        late = time.monotonic() > self._until
        if self._finished or not (late or set(self._received) >= self._present):
            return
        for host in self._present - set(self._received):
            self.replies[host].why = self.replies[host].why or f"no reply within {self._seconds:g} s"
        self._present &= set(self._received)
        received, self._received = self._received, {}
        self._until = time.monotonic() + self._seconds
        try:
            line = self._script.send(received)
        except StopIteration as ended:
            self._finished = True
            self.result = ended.value
        for host, why in self._ended.items():
            if not (self._finished and host in received):
                self.replies[host].why = self.replies[host].why or why
        if self._finished:
            self.worker.set_write_eof()
        else:
            self.worker.write(line + b"\n")


def run_session(
    hosts: tuple[str, ...],
    arguments: tuple[str, ...],
    transport: Transport,
    script: Generator[bytes, Mapping[str, bytes], T],
) -> tuple[T | None, dict[str, str]]:
    """Run hangdoc with `arguments` on all hosts, and exchange lines with them as `script` says. Returns the script's result (None
    if it did not end), and the reason for each host that did not take part until the end. Blocks for at most `transport.timeout`
    plus one second."""
    task: Task = task_self()
    listener = _Session(hosts, script, transport.host_timeout)
    listener.worker = schedule(task, hosts, arguments, transport, listener, stdin=True)
    timer = task.timer(0.2, handler=listener, interval=0.2, autoclose=True)
    timer.worker = listener.worker
    listener.begin()
    try:
        task.run(timeout=transport.timeout)
    except TaskTimeout:
        pass
    finally:
        task.abort()
        task_terminate()
    silent = {host: reply.why for host, reply in listener.replies.items() if reply.why is not None}
    return listener.result, silent
