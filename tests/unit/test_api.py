"""The Python API: typed, light to import, and a page in a notebook."""

import html
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typing_extensions import assert_type

import hangdoc
from hangbench.record import CORPUS
from hangdoc.diagnosis import Diagnosis
from hangdoc.reasoning.engine import diagnose as reasoned

MISMATCH = CORPUS / "trainer_shard_mismatch.hangdoc"


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_a_bundle_gives_the_diagnosis_and_its_evidence() -> None:
    result = hangdoc.diagnose(bundles=[MISMATCH], patience=2.0)
    assert_type(result, hangdoc.Result)  # mypy sees the function, not the package of the same name
    assert isinstance(result, Diagnosis)
    assert (result.verdict, result.jobs[0].findings[0].code) == ("hung", "HD101")
    assert json.loads(msgspec.json.encode(result)) == json.loads(
        msgspec.json.encode(reasoned(result.evidence, patience=2.0))
    )
    assert "HD101 shard-mismatch" in result.text()


def test_a_result_is_saved_and_read_again(tmp_path: Path) -> None:
    result = hangdoc.diagnose(bundles=[str(MISMATCH)], patience=2.0)
    result.save(tmp_path / "again.hangdoc")
    assert hangdoc.diagnose(bundles=[tmp_path / "again.hangdoc"], patience=2.0) == result


def test_a_notebook_shows_the_page_in_a_frame_that_it_cannot_leave() -> None:
    result = hangdoc.diagnose(bundles=[MISMATCH], patience=2.0)
    shown = result._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-scripts" srcdoc="')
    inside = shown.split('srcdoc="', 1)[1].split('"', 1)[0]
    assert "<" not in inside
    assert html.unescape(inside) == result.html()
    assert "Content-Security-Policy" in result.html()


@pytest.mark.parametrize("get", ["from hangdoc import diagnose as d", "import hangdoc\nd = hangdoc.diagnose"])
def test_the_function_is_loaded_when_it_is_asked_for(get: str) -> None:
    code = f"{get}\nimport hangdoc.api\nprint(d is hangdoc.api.diagnose, d(bundles=[{str(MISMATCH)!r}], patience=2.0).verdict)"
    assert python(code).split() == ["True", "hung"]


def test_importing_hangdoc_loads_nothing() -> None:
    code = "import sys; before = set(sys.modules); import hangdoc; print(*sorted(set(sys.modules) - before))"
    assert set(python(code).split()) <= {"hangdoc", "hangdoc.version"}


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"pids": [2**22 + 1]}, 3, "no process with pid"),
        ({"bundles": ["/no/such/file"]}, 2, "/no/such/file"),
        ({"bundles": [MISMATCH], "job": "another"}, 2, "there is no job 'another'"),
        ({"hosts": "node[0-"}, 2, "node"),
        (
            {"hosts": ["a", "b"], "pids": [1]},
            2,
            "`pids` and `run_of` name processes of this host. They cannot be combined with `hosts`",
        ),
        (
            {"bundles": [MISMATCH], "slurm_job": "7"},
            2,
            "cannot be combined with `pids`, `run_of`, `slurm_job` or `hosts`",
        ),
    ],
)
def test_what_cannot_be_diagnosed_is_an_error_with_its_exit_code(
    options: dict[str, object], code: int, message: str
) -> None:
    with pytest.raises(hangdoc.DiagnoseError, match=message) as raised:
        hangdoc.diagnose(**options)  # type: ignore[arg-type]
    assert raised.value.exit_code == code


def test_what_is_not_there_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        hangdoc.no_such_thing  # type: ignore[attr-defined]  # noqa: B018
