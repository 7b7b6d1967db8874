"""From a snapshot to a diagnosis: jobs, waits, rules, ranking, verdict. Pure: the same bundle gives the same answer."""

import msgspec

from hangdoc.diagnose import jobs, progress, waits, work
from hangdoc.diagnose.model import Rank, Run
from hangdoc.diagnose.rules import Rule, all_rules
from hangdoc.diagnosis import Diagnosis, Finding, Job, RankView, Unseen, Verdict
from hangdoc.snapshot import Snapshot

DEFAULT_PATIENCE = 30.0
_SEVERITY = {"error": 0, "warning": 1, "info": 2}
_WORST: tuple[Verdict, ...] = ("hung", "unknown", "waiting", "healthy")


def diagnose(snapshot: Snapshot, *, patience: float = DEFAULT_PATIENCE, job: str | None = None) -> Diagnosis:
    """The answer to a snapshot. `patience` in seconds; `job` keeps only the job of that id. Never raises for a valid
    snapshot: a rule that fails is a problem in the answer."""
    return examine(snapshot, patience=patience, job=job)[0]


def examine(
    snapshot: Snapshot, *, patience: float = DEFAULT_PATIENCE, job: str | None = None
) -> tuple[Diagnosis, tuple[Run, ...]]:
    """The answer, and for those who show more than it the runs that it was drawn from, in the order of its jobs."""
    problems = [f"{host.name}: {p}" if len(snapshot.hosts) > 1 else p for host in snapshot.hosts for p in host.problems]
    problems += [f"{one.host}: {one.why}" for one in snapshot.unreached]
    rules = all_rules()
    runs = tuple(run for run in jobs.runs(snapshot, patience) if job is None or run.id == job)
    found = []
    for run in runs:
        waits.draw(run)
        found.append(_job(run, rules, problems))
    verdicts = {one.verdict for one in found}
    answer = Diagnosis(
        hangdoc=snapshot.hangdoc,
        taken_at=max((host.taken_at for host in snapshot.hosts), default=""),
        window_seconds=max((host.window_seconds for host in snapshot.hosts), default=0.0),
        elapsed_seconds=snapshot.gathered_seconds
        or max((host.elapsed_seconds for host in snapshot.hosts), default=0.0),
        verdict=next((v for v in _WORST if v in verdicts), "unknown"),
        jobs=tuple(found),
        problems=tuple(dict.fromkeys(problems)),
    )
    return answer, runs


def _job(run: Run, rules: tuple[Rule, ...], problems: list[str]) -> Job:
    findings: list[Finding] = []
    explains: dict[str, tuple[str, ...]] = {}
    for rule in rules:
        explains[rule.CODE] = rule.EXPLAINS
        try:
            findings += rule.check(run)
        except Exception as error:
            problems.append(f"rule {rule.CODE} failed ({type(error).__name__}: {error}): please report it")
    findings = [_with_places(run, finding) for finding in rank_findings(findings, explains)]
    verdict = _verdict(run, findings)
    return Job(
        id=run.id,
        launcher=run.launcher,
        backend=run.backend,
        world_size=run.world_size,
        master=run.master,
        verdict=verdict,
        hung_for_seconds=run.age_seconds if verdict == "hung" else None,
        ranks=tuple(_view(rank) for _, rank in sorted(run.ranks.items())),
        findings=tuple(findings),
        unseen=tuple(Unseen(rank=rank, why=why) for rank, why in sorted(run.unseen.items())),
    )


def _with_places(run: Run, finding: Finding) -> Finding:
    """Where a run spans hosts, a command about a process says on which of them to type it."""
    if len(run.hosts) < 2:
        return finding
    named = [run.ranks[n] for n in (*finding.victims, *finding.culprits) if n in run.ranks]  # the culprits' pids count
    hosts = {str(rank.pid): rank.host for rank in named if rank.pid is not None}
    commands = []
    for command in finding.commands:
        host = next((hosts[word] for word in command.split() if word in hosts), None)
        commands.append(f"{command}   # on {host}" if host is not None and "#" not in command else command)
    return msgspec.structs.replace(finding, commands=tuple(commands))


def rank_findings(findings: list[Finding], explains: dict[str, tuple[str, ...]]) -> list[Finding]:
    """Most likely cause first: by severity and confidence, each consequence below the finding that explains it."""

    def order(finding: Finding) -> tuple[bool, int, float, str, tuple[int, ...]]:
        return (
            finding.explained_by is not None,
            _SEVERITY[finding.severity],
            -finding.confidence,
            finding.code,
            finding.culprits,
        )

    marked = []
    for finding in findings:
        parents = [
            other
            for other in findings
            if finding.code in explains.get(other.code, ())
            and _about_the_same(other, finding)
            and _SEVERITY[other.severity] <= _SEVERITY[finding.severity]
        ]
        parent = min(parents, key=order, default=None)
        if parent is not None and finding.code == "HD901":
            continue  # "nothing says why" is no longer true
        marked.append(msgspec.structs.replace(finding, explained_by=parent.code) if parent else finding)
    return sorted(marked, key=order)


def _about_the_same(one: Finding, other: Finding) -> bool:
    mine, theirs = {*one.culprits, *one.victims}, {*other.culprits, *other.victims}
    return bool(mine & theirs) or not mine or not theirs


def _verdict(run: Run, findings: list[Finding]) -> Verdict:
    if any(f.severity == "error" and f.code < "HD5" for f in findings):
        return "hung"
    still = [rank for rank in run.waiting() if not rank.moving]
    if not run.ranks:
        if any(process.unreadable_below for _, process in run.launchers):
            return "unknown"
        return "waiting"  # a launcher without ranks: it has not started them yet, or they are through
    if still:
        awaited = run.awaited()
        if any(work.at_work(rank) is not None for rank in awaited):
            return "waiting"
        if (run.causes and not run.causes & set(run.ranks)) or any(work.unclear(rank) for rank in awaited):
            return "unknown"  # they wait for ranks that nobody looked at, or could look into
        if any(f.severity == "error" for f in findings):
            return "hung"
        # A wait of unknown age may be a second old or a night: then nobody can tell it from a hang.
        open_end = run.age_seconds is None and not all(rank.spins for rank in still)
        return "unknown" if open_end else "waiting"
    if run.idle:  # as above: what is of unknown age, or not wholly seen, can't be told from a hang
        if not run.standstill or run.age_seconds is None:
            return "unknown"
        return "hung" if any(f.severity == "error" for f in findings) else "waiting"
    if any(rank.label is None for rank in run.ranks.values()):
        return "unknown"
    if any(rank.label != "computing" and not rank.moving for rank in run.ranks.values()):
        return "waiting"
    return "healthy"


def _view(rank: Rank) -> RankView:
    done, total = progress.batches(rank.process, rank.loop) if rank.process else (None, None)
    return RankView(
        rank=rank.rank,
        local_rank=rank.local_rank,
        host=rank.host,
        pid=rank.pid,
        label=rank.label,
        state=rank.state,
        operation=rank.wait.operation if rank.wait is not None else None,
        where=rank.where,
        cpu_percent=rank.cpu_percent,
        batches_done=done,
        batches_total=total,
        silent_seconds=rank.silent_seconds,
    )
