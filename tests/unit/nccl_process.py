"""A made-up libnccl.so.2, a real process that has mapped it, and communicators in its memory."""

import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hangdoc.observe.gpu.nccl_memory import NcclMemory
from hangdoc.snapshot import Communicators, Unavailable
from hangdoc.torch_facts.nccl import MAGIC, Version
from hangdoc.torch_facts.nccl_layouts import CommLayout, layout_of
from tests.pythons import observed

BUILD_ID = bytes(range(20))
_NOTE, _TEXTS, _VARIABLES, _SYMBOLS, _STRINGS, _NAMES, _SECTIONS = 0x200, 0x400, 0x1000, 0x2000, 0x3000, 0x3800, 0x3C00
FILE_BYTES = 0x4000
N_COMMS, COMMS = _VARIABLES + 4, _VARIABLES + 8
"""Offsets of `nNcclComms` and `ncclComms` in the file and in memory."""
HEAP_BYTES = 64 << 20
_PROGRAM = """
import ctypes, mmap, sys
areas = [mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)]
for path in sys.argv[2:]:
    with open(path, "r+b") as file:
        areas.append(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE))
print(*(ctypes.addressof(ctypes.c_char.from_buffer(area)) for area in areas), flush=True)
sys.stdin.read()
"""


def library(
    text: str = "NCCL version 2.28.9+cuda13.0",
    *,
    symbols: Sequence[str] = ("other", "nNcclComms", "ncclComms"),
    moved: int = 0,
    build_id: bytes = BUILD_ID,
    machine: int = 62,
    sections: dict[str, tuple[int, int]] | None = None,
) -> bytearray:
    """The file. Its first byte is at the address `moved` before it is loaded. `sections` replaces what the file says of some of
    its sections: offset and size."""
    raw = bytearray(FILE_BYTES)
    raw[_NOTE : _NOTE + 16 + len(build_id)] = struct.pack("<3I4s", 4, len(build_id), 3, b"GNU\0") + build_id
    texts = b"\0no version\0" + text.encode() + b"\0"
    raw[_TEXTS : _TEXTS + len(texts)] = texts
    strings = b"\0_ZN9other"
    table = bytes(24)
    places = {"nNcclComms": N_COMMS, "ncclComms": COMMS}
    for name in symbols:  # a function and an undefined symbol of this name do not count
        at = len(strings) + 1
        strings += b"\0" + name.encode()
        table += struct.pack("<IBBHQQ", at, 0x02, 0, 3, 0x666, 8) + struct.pack("<IBBHQQ", at, 0x01, 0, 0, 0x777, 8)
        table += struct.pack("<IBBHQQ", at, 0x01, 0, 3, moved + places.get(name, _VARIABLES), 8)
    raw[_STRINGS : _STRINGS + len(strings)] = strings
    raw[_SYMBOLS : _SYMBOLS + len(table)] = table
    about = {
        "": (0, 0, 0, 0),
        ".note.gnu.build-id": (7, moved + _NOTE, _NOTE, 36),
        ".rodata": (1, moved + _TEXTS, _TEXTS, len(texts)),
        ".bss": (8, moved + _VARIABLES, _VARIABLES, 16),
        ".symtab": (2, 0, _SYMBOLS, len(table)),
        ".strtab": (3, 0, _STRINGS, len(strings) + 1),
        ".shstrtab": (3, 0, _NAMES, 200),
    }
    names = b""
    for number, (name, (kind, address, offset, size)) in enumerate(about.items()):
        offset, size = (sections or {}).get(name, (offset, size))
        entry = struct.pack("<IIQQQQ24x", len(names), kind, 0, address, offset, size)
        raw[_SECTIONS + 64 * number : _SECTIONS + 64 * (number + 1)] = entry
        names += name.encode() + b"\0"
    raw[_NAMES : _NAMES + len(names)] = names
    raw[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<H", raw, 18, machine)
    struct.pack_into("<QQ", raw, 32, 64, _SECTIONS)
    struct.pack_into("<5H", raw, 54, 56, 1, 64, len(about), len(about) - 1)
    struct.pack_into("<IIQQQQ", raw, 64, 1, 6, 0, moved, moved, FILE_BYTES)
    return raw


class NcclProcess:
    """A process with the library. Memory is written as a debugger writes it."""

    def __init__(self, pid: int, heap: int, base: int) -> None:
        self.pid, self.heap, self.base = pid, heap, base

    def write(self, address: int, raw: bytes) -> None:
        with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as file:
            file.seek(address)
            file.write(raw)

    def put(self, address: int, members: dict[str, Any], layout: CommLayout) -> None:
        """A communicator at `address`: its members by their names in NCCL, as in what was read off a card."""
        self.write(address, struct.pack("<Q", members.get("startMagic", MAGIC)))
        self.write(address + layout.end_magic, struct.pack("<Q", members.get("endMagic", MAGIC)))
        forms = {
            "commHash": ("Q", layout.comm_hash), "rank": ("i", layout.rank), "nRanks": ("i", layout.n_ranks),
            "cudaDev": ("i", layout.cuda_dev),
            "busId": ("q", layout.bus_id), "node": ("i", layout.node),
            "nNodes": ("i", layout.n_nodes), "opCount": ("Q", layout.op_count), "asyncResult": ("i", layout.async_result),
            "destroyFlag": ("I", layout.destroy_flag), "revokedFlag": ("I", layout.revoked_flag),
            "initState": ("i", layout.init_state),
            "finalizeCalled": ("?", layout.finalize_called), "localPersistentRefs": ("i", layout.graphs),
            "useNetPXN": ("?", layout.use_net_pxn),
        }  # fmt: skip
        for name, (form, at) in forms.items():
            if name in members and at is not None:
                self.write(address + at, struct.pack(f"<{form}", members[name]))
        if "seqNumber" in members:
            self.write(address + layout.seq_number, struct.pack("<5Q", *members["seqNumber"]))

    def list_them(self, addresses: Sequence[int], slots: int | None = None) -> None:
        """The list of communicators, at the beginning of the heap: NCCL keeps slots for more of them."""
        raw = struct.pack(f"<{len(addresses)}Q", *addresses)
        self.write(self.heap, raw.ljust(8 * 32, b"\0"))
        self.write(self.base + N_COMMS, struct.pack("<iQ", 32 if slots is None else slots, self.heap))

    def make(
        self, communicators: Sequence[dict[str, Any] | None], version: Version = (2, 28, 9), machine: str = "x86_64"
    ) -> list[int]:
        """Communicators like NCCL's, and the list of them. Their addresses."""
        layout = layout_of(version, machine)
        assert layout is not None
        addresses = []
        for number, members in enumerate(communicators):
            address = 0 if members is None else self.heap + 4096 + number * (layout.end_magic + 8)
            if members is not None:
                self.put(address, members, layout)
            addresses.append(address)
        self.list_them(addresses)
        return addresses


COMM = {
    "commHash": 16676759998614921483, "rank": 0, "nRanks": 2, "cudaDev": 0, "busId": 96, "node": 0, "nNodes": 2, "opCount": 156,
    "asyncResult": 0, "destroyFlag": 0, "revokedFlag": 0, "initState": 0, "finalizeCalled": False, "seqNumber": [4, 0, 1, 0, 151],
}  # fmt: skip
"""As read off a card: tests/unit/test_nccl_memory.py."""


@contextmanager
def loaded(folder: Path, file: bytes | bytearray | None = None, name: str = "libnccl.so.2") -> Iterator[NcclProcess]:
    """A process that has the library mapped."""
    path = folder / name
    path.write_bytes(library() if file is None else file)
    with running(path) as (process,):
        yield process


@contextmanager
def running(*libraries: Path) -> Iterator[tuple[NcclProcess, ...]]:
    """A process that has these libraries mapped, once for each of them."""
    started = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(HEAP_BYTES), *map(str, libraries)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert started.stdout is not None
        heap, *bases = map(int, started.stdout.readline().split())
        yield tuple(NcclProcess(started.pid, heap, base) for base in bases)
    finally:
        started.kill()
        started.communicate()


def looks(*pids: int, between: Any = None) -> dict[int, Communicators | Unavailable]:
    """What a look reads of these processes. `between` is called in its window."""
    probe = NcclMemory()
    with observed(*pids) as observation:
        probe.open(observation)
        if between is not None:
            between()
        probe.close(observation)
        return {pid: value for pid, _, value in probe.evidence(observation) if pid is not None}  # type: ignore[misc]


def look(pid: int, between: Any = None) -> Communicators | Unavailable:
    return looks(pid, between=between)[pid]
