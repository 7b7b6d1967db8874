"""A made-up process whose memory holds torch's flight recorder, in any of its forms."""

import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hangdoc.observe.memory.memory import Memory
from hangdoc.observe.memory.object_layout import Layout
from hangdoc.observe.torch.recorded_frames import Codes
from hangdoc.observe.torch.recorder_layout import Member
from hangdoc.observe.torch.recorder_ring import Copy, copy_ring
from tests.hostile.fuzz.fake_memory import memory_of
from tests.unit.made_memory import MadeMemory

INSTANCE, RING, HEAP = 0x10000, 0x100000, 0x4000000
FLOAT, LONG = 6, 4


@dataclass
class Recorder(MadeMemory):
    """The instance and its entries. `members` are those of an entry (`entry_members`)."""

    members: Sequence[Member]
    calls: Sequence[dict[str, Any]] = ()
    limit: int = 2000
    next: int | None = None
    made: int | None = None
    epoch: int | None = 0
    """None for torch before 2.10."""
    ranks: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    pages: dict[int, bytearray] = field(default_factory=dict)
    _heap: int = HEAP

    def __post_init__(self) -> None:
        self.size = 0
        for index, call in enumerate(self.calls):
            raw = self._entry(RING + index * self.size, {"id": index, **call})
            self.put(RING + index * self.size, raw)
        count, made = len(self.calls), len(self.calls) if self.made is None else self.made
        following = made % self.limit if self.next is None else self.next
        end = RING + count * self.size
        header = bytearray(256)
        struct.pack_into("<6Q", header, 48, *((RING, end, end) if count else (0, 0, 0)), self.limit, following, made)
        header[0] = self.limit > 0
        if self.epoch is not None:
            struct.pack_into("<Q", header, 96, self.epoch)
            struct.pack_into("<I", header, 136, 0x3F800000)
        first_map = 160 if self.epoch is not None else 96
        struct.pack_into("<Q4Q", header, first_map + 8, 0, 0, *[INSTANCE + first_map + 8] * 2, 0)
        root = self._tree(list(self.ranks.items()))
        ends = [root, root] if root else [INSTANCE + first_map + 56] * 2
        struct.pack_into("<Q4Q", header, first_map + 56, 0, root, *ends, len(self.ranks))
        self.put(INSTANCE, header)

    def _tree(self, items: list[tuple[tuple[str, str], tuple[int, ...]]]) -> int:
        """A std::map, as a list that only goes right."""
        if not items:
            return 0
        (name, description), ranks = items[0]
        right = self._tree(items[1:])
        node, self._heap = self._heap, self._heap + 256
        vector = self.new(struct.pack(f"<{len(ranks)}Q", *ranks))
        raw = struct.pack("<4Q", 1, 0, 0, right)
        for text in (description, name):
            raw += self._shared_string(text) if ("call", 8, 8) in self.members else self._string(text, node + len(raw))
        self.put(node, raw + struct.pack("<3Q", vector, *[vector + 8 * len(ranks)] * 2))
        return node

    def _string(self, text: str, address: int) -> bytes:
        raw = text.encode()
        if len(raw) < 16:
            return struct.pack("<QQ16s", address + 16, len(raw), raw)
        return struct.pack("<QQQ8x", self.new(raw + b"\0"), len(raw), len(raw))

    def _shared_string(self, text: str) -> bytes:
        raw = text.encode()
        return struct.pack("<Q", self.new(struct.pack("<3Q", len(raw), len(raw), 0) + raw.ljust(128, b"\0")) + 24)

    def _small_vector(self, numbers: Sequence[int], inline: int, address: int, width: int = 8) -> bytes:
        raw = struct.pack(f"<{len(numbers)}{'q' if width == 8 else 'i'}", *numbers)
        if len(numbers) <= inline:
            return struct.pack("<QII", address + 16, len(numbers), inline) + raw.ljust(width * inline, b"\0")
        return struct.pack("<QII", self.new(raw), len(numbers), len(numbers)) + bytes(width * inline)

    def _entry(self, address: int, call: dict[str, Any]) -> bytes:
        inputs, outputs = call.get("inputs", [(FLOAT, (4, 3))]), call.get("outputs", [(FLOAT, (4, 3))])
        started, completed = call.get("started"), call.get("completed")
        values: dict[str, Any] = {
            "name": "0", "description": "default_pg", "call": "gloo:all_reduce", "thread_name": "python",
            "made": time.time_ns(), "timeout": 1_800_000, "group_id": 0, "epoch": 0, "p2p": 0, "thread": 140, **call,
        }  # fmt: skip
        values.setdefault("collective", values["id"] + 1)
        values.setdefault("operation", values["collective"])
        out = bytearray()
        for name, size, alignment in self.members:
            out += bytes(-len(out) % alignment)
            at = address + len(out)
            if name in ("name", "description", "call", "thread_name"):
                out += self._string(values[name], at) if size == 32 else self._shared_string(values[name])
            elif name in ("input_dims", "output_dims"):
                shapes = [shape for _, shape in (inputs if name[0] == "i" else outputs)]
                out += self._small_vector([len(shape) for shape in shapes], 4, at, 4 if size == 32 else 8)
            elif name in ("input_dtypes", "output_dtypes"):
                types = bytes(dtype for dtype, _ in (inputs if name[0] == "i" else outputs))
                vector = self.new(types) if types else 0
                out += struct.pack("<3Q", vector, *[vector + len(types)] * 2)
            elif name == "sizes":
                out += self._small_vector([n for _, shape in [*inputs, *outputs] for n in shape], 8, at)
            elif name in ("started", "completed"):
                time_ns = started if name == "started" else completed
                out += struct.pack("<Q?7x", time_ns or 0, time_ns is not None)
            elif name == "duration":
                out += struct.pack("<f?3x", call.get("duration") or 0, call.get("duration") is not None)
            elif name in ("is_p2p", "retired"):
                out += bytes([bool(values.get(name))])
            elif size == 8:
                out += struct.pack("<Q", values.get(name, 0x7FFF_1234_5678))
            else:
                out += bytes(size)
        out += bytes(-len(out) % 8)
        self.size = len(out)
        return bytes(out)


@contextmanager
def opened(recorder: Recorder) -> Iterator[Memory]:
    """The memory of the process."""
    with memory_of(dict(recorder.pages)), Memory(1, Layout()) as memory:
        yield memory


def copied(recorder: Recorder, newest: int = 4_000) -> Copy:
    """The entries that hangdoc copies."""
    with opened(recorder) as memory:
        return copy_ring(memory, INSTANCE, newest, Codes(None))
