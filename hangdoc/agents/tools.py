"""The tools: their names, their descriptions for agents, and their work. No tool writes, sends a signal, or contacts a host that
the caller did not name."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hangdoc.agents import answers, arguments, diagnoses, ranks
from hangdoc.agents.answers import Answer
from hangdoc.agents.bounds import LINE, clip, clipped, first, fitted, in_tool_terms
from hangdoc.agents.looks import Looks
from hangdoc.commands import launches, rules
from hangdoc.commands import preflight as preflights
from hangdoc.commands.errors import NO_RANK, TOO_LITTLE_SEEN, USAGE, CommandError
from hangdoc.phrases import numbers
from hangdoc.preflight.plan import Plan
from hangdoc.reasoning.engine import examine
from hangdoc.reasoning.model.run import Run

_GLIMPSE_SECONDS = 0.1
_STATUS = ("fail", "warn", "unknown", "pass")
_PREFLIGHT_SECONDS = 60.0
_MOST_LAUNCHES = 256
_VALUES, _NARROWEST = 4000, 20
"""Characters of all values of one row together at most, and of one value at least."""


@dataclass(frozen=True)
class Tool:
    """One tool."""

    run: Callable[[Looks, Any], Answer]
    """Its name is the tool's name, its docstring the description for agents. It blocks until it has the answer. Raises
    CommandError and BundleError, whose messages are shown to the agent."""
    title: str
    takes: type[arguments.Arguments]
    gives: type[Answer]
    looks: bool = False
    """Whether it observes processes or hosts, which takes seconds."""
    reaches_out: bool = False
    """Whether it may contact other hosts, if the caller names some."""

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.run.__name__

    @property
    def about(self) -> str:
        """The description for agents."""
        return " ".join((self.run.__doc__ or "").split())


def list_runs(looks: Looks, request: arguments.ListRuns) -> answers.Runs:
    """List the torch.distributed runs (torchrun, srun, mpirun, accelerate, DeepSpeed, Ray, mp.spawn) on this host or on `hosts`,
    with their pids and job ids; the earlier looks of this session; and the saved bundles. It does not say whether a run hangs;
    `diagnose` does, and needs no list."""
    problems: list[str] = []
    runs: tuple[Run, ...] = ()
    try:
        snapshot, _ = looks.observe((), request.hosts, _GLIMPSE_SECONDS, glimpse=True)
        diagnosis, runs = examine(snapshot)
        problems += diagnosis.problems
    except CommandError as error:
        if error.exit_code not in (NO_RANK, TOO_LITTLE_SEEN):
            raise
        problems.append(in_tool_terms(str(error)))
    bundles = looks.confined.listed()

    def build(most: int) -> answers.Runs:
        shown, hidden = first(runs, most)
        saved, more = first(bundles, min(most, 20))
        return answers.Runs(
            note=answers.EVIDENCE,
            runs=tuple(_describe_run(run, min(most, 16)) for run in shown),
            runs_left_out=hidden,
            looks=tuple(
                answers.LookRow(
                    look=look.number, of=clip(look.observed, LINE), taken_at=look.diagnosis.taken_at,
                    seconds_ago=look.seconds_ago(), verdict=look.diagnosis.verdict,
                )
                for look in looks.kept()
            ),
            bundles=saved,
            bundles_left_out=more,
            problems=clipped(problems[:most]),
        )  # fmt: skip

    return fitted(build)


def _describe_run(run: Run, most: int) -> answers.RunRow:
    first_rank = min(
        (rank for rank in run.ranks.values() if rank.process is not None), key=lambda r: r.rank, default=None
    )
    process = first_rank.process if first_rank is not None else run.launchers[0][1] if run.launchers else None
    return answers.RunRow(
        job=clip(run.id, LINE),
        launcher=clip(run.launcher, LINE) or None,
        backend=clip(run.backend, LINE) or None,
        world_size=run.world_size,
        ranks_seen=clip(numbers(run.ranks), LINE),
        hosts=clipped([host.name for host in run.hosts[:most]], LINE),
        launcher_pids=tuple(process.pid for _, process in run.launchers[:most]),
        started_seconds_ago=round(process.started_seconds_ago, 1) if process is not None else None,
        command=clip(" ".join(process.argv), LINE) if process is not None else "",
    )


def diagnose(looks: Looks, request: arguments.Diagnose) -> answers.Looked:
    """Find out why a distributed PyTorch training hangs, is stuck, or makes no progress. Call this first. It looks at every rank
    of the runs on this host; or only at `job`, the ranks below `pids`, or all ranks on `hosts`. It returns a verdict (`hung`,
    `waiting`, `healthy` or `unknown`), the ranks at fault, the cause, evidence, and a remedy. Only `hung` is a hang: do not
    stop a `waiting` run. It attaches from outside, only reads, pauses each rank for some milliseconds, and takes `window` plus
    about a second. For a run on several hosts, name all of them in `hosts`; ranks on other hosts are not observed."""
    snapshot, observed = looks.observe(request.pids, request.hosts, request.window)
    look = looks.keep(snapshot, observed, request.patience, request.job)
    return fitted(lambda most: diagnoses.looked(look, looks, most))


def open_bundle(looks: Looks, request: arguments.OpenBundle) -> answers.Looked:
    """Diagnose a bundle (*.hangdoc) that `hangdoc snapshot`, `diagnose --save`, `watch`, `run` or a watchdog has written, or a
    directory with one bundle per host of the same run. `list_runs` lists the bundles that this server may open."""
    look = looks.bundle(request.path, request.patience, request.job)
    return fitted(lambda most: diagnoses.looked(look, looks, most))


def rank_detail(looks: Looks, request: arguments.RankDetail) -> answers.RankAnswer:
    """Everything known about one rank when `diagnose` or `open_bundle` looked: Python stack with source lines, C++ frames,
    variables, loop counters before and after the window, sockets to other ranks, data directories, environment, threads and
    dataloader workers. It does not look again."""
    look = looks.get(request.look)
    job, run = look.job(request.job)
    return fitted(lambda most: ranks.detail(look, job, run, request.rank, most))


def compare_ranks(looks: Looks, request: arguments.CompareRanks) -> answers.Compared:
    """Compare two ranks of the last `diagnose` or `open_bundle`: their activity, the point where their stacks diverge, and
    differences in data, arguments, variables and versions, the most serious first. Compare a culprit with a rank that waits for
    it."""
    look = looks.get(request.look)
    job, run = look.job(request.job)
    return fitted(lambda most: ranks.comparison(look, job, run, request.rank, request.other, most))


def what_was_not_seen(looks: Looks, request: arguments.NotSeen) -> answers.NotSeenAnswer:
    """Ranks and sources that the last `diagnose` or `open_bundle` could not read, with the reason and the remedy. Call it when a
    verdict is `unknown`, or before you claim that something is absent."""
    look = looks.get(request.look)
    return fitted(lambda most: diagnoses.not_seen(look, most))


def explain_finding(looks: Looks, request: arguments.ExplainFinding) -> answers.Explained:
    """The page of a finding: what it means, why the run hangs, how hangdoc knows, what to do, and when it can be wrong. Read it
    before you change code because of a finding."""
    finding_and_look = None
    for look in looks.kept():
        for job in look.diagnosis.jobs:
            for finding in job.findings:
                if finding.id == request.finding.strip():
                    finding_and_look = finding, look
    try:
        page = rules.page(finding_and_look[0].code if finding_and_look is not None else request.finding)
    except CommandError as error:
        known_rules = ", ".join(f"{rule.code} {rule.name}" for rule in rules.catalogue().rules)
        raise CommandError(
            f"there is no finding {request.finding[:60]!r}. The rules are: {known_rules}.", USAGE
        ) from error
    return fitted(
        lambda most: answers.Explained(
            note=answers.EVIDENCE,
            code=page.code,
            name=page.name,
            page=page.page or page.says,
            finding=diagnoses.describe_finding(finding_and_look[0], finding_and_look[1], looks, most)
            if finding_and_look is not None
            else None,
        )
    )


def preflight(looks: Looks, request: arguments.Preflight) -> answers.Checked:
    """Before a training is started: check whether the launch can work. Names, ports, network interfaces, connections between the
    nodes, versions, memory, left-over ranks, permissions. Not for a run that hangs. It checks this host, or `hosts` and the
    connections between them. It binds ports for a moment and sends test data between the named hosts."""
    address, origin, more = preflights.master_of(request.master, os.environ)
    plan = Plan(
        master=address, master_origin=origin, ranks_per_node=request.ranks_per_node, dtype=preflights.data_type(request.dtype),
        parameters=preflights.parameters(request.parameters),
    )  # fmt: skip
    done = preflights.checked(plan, looks.fleet(request.hosts), _PREFLIGHT_SECONDS, more)
    ordered = sorted(done.checks, key=lambda check: _STATUS.index(check.status))

    def build(most: int) -> answers.Checked:
        shown, hidden = first(ordered, most)
        return answers.Checked(
            can_work=all(check.status != "fail" for check in ordered),
            nodes=len(done.nodes) + sum(check.name == "reached" for check in ordered),
            counts={status: sum(check.status == status for check in ordered) for status in _STATUS},
            checks=tuple(
                answers.CheckRow(
                    name=check.name, status=check.status, text=clip(check.text),
                    remedy=clip(check.remedy) if check.status != "pass" else "",
                )
                for check in shown
            ),
            checks_left_out=hidden,
            all_reduce_seconds=done.all_reduce_seconds,
        )  # fmt: skip

    return fitted(build)


def compare_launch_lines(looks: Looks, request: arguments.CompareLaunchLines) -> answers.LinesCompared:
    """Compare the launch commands or scripts of the nodes of one run, given as text: settings that must agree and do
    not, that must differ, that are suspicious, or that do nothing. Nothing is executed."""
    named = [launch for text in request.lines for launch in launches.parsed(text)]
    if len(named) > _MOST_LAUNCHES:
        raise CommandError(
            f"these lines contain {len(named)} launches, but at most {_MOST_LAUNCHES} can be compared. Give fewer lines.",
            USAGE,
        )
    comparison = launches.compared(named)
    width = max(_NARROWEST, _VALUES // len(named))
    telling = [row for row in comparison.rows if row.wrong or row.differs or row.standing == "suspicious"]

    def build(most: int) -> answers.LinesCompared:
        shown, hidden = first(telling, most)
        return answers.LinesCompared(
            lines=clipped(comparison.lines, width),
            can_work=not any(row.wrong for row in comparison.rows),
            rows=tuple(
                answers.SettingRow(
                    name=clip(row.name, LINE), standing=row.standing, wrong=row.wrong, why=clip(row.why),
                    values=tuple(None if value is None else clip(value, width) for value in row.values),
                )
                for row in shown
            ),
            rows_left_out=hidden,
            alike=len(comparison.rows) - len(telling),
            derived={clip(name, LINE): clip(value) for name, value in list(comparison.derived.items())[:most]},
        )  # fmt: skip

    return fitted(build)


TOOLS = (
    Tool(diagnose, "Diagnose a hang", arguments.Diagnose, answers.Looked, looks=True, reaches_out=True),
    Tool(rank_detail, "One rank in detail", arguments.RankDetail, answers.RankAnswer),
    Tool(compare_ranks, "Compare two ranks", arguments.CompareRanks, answers.Compared),
    Tool(explain_finding, "Explain a finding", arguments.ExplainFinding, answers.Explained),
    Tool(what_was_not_seen, "What could not be observed", arguments.NotSeen, answers.NotSeenAnswer),
    Tool(list_runs, "List training runs", arguments.ListRuns, answers.Runs, looks=True, reaches_out=True),
    Tool(open_bundle, "Open saved evidence", arguments.OpenBundle, answers.Looked),
    Tool(preflight, "Check before a launch", arguments.Preflight, answers.Checked, looks=True, reaches_out=True),
    Tool(compare_launch_lines, "Compare launch lines", arguments.CompareLaunchLines, answers.LinesCompared),
)


def find(name: str) -> Tool:
    """The tool with this name. Raises CommandError if there is none."""
    for tool in TOOLS:
        if tool.name == name:
            return tool
    raise CommandError(
        f"there is no tool {name[:60]!r}. The tools are: {', '.join(tool.name for tool in TOOLS)}.", USAGE
    )
