"""InfiniBand and RoCE ports, in a tree like that of sysfs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.gpu.links import LinkPorts
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import LinkPort, Links


class Sys:
    """A /sys with InfiniBand devices."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("infiniband", "infiniband_verbs"):
            (root / "class" / name).mkdir(parents=True)

    def device(self, name: str, files: int, *, state: str = "4: ACTIVE", physical: str = "5: LinkUp") -> None:
        real = self.root / "devices" / name
        port = real / "ports" / "1"
        for folder in ("counters", "hw_counters"):
            (port / folder).mkdir(parents=True)
        (port / "state").write_text(f"{state}\n")
        (port / "phys_state").write_text(f"{physical}\n")
        (port / "link_layer").write_text("InfiniBand\n")
        (self.root / "class" / "infiniband" / name).symlink_to(real)
        verbs = self.root / "devices" / f"uverbs{files}"
        verbs.mkdir()
        (verbs / "ibdev").write_text(f"{name}\n")
        (self.root / "class" / "infiniband_verbs" / f"uverbs{files}").symlink_to(verbs)

    def count(self, device: str, **counters: int) -> None:
        for name, value in counters.items():
            folder = "counters" if name.startswith(("port_", "link_", "symbol_")) else "hw_counters"
            (self.root / "devices" / device / "ports" / "1" / folder / name).write_text(f"{value}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Sys:
    return Sys(tmp_path)


def observation(*pids: int) -> Observation:
    targets = {
        pid: Target(pid=pid, ppid=0, role="rank", name="python", argv=(), state="S", start_ticks=0) for pid in pids
    }
    return Observation(proc=ProcFS(), deadline=Deadline(30), window=1.0, native="auto", targets=targets)


def links(probe: LinkPorts, look: Observation) -> dict[str, LinkPort]:
    probe.close(look)
    ((_, field, value),) = probe.evidence(look)
    assert field == "links" and isinstance(value, Links)
    return {port.device: port for port in value.ports}


def test_counters_that_grow_are_shown_and_others_are_not(tree: Sys) -> None:
    tree.device("mlx5_0", 0)
    tree.device("mlx5_1", 1, state="1: DOWN", physical="3: Disabled")
    tree.count("mlx5_0", local_ack_timeout_err=5, symbol_error=7, port_rcv_data=100, port_xmit_data=10)
    probe, look = LinkPorts(str(tree.root)), observation()
    probe.open(look)
    tree.count("mlx5_0", local_ack_timeout_err=9, symbol_error=7, port_rcv_data=350, port_xmit_data=10)
    found = links(probe, look)
    assert found["mlx5_0"] == LinkPort(
        device="mlx5_0", port=1, layer="InfiniBand", state="ACTIVE", physical_state="LinkUp",
        grown={"local_ack_timeout_err": 4}, received_bytes=1000, sent_bytes=0,
    )  # fmt: skip
    down = found["mlx5_1"]
    assert (down.state, down.physical_state, down.grown, down.received_bytes) == ("DOWN", "Disabled", {}, None)


def test_a_poll_compares_with_the_one_before(tree: Sys) -> None:
    tree.device("mlx5_0", 0)
    tree.count("mlx5_0", link_downed=1)
    probe, look = LinkPorts(str(tree.root)), observation()
    probe.open(look)
    tree.count("mlx5_0", link_downed=2)
    assert links(probe, look)["mlx5_0"].grown == {"link_downed": 1}
    probe.start_next_window(look)
    probe.open(look)
    assert links(probe, look)["mlx5_0"].grown == {}


def test_a_counter_that_was_reset_or_is_no_number_has_not_grown(tree: Sys) -> None:
    tree.device("mlx5_0", 0)
    tree.count("mlx5_0", link_downed=9)
    probe, look = LinkPorts(str(tree.root)), observation()
    probe.open(look)
    tree.count("mlx5_0", link_downed=0)
    (tree.root / "devices/mlx5_0/ports/1/counters/symbol_error").write_text("N/A (no PMA)\n")
    assert links(probe, look)["mlx5_0"].grown == {}


@pytest.fixture
def holder(tree: Sys, tmp_path: Path) -> Iterator[int]:
    """A process that has a file of this name open."""
    tree.device("mlx5_0", 0)
    tree.device("mlx5_1", 1)
    file = tmp_path / "uverbs1"
    file.write_text("")
    code = f"import sys; file = open({str(file)!r}); print('ready', flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.communicate()


def test_who_has_which_device_open(tree: Sys, holder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = LinkPorts(str(tree.root))
    names = probe._list_device_files()
    assert names == {"/dev/infiniband/uverbs0": "mlx5_0", "/dev/infiniband/uverbs1": "mlx5_1"}
    here = {f"{tmp_path}/{os.path.basename(path)}": device for path, device in names.items()}
    monkeypatch.setattr(probe, "_list_device_files", lambda: here)
    look = observation(holder)
    probe.open(look)
    found = links(probe, look)
    assert (found["mlx5_0"].pids, found["mlx5_1"].pids) == ((), (holder,))
    look.targets = {}
    assert links(probe, look)["mlx5_1"].pids == ()


def test_a_host_without_devices_has_no_links(tmp_path: Path) -> None:
    probe, look = LinkPorts(str(tmp_path)), observation()
    probe.open(look)
    probe.during(look)
    probe.close(look)
    assert list(probe.evidence(look)) == []
