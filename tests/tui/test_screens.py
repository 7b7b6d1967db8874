"""How the screens look, at three sizes: compared with pictures that a person has looked at (`--snapshot-update`)."""

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from hangdoc_tui.app import Polled
from hangdoc_tui.keys import VIEWS
from tests.tui.sample_runs import app, freezing

SIZES = [(80, 24), (120, 36), (200, 60)]
SITUATIONS = ["hung", "waiting", "healthy", "dead-rank", "no-permission", "no-rank", "1024-ranks"]


async def seen(pilot: Pilot[None]) -> None:
    """Until the first poll is on the screen."""
    app: Any = pilot.app
    for _ in range(400):
        await pilot.pause(0.02)
        if app.poll is not None:
            break
    for _ in range(3):
        await pilot.pause(0.05)


def keys(*pressed: str) -> Any:
    async def press(pilot: Pilot[None]) -> None:
        await seen(pilot)
        for key in pressed:
            await pilot.press(key)
            await pilot.pause()
        await pilot.pause(0.1)  # a busy machine paints late

    return press


def watched(polls: int, *pressed: str) -> Any:
    """Until so many polls of a run that freezes are on the screen, then some keys."""

    async def watch(pilot: Pilot[None]) -> None:
        await seen(pilot)
        top: Any = pilot.app
        for number in range(1, polls):
            top.post_message(Polled(top.source.poll(number)))
            await pilot.pause()
        top.clear_notifications()  # which are gone after some seconds, sooner or later than the picture is taken
        await keys(*pressed)(pilot)

    return watch


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("situation", ["hung", "1024-ranks"])
def test_a_freeze_is_seen_in_the_timeline(situation: str, size: tuple[int, int], snap_compare: Any) -> None:
    assert snap_compare(freezing(situation, freezes_at=50), terminal_size=size, run_before=watched(65))


@pytest.mark.parametrize(
    ("name", "situation", "freezes_at", "polls", "pressed"),
    [
        ("long-ago", "hung", 40, 300, ""),  # its beginning stays in sight
        ("moving", "hung", 100, 60, ""),  # with stacks that are older than the poll
        ("blocks", "1024-ranks", 100, 60, ""),
        ("zoomed", "1024-ranks", 100, 60, "down down z"),
        ("plot", "hung", 100, 60, "5"),
        ("old-stack", "hung", 100, 60, "2"),
        ("old-stacks", "hung", 100, 60, "3"),
    ],
)
def test_a_run_over_time(
    name: str, situation: str, freezes_at: int, polls: int, pressed: str, snap_compare: Any
) -> None:
    before = watched(polls, *pressed.split())
    assert snap_compare(freezing(situation, freezes_at=freezes_at), terminal_size=(120, 36), run_before=before)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("situation", SITUATIONS)
def test_ranks(situation: str, size: tuple[int, int], snap_compare: Any, tmp_path: Path) -> None:
    assert snap_compare(app(situation, tmp_path), terminal_size=size, run_before=seen)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("situation", ["recorded", "recorded-moving"])
def test_the_time_before_the_first_poll(
    situation: str, size: tuple[int, int], snap_compare: Any, tmp_path: Path
) -> None:
    assert snap_compare(app(situation, tmp_path), terminal_size=size, run_before=seen)


def test_the_last_call_of_a_rank_that_moves(snap_compare: Any, tmp_path: Path) -> None:
    assert snap_compare(app("recorded-moving", tmp_path), terminal_size=(100, 30), run_before=keys("2"))


def test_who_delays_a_run_that_moves(snap_compare: Any, tmp_path: Path) -> None:
    assert snap_compare(app("recorded-moving", tmp_path), terminal_size=(80, 24), run_before=keys("4"))


@pytest.mark.parametrize(("number", "view"), list(enumerate(VIEWS, 1))[1:])
def test_views_of_a_hang(number: int, view: str, snap_compare: Any, tmp_path: Path) -> None:
    assert snap_compare(app("hung", tmp_path), terminal_size=(100, 30), run_before=keys(str(number)))


@pytest.mark.parametrize(("width", "pressed"), [(100, ""), (140, "9"), (80, "9")])
def test_cards(width: int, pressed: str, snap_compare: Any, tmp_path: Path) -> None:
    assert snap_compare(app("cards", tmp_path), terminal_size=(width, 24), run_before=keys(*pressed.split()))


@pytest.mark.parametrize(
    ("name", "pressed"),
    [("finding", "i"), ("keys", "question_mark"), ("unseen", "u"), ("hosts", "g"), ("difference", "2 d d")],
)
def test_what_keys_open(name: str, pressed: str, snap_compare: Any, tmp_path: Path) -> None:
    situation = "1024-ranks" if name == "hosts" else "hung"
    assert snap_compare(app(situation, tmp_path), terminal_size=(100, 30), run_before=keys(*pressed.split()))


def test_without_colour(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(freezing("dead-rank", freezes_at=30), terminal_size=(80, 24), run_before=watched(45))


@pytest.mark.parametrize("theme", ["ansi-dark", "textual-light"])
def test_other_colours(theme: str, snap_compare: Any) -> None:
    top = freezing("hung", freezes_at=30)
    top.theme = theme
    assert snap_compare(top, terminal_size=(80, 24), run_before=watched(45))


def test_a_terminal_that_is_too_small(snap_compare: Any, tmp_path: Path) -> None:
    assert snap_compare(app("hung", tmp_path), terminal_size=(50, 12), run_before=seen)
