"""Compares what hangdoc reads of torch's flight recorder with torch's own dump, for several versions of torch, and the keys of a
store that ranks wait for with those that it reads.

`python -m tests.layouts VERSION...` (`make layouts VERSIONS="2.9.1 2.14.1:3.12"`), by hand: it downloads 500 to 900 MB for a
version, and needs binutils and gcc. Behind a colon is the Python, if not this one. Gloo's record is that of a real run of two
frozen ranks. That of the CUDA library is filled by calling its own code; then hangdoc writes the times that only a GPU would give
into the process, and torch must show them.
"""

import json
import os
import struct
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hangbench.recorder import Comparison
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.torch.recorder_history import Record
from hangdoc.observe.torch.recorder_memory import MemoryReader
from hangdoc.observe.torch.recorder_ring import Copy
from hangdoc.snapshot import StoreServers
from hangdoc_trainer.offspring import free_port
from tests.layouts.stubs import stub_missing_libraries
from tests.layouts.symbols import recorder_symbols
from tests.layouts.wheels import unpacked
from tests.live.served import read_stores
from tests.live.watched import PROGRAMS, running
from tests.pythons import command, observed

VERSIONS = ("2.6.0", "2.7.1", "2.9.1", "2.10.0", "2.11.0", "2.14.1")
_CALLS = (5, 2_100)
"""Of a run of Gloo: few, and more than a record keeps."""
_CAPACITY = 2_000
_SECONDS = 240
_NEEDED = ("filelock", "typing_extensions.py", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec")
"""What torch imports besides numpy. All of it is Python, so it is taken from the environment of this one."""


class Torch:
    """A version of torch, unpacked, with the stubs that it needs."""

    def __init__(self, tree: Path, python: str) -> None:
        """`python` is the interpreter."""
        self._python = python
        for path in map(Path(sysconfig.get_path("purelib")).joinpath, _NEEDED):
            (tree / path.name).symlink_to(path)
        self.variables = {
            "PYTHONPATH": str(tree), "LD_LIBRARY_PATH": str(stub_missing_libraries(tree)),
            "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "TORCH_FR_BUFFER_SIZE": str(_CAPACITY),
            "TORCH_NCCL_TRACE_BUFFER_SIZE": str(_CAPACITY),
        }  # fmt: skip
        libraries = {kind: tree / "torch" / "lib" / f"libtorch_{kind}.so" for kind in ("cpu", "cuda")}
        self.symbols = {
            kind: recorder_symbols(library) if library.exists() else {} for kind, library in libraries.items()
        }
        # hangdoc must not need the symbols.
        subprocess.run(["strip", *(str(library) for library in libraries.values() if library.exists())], check=True)

    def compare(self, comparison: Comparison) -> None:
        """Compare all its records."""
        self._compare_store(comparison)
        if self.symbols["cpu"]:
            for calls in _CALLS:
                with self._frozen_run(calls) as dumps:
                    for dump in dumps:
                        record, _ = self._read(dump["pid"], "cpu", comparison)
                        comparison.compare_entries(record, dump)
        if self.symbols["cuda"]:
            self._compare_cuda(comparison)

    def _compare_store(self, comparison: Comparison) -> None:
        """With the store that torchrun serves: two of three ranks wait for two keys each."""
        wanted = {"result/0": 1, "result/1": 1, "result/last": 2}
        with TemporaryDirectory() as name:
            words = (
                self._python, "-m", "torch.distributed.run", "--nproc-per-node=3", f"--master-port={free_port()}",
                str(PROGRAMS / "stores.py"), "keys",
            )  # fmt: skip
            with running(Path(name), *words, **self.variables) as run:
                until, found = time.monotonic() + _SECONDS, dict[str, int]()
                while found != wanted and time.monotonic() < until and run.launcher.poll() is None:
                    time.sleep(0.5)
                    stores = read_stores(run.launcher.pid).get(run.launcher.pid)
                    servers = stores.servers if isinstance(stores, StoreServers) else ()
                    keys = (key for server in servers for key in server.awaited)
                    found = {key.name.rpartition("//")[2]: len(key.sockets) for key in keys}
        comparison.compare_keys(found, wanted)

    @contextmanager
    def _frozen_run(self, calls: int) -> Iterator[list[dict[str, Any]]]:
        """The dumps of two ranks, of which one waits for the other."""
        with TemporaryDirectory() as name:
            folder = Path(name)
            words = (
                self._python, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}",
                str(PROGRAMS / "recorded.py"), "all", name, str(calls),
            )  # fmt: skip
            with running(folder, *words, **self.variables) as run:
                files = [folder / f"{rank}.entries" for rank in range(2)]
                until = time.monotonic() + _SECONDS
                while not all(file.exists() for file in files):
                    if time.monotonic() > until or run.launcher.poll() is not None:
                        raise RuntimeError(run.log()[:6000])
                    time.sleep(0.05)
                yield [json.loads(file.read_text()) for file in files]

    def _compare_cuda(self, comparison: Comparison) -> None:
        with TemporaryDirectory() as folder, subprocess.Popen(
            [self._python, str(Path(__file__).parent / "cuda_rank.py"), json.dumps(self.symbols["cuda"]), f"{folder}/dump"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **self.variables}, text=True,
        ) as rank:  # fmt: skip
            try:
                assert rank.stdin is not None
                assert rank.stdout is not None
                if not rank.stdout.readline().startswith("ready"):
                    raise RuntimeError("the process with the recorder of CUDA did not start")
                for as_on_a_gpu in (False, True):
                    record, copied = self._read(rank.pid, "cuda", comparison)
                    if as_on_a_gpu:
                        _write_times(rank.pid, copied)
                        record, _ = self._read(rank.pid, "cuda", comparison)
                    rank.stdin.write("dump\n")
                    rank.stdin.flush()
                    if rank.stdout.readline() != "dumped\n":
                        raise RuntimeError("torch did not dump the recorder of CUDA")
                    dump = json.loads(Path(folder, "dump").read_text())
                    comparison.compare_entries(record, dump)
                    comparison.compare_groups(record, dump)
            finally:
                rank.kill()

    def _read(self, pid: int, kind: str, comparison: Comparison) -> tuple[Record, Copy]:
        """The whole record of this kind in a process. Raises Unreadable."""
        reader = MemoryReader()
        began = time.perf_counter()
        with observed(pid) as observation:
            records = reader.read(observation, observation.targets[pid], None)
        comparison.search_ms.append((time.perf_counter() - began) * 1e3)
        (record,) = (record for record in records if record.kind == kind)
        (address,) = (place.address for place in reader._places if place.kind == kind)
        copied = next(copied for (at, _), (copied, _, _) in reader._last.items() if at == address)
        assert copied.layout is not None
        threads, strings = copied.layout.thread >= 0, "shared" if copied.layout.copied_strings else "own"
        comparison.places.add(
            f"libtorch_{kind} ({copied.layout.size} bytes an entry, epochs: {copied.layout.has_epoch}, "
            f"threads: {threads}, {strings} strings)".replace("True", "yes").replace("False", "no")
        )
        comparison.compare_place(kind, address, self._by_symbol(pid, kind))
        return record, copied

    def _by_symbol(self, pid: int, kind: str) -> int:
        """Where the symbol of the library says that the record is."""
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        mapped = (line.split() for line in maps if f"/libtorch_{kind}.so" in line)
        base = next(int(words[0].partition("-")[0], 16) for words in mapped if int(words[2], 16) == 0)
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            return int.from_bytes(os.pread(memory.fileno(), 8, base + self.symbols[kind]["instance"]), "little")


