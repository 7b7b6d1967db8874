"""What blocks the run: each blockage once, the culprit first, then the ranks that wait. A cycle is drawn as a cycle."""

from collections.abc import Iterable, Iterator
from statistics import median

from rich.text import Text

from hangdoc.diagnosis import Finding, Job
from hangdoc.phrases import duration, numbers
from hangdoc.reasoning.model.rank import Class
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.text import words as phrases
from hangdoc.render import words
from hangdoc_tui.grid import Cell, Column, Fitted, Grid, join_cells
from hangdoc_tui.places import placed
from hangdoc_tui.ranks import doing
from hangdoc_tui.view_model import RankChosen, ViewModel
from hangdoc_tui.wait_chains import Picture, Waiting, pictures

_ENDS = {"never": "cannot end by itself", "by-itself": "can end by itself", "unknown": ""}
_VERBS = {
    "culprit": ("is the culprit", "are the culprits"),
    "awaited": ("is awaited", "are awaited"),
    "involved": ("is involved", "are involved"),
}
"""By the role of the ranks that a finding names."""
_COLUMNS = (
    Column("who", most=34),
    Column("waits for", most=14),
    Column("doing", most=30),
    Column("where", least=14, flexible=True),
)
Line = tuple[tuple[Cell, ...], int | None]
"""The cells of a row, and its rank."""


class WaitTable(Grid):
    """A line for each class of ranks that waits, or that others wait for."""

    def __init__(self) -> None:
        super().__init__("waits", _COLUMNS)
        self._ranks: list[int | None] = []

    def show(self, model: ViewModel) -> None:
        """Draw it."""
        lines = self.filtered(_make_lines(model), lambda line: join_cells(line[0]))
        self._ranks = [rank for _, rank in lines]
        self.fill(len(lines), lambda index: lines[index][0])

    def on_grid_opened(self, event: Grid.Opened) -> None:
        """Show the stack of the rank in that row."""
        rank = self._ranks[event.index] if event.index < len(self._ranks) else None
        if rank is not None:
            self.post_message(RankChosen(rank, True))


def _make_lines(model: ViewModel) -> Iterator[Line]:
    drawn = pictures(model.run)
    if not drawn:
        yield (Text("No rank is blocked by another one.", "green"),), None
        for finding in model.job.findings:
            if finding.victims:
                yield from _make_delay_lines(finding, model)
    for number, picture in enumerate(drawn):
        if number:
            yield (Text(""),), None
        blamed = next(iter(picture.blockage.blamed), None)
        yield (_make_title(picture, model),), blamed
        if facts := _describe_facts(picture, model.job):
            yield (Text(f"  {facts}", "dim"),), blamed
        yield from _make_end_lines(picture, model)
        for waiting in picture.behind:
            yield from _make_waiting_lines(waiting, model, depth=1)


def _make_delay_lines(finding: Finding, model: ViewModel) -> Iterator[Line]:
    """Ranks for which others wait in each step of a run that makes progress, and these others. Where each is does not matter."""
    slow, others = finding.culprits, finding.victims
    text = f"● {phrases.do(slow, 'delays', 'delay')} the others"
    yield (Text(""),), None
    yield (Text.assemble((text, "bold yellow"), f": {finding.code} {finding.name}"),), slow[0]
    for ranks, edge, awaited in ((slow, "", ""), (others, "└ ", numbers(slow))):
        shares = [
            view.waited_share for view in model.job.ranks if view.rank in set(ranks) and view.waited_share is not None
        ]
        waits = f"{phrases.verb(ranks, 'waits', 'wait')} {median(shares):.0%} of the time" if shares else ""
        who = Text.assemble((edge, "yellow"), (phrases.ranks(ranks), "bold"))
        yield (who, Text(awaited, "dim"), Text(waits), Text()), ranks[0]


def _make_title(picture: Picture, model: ViewModel) -> Text:
    """The culprits of a blockage, and what it is."""
    blockage = picture.blockage
    blamed = blockage.blamed
    finding = _find_finding(model.job.findings, blamed, blockage.victims)
    verbs = _VERBS[finding.role if finding is not None else "culprit"]
    who = f"{phrases.ranks(blamed)} {phrases.verb(blamed, *verbs)}" if blamed else "no culprit"
    name = f"{finding.code} {finding.name}" if finding is not None else blockage.kind.NAME
    return Text.assemble((f"● {who}", words.CULPRIT_STYLE if blamed else "bold"), f": {name}")


def _describe_facts(picture: Picture, job: Job) -> str:
    """`a cycle for 48 s, cannot end by itself`: a line of its own, because both lines must fit into 80 columns."""
    age = picture.blockage.age_seconds
    since = f"for {duration(age)}" if age is not None else ""
    what = " ".join(part for part in ("a cycle" if picture.cycle else "", since) if part)
    ends = _ENDS[picture.blockage.ends]
    if picture.blockage.ends == "never" and job.ends_by_itself_in_seconds is not None:
        ends += " before torch's timeout"
    return ", ".join(part for part in (what, ends) if part)


def _find_finding(findings: Iterable[Finding], culprits: tuple[int, ...], victims: tuple[int, ...]) -> Finding | None:
    """The finding about these culprits, if possible with these victims."""
    candidates = [finding for finding in findings if set(finding.culprits) == set(culprits)]
    return next(
        (finding for finding in candidates if set(finding.victims) == set(victims)), next(iter(candidates), None)
    )


def _make_end_lines(picture: Picture, model: ViewModel) -> Iterator[Line]:
    last = len(picture.at) - 1
    for index, group in enumerate(picture.at):
        edge = ""
        if picture.cycle and last == 0:
            edge = "↺ "
        elif picture.cycle:
            edge = "╭▸ " if index == 0 else "╰─ " if index == last else "│  "
        yield _make_line(group, edge, _list_awaited(group, model.run) if picture.cycle else "", model)
    dead = [view for rank in picture.unseen if (view := model.view(rank)) is not None and view.label == "dead"]
    for view in dead:
        yield (Text(f"   {phrases.ranks([view.rank])}", "bold"), Text(), doing([view]), Text()), view.rank
    unseen = sorted(set(picture.unseen) - {view.rank for view in dead})
    if unseen:
        yield (Text(f"   {phrases.ranks(unseen)}: not observed", "magenta"),), unseen[0]


def _make_waiting_lines(waiting: Waiting, model: ViewModel, depth: int) -> Iterator[Line]:
    yield _make_line(waiting.group, f"{'   ' * depth}└ ", _list_awaited(waiting.group, model.run), model)
    for further in waiting.behind:
        yield from _make_waiting_lines(further, model, depth + 1)


def _list_awaited(group: Class, run: Run) -> str:
    """The ranks that a class waits for; of a whole group only those that are not in its call."""
    return numbers(run.waits.awaited_by(group)) if run.waits is not None else ""


def _make_line(group: Class, edge: str, awaited: str, model: ViewModel) -> Line:
    view = model.view(group.ranks[0])
    is_culprit = bool(set(group.ranks) & set(model.culprits))
    who = Text.assemble((edge, "yellow"), ("●" if is_culprit else "", words.CULPRIT_STYLE),
                        (phrases.ranks(group.ranks), words.CULPRIT_STYLE if is_culprit else "bold"))  # fmt: skip
    what = doing([view]) if view is not None else Text(words.clean(phrases.doing(group.first)))
    cells: tuple[Cell, ...] = (
        who, Text(awaited, "dim"), what,
        Fitted(lambda width: placed(view, width) if view is not None else Text("")),
    )  # fmt: skip
    return cells, group.ranks[0]
