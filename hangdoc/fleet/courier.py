"""Brings hangdoc to hosts that lack it, and takes looks there. A host gets the file once, and keeps it as long as its connection
lasts: it removes the file itself when its standard input ends, whatever the reason is."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ClusterShell.Event import EventHandler
from ClusterShell.Task import Task, task_self, task_terminate

from hangdoc.fleet import loader
from hangdoc.fleet.shipment import Delivery, request
from hangdoc.fleet.transport import MAX_LINE, HostReply, Transport, Volume, exit_reason, is_absent, schedule
from hangdoc.snapshot import Brought

_PERIOD = 0.2
_REMOVAL_SECONDS = 5.0
"""How long to wait for the hosts to say that they have removed it."""
_ANY = 1 << 20
"""As fan-out of ClusterShell: the courier counts itself, because connections stay open between looks."""


class _Link:
    """The connection with one host. All of it belongs to the thread of the courier."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.delivery: Delivery | None = None
        self.reply: HostReply | None = None
        """That of the look that is being taken."""
        self.done: Callable[[HostReply], None] = lambda reply: None
        self.until = 0.0
        """When its answer must be there."""
        self.removed: bool | None = None
        """Whether the host says that it has removed the file; None as long as the connection lasts."""


class Courier(EventHandler):  # type: ignore[misc]
    """Takes looks with the file that it brings. As a context manager, it removes the file from all hosts at the end."""

    def __init__(self, transport: Transport, *, keep: bool = False) -> None:
        """`keep`: the hosts keep the file for further looks."""
        super().__init__()
        self._transport, self._keep = transport, keep
        self._links: dict[str, _Link] = {}
        self._waiting: deque[tuple[_Link, bytes]] = deque()
        self._opening: set[str] = set()
        """Hosts that get the file, and whose first look is not over: at most `fanout`."""
        self._brought: dict[str, _Link] = {}
        self._replies: list[HostReply] = []
        self._volume = Volume()
        self._pending = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._task: Task | None = None
        self._port: Any = None

    def __enter__(self) -> "Courier":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for the thread that looks ---------------------------------------------------------------------------------------------

    def has(self, host: str) -> bool:
        """Whether the next look at this host is one with the file."""
        return self._transport.always or host in self._links

    def begin(self, host: str, arguments: tuple[str, ...], done: Callable[[HostReply], None]) -> None:
        """Begin a look at a host. `done` is called with its reply, in another thread."""
        self._start()
        with self._changed:
            self._pending += 1
        self._port.msg_send(lambda: self._begin(host, arguments, done))

    def finish(self, until: float) -> list[HostReply]:
        """The replies of all looks that have begun since the last call. Waits for them, at most until this time (monotonic)."""
        with self._changed:
            if self._pending:
                self._changed.wait_for(lambda: self._pending == 0, max(0.0, until - time.monotonic()))
        if self._pending:
            self._call(self._give_up)
        replies, self._replies = self._replies, []
        return replies

    def brought(self) -> tuple[Brought, ...]:
        """The hosts to which it was brought since the last call, or where it still is."""
        links, self._brought = self._brought, {h: link for h, link in self._brought.items() if link.removed is None}
        return tuple(
            Brought(host=host, python=link.delivery.python if link.delivery is not None else None, removed=link.removed)
            for host, link in sorted(links.items())
        )

    def close(self) -> None:
        """End all connections, and wait a little until the hosts have removed the file."""
        if self._thread is None:
            return
        self._call(self._end_all)
        with self._changed:
            self._changed.wait_for(lambda: not self._links, _REMOVAL_SECONDS)
        assert self._task is not None  # noqa: S101
        self._task.abort()
        self._thread.join(_REMOVAL_SECONDS)
        self._thread = None
        for link in self._brought.values():
            link.removed = bool(link.removed)

    def _start(self) -> None:
        if self._thread is None:
            started = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(started,), name="courier", daemon=True)
            self._thread.start()
            started.wait()

    def _call(self, action: Callable[[], object]) -> None:
        """Run something in the thread of the courier, and wait for it."""
        ended = threading.Event()

        def act() -> None:
            try:
                action()
            finally:
                ended.set()

        self._port.msg_send(act)
        ended.wait(_REMOVAL_SECONDS)

    # --- in the thread of the courier ------------------------------------------------------------------------------------------

    def _run(self, started: threading.Event) -> None:
        self._task = task_self()
        for stream in ("stdout_msgtree", "stderr_msgtree"):
            self._task.set_default(stream, False)
        self._port = self._task.port(handler=self)
        self._task.timer(_PERIOD, handler=self, interval=_PERIOD, autoclose=True)
        started.set()
        self._task.run()
        task_terminate()

    def ev_msg(self, port: Any, msg: Callable[[], object]) -> None:
        msg()

    def _begin(self, host: str, arguments: tuple[str, ...], done: Callable[[HostReply], None]) -> None:
        link = self._links.get(host) or _Link(host)
        known = host in self._links
        self._links[host] = link
        link.reply, link.done = HostReply(host), done
        line = request(arguments, self._transport.host_timeout)
        if known and link.delivery is not None:
            self._ask(link, line)
        else:
            self._waiting.append((link, line))
            self._open_next()

    def _open_next(self) -> None:
        shipment = self._transport.brings()
        while shipment is not None and self._waiting and len(self._opening) < self._transport.fanout:
            link, line = self._waiting.popleft()
            self._opening.add(link.host)
            words = (*(self._transport.way or ()), *shipment.command())
            worker = schedule(
                self._task, (link.host,), words, self._transport, self, fanout=_ANY, stdin=True, tree=False
            )
            link.delivery = Delivery(shipment, worker)
            self._ask(link, line)

    def _ask(self, link: _Link, line: bytes) -> None:
        assert link.delivery is not None  # noqa: S101
        link.until = time.monotonic() + self._transport.host_timeout
        link.delivery.write(line)

    def ev_read(self, worker: Any, node: str, sname: str, msg: bytes) -> None:
        link = self._links.get(str(node))
        if link is None or link.delivery is None:
            return
        if sname == worker.SNAME_STDERR:
            if link.reply is not None:
                link.reply.note_output(msg)
        elif msg.startswith(loader.REMOVED.encode()):
            link.removed = True
        elif link.reply is None or link.delivery.feed(msg):
            return
        elif msg.startswith(loader.ENDED.encode()):
            code = msg[len(loader.ENDED) :].strip()
            self._finish(
                link, exit_reason(link.reply, int(code)) if code.lstrip(b"-").isdigit() and len(code) < 6 else ""
            )
        else:
            self._volume.feed(link.reply, msg)

    def ev_written(self, worker: Any, node: str, sname: str, size: int) -> None:
        link = self._links.get(str(node))
        if link is None or link.delivery is None:
            return
        complete = link.delivery.complete
        link.delivery.continue_sending()
        if link.delivery.complete and not complete:
            link.until = time.monotonic() + self._transport.host_timeout

    def ev_hup(self, worker: Any, node: str, rc: int) -> None:
        link = self._links.get(str(node))
        if link is not None:
            self._drop(link, _reason(link.reply, rc) if link.reply is not None else "")

    def ev_timer(self, timer: Any) -> None:
        now = time.monotonic()
        for link in list(self._links.values()):
            if link.delivery is None:
                continue
            late = link.reply is not None and now > link.until
            if late or any(len(stream.rbuf) > MAX_LINE for stream in link.delivery.client.streams.values()):
                self._abort(link, f"no reply within {self._transport.host_timeout:g} s" if late else _NO_BUNDLE)

    def _finish(self, link: _Link, why: str) -> None:
        """The look at this host is over. `why` there is no bundle, if there is none."""
        reply, link.reply = link.reply, None
        if reply is None:
            return
        if reply.reader.version is not None:
            self._brought[link.host] = link
        if reply.raw is None and reply.why is None:
            reply.why = why or "its hangdoc sent no bundle"
        if self._keep:
            self._opening.discard(link.host)
            self._open_next()
        else:
            self._end(link)
        link.done(reply)
        with self._changed:
            self._replies.append(reply)
            self._pending -= 1
            self._changed.notify_all()

    def _end(self, link: _Link) -> None:
        """End the standard input of the host, which then removes the file."""
        if link.delivery is None:
            self._drop(link, "")
        else:
            link.delivery.worker.set_write_eof()

    def _end_all(self) -> None:
        for link in list(self._links.values()):
            self._end(link)

    def _abort(self, link: _Link, why: str) -> None:
        assert link.delivery is not None  # noqa: S101
        link.delivery.client.abort()
        self._drop(link, why)

    def _drop(self, link: _Link, why: str) -> None:
        """The connection is over."""
        link.removed = bool(link.removed)
        self._links.pop(link.host, None)
        self._opening.discard(link.host)
        self._finish(link, why)
        with self._changed:
            self._changed.notify_all()
        self._open_next()

    def _give_up(self) -> None:
        """End the looks that have no reply: the time for all hosts together is over."""
        seconds = self._transport.timeout
        waiting, self._waiting = self._waiting, deque()
        for link, _ in waiting:
            self._drop(
                link,
                f"the time limit for all hosts ({seconds:g} s) passed before its turn: raise --timeout or --fanout",
            )
        for link in [link for link in self._links.values() if link.reply is not None and link.delivery is not None]:
            self._abort(link, f"no reply within the time limit for all hosts ({seconds:g} s): raise --timeout")


_NO_BUNDLE = "it sends data that is not a bundle"


def _reason(reply: HostReply, code: int) -> str:
    """Why the command that brings hangdoc has ended, in one clause."""
    if is_absent(reply, code):
        return f"hangdoc could not be brought there: the way to it does not end in a shell ({reply.printed[-1:] or [code]})"
    return f"hangdoc could not be brought there: {exit_reason(reply, code)}"
