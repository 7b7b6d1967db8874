"""The summary of a host: of the ranks that wait in one collective and are alike, the evidence of one."""

import gzip
import json
from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc import codec
from hangdoc.fleet import gather
from hangdoc.fleet.transport import HostReply, Transport
from hangdoc.observe.look.observe import Options
from hangdoc.reasoning.engine import diagnose, examine
from hangdoc.reasoning.summary import summarized
from hangdoc.snapshot import Counter, Frame, Process, Progress, Snapshot
from tests.unit.builders import backward, c10d, frame, helper, local, rank, snapshot, train

_BATCH = ("python3", "train.py", "--batch-size")


def _waits(number: int, *frames: Frame, **more: Any) -> Process:
    """A rank in the DDP backward, with variables and an environment of its own."""
    variables = (local("rank", number), local("loss", 0.1 * number, address=4096 * number))
    values: dict[str, Any] = {
        "world": 4,
        "cpu": 0.01 * number,
        "environment": {"RANK": str(number), "NCCL_DEBUG": "WARN"},
        "argv": ("python3", "train.py", f"--local-rank={number}"),
        "started_seconds_ago": 100.0 + number,
        "progress": Progress(counters=(_counter("rank", number), _counter("step", 4, looped=True))),
    }
    found = frames or (*c10d("all_reduce"), *backward(), train(15, locals=variables))
    return rank(number, *found, **{**values, **more})


def _counter(name: str, value: int, *, looped: bool = False) -> Counter:
    return Counter(name=name, function="train", file="/home/me/train.py", before=value, after=value, looped=looped)


def _reads(number: int) -> Process:
    return rank(number, frame("read_table", 9, "/home/me/data.py"), train(12), world=4)


def _like(found: Snapshot) -> dict[int, int | None]:
    return {process.pid: process.like for process in found.hosts[0].processes}


def test_ranks_that_are_alike_keep_what_is_their_own() -> None:
    whole = snapshot(_waits(0), _waits(1), _reads(2), _waits(3), helper(900, 101), helper(901, 100))
    found = summarized(whole)
    assert _like(found) == {100: None, 102: None, 901: None, 101: 100, 103: 100}  # the helper of rank 1 sleeps
    last = found.hosts[0].processes[-1]
    mine = whole.hosts[0].processes[3]
    kept = ("pid", "state", "argv", "environment", "started_seconds_ago", "identity", "owner")
    assert {name: getattr(last, name) for name in kept} == {name: getattr(mine, name) for name in kept}
    assert not any(one.locals for thread in last.stack.threads for one in thread.frames)  # type: ignore[union-attr]
    assert [one.name for one in last.progress.counters] == ["step"]  # type: ignore[union-attr]
    assert codec.decode(codec.encode(found)) == found
    assert len(codec.encode(found)) < len(codec.encode(whole))
    assert summarized(found) == found


def test_the_answer_is_the_same_and_names_the_rank_with_the_evidence() -> None:
    whole = snapshot(_waits(0), _waits(1), _reads(2), _waits(3))
    (job,), (expected,) = diagnose(summarized(whole)).jobs, diagnose(whole).jobs
    assert job.findings == expected.findings
    assert [one.like for one in job.ranks] == [None, 0, None, 0]
    assert [replace(one, like=None) for one in job.ranks] == list(expected.ranks)
    assert [one.cpu_percent for one in job.ranks] == [0.0, 1.0, 0.0, 3.0]
    (run,) = examine(summarized(whole))[1]
    assert run.alike(0) == (0, 1, 3)
    assert run.ranks[3].thread is not None
    assert run.ranks[3].own[0].line == 15


