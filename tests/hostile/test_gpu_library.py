"""A library of a stranger in place of the driver's, on the path of root; and one that lies, prints and floods."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.gpu.cards import GpuCards
from hangdoc.observe.gpu.nvml import NvmlChild, library_directories
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Cards
from tests.hostile.ranks import rank
from tests.hostile.users import MALLORY
from tests.live.needs import needs
from tests.nvml_stub import SPINNING, StubCard, build

DEVICES = """
mount -t tmpfs none /dev
for device in "null c 1 3" "zero c 1 5" "urandom c 1 9"; do mknod -m 666 /dev/${device%% *} ${device#* }; done
mkdir /dev/shm
ln -s /proc/self/fd /dev/fd
mknod -m 666 /dev/nvidiactl c 1 3
exec "$@"
"""
"""Devices of its own for one command, among them a driver's: never the machine's."""


@pytest.fixture(autouse=True)
def _tools() -> None:
    needs("root", "gcc", "unshare")


def ranks_of_a_look(libraries: Path, pid: int) -> list[dict[str, Any]]:
    """What root's `diagnose` says of a rank, with this LD_LIBRARY_PATH."""
    command = [sys.executable, "-m", "hangdoc", "diagnose", "--json", "--pid", str(pid)]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-ec", DEVICES, "sh", *command],
        env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    (job,) = json.loads(done.stdout)["jobs"]
    ranks: list[dict[str, Any]] = job["ranks"]
    return ranks


def test_root_loads_a_library_of_its_own_and_none_of_a_stranger(tmp_path: Path) -> None:
    loaded = tmp_path / "loaded"
    loaded.mkdir()
    loaded.chmod(0o777)
    with rank("wait('/home/x/train.py', 3)") as pid:
        for name, owner in (("mine", 0), ("theirs", MALLORY)):
            folder = tmp_path / name
            code = f'creat("{loaded}/{name}", 0644);'
            build(folder, StubCard(utilisation=7, pids=(pid,)), loaded=code)
            os.chown(folder, owner, owner)
        assert [one["gpu"] for one in ranks_of_a_look(tmp_path / "theirs", pid)] == [None]
        assert os.listdir(loaded) == []
        (one,) = ranks_of_a_look(tmp_path / "mine", pid)
        assert one["gpu"]["utilisation"] == 7  # so the library was missing above for no other reason
        assert os.listdir(loaded) == ["mine"]


def test_only_directories_that_root_alone_can_fill(tmp_path: Path) -> None:
    mine, theirs, open_to_all = (tmp_path / name for name in ("mine", "theirs", "open"))
    for folder in (mine, theirs, open_to_all):
        folder.mkdir(mode=0o755)
    open_to_all.chmod(0o777)
    (theirs / "below").mkdir()
    os.chown(theirs, MALLORY, MALLORY)
    (tmp_path / "link").symlink_to(theirs)
    named = [
        mine,
        theirs,
        open_to_all,
        theirs / "below",
        tmp_path / "link",
        tmp_path / "absent",
        Path("relative"),
        Path("."),
    ]
    assert library_directories({"LD_LIBRARY_PATH": ":".join(map(str, named))}) == (str(mine),)
    assert library_directories({}) == library_directories({"LD_LIBRARY_PATH": "::"}) == ()


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[GpuCards]:
    made = GpuCards(device=str(tmp_path), start=partial(NvmlChild, (str(tmp_path),)))
    yield made
    made.release()


def look() -> Observation:
    target = Target(pid=1, ppid=0, role="rank", name="python", argv=(), state="S", start_ticks=0)
    return Observation(proc=ProcFS(), deadline=Deadline(30), window=1.0, native="auto", targets={1: target})


def test_what_the_library_prints_is_no_answer(probe: GpuCards, tmp_path: Path) -> None:
    printed = 'puts("{\\"stage\\": \\"end\\"}"); fflush(0);'
    build(tmp_path, SPINNING, instead={"nvmlInitWithFlags": printed})
    observed = look()
    probe.open(observed)
    probe.during(observed)
    ((_, _, cards),) = probe.evidence(observed)
    assert isinstance(cards, Cards) and len(cards.cards) == 1


def test_a_flood_holds_up_no_poll_and_takes_no_memory(probe: GpuCards, tmp_path: Path) -> None:
    lines = "".join(json.dumps({"card": {"index": index}}) + "\n" for index in range(600))
    flood = (
        f"static const char s[] = {json.dumps(lines)}; for (;;) for (int d = 3; d < 12; d++) write(d, s, {len(lines)});"
    )
    build(tmp_path, SPINNING, instead={"nvmlInitWithFlags": flood})
    observed, end = look(), time.monotonic() + 100
    while probe._child is None or len(probe._child.part) < 64:
        assert time.monotonic() < end
        probe.close(observed)
    taken = 0

    def read_on(descriptor: int, size: int) -> bytes:
        nonlocal taken
        taken += size
        assert taken < 10 << 20
        return lines.encode()[:size]

    with pytest.MonkeyPatch.context() as patched:  # a library that always writes faster than hangdoc reads
        patched.setattr(os, "read", read_on)
        patched.setattr(probe._child, "_ready", SimpleNamespace(poll=lambda milliseconds: [1]))
        probe.close(observed)
    assert len(probe._child.part) == 64
