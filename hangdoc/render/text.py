"""The text report: verdict, cause, evidence, what to do, and the table of ranks. Readable in ten seconds at 80 columns."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hangdoc.diagnosis import Diagnosis, Finding, Job, RankView
from hangdoc.phrases import duration, numbers, ranks, shorten
from hangdoc.regex import regex
from hangdoc.render import words
from hangdoc.render.console import print_blocks

Programs = Mapping[str, str]
"""By the name of a program, also after `sudo`: what the reader types to start it (`hangdoc.typed_programs`)."""
_HANGDOC = "hangdoc"
_FIRST_WORD = regex(r"^((?:sudo )?)(\S+)")
_EVIDENCE_SHOWN = 6
_UNSEEN_SHOWN = 4
_MOST_OF_PIDS, _FEWER_PIDS = 40, 14
_EVERYTHING = 1_000
_PASSES = "which pass over its data a rank is in (its epoch), from 1"


def report(
    diagnosis: Diagnosis, console: Console, *, verbose: bool = False, programs: Programs = MappingProxyType({})
) -> None:
    """Print the report. `verbose` adds all evidence and every rank that was not observed. `programs`: what the reader
    types for hangdoc and py-spy."""
    print_blocks(console, blocks(diagnosis, verbose=verbose, programs=programs))


def blocks(
    diagnosis: Diagnosis, *, verbose: bool = False, programs: Programs = MappingProxyType({})
) -> Iterator[RenderableType]:
    """The parts of the report."""
    names = words.job_names(diagnosis.jobs)
    for text in diagnosis.unused:
        yield Text(words.clean(text), style="yellow")
        yield ""
    if len(names) > 1:
        yield Text(f"{len(names)} runs")
        yield _indent(_make_overview(diagnosis, names), 2)
        yield ""
    for job in words.worst_first(diagnosis.jobs):
        yield from _describe_job(job, names[job.id], verbose=verbose, programs=programs)
    if problems := [text for text in diagnosis.problems if text not in diagnosis.unused]:
        yield Text("could not read", style="bold")
        for problem in dict.fromkeys([*problems, *(diagnosis.late if verbose else ())]):
            yield _indent(Text(words.clean(problem)), 2)
        yield ""
    if (brought := words.brought(diagnosis)) is not None:
        yield Text(brought)
        yield ""
    if verbose and not any(map(_is_shortened, diagnosis.jobs)):
        unread = any(words.find_unread(job.ranks) for job in diagnosis.jobs)
        stacks = "the stacks, but not of ranks that move (--stacks reads them)" if unread else "the stacks"
        yield Text(f"--verbose shows nothing more here. --html has {stacks}, --json all fields.", style="dim")
    yield Text(
        f"hangdoc {words.clean(diagnosis.hangdoc)} {words.looked(diagnosis)}, "
        f"{words.clean(diagnosis.taken_at[:19].replace('T', ' '))} UTC",
        style="dim",
    )


def _is_shortened(job: Job) -> bool:
    """Whether the report of a job without `verbose` leaves something out."""
    return len({rank.why for rank in job.unseen}) > _UNSEEN_SHOWN or any(
        len(finding.evidence) > (_EVIDENCE_SHOWN if _is_whole(finding, job) else 0) for finding in job.findings
    )


def _is_whole(finding: Finding, job: Job) -> bool:
    """Whether evidence and remedy of a finding are shown without `verbose`."""
    return finding is job.findings[0] or finding.severity == "error"


def _make_overview(diagnosis: Diagnosis, names: dict[str, str]) -> Table:
    """What tells the runs of a shared host apart, their first findings, and the id that `--job` takes."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for job in words.worst_first(diagnosis.jobs):
        verdict = Text(job.verdict, style=words.VERDICT_STYLE[job.verdict])
        if job.hung_for_seconds is not None:
            verdict.append(f" {duration(job.hung_for_seconds)}")
        first = next(iter(job.findings), None)
        headline = f"{first.code} {first.name}" if first is not None else ""
        headline += f", {ranks(first.culprits)}" if first is not None and first.culprits else ""
        table.add_row(verdict, Text(" · ".join(part for part in (names[job.id], headline) if part)))
        table.add_row("", Text(words.origin(job), style="dim"))
    return table


