"""The probe of the cards, against a driver's library made of nvidia-ml-py's own structures (`tests.nvml_stub`)."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.gpu import cards as cards_module
from hangdoc.observe.gpu.cards import GpuCards
from hangdoc.observe.gpu.nvml import NvmlChild
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Cards, Unavailable
from tests.live.needs import needs
from tests.nvml_stub import CRASH, HANG, SPINNING, StubCard, build

Start = Callable[..., GpuCards]


@pytest.fixture(autouse=True)
def _gcc() -> None:
    needs("gcc")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may read: the child is another user than root."""
    folder = Path(f"/tmp/hangdoc-nvml-{os.getpid()}-{time.monotonic_ns()}")
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def probe(shared: Path) -> Iterator[Start]:
    """Makes a probe of the library in `shared`, and ends its child."""
    made = []

    def make(*, once: bool = False) -> GpuCards:
        made.append(GpuCards(once=once, device=str(shared), start=partial(NvmlChild, (str(shared),))))
        return made[-1]

    yield make
    for one in made:
        one.release()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that hangs is found out sooner."""
    monkeypatch.setattr(cards_module, "ANSWER_SECONDS", 0.4)


def observation(seconds: float = 30.0) -> Observation:
    target = Target(pid=1, ppid=0, role="rank", name="python", argv=(), state="S", start_ticks=0)
    return Observation(proc=ProcFS(), deadline=Deadline(seconds), window=1.0, native="auto", targets={1: target})


def read(probe: GpuCards) -> Cards | Unavailable:
    """One look, as `observe` takes it."""
    look = observation()
    probe.open(look)
    probe.during(look)
    probe.close(look)
    ((_, field, value),) = probe.evidence(look)
    assert field == "cards" and isinstance(value, Cards | Unavailable)
    return value


def polled(probe: GpuCards, until: Callable[[Cards | Unavailable], bool]) -> Cards | Unavailable:
    """Poll until the reading is what is expected. No poll may wait."""
    look = observation()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        began = time.thread_time(), time.monotonic()
        probe.open(look)
        probe.close(look)
        readings = [value for _, _, value in probe.evidence(look)]
        assert time.monotonic() - began[1] < 0.3 + 3 * (time.thread_time() - began[0])
        for value in readings:
            assert isinstance(value, Cards | Unavailable)
            if until(value):
                return value
        time.sleep(0.02)
    pytest.fail("the reading did not come")


def test_what_the_driver_says_of_each_card(probe: Start, shared: Path) -> None:
    second = StubCard(bus=0xC1, device=0, links=(1, 1, 0), pids=(13, 12), rows=(0, 2, 1, 0), errors=3, reasons=0x44)
    build(shared, SPINNING, second)
    cards = read(probe(once=True))
    assert isinstance(cards, Cards) and cards.driver == "580.159.04" and cards.problem is None
    first, other = cards.cards
    assert (first.index, first.name, first.bus_id) == (0, "NVIDIA H100 80GB HBM3", "0000:00:06.0")
    assert (first.utilisation, first.memory_activity, first.power_watts, first.power_limit_watts) == (
        100,
        0,
        130.6,
        700.0,
    )
    assert (first.sm_clock_mhz, first.temperature_celsius, first.throttle, first.pids) == (1980, 41, (), ())
    assert (first.links_active, first.links_inactive, first.memory_used_bytes) == (None, (), 1 << 30)
    assert (other.bus_id, other.links_active, other.links_inactive, other.pids) == ("0000:c1:00.0", 2, (2,), (12, 13))
    assert (other.uncorrected_errors, other.remapping_pending, other.remapping_failed) == (3, True, False)
    assert other.throttle == ("sw_power_cap", "hw_thermal")


def test_the_child_of_a_look_ends_with_it(probe: Start, shared: Path) -> None:
    build(shared, SPINNING)
    looked = probe(once=True)
    look = observation()
    looked.open(look)
    looked.during(look)
    assert looked._child is not None
    pid = looked._child.pid
    list(looked.evidence(look))
    assert not Path(f"/proc/{pid}").exists()


def test_the_child_of_polls_stays_and_answers_each(probe: Start, shared: Path) -> None:
    build(shared, SPINNING)
    polls = probe()
    first = polled(polls, lambda value: isinstance(value, Cards))
    assert polls._child is not None
    pid, answer = polls._child.pid, polls._child.answer
    again = polled(polls, lambda value: polls._child is not None and polls._child.answer is not answer)
    assert isinstance(first, Cards) and isinstance(again, Cards) and first.cards == again.cards
    assert polls._child.pid == pid


def test_functions_that_an_older_driver_lacks_are_unknown(probe: Start, shared: Path) -> None:
    lacks = (
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetEnforcedPowerLimit",
    )  # fmt: skip
    build(shared, StubCard(reasons=0x40, utilisation=None), without=lacks)
    cards = read(probe(once=True))
    assert isinstance(cards, Cards)
    (card,) = cards.cards
    assert (card.remapping_failed, card.pids, card.power_limit_watts, card.utilisation) == (None, None, None, None)
    assert card.throttle == ("hw_thermal",)  # by its older name
    assert card.power_watts == 73.4


def test_a_lost_card_is_known_as_lost(probe: Start, shared: Path) -> None:
    build(shared, SPINNING, StubCard(lost=True))
    cards = read(probe(once=True))
    assert isinstance(cards, Cards)
    assert [card.lost for card in cards.cards] == [False, True]


@pytest.mark.usefixtures("short")
def test_a_driver_that_does_not_answer_is_evidence(probe: Start, shared: Path) -> None:
    build(shared, SPINNING, instead={"nvmlInitWithFlags": HANG})
    cards = read(probe(once=True))
    assert isinstance(cards, Cards) and cards.cards == ()
    assert cards.unanswered_seconds is not None and cards.unanswered_seconds >= 0.4
    assert "asked for: nvmlInit" in (cards.problem or "")


@pytest.mark.usefixtures("short")
def test_what_was_answered_before_it_hung_is_kept(probe: Start, shared: Path) -> None:
    build(shared, SPINNING, instead={"nvmlDeviceGetNvLinkState": HANG})
    cards = read(probe(once=True))
    assert isinstance(cards, Cards) and cards.unanswered_seconds is not None
    assert [card.utilisation for card in cards.cards] == [100]


@pytest.mark.usefixtures("short")
def test_polls_do_not_wait_for_a_driver_that_hangs(probe: Start, shared: Path) -> None:
    build(shared, SPINNING, instead={"nvmlDeviceGetUtilizationRates": HANG})
    polls = probe()
    cards = polled(polls, lambda value: isinstance(value, Cards))
    assert isinstance(cards, Cards) and cards.unanswered_seconds is not None
    assert polls._child is not None
    pid = polls._child.pid
    polled(polls, lambda value: isinstance(value, Cards) and (value.unanswered_seconds or 0) > 0.8)
    assert polls._child.pid == pid  # no second child that would hang, too


@pytest.mark.usefixtures("short")
def test_a_child_that_somebody_stops_is_not_the_drivers_fault(probe: Start, shared: Path) -> None:
    build(shared, SPINNING, instead={"nvmlDeviceGetUtilizationRates": "static int n; if (n++) { raise(19); }"})
    polls = probe()
    polled(polls, lambda value: isinstance(value, Cards))
    reading = polled(polls, lambda value: isinstance(value, Unavailable))
    assert isinstance(reading, Unavailable) and "stopped" in reading.reason


def test_a_crash_of_the_library_ends_the_child_alone(probe: Start, shared: Path) -> None:
    build(shared, SPINNING, instead={"nvmlDeviceGetRemappedRows": CRASH})
    cards = read(probe(once=True))
    assert isinstance(cards, Cards) and [card.utilisation for card in cards.cards] == [100]
    assert cards.problem is not None and cards.problem.startswith("NVML crashed (Segmentation fault")
    assert cards.unanswered_seconds is None


def test_after_a_crash_polls_do_not_start_a_child_each(probe: Start, shared: Path) -> None:
    build(shared, SPINNING, instead={"nvmlInitWithFlags": CRASH})
    polls = probe()
    reading = polled(polls, lambda value: isinstance(value, Unavailable) and "crashed" in value.reason)
    assert polled(polls, lambda value: polls._child is None) == reading
    look = observation()
    polls.close(look)
    assert polls._child is None
    assert [value for _, _, value in polls.evidence(look)] == [reading]


def test_a_library_that_is_not_there_is_named(probe: Start) -> None:
    reading = read(probe(once=True))
    assert reading == Unavailable(reason="NVML: NVML Shared Library Not Found")


def test_without_nvidia_ml_py_it_says_how_to_install_it(probe: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    reading = read(probe(once=True))
    assert isinstance(reading, Unavailable) and "pip install 'hangdoc[gpu]'" in reading.reason


def test_nothing_is_started_without_a_device_or_a_rank(shared: Path) -> None:
    def start(*, keep_user: bool) -> NvmlChild:
        pytest.fail("a child was started")

    look = observation()
    for cards, targets in ((GpuCards(device=f"{shared}/none", start=start), look.targets), (GpuCards(start=start), {})):
        look.targets = targets
        cards.open(look)
        cards.close(look)
        assert list(cards.evidence(look)) == []


def test_as_root_the_child_has_no_right_of_root(probe: Start, shared: Path) -> None:
    needs("root")
    build(shared, SPINNING)
    polls = probe()
    polled(polls, lambda value: isinstance(value, Cards))
    assert polls._child is not None
    uid, groups, effective, secure = ProcFS().fields(str(polls._child.pid), "Uid", "Groups", "CapEff", "NoNewPrivs")
    assert set((uid or "").split()) == {"65534"} and groups == ""
    assert int(effective or "1", 16) == 0 and secure == "1"


def test_a_library_that_only_root_can_read_is_read_without_capabilities(probe: Start, shared: Path) -> None:
    needs("root")
    build(shared, SPINNING)
    shared.chmod(0o700)
    polls = probe()
    polled(polls, lambda value: isinstance(value, Cards))
    assert polls._child is not None
    uid, effective = ProcFS().fields(str(polls._child.pid), "Uid", "CapEff")
    assert set((uid or "").split()) == {"0"} and int(effective or "1", 16) == 0


def test_the_child_has_no_variables_of_its_caller(shared: Path, probe: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    build(shared, SPINNING)
    monkeypatch.setenv("LD_PRELOAD", "/nonexistent.so")
    monkeypatch.setenv("PYTHONPATH", "/nonexistent")
    polls = probe()
    polled(polls, lambda value: isinstance(value, Cards))
    assert polls._child is not None
    assert set(ProcFS().environ(polls._child.pid)) <= {"LD_LIBRARY_PATH", "LC_CTYPE"}


def test_a_child_ends_when_the_probe_is_killed(shared: Path) -> None:
    build(shared, SPINNING, instead={"nvmlInitWithFlags": HANG})
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        child = NvmlChild((str(shared),))
        os.write(writer, f"{child.pid}\n".encode())
        signal.pause()
    os.close(writer)
    with os.fdopen(reader) as lines:
        child_pid = int(lines.readline())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    end = time.monotonic() + 10
    while time.monotonic() < end and _is_alive(child_pid):
        time.sleep(0.02)
    assert not _is_alive(child_pid)


def _is_alive(pid: int) -> bool:
    try:
        return ProcFS().stat(str(pid)).state not in "ZX"
    except Exception:
        return False
