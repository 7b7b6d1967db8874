"""The page without a browser: nothing from a process is markup, nothing comes from outside, and it stays small."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from docs.reports import FOLDER
from hangdoc import codec
from hangdoc.cli.pages import Pages
from hangdoc.detail import WaitGraph, WaitNode
from hangdoc.phrases import numbers
from hangdoc.reasoning.engine import diagnose, examine
from hangdoc.reasoning.views.detail import details
from hangdoc.reasoning.views.past import timelines
from hangdoc.render import html, html_graph, html_ranks, html_timeline
from hangdoc.snapshot import Snapshot, Unavailable
from hangdoc.timeline import Row, Timeline
from tests.page.pages import CORPUS, EVIL, PATIENCE, evil, page_of, recorded, timeline_of, waiting
from tests.unit.builders import c10d, frame, local, rank, snapshot
from tests.unit.test_past import stands

MOST_BYTES = 2 * 1024 * 1024
_VOID = {"meta", "input", "br", "hr", "img", "link"}
_TEMPLATES = sorted((Path(html.__file__).parent / "templates").glob("*.html"))


class Elements(HTMLParser):
    """Every element with its attributes, all text, and the texts of scripts and styles; fails on unbalanced tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.own: dict[str, list[str]] = {"script": [], "style": []}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, (tag, self._open)
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in self.own:
            self.own[self._open[-1]].append(data)
        else:
            self.texts.append(data)


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@pytest.mark.parametrize("bundle", sorted(CORPUS.glob("*.hangdoc")), ids=lambda path: path.stem)
def test_every_recorded_run_makes_a_page(bundle: Path) -> None:
    evidence = recorded(bundle.stem)
    diagnosis = diagnose(evidence, patience=PATIENCE)
    text = page_of(evidence)
    said = " ".join(" ".join(Elements(text).texts).split())
    for job in diagnosis.jobs:
        for finding in job.findings[:1]:
            assert finding.name in said
            assert " ".join(finding.remedy.replace("`", "").split())[1:40] in said
        assert all(f"rank {rank}" in said or numbers([rank]) in said for rank in range(min(2, len(job.ranks))))
    assert len(text.encode()) < MOST_BYTES


def test_nothing_from_a_process_is_markup() -> None:
    evidence = evil()
    page = Elements(page_of(evidence, timeline_of(evidence)))
    assert not [tag for tag, _ in page.found if tag in ("img", "iframe", "object", "a", "form", "base")]
    assert not [(tag, name) for tag, attributes in page.found for name in attributes if name.startswith("on")]
    assert len(page.own["script"]) == len(page.own["style"]) == 1
    said = "".join(page.texts)
    assert said.count(EVIL) > 5
    assert "</script><script>alert(2)" in said
    assert not [c for c in said if not c.isprintable() and c != "\n"]


def test_stacks_that_were_not_read_because_the_ranks_move_were_not_refused() -> None:
    refused = Unavailable(reason="refused")
    diagnosis, runs = examine(snapshot(*(rank(n, stack=refused, stack_before=refused, world=3) for n in range(3))))
    moves, stands = {"label": "computing", "progress": "made 3 calls"}, {"label": "blocked", "progress": None}
    views = [replace(view, **(stands if view.rank == 2 else moves)) for view in diagnosis.jobs[0].ranks]
    diagnosis = replace(diagnosis, jobs=(replace(diagnosis.jobs[0], ranks=tuple(views)),))
    said = " ".join("".join(Elements(html.page(diagnosis, details(diagnosis, runs))).texts).split())
    assert "Not read, since the ranks move: ranks 0-1. hangdoc diagnose --stacks reads them." in said
    assert "No stack of rank 2 could be read." in said


