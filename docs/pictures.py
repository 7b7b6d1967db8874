"""Takes the pictures of `hangdoc top` and of the page for the README, docs/top.md and docs/page.md: `python -m docs.pictures`. It
takes about a minute.

The pictures with two ranks show a real run, from its start until some seconds after its freeze. The picture with 1,024 ranks
shows built polls (tests/tui/sample_runs.py). The pictures of the page need Debian's chromium and chromium-driver.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from threading import Thread

from textual.pilot import Pilot

from hangdoc.observe.look.observe import Options
from hangdoc.observe.look.polling import Polling
from hangdoc_trainer.scenarios import SCENARIOS, Node, Scenario, Started
from hangdoc_tui.app import Top
from hangdoc_tui.source import Live, Recorded
from tests.page import browser
from tests.tui.sample_runs import freezing
from tests.tui.test_screens import watched

_HERE = Path(__file__).parent
_CORPUS = _HERE.parent / "tests" / "corpus"
_SIZE = (110, 26)
_AFTER = 15
"""Seconds from the freeze to the picture."""


def _draw(top: Top, name: str) -> None:
    folder = _HERE / "pictures"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.svg").write_text(top.export_screenshot(title="hangdoc top"))
    print(f"docs/pictures/{name}.svg")


async def _press(pilot: Pilot[None], keys: Iterable[str]) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause(0.2)


async def _run_that_freezes() -> None:
    """A run in which one rank has a third of the other rank's data."""
    shown = SCENARIOS["shard-mismatch"]
    scenario = Scenario("picture", "one rank runs out of data", (Node(shards=120), Node(shards=40)), shown.arguments)
    started = Started(scenario)
    run = Thread(target=started.__enter__)
    run.start()
    try:
        while len(started.pids) < len(scenario.nodes):
            await asyncio.sleep(0.1)
        options = Options(window=0.5, native="never", pids=started.pids)
        top = Top(Live(Polling(options), "this host", patience=30.0), rate=1.0)
        async with top.run_test(size=_SIZE) as pilot:
            while top.model is None or top.model.job.verdict != "hung":
                await pilot.pause(0.2)
            await pilot.pause(_AFTER)
            for name, keys in (("ranks", "1"), ("waits", "4"), ("batches", "5"), ("finding", "i")):
                await _press(pilot, keys)
                _draw(top, name)
    finally:
        run.join()
        started.stop()


async def _many_ranks() -> None:
    top = freezing("1024-ranks", freezes_at=50)
    async with top.run_test(size=(110, 36)) as pilot:
        await watched(62)(pilot)
        await pilot.pause(6.0)  # until the notice has disappeared
        _draw(top, "ranks-1024")


async def _recorded(name: str, bundle: str, keys: str) -> None:
    top = Top(Recorded([_CORPUS / f"{bundle}.hangdoc"], patience=2.0))
    async with top.run_test(size=_SIZE) as pilot:
        while top.model is None:
            await pilot.pause(0.05)
        await _press(pilot, keys)
        _draw(top, name)


def _draw_page() -> None:
    """The example page in both colour schemes, down to its table."""
    with browser.chromium() as driver:
        for scheme in ("light", "dark"):
            browser.show(driver, _HERE / "example.html", dark=scheme == "dark", width=1100)
            browser.picture(driver, _HERE / "pictures" / f"page-{scheme}.png", most=1740)
            print(f"docs/pictures/page-{scheme}.png")


def main() -> None:
    """Take all pictures."""
    asyncio.run(_run_that_freezes())
    asyncio.run(_many_ranks())
    asyncio.run(_recorded("tree", "barrier_in_except", "3"))
    _draw_page()


if __name__ == "__main__":
    main()
