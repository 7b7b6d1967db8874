"""What each rule says, word for word. After a change on purpose: `pytest tests/rules --snapshot-update`, and read the diff."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from hangdoc.diagnose.engine import diagnose
from hangdoc.render.text import report
from tests.rules import CODES, fires, quiet


class Beside(SingleFileSnapshotExtension):
    """A text file beside the case that it belongs to."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    @classmethod
    def get_location(cls, *, test_location: Any, index: Any) -> str:
        """tests/rules/CODE/report.txt."""
        code = test_location.snapshot_name.partition("[")[2].rstrip("]").lower()
        return str(Path(__file__).parent / code / "report.txt")


@pytest.mark.filterwarnings("ignore:\\s*Can not relate snapshot location:UserWarning")
@pytest.mark.parametrize("code", CODES)
def test_its_whole_text(code: str, snapshot: SnapshotAssertion) -> None:
    diagnosis = diagnose(fires(code))
    assert not diagnosis.problems
    (job,) = diagnosis.jobs
    assert job.findings[0].code == code
    out = io.StringIO()
    report(diagnosis, Console(file=out, width=100))
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
    assert text + "\n" == snapshot.use_extension(Beside)


@pytest.mark.parametrize("code", CODES)
def test_it_keeps_quiet(code: str) -> None:
    diagnosis = diagnose(quiet(code))
    assert not diagnosis.problems
    assert code not in {finding.code for job in diagnosis.jobs for finding in job.findings}