def test_the_policy_names_the_only_script_and_the_only_style() -> None:
    page = Elements(page_of(waiting(8)))
    (policy,) = [a["content"] or "" for tag, a in page.found if a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules == {
        "default-src": "'none'", "base-uri": "'none'", "form-action": "'none'",
        "script-src": f"'{digest(page.own['script'][0])}'", "style-src": f"'{digest(page.own['style'][0])}'",
    }  # fmt: skip


def test_nothing_comes_from_outside() -> None:
    page = Elements(page_of(waiting(8), timeline_of(waiting(8))))
    for tag, attributes in page.found:
        assert tag not in ("link", "img", "iframe")
        assert not attributes.keys() & {"src", "style", "action", "srcset"}, (tag, attributes)
        for value in (attributes.get("href"), attributes.get("marker-end")):
            assert value is None or value.startswith(("#", "url(#"))
    assert "url(" not in page.own["style"][0]
    assert "@import" not in page.own["style"][0]
    assert not re.search(r"\b(fetch|XMLHttpRequest|import|innerHTML|eval)\b", page.own["script"][0])


@pytest.mark.parametrize("template", _TEMPLATES, ids=lambda path: path.name)
def test_no_template_trusts_a_value(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"\|\s*safe|autoescape|style=|\son\w+=|Markup", text)
    assert not re.search(r"""=\s*[^"'\s>]*\{\{""", text), "an attribute without quotes"


@pytest.mark.parametrize("world", [8, 1024])
def test_it_stays_small(world: int) -> None:
    evidence = waiting(world)
    assert len(page_of(evidence, timeline_of(evidence)).encode()) < MOST_BYTES


def test_a_huge_run_has_a_row_for_each_class() -> None:
    world = html_ranks.MOST_ROWS + 2
    stopped = rank(world - 1, frame("work", 3), world=world, state="T")
    evidence = snapshot(*(rank(n, *c10d("all_reduce"), world=world) for n in range(world - 1)), stopped, silence=None)
    text = page_of(evidence)
    assert text.count("<tr class=") == 2
    assert f"0-{world - 2}" in text
    assert len(text.encode()) < MOST_BYTES


def test_ranks_that_all_stand_elsewhere_do_not_fill_the_page() -> None:
    processes = [
        rank(n, *c10d("all_reduce"), *(frame(f"deep_{n}_{at}", at, source="x = 1") for at in range(60)), world=1024)
        for n in range(1024)
    ]
    text = page_of(snapshot(*processes, silence=None))
    assert len(text.encode()) < MOST_BYTES
    assert "more branches are left out" in text


def nodes(count: int, *culprits: int) -> tuple[WaitNode, ...]:
    return tuple(WaitNode((n,), "blocked", "waits", culprit=n in culprits) for n in range(count))


def test_chains_of_waiting_end_below() -> None:
    drawn = html_graph.drawing(WaitGraph(nodes(4, 1), ((0, 1), (2, 0), (3, 0))))
    below = {box.node.ranks[0]: box.y for box in drawn.boxes}
    assert below[1] > below[0] > below[2] == below[3]
    assert len(drawn.arrows) == 3
    assert all(box.x >= 0 and box.x + html_graph.WIDTH <= drawn.width for box in drawn.boxes)
    assert all(box.y >= 0 and box.y + html_graph.HEIGHT <= drawn.height for box in drawn.boxes)


def test_in_a_run_on_many_hosts_the_culprits_host_is_named() -> None:
    diagnosis, runs = examine(codec.read(FOLDER / "large.hangdoc"))
    assert "<strong>rank 37</strong> on node4<" in html.page(diagnosis, details(diagnosis, runs))


def test_a_cycle_is_drawn_once_with_its_culprit_at_the_end() -> None:
    drawn = html_graph.drawing(WaitGraph(nodes(3, 1), ((0, 1), (1, 2), (2, 0))))
    below = {box.node.ranks[0]: box.y for box in drawn.boxes}
    assert below[1] > below[0] > below[2]
    assert (len(drawn.arrows), drawn.left_out) == (3, 0)


def ends(path: str) -> list[tuple[float, float]]:
    """Where an arrow is drawn, as its corners; a V or H keeps the other coordinate."""
    at, found = (0.0, 0.0), []
    for kind, numbers_ in re.findall(r"([MCHV])([^MCHV]*)", path):
        values = [float(number) for number in numbers_.split()]
        if kind in "MC":
            for x, y in zip(values[::2], values[1::2], strict=True):
                at = (x, y)
                found.append(at)
        else:
            at = (values[0], at[1]) if kind == "H" else (at[0], values[0])
            found.append(at)
    return found


@pytest.mark.parametrize(
    "edges",
    [
        ((0, 5), (1, 5), (2, 5), (3, 5), (4, 5)),  # a layer of several rows
        ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)),  # a long cycle
        ((0, 1), (1, 0), (2, 0), (3, 2), (4, 4), (5, 3)),
    ],
)
def test_arrows_stay_inside_and_cross_no_node(edges: tuple[tuple[int, int], ...]) -> None:
    drawn = html_graph.drawing(WaitGraph(nodes(6, 5), edges))
    assert len(drawn.arrows) == len(edges)
    for arrow in drawn.arrows:
        corners = ends(arrow)
        assert all(0 <= x <= drawn.width and 0 <= y <= drawn.height for x, y in corners)
        for (x, y), (to_x, to_y) in pairwise(corners):
            for part in range(1, 20):
                at_x, at_y = x + (to_x - x) * part / 20, y + (to_y - y) * part / 20
                assert not [
                    box
                    for box in drawn.boxes
                    if box.x < at_x < box.x + html_graph.WIDTH and box.y < at_y < box.y + html_graph.HEIGHT
                ], arrow


