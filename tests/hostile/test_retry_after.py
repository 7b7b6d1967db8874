"""What a receiver of messages writes as Retry-After delays a message for a bounded time, and never loses it."""

import email.utils
import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hangdoc.watch.deliver import _retry_after, webhook
from hangdoc.watch.message_queue import Unreachable
from hangdoc.watch.state import Message

_ODD = (
    "\xb2", "9" * 400, "1" * 5000, "Mon, 01 Jan 0001 00:00:00 +2359", "inf", "nan", "-5", "1e9", "", "\u0663", "1_000",
    "Fri, 31 Dec 9999 23:59:59 -2359", "99999999999999", "99999999", "Mon, 32 Jan 2026 00:00:00 GMT",
    "Wed, 21 Oct 99999999999999999999 07:28:00 GMT", "Mon, 01 Jan 2026 00:00:00 +99999999999",
)  # fmt: skip


@pytest.mark.parametrize("value", _ODD)
def test_an_odd_value_is_as_none(value: str) -> None:
    assert _retry_after(value) in (None, 0.0)  # 0.0: a date of the past


def test_numbers_and_dates_are_read() -> None:
    assert _retry_after(" 120 ") == 120.0
    assert 50.0 < (_retry_after(email.utils.formatdate(time.time() + 60, usegmt=True)) or 0.0) < 61.0
    assert _retry_after(email.utils.formatdate(time.time() - 60, usegmt=True)) == 0.0


@contextmanager
def receiver(value: str) -> Iterator[str]:
    """The address of one that is busy."""

    class Busy(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.wfile.write(b"HTTP/1.0 429 x\r\nRetry-After: " + value.encode("latin-1") + b"\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Busy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("value", ["\xb2", "9" * 400, "99999999"])
def test_a_message_is_delivered_later(value: str) -> None:
    with receiver(value) as url, pytest.raises(Unreachable) as caught:
        webhook(url)(Message(delivery="d", about="a", body="{}"))
    assert caught.value.after is None
