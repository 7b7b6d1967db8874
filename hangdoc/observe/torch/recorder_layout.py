"""Where the entries of torch's flight recorder store their members, by version of torch.

A layout is the list of the members with their sizes and alignments; the offsets follow from the C++ ABI of gcc and libstdc++.
Which of the layouts a process has is decided by its entries, not by the version of torch: nearly all values must be possible, or
the record is refused. Source: torch/csrc/distributed/c10d/FlightRecorder.hpp of 2.6 to 2.14 and NCCLUtils.hpp of 2.5. `make
layouts` compares them with torch's own dumps.
"""

import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

_WORD, _BOOL, _STRING, _COW_STRING = (8, 8), (1, 1), (32, 8), (8, 8)
_SHARED, _VECTOR, _DIMENSIONS, _NARROW_DIMENSIONS, _SIZES = (16, 8), (24, 8), (48, 8), (32, 8), (80, 8)
_OPTIONAL_FLOAT, _OPTIONAL_TIME = (8, 4), (16, 8)
_OLDEST_NS, _AHEAD_NS = 1_400_000_000 * 10**9, 86_400 * 10**9
_LONGEST_MS = 10**12
_MAX_NUMBER = 1 << 48
_LOWEST, _HIGHEST = 4096, 1 << 47
_MAX_TEXT = 1 << 16
LEAST_SCORE = 0.99
"""The share of possible values below which a layout is refused."""

Member = tuple[str, int, int]
"""Name, size, alignment."""
Words = tuple[int, ...]
"""The 64-bit words of an entry."""


class EntryLayout(NamedTuple):
    """Where the members of an entry are, as numbers of 64-bit words. A flag is the lowest byte of its word."""

    size: int
    """Bytes of an entry."""
    copied_strings: bool
    """A std::string is a pointer to characters that others share: the ABI before C++11, which torch had up to 2.6."""
    has_epoch: bool
    width: int
    """Bytes of a number of dimensions: 4 in torch 2.5, 8 since."""
    id: int
    epoch: int
    """-1 if entries have none; `thread` likewise."""
    group_id: int
    description: int
    name: int
    collective: int
    p2p: int
    operation: int
    call: int
    traceback: int
    events: int
    made: int
    timeout: int
    is_p2p: int
    duration: int
    """A float in the upper half of this word; the lowest byte of the next word says whether it is there."""
    started: int
    completed: int
    input_dims: int
    input_dtypes: int
    output_dims: int
    output_dtypes: int
    sizes: int
    thread: int
    thread_name: int
    retired: int


def entry_members(*, epochs: bool, threads: bool, copied_strings: bool, narrow: bool = False) -> list[Member]:
    """The members of an entry in their order. libstdc++ stores the tuple of name and description backwards. `narrow`: a number of
    dimensions has 32 bits."""
    text = _COW_STRING if copied_strings else _STRING
    dimensions = _NARROW_DIMENSIONS if narrow else _DIMENSIONS
    return [
        ("id", *_WORD), *([("epoch", *_WORD)] if epochs else []), ("group_id", *_WORD), ("description", *text),
        ("name", *text), ("collective", *_WORD), ("p2p", *_WORD), ("operation", *_WORD), ("call", *text),
        ("traceback", *_SHARED), ("events", 16, 8), ("made", *_WORD), ("timeout", *_WORD), ("is_p2p", *_BOOL),
        ("duration", *_OPTIONAL_FLOAT), ("started", *_OPTIONAL_TIME), ("completed", *_OPTIONAL_TIME),
        ("input_dims", *dimensions), ("input_dtypes", *_VECTOR), ("output_dims", *dimensions),
        ("output_dtypes", *_VECTOR), ("sizes", *_SIZES),
        *([("thread", *_WORD), ("thread_name", *text)] if threads else []), ("retired", *_BOOL),
    ]  # fmt: skip


