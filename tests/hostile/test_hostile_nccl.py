"""A process that forges NCCL: its library, its list of communicators, or these. It spoils only its own evidence."""

import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoc.observe.gpu import nccl_library
from hangdoc.observe.gpu.nccl_library import find_nccl, parse_file
from hangdoc.observe.memory.elf_file import ElfFile
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Communicators, Unavailable
from tests.hostile.fuzz.bounds import bounded
from tests.live.needs import needs
from tests.unit.nccl_process import COMM, COMMS, N_COMMS, NcclProcess, library, loaded, look, looks, running

NOWHERE = 0x6666_0000_0000


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NcclProcess]:
    with loaded(tmp_path_factory.mktemp("good")) as process:
        process.make([COMM])
        yield process


def slots(number: int) -> Callable[[NcclProcess], None]:
    def forge(process: NcclProcess) -> None:
        process.write(process.base + N_COMMS, struct.pack("<i", number))

    return forge


def list_at(address: int) -> Callable[[NcclProcess], None]:
    def forge(process: NcclProcess) -> None:
        process.write(process.base + COMMS, struct.pack("<Q", address))

    return forge


def pointers(*addresses: int) -> Callable[[NcclProcess], None]:
    return lambda process: process.list_them(addresses)


def member(**members: Any) -> Callable[[NcclProcess], None]:
    def forge(process: NcclProcess) -> None:
        process.make([{**COMM, **members}])

    return forge


def points_at_itself(process: NcclProcess) -> None:
    """The list is the communicators that it lists."""
    process.list_them([process.heap + 8 * number for number in range(32)])


def slots_to_the_end(process: NcclProcess) -> None:
    """The list ends where memory ends."""
    process.write(process.base + N_COMMS, struct.pack("<iQ", 4096, process.heap + (64 << 20) - 64))


