"""A rank that forges torch's flight recorder in its memory: it spoils only its own evidence, within its budget."""

import struct
from collections.abc import Callable, Iterator

import pytest

from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.memory.object_layout import Layout
from hangdoc.observe.torch import recorder_instance
from hangdoc.observe.torch.flight_recorder import FlightRecorders
from hangdoc.observe.torch.libraries import torch_libraries
from hangdoc.observe.torch.recorded_calls import Decoder
from hangdoc.observe.torch.recorded_frames import Codes
from hangdoc.observe.torch.recorded_members import read_members
from hangdoc.observe.torch.recorder_instance import Header, find_instance, parse_header, read_header
from hangdoc.observe.torch.recorder_layout import entry_members, layout_of
from hangdoc.observe.torch.recorder_ring import copy_ring
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import FlightRecorder, Unavailable
from tests.hostile.forged_process import ForgedProcess
from tests.hostile.fuzz.bounds import bounded
from tests.live.recorded import recording
from tests.pythons import observed
from tests.unit.recorder_memory import INSTANCE, RING, Recorder, opened

_CALLS = 90
LAYOUT = layout_of(entry_members(epochs=True, threads=True, copied_strings=False))
NOWHERE = 0x6666_0000_0000


class Victim(ForgedProcess):
    """A rank whose memory the test changes, and restores."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        loaded = torch_libraries(ProcFS(), pid)
        with Memory(pid, Layout()) as memory:
            address = find_instance(memory, loaded.libraries[0], loaded.heaps)
            assert address is not None
            self.header: Header = read_header(memory, address)

    def in_each_entry(self, word: int, *values: int) -> dict[int, bytes]:
        """These words in every entry."""
        raw = struct.pack(f"<{len(values)}Q", *values)
        return {self.header.begin + entry * LAYOUT.size + 8 * word: raw for entry in range(_CALLS)}

    @property
    def spare(self) -> int:
        """Memory behind the last entry, which the vector has reserved."""
        return self.header.end


@pytest.fixture(scope="module")
def victim(can_attach: None) -> Iterator[Victim]:
    with recording("some", str(_CALLS // 3)) as pid:
        yield Victim(pid)


@pytest.fixture(scope="module")
def good(can_attach: None) -> Iterator[int]:
    with recording("some", "4") as pid:
        yield pid


def huge(victim: Victim) -> dict[int, bytes]:
    """Ten million entries, most of them nowhere."""
    header = victim.header
    end = header.begin + 10_000_000 * LAYOUT.size
    return {header.address + 56: struct.pack("<5Q", end, end, 10_000_000, 9_999_999, 10_000_000)}


def elsewhere(victim: Victim) -> dict[int, bytes]:
    end = NOWHERE + 64 * LAYOUT.size
    return {victim.header.address + 48: struct.pack("<3Q", NOWHERE, end, end)}


def circle(victim: Victim) -> dict[int, bytes]:
    """A std::map whose node is its own child, and that says that it has a million."""
    node = victim.spare
    members = struct.pack("<4Q", node, node, node, 1 << 20)
    return {victim.header.members + 16: members, node: struct.pack("<4Q", 0, node, node, node)}


def vast_shapes(victim: Victim) -> dict[int, bytes]:
    vector = struct.pack("<QII", victim.header.begin, 0xFFFF_FFFF, 0xFFFF_FFFF)
    return victim.in_each_entry(LAYOUT.sizes, *struct.unpack("<2Q", vector))


def no_tracebacks(victim: Victim) -> dict[int, bytes]:
    return victim.in_each_entry(LAYOUT.traceback, NOWHERE)


def endless_tracebacks(victim: Victim) -> dict[int, bytes]:
    """A hundred million frames, which begin in the ring itself."""
    frames = struct.pack("<4Q", 0, victim.header.begin, victim.header.begin + 16 * 10**8, 0)
    return {victim.spare: frames, **victim.in_each_entry(LAYOUT.traceback, victim.spare)}


def no_codes(victim: Victim) -> dict[int, bytes]:
    """Frames whose code objects are entries, the header, and nowhere."""
    first = victim.spare + 64
    codes = [victim.header.begin, victim.header.address, NOWHERE, 0, 1 << 63, victim.header.begin + 8] * 4
    frames = b"".join(struct.pack("<Qi4x", code, -7) for code in codes)
    about = struct.pack("<4Q", 0, first, first + len(frames), 0)
    return {victim.spare: about, first: frames, **victim.in_each_entry(LAYOUT.traceback, victim.spare)}


def other_times(victim: Victim) -> dict[int, bytes]:
    return victim.in_each_entry(LAYOUT.made, 1 << 63, 1 << 63)


def texts_nowhere(victim: Victim) -> dict[int, bytes]:
    return victim.in_each_entry(LAYOUT.name, NOWHERE, 60_000)


REFUSED = (huge, elsewhere, other_times)
ATTACKS = (*REFUSED, circle, vast_shapes, no_tracebacks, endless_tracebacks, no_codes, texts_nowhere)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_forged_record_beside_a_good_one(
    attack: Callable[[Victim], dict[int, bytes]], victim: Victim, good: int
) -> None:
    probe = FlightRecorders(whole=True)
    with victim.forged(attack(victim)), observed(victim.pid, good) as observation, bounded(seconds=3.0):
        for step in (probe.open, probe.during, probe.close):
            step(observation)
        found = {pid: value for pid, _, value in probe.evidence(observation)}
    assert isinstance(seen := found[good], FlightRecorder)
    assert [group.issued for group in seen.groups] == [12]
    assert all(form.frames[-1].function == "<module>" for form in seen.forms)
    spoiled = found[victim.pid]
    if attack in REFUSED:
        assert isinstance(spoiled, Unavailable)
    else:
        assert isinstance(spoiled, FlightRecorder)
        assert len(spoiled.groups) == 1
        assert (spoiled.groups[0].ranks, spoiled.groups[0].issued) == ((), _CALLS)


def test_what_one_process_has_forged_is_not_believed_of_another(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It maps the genuine library, and its variables point at a forged instance, elsewhere."""
    loaded = torch_libraries(ProcFS(), victim.pid)
    library = loaded.libraries[0]
    for offset in (0, 8 * 1000, 1 << 40):
        monkeypatch.setattr(recorder_instance, "_offsets", {(library.device, library.inode): offset})
        with Memory(victim.pid, Layout()) as memory:
            assert find_instance(memory, library, loaded.heaps) == victim.header.address