def layout_of(members: Iterable[Member]) -> EntryLayout:
    """The layout of these members."""
    offset, words, sizes = 0, {"epoch": -1, "thread": -1, "thread_name": -1}, {}
    for name, size, alignment in members:
        offset = -(-offset // alignment) * alignment
        words[name], sizes[name] = offset // 8, size
        offset += size
    return EntryLayout(
        size=-(-offset // 8) * 8,
        copied_strings=sizes["call"] == 8,
        has_epoch=words["epoch"] >= 0,
        width=4 if sizes["input_dims"] == _NARROW_DIMENSIONS[0] else 8,
        **words,
    )


LAYOUTS = tuple(
    layout_of(entry_members(epochs=epochs, threads=threads, copied_strings=copied, narrow=narrow))
    for copied in (False, True)
    for epochs, threads, narrow in (
        (True, True, False), (True, False, False), (False, True, False), (False, False, False), (False, False, True),
    )
)  # fmt: skip


def score(layout: EntryLayout, entries: Iterable[tuple[int, Words]], made: int | None, now_ns: int) -> float:
    """The share of values that are possible in this layout, of entries given by address and words; 0 for none. `made` is the
    number of entries that were ever made; None if they have begun at 0 again."""
    right = tried = 0
    tests = _tests(layout)
    previous: tuple[int, int] | None = None
    for address, words in entries:
        results = [test(words, address) for test in tests]
        number = words[layout.id]
        results += [
            number < (_MAX_NUMBER if made is None else made),
            _OLDEST_NS < words[layout.made] < now_ns + _AHEAD_NS,
        ]
        if previous is not None and previous[0] + layout.size == address:  # a neighbour, which was made next
            results.append(number in (previous[1] + 1, 0))
        previous = address, number
        right += sum(results)
        tried += len(results)
    return right / tried if tried else 0.0


def is_possible(layout: EntryLayout, words: Words, now_ns: int) -> bool:
    """Whether these values of an entry agree with each other: as many dtypes as shapes, and sizes for all dimensions that the
    entry itself holds."""
    return (
        _OLDEST_NS < words[layout.made] < now_ns + _AHEAD_NS
        and words[layout.retired] & 0xFF < 2
        and _pairs(words, layout.input_dims, layout.input_dtypes)
        and _pairs(words, layout.output_dims, layout.output_dtypes)
    )


def _pairs(words: Words, dims: int, dtypes: int) -> bool:
    """Whether there are as many dtypes as numbers of dimensions."""
    return words[dims + 1] & 0xFFFFFFFF == words[dtypes + 1] - words[dtypes]


def _tests(layout: EntryLayout) -> list[Callable[[Words, int], bool]]:
    """What must be true of the words of an entry at an address."""
    text = _is_shared_text if layout.copied_strings else _is_text
    texts = [at for at in (layout.description, layout.name, layout.call, layout.thread_name) if at >= 0]
    return [
        *(lambda words, address, at=at: text(words, at, address) for at in texts),
        *(
            lambda words, address, at=at, inline=inline: _is_small_vector(words, at, address, inline)
            for at, inline in ((layout.input_dims, 4), (layout.output_dims, 4), (layout.sizes, 8))
        ),
        *(
            lambda words, _, at=at: words[at] & 0xFF < 2
            for at in (layout.is_p2p, layout.duration + 1, layout.started + 1, layout.completed + 1, layout.retired)
        ),
        *(
            lambda words, _, at=at: words[at] < _MAX_NUMBER
            for at in (layout.group_id, layout.collective, layout.p2p, layout.operation)
        ),
        *(
            lambda words, _, at=at: words[at] == 0 or _is_pointer(words[at])
            for at in (layout.traceback, layout.traceback + 1, layout.events, layout.events + 1)
        ),
        *(
            lambda words, _, at=at: words[at] <= words[at + 1] <= words[at + 2] < _HIGHEST
            for at in (layout.input_dtypes, layout.output_dtypes)
        ),
        lambda words, _: words[layout.timeout] < _LONGEST_MS,
        lambda words, _: _pairs(words, layout.input_dims, layout.input_dtypes),
        lambda words, _: _pairs(words, layout.output_dims, layout.output_dtypes),
    ]


def _is_pointer(word: int) -> bool:
    return _LOWEST <= word < _HIGHEST and not word % 8


def _is_text(words: Words, at: int, address: int) -> bool:
    """A std::string that holds up to 15 characters itself."""
    length = words[at + 1]
    return length < 16 if words[at] == address + 8 * at + 16 else _is_pointer(words[at]) and 15 < length < _MAX_TEXT


def _is_shared_text(words: Words, at: int, _address: int) -> bool:
    return _is_pointer(words[at])


def _is_small_vector(words: Words, at: int, address: int, inline: int) -> bool:
    """A c10::SmallVector with room for `inline` elements in itself."""
    size, room = words[at + 1] & 0xFFFFFFFF, words[at + 1] >> 32
    inside = words[at] == address + 8 * at + 16
    return size <= room and (room == inline if inside else room > inline and _is_pointer(words[at]))


def split_words(raw: bytes, layout: EntryLayout) -> list[tuple[int, ...]]:
    """The words of each entry in `raw`."""
    return list(struct.iter_unpack(f"<{layout.size // 8}Q", raw))
