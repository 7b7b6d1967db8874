"""Which NCCL a process has loaded: its version, and where its variables are."""

import os
from pathlib import Path

import pytest

from hangdoc.observe.gpu.nccl_library import NcclLibrary, find_nccl, parse_file
from hangdoc.observe.memory.elf_file import ElfFile
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.torch.software import Runtimes
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Runtime
from tests.pythons import observed
from tests.unit.nccl_process import BUILD_ID, COMMS, N_COMMS, library, loaded


def find(pid: int) -> list[NcclLibrary]:
    proc = ProcFS()
    return find_nccl(proc, pid, proc.stat(str(pid)).start_ticks)


@pytest.mark.parametrize("moved", [0, 0x40_0000])
def test_a_loaded_library(tmp_path: Path, moved: int) -> None:
    with loaded(tmp_path, library(moved=moved)) as process:
        (found,) = find(process.pid)
    assert (found.name, found.path, found.base) == ("nccl", str(tmp_path / "libnccl.so.2"), process.base)
    assert (found.version, found.toolkit, found.machine) == ((2, 28, 9), (13, 0), "x86_64")
    assert (found.build_id, found.build_id_at) == (BUILD_ID.hex(), process.base + 0x200)
    assert found.variables == {"nNcclComms": process.base + N_COMMS, "ncclComms": process.base + COMMS}


@pytest.mark.parametrize(
    ("text", "version", "toolkit"),
    [
        ("NCCL version 2.24.3+cuda12.4", (2, 24, 3), (12, 4)),
        ("NCCL version 2.30.0rc1+cuda13.1", (2, 30, 0), (13, 1)),
        ("NCCL version 2.27.3nv25.06+cuda12.9", (2, 27, 3), (12, 9)),
        ("NCCL version 2.26.2", (2, 26, 2), None),
        ("RCCL version 2.22.3+hip6.3", (2, 22, 3), (6, 3)),
        ("RCCL version : 2.30.4-HEAD:2b22ab0", (2, 30, 4), None),
        ("Mismatched NCCL version detected : rank %d version %d", None, None),
        ("NCCL version 2.99999.1+cuda12.4", None, None),
    ],
)
def test_versions(text: str, version: tuple[int, ...] | None, toolkit: tuple[int, ...] | None) -> None:
    """What NCCL and RCCL have in their files, and texts that only begin like it."""
    raw = bytes(library(text))
    file = parse_file(ElfFile(lambda offset, size: raw[offset : offset + size]))
    assert (file.version, file.toolkit) == (version, toolkit)


def test_a_process_without_nccl() -> None:
    assert find(os.getpid()) == []


def test_only_the_library_counts(tmp_path: Path) -> None:
    """Not a network plugin, whose name begins like it."""
    for name in ("libnccl-net.so", "libnccl.so.conf.d.txt", "xlibnccl.so"):
        with loaded(tmp_path, name=name) as process:
            assert len(find(process.pid)) == (name == "libnccl.so.conf.d.txt"), name


def test_a_stripped_library(tmp_path: Path) -> None:
    for file, why in (
        (library(sections={".symtab": (0, 0)}), "its symbols were stripped"),
        (library(symbols=("other",)), "it has no list of communicators, which NCCL keeps since 2.24"),
    ):
        with loaded(tmp_path, file) as process:
            (found,) = find(process.pid)
        assert (found.version, found.variables, found.no_variables) == ((2, 28, 9), {}, why)


def test_a_replaced_library(tmp_path: Path) -> None:
    """An upgrade during the run: the new file says nothing of what the process has loaded."""
    with loaded(tmp_path) as process:
        (tmp_path / "new").write_bytes(library("NCCL version 2.30.7+cuda13.0"))
        (tmp_path / "new").rename(tmp_path / "libnccl.so.2")
        with pytest.raises(Unreadable, match=r"^its libnccl\.so\.2 can't be read: the file was replaced or removed"):
            find(process.pid)


def test_a_new_file_of_the_same_name_is_read(tmp_path: Path) -> None:
    """What was read of a file is kept only as long as it is the same file."""
    for version in ("2.28.9", "2.30.7"):
        with loaded(tmp_path, library(f"NCCL version {version}+cuda13.0")) as process:
            (found,) = find(process.pid)
            assert found.version == tuple(map(int, version.split(".")))


@pytest.mark.parametrize(("name", "version"), [("libnccl.so.2", "2.28.9"), ("librccl.so.1", None)])
def test_the_version_is_among_the_software(name: str, version: str | None, tmp_path: Path) -> None:
    with loaded(tmp_path, name=name) as process, observed(process.pid) as observation:
        runtime = Runtimes().read(observation.proc, observation.targets[process.pid])
    assert isinstance(runtime, Runtime) and runtime.nccl == version
