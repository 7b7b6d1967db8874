"""What torch's flight recorder says, from torch's own JSON to a finding."""

import json
import pickle
import time
from types import SimpleNamespace
from typing import Any

import pytest

from hangdoc.diagnosis import RankView
from hangdoc.observe.torch.recorder_dumps import read
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import (
    BeaconReading,
    FlightRecorder,
    Group,
    Interpreter,
    Process,
    Progress,
    Recorded,
    RecordedGroup,
    Unavailable,
)
from hangdoc.watchdog import recorder
from tests.unit.builders import backward, c10d, frame, local, rank, snapshot, train


def entry(seq: int, op: str = "all_reduce", retired: bool = True, group: str = "0", **more: Any) -> dict[str, Any]:
    """One collective as torch 2.13 with Gloo writes it."""
    return {
        "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq, "record_id": seq - 1, "pg_id": int(group),
        "process_group": [group, "default_pg" if group == "0" else "undefined"], "profiling_name": f"gloo:{op}",
        "input_sizes": [[4, 3]], "input_dtypes": ["Float"], "output_sizes": [[4, 3]], "output_dtypes": ["Float"],
        "is_p2p": False, "retired": retired, "state": "scheduled", "thread_id": "140", "thread_name": "python",
        "time_created_ns": time.time_ns(), "time_discovered_completed_ns": None, "timeout_ms": 1_800_000, **more,
    }  # fmt: skip


def dump(*entries: dict[str, Any], **more: Any) -> bytes:
    # The JSON of torch's worker server writes these numbers as texts.
    status = {
        "0": {"last_enqueued_collective": "17", "last_started_collective": "-1", "last_completed_collective": "16"}
    }
    return json.dumps({"version": "2.10", "entries": entries, "pg_status": status, **more}).encode()


def test_torchs_own_json() -> None:
    found = read(
        dump(entry(15), entry(16, input_dtypes=["BFloat16"]), entry(17, retired=False)), "torch's worker server"
    )
    (group,) = found.groups
    assert (group.name, group.default, group.issued) == ("0", True, 17)
    assert group.completed is not None
    assert (group.completed.seq, group.completed.op, group.completed.inputs) == (16, "all_reduce", ("bfloat16[4, 3]",))
    assert [(one.seq, one.inputs) for one in group.pending] == [(17, ("float32[4, 3]",))]
    assert found.age_seconds == 0


def test_groups_are_kept_apart_and_sends_left_out() -> None:
    found = read(dump(entry(3), entry(9, group="2", retired=False), entry(1, is_p2p=True, group="1")), "x")
    # torch's own count of the default group, 17 here, includes sends and receives (seen with NCCL): it is not used.
    counts = [(g.name, g.default, g.issued) for g in found.groups]
    assert counts == [("0", True, 3), ("1", False, None), ("2", False, 9)]


@pytest.mark.parametrize(
    ("described", "text"),
    [
        ("dp", "dp"),
        ("mesh_dp", "mesh_dp"),
        ("undefined", ""),
        ("mesh_dim_0", ""),
        ("default_pg:split:0", ""),
        ("x" * 5000, "x" * 100),
    ],
)
def test_a_group_has_the_description_that_the_program_gave(described: str, text: str) -> None:
    (group,) = read(dump(entry(9, group="2", process_group=["2", described])), "x").groups
    assert group.description == text


