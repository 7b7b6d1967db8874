"""Text of strangers that looks like markup of rich or Textual is shown as it is, and ends no report."""

import ast
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from textual.pilot import Pilot

from hangdoc import codec
from hangdoc.diagnosis import Diagnosis
from hangdoc.launch.rows import Row
from hangdoc.preflight.plan import Check
from hangdoc.reasoning.engine import diagnose
from hangdoc.render import console, launch, preflight, text
from hangdoc_tui.app import Top
from hangdoc_tui.keys import VIEWS
from hangdoc_tui.source import Recorded
from tests.tui.test_screens import seen

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests" / "corpus"
EVIL = ("[/]", "[red", "[@click=app.bell]x[/]", "[link=http://x]y", ":smile:", "\\[")
_KEPT = {"schema", "hangdoc", "kind", "state", "role", "source", "taken_at", "machine_id", "op", "code", "verdict", "label",
         "severity", "probe", "status", "standing", "batches_source", "where_source"}  # fmt: skip
"""Fields whose values are not free text."""


def spoiled(value: Any, evil: str, key: str = "") -> Any:
    """A JSON value with `evil` at the end of each text."""
    if isinstance(value, dict):
        return {name: spoiled(inner, evil, name) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [spoiled(inner, evil, key) for inner in value]
    return value + evil if isinstance(value, str) and key not in _KEPT else value


def bundle(name: str, evil: str, folder: Path) -> Path:
    """A recorded bundle with `evil` in each of its texts."""
    raw = json.loads(gzip.decompress((CORPUS / f"{name}.hangdoc").read_bytes()))
    path = folder / "evil.hangdoc"
    path.write_bytes(gzip.compress(json.dumps(spoiled(raw, evil)).encode()))
    return path


def _record_elsewhere(width: int) -> Console:
    return Console(record=True, file=io.StringIO(), width=width)


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("make", [console.record_console, _record_elsewhere])
def test_a_report_shows_markup_as_it_is(evil: str, make: Any, tmp_path: Path) -> None:
    """On hangdoc's own console, and on any other that a caller of `hangdoc.render.text` has made."""
    recorded = codec.read(bundle("trainer_shard_mismatch", evil, tmp_path))
    whole = diagnose(codec.read(CORPUS / "trainer_shard_mismatch.hangdoc"))
    plain = spoiled(msgspec.to_builtins(whole), evil)
    twice = msgspec.convert({**plain, "jobs": plain["jobs"] * 2}, Diagnosis)
    for diagnosis in (diagnose(recorded), twice):
        printed = make(200)
        text.report(diagnosis, printed, verbose=True)
        assert evil in printed.export_text()


@pytest.mark.parametrize("evil", EVIL)
def test_launch_lines_and_checks_show_markup_as_it_is(evil: str) -> None:
    printed = console.record_console(200)
    row = Row(name=f"--a{evil}", standing="must agree", values=(f"1{evil}", f"2{evil}"), origin="argument",
              why=f"why {evil}")  # fmt: skip
    launch.comparison([f"one{evil}", f"two{evil}"], [row], [(f"ranks{evil}", f"4{evil}")], printed, True)
    preflight.report([Check(name=f"ports{evil}", status="fail", text=f"no {evil}", remedy=f"do {evil}")], 1, printed)
    assert printed.export_text().count(evil) == 12


@pytest.mark.parametrize("evil", ["[/]", "[@click=app.bell]x[/]"])
async def test_top_shows_markup_as_it_is(evil: str, tmp_path: Path) -> None:
    """Every view and page."""
    top = Top(Recorded([bundle("trainer_shard_mismatch", evil, tmp_path)], patience=2.0), folder=tmp_path)
    async with top.run_test(size=(120, 40)) as pilot:
        await seen(pilot)
        for key in (
            *"1234567"[: len(VIEWS)],
            "s",
            "g",
            "n",
            "l",
            "d",
            "a",
            "question_mark",
            "escape",
            "i",
            "escape",
            "u",
            "escape",
            "c",
            "w",
            "r",
        ):
            await _press(pilot, key)
    assert top.return_code in (None, 0)


async def _press(pilot: Pilot[None], key: str) -> None:
    await pilot.press(key)
    await pilot.pause()


def calls(folder: Path) -> Iterator[tuple[str, ast.Call]]:
    """(file and line, call) of all calls below a folder."""
    for path in folder.glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def name_of(call: ast.Call) -> str:
    function = call.func
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


def test_one_module_makes_consoles() -> None:
    made = {where.partition(":")[0] for folder in ("hangdoc", "tui") for where, call in calls(ROOT / folder)
            if name_of(call) == "Console"}  # fmt: skip
    assert made == {"hangdoc/render/console.py"}


def test_no_renderer_passes_a_string_to_a_table() -> None:
    """A cell that is not a constant is a `Text`: a table of rich reads markup in strings."""
    wrong = []
    for folder in ("hangdoc", "tui"):
        for where, call in calls(ROOT / folder):
            if name_of(call) in ("add_row", "add_column"):
                wrong += [where for one in call.args if isinstance(one, ast.JoinedStr)]
                wrong += [where for one in call.args if isinstance(one, ast.Call) and name_of(one) not in _MAKE_TEXT]
    assert not wrong


_MAKE_TEXT = ("Text", "assemble")


def test_no_widget_of_top_reads_markup() -> None:
    wrong = []
    for where, call in calls(ROOT / "tui"):
        if name_of(call) in ("Static", "Label", "notify", "Digits", "Log"):
            given = {one.arg: one.value for one in call.keywords}
            markup = given.get("markup")
            if not (isinstance(markup, ast.Constant) and markup.value is False):
                wrong.append(where)
        if name_of(call) in ("from_markup", "render_markup"):  # the line of keys is hangdoc's own
            wrong += [where] if "keys_line" not in (ROOT / where.partition(":")[0]).read_text() else []
    assert not wrong
