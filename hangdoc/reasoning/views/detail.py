"""What a page shows of a job beyond its diagnosis: who waits for whom as a drawing of few nodes, batches, stacks, settings."""

from collections.abc import Hashable, Iterable
from typing import Literal, NamedTuple

from msgspec import Struct

from hangdoc import settings
from hangdoc.detail import Batches, Branch, Detail, Setting, WaitGraph, WaitNode
from hangdoc.diagnosis import Diagnosis, Job
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.model.agreement import Agreement, compare_values
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.runs.launch import read_arguments
from hangdoc.reasoning.text import words
from hangdoc.reasoning.views.job_views import find_beginning
from hangdoc.snapshot import Frame, PythonThread

_MOST_WORDS = 32

Place = tuple[str, str, int]
"""File, function and line of a frame."""


def merge_stacks(ranks: Iterable[Rank], *, native: bool = False) -> Branch:
    """All ranks' stacks as one prefix tree with the ranks in each branch: ranks are together as long as their stacks
    are, so that an outlier among a thousand is visible. The idea is STAT's (Lawrence Livermore National Laboratory). A
    rank without a stack is in the root alone. With `native`, the stack with C++ frames is taken where there is one."""
    paths = {rank.rank: frames_of(rank, native=native)[::-1] for rank in ranks}
    return Branch(tuple(sorted(paths)), (), _below(sorted(paths), paths, 0))


def place_of_frame(frame: Frame) -> Place:
    """What makes frames of two ranks the same."""
    return frame.file, frame.function, frame.line


def _thread_now(rank: Rank) -> PythonThread | None:
    """The thread as it is now. If a card waits in a call that its thread has made before, `Rank.thread` is at the line of that
    call."""
    thread = rank.thread
    if thread is None or rank.wait is None or rank.wait.thread_at is None or rank.process is None:
        return thread
    return next((now for now in observed.python_threads(rank.process) if now.tid == thread.tid), thread)


def frames_of(rank: Rank, *, native: bool = False) -> tuple[Frame, ...]:
    """A rank's training thread, innermost first."""
    thread = _thread_now(rank)
    if native and rank.process is not None and thread is not None:
        thread = observed.native_of(rank.process, thread) or thread
    return thread.frames if thread is not None else ()


def _below(ranks: Iterable[int], paths: dict[int, tuple[Frame, ...]], depth: int) -> tuple[Branch, ...]:
    """The branches of ranks whose stacks agree up to `depth`, the largest first."""
    together: dict[Place, list[int]] = {}
    for rank in ranks:
        if depth < len(paths[rank]):
            together.setdefault(place_of_frame(paths[rank][depth]), []).append(rank)
    branches = [_grown(members, paths, depth) for members in together.values()]
    return tuple(sorted(branches, key=lambda branch: (-len(branch.ranks), branch.ranks)))


def _grown(ranks: list[int], paths: dict[int, tuple[Frame, ...]], depth: int) -> Branch:
    """A branch from its first frame to where its ranks part."""
    end = depth + 1
    while len({place_of_frame(paths[rank][end]) if end < len(paths[rank]) else None for rank in ranks}) == 1:
        if end == len(paths[ranks[0]]):
            break
        end += 1
    return Branch(tuple(ranks), paths[ranks[0]][depth:end], _below(ranks, paths, end))


# --- settings ---------------------------------------------------------------------------------------------------------


Standing = Literal["must agree", "should agree", "names data", "may differ", "inert", "tuning", "unknown"]
_STANDINGS: dict[str, Standing] = {
    "collectives": "must agree",
    "meeting": "must agree",
    "numbers": "should agree",
    "data": "names data",
    "differs": "may differ",
    "tuning": "tuning",
}
STANDING_ORDER: tuple[Standing, ...] = (
    "must agree", "should agree", "names data", "unknown", "tuning", "inert", "may differ",
)  # fmt: skip
"""The gravest first."""


