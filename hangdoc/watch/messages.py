"""The messages to a web hook: a diagnosis as JSON with an event, or a message for a Slack-compatible receiver."""

import hashlib
import socket
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from hangdoc.diagnosis import Diagnosis, DocumentPart, Job, RankView
from hangdoc.phrases import duration, printable, ranks
from hangdoc.render.words import hosts_of, job_names
from hangdoc.watch.evidence import Kept
from hangdoc.watch.hangs import Ending, Hang

Format = Literal["generic", "slack"]
FORMATS: tuple[Format, ...] = ("generic", "slack")
EVENT_SCHEMA = "hangdoc.watch-event/1"
_MOST_RANKS = 256
_MOST_TEXT = 2500
"""Slack shows at most 3000 characters of a section."""
_COLOURS = {"hang": "#b3261e", "resolved": "#2e7d32"}


class Event(DocumentPart, frozen=True, kw_only=True):
    """What happened to a run."""

    kind: Literal["hang", "resolved"]
    id: str
    """The hang's id, also when it is resolved."""
    delivery: str
    """Unique for this event, and the same at each attempt to deliver it."""
    at: str
    """ISO 8601 UTC, of the look that confirmed it."""
    first_seen: str
    """ISO 8601 UTC, of the first look that showed the hang."""
    job: str
    code: str
    name: str
    summary: str
    """Of the finding that the hang was reported with."""
    culprits: tuple[int, ...]
    hosts: tuple[str, ...]
    seconds: float
    """How long the hang has lasted, as far as hangdoc could observe."""
    watcher: str
    """The host where hangdoc watches."""
    ending: Ending | None = None
    """Of a resolved hang: `goes-on` or `ended`."""
    bundle: str | None = None
    report: str | None = None
    page: str | None = None
    """Paths on the watcher."""
    schema: str = EVENT_SCHEMA


class GenericMessage(Diagnosis, frozen=True, kw_only=True):
    """The diagnosis of the one run that the event is about, with the event."""

    event: Event


def event_of(
    hang: Hang, diagnosis: Diagnosis, job: Job | None, age: float, ending: Ending | None = None, kept: Kept | None = None
) -> Event:  # fmt: skip
    """The event of a confirmed hang or, with an `ending`, of its end. `age` in seconds."""
    kind: Literal["hang", "resolved"] = "hang" if ending is None else "resolved"
    seconds = max(age, (job.hung_for_seconds or 0.0) if job is not None else 0.0)
    hosts = {view.host for view in job.ranks if view.pid is not None} if job is not None else hang.hosts
    delivery = f"{hang.id}\0{kind}\0{hang.first_seen}"
    return Event(
        kind=kind,
        id=hang.id,
        delivery=hashlib.blake2b(delivery.encode(), digest_size=8).hexdigest(),
        at=diagnosis.taken_at,
        first_seen=hang.first_seen,
        job=hang.job,
        code=hang.code,
        name=hang.name,
        summary=hang.summary,
        culprits=hang.culprits,
        hosts=tuple(sorted(hosts)),
        seconds=round(seconds, 1),
        watcher=socket.gethostname(),
        ending=ending,
        bundle=_path(kept.bundle) if kept is not None else None,
        report=_path(kept.report) if kept is not None else None,
        page=_path(kept.page) if kept is not None else None,
    )


def _path(path: Path | None) -> str | None:
    return str(path) if path is not None else None


def only_job(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """The diagnosis of one job only: the owners of another run receive nothing about it."""
    if job is None:
        return replace(diagnosis, jobs=(), verdict="unknown")
    return replace(diagnosis, jobs=(job,), verdict=job.verdict)


def body(form: Format, diagnosis: Diagnosis, event: Event, job: Job | None) -> str:
    """The message, as JSON."""
    message = _make_slack_message(event, job) if form == "slack" else _make_generic_message(diagnosis, event, job)
    return msgspec.json.encode(message).decode()


def _make_generic_message(diagnosis: Diagnosis, event: Event, job: Job | None) -> GenericMessage:
    if job is not None:
        job = replace(job, ranks=_few(job))
    fields = msgspec.structs.asdict(only_job(diagnosis, job))
    return GenericMessage(**fields, event=event)


def _few(job: Job) -> tuple[RankView, ...]:
    """All ranks of a small job; of a large one the culprits and the lowest ranks. The bundle has all."""
    if len(job.ranks) <= _MOST_RANKS:
        return job.ranks
    blamed = {rank for finding in job.findings for rank in finding.culprits}
    first = sorted(job.ranks, key=lambda view: (view.rank not in blamed, view.rank))[:_MOST_RANKS]
    return tuple(sorted(first, key=lambda view: view.rank))


def _make_slack_message(event: Event, job: Job | None) -> dict[str, object]:
    """Slack's incoming web hooks; Mattermost, Rocket.Chat and Discord (`/slack`) read `text` and `attachments` alike."""
    name = job_names([job])[job.id] if job is not None else event.job
    if event.kind == "hang":
        title = f"HUNG for {duration(event.seconds)}: {name}"
    else:
        state = "is making progress" if event.ending == "goes-on" else "has ended"
        title = f"RESOLVED after {duration(event.seconds)}: {name} {state}"
    lines = [f"*{event.code} {event.name}*" if event.code else "", _escape(event.summary)]
    if event.culprits:
        where = hosts_of(event.culprits, job) if job is not None else ""
        lines.append(f"culprit: {ranks(event.culprits)}{_escape(where)}")
    if event.kind == "hang" and job is not None and job.findings:
        lines.append(f"to do: {_escape(job.findings[0].remedy)}")
    if event.hosts:
        more = f" and {len(event.hosts) - 8} more" if len(event.hosts) > 8 else ""
        lines.append(f"hosts: {_escape(', '.join(event.hosts[:8]))}{more}")
    if event.report is not None:
        lines.append(f"report: `{_escape(event.report)}` on {_escape(event.watcher)}")
    lines.append(f"job `{_escape(event.job)}`, hang `{event.id}`")
    text = "\n".join(filter(None, lines))[:_MOST_TEXT]
    attachment = {"color": _COLOURS[event.kind], "fallback": _escape(title), "text": text, "mrkdwn_in": ["text"]}
    return {"text": _escape(title), "attachments": [attachment]}


def _escape(text: str) -> str:
    """Escapes Slack's three special characters, so that text from a process is no mention or link, and removes control
    characters."""
    shown = printable(text)
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "'")
