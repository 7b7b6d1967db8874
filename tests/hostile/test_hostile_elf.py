"""ELF files in memory whose numbers lie: each is refused, or searched within the budget of its process."""

import contextlib
import struct

import pytest

from hangdoc.observe.memory.mapped_elf import MappedFile
from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.memory.object_layout import Layout
from tests.hostile.fuzz import fake_memory
from tests.hostile.fuzz.bounds import bounded
from tests.hostile.fuzz.fake_memory import PAGE

BASE = 1 << 22
_HEADERS, _DYNAMIC, _HASH, _GNU, _STRINGS, _SYMBOLS = 64, 0x1000, 0x2000, 0x3000, 0x4000, 0x5000
_PAGES = 900


def image(
    *, header_bytes: int = 56, headers: int = 2, chain: int = 4, bloom_words: int = 1, buckets: int = 1, gnu: bool = True,
    endless: bool = False, address: int = 0,
) -> fake_memory.Pages:  # fmt: skip
    """A mapped ELF file that exports `name`, with the given numbers. `address` is added to those in its dynamic section."""
    raw = bytearray(_PAGES * PAGE)
    raw[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", raw, 32, _HEADERS)
    struct.pack_into("<HH", raw, 54, header_bytes, headers)
    struct.pack_into("<IIQQ", raw, _HEADERS, 1, 0, 0, 0)
    struct.pack_into("<IIQQ", raw, _HEADERS + 56, 2, 0, 0, _DYNAMIC)
    tables = {5: _STRINGS, 6: _SYMBOLS, **({0x6FFFFEF5: _GNU} if gnu else {4: _HASH})}
    tags = [(tag, value + address) for tag, value in tables.items()]
    if endless:
        tags += [(0x1234, 1)] * 255
    for index, (tag, value) in enumerate(tags):
        struct.pack_into("<QQ", raw, _DYNAMIC + index * 16, tag, value)
    struct.pack_into("<II", raw, _HASH, 1, chain)
    struct.pack_into("<4I", raw, _GNU, buckets, 1, bloom_words, 0)
    hashed = _GNU + 16 + 8 * min(bloom_words, 64)
    struct.pack_into("<I", raw, hashed, 1)
    wanted = 5381
    for byte in b"name":
        wanted = (wanted * 33 + byte) & 0xFFFFFFFF
    struct.pack_into("<I", raw, hashed + 4, wanted | 1)
    raw[_STRINGS : _STRINGS + 10] = b"\0nameless\0"
    raw[_STRINGS + 16 : _STRINGS + 21] = b"name\0"
    struct.pack_into("<IBBHQQ", raw, _SYMBOLS + 24, 16, 0, 0, 1, 0x77, 8)
    for index in range(2, (len(raw) - _SYMBOLS) // 24):
        struct.pack_into("<IBBHQQ", raw, _SYMBOLS + 24 * index, 1, 0, 0, 1, 0, 0)
    return {BASE + at: raw[at : at + PAGE] for at in range(0, len(raw), PAGE)}


def search(pages: fake_memory.Pages, name: str = "name") -> int | None:
    """The address of the symbol. Raises Unreadable."""
    with fake_memory.memory_of(pages), Memory(1, Layout()) as memory:
        symbol = MappedFile(memory, BASE).symbol(name)
    return None if symbol is None else symbol.address


@pytest.mark.parametrize("gnu", [True, False])
def test_an_honest_file(gnu: bool) -> None:
    assert search(image(gnu=gnu)) == BASE + 0x77
    assert search(image(gnu=gnu), "absent") is None


@pytest.mark.parametrize(
    ("header_bytes", "headers"), [(0, 2), (1, 2), (8, 65_535), (55, 2), (57, 2), (65_535, 65_535), (56, 65_535)]
)
def test_program_headers_of_another_size(header_bytes: int, headers: int) -> None:
    with bounded(), pytest.raises(Unreadable, match="known form"):
        search(image(header_bytes=header_bytes, headers=headers))


@pytest.mark.parametrize("name", ["absent", "nam"])
def test_a_hash_table_of_four_billion_symbols(name: str) -> None:
    """The symbols are there, as far as they are mapped: the search ends with them, or with the budget."""
    with bounded(seconds=3.0), contextlib.suppress(Unreadable):
        assert search(image(gnu=False, chain=(1 << 32) - 1), name) is None


@pytest.mark.parametrize(
    "numbers",
    [
        {"bloom_words": (1 << 32) - 1},
        {"buckets": (1 << 32) - 1},
        {"buckets": 0},
        {"endless": True},
        {"address": 1 << 63},
        {"address": (1 << 64) - 0x6000},
        {"address": 1 << 46},
    ],
    ids=lambda numbers: "-".join(map(str, numbers)),
)
def test_numbers_that_lead_outside(numbers: dict[str, int]) -> None:
    with bounded(), contextlib.suppress(Unreadable):
        search(image(**numbers))  # type: ignore[arg-type]
