"""A session with many hosts, in rounds: each round sends one line to all hosts and reads one line from each.

As in `transport`, ClusterShell connects to the hosts (through ssh, or any local command that forwards its standard input)."""

import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Generic, TypeVar

from ClusterShell.Event import EventHandler
from ClusterShell.Task import Task, task_self, task_terminate
from ClusterShell.Task import TimeoutError as TaskTimeout

from hangdoc.fleet.shipment import Delivery, request
from hangdoc.fleet.transport import HostReply, Transport, cut_off, exit_reason, run, schedule
from hangdoc.version import __version__

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
        """The connections with the hosts that have hangdoc; None if there is no such host."""
        self.deliveries: dict[str, Delivery] = {}
        """The connections with the others, by host."""
        self._script, self._seconds = script, seconds
        self._received: dict[str, bytes] = {}
        self._present = set(hosts)
        self._ended: dict[str, str] = {}
        """Hosts whose command has ended, with the reason. This is an error, except after an answer in the last round."""
        self._until = time.monotonic() + seconds
        self._finished = False

    def begin(self) -> None:
        """Send the first line. Each host reads it when its command has started."""
        self._write(next(self._script) + b"\n")

    def workers(self) -> Iterator[Any]:
        """ClusterShell's workers."""
        if self.worker is not None:
            yield self.worker
        yield from (delivery.worker for delivery in self.deliveries.values())

    def _write(self, line: bytes) -> None:
        if self.worker is not None:
            self.worker.write(line)
        for delivery in self.deliveries.values():
            delivery.write(line)

    def ev_written(self, worker: Any, node: str, sname: str, size: int) -> None:
        if (delivery := self.deliveries.get(str(node))) is not None:
            delivery.continue_sending()

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        reply, delivery = self.replies[str(node)], self.deliveries.get(str(node))
        if sname != worker.SNAME_STDERR and delivery is not None and delivery.feed(msg):
            return
        if sname != worker.SNAME_STDERR and msg.startswith(MARK):
            self._received[str(node)] = msg[len(MARK) :]
            self._advance()
        elif not msg.startswith(b"-----HANGDOC "):
            reply.note_output(msg)

    def ev_hup(self, worker: Any, node: str, rc: int) -> None:
        self._present.discard(str(node))
        if not self._finished:
            self._ended[str(node)] = exit_reason(self.replies[str(node)], rc)
        self._advance()

    def ev_timer(self, timer: Any) -> None:
        for worker in self.workers():
            cut_off(worker, MAX_LINE, self.replies, "it sends data that is not an answer")
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
            for worker in self.workers():
                worker.set_write_eof()
        else:
            self._write(line + b"\n")


def run_session(
    hosts: tuple[str, ...],
    arguments: tuple[str, ...],
    transport: Transport,
    script: Generator[bytes, Mapping[str, bytes], T],
) -> tuple[T | None, dict[str, str]]:
    """Run hangdoc with `arguments` on all hosts, and exchange lines with them as `script` says. Returns the script's result (None
    if it did not end), and the reason for each host that did not take part until the end. Blocks for at most `transport.timeout`
    plus one second."""
    lacking = _find_lacking(hosts, transport)
    task: Task = task_self()
    listener = _Session(hosts, script, transport.host_timeout)
    many = len(hosts)  # all run at the same time
    if having := tuple(host for host in hosts if host not in lacking):
        words = (*transport.remote_command, *arguments)
        listener.worker = schedule(task, having, words, transport, listener, fanout=many, stdin=True)
    if (shipment := transport.brings()) is not None:
        words = (*(transport.way or ()), *shipment.command())
        for host in lacking:
            worker = schedule(task, (host,), words, transport, listener, fanout=many, stdin=True, tree=False)
            listener.deliveries[host] = Delivery(shipment, worker)
            listener.deliveries[host].write(request(arguments, transport.timeout, stdin=True))
    task.timer(0.2, handler=listener, interval=0.2, autoclose=True)
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


def _find_lacking(hosts: tuple[str, ...], transport: Transport) -> tuple[str, ...]:
    """The hosts to which hangdoc must be brought, because it is missing there or of another version."""
    if transport.brings() is None:
        return ()
    if transport.always:
        return hosts
    replies = run(hosts, ("--version",), transport)
    return tuple(reply.host for reply in replies if reply.lacking or _names_another_version(reply))


def _names_another_version(reply: HostReply) -> bool:
    versions = [line.split()[1] for line in reply.printed if line.startswith("hangdoc ") and len(line.split()) == 2]
    return bool(versions) and __version__ not in versions
