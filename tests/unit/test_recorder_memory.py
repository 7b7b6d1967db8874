"""torch's flight recorder in memory: every form of an entry, and what is no form of it."""

import struct
import time
from typing import Any

import pytest

from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.torch.recorded_calls import Decoder
from hangdoc.observe.torch.recorded_frames import Codes
from hangdoc.observe.torch.recorded_members import read_members
from hangdoc.observe.torch.recorder_history import Record, recorder_of
from hangdoc.observe.torch.recorder_instance import parse_header
from hangdoc.observe.torch.recorder_layout import LAYOUTS, Member, entry_members, layout_of
from hangdoc.observe.torch.recorder_ring import copy_ring
from tests.unit.recorder_memory import FLOAT, INSTANCE, LONG, RING, Recorder, copied, opened

NEWEST = entry_members(epochs=True, threads=True, copied_strings=False)
FORMS = {
    "2.10 to 2.14": NEWEST,
    "2.9": entry_members(epochs=False, threads=True, copied_strings=False),
    "2.6 and 2.7": entry_members(epochs=False, threads=False, copied_strings=False),
    "2.6, shared strings": entry_members(epochs=False, threads=False, copied_strings=True),
    "2.5": entry_members(epochs=False, threads=False, copied_strings=False, narrow=True),
    "2.5, shared strings": entry_members(epochs=False, threads=False, copied_strings=True, narrow=True),
}
BFLOAT = 15


def recorder(calls: int | list[dict[str, Any]] = 40, members: list[Member] = NEWEST, **more: Any) -> Recorder:
    """Of some calls of which the last one waits, or of these."""
    more.setdefault("epoch", 0 if any(name == "epoch" for name, _, _ in members) else None)
    each = [{"retired": number < calls - 1} for number in range(calls)] if isinstance(calls, int) else calls
    return Recorder(members, each, **more)


def read(made: Recorder, kind: str = "cpu", newest: int = 4_000) -> Record:
    copy = copied(made, newest)
    with opened(made) as memory:
        members = read_members(memory, copy.header.members, copy.layout is not None and copy.layout.copied_strings)
    return Record(kind, Decoder(Codes(None)).decode(copy), copy.header.made, copy.header.limit, members, copy.read_ns)


def test_offsets_are_those_of_torchs_libraries() -> None:
    """From real libraries of 2.13 (offsetof by a debugger) and the others by their headers: /shared/flight_recorder.md."""
    newest = layout_of(NEWEST)
    places = newest.id, newest.description, newest.call, newest.made, newest.input_dims, newest.sizes, newest.retired
    assert ([8 * place for place in places], newest.size) == ([0, 24, 112, 176, 240, 384, 504], 512)
    assert {layout.size for layout in LAYOUTS} >= {512, 504, 464, 392, 360}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str) -> None:
    inputs = [(BFLOAT, (2, 3)), (LONG, ())]
    many = [(FLOAT, (1, 2, 3))] * 6
    calls = [{"retired": True}] * 20 + [
        {"call": "nccl:_all_gather_base", "inputs": inputs, "outputs": many, "timeout": 600_000, "group_id": 3,
         "name": "a name that is longer than fifteen characters", "description": "also this one is long"},
    ]  # fmt: skip
    ranks = {("0", "default_pg"): (0, 1), ("a name that is longer than fifteen characters", "tp"): (1,)}
    made = read(recorder(calls, FORMS[form], ranks=ranks))
    assert made.members == ranks
    last = made.calls.calls[-1]
    assert len(made.calls.calls) == 21
    assert last.group == (3, "a name that is longer than fifteen characters", "also this one is long")
    assert (last.collective, last.timeout_ms, last.retired, last.completed_ns) == (21, 600_000, False, None)
    wanted = ("_all_gather_base", ("bfloat16[2, 3]", "int64[]"), ("float32[1, 2, 3]",) * 6)
    found = made.calls.forms[last.form]
    assert (found.op, found.inputs, found.outputs) == wanted


def changed() -> list[Any]:
    """The newest form with one member more, one less, or two exchanged."""
    forms = []
    for index, (name, size, alignment) in enumerate(NEWEST):
        added = [*NEWEST[:index], ("added", 8, 8), *NEWEST[index:]]
        forms += [pytest.param(added, id=f"added before {name}")]
        if name != "retired":
            forms += [pytest.param([*NEWEST[:index], *NEWEST[index + 1 :]], id=f"without {name}")]
            wider = [*NEWEST[:index], (name, size, alignment), ("added", 8, 8), *NEWEST[index + 1 :]]
            forms += [pytest.param(wider, id=f"longer {name}")]
    return forms


@pytest.mark.parametrize("members", changed())
def test_a_form_that_is_one_member_off_is_refused(members: list[Member]) -> None:
    """Also with numbers of entries that the size of another form divides."""
    for calls in (3, 63, 64, 512):
        with pytest.raises(Unreadable, match="form that hangdoc does not know"):
            copied(recorder(calls, members, epoch=0))


def test_a_full_ring_has_its_last_calls() -> None:
    calls = [{"id": 100 + number if number < 20 else 50 + number} for number in range(50)]
    ring = recorder(calls, limit=50, made=120, next=20)
    numbers = [call.id for call in read(ring).calls.calls]
    assert numbers == list(range(71, 120)), "without the oldest, which may just be overwritten"
    assert [call.id for call in read(ring, newest=30).calls.calls] == list(range(90, 120))


