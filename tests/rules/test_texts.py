"""The whole text of each rule. After an intended change: `pytest tests/rules --snapshot-update`, and read the diff."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from hangdoc.observe.stacks.native_stacks import NOT_ASKED, NOT_YET
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.rules import all_rules
from hangdoc.render.text import report
from hangdoc.snapshot import Snapshot, Unavailable
from tests.rules import CODES, fires, quiet
from tests.rules.hd105.case import inside, left
from tests.rules.shapes import LOADER, WORKER, behind_loop, data, in_loop
from tests.unit.builders import backward, c10d, frame, helper, rank, snapshot, train

_RIDDLES = re.compile(
    r"(?i)\b(stands?|stood|standstill|goes round|is through|in vain|told|said|says|story|mend(ed|s)?|camps|alike|for ever"
    r"|nobody looked|by itself as|lies? unread|the patient|comes? to nothing)\b"
)
"""Words that no text of a finding uses: idioms that have to be read twice."""
_WRONG_NUMBER = re.compile(
    r"(?<!-)\brank \d+ (are|have|wait|spin|train|run|connect|listen|publish|differ|were)\b"
    r"|(?<!between )\branks [\d, -]*\d (is|has|waits|spins|trains|runs|connects|listens|publishes|differs|was)\b"
)


def several() -> dict[str, Snapshot]:
    """Findings with more than one culprit and more than one waiting rank: name of the rule to a snapshot."""
    four = {"world": 4}
    fewer, more = ({"data": data(files, digest), **four} for files, digest in ((4, "b"), (201, "a")))
    stopped = (rank(n, train(12), state="T", **four) for n in (1, 2))
    in_lock = (
        rank(n, train(12, source="with self.lock:"), kernel={"syscall": "futex", "wchan": "futex_wait_queue"}, **four)
        for n in (1, 2)
    )
    prompts = (rank(n, train(12, source="input()"), kernel={"syscall": "read"}, **four) for n in (1, 2))
    waiting = [in_loop(n, 4, **four) for n in (0, 3)]
    workers = [helper(n + 6, 100 + n, frame("Data.__getitem__", 8), WORKER) for n in (1, 2)]
    loaders = (rank(n, *LOADER, train(10), **four) for n in (1, 2))
    return {
        "HD101": snapshot(*(in_loop(n, 4, **more) for n in (0, 3)), *(behind_loop(n, 3, **fewer) for n in (1, 2))),
        "HD102": snapshot(
            *(in_loop(n, 4, batches=5, data=data(9, "a"), **four) for n in (0, 3)),
            *(behind_loop(n, 3, batches=4, data=data(9, "a"), **four) for n in (1, 2)),
        ),
        "HD103": snapshot(*waiting, *loaders, *workers),
        "HD105": snapshot(*(inside(n, **four) for n in (0, 3)), *(left(n, **four) for n in (1, 2))),
        "HD202": snapshot(*waiting, *(rank(n, frame("work", 3), train(12), cpu=0.99, **four) for n in (1, 2))),
        "HD203": snapshot(
            *(rank(n, *c10d("barrier"), frame("main", 5, conditions=("rank == 0",)), **four) for n in (0, 3)),
            *(rank(n, *c10d("all_reduce"), frame("main", 9), **four) for n in (1, 2)),
        ),
        "HD301": snapshot(*waiting),
        "HD302": snapshot(*waiting, *stopped),
        "HD304": snapshot(*waiting, *in_lock),
        "HD901": snapshot(*(in_loop(n, 4, local_world=2, **four) for n in (0, 1))),
        "input": snapshot(*waiting, *prompts),
    }


def texts(evidence: Snapshot) -> list[str]:
    """All sentences of the findings about a snapshot."""
    return [
        text
        for job in diagnose(evidence).jobs
        for finding in job.findings
        for text in (finding.summary, finding.remedy, *(line.text for line in finding.evidence))
    ]


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
def test_plain_words(code: str) -> None:
    page = next(rule.page for rule in all_rules() if code == rule.code)
    assert not _RIDDLES.search(page)
    for text in texts(fires(code)):
        assert not _RIDDLES.search(text), text
        assert not _WRONG_NUMBER.search(text), text


@pytest.mark.parametrize("name", several())
def test_several_ranks(name: str) -> None:
    """Verbs agree with the number of ranks."""
    evidence = several()[name]
    found = diagnose(evidence).jobs[0].findings
    assert (found[0].code == name) or name == "input"
    assert len(found[0].culprits) > 1 or name == "HD901"
    for text in texts(evidence):
        assert not _WRONG_NUMBER.search(text), text
        assert not _RIDDLES.search(text), text


@pytest.mark.parametrize("code", CODES)
def test_it_keeps_quiet(code: str) -> None:
    diagnosis = diagnose(quiet(code))
    assert not diagnosis.problems
    assert code not in {finding.code for job in diagnosis.jobs for finding in job.findings}


@pytest.mark.parametrize(
    ("native", "why"),
    [
        (NOT_ASKED, "C++ frames were not read (--native never)"),
        (NOT_YET, "C++ frames have not been read yet"),
        (Unavailable(reason="not needed"), "no frame shows the call"),
    ],
)
def test_an_inferred_call_says_what_was_not_read(native: Unavailable, why: str) -> None:
    backward_only = rank(0, *backward(), frame("main", 15), native=native)
    found = texts(snapshot(backward_only, rank(1, *c10d("barrier"), frame("main", 22))))
    assert any(text.endswith(f", inferred from its line: {why}") for text in found)