def _write_times(pid: int, copied: Copy) -> None:
    """Write into the entries of a process what only a GPU gives: when a call began and ended, and how long it took."""
    layout = copied.layout
    assert layout is not None
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for index, (address, words) in enumerate(copied.entries):
            began = words[layout.made] + 1_000 + index
            for at, value, there in (
                (8 * layout.started, struct.pack("<Q", began), index % 2),
                (8 * layout.completed, struct.pack("<Q", began + 8_000), index % 3),
                (8 * layout.duration + 4, struct.pack("<f", 0.25 + index), index % 5),
            ):
                if there:  # a std::optional: the value, and whether it is there
                    os.pwrite(memory.fileno(), value + b"\1", address + at)


def check(version: str) -> bool:
    """Print the line of a version (`2.14.1`, `2.14.1:3.12`). Whether hangdoc reads what torch says."""
    began = time.monotonic()
    comparison = Comparison()
    problem = ""
    version, _, python = version.partition(":")
    python = python or f"{sys.version_info[0]}.{sys.version_info[1]}"
    words = command(python)
    if words is None:
        print(f"torch {version}: there is no Python {python}", flush=True)
        return False
    try:
        with unpacked(version, python) as tree:
            Torch(tree, words[0]).compare(comparison)
    except (Unreadable, RuntimeError, subprocess.CalledProcessError) as error:
        problem = f"; {error}"
    print(f"torch {version}, Python {python}: {comparison}{problem}; {time.monotonic() - began:.0f} s", flush=True)
    for field, (ours, theirs) in comparison.examples.items():
        print(f"    {field}: hangdoc {ours!r:.300}, torch {theirs!r:.300}", flush=True)
    return not problem and not comparison.different and comparison.entries > 0


if __name__ == "__main__":
    results = [check(version) for version in sys.argv[1:] or VERSIONS]
    sys.exit(0 if all(results) else 1)
