"""What holds up the run: each blockage once, its culprit first, then those that wait. A cycle is drawn as one."""

from collections.abc import Iterable, Iterator

from rich.text import Text

from hangdoc.diagnose import words as phrases
from hangdoc.diagnose.model import Class, Run
from hangdoc.diagnosis import Finding
from hangdoc.phrases import duration, numbers
from hangdoc.render import words
from hangdoc_tui.grid import Cell, Column, Fitted, Grid
from hangdoc_tui.places import placed
from hangdoc_tui.ranks import doing
from hangdoc_tui.scene import RankChosen, Scene
from hangdoc_tui.wait_chains import Picture, Waiting, pictures

_ENDS = {"never": "Cannot end by itself", "by-itself": "Can end by itself", "unknown": ""}
_COLUMNS = (
    Column("who", most=34),
    Column("waits for", most=14),
    Column("doing", most=30),
    Column("where", least=14, flexible=True),
)
Line = tuple[tuple[Cell, ...], int | None]
"""The cells, and the rank that they are about."""


class WaitTable(Grid):
    """A line for each class of ranks that waits, or is waited for."""

    def __init__(self) -> None:
        super().__init__("waits", _COLUMNS)
        self._ranks: list[int | None] = []

    def show(self, scene: Scene) -> None:
        """Paint it."""
        lines = list(_lines(scene))
        self._ranks = [rank for _, rank in lines]
        self.fill(len(lines), lambda index: lines[index][0])

    def on_grid_opened(self, event: Grid.Opened) -> None:
        """The stack of that rank."""
        rank = self._ranks[event.index]
        if rank is not None:
            self.post_message(RankChosen(rank, True))


def _lines(scene: Scene) -> Iterator[Line]:
    drawn = pictures(scene.run)
    if not drawn:
        yield (Text("No rank waits for another.", "green"),), None
    for number, picture in enumerate(drawn):
        if number:
            yield (Text(""),), None
        yield (_title(picture, scene),), next(iter(picture.blockage.blamed), None)
        yield from _ends(picture, scene)
        for waiting in picture.behind:
            yield from _behind(waiting, scene, depth=1)


def _title(picture: Picture, scene: Scene) -> Text:
    """Who is to blame for what."""
    blockage = picture.blockage
    blamed = blockage.blamed
    finding = _finding(scene.job.findings, blamed, blockage.victims)
    who = (
        f"{phrases.ranks(blamed)} {phrases.verb(blamed, 'is the culprit', 'are the culprits')}"
        if blamed
        else "no culprit"
    )
    name = f"{finding.code} {finding.name}" if finding is not None else blockage.kind.NAME
    since = f" for {duration(blockage.age_seconds)}" if blockage.age_seconds is not None else ""
    shape = ", a cycle" if picture.cycle else ""
    ends = f". {_ENDS[blockage.ends]}" if _ENDS[blockage.ends] else ""
    return Text.assemble((f"● {who}", "bold red" if blamed else "bold"), f": {name}{shape}{since}", (ends, "dim"))


def _finding(findings: Iterable[Finding], culprits: tuple[int, ...], victims: tuple[int, ...]) -> Finding | None:
    """The finding about these ranks."""
    known = [one for one in findings if set(one.culprits) == set(culprits)]
    return next((one for one in known if set(one.victims) == set(victims)), next(iter(known), None))


def _ends(picture: Picture, scene: Scene) -> Iterator[Line]:
    last = len(picture.at) - 1
    for index, one in enumerate(picture.at):
        edge = ""
        if picture.cycle and last == 0:
            edge = "↺ "
        elif picture.cycle:
            edge = "╭▸ " if index == 0 else "╰─ " if index == last else "│  "
        following = picture.at[(index + 1) % len(picture.at)] if picture.cycle else None
        yield _line(one, edge, numbers(following.ranks) if following is not None else "", scene)
    if picture.unseen:
        yield (Text(f"   {phrases.ranks(picture.unseen)}: not seen", "magenta"),), picture.unseen[0]


def _behind(waiting: Waiting, scene: Scene, depth: int) -> Iterator[Line]:
    yield _line(waiting.one, f"{'   ' * depth}└ ", _awaited(waiting.one, scene.run), scene)
    for further in waiting.behind:
        yield from _behind(further, scene, depth + 1)


def _awaited(one: Class, run: Run) -> str:
    """The ranks that a class waits for; of a whole group only those that are not in its call."""
    return numbers(run.waits.of(one)) if run.waits is not None else ""


def _line(one: Class, edge: str, awaited: str, scene: Scene) -> Line:
    view = scene.view(one.ranks[0])
    guilty = bool(set(one.ranks) & set(scene.culprits))
    who = Text.assemble((edge, "yellow"), ("●" if guilty else "", "bold red"),
                        (phrases.ranks(one.ranks), "bold red" if guilty else "bold"))  # fmt: skip
    what = doing([view]) if view is not None else Text(words.clean(phrases.doing(one.first)))
    cells: tuple[Cell, ...] = (
        who, Text(awaited, "dim"), what,
        Fitted(lambda width: placed(view, width) if view is not None else Text("")),
    )  # fmt: skip
    return cells, one.ranks[0]
