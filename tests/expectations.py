"""The ground truth of the trainer's scenarios, for the live runs and for the recorded ones alike."""

from dataclasses import dataclass

from hangdoc.diagnosis import Diagnosis


@dataclass(frozen=True)
class Expected:
    """What a right diagnosis says."""

    verdict: str
    code: str | None = None
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    states: tuple[str | None, ...] = ()
    """By rank; None where several are right."""
    severity: str = "error"


BLOCKED2 = ("blocked", "blocked")
EXPECTED = {
    "shard-mismatch": Expected("hung", "HD101", (1,), (0,), BLOCKED2, ("in-collective", "in-collective")),
    "empty-shards": Expected("hung", "HD101", (1,), (0,), ("blocked", "computing"), ("in-collective", "loading-data")),
    "uneven-batches": Expected("hung", "HD102", (1,), (0,), BLOCKED2, ("in-collective", "in-collective")),
    "skipped-collective": Expected("hung", "HD201", (1,), (0,), BLOCKED2, ("in-collective", "in-collective")),
    "mismatched-collective": Expected("hung", "HD201", (2,), (0, 1), ("blocked",) * 3, ("in-collective",) * 3),
    "rank-dies": Expected("hung", "HD301", (1,), (0,), ("blocked", "dead"), ("in-store", "missing")),
    "rank-stops": Expected("hung", "HD302", (1,), (0,), BLOCKED2, ("in-collective", "stopped")),
    "stuck-dataloader-worker": Expected("hung", "HD103", (1,), (0,), BLOCKED2, ("in-collective", "waiting-data")),
    "endless-loop": Expected("hung", "HD202", (1,), (0,), ("blocked", "computing"), ("in-collective", "computing")),
    "waits-for-input": Expected("hung", "HD302", (1,), (0,), BLOCKED2, ("in-collective", "waiting-input")),
    "healthy": Expected("healthy", labels=("computing", "computing")),
    "long-evaluation": Expected(
        "waiting", "HD202", (0,), (1,), ("computing", "blocked"), ("evaluating", "in-collective"), severity="info"
    ),
}


def check(diagnosis: Diagnosis, expected: Expected) -> None:
    """Assert that a diagnosis says what is expected, and nothing about ranks that it must clear."""
    assert diagnosis.verdict == expected.verdict, diagnosis
    assert len(diagnosis.jobs) == 1
    job = diagnosis.jobs[0]
    assert tuple(rank.label for rank in job.ranks) == expected.labels
    for rank, state in zip(job.ranks, expected.states, strict=False):
        assert state is None or rank.state == state, rank
    if expected.code is None:
        assert not [finding for finding in job.findings if finding.severity == "error"]
        return
    leading = job.findings[0]
    assert (leading.code, leading.culprits, leading.victims) == (expected.code, expected.culprits, expected.victims)
    assert leading.severity == expected.severity
    assert leading.evidence
    assert leading.remedy
    for finding in job.findings:  # a victim is cleared by every finding
        assert not set(finding.culprits) & set(expected.victims), finding