def test_ranks_of_one_node_that_wait_for_each_other_are_drawn() -> None:
    diagnosis, runs = examine(ring(64), patience=PATIENCE)
    (one,) = details(diagnosis, runs)
    assert one.graph.edges == ((0, 0),)
    assert "<h2>Who waits for whom</h2>" in page_of(ring(64))


def test_a_tangle_is_thinned_out() -> None:
    everyone = tuple((a, b) for a in range(9) for b in range(9) if a != b)
    drawn = html_graph.drawing(WaitGraph(nodes(9, 4), everyone))
    assert len(drawn.arrows) == 8
    assert drawn.left_out == len(everyone) - 8


def ring(world: int) -> Snapshot:
    """Each rank receives from the one before it."""
    return snapshot(
        *(
            rank(n, *c10d("recv", local("src", (n - 1) % world)), frame("step", 8), world=world)
            for n in range(world)
        )
    )  # fmt: skip


@pytest.mark.parametrize(("world", "most"), [(3, 3), (12, 12), (64, 20)])
def test_a_drawing_has_few_nodes_and_every_rank(world: int, most: int) -> None:
    diagnosis, runs = examine(ring(world), patience=PATIENCE)
    (one,) = details(diagnosis, runs)
    assert 0 < len(one.graph.nodes) <= most
    assert sorted(rank for node in one.graph.nodes for rank in node.ranks) == list(range(world))


def test_details_of_the_shard_mismatch() -> None:
    diagnosis, runs = examine(recorded("trainer_shard_mismatch"), patience=PATIENCE)
    (one,) = details(diagnosis, runs)
    assert [(node.ranks, node.culprit) for node in one.graph.nodes] == [((0,), False), ((1,), True)]
    assert one.graph.edges == ((0, 1), (1, 0))
    assert [(b.ranks, b.done, b.total, b.ended, b.culprit) for b in one.batches] == [
        ((1,), 3, 3, True, True),
        ((0,), 3, 232, False, False),
    ]
    assert any(setting.name == "NANOCHAT_DATA_DIR" for setting in one.settings)


def test_batches_of_a_rank_that_left_its_loop_did_not_end() -> None:
    assert ">left at 11 of 1,000<" in page_of(recorded("early_stop"))
    assert ">ended at 3 of 3<" in page_of(recorded("trainer_shard_mismatch"))


def test_only_known_variables_are_said_to_be_equal() -> None:
    """The values of others are not kept, so nothing is known of them."""
    ranks = [
        rank(n, *c10d("barrier"), frame("main", 5), environment={"MICRO": "<str>", "RANK": str(n)}) for n in (0, 1)
    ]
    assert "Of the arguments and variables that hangdoc knows, none differs" in page_of(snapshot(*ranks))


def test_a_strip_shows_what_each_row_did_and_when_it_froze() -> None:
    cells = ("computing", "computing", "moving", "waiting", "waiting")
    shares = (1.0, 0.5, 1.0, 0.0, 0.0)
    line = Timeline(seconds=(-4.0, -3.0, -2.0, -1.0, 0.0), rows=(Row(ranks=(0, 1), cells=cells, progress=shares),))
    drawn = html_timeline.strip(line, frozenset({0, 1}), 1.5)
    (band,) = drawn.bands
    assert dict(band.paths) == {"computing": "M0 5H400", "moving": "M400 5H600", "waiting": "M600 5H1000"}
    assert (band.mixed, band.culprit) == ("M200 5H400", True)
    assert (drawn.silent, drawn.seconds) == (700.0, 5.0)
    assert html_timeline.strip(line, frozenset(), 90.0).silent is None


def test_a_strip_is_drawn_over_time() -> None:
    row = Row(ranks=(0,), cells=("computing", "waiting", "computing"), progress=(1.0, 0.0, 1.0))
    (band,) = html_timeline.strip(Timeline(seconds=(-10.0, -8.0, 0.0), rows=(row,)), frozenset(), None).bands
    assert dict(band.paths) == {"computing": "M0 5H444M556 5H1000", "waiting": "M444 5H556"}
    one = Timeline(seconds=(0.0,), rows=(Row(ranks=(0,), cells=("dead",), progress=(0.0,)),))
    assert html_timeline.strip(one, frozenset(), None).bands[0].paths == (("dead", "M0 5H1000"),)