def test_the_table_of_places_stays_small(victim: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may map as many copies of a library as it likes."""
    loaded = torch_libraries(ProcFS(), victim.pid)
    monkeypatch.setattr(recorder_instance, "_offsets", {("copy", number): 8 for number in range(1_000)})
    with Memory(victim.pid, Layout()) as memory:
        find_instance(memory, loaded.libraries[0], loaded.heaps)
    assert len(recorder_instance._offsets) <= 64


def test_a_million_instances_are_searched_within_the_budget() -> None:
    """Variables that point to as many places as there are words."""
    from hangdoc.observe.torch.libraries import Library

    start, heap = 0x1000_0000, 0x4000_0000
    words = struct.pack("<131072Q", *(heap + 16 * index for index in range(1 << 17)))
    made = Recorder([], [])
    made.put(start, words)
    made.put(heap, bytes(1 << 21))
    library = Library("cpu", "0:1", 7, start, start + len(words))
    with bounded(seconds=3.0), opened(made) as memory:
        assert find_instance(memory, library, [(heap, heap + (1 << 21))]) is None


def test_a_record_that_never_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its vector moves between every two readings."""
    made = Recorder(entry_members(epochs=True, threads=True, copied_strings=False), [{}] * 20)
    moved = 0

    def moving(memory: Memory, address: int) -> Header:
        nonlocal moved
        moved += 1
        header = parse_header(memory.read(address, recorder_instance.HEADER_BYTES), address)
        assert header is not None
        return header._replace(begin=RING - LAYOUT.size * (moved % 2), end=header.end)

    made.put(RING - LAYOUT.size, bytes(LAYOUT.size))
    monkeypatch.setattr("hangdoc.observe.torch.recorder_ring.read_header", moving)
    with opened(made) as memory, pytest.raises(Unreadable):
        copy_ring(memory, INSTANCE, 64, Codes(None))
    assert moved < 30


def test_members_of_a_tree_without_end() -> None:
    """Each node has two children that are new."""
    made = Recorder(entry_members(epochs=True, threads=True, copied_strings=False), [{}] * 20)
    base = 0x8000_0000
    nodes = 5_000
    for number in range(nodes):
        children = [base + 256 * min(2 * number + more, nodes - 1) for more in (1, 2)]
        made.put(base + 256 * number, struct.pack("<4Q", 0, 0, *children) + bytes(96))
    made.put(INSTANCE + 208 + 16, struct.pack("<4Q", base, base, base, nodes))
    with bounded(seconds=1.0), opened(made) as memory:
        assert read_members(memory, INSTANCE + 208, copied_strings=False) == {}


def test_as_many_and_as_large_calls_as_fit() -> None:
    """Each of 4,000 entries has vectors of the largest size that is read, and none has the sizes of another one."""
    members = entry_members(epochs=True, threads=True, copied_strings=False)
    made = Recorder(members, [{}] * 4_000, limit=10_000)
    dims, types = made.new(struct.pack("<64Q", *[16] * 64)), made.new(bytes(64))
    sizes = made.new(struct.pack("<5120Q", *((1 << 62) + number for number in range(5_120))))
    for entry in range(4_000):
        at = RING + entry * LAYOUT.size
        made.put(at + 8 * LAYOUT.input_dims, struct.pack("<QII", dims, 64, 64))
        made.put(at + 8 * LAYOUT.output_dims, struct.pack("<QII", dims, 0, 64))
        made.put(at + 8 * LAYOUT.sizes, struct.pack("<QII", sizes + 8 * entry, 1_024, 1_024))
        made.put(at + 8 * LAYOUT.input_dtypes, struct.pack("<3Q", types, types + 64, types + 64))
        made.put(at + 8 * LAYOUT.output_dtypes, bytes(24))
    with bounded(seconds=3.0), opened(made) as memory:
        calls = Decoder(Codes(None)).decode(copy_ring(memory, INSTANCE, 4_000, Codes(None)))
    assert len(calls.calls) == 4_000
    assert len(calls.forms[calls.calls[-1].form].inputs) == 64
    assert sum(len(text) for form in calls.forms for text in form.inputs) < 8 << 20
