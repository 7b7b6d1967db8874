"""The communicators of NCCL in the memory of a process that has a made-up library and, byte by byte, what a card showed.

nccl_card.json was read from ranks of torch 2.11.0 with NCCL 2.28.9 on an H100 in November 2026, with the offsets in the library's
debug information, and has the answer of RAS a moment later.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from hangdoc.codec import decode, encode
from hangdoc.observe.gpu import nccl_memory
from hangdoc.observe.gpu.communicators import MOST_COMMUNICATORS
from hangdoc.shared_ranks import common
from hangdoc.snapshot import Communicator, Communicators, Process, Unavailable
from hangdoc.torch_facts.call_names import OPERATIONS
from hangdoc.torch_facts.nccl import COUNTED, RESULTS
from hangdoc.torch_facts.nccl_layouts import known_versions, layout_of
from tests.pythons import observed
from tests.unit.builders import rank, snapshot
from tests.unit.nccl_process import COMM, library, loaded, look, looks, running

CARD: dict[str, Any] = json.loads((Path(__file__).parent / "nccl_card.json").read_text())


def read(found: Communicators | Unavailable) -> tuple[Communicator, ...]:
    assert isinstance(found, Communicators), found
    assert not found.unread
    return found.communicators


@pytest.mark.parametrize("case", CARD)
def test_what_a_card_showed(case: str, tmp_path: Path) -> None:
    """As NCCL's RAS says, for each rank."""
    seen: dict[tuple[int, int], list[int]] = {}
    with loaded(tmp_path) as process:
        for number, members in CARD[case]["ranks"].items():
            process.make([members[0], None, *members[1:]])
            found = look(process.pid)
            assert isinstance(found, Communicators) and found.nccl_version == "2.28.9"
            for one, real in zip(read(found), sorted(members, key=lambda each: each["commHash"]), strict=True):
                assert (one.hash, one.rank, one.size) == (real["commHash"], int(number), 2)
                assert (one.cuda_device, one.pci_address, one.node, one.nodes) == (0, "0000:00:06.0", int(number), 2)
                assert (one.launches, one.async_result, one.init_state) == (real["opCount"], 0, 0)
                assert (one.destroyed, one.revoked, one.finalized, one.graphs, one.pxn) == (
                    False,
                    False,
                    False,
                    0,
                    False,
                )
                seen[one.hash, one.rank] = list(one.counts)
    if CARD[case]["ras"] is not None:
        ras = {(int(one["hash"], 16), number): counts for one in CARD[case]["ras"] for number, counts in one["ranks"]}
        assert seen == ras


def test_counts_that_grow_and_counts_that_stand(tmp_path: Path) -> None:
    with loaded(tmp_path) as process:
        first, _ = process.make([COMM, {**COMM, "commHash": 7, "seqNumber": [0, 0, 0, 0, 1], "opCount": 1}])
        layout = layout_of((2, 28, 9), "x86_64")
        assert layout is not None
        found = look(process.pid, lambda: process.put(first, {"seqNumber": [4, 0, 1, 0, 152], "opCount": 157}, layout))
        (standing, growing) = read(found)
    assert (standing.counts, standing.counts_before) == ((0, 0, 0, 0, 1), (0, 0, 0, 0, 1))
    assert (growing.counts_before, growing.counts) == ((4, 0, 1, 0, 151), (4, 0, 1, 0, 152))
    assert (growing.launches_before, growing.launches) == (156, 157)


def test_a_communicator_that_is_made_in_the_window(tmp_path: Path) -> None:
    """At an address at which there was another one."""
    with loaded(tmp_path) as process:
        process.make([COMM])
        new = {**COMM, "commHash": 9, "initState": 7, "node": 0, "nNodes": 0, "seqNumber": [0] * 5, "opCount": 0}
        (one,) = read(look(process.pid, lambda: process.make([new])))
    assert (one.hash, one.counts_before, one.launches_before) == (9, None, None)
    assert RESULTS[one.init_state] == "ncclInProgress"


def test_one_that_is_destroyed(tmp_path: Path) -> None:
    about = {
        "destroyFlag": 1, "revokedFlag": 1, "finalizeCalled": True, "asyncResult": 6, "localPersistentRefs": 3, "useNetPXN": True,
    }  # fmt: skip
    with loaded(tmp_path) as process:
        process.make([{**COMM, **about}])
        (one,) = read(look(process.pid))
    assert (one.destroyed, one.revoked, one.finalized, one.graphs, one.pxn) == (True, True, True, 3, True)
    assert RESULTS[one.async_result] == "ncclRemoteError"