class Compared(Struct, frozen=True):
    """One argument or variable over all ranks that could be read."""

    name: str
    origin: Literal["argument", "variable"]
    standing: Standing
    why: str
    values: Agreement[str | None, int]

    @property
    def shown_name(self) -> str:
        """`--lr`, `argument 1` for a word that belongs to no option, or the name of a variable."""
        is_option = self.origin == "argument" and not settings.is_positional(self.name)
        return f"--{self.name}" if is_option else self.name

    @property
    def differs(self) -> bool:
        """Whether two ranks have different values."""
        return self.values.differs


def compare_settings(run: Run) -> list[Compared]:
    """Everything that the ranks were started with or set themselves, what differs first, by gravity."""
    arguments = read_arguments(run.processes)
    variables = {rank: observed.environment(process) for rank, process in run.processes.items()}
    settings_of_ranks = [
        *(_compared("argument", name, arguments, settings.argument(name)) for name in _argument_names(arguments)),
        *(
            _compared("variable", name, variables, settings.variable(name), inert=settings.inert(name, run.backend))
            for name in _setting_names(variables)
        ),
    ]
    return sorted(
        settings_of_ranks,
        key=lambda each: (not each.differs, STANDING_ORDER.index(each.standing), each.origin, each.name),
    )


def _argument_names(arguments: dict[int, dict[str, str]]) -> Iterable[str]:
    """The options, and the first words that belong to none: a shell may write thousands of files in place of `*.tar`."""
    first = [f"argument {number}" for number in range(1, _MOST_WORDS + 1)]
    return (name for name in _setting_names(arguments) if not settings.is_positional(name) or name in first)


def _setting_names(values: dict[int, dict[str, str]]) -> Iterable[str]:
    return sorted({name for of_rank in values.values() for name in of_rank})


def _compared(
    origin: Literal["argument", "variable"],
    name: str,
    values: dict[int, dict[str, str]],
    setting: settings.Setting | None,
    *,
    inert: bool = False,
) -> Compared:
    standing: Standing = (
        "inert" if inert else "unknown" if setting in (None, settings.POSITIONAL) else _STANDINGS[setting.kind]
    )
    agreed = compare_values({rank: of_rank.get(name) for rank, of_rank in values.items()})
    return Compared(name, origin, standing, setting.why if setting is not None and not inert else "", agreed)


# --- the page ---------------------------------------------------------------------------------------------------------


MOST_NODES = 20
"""A drawing with more can't be read."""


class _Group(NamedTuple):
    """The ranks of one node of the drawing."""

    ranks: tuple[int, ...]
    seen: tuple[Rank, ...]
    """Those of them that were observed."""
    awaits: frozenset[int]


def details(diagnosis: Diagnosis, runs: Iterable[Run]) -> tuple[Detail, ...]:
    """Of each job of a diagnosis that one of the runs is."""
    by_id = {run.id: run for run in runs}
    return tuple(detail(job, by_id[job.id]) for job in diagnosis.jobs if job.id in by_id)


def detail(job: Job, run: Run) -> Detail:
    """Of one job, whose run this is."""
    culprits = frozenset(job.findings[0].culprits) if job.findings else frozenset()
    return Detail(
        job=job.id,
        graph=wait_graph(run, culprits),
        batches=_batches(job, culprits),
        stacks=merge_stacks(run.ranks.values()),
        settings=tuple(_setting(compared) for compared in compare_settings(run) if compared.differs),
        began=find_beginning(run).by if job.hung_for_seconds is not None else None,
    )


def wait_graph(run: Run, culprits: frozenset[int]) -> WaitGraph:
    """Who waits for whom, in at most MOST_NODES nodes. Ranks that wait at one point are one node, culprits among them another."""
    nodes = run.waits.nodes if run.waits is not None else ()
    groups = [
        _group(run, ranks, node.awaits)
        for node in nodes
        for ranks in (node.ranks & culprits, node.ranks - culprits)
        if ranks
    ]
    ends = {end for edge in _edges(groups) for end in edge}
    kept = [group for at, group in enumerate(groups) if at in ends or not culprits.isdisjoint(group.ranks)]
    apart = sum(len(group.ranks) for group in groups) - sum(len(group.ranks) for group in kept)
    if len(kept) > MOST_NODES:
        kept = _collapsed(run, kept, culprits)
    return WaitGraph(tuple(_node(run, group, culprits) for group in kept), _edges(kept), apart)