@pytest.mark.parametrize("bad", [b"", b"\x80\x04.", b"[1]", b'{"entries": 3}', b'{"entries": [{"frames": "x"}]}'])
def test_what_is_no_dump(bad: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(bad, "x")


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("taken over",)


def fake_torch(monkeypatch: pytest.MonkeyPatch, known: object) -> None:
    c10d_module = SimpleNamespace(_dump_fr_trace=lambda *_: pickle.dumps(known))
    monkeypatch.setitem(__import__("sys").modules, "torch._C", SimpleNamespace(_distributed_c10d=c10d_module))


def test_the_ranks_own_dump_is_short_and_in_torchs_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [{"name": "step", "filename": "/home/me/train.py", "line": 7}]
    entries = [entry(n, frames=frames) for n in range(1, 2000)] + [
        entry(2000 + n, retired=False, frames=frames) for n in range(50)
    ]
    fake_torch(monkeypatch, {"version": "2.10", "entries": entries, "pg_config": {"": {"name": ""}}, "pg_status": {}})
    raw = recorder.dump()
    assert raw is not None
    assert len(raw) < 20_000
    assert json.loads(raw)["pg_config"]["0"]["desc"] == "default_pg"
    (group,) = read(raw, "the watchdog").groups
    assert group.completed is not None
    assert group.completed.seq == 1999
    assert [one.seq for one in group.pending] == [2000, 2001, 2002, 2003]
    assert group.issued == 2049  # whatever is left out
    assert [(f.function, f.file, f.line) for f in group.pending[0].frames] == [("step", "/home/me/train.py", 7)]


def test_a_dump_with_more_than_plain_values_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_torch(monkeypatch, {"entries": [Evil()]})
    with pytest.raises(pickle.UnpicklingError, match="must not contain"):
        recorder.dump()
    assert "taken over" not in capsys.readouterr().out


# --- the diagnosis ---------------------------------------------------------------------------------------------------


def kept(*pending: tuple[int, str, str], issued: int, age: float = 0.0, group: str = "0") -> FlightRecorder:
    """A recorder whose only group has these (number, operation, tensor) that are not through."""
    recorded = tuple(Recorded(seq=seq, op=op, inputs=(tensor,)) for seq, op, tensor in pending)
    groups = (RecordedGroup(name=group, default=group == "0", issued=issued, pending=recorded),)
    return FlightRecorder(source="test", age_seconds=age, groups=groups)


def in_backward(number: int, known: FlightRecorder | Unavailable, **more: Any) -> Process:
    """In an idle backward pass, whose native frames could not be read."""
    return rank(number, *backward(), train(15), native=Unavailable(reason="no"), recorder=known, **more)


def views(*processes: Process) -> dict[int, RankView]:
    (job,) = diagnose(snapshot(*processes)).jobs
    return {view.rank: view for view in job.ranks}


def codes(*processes: Process) -> list[str]:
    (job,) = diagnose(snapshot(*processes)).jobs
    return [finding.code for finding in job.findings]


def test_the_number_of_the_collective_is_told() -> None:
    known = [kept((17, "all_reduce", "float32[72]"), issued=17 + n) for n in range(2)]
    found = views(*(in_backward(n, known[n]) for n in range(2)))
    assert [found[n].operation.seq for n in range(2) if (found[n].operation) is not None] == [17, 17]  # type: ignore[union-attr]


def test_gradients_of_different_size_are_told_by_the_recorder_alone() -> None:
    known = [kept((17, "all_reduce", f"float32[{72 + n}]"), issued=17) for n in range(2)]
    assert codes(*(in_backward(n, known[n]) for n in range(2)))[0] == "HD206"
    same = [kept((17, "all_reduce", "float32[72]"), issued=17) for n in range(2)]
    assert "HD206" not in codes(*(in_backward(n, same[n]) for n in range(2)))


def test_tensors_of_calls_with_different_numbers_are_not_compared() -> None:
    known = [kept((17 + n, "all_reduce", f"float32[{72 + n}]"), issued=17 + n) for n in range(2)]
    assert "HD206" not in codes(*(in_backward(n, known[n]) for n in range(2)))


def test_a_wait_without_a_name_is_named_by_its_group() -> None:
    waiting = frame("step", 5, source="work.wait()")
    groups = Interpreter(environment={}, globals=(), groups=(Group(address=7, name="2", ranks=(0, 1)),))
    native = frame("c10d::Work::wait", 0, "libtorch_cpu.so", native=True, library=True)
    from tests.unit.builders import stack

    found = views(
        *(
            rank(n, waiting, native=stack(native, waiting), interpreter=groups,
                 recorder=kept((9, "reduce_scatter", "float32[8]"), issued=9, group="2"))
            for n in range(2)
        )
    )  # fmt: skip
    operation = found[0].operation
    assert operation is not None
    assert (operation.op, operation.group, operation.seq) == ("reduce_scatter", "2", 9)


def test_a_rank_that_never_came_is_seen_in_the_evidence() -> None:
    here = rank(0, *c10d("all_reduce", local("tensor", "float32[4]")), frame("main", 5),
                recorder=kept((18, "all_reduce", "float32[4]"), issued=18))  # fmt: skip
    away = rank(1, frame("main", 9, source="time.sleep(9)"), kernel={"syscall": "nanosleep"}, recorder=kept(issued=17))
    (job,) = diagnose(snapshot(here, away)).jobs
    lines = [(e.rank, e.text) for e in job.findings[0].evidence if e.probe == "recorder"]
    assert lines == [
        (1, "has made 17 calls in the default group, and not number 18"),
        (0, "has made 17 calls in the default group and is in number 18, an all_reduce"),
    ]


def test_a_dump_of_an_earlier_hang_says_nothing() -> None:
    """The rank has beaten since its watchdog read the recorder."""
    beacon = BeaconReading(step=1, batches_done=None, batches_total=None, epoch=None, phase="train", shards=None,
                           shards_digest=None, age_seconds=5.0, moved=False)  # fmt: skip
    progress = Progress(counters=(), beacon=beacon)
    for age, seq in ((4.0, 17), (6.0, None)):
        known = kept((17, "all_reduce", "float32[72]"), issued=17, age=age)
        found = views(*(in_backward(n, known, progress=progress) for n in range(2)))
        assert found[0].operation is not None
        assert found[0].operation.seq == seq