@pytest.mark.parametrize("machine", [62, 183])
@pytest.mark.parametrize(
    "version", ["2.24.3", "2.25.1", "2.26.2", "2.27.7", "2.28.3", "2.29.3", "2.29.7", "2.30.7", "2.31.2", "2.32.3"]
)
def test_every_layout(version: str, machine: int, tmp_path: Path) -> None:
    number = (int(version.split(".")[0]), int(version.split(".")[1]), int(version.split(".")[2]))
    with loaded(tmp_path, library(f"NCCL version {version}+cuda12.9", machine=machine)) as process:
        process.make([COMM], number, {62: "x86_64", 183: "aarch64"}[machine])
        found = look(process.pid)
        (one,) = read(found)
    assert isinstance(found, Communicators) and found.nccl_version == version
    assert (one.hash, one.counts, one.revoked) == (
        COMM["commHash"], (4, 0, 1, 0, 151), False if number >= (2, 28, 7) else None,
    )  # fmt: skip


def test_versions_between_and_beyond() -> None:
    for machine in ("x86_64", "aarch64"):
        assert layout_of((2, 26, 3), machine) == layout_of((2, 26, 2), machine) == layout_of((2, 26, 5), machine)
        for unknown in ((2, 23, 4), (2, 25, 9), (2, 28, 5), (2, 33, 1)):
            assert layout_of(unknown, machine) is None
    assert layout_of((2, 28, 9), "") is None
    assert known_versions() == ((2, 24, 3), (2, 32, 3))