def _group(run: Run, ranks: Iterable[int], awaits: frozenset[int]) -> _Group:
    ordered = tuple(sorted(ranks))
    return _Group(ordered, tuple(run.ranks[rank] for rank in ordered if rank in run.ranks), awaits)


def _edges(groups: list[_Group]) -> tuple[tuple[int, int], ...]:
    position = {rank: at for at, group in enumerate(groups) for rank in group.ranks}
    edges = {(at, position[rank]) for at, group in enumerate(groups) for rank in group.awaits if rank in position}
    return tuple(sorted(edges))


def _collapsed(run: Run, groups: list[_Group], culprits: frozenset[int]) -> list[_Group]:
    """One group for all that do the same at one place, whomever they name; and if these are still too many, one for the rest."""
    together: dict[tuple[bool, Hashable], list[_Group]] = {}
    for group in groups:
        first = group.seen[0] if group.seen else None
        same = first and (first.state, first.wait and first.wait.operation.op, first.where)
        together.setdefault((culprits.isdisjoint(group.ranks), same), []).append(group)
    parts = [alike for _, alike in sorted(together.items(), key=lambda item: item[0][0])]
    if len(parts) > MOST_NODES:
        kept, rest = parts[: MOST_NODES - 1], parts[MOST_NODES - 1 :]
        parts = [*kept, [group for alike in rest for group in alike]]
    return [
        _group(
            run,
            (rank for group in alike for rank in group.ranks),
            frozenset().union(*(group.awaits for group in alike)),
        )
        for alike in parts
    ]


def _node(run: Run, group: _Group, culprits: frozenset[int]) -> WaitNode:
    ranks, seen = group.ranks, group.seen
    guilty = not culprits.isdisjoint(ranks)
    if not seen:
        return WaitNode(ranks, None, run.unseen[ranks[0]].why if ranks[0] in run.unseen else "not seen", culprit=guilty)
    first = seen[0]
    phrases = {words.doing(rank).rstrip(",") for rank in seen}
    if len(phrases) == 1:
        doing = phrases.pop()
    elif len(ops := {rank.wait.operation.op if rank.wait else None for rank in seen}) == 1 and (op := ops.pop()):
        doing = f"each waits in a {op}"
    else:
        doing = f"{len(phrases)} different things"
    where = first.where if len({rank.where for rank in seen}) == 1 else None
    return WaitNode(
        ranks=ranks,
        label=first.show_activity(None).label,  # as the drawing: no wait of its own
        doing=doing,
        place=f"{where.file}:{where.line}" if where is not None else None,
        source=where.source if where is not None else None,
        culprit=guilty,
    )


def _batches(job: Job, culprits: frozenset[int]) -> tuple[Batches, ...]:
    together: dict[tuple[bool, int, int | None, bool, int | None], list[int]] = {}
    several = len({view.batches_pass_number for view in job.ranks} - {None}) > 1
    for view in job.ranks:
        if view.batches_done is not None:
            number = view.batches_pass_number if several else None
            key = (view.rank in culprits, view.batches_done, view.batches_total, view.batches_ended, number)
            together.setdefault(key, []).append(view.rank)
    counts = [
        Batches(tuple(sorted(ranks)), done, total, ended, culprit, number)
        for (culprit, done, total, ended, number), ranks in together.items()
    ]
    return tuple(sorted(counts, key=lambda count: (not count.culprit, count.pass_number or 0, count.done, count.ranks)))


def _setting(compared: Compared) -> Setting:
    return Setting(compared.shown_name, compared.standing, compared.why, compared.values.values)