def _describe_job(job: Job, name: str, *, verbose: bool, programs: Programs) -> Iterator[RenderableType]:
    title = Text(job.verdict.upper(), style=words.VERDICT_STYLE[job.verdict])
    if job.hung_for_seconds is not None:
        title.append(f" for {duration(job.hung_for_seconds)}")
    title.append(f"   {name}", style="not bold default")
    if job.backend:
        title.append(f" · {words.clean(job.backend)}", style="not bold default")
    yield title
    yield ""
    for finding in job.findings:
        whole = verbose or _is_whole(finding, job)
        yield from _describe_finding(finding, job, whole=whole, verbose=verbose, programs=programs)
    if not job.findings:
        yield Text(words.without_finding(job))
        yield ""
    if pace := words.pace(job):
        yield _add_label("pace", pace)
        yield ""
    if job.ranks:
        yield _make_rank_table(job)
        passes = _PASSES if words.in_other_passes(job.ranks) else ""
        notes = [(name, text) for name, text in (("batches", words.loops_of_batches(job)), ("pass", passes)) if text]
        if notes:
            yield ""
        for name, text in notes:
            yield _add_label(f"{name:7}", text)
    if job.past is not None and job.past.stopped_us is not None and job.verdict != "healthy":
        yield ""
        yield _add_label("before", words.past(job.past))
    unseen: dict[str, list[int]] = {}
    for unseen_rank in job.unseen:
        unseen.setdefault(unseen_rank.why, []).append(unseen_rank.rank)
    shown = _EVERYTHING if verbose else _UNSEEN_SHOWN
    for why, which in list(unseen.items())[:shown]:
        yield Text(f"{ranks(which)}: {words.clean(why)}")
    if len(unseen) > shown:
        rest = [number for which in list(unseen.values())[shown:] for number in which]
        yield Text(f"{ranks(rest)} not observed (--verbose shows why)")
    yield ""


def _describe_finding(
    finding: Finding, job: Job, *, whole: bool, verbose: bool, programs: Programs
) -> Iterator[RenderableType]:
    head = Text.assemble(
        (f"{finding.severity} ", words.SEVERITY_STYLE[finding.severity]),
        (f"{finding.code} {finding.name}", "bold"),
        (f"  {words.score(finding)}".rstrip(), "dim"),
    )
    yield head
    yield _indent(Text(words.clean(finding.summary)), 2)
    yield ""
    if not whole:
        return
    table = facts(
        finding,
        None if verbose else _EVIDENCE_SHOWN,
        where=words.roles_of(finding.culprits, job) + words.hosts_of(finding.culprits, job),
        programs=programs,
    )
    table.add_row("explain", Text(f"{programs.get(_HANGDOC, _HANGDOC)} rules {finding.name}", style="dim"))
    yield _indent(table, 2)
    yield ""


