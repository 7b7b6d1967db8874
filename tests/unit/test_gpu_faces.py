"""Where the card of a rank is shown: the report, the page, the metrics, `doctor`."""

import io
import os
import socket
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from hangdoc.observe.gpu import abilities
from hangdoc.observe.gpu.nvml import NvmlChild
from hangdoc.procfs import Denied
from hangdoc.reasoning.engine import diagnose
from hangdoc.render import words
from hangdoc.render.text import report
from hangdoc.snapshot import Snapshot
from hangdoc.watch.metrics import Exposed
from tests.live.needs import needs
from tests.nvml_stub import HANG, SPINNING, StubCard, build
from tests.page.pages import page_of
from tests.rules.hd704.case import quiet
from tests.rules.shapes import gpu_rank
from tests.tui.sample_runs import with_cards
from tests.unit.builders import snapshot


def text_of(taken: Snapshot) -> str:
    out = io.StringIO()
    report(diagnose(taken), Console(file=out, width=100))
    return out.getvalue()


def test_the_report_has_a_column_only_if_cards_were_seen() -> None:
    without = snapshot(gpu_rank(0), gpu_rank(1))
    assert "gpu " not in text_of(without).split("rank  host")[1].splitlines()[0]
    head, row = text_of(quiet()).split("rank  host")[1].splitlines()[:2]
    assert "gpu" in head and "100% 131 W" in row


def test_ranges_and_errors_of_several_cards() -> None:
    (one,) = diagnose(with_cards()).jobs
    assert words.gpu(one.ranks) == "0-100% 112 W"
    assert words.gpu([one.ranks[3]]) == "-"  # the driver no longer names the process of a lost card


def test_the_page_has_the_column() -> None:
    page = page_of(quiet())
    assert ">GPU</th>" in page and "100 % 131 W" in page
    assert ">GPU</th>" not in page_of(snapshot(gpu_rank(0), gpu_rank(1)))


def test_the_metrics() -> None:
    exposed = Exposed()
    exposed._diagnosis = diagnose(quiet())
    values = {family.name: [sample.value for sample in family.samples] for family in exposed.collect()}
    assert values["hangdoc_rank_gpu_utilisation_percent"] == [100, 100]
    assert values["hangdoc_rank_gpu_power_watts"] == [130.6, 130.6]
    assert values["hangdoc_rank_gpu_errors"] == [0, 0]
    exposed._diagnosis = diagnose(snapshot(gpu_rank(0), gpu_rank(1)))
    assert [family.samples for family in exposed.collect() if "gpu" in family.name] == [[], [], []]


# --- doctor ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The driver's device and its library are in a folder; there is no kernel log and no InfiniBand."""
    needs("gcc")

    def refuse() -> int:
        raise Denied("/dev/kmsg: permission denied")

    for folder in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and folder.owner() == "root" and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    monkeypatch.setattr(abilities, "NvmlChild", partial(NvmlChild, (str(tmp_path),)))
    monkeypatch.setattr(abilities, "open_log", refuse)
    monkeypatch.setattr(abilities, "read_states", dict)
    return str(tmp_path)


def test_doctor_counts_the_cards(device: str) -> None:
    build(Path(device), SPINNING, StubCard(pids=(7,)))
    cards, log = abilities.examine(device)
    assert (cards.works, cards.found) == (True, "2 cards, driver 580.159.04")
    assert log.works and "Xid" in log.found


def test_doctor_says_that_no_process_is_named(device: str) -> None:
    build(Path(device), SPINNING)
    cards, _ = abilities.examine(device)
    assert cards.works and "can't be joined" in cards.found


def test_doctor_finds_a_driver_that_hangs(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(abilities, "_START_SECONDS", 0.5)
    build(Path(device), instead={"nvmlInitWithFlags": HANG})
    cards, _ = abilities.examine(device)
    assert not cards.works and "no answer" in cards.found and cards.remedy


def test_doctor_says_nothing_of_cards_where_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "read_states", dict)
    assert list(abilities.examine(f"{tmp_path}/none")) == []


def test_doctor_counts_active_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "read_states", lambda: {("mlx5_0", 1): "ACTIVE", ("mlx5_1", 1): "DOWN"})
    assert [one.found for one in abilities.examine(f"{tmp_path}/none")] == ["1 of 2 ports active"]


def test_doctor_reads_the_log(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build(Path(device), SPINNING)
    ours, theirs = socket.socketpair()
    with ours:
        monkeypatch.setattr(abilities, "open_log", theirs.detach)
        _, log = abilities.examine(device)
    assert log.found == "readable"
