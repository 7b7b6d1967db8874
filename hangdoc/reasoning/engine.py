"""From a snapshot to a diagnosis, step by step. Pure: the same bundle gives the same answer."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from hangdoc.diagnosis import Blocked, Brought, Diagnosis, Finding, Job, RankView, Starter, Unseen, Verdict
from hangdoc.reasoning import ids
from hangdoc.reasoning.build.runs import build_runs
from hangdoc.reasoning.causes import disagreements, launches
from hangdoc.reasoning.causes.explain import explain
from hangdoc.reasoning.evidence.records import last_call
from hangdoc.reasoning.ledger.compare import next_timeout, unfinished_calls
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks import iterators
from hangdoc.reasoning.ranks.counters import BatchCount
from hangdoc.reasoning.rules import Rule, all_rules, by_subject
from hangdoc.reasoning.rules.draft import finding
from hangdoc.reasoning.runs import launch, names
from hangdoc.reasoning.text import words
from hangdoc.reasoning.text.hosts import describe_lateness
from hangdoc.reasoning.text.next_steps import is_host
from hangdoc.reasoning.views import job_views, past
from hangdoc.reasoning.views.job_views import count_done, find_beginning, has_ended
from hangdoc.reasoning.waiting import blockages, waits
from hangdoc.snapshot import Host, Loops, Snapshot, Stack

DEFAULT_PATIENCE = 30.0
_SEVERITY = {"error": 0, "warning": 1, "info": 2}
_NOT_STARTED = "not started yet: the launchers are still waiting in the rendezvous"
_WORST: tuple[Verdict, ...] = ("hung", "unknown", "waiting", "healthy")


def diagnose(snapshot: Snapshot, *, patience: float = DEFAULT_PATIENCE, job: str | None = None) -> Diagnosis:
    """The answer to a snapshot. `patience` in seconds; `job` keeps only the job of that id (`select_runs`). Never raises for a
    valid snapshot: a rule that fails is a problem in the answer."""
    return examine(snapshot, patience=patience, job=job)[0]


def examine(
    snapshot: Snapshot, *, patience: float = DEFAULT_PATIENCE, job: str | None = None
) -> tuple[Diagnosis, tuple[Run, ...]]:
    """The answer, and for those who show more than it the runs that it was drawn from, in the order of its jobs."""
    problems = [*snapshot.unused, *_texts_of(snapshot, lambda host: (*host.problems, *describe_lateness(host)))]
    problems += [f"{unreached.host}: {unreached.why}" for unreached in snapshot.unreached]
    runs = tuple(map(_examined, select_runs(build_runs(snapshot, patience), job)))
    jobs = tuple(_job(run, problems) for run in runs)
    verdicts = {job.verdict for job in jobs}
    diagnosis = Diagnosis(
        hangdoc=snapshot.hangdoc,
        taken_at=max((host.taken_at for host in snapshot.hosts), default=""),
        window_seconds=max((host.window_seconds for host in snapshot.hosts), default=0.0),
        elapsed_seconds=snapshot.gathered_seconds
        or max((host.elapsed_seconds for host in snapshot.hosts), default=0.0),
        verdict=next((v for v in _WORST if v in verdicts), "unknown"),
        jobs=jobs,
        problems=tuple(dict.fromkeys(problems)),
        unused=snapshot.unused,
        late=tuple(_texts_of(snapshot, lambda host: host.late)),
        brought=tuple(Brought(host=b.host, python=b.python, removed=b.removed) for b in snapshot.brought),
        dumps=next((host.dumps for host in snapshot.hosts if host.dumps is not None), None),
    )
    return diagnosis, runs


def _texts_of(snapshot: Snapshot, texts: Callable[[Host], Iterable[str]]) -> list[str]:
    """Sentences about the hosts, with the name of each if there are several."""
    several = len(snapshot.hosts) > 1
    return [f"{host.name}: {text}" if several else text for host in snapshot.hosts for text in texts(host)]


def select_runs(runs: Iterable[Run], job: str | None) -> list[Run]:
    """The runs that a person means by a job's id: that with this id or full id. If other users' runs have taken the name since,
    all with this name: an id from an earlier look stays valid. None means all."""
    every = list(runs)
    if job is None:
        return every
    return [run for run in every if job in (run.id, run.full_id)] or [run for run in every if run.name == job]


def _examined(run: Run) -> Run:
    """The run with what differs in it and what blocks it."""
    drawn = waits.draw_waits(run)
    idle = blockages.is_idle(run) and blockages.is_seen(run)
    run = run.with_conclusions(differing=disagreements.compare_settings(run), launches=launches.compare_launches(run))
    quiet = waits.seconds_silent(run, standstill=idle)
    run = run.with_conclusions(waits=drawn, quiet_seconds=quiet, age_seconds=waits.seconds_waited(run, quiet))
    run = run.with_conclusions(blockages=blockages.find_blockages(run, drawn))
    explained = tuple(msgspec.structs.replace(blockage, cause=explain(run, blockage)) for blockage in run.blockages)
    return run.with_conclusions(blockages=explained)


def _job(run: Run, problems: list[str]) -> Job:
    verdict, waited = blockages.conclude(run), past.waited_shares(run)
    limit = next_timeout(unfinished_calls(run))
    return Job(
        id=run.id,
        launcher=run.launcher,
        backend=run.backend,
        world_size=run.world_size,
        master=run.master,
        verdict=verdict,
        hung_for_seconds=find_beginning(run).seconds if verdict == "hung" else None,
        ranks=tuple(_view(run, rank, waited.get(number)) for number, rank in sorted(run.ranks.items())),
        findings=tuple(_with_hosts(run, finding) for finding in _findings(run, problems)),
        unseen=_unseen(run),
        blockages=tuple(map(_blocked, run.blockages)),
        name=names.name_run(run),
        script=launch.script(run),
        started_by=_started_by(run),
        groups=job_views.groups(run.ledger),
        ends_by_itself_in_seconds=limit.seconds
        if limit is not None and verdict != "healthy" and not run.after_the_fact
        else None,
        pace=job_views.pace_view(run) if verdict in ("healthy", "waiting") else None,
        past=past.past_view(run, hung=verdict == "hung"),
    )


def _started_by(run: Run) -> Starter | None:
    launchers = [((host.name, process.pid), process) for host, process in run.launchers]
    ranks = [((rank.host, rank.rank), rank.process) for rank in run.ranks.values() if rank.process is not None]
    processes = dict(launchers or ranks)
    if not processes or run.after_the_fact:
        return None
    place = min(processes)
    process = processes[place]
    owners = {rank.process.owner for rank in run.on(place[0]) if rank.process is not None}
    pids = sorted(pid for (host, pid), _ in launchers if host == place[0] and pid in owners)
    if len(pids) < 2 or process.pid not in pids:
        pids = []
    return Starter(pid=process.pid, host=place[0], uid=process.uid, directory=process.cwd, pids=tuple(pids))


def _findings(run: Run, problems: list[str]) -> list[Finding]:
    """All findings, the most likely cause first. A rule that fails is a problem."""
    identified: list[tuple[str, Finding]] = []
    subjects, instance = by_subject(), ids.identify_run(run)
    for blockage in run.blockages:
        rule, write = subjects[type(blockage.about)]
        with _reported(problems, rule):
            described = finding(rule.code, rule.name, write(run, blockage, blockage.about), run, blockage)
            identified.append((ids.name_blockage(instance, blockage), described))
    for rule in all_rules():
        with _reported(problems, rule):
            facts = [finding(rule.code, rule.name, draft, run) for draft in rule.check(run)]
            identified += [(ids.name_fact(instance, fact), fact) for fact in facts]
    unique = ids.number_repeated(name for name, _ in identified)
    findings = [msgspec.structs.replace(fact, id=name) for name, (_, fact) in zip(unique, identified, strict=True)]
    return sorted(findings, key=lambda f: (_SEVERITY[f.severity], -f.confidence, f.code, f.culprits))


@contextmanager
def _reported(problems: list[str], rule: Rule) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        problems.append(f"rule {rule.code} failed ({type(error).__name__}: {error}): please report it")


def _unseen(run: Run) -> tuple[Unseen, ...]:
    waiting = not run.ranks and any(launch.in_rendezvous(process) is not None for _, process in run.launchers)
    return tuple(
        Unseen(
            rank=number, why=_NOT_STARTED if waiting else unlooked.why, unreadable=unlooked.unreadable and not waiting
        )
        for number, unlooked in sorted(run.unseen.items())
    )


def _blocked(blockage: Blockage) -> Blocked:
    ends = {"never": False, "by-itself": True, "unknown": None}[blockage.ends]
    return Blocked(
        kind=blockage.kind.NAME,
        cause=blockage.cause.NAME if blockage.cause is not None else None,
        culprits=blockage.blamed,
        victims=blockage.victims,
        ends_by_itself=ends,
    )


def _with_hosts(run: Run, about: Finding) -> Finding:
    """For a run on several hosts, add to each command about a process the host on which to run it."""
    if len(run.hosts) < 2:
        return about
    named = (run.ranks[n] for n in (*about.victims, *about.culprits) if n in run.ranks)  # the culprits' pids count
    hosts = {str(rank.pid): rank.host for rank in named if rank.pid is not None}
    commands = []
    for command in about.commands:
        host = next((hosts[word] for word in command.replace("/", " ").split() if word in hosts), "")
        commands.append(f"{command}   # on {host}" if is_host(host) and "#" not in command else command)
    return msgspec.structs.replace(about, commands=tuple(commands))


def _view(run: Run, rank: Rank, waited: float | None) -> RankView:
    count = count_done(run, rank)
    calls = job_views.calls(run.ledger, rank.rank)
    activity = rank.show_activity(waited)
    held = rank.label == "blocked" and rank.hold is not None  # whatever moves beside it does not end that
    ages = [view.age_seconds for view in calls if view.pending is not None and view.age_seconds is not None]
    return RankView(
        rank=rank.rank,
        local_rank=rank.local_rank,
        host=rank.host,
        pid=rank.pid,
        label=activity.label,
        state=activity.state,
        operation=activity.operation,
        where=rank.where,
        where_source=None if rank.where is None else "recorder" if rank.by_record else "stack",
        cpu_percent=rank.cpu_percent,
        batches_done=count.done,
        batches_total=count.total,
        batches_source=count.source,
        batches_pass=count.pass_id,
        batches_pass_number=count.pass_number,
        batches_round=iterators.find_round(rank.process, count.pass_id) if count.source == "loader" else None,
        batches_loop=count.loop,
        batches_ended=has_ended(run, rank, count),
        batches_seconds_ago=_count_age(rank, count),
        silent_seconds=rank.silent_seconds if rank.silent_seconds is not None else min(ages, default=None),
        stack_seconds_ago=_stack_age(run, rank),
        like=rank.like,
        made_by=words.name_maker(rank) if activity.operation is not None else None,
        waited_share=round(waited, 3) if waited is not None else None,
        calls=calls,
        role=names.find_role(run, rank),
        progress=rank.work or rank.why or None if rank.moving and not held else None,
        gpu=job_views.gpu_view(run, rank),
    )


def _count_age(rank: Rank, count: BatchCount) -> float | None:
    """The age of the reading that a number of batches comes from. A trainer publishes each of its own."""
    process = rank.process
    if process is None or count.done is None:
        return None
    if count.source == "inferred":
        return process.deep_seconds_ago
    loops = process.loops
    return loops.seconds_ago if count.source == "loader" and isinstance(loops, Loops) else 0.0


def _stack_age(run: Run, rank: Rank) -> float | None:
    process = rank.process
    if process is None:
        return None
    if isinstance(process.stack, Stack):
        return process.deep_seconds_ago
    call = last_call(process, run.host[rank.host].wall_us) if rank.where is not None else None
    return round(call.age_seconds, 3) if call is not None else None
