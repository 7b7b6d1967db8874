"""Debian's Chromium without a window, driven by Selenium. No browser is downloaded: both programs are the system's."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

PROGRAMS = ("chromium", "chromedriver")


@contextmanager
def chromium(scale: float = 1.0) -> Iterator[Chrome]:
    """A browser that logs what its pages complain about."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", f"--force-device-scale-factor={scale:g}",
                     *(["--no-sandbox"] if os.geteuid() == 0 else [])):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver") or "chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


def show(driver: Chrome, page: Path, *, dark: bool = False, width: int = 1100, height: int = 900) -> None:
    """Open a page, in a window of this size."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    metrics = {"width": width, "height": height, "deviceScaleFactor": 0, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.get(page.as_uri())


def complaints(driver: Chrome) -> list[dict[str, Any]]:
    """What the browser has logged since it was last asked."""
    return driver.get_log("browser")  # type: ignore[no-any-return]


def milliseconds_to_open(driver: Chrome) -> float:
    """From the start of the navigation to the first picture of the open page, or its load event where that is later."""
    driver.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")
    return float(
        driver.execute_script("""
        const painted = performance.getEntriesByName("first-contentful-paint").map((entry) => entry.startTime);
        return Math.max(performance.getEntriesByType("navigation")[0].loadEventEnd, ...painted);""")
    )


def picture(driver: Chrome, path: Path, most: int = 6000) -> None:
    """The whole page as a PNG, at most so many pixels high."""
    size = driver.execute_script("return [innerWidth, Math.ceil(document.documentElement.scrollHeight)]")
    shot = driver.execute_cdp_cmd(
        "Page.captureScreenshot",
        {
            "captureBeyondViewport": True,
            "clip": {"x": 0, "y": 0, "width": size[0], "height": min(most, size[1]), "scale": 1},
        },
    )
    _write(path, shot["data"])


def printed(driver: Chrome, path: Path) -> None:
    """The page as it comes out of a printer, as a PDF."""
    _write(path, driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"])


def _write(path: Path, data: str) -> None:
    import base64

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(data))