@pytest.mark.parametrize(
    ("file", "name", "why"),
    [
        (library("NCCL version 2.21.5+cuda12.4", symbols=()), "libnccl.so.2",
         "the communicators of its NCCL 2.21.5 can't be found: it has no list of communicators, which NCCL keeps since 2.24"),
        (library("NCCL version 2.99.1+cuda14.0"), "libnccl.so.2",
         "hangdoc does not know the communicators of NCCL 2.99.1, only those of 2.24.3 to 2.32.3"),
        (library(sections={".symtab": (0, 0)}), "libnccl.so.2",
         "the communicators of its NCCL 2.28.9 can't be found: its symbols were stripped"),
        (library("RCCL version 2.28.9+hip7.0"), "librccl.so.1", "hangdoc can't read the communicators of RCCL"),
        (library("no version"), "libnccl.so.2", "does not tell its version"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_says_why(file: bytearray, name: str, why: str, tmp_path: Path) -> None:
    with loaded(tmp_path, file, name) as process:
        found = look(process.pid)
    assert isinstance(found, Unavailable) and found.reason.endswith(why), found


def test_a_file_that_is_not_the_one_in_memory(tmp_path: Path) -> None:
    """Another file lies at the path in the view of hangdoc: here, somebody has written into it after it was mapped."""
    with loaded(tmp_path) as process:
        process.make([COMM])
        process.write(process.base + 0x210, b"another build")
        found = look(process.pid)
    assert isinstance(found, Unavailable) and found.reason.endswith("is not the file that it has loaded")


def test_a_process_without_nccl() -> None:
    assert look(os.getpid()) == Unavailable(reason="it has not loaded NCCL")


def test_ras_turned_off_and_nothing_made(tmp_path: Path) -> None:
    with loaded(tmp_path) as process:
        assert look(process.pid) == Communicators(nccl_version="2.28.9")


def test_a_stopped_rank(tmp_path: Path) -> None:
    with loaded(tmp_path) as process:
        process.make([COMM])
        os.kill(process.pid, signal.SIGSTOP)
        (one,) = read(look(process.pid))
    assert one.counts == one.counts_before == (4, 0, 1, 0, 151)


def test_more_than_the_most(tmp_path: Path) -> None:
    """All of them at few addresses would be cheap; here, each has its own, 4 KB apart, in a layout of its own size."""
    with loaded(tmp_path) as process:
        first = process.make([COMM])[0]
        process.list_them([first, *range(process.heap + 8192, process.heap + 8192 + 4096 * 300, 4096)], 512)
        found = look(process.pid)
    assert isinstance(found, Communicators)
    assert (len(found.communicators), found.unread) == (1, 300)
    assert MOST_COMMUNICATORS < 300


def test_a_library_that_is_loaded_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without NCCL is looked at again, but not in every poll."""
    probe = nccl_memory.NcclMemory()
    searches: list[int] = []
    monkeypatch.setattr(nccl_memory, "find_nccl", lambda proc, pid, ticks: searches.append(pid) or [])
    with observed(os.getpid()) as observation:
        for _ in range(3):
            probe.close(observation)
            probe.start_next_window(observation)
        assert searches == [os.getpid()]
        monkeypatch.setattr(nccl_memory, "_AGAIN_SECONDS", -1.0)
        monkeypatch.setattr(nccl_memory, "_AGAIN_SHARE", -1.0)
        probe._places.clear()
        for _ in range(3):
            probe.close(observation)
        assert len(searches) == 4


def test_windows_of_polling(tmp_path: Path) -> None:
    """The end of one is the beginning of the next one; a process that has ended is forgotten."""
    probe = nccl_memory.NcclMemory()
    with loaded(tmp_path) as process, observed(process.pid) as observation:
        process.make([COMM])
        probe.close(observation)
        probe.start_next_window(observation)
        process.make([{**COMM, "seqNumber": [5, 0, 1, 0, 151]}])
        probe.close(observation)
        (found,) = (value for _, _, value in probe.evidence(observation))
        (one,) = read(found)  # type: ignore[arg-type]
        assert (one.counts_before, one.counts) == ((4, 0, 1, 0, 151), (5, 0, 1, 0, 151))
        observation.targets = {}
        probe.start_next_window(observation)
        assert not probe._places


def test_two_libraries(tmp_path: Path) -> None:
    """torch's, and another one that vLLM was told to use: the version is that of the one in use."""
    paths = tmp_path / "libnccl.so.2", tmp_path / "libnccl.so.2.27.7"
    for path, version in zip(paths, ("2.28.9", "2.27.7"), strict=True):
        path.write_bytes(library(f"NCCL version {version}+cuda12.9"))
    with running(*paths) as (_, used):
        used.make([COMM], (2, 27, 7))
        found = look(used.pid)
    assert isinstance(found, Communicators) and found.nccl_version == "2.27.7"
    assert [one.hash for one in read(found)] == [COMM["commHash"]]


def test_each_process_spoils_only_its_own(tmp_path: Path) -> None:
    with loaded(tmp_path) as good:
        good.make([COMM])
        found = looks(os.getpid(), good.pid)
    assert isinstance(found[os.getpid()], Unavailable) and len(read(found[good.pid])) == 1


def test_a_bundle_has_them(tmp_path: Path) -> None:
    """Also the largest hash."""
    one = _communicator(hash=(1 << 64) - 1)
    taken = snapshot(rank(0, communicators=Communicators(nccl_version="2.28.9", communicators=(one,), unread=2)))
    again = decode(encode(taken), "it")
    assert again.hosts[0].processes[0].communicators == taken.hosts[0].processes[0].communicators


def test_ranks_with_other_counts_are_not_alike() -> None:
    """In the summary of a large run, one rank stands for others with the same counts in the same communicators."""

    def about(**changed: Any) -> Process:
        found = Communicators(nccl_version="2.28.9", communicators=(_communicator(**changed),))
        return common(rank(0, communicators=found))

    assert about(rank=0, cuda_device=0, bus=96) == about(rank=1, cuda_device=1, bus=112)
    assert about() != about(counts=(0, 0, 0, 0, 8))
    assert about() != about(hash=6)


def test_the_names_of_what_is_counted() -> None:
    for one in COUNTED:
        assert {one.operation, *one.also} <= OPERATIONS


def test_pci_addresses() -> None:
    for bus, address in (
        (96, "0000:00:06.0"),
        (0x1B000, "0000:1b:00.0"),
        (0x10018000, "0100:18:00.0"),
        (0x0C1AF3, "0000:c1:af.3"),
    ):
        assert _communicator(bus=bus).pci_address == address
    assert _communicator(bus=None).pci_address is None


def _communicator(**changed: Any) -> Communicator:
    about: dict[str, Any] = {
        "hash": 5, "rank": 0, "size": 2, "cuda_device": 0, "bus": 96, "node": 0, "nodes": 1, "counts": (0, 0, 0, 0, 7),
        "launches": 7, "async_result": 0, "init_state": 0, "destroyed": False, "revoked": False, "finalized": False,
    }  # fmt: skip
    return Communicator(**{**about, **changed})


def test_memory_of_the_reader(tmp_path: Path) -> None:
    """A look leaves no descriptor open."""
    with loaded(tmp_path) as process:
        process.make([COMM])
        look(process.pid)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            look(process.pid)
        assert len(os.listdir("/proc/self/fd")) <= before
