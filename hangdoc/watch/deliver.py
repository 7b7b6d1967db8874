"""Delivers one message to its target: a web hook or a command."""

import contextlib
import email.utils
import http.client
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import IO, Any

import msgspec

from hangdoc import untrusted
from hangdoc.phrases import printable
from hangdoc.timed_exchange import Limit, TimedConnection, TimedTLSConnection
from hangdoc.watch.evidence import Kept
from hangdoc.watch.message_queue import Refused, Unreachable
from hangdoc.watch.messages import Event
from hangdoc.watch.state import Message

COMMAND_SECONDS = 60
HOOK_SECONDS = 10
"""Limit for the whole exchange: name, connection, message and answer."""
_MAX_REPORT_BYTES = 16 << 20
_LATER = {408, 425, 429, 500, 502, 503, 504}
"""HTTP status codes after which a retry may succeed (RFC 9110, RFC 6585)."""
_SECONDS = re.compile(r"[0-9]{1,9}")
_LONGEST_DATE, _MOST_SECONDS = 64, 86_400.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a redirected POST would become a GET without the report."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


class _TimedHandler(urllib.request.HTTPHandler):
    """Opens connections whose time limit is that of the exchange."""

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_timed(TimedConnection), req)


class _TimedTLSHandler(urllib.request.HTTPSHandler):
    """The same for https."""

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_timed(TimedTLSConnection), req)


def _timed(kind: type[TimedConnection | TimedTLSConnection]) -> Callable[..., http.client.HTTPConnection]:
    return lambda host, **more: kind(host, Limit(more.pop("timeout")), **more)


def webhook(url: str) -> Callable[[Message], None]:
    """A function that posts messages to `url`. It raises Refused or Unreachable. `url` is never printed, because it often
    contains a token."""
    opener = urllib.request.build_opener(_NoRedirect, _TimedHandler, _TimedTLSHandler)

    def post(message: Message) -> None:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "hangdoc",
            "Idempotency-Key": message.delivery,
        }
        request = urllib.request.Request(url, data=message.body.encode(), headers=headers)  # noqa: S310
        try:
            with opener.open(request, timeout=HOOK_SECONDS) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            with error:
                problem = f"--webhook: the receiver answered {error.code} {error.reason}"
                if error.code in _LATER:
                    raise Unreachable(problem, _retry_after(error.headers.get("Retry-After"))) from None
                raise Refused(f"{problem}; {message.about} was not delivered") from None
        except (OSError, ValueError) as error:  # URLError, timeouts, errors of http.client
            raise Unreachable(f"--webhook: {getattr(error, 'reason', error)}") from None
        except Exception as error:  # http.client.HTTPException: an incomplete answer
            raise Unreachable(f"--webhook: {type(error).__name__} {error}") from None

    return post


def _retry_after(header: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date (RFC 9110) of at most a day. None for anything else: the
    receiver may write what it likes, and the message is then delivered at the usual time."""
    if header is None or len(header) > _LONGEST_DATE:
        return None
    seconds = None
    if _SECONDS.fullmatch(header.strip()):
        seconds = float(header)
    else:
        with contextlib.suppress(Exception):  # dates raise TypeError, ValueError, OverflowError, IndexError
            seconds = max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    return seconds if seconds is not None and seconds <= _MOST_SECONDS else None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What the command of --on-hang receives."""

    bundle: str
    report: str
    page: str
    """Paths; empty for a file that could not be written."""
    verdict: str
    job: str
    hang: str
    text: str = ""
    """The report itself, which must not depend on the disk. Empty in the state file of an older hangdoc."""


def call_of(event: Event, kept: Kept, verdict: str) -> str:
    """The body of a message for `command`."""
    bundle, report, page = (str(path) if path is not None else "" for path in (kept.bundle, kept.report, kept.page))
    call = Call(
        bundle=bundle, report=report, page=page, verdict=verdict, job=event.job, hang=event.id, text=kept.text
    )  # fmt: skip
    return msgspec.json.encode(call).decode()


def command(words: tuple[str, ...]) -> Callable[[Message], None]:
    """A function that runs the user's command with the report on its standard input. Evidence never becomes part of the command
    line. It raises Refused; a command that failed is not run again."""

    def run(message: Message) -> None:
        call = msgspec.json.decode(message.body, type=Call)
        environment = {
            **os.environ,
            "HANGDOC_BUNDLE": call.bundle,
            "HANGDOC_REPORT": call.report,
            "HANGDOC_PAGE": call.page,
            "HANGDOC_VERDICT": call.verdict,
            "HANGDOC_JOBS": printable(call.job),
            "HANGDOC_HANG": call.hang,
        }
        text = call.text.encode("utf-8", "replace") or _read_report(call.report)
        try:
            child = subprocess.Popen(words, stdin=subprocess.PIPE, env=environment, start_new_session=True)
        except OSError as error:
            raise Refused(f"--on-hang {words[0]} could not be started: {error.strerror}") from None
        try:
            child.communicate(text, timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise Refused(f"--on-hang {words[0]} ran for more than {COMMAND_SECONDS} s and was killed") from None
        if child.returncode:
            raise Refused(f"--on-hang {words[0]} exited with code {child.returncode}")

    return run


def _read_report(report: str) -> bytes:
    with contextlib.suppress(OSError, ValueError):  # the size limit of the directory may have removed it
        return untrusted.read_file(report, _MAX_REPORT_BYTES)
    return b""