ATTACKS: dict[str, Callable[[NcclProcess], None]] = {
    "a list of two billion": slots((1 << 31) - 1),
    "a list of less than nothing": slots(-1),
    "no slots, and a list": slots(0),
    "a list nowhere": list_at(NOWHERE),
    "a list in the kernel": list_at(0xFFFF_8000_0000_0000),
    "no list": list_at(0),
    "communicators nowhere": pointers(NOWHERE, NOWHERE + 8, 1, (1 << 64) - 8, 0xFFFF_8000_0000_0000),
    "a list of itself": points_at_itself,
    "a list that leaves the memory": slots_to_the_end,
    "no first magic": member(startMagic=0),
    "no last magic": member(endMagic=1),
    "a negative rank": member(rank=-1),
    "a rank beyond the size": member(rank=2),
    "a size of two billion": member(nRanks=(1 << 31) - 1),
    "a node beyond the nodes": member(node=2),
    "more nodes than ranks": member(nNodes=3),
    "a card of two billion": member(cudaDev=(1 << 31) - 1),
    "a negative bus": member(busId=-1),
    "counts of an overflow": member(seqNumber=[(1 << 64) - 1] * 5),
    "launches of an overflow": member(opCount=(1 << 64) - 1),
    "an unknown state": member(initState=1 << 20),
    "an unknown error": member(asyncResult=-5),
    "negative graphs": member(localPersistentRefs=-1),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_forged_list_beside_a_good_one(attack: str, good: NcclProcess, tmp_path: Path) -> None:
    with loaded(tmp_path) as process:
        process.make([COMM])
        ATTACKS[attack](process)
        with bounded(seconds=2.0, size=64 << 20):
            found = looks(process.pid, good.pid)
    assert isinstance(found[process.pid], Unavailable), found[process.pid]
    other = found[good.pid]
    assert isinstance(other, Communicators) and len(other.communicators) == 1


def test_a_thousand_times_the_same(tmp_path: Path) -> None:
    with loaded(tmp_path) as process:
        (address,) = process.make([COMM])
        process.write(process.heap + (32 << 20), struct.pack("<Q", address) * 4096)
        process.write(process.base + N_COMMS, struct.pack("<iQ", 4096, process.heap + (32 << 20)))
        with bounded(seconds=2.0):
            found = look(process.pid)
    assert isinstance(found, Communicators) and (len(found.communicators), found.unread) == (1, 0)


def test_one_forged_communicator_among_good_ones(tmp_path: Path) -> None:
    with loaded(tmp_path) as process:
        process.make([COMM, {**COMM, "commHash": 3, "rank": 9}, {**COMM, "commHash": 4}])
        found = look(process.pid)
    assert isinstance(found, Communicators) and found.unread == 1
    assert [one.hash for one in found.communicators] == [4, COMM["commHash"]]


def test_a_list_that_never_stands_still(tmp_path: Path) -> None:
    """Another process moves the list between two places, and clears it in between: what is read was in one of them."""
    with loaded(tmp_path) as process:
        first, second = process.make([COMM, {**COMM, "commHash": 3}])
        lists = process.heap, process.heap + 2048
        for at, address in zip(lists, (first, second), strict=True):
            process.write(at, struct.pack("<Q", address).ljust(256, b"\0"))
        program = (
            "import os, struct, sys\n"
            "pid, at, *lists = map(int, sys.argv[1:])\n"
            "file = os.open(f'/proc/{pid}/mem', os.O_RDWR)\n"
            "print('ready', flush=True)\n"
            "while True:\n"
            "    for number in range(2):\n"
            "        os.pwrite(file, struct.pack('<iQ', 32, lists[number]), at)\n"
            "        os.pwrite(file, struct.pack('<iQ', 0, 0), at)\n"
        )
        words = [sys.executable, "-c", program, *map(str, (process.pid, process.base + N_COMMS, *lists))]
        mover = subprocess.Popen(words, stdout=subprocess.PIPE)
        try:
            assert mover.stdout is not None and mover.stdout.readline() == b"ready\n"
            for _ in range(20):
                found = look(process.pid)
                if isinstance(found, Communicators):
                    assert len(found.communicators) <= 1 and found.unread == 0
                    assert {one.hash for one in found.communicators} <= {COMM["commHash"], 3}
                else:
                    assert "changes all the time" in found.reason
        finally:
            mover.kill()
            mover.communicate()


# --- the file -------------------------------------------------------------------------------------------------------------------

_SIZES = (0, 1, 23, 1 << 20, 1 << 31, (1 << 63) - 1, (1 << 64) - 1)


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("offset", [0, 0x2000, 0x3FFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
def test_sections_that_lie(offset: int, size: int) -> None:
    names = (".note.gnu.build-id", ".rodata", ".symtab", ".strtab", ".shstrtab")
    for name in names:
        with bounded(seconds=2.0, size=100 << 20):
            parse(library(sections={name: (offset, size)}))


def parse(raw: bytes | bytearray) -> None:
    """As hangdoc parses the file; the only error is Unreadable."""
    file = os.memfd_create("library")
    try:
        os.write(file, raw)
        parse_file(ElfFile(lambda offset, size: nccl_library._read_at(file, len(raw), offset, size)))
    except Unreadable:
        pass
    finally:
        os.close(file)


@pytest.mark.parametrize("seed", range(20))
def test_random_damage(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    with bounded(seconds=5.0):
        for _ in range(100):
            raw = library()
            for _ in range(chance.choice((1, 2, 8))):
                at = chance.choice(
                    (chance.randrange(0x200), 0x2000 + chance.randrange(0x100), 0x3C00 + chance.randrange(512))
                )
                size = chance.choice((1, 2, 4, 8))
                value = chance.choice((0, 1, 255, 1 << 31, 1 << 63, (1 << 64) - 1, chance.getrandbits(64)))
                raw[at : at + size] = value.to_bytes(8, "little")[:size]
            parse(raw[: chance.choice((0x4000, chance.randrange(0x4000)))])


def test_a_file_of_a_terabyte(tmp_path: Path) -> None:
    """Its sections are as large as it is; it takes no room on the disk."""
    raw = library(sections={".rodata": (0x400, 1 << 40), ".strtab": (0x3000, 32 << 20), ".symtab": (0x2000, 8 << 20)})
    path = tmp_path / "libnccl.so.2"
    path.write_bytes(raw)
    with running(path) as (process,):  # the mapping is that of the small file
        with path.open("r+b") as file:
            file.truncate(1 << 40)
        with bounded(seconds=3.0, size=200 << 20):
            found = look(process.pid)
    # The version is in the first megabytes, and the variables are among the first symbols.
    assert found == Communicators(nccl_version="2.28.9")


def test_as_many_symbols_as_fit() -> None:
    """All of them with the name that is looked for."""
    raw = library()
    at = raw.index(b"ncclComms\0") - 0x3000
    symbols = struct.pack("<IBBHQQ", at, 0x01, 0, 3, 1, 8) * ((8 << 20) // 24)
    raw += symbols
    struct.pack_into("<QQ", raw, 0x3C00 + 64 * 4 + 24, 0x4000, len(symbols))
    with bounded(seconds=2.0, size=200 << 20):
        parse(raw)


def test_addresses_beyond_memory(tmp_path: Path) -> None:
    """The variables are at the end of the address space."""
    raw = library()
    for at in range(0x2000, 0x2000 + 24 * 10, 24):
        struct.pack_into("<Q", raw, at + 8, (1 << 64) - 8)
    with loaded(tmp_path, raw) as process:
        assert isinstance(look(process.pid), Unavailable)


def test_a_pipe_in_place_of_the_library(tmp_path: Path) -> None:
    """In the view of the process, a FIFO or a device is at the path now. Nobody opens it."""
    needs("root", "unshare", "mount")
    path, pipe = tmp_path / "libnccl.so.2", tmp_path / "pipe"
    path.write_bytes(library())
    os.mkfifo(pipe)
    program = (
        "import mmap, subprocess, sys\n"
        "with open(sys.argv[1], 'r+b') as file: area = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE)\n"
        "subprocess.run(['mount', '--bind', sys.argv[2], sys.argv[1]], check=True)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    words = ["unshare", "--mount", sys.executable, "-c", program, str(path), str(pipe)]
    started = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert started.stdout is not None and started.stdout.readline() == b"ready\n"
        with bounded(seconds=1.0):
            found = look(started.pid)
    finally:
        started.kill()
        started.communicate()
    assert found == Unavailable(reason="its libnccl.so.2 can't be read: it is not a regular file")


def test_a_thousand_libraries(tmp_path: Path) -> None:
    """A process maps one file a thousand times, under two names: the first few are looked at."""
    paths = [tmp_path / f"libnccl.so.{number}" for number in range(2)]
    for path in paths:
        path.write_bytes(library())
    with running(*(paths * 500)) as processes, bounded(seconds=2.0):
        proc, pid = ProcFS(), processes[0].pid
        assert 0 < len(find_nccl(proc, pid, proc.stat(str(pid)).start_ticks)) <= 4
        look(pid)
