"""The page: one self-contained file, made of a Diagnosis and what `hangdoc.reasoning.views.detail` adds to it.

Text from a process is never markup: Jinja2 escapes every value, control and formatting characters become `·`, and the content
policy of the page runs only its own script, which it names by its digest. Imported only when a page is written.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hangdoc.detail import Batches, Began, Detail, Setting
from hangdoc.diagnosis import Diagnosis, Finding, Job
from hangdoc.phrases import duration, least_minutes, numbers, ranks, shorten_values
from hangdoc.render import html_graph, html_ranks, html_stacks, html_timeline, words
from hangdoc.timeline import Timeline

_BARS_SHOWN = 24
_BEGAN: dict[Began | None, str] = {
    "call": "the call in which the ranks wait",
    "data": "the last byte between the ranks that wait",
    None: "the beginning of the wait",
}
_QUIET = ("may differ", "inert")
"""Standings of settings that may differ."""


@dataclass(frozen=True)
class _Bar:
    about: Batches
    amount: str
    done_percent: float
    total_percent: float
    """Of the page's scale: the most batches that any rank has done or expects."""


@dataclass(frozen=True)
class _Section:
    """Everything that the template shows about one job."""

    job: Job
    name: str
    """What the job is called."""
    detail: Detail | None
    sentence: str
    leading: Finding | None
    culprits: frozenset[int]
    role: str
    """What the culprits are called (`Finding.role`)."""
    drawing: html_graph.Drawing | None
    table: html_ranks.Table
    bars: tuple[_Bar, ...]
    bars_left_out: int
    batch_notes: tuple[str, ...]
    """What is counted, and who is not."""
    stacks: html_stacks.Stacks | None
    timeline: html_timeline.Strip | None
    began: str
    """What the red line of the timeline marks."""
    settings: tuple[Setting, ...]
    quiet_settings: tuple[Setting, ...]


def page(diagnosis: Diagnosis, details: Iterable[Detail] = (), timelines: Mapping[str, Timeline] | None = None) -> str:
    """The whole page as text, the job with the worst verdict first. A job that `details` or `timelines` (by job id) lacks has a
    shorter section."""
    details_by_job = {detail.job: detail for detail in details}
    names = words.job_names(diagnosis.jobs)
    sections = [
        _make_section(job, names[job.id], details_by_job.get(job.id), (timelines or {}).get(job.id))
        for job in words.worst_first(diagnosis.jobs)
    ]
    environment = _make_environment()
    digests = {name: _digest(environment.get_template(name).render()) for name in ("page.css", "page.js")}
    return environment.get_template("page.html").render(diagnosis=diagnosis, sections=sections, digests=digests)


@lru_cache(1)  # templates are compiled once
def _make_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hangdoc.render", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean_texts,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        duration=duration, least_minutes=least_minutes, numbers=numbers, ranks=ranks, operation=words.operation,
        place=words.place, hosts_of=words.hosts_of,
        sentence=_sentence, spans=_split_code, fit=html_graph.short, tail=_shorten_file, short_ranks=_short_ranks,
        of_pass=words.name_pass, few_ranks=partial(_short_ranks, most=36), score=words.score, pace=words.pace, past=words.past,
        window=words.window, brought=words.brought, shortened=partial(shorten_values, most=120),
    )  # fmt: skip
    environment.globals.update(glyphs=words.LABEL_GLYPH)
    return environment


def _clean_texts(value: object) -> object:
    return words.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _digest(text: str) -> str:
    """As a content policy names it (Content Security Policy Level 3, hash-source)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _sentence(text: str) -> str:
    """The text with a capital letter and a full stop, unless it ends with quoted code."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!", "`")) else ".")


def _shorten_file(file: str) -> str:
    """The last two parts of a path, which distinguish files: `distributed/distributed_c10d.py`."""
    return "/".join(file.split("/")[-2:])


def _split_code(text: str) -> list[tuple[str, bool]]:
    """The pieces of a sentence, and for each whether it is code in backticks."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # the last backtick has no partner
        pieces[-2:] = ["`".join(pieces[-2:])]
    return [(piece, at % 2 == 1) for at, piece in enumerate(pieces) if piece]


def _short_ranks(which: Iterable[int], most: int = 120) -> str:
    """Ranks as numbers; if the text would be too long, the first of them and how many there are."""
    which = tuple(which)
    text = numbers(which)
    if len(text) <= most:
        return text
    return f"{text[: most - 15].rpartition(',')[0]}, … ({len(which):,} ranks)"


def _make_section(job: Job, name: str, detail: Detail | None, timeline: Timeline | None) -> _Section:
    leading = job.findings[0] if job.findings else None
    culprits = frozenset(leading.culprits) if leading is not None else frozenset()
    counted = detail.batches if detail is not None else ()
    settings = detail.settings if detail is not None else ()
    scale = max((max(batches.done, batches.total or 0) for batches in counted), default=0) or 1
    return _Section(
        job=job,
        name=name,
        detail=detail,
        sentence=_sentence(leading.summary if leading is not None else words.without_finding(job)),
        leading=leading,
        culprits=culprits,
        role=leading.role if leading is not None else "",
        drawing=html_graph.drawing(detail.graph) if detail is not None and detail.graph.edges else None,
        table=html_ranks.table(job, culprits),
        bars=tuple(
            _Bar(
                batches,
                words.amount_of_batches(batches.done, batches.total, ended=batches.ended, of_pass=batches.pass_number),
                100 * batches.done / scale,
                100 * (batches.total if batches.total is not None else batches.done) / scale,
            )
            for batches in counted[:_BARS_SHOWN]
        ),
        bars_left_out=sum(len(batches.ranks) for batches in counted[_BARS_SHOWN:]),
        batch_notes=tuple(filter(None, (words.loops_of_batches(job), words.name_uncounted(job)))),
        stacks=html_stacks.stacks(detail.stacks, culprits, {rank.rank for rank in job.ranks if words.moves(rank)})
        if detail is not None
        else None,
        timeline=html_timeline.strip(timeline, culprits, job.hung_for_seconds)
        if timeline is not None and timeline.rows
        else None,
        began=_BEGAN[detail.began if detail is not None else None],
        settings=tuple(setting for setting in settings if setting.standing not in _QUIET),
        quiet_settings=tuple(setting for setting in settings if setting.standing in _QUIET),
    )
