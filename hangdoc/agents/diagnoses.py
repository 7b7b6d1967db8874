"""The answer about a look: the verdict and what to do about it, the findings, and the ranks."""

from collections import defaultdict
from collections.abc import Iterable

from hangdoc.agents.answers import (
    EVIDENCE,
    Fact,
    FindingAnswer,
    Gap,
    JobAnswer,
    JobGaps,
    Looked,
    NotSeenAnswer,
    RankRow,
)
from hangdoc.agents.bounds import LINE, TEXT, clip, clipped, first, in_tool_terms
from hangdoc.agents.looks import Look, Looks
from hangdoc.diagnosis import Evidence, Finding, Job, RankView
from hangdoc.phrases import numbers
from hangdoc.reasoning.model.run import Run
from hangdoc.render import words
from hangdoc.snapshot import Unavailable

MEANS = {
    "hung": "The run will not continue by itself: what the ranks wait for can no longer arrive, or no rank has made progress for "
    "longer than `patience`. Report the first finding with its evidence and remedy. Do not kill the run unless the user asks "
    "for it, because that destroys the evidence.",
    "waiting": "Not a deadlock: some ranks wait for a rank that is still working or may still arrive. Do not stop the run. "
    "Diagnose again after `patience` seconds; a wait without progress is then `hung`.",
    "healthy": "Every rank is making progress. There is nothing to fix. If the user sees no progress, look again with "
    "`window` 10.",
    "unknown": "hangdoc could not observe enough for a verdict: the run may be healthy or hung. Report that, and do not guess. "
    "`what_was_not_seen` lists what is missing and how to make it readable.",
}
_EVIDENCE = 12
_UNREAD = ("stack", "native", "clocks", "interpreter", "environment", "progress", "data", "runtime", "files")
_NO_LOSS = ("not needed", "not looked at")


def looked(look: Look, looks: Looks, most: int) -> Looked:
    """The answer about a whole look."""
    jobs, more = first(look.jobs(), most)
    problems, hidden = first(look.diagnosis.problems, most)
    return Looked(
        note=EVIDENCE,
        look=look.number,
        of=clip(look.of, LINE),
        taken_at=look.diagnosis.taken_at,
        seconds_ago=look.seconds_ago(),
        verdict=look.diagnosis.verdict,
        jobs=tuple(_job(job, look, looks, most) for job in jobs),
        jobs_left_out=more,
        problems=clipped(problems),
        problems_left_out=hidden,
    )


def finding(one: Finding, look: Look, looks: Looks, most: int) -> FindingAnswer:
    """One finding."""
    culprits, blamed = first(one.culprits, most)
    shown, hidden = first(one.evidence, min(most, _EVIDENCE))
    first_look = looks.first_seen(one.id)
    return FindingAnswer(
        id=one.id,
        code=one.code,
        name=one.name,
        severity=one.severity,
        score=one.confidence,
        summary=clip(one.summary, 2 * TEXT),
        culprits=culprits,
        culprits_left_out=blamed,
        waiting=clip(numbers(one.victims), LINE),
        evidence=tuple(map(_fact, shown)),
        evidence_left_out=hidden,
        remedy=clip(one.remedy, 2 * TEXT),
        commands=clipped(one.commands[:most]),
        first_seen_in_look=first_look if first_look != look.number else None,
    )


def row(group: list[RankView]) -> RankRow:
    """A row for equal ranks."""
    one = group[0]
    hosts = sorted({rank.host for rank in group})
    total = f"/{one.batches_total}" if one.batches_total is not None else ""
    silent = [rank.silent_seconds for rank in group if rank.silent_seconds is not None]
    cpu = [rank.cpu_percent for rank in group if rank.cpu_percent is not None]
    return RankRow(
        ranks=clip(numbers(rank.rank for rank in group), LINE),
        state=f"{one.label or 'unknown'}: {one.state}",
        host=clip(hosts[0], LINE) if len(hosts) == 1 else f"{len(hosts)} hosts",
        pid=one.pid,
        operation=clip(words.operation(one.operation), LINE),
        where=clip(words.place(one.where), LINE),
        source=clip(one.where.source, LINE) if one.where is not None else "",
        batches=f"{one.batches_done}{total}" if one.batches_done is not None else "",
        cpu_percent=round(sum(cpu) / len(cpu), 1) if cpu else None,
        silent_seconds=min(silent, default=None),
    )


