"""Measures the HTML page of 8 and 1,024 ranks: its size, the time to make it, and the time in which Chromium opens it."""

import statistics
import tempfile
import time
from pathlib import Path

from hangdoc.reasoning.engine import examine
from hangdoc.reasoning.views.detail import details
from hangdoc.render.html import page
from tests.page import browser
from tests.page.pages import PATIENCE, timeline_of, waiting

SIZES = (8, 1024)


def pages(rounds: int = 9) -> None:
    """Measure both sizes, each with a timeline of 40 looks."""
    with tempfile.TemporaryDirectory() as folder, browser.chromium() as driver:
        for world in SIZES:
            evidence = waiting(world)
            timelines = timeline_of(evidence)
            diagnosis, runs = examine(evidence, patience=PATIENCE)
            made, opened = [], []
            path = Path(folder) / f"{world}.html"
            for _ in range(rounds):
                began = time.perf_counter()
                text = page(diagnosis, details(diagnosis, runs), timelines)
                made.append((time.perf_counter() - began) * 1e3)
                path.write_text(text)
                browser.show(driver, path)
                opened.append(browser.milliseconds_to_open(driver))
            print(
                f"page of {world:>5,} ranks: {path.stat().st_size / 1024:,.0f} KiB; made in {statistics.median(made):.0f} ms "
                f"({made[0]:.0f} ms the first time); opened in {statistics.median(opened):.0f} ms "
                f"({min(opened):.0f}-{max(opened):.0f}); aim 2,048 KiB and 1,000 ms"
            )