def facts(
    finding: Finding,
    most: int | None = None,
    *,
    probes: bool = False,
    where: str = "",
    programs: Programs = MappingProxyType({}),
) -> Table:
    """Ranks (`where`: the roles and hosts of the culprits), evidence (at most `most` lines; `probes`: with the probe of each),
    remedy and commands of a finding (`programs`: as for `report`)."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    if finding.culprits:
        table.add_row(finding.role, Text(ranks(finding.culprits), style="bold") + Text(where, style="not bold"))
    if finding.victims:
        table.add_row("waiting", Text(ranks(finding.victims)))
    shown = finding.evidence[:most]
    for index, evidence in enumerate(shown):
        who = Text(f"rank {evidence.rank}: " if evidence.rank is not None else "", style="bold")
        text = evidence.text + (f"  [{evidence.probe}]" if probes else "")
        table.add_row("evidence" if index == 0 else "", who + Text(words.clean(text), style="not bold"))
    if len(finding.evidence) > len(shown):
        table.add_row("", Text(f"... {len(finding.evidence) - len(shown)} more (--verbose)"))
    table.add_row("to do", Text(words.clean(finding.remedy)))
    for command in finding.commands:
        table.add_row("", Text(f"$ {words.clean(as_typed(command, programs))}", style="cyan"))
    return table


def as_typed(command: str, programs: Programs) -> str:
    """A command of a finding with what a person types for its program (`programs`: as for `report`)."""
    return _FIRST_WORD.sub(lambda word: programs.get(word[0]) or f"{word[1]}{programs.get(word[2], word[2])}", command)


class _FirstThatFits:
    """The first of some tables that no line of the console cuts; the last one if all are too wide."""

    def __init__(self, *tables: Table) -> None:
        self._tables = tables

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._choose(console, options)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._choose(console, options))

    def _choose(self, console: Console, options: ConsoleOptions) -> Table:
        whole = options.update(max_width=_EVERYTHING)
        fit = (one for one in self._tables if Measurement.get(console, whole, one).maximum <= options.max_width)
        return next(fit, self._tables[-1])


def _make_rank_table(job: Job) -> Table:
    """The table of ranks, with fewer pids and less room between its columns where it would be too wide, and the place of each row
    below it."""
    details = [line for group in words.classes(job) for line in _describe_rank(group[0])]
    tables = (_list_ranks(job, between, most) for most in (_MOST_OF_PIDS, _FEWER_PIDS) for between in (2, 1))
    return _add_details(_FirstThatFits(*tables), details)


def _list_ranks(job: Job, between: int, most_of_pids: int) -> Table:
    table = Table(box=None, padding=(0, between, 0, 0), pad_edge=False, header_style="dim", expand=False)
    gpus, roles = words.has_gpus(job), words.has_roles(job)
    counted = not roles or any(rank.batches_done is not None for rank in job.ranks)  # few servers have batches
    passes = words.in_other_passes(job.ranks)
    for name, justify in (("rank", "left"), *([("role", "left")] if roles else []), ("host", "left"), ("pid", "right"),
                          ("state", "left"), ("cpu", "right"), *([("gpu", "right")] if gpus else []),
                          *([("pass", "right")] if passes else []), *([("batches", "right")] if counted else []),
                          ("silent", "right")):  # fmt: skip
        table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    for group in words.classes(job):
        first = group[0]
        style = words.LABEL_STYLE[first.label]
        table.add_row(
            Text(shorten(numbers(r.rank for r in group), 14), style="bold"),
            *([Text(shorten(words.roles(group), 16))] if roles else []),
            Text(shorten(words.hosts(group), 16)),
            Text(_name_pids(group, most_of_pids)),
            Text(f"{words.LABEL_GLYPH[first.label]} {words.label_and_state(first)}", style=style),
            Text(words.cpu(group)),
            *([Text(words.gpu(group))] if gpus else []),
            *([Text(str(first.batches_pass_number or "-"))] if passes else []),
            *([Text(words.batches(first))] if counted else []),
            Text(words.silence(group)),
        )
    return table


def _name_pids(group: list[RankView], most: int) -> str:
    """`4666-4667, 4670`; of more than `most` characters, and of several hosts, the first."""
    text = numbers(rank.pid for rank in group if rank.pid is not None)
    fits = len(text) <= most and len({rank.host for rank in group}) == 1
    return (text if fits else f"{group[0].pid or '-'}…") or "-"


def _add_details(table: RenderableType, details: list[RenderableType]) -> Table:
    """The table of ranks, and below it the place of each row, over the whole width."""
    outer = Table.grid(expand=False)
    outer.add_column(overflow="fold")
    outer.add_row(table)
    if details:
        outer.add_row("")
    for lines in details:
        outer.add_row(lines)
    return outer


def _describe_rank(rank: RankView) -> Iterator[RenderableType]:
    where = words.place(rank.where)
    where = f"{words.name_last_call(rank)}{where}" if words.is_last_call(rank) else where
    parts = [part for part in (words.operation(rank.operation), where) if part]
    if parts:
        maker = f", made by {words.clean(rank.made_by)}" if rank.made_by is not None else ""
        left = "; its stack was not read" if words.is_last_call(rank) and words.is_old(rank) else ""
        yield _add_label(f"rank {rank.rank}", " at ".join(parts) + maker + left)
    if rank.where is not None and rank.where.source:
        yield _indent(Text(words.clean(rank.where.source), "dim"), 8)


def _add_label(label: str, text: str) -> Table:
    """A sentence with a label before it."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text(label, "bold"), Text(text))
    return table


def _indent(what: RenderableType, by: int) -> Padding:
    return Padding(what, (0, 0, 0, by))
