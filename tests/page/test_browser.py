"""The page in a real browser: it opens fast and without complaint, and its controls work."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.live.needs import needs
from tests.page import browser
from tests.page.pages import EVIL, evil, page_of, recorded, timeline_of, waiting, write

pytestmark = pytest.mark.xdist_group("browser")
_MOST_MILLISECONDS = 1000


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    needs(*browser.PROGRAMS)
    with browser.chromium() as one:
        yield one


def shown(driver: Chrome) -> list[str]:
    """The first cells of the visible rows."""
    rows = driver.find_elements(By.CSS_SELECTOR, ".ranks tbody tr")
    return [row.find_element(By.TAG_NAME, "td").text.split("\n")[0].split(" ")[0] for row in rows if row.is_displayed()]


def open_page(driver: Chrome, folder: Path, text: str, **more: object) -> None:
    browser.complaints(driver)
    browser.show(driver, write(folder, "page", text), **more)  # type: ignore[arg-type]


def click(driver: Chrome, selector: str) -> None:
    element = driver.find_element(By.CSS_SELECTOR, selector)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def test_sorting(driver: Chrome, tmp_path: Path) -> None:
    open_page(driver, tmp_path, page_of(waiting(8)))
    assert shown(driver) == ["7", "0", "1", "2", "3", "4", "5", "6"]  # the culprit first
    click(driver, ".ranks th:nth-child(1) button")
    assert shown(driver) == ["0", "1", "2", "3", "4", "5", "6", "7"]
    click(driver, ".ranks th:nth-child(1) button")
    assert shown(driver) == ["7", "6", "5", "4", "3", "2", "1", "0"]
    assert driver.find_element(By.CSS_SELECTOR, ".ranks th").get_attribute("aria-sort") == "descending"
    click(driver, ".ranks th:nth-child(3) button")  # operation: the only one without comes first
    assert shown(driver)[0] == "7"
    assert not browser.complaints(driver)


def test_filtering(driver: Chrome, tmp_path: Path) -> None:
    open_page(driver, tmp_path, page_of(waiting(1024)))
    entry = driver.find_element(By.CSS_SELECTOR, ".ranks input")

    def after(text: str) -> list[str]:
        entry.clear()
        entry.send_keys(text)
        return driver.execute_script(
            "return [...document.querySelectorAll('.ranks tbody tr:not([hidden])')].map((row) => row.cells[0].dataset.v)"
        )  # type: ignore[no-any-return]

    assert after("517") == ["517"]
    assert after("8-10") == ["8", "9", "10"]
    assert after("20042") == ["42"]  # a pid
    assert after("node003 blocked") == [str(n) for n in range(24, 32)]
    assert driver.find_element(By.CSS_SELECTOR, ".ranks .shown").text == "8 of 1,024 rows"
    assert after("nonsense") == []
    entry.clear()
    entry.send_keys(" ")
    click(driver, ".ranks [data-show=culprit]")
    assert shown(driver) == ["517"]
    click(driver, ".ranks [data-show='']")
    assert driver.find_element(By.CSS_SELECTOR, ".ranks .shown").text == ""
    assert not browser.complaints(driver)


def test_folding(driver: Chrome, tmp_path: Path) -> None:
    open_page(driver, tmp_path, page_of(recorded("trainer_shard_mismatch")))

    def visible() -> int:
        return sum(one.is_displayed() for one in driver.find_elements(By.CSS_SELECTOR, ".stacks .frame"))

    at_first = visible()
    assert at_first
    click(driver, ".stacks [data-fold='']")
    assert visible() == 0
    click(driver, ".stacks .fork > summary")
    assert 0 < visible() < at_first
    click(driver, ".stacks [data-fold=open]")
    assert visible() > at_first  # frames of libraries, too
    assert not browser.complaints(driver)


def test_a_command_is_copied(driver: Chrome, tmp_path: Path) -> None:
    open_page(driver, tmp_path, page_of(recorded("trainer_shard_mismatch")))
    driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    command = driver.find_element(By.CSS_SELECTOR, ".command code").text
    click(driver, ".command .copy")
    copied = driver.execute_async_script("const done = arguments[0]; navigator.clipboard.readText().then(done, done)")
    assert command and copied == command
    assert driver.find_element(By.CSS_SELECTOR, ".command .copy").text == "Copied"
    assert not browser.complaints(driver)


def test_names_that_are_markup_stay_text(driver: Chrome, tmp_path: Path) -> None:
    evidence = evil()
    open_page(driver, tmp_path, page_of(evidence, timeline_of(evidence)))
    assert driver.execute_script("return document.images.length + document.scripts.length") == 1
    assert driver.execute_script("return document.body.innerText").count(EVIL) > 5
    assert EVIL in driver.find_element(By.CSS_SELECTOR, ".ranks tbody").text
    assert not browser.complaints(driver)  # an alert, too, would have ended these calls


def test_the_policy_stops_what_is_not_the_pages(driver: Chrome, tmp_path: Path) -> None:
    """Were markup to get in after all, it would not run: the test above alone could not tell who stopped it."""
    text = page_of(waiting(8)).replace(
        "<main>", "<main><img src=x onerror='document.title=1'><script>document.title = 2</script>"
    )
    open_page(driver, tmp_path, text)
    assert driver.title.startswith("Hung")
    said = " ".join(one["message"] for one in browser.complaints(driver))
    assert "Content Security Policy" in said


@pytest.mark.parametrize("world", [8, 1024])
def test_it_opens_within_a_second(driver: Chrome, tmp_path: Path, world: int) -> None:
    text = page_of(waiting(world), timeline_of(waiting(world)))
    took: list[float] = []
    while len(took) < 3 or (
        min(took) >= _MOST_MILLISECONDS and len(took) < 8
    ):  # the machine may be busy with other tests
        open_page(driver, tmp_path, text)
        took.append(browser.milliseconds_to_open(driver))
        assert not browser.complaints(driver)
    assert min(took) < _MOST_MILLISECONDS, took


@pytest.mark.parametrize("width", [400, 1100])
def test_nothing_hangs_over_the_window(driver: Chrome, tmp_path: Path, width: int) -> None:
    for evidence in (waiting(1024), recorded("trainer_shard_mismatch"), evil()):
        open_page(driver, tmp_path, page_of(evidence, timeline_of(evidence)), width=width)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width


def test_pictures(driver: Chrome, tmp_path: Path) -> None:
    """Of what a person should look at after a change; HANGDOC_PICTURES names a folder that keeps them."""
    folder = Path(os.environ.get("HANGDOC_PICTURES", str(tmp_path)))
    for name, evidence in (("8", waiting(8)), ("1024", waiting(1024)), ("shards", recorded("trainer_shard_mismatch"))):
        path = write(tmp_path, name, page_of(evidence, timeline_of(evidence)))
        for look, options in (("light", {}), ("dark", {"dark": True}), ("narrow", {"width": 400, "height": 800})):
            browser.show(driver, path, **options)  # type: ignore[arg-type]
            browser.picture(driver, folder / f"{name}-{look}.png")
            assert (folder / f"{name}-{look}.png").stat().st_size > 20_000
        browser.printed(driver, folder / f"{name}.pdf")
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_paper_is_white_and_shows_what_is_folded(driver: Chrome, tmp_path: Path) -> None:
    open_page(driver, tmp_path, page_of(recorded("trainer_shard_mismatch")), dark=True)
    folded = "document.querySelector('.more li').checkVisibility({contentVisibilityAuto: true})"
    look = (
        "return [getComputedStyle(document.body).backgroundColor, document.querySelector('.tools').checkVisibility()]"
    )
    assert driver.execute_script(f"return {folded}") is False
    assert driver.execute_script(look) == ["rgb(13, 17, 23)", True]
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": dark})
    try:
        WebDriverWait(driver, 10).until(lambda driver: driver.execute_script(f"return {folded}"))  # drawn anew
        assert driver.execute_script(look) == ["rgb(255, 255, 255)", False]
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_it_says_everything_without_a_script(driver: Chrome, tmp_path: Path) -> None:
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        open_page(driver, tmp_path, page_of(waiting(8)))
        body = driver.find_element(By.TAG_NAME, "body").text
        assert "What to do" in body and "read_table" in body
        assert not [one for one in driver.find_elements(By.TAG_NAME, "button") if one.is_displayed()]
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
