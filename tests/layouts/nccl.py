"""Writes hangdoc/torch_facts/nccl_layouts.py: where the members of `ncclComm` are, from the debug information of NVIDIA's wheels.

`python -m tests.layouts.nccl [VERSION...]` (`make nccl-layouts`), by hand: it downloads the libraries for CUDA 12 and 13 on
x86_64 and aarch64, 130 to 300 MB each and 14 GB in all, one after the other, in six minutes. It needs pyelftools, and 1 GB in the
folder of wheels.
With versions, it only compares these with the table. It ends with an error if a version is not as hangdoc takes it to be: another
order of what NCCL counts, another type of a member, other layouts for two versions of CUDA.
"""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from elftools.elf.elffile import ELFFile

from hangdoc.observe.gpu.nccl_library import parse_file
from hangdoc.observe.memory.elf_file import ElfFile
from hangdoc.torch_facts import nccl_layouts
from hangdoc.torch_facts.nccl import COUNTED, RESULTS, Version, version_text
from hangdoc.torch_facts.nccl_layouts import CommLayout
from tests.layouts.wheels import CACHE

VERSIONS = (
    "2.24.3", "2.25.1", "2.26.2", "2.26.5", "2.27.3", "2.27.5", "2.27.6", "2.27.7", "2.28.3", "2.28.7", "2.28.9", "2.29.2",
    "2.29.3", "2.29.7", "2.30.3", "2.30.4", "2.30.7", "2.31.2", "2.32.3",
)  # fmt: skip
"""All that are on PyPI and have RAS, and so a list of communicators."""
FLAVORS = tuple((cuda, machine) for cuda in ("cu13", "cu12") for machine in ("x86_64", "aarch64"))
_MEMBERS = {
    "comm_hash": (8, "commHash"), "rank": (4, "rank"), "n_ranks": (4, "nRanks"), "cuda_dev": (4, "cudaDev"),
    "bus_id": (8, "busId"), "node": (4, "node"), "n_nodes": (4, "nNodes"), "op_count": (8, "opCount"),
    "async_result": (4, "asyncResult"),
    "destroy_flag": (4, "destroyFlag"), "revoked_flag": (4, "revokedFlag"),
    "graphs": (4, "localPersistentRefs", "persistentRefs"), "init_state": (4, "initState"),
    "finalize_called": (1, "finalizeCalled"), "seq_number": (40, "seqNumber"),
    "use_net_pxn": (1, "useNetPXN"), "end_magic": (8, "endMagic"),
}  # fmt: skip
"""By field of CommLayout: its size in bytes, and its names in NCCL, the newest first."""
_OPTIONAL = frozenset({"revoked_flag"})
_PLATFORMS = (*(f"manylinux_2_{minor}" for minor in range(17, 36)), "manylinux2014")
_TABLE = Path(nccl_layouts.__file__)
_MARK = "# --- the table: `make nccl-layouts` writes what follows\n"


def main() -> int:
    """1 if a version is not as expected."""
    given = tuple(sys.argv[1:])
    table: dict[tuple[Version, str], CommLayout] = {}
    for version in given or VERSIONS:
        for cuda, machine in FLAVORS:
            with _library(version, cuda, machine) as path:
                if path is None:
                    print(f"{version} {cuda} {machine}: no such wheel", flush=True)
                    continue
                number, layout = read_layout(path)
            key = number, machine
            if table.setdefault(key, layout) != layout:
                sys.exit(f"{version} {cuda} {machine}: not as with another CUDA: {layout}, {table[key]}")
            if given and nccl_layouts.layout_of(*key) != layout:
                sys.exit(f"{version} {cuda} {machine}: not as in the table: {layout}")
            print(f"{version} {cuda} {machine}: {layout.end_magic + 8:,} bytes", flush=True)
    missing = set(given or VERSIONS) - {
        version_text(number) for number, _ in table if {(number, "x86_64"), (number, "aarch64")} <= table.keys()
    }
    if missing:
        sys.exit(f"no wheels of {', '.join(sorted(missing))} for both machines")
    if not given:
        _TABLE.write_text(_TABLE.read_text().split(_MARK)[0] + _MARK + rendered(table))
    return 0