def test_who_watches_has_a_timeline_on_the_page() -> None:
    pages = Pages(PATIENCE)
    evidence = waiting(8)
    diagnosis = diagnose(evidence, patience=PATIENCE)
    pages.add(evidence, msgspec.structs.replace(diagnosis, jobs=()))
    pages.add(evidence, diagnosis)
    assert "1 look, which shows" in pages.page(evidence, diagnosis)
    for _ in range(2):
        pages.add(evidence, diagnosis)
    text = pages.page(evidence, diagnosis)
    assert "3 looks; each shows" in text
    for section in ("Timeline", "Who waits for whom", "Stacks"):
        assert f"<h2>{section}</h2>" in text


def test_it_says_how_old_a_stack_is() -> None:
    diagnosis = diagnose(waiting(8), patience=PATIENCE)
    (job,) = diagnosis.jobs

    def with_age(seconds: float | None) -> str:
        ranks = tuple(msgspec.structs.replace(view, stack_seconds_ago=seconds) for view in job.ranks)
        return html.page(msgspec.structs.replace(diagnosis, jobs=(msgspec.structs.replace(job, ranks=ranks),)))

    assert with_age(6.0).count("6.0 s ago") == 8
    assert " ago" not in with_age(0.0) + with_age(None)


def test_only_jobs_that_are_known_need_details() -> None:
    diagnosis = diagnose(recorded("hung_beside_healthy"), patience=PATIENCE)
    text = html.page(diagnosis)
    assert text.count("<article") == len(diagnosis.jobs) == 2
    nobody = msgspec.structs.replace(diagnosis, jobs=(), verdict="unknown", problems=("no rank here",))
    assert "No rank here." in html.page(nobody)


def test_before_the_first_look_each_cell_is_divided() -> None:
    """The look is the last quarter; the time before it comes from the record of calls."""
    row = Row(ranks=(0,), cells=("computing", "waiting", "unseen", "waiting"), progress=(1.0, 0.25, 0.0, 0.0))
    line = Timeline(seconds=(-3.0, -2.0, -1.0, 0.0), rows=(row,), recorded=3)
    drawn = html_timeline.strip(line, frozenset(), None)
    (band,) = drawn.bands
    assert dict(band.paths) == {"computing": "M0 5H250M250 5H312", "waiting": "M750 5H1000M312 5H500"}
    assert (band.mixed, drawn.attached, drawn.polls, drawn.recorded, drawn.to_scale) == ("", 750, 1, 3, True)


def test_a_strip_of_a_run_that_stood_still_for_hours_has_equal_cells() -> None:
    row = Row(ranks=(0,), cells=("computing", "waiting", "waiting", "waiting"), progress=(0.5, 0.0, 0.0, 0.0))
    line = Timeline(seconds=(-7200.1, -7200.0, -3600.0, 0.0), rows=(row,), recorded=3)
    drawn = html_timeline.strip(line, frozenset(), 7200.0)
    assert (drawn.to_scale, drawn.attached, drawn.silent) == (False, 750, 500.0)
    assert dict(drawn.bands[0].paths)["computing"] == "M0 5H125"


def test_one_look_has_the_time_before_on_its_page() -> None:
    evidence = stands()
    diagnosis, runs = examine(evidence, patience=PATIENCE)
    text = html.page(diagnosis, details(diagnosis, runs), timelines(diagnosis, runs))
    assert "1 look, which shows" in text
    assert "from torch&#39;s record of calls" in text or "from torch's record of calls" in text
    assert "Rank 2 was the last in 100% of the last 99 calls" in text


CARD = CORPUS / "card" / "sizes_differ.hangdoc"


def test_the_line_of_a_freeze_says_what_it_marks() -> None:
    """NCCL exchanges no data that hangdoc sees, so the line is the call in which the ranks wait, by torch's record."""
    on_card = codec.read(CARD)
    diagnosis, runs = examine(on_card, patience=PATIENCE)
    drawn = page_of(on_card, timelines(diagnosis, runs))
    assert "The red line marks the call in which the ranks wait, 6.0 s before the last look." in drawn
    on_sockets = recorded("trainer_shard_mismatch")
    drawn = page_of(on_sockets, timeline_of(on_sockets))
    assert "The red line marks the last byte between the ranks that wait, " in drawn


def test_the_stacks_are_those_of_the_threads() -> None:
    """Both ranks have moved on from the call in which their cards wait. Table and findings name that call."""
    (section,) = re.findall(r"<h2>Stacks</h2>.*?</section>", page_of(codec.read(CARD)), re.DOTALL)
    assert re.findall(r"cases/sizes_differ\.py:(\d+)", section) == ["32", "29", "25"]
