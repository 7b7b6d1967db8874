"""Pictures of `hangdoc top` and of the page for the README, docs/top.md and docs/page.md, out of recorded runs:
`python -m docs.pictures`. Those of the page need Debian's chromium and chromium-driver."""

import asyncio
from pathlib import Path

from textual.pilot import Pilot

from hangdoc_tui.app import Top
from hangdoc_tui.source import Recorded
from tests.page import browser

_HERE = Path(__file__).parent
_CORPUS = _HERE.parent / "tests" / "corpus"
_PICTURES = {
    "ranks": ("trainer_shard_mismatch", ()),
    "finding": ("trainer_shard_mismatch", ("i",)),
    "tree": ("barrier_in_except", ("3",)),
    "waits": ("pipeline_stuck_stage", ("4",)),
}
_SIZE = (110, 26)


async def _seen(pilot: Pilot[None], top: Top) -> None:
    while top.scene is None:
        await pilot.pause(0.05)
    await pilot.pause()


async def _draw(name: str, bundle: str, keys: tuple[str, ...]) -> None:
    top = Top(Recorded([_CORPUS / f"{bundle}.hangdoc"], patience=2.0))
    async with top.run_test(size=_SIZE) as pilot:
        await _seen(pilot, top)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.2)
        folder = _HERE / "pictures"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.svg").write_text(top.export_screenshot(title="hangdoc top"))


def _draw_page() -> None:
    """The example page in both colour schemes, down to its table."""
    with browser.chromium() as driver:
        for scheme in ("light", "dark"):
            browser.show(driver, _HERE / "example.html", dark=scheme == "dark", width=1100)
            browser.picture(driver, _HERE / "pictures" / f"page-{scheme}.png", most=1740)
            print(f"docs/pictures/page-{scheme}.png")


def main() -> None:
    """All of them."""
    for name, (bundle, keys) in _PICTURES.items():
        asyncio.run(_draw(name, bundle, keys))
        print(f"docs/pictures/{name}.svg")
    _draw_page()


if __name__ == "__main__":
    main()
