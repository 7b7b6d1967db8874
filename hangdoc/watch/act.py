"""What is done about a sure hang: bundle, report and page on disk, a command, a web hook. None of them ends the watch."""

import io
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from rich.console import Console

from hangdoc import codec
from hangdoc.diagnosis import Diagnosis, Job
from hangdoc.render.text import report
from hangdoc.snapshot import Snapshot

Page = Callable[[Snapshot, Diagnosis], str]
"""Makes the page."""
COMMAND_SECONDS = 60
HOOK_SECONDS = 10


class Kept(msgspec.Struct, frozen=True):
    """Where the evidence lies."""

    bundle: Path
    report: Path
    page: Path
    text: str


def keep(snapshot: Snapshot, diagnosis: Diagnosis, folder: Path, page: Page) -> Kept:
    """Write the bundle, the report and the page, named after the time; raises BundleError."""
    console = Console(width=100, record=True, file=io.StringIO())
    report(diagnosis, console, verbose=True)
    text = console.export_text()
    stem = time.strftime("hangdoc-hang-%Y%m%d-%H%M%S", time.gmtime())
    number = 0
    while (bundle := folder / f"{stem}{f'-{number}' if number else ''}.hangdoc").exists():
        number += 1
    codec.write(snapshot, bundle)
    written, shown = bundle.with_suffix(".txt"), bundle.with_suffix(".html")
    codec.write_aside(written, text.encode())
    codec.write_aside(shown, page(snapshot, diagnosis).encode())
    return Kept(bundle, written, shown, text)


def call(command: tuple[str, ...], kept: Kept, diagnosis: Diagnosis, jobs: tuple[str, ...]) -> str | None:
    """Run the person's command with the report on its standard input; what went wrong, if anything. Nothing out of the
    evidence becomes part of a command line."""
    environment = {
        **os.environ,
        "HANGDOC_BUNDLE": str(kept.bundle),
        "HANGDOC_REPORT": str(kept.report),
        "HANGDOC_PAGE": str(kept.page),
        "HANGDOC_VERDICT": diagnosis.verdict,
        "HANGDOC_JOBS": " ".join("".join(c if c.isprintable() else "·" for c in job) for job in jobs),
    }
    try:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, text=True, start_new_session=True)
    except OSError as error:
        return f"--on-hang {command[0]} can't be started: {error.strerror}"
    try:
        child.communicate(kept.text, timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        child.wait()
        return f"--on-hang {command[0]} took more than {COMMAND_SECONDS} s and was ended"
    return f"--on-hang {command[0]} ended with {child.returncode}" if child.returncode else None


def post(url: str, diagnosis: Diagnosis) -> str | None:
    """Post the diagnosis as JSON; what went wrong, if anything."""
    request = urllib.request.Request(  # noqa: S310  (the person's own --webhook, checked to be http)
        url, data=msgspec.json.encode(diagnosis), headers={"Content-Type": "application/json", "User-Agent": "hangdoc"}
    )
    try:
        with urllib.request.urlopen(request, timeout=HOOK_SECONDS):  # noqa: S310
            return None
    except (OSError, urllib.error.URLError, ValueError) as error:
        return f"--webhook did not take the report: {getattr(error, 'reason', error)}"


class Reaction:
    """What to do about a sure hang, and in which words. What fails is reported, and the rest is still done."""

    def __init__(
        self, folder: Path, command: tuple[str, ...], webhook: str | None, say: Callable[[str], None],
        show: Callable[[Kept], None], page: Page,
    ) -> None:  # fmt: skip
        self._folder, self._command, self._webhook, self._say, self._show = folder, command, webhook, say, show
        self._page = page

    def act(self, snapshot: Snapshot, diagnosis: Diagnosis, jobs: Iterable[Job]) -> Kept | None:
        """Write, show, call, post; what was written."""
        try:
            kept = keep(snapshot, diagnosis, self._folder, self._page)
        except codec.BundleError as error:
            self._say(str(error))
            kept = None
        if kept is not None:
            self._show(kept)
            self._say(f"bundle {kept.bundle}, report {kept.report}, page {kept.page}")
        wrong = []
        if self._command and kept is not None:
            wrong.append(call(self._command, kept, diagnosis, tuple(job.id for job in jobs)))
        if self._webhook is not None:
            wrong.append(post(self._webhook, diagnosis))
        for text in filter(None, wrong):
            self._say(text)
        return kept