@pytest.mark.parametrize(
    "other",
    [
        _waits(1, *c10d("all_reduce"), train(16)),
        _waits(1, *c10d("barrier"), train(15)),
        _waits(1, progress=Progress(counters=(_counter("step", 5, looped=True),))),
        _waits(1, environment={"RANK": "1", "NCCL_DEBUG": "WARN", "OTHER": "1"}),
        _waits(1, argv=(*_BATCH, "8")),
        _waits(1, cwd="/tmp/x"),
        _waits(1, state="T"),
    ],
    ids=["line", "collective", "counter", "variable", "option", "directory", "stopped"],
)
def test_a_rank_that_differs_is_kept_whole(other: Process) -> None:
    assert _like(summarized(snapshot(_waits(0), other, _reads(2))))[101] is None


def test_only_ranks_in_collectives_are_alike() -> None:
    ranks = [rank(n, *c10d("recv", local("src", 2)), train(15), world=3) for n in range(2)]
    assert set(_like(summarized(snapshot(*ranks, _reads(2)))).values()) == {None}
    assert set(_like(summarized(snapshot(_reads(0), _reads(1)))).values()) == {None}


def test_a_setting_that_differs_counts_all_ranks_that_are_alike() -> None:
    """Rank 2 differs from three ranks, of which one sent its evidence."""
    odd = _waits(2, argv=(*_BATCH, "8"))
    same = [_waits(n, argv=(*_BATCH, "4")) for n in (0, 1, 3)]
    whole = snapshot(*same, odd)
    (short,), (long,) = examine(summarized(whole))[1], examine(whole)[1]
    assert len(short.whole) == 2
    assert short.differing == long.differing
    assert [one.culprits for one in short.differing] == [(2,)]


def test_a_rank_that_is_like_one_that_is_like_another_is_read_by_itself() -> None:
    short = summarized(snapshot(_waits(0), _waits(1), _reads(2), _waits(3)))
    host = short.hosts[0]
    chained = tuple(replace(one, like=101) if one.pid == 103 else one for one in host.processes)
    found = replace(short, hosts=(replace(host, processes=chained),))
    (job,) = diagnose(found).jobs
    assert [one.like for one in job.ranks] == [None, 0, None, None]
    written = codec.decode(codec.encode(found)).hosts[0].processes
    assert {one.pid: one for one in written} == {one.pid: one for one in chained}


def _bundle_with(**alike: Any) -> bytes:
    plain = json.loads(gzip.decompress(codec.encode(summarized(snapshot(_waits(0), _waits(1), _reads(2))))))
    plain["hosts"][0]["alike"][0] |= alike
    return gzip.compress(json.dumps(plain).encode())


@pytest.mark.parametrize("like", [7, 901])
def test_a_bundle_whose_rank_is_like_no_rank_is_damaged(like: int) -> None:
    assert codec.decode(_bundle_with(rank=3)).hosts[0].processes[-1].identity.rank == 3  # type: ignore[union-attr]
    with pytest.raises(codec.BundleError, match="bundle is damaged"):
        codec.decode(_bundle_with(like=like))


def test_a_rank_whose_other_rank_is_missing_is_read_by_itself() -> None:
    short = summarized(snapshot(_waits(0), _waits(1), _reads(2)))
    host = short.hosts[0]
    alone = replace(host, processes=tuple(one for one in host.processes if one.pid != 100))
    (job,) = diagnose(replace(short, hosts=(alone,))).jobs
    assert [(one.rank, one.state, one.like) for one in job.ranks][:2] == [
        (0, "missing", None),
        (1, "in-collective", None),
    ]


@pytest.mark.parametrize(
    ("hosts", "summary", "sent"), [(256, None, False), (257, None, True), (2, True, True), (300, False, False)]
)
def test_many_hosts_send_a_summary(
    monkeypatch: pytest.MonkeyPatch, hosts: int, summary: bool | None, sent: bool
) -> None:
    seen: list[tuple[str, ...]] = []

    def run(names: tuple[str, ...], arguments: tuple[str, ...], *_: object) -> list[HostReply]:
        seen.append(arguments)
        return []

    monkeypatch.setattr(gather, "run", run)
    names = tuple(f"n{number}" for number in range(hosts))
    gather.gather(names, Options(), Transport(), summary=summary)
    assert ("--summary" in seen[0]) is sent
