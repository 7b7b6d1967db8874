"""How the screens look, at three sizes: compared with pictures that a person has looked at (`--snapshot-update`)."""

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.scenes import app

SIZES = [(80, 24), (120, 40), (200, 60)]
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

    return press


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("situation", SITUATIONS)
def test_ranks(situation: str, size: tuple[int, int], snap_compare: Any, tmp_path: Path) -> None:
    # From the top: in the middle of a long table Textual draws its scrollbar an eighth higher or lower.
    before = keys("home") if situation == "1024-ranks" else seen
    assert snap_compare(app(situation, tmp_path), terminal_size=size, run_before=before)


@pytest.mark.parametrize("view", ["stack", "merged", "waits", "batches", "sockets", "settings", "events"])
def test_views_of_a_hang(view: str, snap_compare: Any, tmp_path: Path) -> None:
    number = str(2 + ["stack", "merged", "waits", "batches", "sockets", "settings", "events"].index(view))
    assert snap_compare(app("hung", tmp_path), terminal_size=(100, 30), run_before=keys(number))


@pytest.mark.parametrize(
    ("name", "pressed"),
    [("finding", "i"), ("keys", "question_mark"), ("unseen", "u"), ("classes", "g"), ("difference", "2 d d")],
)
def test_what_keys_open(name: str, pressed: str, snap_compare: Any, tmp_path: Path) -> None:
    situation = "1024-ranks" if name == "classes" else "hung"
    assert snap_compare(app(situation, tmp_path), terminal_size=(100, 30), run_before=keys(*pressed.split()))


def test_without_colour(snap_compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert snap_compare(app("dead-rank", tmp_path), terminal_size=(80, 24), run_before=seen)


def test_a_terminal_that_is_too_small(snap_compare: Any, tmp_path: Path) -> None:
    assert snap_compare(app("hung", tmp_path), terminal_size=(50, 12), run_before=seen)
