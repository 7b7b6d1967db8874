"""How one message reaches its target: a web hook, or a command."""

import contextlib
import email.utils
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec

from hangdoc.watch.evidence import Kept
from hangdoc.watch.notice import Event
from hangdoc.watch.outbox import Refused, Unreachable
from hangdoc.watch.state import Letter

COMMAND_SECONDS = 60
HOOK_SECONDS = 10
_LATER = {408, 425, 429, 500, 502, 503, 504}
"""HTTP answers after which another attempt may succeed (RFC 9110, RFC 6585)."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A POST that is redirected would become a GET without the report."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


def webhook(url: str) -> Callable[[Letter], None]:
    """Posts messages to `url`, which is never printed: it often holds a token. Raises Refused, Unreachable."""
    opener = urllib.request.build_opener(_NoRedirect)

    def post(letter: Letter) -> None:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "hangdoc",
            "Idempotency-Key": letter.delivery,
        }
        request = urllib.request.Request(url, data=letter.body.encode(), headers=headers)  # noqa: S310
        try:
            with opener.open(request, timeout=HOOK_SECONDS) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            with error:
                said = f"--webhook: the receiver answered {error.code} {error.reason}"
                if error.code in _LATER:
                    raise Unreachable(said, _retry_after(error.headers.get("Retry-After"))) from None
                raise Refused(f"{said}; {letter.about} is not delivered") from None
        except (OSError, ValueError) as error:  # URLError, timeouts, http.client's complaints
            raise Unreachable(f"--webhook: {getattr(error, 'reason', error)}") from None
        except Exception as error:  # http.client.HTTPException: half an answer
            raise Unreachable(f"--webhook: {type(error).__name__} {error}") from None

    return post


def _retry_after(said: str | None) -> float | None:
    """Seconds, or a date."""
    if said is None:
        return None
    if said.strip().isdigit():
        return float(said)
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, email.utils.parsedate_to_datetime(said).timestamp() - time.time())
    return None


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """What --on-hang receives."""

    bundle: str
    report: str
    page: str
    verdict: str
    job: str
    hang: str


def call_of(event: Event, kept: Kept, verdict: str) -> str:
    """The body of a message for `command`."""
    bundle, report, page = map(str, (kept.bundle, kept.report, kept.page))
    call = Call(bundle=bundle, report=report, page=page, verdict=verdict, job=event.job, hang=event.id)
    return msgspec.json.encode(call).decode()


def command(words: tuple[str, ...]) -> Callable[[Letter], None]:
    """Runs the person's command with the report on its standard input. Nothing out of the evidence becomes part of a command
    line. Raises Refused: a command that has run is not run again."""

    def run(letter: Letter) -> None:
        call = msgspec.json.decode(letter.body, type=Call)
        environment = {
            **os.environ,
            "HANGDOC_BUNDLE": call.bundle,
            "HANGDOC_REPORT": call.report,
            "HANGDOC_PAGE": call.page,
            "HANGDOC_VERDICT": call.verdict,
            "HANGDOC_JOBS": "".join(c if c.isprintable() else "·" for c in call.job),
            "HANGDOC_HANG": call.hang,
        }
        text = ""
        with contextlib.suppress(OSError):  # the directory's bound may have removed it
            text = Path(call.report).read_text("utf-8", "replace")
        try:
            child = subprocess.Popen(words, stdin=subprocess.PIPE, env=environment, text=True, start_new_session=True)
        except OSError as error:
            raise Refused(f"--on-hang {words[0]} can't be started: {error.strerror}") from None
        try:
            child.communicate(text, timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise Refused(f"--on-hang {words[0]} took more than {COMMAND_SECONDS} s and was ended") from None
        if child.returncode:
            raise Refused(f"--on-hang {words[0]} ended with {child.returncode}")

    return run
