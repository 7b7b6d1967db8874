"""Copies entries of torch's flight recorder out of a process that goes on recording.

The process is not stopped and its lock is not taken. So all bytes are copied first: the header, the entries, what they point to,
and the header again. The slots that were written meanwhile are then dropped, and if the vector moved, all is copied again. Only
then is anything decoded.
"""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.torch.recorded_frames import Codes
from hangdoc.observe.torch.recorder_instance import Header, read_header
from hangdoc.observe.torch.recorder_layout import (
    LAYOUTS,
    LEAST_SCORE,
    EntryLayout,
    Words,
    is_possible,
    score,
    split_words,
)

MOST_ENTRIES = 4_000
"""Of a record of any size, the last ones. torch keeps 2,000 by default."""
_SAMPLE = 64
"""Entries by which a layout is chosen."""
_TRIES = 5
_LEAST = 8
"""Entries that are read at least."""
_MAX_DIMS, _MAX_SIZES, _MAX_TYPES = 2_048, 4_096, 2_048
"""Elements of vectors. A call with more tensors is kept without their shapes."""
_MAX_TEXT = 1_000
MOST_FRAMES = 64
_TRACEBACK_BYTES, _FRAME_BYTES = 32, 16
_COW_BEFORE, _COW_AFTER = 24, 104
"""Bytes that are read around the pointer of a shared std::string: its length is stored in front of the characters."""

Blocks = dict[tuple[int, int], bytes]
"""What was read, by address and size."""


class Copy(NamedTuple):
    """Entries as they were at one moment."""

    header: Header
    layout: EntryLayout | None
    """None if there are no entries."""
    entries: list[tuple[int, Words]]
    """By address, oldest first."""
    fresh: frozenset[int]
    """Numbers of the entries that are new, or other than in the last copy."""
    blocks: Blocks
    """What the fresh entries point to."""
    raw: bytes
    """The entries as they were read."""
    read_ns: int
    """When the header was read: nanoseconds since 1970."""