def not_seen(look: Look, most: int) -> NotSeenAnswer:
    """What could not be observed, and why."""
    problems, hidden = first(look.diagnosis.problems, most)
    gaps = [
        _gaps(job, run, most) for job, run in zip(look.diagnosis.jobs, look.runs, strict=True) if _incomplete(job, run)
    ]
    return NotSeenAnswer(
        note=EVIDENCE,
        look=look.number,
        complete=not gaps and not problems,
        jobs=tuple(gaps[:most]),
        problems=clipped(problems),
        problems_left_out=hidden,
    )


def unread(run: Run, ranks: Iterable[int]) -> list[Gap]:
    """Sources of these ranks that could not be read."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number in ranks:
        process = run.ranks[number].process
        for source in _UNREAD if process is not None else ():
            value = getattr(process, source)
            if isinstance(value, Unavailable) and value.reason not in _NO_LOSS:
                found[source, value.reason].append(number)
    gaps = [
        Gap(source=source, why=clip(why), ranks=clip(numbers(which), LINE)) for (source, why), which in found.items()
    ]
    return gaps + [Gap(source="sockets", why=clip(why), ranks=f"all of {host}") for host, why in run.blind_hosts()]


def _job(job: Job, look: Look, looks: Looks, most: int) -> JobAnswer:
    findings, hidden = first(job.findings, min(most, 8))
    rows, more = first(words.classes(job), most)
    return JobAnswer(
        job=clip(job.id, LINE),
        name=clip(look.names()[job.id], LINE),
        verdict=job.verdict,
        means=MEANS[job.verdict],
        launcher=clip(job.launcher, LINE) or None,
        backend=clip(job.backend, LINE) or None,
        world_size=job.world_size,
        hung_for_seconds=job.hung_for_seconds,
        findings=tuple(finding(one, look, looks, most) for one in findings),
        findings_left_out=hidden,
        ranks=tuple(map(row, rows)),
        ranks_left_out=more,
        unseen=_unseen(job)[:most],
    )


def _fact(evidence: Evidence) -> Fact:
    return Fact(rank=evidence.rank, probe=evidence.probe, text=clip(evidence.text))


def _unseen(job: Job) -> tuple[Gap, ...]:
    """Ranks that were not observed, by the reason."""
    found: dict[str, list[int]] = defaultdict(list)
    for one in job.unseen:
        found[one.why.replace(f"RANK={one.rank}", "its RANK")].append(one.rank)
    return tuple(Gap(why=clip(_in_scope(why)), ranks=clip(numbers(which), LINE)) for why, which in found.items())


def _in_scope(why: str) -> str:
    """Why a rank was not observed. The caller's `pids` are a reason that the caller can change."""
    beyond = "--pid" in why
    return in_tool_terms(why) + (
        ". Call `diagnose` without `pids` to observe all ranks of this host." if beyond else ""
    )


def _incomplete(job: Job, run: Run) -> bool:
    return bool(job.unseen or unread(run, run.ranks))


def _gaps(job: Job, run: Run, most: int) -> JobGaps:
    hidden, (shown, left) = _unseen(job), first(unread(run, run.ranks), most)
    return JobGaps(
        job=clip(job.id, LINE), verdict=job.verdict, unseen=hidden[:most], unread=shown,
        left_out=left + max(0, len(hidden) - most),
    )  # fmt: skip
