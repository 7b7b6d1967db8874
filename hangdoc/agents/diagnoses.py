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
        of=clip(look.observed, LINE),
        taken_at=look.diagnosis.taken_at,
        seconds_ago=look.seconds_ago(),
        verdict=look.diagnosis.verdict,
        jobs=tuple(_describe_job(job, look, looks, most) for job in jobs),
        jobs_left_out=more,
        problems=clipped(problems),
        problems_left_out=hidden,
    )


def describe_finding(finding: Finding, look: Look, looks: Looks, most: int) -> FindingAnswer:
    """One finding."""
    culprits, blamed = first(finding.culprits, most)
    shown, hidden = first(finding.evidence, min(most, _EVIDENCE))
    first_look = looks.first_seen(finding.id)
    return FindingAnswer(
        id=finding.id,
        code=finding.code,
        name=finding.name,
        severity=finding.severity,
        score=finding.confidence,
        summary=clip(finding.summary, 2 * TEXT),
        culprits=culprits,
        culprits_left_out=blamed,
        waiting=clip(numbers(finding.victims), LINE),
        evidence=tuple(map(_describe_evidence, shown)),
        evidence_left_out=hidden,
        remedy=clip(finding.remedy, 2 * TEXT),
        commands=clipped(finding.commands[:most]),
        first_seen_in_look=first_look if first_look != look.number else None,
    )


def row(group: list[RankView]) -> RankRow:
    """A row for equal ranks."""
    example = group[0]
    hosts = sorted({rank.host for rank in group})
    silent = [rank.silent_seconds for rank in group if rank.silent_seconds is not None]
    cpu = [rank.cpu_percent for rank in group if rank.cpu_percent is not None]
    return RankRow(
        ranks=clip(numbers(rank.rank for rank in group), LINE),
        state=f"{example.label or 'unknown'}: {example.state}",
        host=clip(hosts[0], LINE) if len(hosts) == 1 else f"{len(hosts)} hosts",
        pid=example.pid,
        operation=clip(words.operation(example.operation), LINE),
        where=clip(words.place(example.where), LINE),
        source=clip(example.where.source, LINE) if example.where is not None else "",
        batches=words.batches(example, of_pass=True) if example.batches_done is not None else "",
        cpu_percent=round(sum(cpu) / len(cpu), 1) if cpu else None,
        silent_seconds=min(silent, default=None),
    )


def not_seen(look: Look, most: int) -> NotSeenAnswer:
    """What could not be observed, and why."""
    problems, hidden = first(look.diagnosis.problems, most)
    gaps = [
        _list_gaps(job, run, most)
        for job, run in zip(look.diagnosis.jobs, look.runs, strict=True)
        if _is_incomplete(job, run)
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
    ranks_by_source: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number in ranks:
        process = run.ranks[number].process
        for source in _UNREAD if process is not None else ():
            value = getattr(process, source)
            if isinstance(value, Unavailable) and value.reason not in _NO_LOSS:
                ranks_by_source[source, value.reason].append(number)
    gaps = [
        Gap(source=source, why=clip(why), ranks=clip(numbers(which), LINE))
        for (source, why), which in ranks_by_source.items()
    ]
    return gaps + [Gap(source="sockets", why=clip(why), ranks=f"all of {host}") for host, why in run.blind_hosts()]


def _describe_job(job: Job, look: Look, looks: Looks, most: int) -> JobAnswer:
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
        findings=tuple(describe_finding(finding, look, looks, most) for finding in findings),
        findings_left_out=hidden,
        ranks=tuple(map(row, rows)),
        ranks_left_out=more,
        unseen=_group_unseen_ranks(job)[:most],
    )


def _describe_evidence(evidence: Evidence) -> Fact:
    return Fact(rank=evidence.rank, probe=evidence.probe, text=clip(evidence.text))


def _group_unseen_ranks(job: Job) -> tuple[Gap, ...]:
    """Ranks that were not observed, by the reason."""
    ranks_by_reason: dict[str, list[int]] = defaultdict(list)
    for unseen in job.unseen:
        ranks_by_reason[unseen.why.replace(f"RANK={unseen.rank}", "its RANK")].append(unseen.rank)
    return tuple(
        Gap(why=clip(_in_scope(why)), ranks=clip(numbers(which), LINE)) for why, which in ranks_by_reason.items()
    )


def _in_scope(why: str) -> str:
    """Why a rank was not observed. The caller's `pids` are a reason that the caller can change."""
    beyond = "--pid" in why
    return in_tool_terms(why) + (
        ". Call `diagnose` without `pids` to observe all ranks of this host." if beyond else ""
    )


def _is_incomplete(job: Job, run: Run) -> bool:
    return bool(job.unseen or unread(run, run.ranks))


def _list_gaps(job: Job, run: Run, most: int) -> JobGaps:
    hidden, (shown, left) = _group_unseen_ranks(job), first(unread(run, run.ranks), most)
    return JobGaps(
        job=clip(job.id, LINE), verdict=job.verdict, unseen=hidden[:most], unread=shown,
        left_out=left + max(0, len(hidden) - most),
    )  # fmt: skip