def test_a_slot_that_is_being_written_is_left_out() -> None:
    """torch advances `next_`, writes the slot, and counts the entry last."""
    calls = [{"id": 100 + number if number < 21 else 50 + number} for number in range(50)]
    ring = recorder(calls, limit=50, made=120, next=21)
    assert [call.id for call in read(ring).calls.calls][-1] == 119
    calls[20]["id"] = 70  # not even its number was written
    ring = recorder(calls, limit=50, made=120, next=21)
    assert [call.id for call in read(ring).calls.calls][-1] == 119


def test_calls_of_before_a_reset_are_left_out() -> None:
    calls = [{"id": 200 + number, "epoch": 0} for number in range(20)]
    calls += [{"id": number, "epoch": 1} for number in range(10)]
    ring = recorder(calls, made=10, epoch=1)
    assert [call.id for call in read(ring).calls.calls] == list(range(10))


def test_headers_that_are_none() -> None:
    good = bytes(recorder().pages[INSTANCE][:256])
    assert parse_header(good, INSTANCE) is not None
    assert parse_header(good, INSTANCE + 16) is None, "its maps point at themselves"
    for at in (0, 48, 56, 64, 72, 80, 136, 168, 216):
        bad = bytearray(good)
        bad[at : at + 8] = b"\xff" * 8
        assert parse_header(bytes(bad), INSTANCE) is None, at
    assert parse_header(bytes(256), INSTANCE) is None
    off = parse_header(bytes(recorder(0, limit=0, next=0).pages[INSTANCE][:256]), INSTANCE)
    assert off is not None
    assert not off.enabled


# --- what it says of groups ------------------------------------------------------------------------------------------


def test_nccls_own_entries() -> None:
    now = time.time_ns()
    times = {"started": now - 3 * 10**9, "completed": now - 2 * 10**9, "made": now - 5 * 10**9, "retired": True}
    cuda = {"call": "nccl:all_reduce", "timeout": 600_000}
    calls = [
        {**cuda, **times, "duration": 1.5},
        {**cuda, "call": "nccl:send 0->1", "is_p2p": True, "collective": 1, "p2p": 1},
        {**cuda, "call": "nccl:_reduce_scatter_base", "collective": 2},  # in a coalesced call: nothing retires it
        {**cuda, **times, "call": "nccl:coalesced", "collective": 2, "inputs": [], "outputs": []},
        {**cuda, "made": now - 4 * 10**9, "collective": 3},
    ]
    ring = recorder(calls, ranks={("0", "default_pg"): (0, 1, 2), ("7", "tp"): (1, 2)})
    record = read(ring, "cuda")
    assert record.calls.calls[0].duration_ms == 1.5
    assert record.calls.calls[1].is_p2p
    found = recorder_of([record], {"cuda": 1})
    (group,) = found.groups
    assert (group.name, group.default, group.ranks) == ("0", True, (0, 1, 2))
    assert (group.issued, group.issued_before) == (3, 1)
    assert [(one.seq, one.op, one.timeout_seconds) for one in group.pending] == [(3, "all_reduce", 600.0)]
    assert group.pending[0].age_seconds == pytest.approx(4, abs=1)
    assert group.completed is not None
    assert (group.completed.seq, group.completed.op) == (2, "coalesced")
    assert group.history is not None
    assert group.history.numbers == (1, 2, 3)
    assert group.history.finished_us == (times["completed"] // 1000, times["completed"] // 1000, None)
    assert [found.forms[form].op for form in group.history.forms] == ["all_reduce", "coalesced", "all_reduce"]


def test_a_group_that_was_made_again_counts_anew() -> None:
    calls = [{"group_id": 0}] * 5 + [{"group_id": 1, "collective": number} for number in range(1, 4)]
    (group,) = recorder_of([read(recorder(calls))], {"cpu": 5}).groups
    assert (group.issued, group.issued_before) == (3, 0)


def test_a_group_with_two_backends() -> None:
    records = [read(recorder(), "cpu"), read(recorder(7), "cuda")]
    groups = recorder_of(records, {}).groups
    assert [(group.name, group.default, group.issued, group.issued_before) for group in groups] == [
        ("0", True, 7, None),
        ("0 (cpu)", False, 40, None),
    ]


def test_a_record_without_calls() -> None:
    empty = recorder_of([read(recorder(0))], {})
    assert (empty.groups, empty.capacity) == ((), 2000)


def test_the_cheap_reading_is_cheap() -> None:
    """The last 64 entries are read without the other ones."""
    ring = recorder(400)
    for page in [page for page in ring.pages if 0x100000 <= page < 0x100000 + 512 * 200 - 4096]:
        del ring.pages[page]
    assert len(copied(ring, 64).entries) == 64


def test_only_what_is_new_is_read_again() -> None:
    """Of the entries of the look before, neither shapes nor frames are read again; one that has ended meanwhile is new."""
    calls: list[dict[str, Any]] = [{"retired": number < 39} for number in range(40)]
    codes = Codes(None)
    decoder = Decoder(codes)
    with opened(recorder(calls)) as memory:
        first = copy_ring(memory, INSTANCE, 64, codes)
    before = decoder.decode(first)
    later = recorder([*calls[:39], {"retired": True, "made": calls[39].get("made", time.time_ns())}, {"inputs": []}])
    for entry, (address, words) in enumerate(first.entries[:39]):
        later.put(address, struct.pack(f"<{len(words)}Q", *words))
        assert later.size * entry + RING == address
    with opened(later) as memory:
        second = copy_ring(memory, INSTANCE, 64, codes, first)
        assert second.fresh == {39, 40}
        found = decoder.decode(second, before)
    assert found.calls[:39] == before.calls[:39]
    assert [call.retired for call in found.calls[38:]] == [True, True, False]
    assert found.forms[found.calls[40].form].inputs == ()