@contextmanager
def _library(version: str, cuda: str, machine: str) -> Iterator[Path | None]:
    """The library of a wheel, which is removed at the end; None if there is no such wheel."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=CACHE, prefix=f"nccl-{version}-") as folder:
        platforms = [f"--platform={name}_{machine}" for name in _PLATFORMS]
        wanted = f"nvidia-nccl-{cuda}==={version}"
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--only-binary=:all:", *platforms,
             "--python-version=3.11", f"--dest={folder}", wanted], stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        wheel = next(Path(folder).glob("*.whl"), None)
        if wheel is None:
            if "No matching distribution" not in done.stderr:
                sys.exit(done.stderr)
            yield None
            return
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/libnccl.so.2"))
            path = Path(archive.extract(name, folder))
        wheel.unlink()
        yield path


def read_layout(path: Path) -> tuple[Version, CommLayout]:
    """The version of a library, as hangdoc reads it, and the layout of its communicators."""
    with path.open("rb") as file:

        def read(offset: int, size: int) -> bytes:
            file.seek(offset)
            return file.read(size)

        about = parse_file(ElfFile(read))
        assert about.version is not None and about.variables, about
        members, numbers = _debug_information(ELFFile(file))
    for at, name in enumerate(f"ncclFunc{one.name}" for one in COUNTED):
        assert numbers[name] == at, f"another order: {name} is {numbers[name]}"
    for at, name in enumerate(RESULTS):
        assert numbers.get(name, at) == at, f"another order: {name} is {numbers[name]}"
    offsets: dict[str, int | None] = {}
    for field, (size, *names) in _MEMBERS.items():
        at, found = next((members[name] for name in names if name in members), (None, size))
        assert found == size and (at is not None or field in _OPTIONAL), f"{names}: {at}, {found} bytes"
        offsets[field] = at
    assert members["startMagic"] == (0, 8)
    return about.version, CommLayout(**offsets)  # type: ignore[arg-type]


def _debug_information(elf: Any) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """Offset and size of each member of `ncclComm`, and the numbers of enumerations."""
    members: dict[str, tuple[int, int]] = {}
    numbers: dict[str, int] = {}
    for unit in elf.get_dwarf_info().iter_CUs():
        for entry in unit.iter_DIEs():
            name = entry.attributes.get("DW_AT_name")
            if entry.tag == "DW_TAG_enumerator" and name.value.startswith(b"nccl"):
                numbers[name.value.decode()] = entry.attributes["DW_AT_const_value"].value
            whole = "DW_AT_byte_size" in entry.attributes
            if entry.tag == "DW_TAG_structure_type" and whole and name is not None and name.value == b"ncclComm":
                for member in entry.iter_children():
                    offset = member.attributes.get("DW_AT_data_member_location")
                    if member.tag == "DW_TAG_member" and offset is not None:
                        kind = member.get_DIE_from_attribute("DW_AT_type")
                        members[member.attributes["DW_AT_name"].value.decode()] = offset.value, _size(kind)
        if members:
            return members, numbers
    sys.exit("no debug information of ncclComm")


def _size(kind: Any) -> int:
    """Bytes of a type."""
    if "DW_AT_byte_size" in kind.attributes:
        return int(kind.attributes["DW_AT_byte_size"].value)
    inner = _size(kind.get_DIE_from_attribute("DW_AT_type")) if "DW_AT_type" in kind.attributes else 0
    if kind.tag == "DW_TAG_array_type":
        for dimension in kind.iter_children():
            inner *= dimension.attributes["DW_AT_upper_bound"].value + 1
    return inner


def rendered(table: dict[tuple[Version, str], CommLayout]) -> str:
    """The table as source, a line for each layout."""
    rows: dict[tuple[CommLayout, CommLayout], list[Version]] = {}
    for version in sorted({version for version, _ in table}):
        rows.setdefault((table[version, "x86_64"], table[version, "aarch64"]), []).append(version)
    lines = []
    for (x86, arm), versions in rows.items():
        moved = ", ".join(f'"{name}": {value}' for name, value in arm._asdict().items() if value != getattr(x86, name))
        lines.append(f"    ({tuple(versions)},\n")
        lines.append(f"     ({', '.join(map(str, x86[:9]))},\n      {', '.join(map(str, x86[9:]))}),\n")
        lines.append(f"     {{{moved}}}),\n")
    return f"_ROWS: tuple[_Row, ...] = (\n{''.join(lines)})  # fmt: skip\n"


if __name__ == "__main__":
    sys.exit(main())
