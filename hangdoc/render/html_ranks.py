"""The page's table of ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from hangdoc.diagnosis import Job, RankView
from hangdoc.phrases import numbers
from hangdoc.render import words

MOST_ROWS = 2048
"""With more ranks, a row is a class of equal ranks; otherwise the page would be too large to send."""
_PRINTED = 40


@dataclass(frozen=True)
class Line:
    """One row."""

    ranks: tuple[int, ...]
    name: str
    role: str
    culprit: bool
    first: RankView
    host: str
    cpu: str
    cpu_percent: float | None
    gpu: str
    gpu_percent: int | None
    batches: str
    silence: str
    silent_seconds: float | None
    printed: bool
    """Whether it is printed on paper. A thousand rows would not help there."""


@dataclass(frozen=True)
class Table:
    """The whole table."""

    lines: tuple[Line, ...]
    by_class: bool
    roles: bool
    """Whether the role of any rank is known."""
    gpus: bool
    """Whether the card of any rank is known."""
    counts: tuple[tuple[str, int], ...]
    """How many ranks have each label, the worst first; `unknown` for ranks without one."""
    hosts: int
    unprinted: int


def table(job: Job, culprits: frozenset[int]) -> Table:
    """The table: culprits first, then one rank of each class, then all others."""
    classes = words.classes(job)
    by_class = len(job.ranks) > MOST_ROWS
    groups: list[Sequence[RankView]] = list(classes)
    if not by_class:
        firsts = {group[0].rank for group in classes}
        ordered = sorted(job.ranks, key=lambda view: (view.rank not in culprits, view.rank not in firsts, view.rank))
        groups = [[view] for view in ordered]
    else:
        groups.sort(key=lambda group: not culprits & {view.rank for view in group})
    passes = words.in_other_passes(job.ranks)
    lines = tuple(_make_line(group, culprits, at < _PRINTED, passes) for at, group in enumerate(groups[:MOST_ROWS]))
    labels = [view.label or "unknown" for view in job.ranks]
    counts = tuple((name, labels.count(name)) for name in ("dead", "blocked", "computing", "unknown") if name in labels)
    return Table(
        lines,
        by_class,
        words.has_roles(job),
        words.has_gpus(job),
        counts,
        len({view.host for view in job.ranks}),
        max(0, len(lines) - _PRINTED),
    )


def _make_line(group: Sequence[RankView], culprits: frozenset[int], printed: bool, passes: bool) -> Line:
    first = group[0]
    shares = [view.cpu_percent for view in group if view.cpu_percent is not None]
    return Line(
        ranks=tuple(view.rank for view in group),
        name=numbers(view.rank for view in group),
        role=words.roles(group),
        culprit=all(view.rank in culprits for view in group),
        first=first,
        host=words.hosts(group),
        cpu=words.cpu(group),
        cpu_percent=sum(shares) / len(shares) if shares else None,
        gpu=words.gpu(group),
        gpu_percent=min(
            (view.gpu.utilisation for view in group if view.gpu is not None and view.gpu.utilisation is not None),
            default=None,
        ),
        batches=words.batches(first, of_pass=passes),
        silence=words.silence(group),
        silent_seconds=min((view.silent_seconds for view in group if view.silent_seconds is not None), default=None),
        printed=printed,
    )
