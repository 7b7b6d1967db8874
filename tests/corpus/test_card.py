"""Recorded looks at ranks that shared one NVIDIA card, replayed (`python -m hangbench.gpu --replay FOLDER --record`)."""

import pytest

from hangbench.gpu.case import card_cases
from hangbench.look import judged
from hangbench.record import CARD, publishable
from hangdoc import codec

RECORDED = sorted(path.stem for path in CARD.glob("*.hangdoc"))


@pytest.mark.parametrize("name", RECORDED)
def test_the_recorded_run_is_told_right(name: str) -> None:
    snapshot = codec.read(CARD / f"{name}.hangdoc")
    score = judged(card_cases()[name], snapshot).score
    assert score.right, score.complaints()


@pytest.mark.parametrize("name", RECORDED)
def test_it_holds_nothing_of_the_recording_machine(name: str) -> None:
    snapshot = codec.read(CARD / f"{name}.hangdoc")
    assert publishable(snapshot) == snapshot
