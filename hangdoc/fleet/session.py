"""A talk with many hosts at once: the same line to all, one line back from each, round after round.

As in `transport`, ClusterShell carries it (ssh, or any local command that passes its standard input on)."""

import time
from collections.abc import Generator, Mapping
from typing import Any, Generic, TypeVar

from ClusterShell.Event import EventHandler
from ClusterShell.Task import Task, task_self, task_terminate
from ClusterShell.Task import TimeoutError as TaskTimeout

from hangdoc.fleet.transport import HostReply, Transport, cut_off, explain, schedule

MARK = b"-----HANGDOC ANSWER-----"
"""Before each line that answers."""
MAX_LINE = 4 << 20
T = TypeVar("T")


class _Session(EventHandler, Generic[T]):  # type: ignore[misc]
    """Drives a generator of lines to say; it is sent what every host answered."""

    def __init__(
        self, hosts: tuple[str, ...], script: Generator[bytes, Mapping[str, bytes], T], seconds: float
    ) -> None:
        super().__init__()
        self.answers = {host: HostReply(host) for host in hosts}
        self.result: T | None = None
        self.worker: Any = None
        self._script, self._seconds = script, seconds
        self._here: dict[str, bytes] = {}
        self._present = set(hosts)
        self._gone: dict[str, str] = {}
        """Who has ended, and why that is too early unless this was the last round and it had answered."""
        self._until = time.monotonic() + seconds
        self._over = False

    def begin(self) -> None:
        """Say the first line; each host reads it when it is there."""
        self.worker.write(next(self._script) + b"\n")

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        answer = self.answers[str(node)]
        if sname != worker.SNAME_STDERR and msg.startswith(MARK):
            self._here[str(node)] = msg[len(MARK) :]
            self._go_on()
        else:
            answer.hear(msg)

    def ev_hup(self, worker: Any, node: str, rc: int) -> None:
        self._present.discard(str(node))
        if not self._over:
            self._gone[str(node)] = explain(self.answers[str(node)], rc)
        self._go_on()

    def ev_timer(self, timer: Any) -> None:
        cut_off(timer.worker, MAX_LINE, self.answers, "it sends something that is no answer")
        self._go_on()

    def _go_on(self) -> None:
        """The next line, when all have answered or the time is up; who did not answer is left out from then on."""
        late = time.monotonic() > self._until
        if self._over or not (late or set(self._here) >= self._present):
            return
        for host in self._present - set(self._here):
            self.answers[host].why = self.answers[host].why or f"no answer within {self._seconds:g} s"
        self._present &= set(self._here)
        said, self._here = self._here, {}
        self._until = time.monotonic() + self._seconds
        try:
            line = self._script.send(said)
        except StopIteration as ended:
            self._over = True
            self.result = ended.value
        for host, why in self._gone.items():
            if not (self._over and host in said):
                self.answers[host].why = self.answers[host].why or why
        if self._over:
            self.worker.set_write_eof()
        else:
            self.worker.write(line + b"\n")


def run_session(
    hosts: tuple[str, ...],
    arguments: tuple[str, ...],
    transport: Transport,
    script: Generator[bytes, Mapping[str, bytes], T],
) -> tuple[T | None, dict[str, str]]:
    """Start hangdoc with `arguments` on all hosts and talk with them; what the script came to, and for each host that did not
    take part to the end, why. Blocks for at most `transport.timeout` and a second."""
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
    silent = {host: answer.why for host, answer in listener.answers.items() if answer.why is not None}
    return listener.result, silent
