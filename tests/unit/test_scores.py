"""A score for which less was read says so: the same hang had 60 in the first seconds of top, and 90 in diagnose."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from hangdoc import codec
from hangdoc.observe.stacks.native_stacks import NOT_ASKED, NOT_YET
from hangdoc.reasoning.engine import examine
from hangdoc.render.words import score
from hangdoc.snapshot import Snapshot, Unavailable

CORPUS = Path(__file__).parents[1] / "corpus"


def without_frames(snapshot: Snapshot, why: Unavailable) -> Snapshot:
    hosts = tuple(
        replace(host, processes=tuple(replace(process, native=why) for process in host.processes))
        for host in snapshot.hosts
    )
    return replace(snapshot, hosts=hosts)


def leading_score(snapshot: Snapshot) -> str:
    return score(examine(snapshot, patience=2.0)[0].jobs[0].findings[0])


@pytest.mark.parametrize(("name", "whole", "less"), [("conditional", 90, 60), ("nan_skip", 70, 40)])
def test_a_score_says_what_was_not_read(name: str, whole: int, less: int) -> None:
    snapshot = codec.read(CORPUS / f"{name}.hangdoc")
    assert leading_score(snapshot) == f"score {whole}"
    yet = leading_score(without_frames(snapshot, NOT_YET))
    assert yet == f"score {less} (C++ frames have not been read yet)"
    never = leading_score(without_frames(snapshot, NOT_ASKED))
    assert never == f"score {less} (C++ frames were not read (--native never))"


@pytest.mark.parametrize(
    ("name", "whole"), [("trainer_shard_mismatch", 96), ("worker_stopped", 95), ("ring_exchange", 90)]
)
def test_a_score_that_does_not_depend_on_frames_says_nothing(name: str, whole: int) -> None:
    snapshot = codec.read(CORPUS / f"{name}.hangdoc")
    assert leading_score(without_frames(snapshot, NOT_YET)) == f"score {whole}"
