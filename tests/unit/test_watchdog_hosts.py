"""How ranks on several hosts call each other and come to one report: the run_store, and what hosts do with it."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hangdoc.private_directory import PrivateDirectory
from hangdoc.watchdog import joint_report
from hangdoc.watchdog import run_store as board_module
from hangdoc.watchdog.joint_report import JointReport
from hangdoc.watchdog.run_store import RunStore


class Store:
    """A run's store, as torch's TCPStore behaves, in this process."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self.asked = 0
        self.trouble: Any = lambda: None

    def clone(self) -> "Store":
        return self

    def set_timeout(self, timeout: object) -> None:
        pass

    def check(self, keys: list[str]) -> bool:
        self.asked += 1
        self.trouble()
        return all(key in self._values for key in keys)

    def get(self, key: str) -> bytes:
        return self._values[key]

    def set(self, key: str, value: bytes) -> None:
        self.trouble()
        self._values[key] = value

    def add(self, key: str, more: int) -> int:
        with self._lock:
            value = int(self._values.get(key, b"0")) + more
            self._values[key] = str(value).encode()
        return value

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        self.trouble()
        with self._lock:
            return self._values.setdefault(key, desired.encode())


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    shared = Store()
    torch = SimpleNamespace(is_initialized=lambda: True, _get_default_store=lambda: shared)
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", torch)  # type: ignore[arg-type]
    monkeypatch.setattr(board_module, "_ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(joint_report, "_DEFER_SECONDS", 3.0)
    monkeypatch.setattr(joint_report, "_GATHER_SECONDS", 3.0)
    yield shared
    shared.trouble = lambda: None


def hears(run_store: RunStore) -> str | None:
    """What a run_store hears when it is asked, as soon as it has an answer."""
    run_store.listen(urgent=True)
    until = time.monotonic() + 2
    while run_store.announced() is None and time.monotonic() < until:
        time.sleep(0.01)
    return run_store.announced()


def test_of_two_that_call_one_comes_first_and_all_hear_it(store: Store) -> None:
    one, other, third = RunStore(), RunStore(), RunStore()
    assert one.agree("hangdoc-a") == other.agree("hangdoc-b") == hears(third) == "hangdoc-a"


def test_the_next_hang_has_another_name(store: Store) -> None:
    one, other = RunStore(), RunStore()
    assert one.agree("first") == hears(other) == "first"
    assert other.agree("second") == "second"
    one.listen(urgent=True)
    time.sleep(0.1)
    assert one.announced() == "second"


def test_a_call_from_before_is_history(store: Store) -> None:
    RunStore().agree("old")
    time.sleep(0.01)
    late = RunStore()
    late.listen(urgent=True)
    time.sleep(0.1)
    assert late.announced() is None
    assert late.agree("new") == "new"


def test_a_healthy_rank_asks_every_few_seconds_only(store: Store) -> None:
    run_store = RunStore()
    for _ in range(50):
        run_store.listen(urgent=False)
        time.sleep(0.002)
    assert store.asked <= 1


def test_announced_silence_holds_until_it_is_revoked(store: Store) -> None:
    one, other = RunStore(), RunStore()
    one.announce_silence(3, 60)
    time.sleep(0.1)
    assert other.silence_announced([1, 3])
    assert not other.silence_announced([1, 2])
    one.announce_silence(3, 0.0)
    time.sleep(0.1)
    assert not other.silence_announced([3])


def test_a_store_that_does_not_answer_costs_one_wait(store: Store) -> None:
    run_store = RunStore()
    store.trouble = lambda: time.sleep(30)
    began = time.monotonic()
    assert run_store.agree("mine") == "mine"
    assert run_store.get("x") is None
    assert run_store.count("x", 1) is None
    assert time.monotonic() - began < 2
    assert "did not answer" in run_store.reason


def test_a_store_that_is_gone_is_not_asked_again(store: Store) -> None:
    def gone() -> None:
        raise ConnectionError("Broken pipe")

    run_store = RunStore()
    store.trouble = gone
    assert run_store.agree("mine") == "mine"
    assert "Broken pipe" in run_store.reason
    asked = store.asked
    run_store.listen(urgent=True)
    assert run_store.get("x") is None
    assert store.asked == asked


def test_without_torch_nobody_answers() -> None:
    run_store = RunStore()
    assert run_store.agree("mine") == "mine"
    assert run_store.reason == "the run has no store yet"


def hold(folder: Path, host: str, ranks: list[int], elsewhere: list[int], said: dict[str, str]) -> None:
    """One host's part, with a report that says what it was made of."""
    folder.mkdir()
    bundle = f"host-{host}.hangdoc"
    (folder / bundle).write_bytes(host.encode())
    joint = JointReport(PrivateDirectory(folder), host, ranks, elsewhere, RunStore())
    joint.share(bundle)
    if joint.reports():
        joint.gather()
        made_of = " ".join(path.stem for path in sorted(folder.glob("*.hangdoc")))
        (folder / "report.txt").write_text(f"{host} reports on {made_of}")
        joint.publish()
    said[host] = (folder / "report.txt").read_text()


def test_the_host_of_rank_0_reports_on_all(store: Store, tmp_path: Path) -> None:
    said: dict[str, str] = {}
    hosts = [("a", [0, 1], [2, 3, 4, 5]), ("b", [2, 3], [0, 1, 4, 5]), ("c", [4, 5], [0, 1, 2, 3])]
    threads = []
    for host, ranks, elsewhere in reversed(hosts):
        (tmp_path / host).mkdir()
        folder = tmp_path / host / "hangdoc-1"
        threads.append(threading.Thread(target=hold, args=(folder, host, ranks, elsewhere, said)))
        threads[-1].start()
        time.sleep(0.05)
    for thread in threads:
        thread.join(20)
    assert said == dict.fromkeys("abc", "a reports on host-a host-b host-c")


def test_where_rank_0_is_mute_another_host_reports(store: Store, tmp_path: Path) -> None:
    said: dict[str, str] = {}
    hold(tmp_path / "hangdoc-1", "b", [1], [0], said)
    assert said == {"b": "b reports on host-b"}


def test_without_a_store_each_host_reports_for_itself(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joint_report, "_DEFER_SECONDS", 0.2)
    monkeypatch.setattr(joint_report, "_GATHER_SECONDS", 0.2)
    store.trouble = lambda: time.sleep(30)
    said: dict[str, str] = {}
    for host, ranks, elsewhere in (("a", [0], [1]), ("b", [1], [0])):
        (tmp_path / host).mkdir()
        hold(tmp_path / host / "hangdoc-1", host, ranks, elsewhere, said)
    assert said == {"a": "a reports on host-a", "b": "b reports on host-b"}