def copy_ring(memory: Memory, address: int, newest: int, codes: Codes, last: Copy | None = None) -> Copy:
    """The `newest` entries of the recorder at `address`. `codes` reads the code objects of their frames. `last` is the copy of
    the look before: of an entry that is still the same, what it points to is not read again. Raises Unreadable."""
    codes.learn(memory)
    wanted = min(newest, MOST_ENTRIES)
    for attempt in range(_TRIES):
        read_ns = time.time_ns()
        header = read_header(memory, address)
        if not header.begin or header.begin == header.end:
            return Copy(header, None, [], frozenset(), {}, b"", read_ns)
        try:
            same = last if last is not None and last.header.begin == header.begin else None
            layout = (same.layout if same is not None else None) or _find_layout(memory, header, read_ns)
            slots = list(_list_newest_slots(header, layout, wanted))
            raw = _read_slots(memory, header, layout, slots)
            if last is not None and (header, raw) == (last.header, last.raw):
                return last._replace(fresh=frozenset(), blocks={}, read_ns=read_ns)
            words = split_words(raw, layout)
            entries = [(header.begin + slot * layout.size, entry) for slot, entry in zip(slots, words, strict=True)]
            before = {words[layout.id]: words for _, words in same.entries} if same is not None else {}
            fresh = [entry for entry in entries if before.get(entry[1][layout.id]) != entry[1]]
            blocks = _read_blocks(memory, layout, fresh, codes)
        except Unreadable:
            if read_header(memory, address).begin == header.begin:
                raise
            continue  # the vector has moved, and its old memory may be gone
        after = read_header(memory, address)
        overwritten = _find_overwritten(header, after, layout, slots)
        torn = 0 if overwritten is None else len(overwritten)
        if overwritten is None or (2 * torn > len(slots) and attempt < _TRIES - 1):
            # The first time takes longest, because code objects are read. The last entries are overwritten last.
            wanted = max(_LEAST, min(wanted, len(slots)) // (4 if attempt else 1))
            continue
        kept = _drop_torn(header, layout, slots, entries, overwritten)
        new = frozenset(words[layout.id] for _, words in fresh)
        possible = [entry for entry in kept if entry[1][layout.id] not in new or is_possible(layout, entry[1], read_ns)]
        if len(kept) - len(possible) > max(1, (1 - LEAST_SCORE) * len(kept)):
            raise Unreadable("torch's flight recorder holds entries of an unknown form")
        return Copy(header, layout, possible, new, blocks, raw, read_ns)
    raise Unreadable("torch's flight recorder changed during every reading")


def _find_layout(memory: Memory, header: Header, now_ns: int) -> EntryLayout:
    """The layout in which nearly all values of some entries are possible. Raises Unreadable if there is none."""
    for layout in LAYOUTS:
        count, rest = divmod(header.end - header.begin, layout.size)
        room, more = divmod(header.allocated - header.begin, layout.size)
        if rest or more or not count or count > header.limit or room < count:
            continue
        if layout.has_epoch != (header.epoch is not None):
            continue
        # Not the slots that are being written: those before `next`, and of a part of the ring.
        last = (header.next - 2) % count
        first = max(0, last - _SAMPLE)
        raw = memory.read(header.begin + first * layout.size, max(1, last - first) * layout.size)
        words = split_words(raw, layout)
        sample = [(header.begin + (first + index) * layout.size, entry) for index, entry in enumerate(words)]
        if score(layout, sample, None if header.epoch else header.made, now_ns) >= LEAST_SCORE:
            return layout
    raise Unreadable("this version of torch stores its flight recorder in a form that hangdoc does not know")


def _list_newest_slots(header: Header, layout: EntryLayout, newest: int) -> Iterator[int]:
    """Numbers of slots, oldest first. In a full ring without the oldest one: it may just be overwritten."""
    count = (header.end - header.begin) // layout.size
    if count < header.limit:
        yield from range(max(0, count - newest), count)
        return
    last = header.next + count
    for slot in range(max(header.next + 1, last - newest), last):
        yield slot % count


def _read_slots(memory: Memory, header: Header, layout: EntryLayout, slots: list[int]) -> bytes:
    """The bytes of these slots, which are at most two runs of neighbours."""
    turn = next((index for index in range(1, len(slots)) if slots[index] != slots[index - 1] + 1), len(slots))
    return b"".join(
        memory.read(header.begin + run[0] * layout.size, len(run) * layout.size)
        for run in (slots[:turn], slots[turn:])
        if run
    )


def _find_overwritten(before: Header, after: Header, layout: EntryLayout, slots: Iterable[int]) -> set[int] | None:
    """Those of some slots that were written between two readings of the header; None if that may be all of them."""
    if after.begin != before.begin or after.epoch != before.epoch or after.limit != before.limit:
        return None
    count = (before.end - before.begin) // layout.size
    written = after.made - before.made
    if not 0 <= written < before.limit - 1:
        return None
    if count < before.limit:  # new entries went behind those that were read, and then over the first ones
        return {slot for slot in slots if slot < count + written + 1 - before.limit}
    return {slot for slot in slots if (slot - before.next) % count <= written}


def _drop_torn(
    header: Header, layout: EntryLayout, slots: list[int], entries: list[tuple[int, Words]], overwritten: set[int]
) -> list[tuple[int, Words]]:
    """The entries that were complete before the header was read and are whole: their numbers follow each other up to the last
    one that was made. torch writes a slot after it has advanced `next_` and before it counts the entry."""
    following = header.made - 1
    kept: list[tuple[int, Words]] = []
    for slot, entry in zip(reversed(slots), reversed(entries), strict=True):
        number = entry[1][layout.id]
        if number != following and slot == slots[-1]:
            continue  # it is being written
        if number != following or (layout.has_epoch and entry[1][layout.epoch] != header.epoch):
            break  # entries of before a reset
        following -= 1
        if slot not in overwritten:
            kept.append(entry)
    return kept[::-1]


def _read_blocks(memory: Memory, layout: EntryLayout, entries: list[tuple[int, Words]], codes: Codes) -> Blocks:
    """What the entries point to: texts, shapes, dtypes, and the code objects of their frames."""
    wanted: list[tuple[int, int]] = []
    for address, words in entries:
        wanted += ranges_of(layout, address, words)
        if words[layout.traceback]:
            wanted.append(traceback_range(words[layout.traceback]))
    blocks = memory.read_many(wanted)
    vectors = {
        frames
        for _, words in entries
        if (frames := frames_range(blocks.get(traceback_range(words[layout.traceback])))) is not None
    }
    blocks |= memory.read_many(vectors)
    codes.refresh(memory, (blocks[vector] for vector in vectors if vector in blocks))
    return blocks


def ranges_of(layout: EntryLayout, address: int, words: Words) -> list[tuple[int, int]]:
    """The texts, shapes and dtypes of an entry that are not stored in the entry itself."""
    texts = (layout.description, layout.name, layout.call, layout.thread_name)
    ranges = [
        *(text_range(layout, words, at, address) for at in texts if at >= 0),
        elements_range(words, layout.input_dims, address, _MAX_DIMS, layout.width),
        elements_range(words, layout.output_dims, address, _MAX_DIMS, layout.width),
        elements_range(words, layout.sizes, address),
        types_range(words, layout.input_dtypes),
        types_range(words, layout.output_dtypes),
    ]
    return [each for each in ranges if each is not None]


def text_range(layout: EntryLayout, words: Words, at: int, address: int) -> tuple[int, int] | None:
    """The memory of a std::string; None if the entry itself holds its characters."""
    if layout.copied_strings:
        return words[at] - _COW_BEFORE, _COW_BEFORE + _COW_AFTER
    if words[at] == address + 8 * at + 16:
        return None
    return words[at], min(words[at + 1], _MAX_TEXT)


def elements_range(
    words: Words, at: int, address: int, most: int = _MAX_SIZES, width: int = 8
) -> tuple[int, int] | None:
    """The elements, of `width` bytes, of a c10::SmallVector in memory; None if the entry itself holds them, or if there are too
    many."""
    count = words[at + 1] & 0xFFFFFFFF
    return None if words[at] == address + 8 * at + 16 or count > most else (words[at], width * count)


def types_range(words: Words, at: int) -> tuple[int, int] | None:
    """The memory of a std::vector of c10::ScalarType, a byte each; None if it is empty or too long."""
    count = words[at + 1] - words[at]
    return (words[at], count) if 0 < count <= _MAX_TYPES else None


def traceback_range(address: int) -> tuple[int, int]:
    """The memory of a CapturedTraceback, as far as it is read."""
    return address, _TRACEBACK_BYTES


def frames_range(traceback: bytes | None) -> tuple[int, int] | None:
    """The memory of the innermost frames of a CapturedTraceback: pairs of a code object and the offset of an instruction
    (torch/csrc/profiler/combined_traceback.h, torch/csrc/profiler/python/combined_traceback.cpp)."""
    if traceback is None:
        return None
    first, last = int.from_bytes(traceback[8:16], "little"), int.from_bytes(traceback[16:24], "little")
    size = min(last - first, MOST_FRAMES * _FRAME_BYTES)
    return (first, size) if size > 0 and not size % _FRAME_BYTES else None
