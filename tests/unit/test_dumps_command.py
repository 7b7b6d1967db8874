"""`hangdoc diagnose --dumps` from outside: exit codes, errors, documents, pages, bundles."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.dumps import Rank, write
from tests.unit.test_cli import one_sentence, run


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    """Rank 1 did not make call 10."""
    ranks = [
        Rank(0).group([0, 1]).many("all_reduce", 1, 9).call("all_reduce", 2.0),
        Rank(1).group([0, 1]).many("all_reduce", 1, 9),
    ]
    return write(tmp_path / "dumps", ranks, at=602.5)


def test_report(dumps: Path) -> None:
    result = run("diagnose", "--dumps", str(dumps))
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("HUNG for 10 min")
    assert "error HD202 missing-rank" in result.stdout
    assert f"read torch's dumps in {dumps}" in " ".join(result.stdout.split())
    assert "pid 0" not in result.stdout
    assert "py-spy" not in result.stdout


def test_document_page_and_bundle(dumps: Path, tmp_path: Path) -> None:
    page, bundle = tmp_path / "page.html", tmp_path / "saved.hangdoc"
    result = run("diagnose", "--dumps", str(dumps), "--json", "--html", str(page), "--save", str(bundle))
    assert (result.returncode, result.stderr) == (1, "")
    document = json.loads(result.stdout)
    assert document["dumps"] == str(dumps)
    assert document["window_seconds"] == 0
    (job,) = document["jobs"]
    assert (job["id"], job["world_size"], job["backend"]) == ("dumps:dumps", 2, "nccl")
    assert [rank["pid"] for rank in job["ranks"]] == [None, None]
    assert job["started_by"] is None
    assert job["ranks"][0]["calls"][0] == {
        "group": None, "made": 10, "pending": 10, "age_seconds": 600.5, "source": "recorder",
        "last": {"op": "all_reduce", "where": {"file": "train.py", "line": 14, "function": "train", "source": None}},
    }  # fmt: skip
    assert {rank["where_source"] for rank in job["ranks"]} == {"recorder"}
    assert f"read torch's dumps in {dumps}" in page.read_text().replace("&#39;", "'")
    again = run("diagnose", "--json", str(bundle))
    assert json.loads(again.stdout) == document


def test_an_empty_directory(tmp_path: Path) -> None:
    result = run("diagnose", "--dumps", str(tmp_path))
    assert result.returncode == 3
    assert "is empty" in one_sentence(result)
    assert "TORCH_FR_DUMP_TEMP_FILE" in result.stderr
    document = json.loads(run("diagnose", "--dumps", str(tmp_path), "--json").stdout)
    assert document["jobs"] == []
    assert "no dump of torch's flight recorder" in document["problems"][0]


def test_a_directory_without_dumps(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "log_3").write_text("x")
    result = run("diagnose", "--dumps", str(tmp_path))
    assert result.returncode == 3
    assert "notes.txt" in one_sentence(result)
    assert "log_3" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--dumps", "/nonexistent"), "No such file"),
        (("--dumps", __file__), "is not a directory"),
        (("--dumps", ".", "--pid", "1"), "saved evidence"),
        (("--dumps", ".", "--hosts", "a"), "saved evidence"),
        (("--dumps", ".", "some.hangdoc"), "different evidence"),
        (("--dumps", ".", "--window", "2"), "Leave out --window, or leave out --dumps."),
    ],
)
def test_usage(arguments: tuple[str, ...], said: str) -> None:
    result = run("diagnose", *arguments)
    assert result.returncode == 2
    assert said in one_sentence(result)


def test_torch_and_pickle_are_not_needed(dumps: Path) -> None:
    """It works where torch is not installed, and the module that loads pickles is not even imported for it."""
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from hangdoc.commands.dumps import dumps_evidence\n"
        "from hangdoc.reasoning.engine import diagnose\n"
        f"print(diagnose(dumps_evidence(Path({str(dumps)!r}), 30.0)).verdict)\n"
        "print('_pickle' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}"],
        capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert result.stdout.split() == ["hung", "False"], result.stderr
