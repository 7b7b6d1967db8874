"""The watchdog without any rank: deadlines, phases, stages, and everything that may be missing or in the way."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hangdoc import beacon, run_identity
from hangdoc.watchdog import HangError, Watchdog
from hangdoc.watchdog.hang_directory import Announcement, make_room
from hangdoc.watchdog.patience import Patience


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    return tmp_path / "runtime" / "hangdoc"


def own_beat(runtime: Path) -> beacon.Beat:
    found = beacon.parse((runtime / f"{os.getpid()}.beacon").read_bytes())
    assert found is not None
    return found


def test_patience_as_told_and_as_the_steps_have_it() -> None:
    assert Patience(300, 30).allowed(0) == 300
    assert Patience(300, 30).allowed(900) == 900  # the phase's own
    auto = Patience("auto", 30)
    assert auto.allowed(0) == 600  # nothing is known yet
    for _ in range(100):
        auto.observe(beats=10, elapsed=1.0, pause=0.0)
    assert auto.allowed(0) == 30  # fast steps: the floor
    slow = Patience("auto", 30)
    for _ in range(100):
        slow.observe(beats=1, elapsed=5.0, pause=8.0)
    assert slow.allowed(0) == 100  # twenty steps of five seconds
    slow.observe(beats=0, elapsed=60.0, pause=60.0)
    assert slow.allowed(0) == 180  # a pause that ended is no hang
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            Patience(wrong, 30)


def test_watch_counts_what_has_a_length_and_what_has_none(runtime: Path) -> None:
    with Watchdog(100) as watchdog:
        seen = []
        for item in watchdog.watch([10, 20, 30]):
            beat = own_beat(runtime)
            seen.append((item, beat.batches_done, beat.batches_total))
        assert seen == [(10, 0, 3), (20, 1, 3), (30, 2, 3)]
        assert own_beat(runtime).batches_done == 3
        assert list(watchdog.watch(x for x in "ab")) == ["a", "b"]
        beat = own_beat(runtime)
        assert (beat.rank, beat.world_size, beat.batches_done) == (3, 8, 2)
    assert not list(runtime.glob("*"))  # beacon and switch are taken back


def test_phases_nest_and_come_back(runtime: Path) -> None:
    with Watchdog(100) as watchdog:
        with watchdog.phase("evaluate", timeout=900):
            assert (own_beat(runtime).phase, own_beat(runtime).patience_seconds) == ("evaluate", 900)
            with watchdog.phase("checkpoint"):
                assert (own_beat(runtime).phase, own_beat(runtime).patience_seconds) == ("checkpoint", None)
            assert own_beat(runtime).patience_seconds == 900
        assert (own_beat(runtime).phase, own_beat(runtime).patience_seconds) == ("train", None)


def test_stages_are_published_step_by_step(runtime: Path) -> None:
    with Watchdog(100) as watchdog:
        for _ in range(3):
            for name, seconds in (("data", 0.002), ("forward", 0.004), ("backward", 0.004), ("optimizer", 0.001)):
                with watchdog.stage(name):
                    time.sleep(seconds)
        stages = own_beat(runtime).stages
        assert len(stages) == 4
        assert all(0.0005 < seconds < 1 for seconds in stages)
        with pytest.raises(KeyError), watchdog.stage("lunch"):
            pass


@pytest.mark.parametrize("bad", ["stop", 3, None])
def test_an_action_that_is_none(bad: object) -> None:
    with pytest.raises(ValueError, match="on_hang"):
        Watchdog(1, on_hang=bad)  # type: ignore[arg-type]


def test_one_rank_announces_and_the_others_dump(tmp_path: Path) -> None:
    first, other, stranger = (
        Announcement(tmp_path, "run-1"),
        Announcement(tmp_path, "run-1"),
        Announcement(tmp_path, "run-2"),
    )
    assert other.announced() is None
    folder = first.announce(tmp_path / "out")
    assert other.announced() == folder == other.announce(tmp_path / "elsewhere")
    assert stranger.announced() is None  # two jobs of one user
    assert Announcement(tmp_path, "run-1").announced() is None  # started after that hang: it is history
    with make_room(folder, 0) as room:
        assert room.claim("host.claim")
        assert not room.claim("host.claim")
    assert [path.name for path in folder.iterdir()] == ["host.claim"]


def test_a_wall_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a host: deadlines, calls and their freshness are on the monotonic clock."""
    one, other = Announcement(tmp_path, "run-1"), Announcement(tmp_path, "run-1")
    true = time.time
    for jump in (-7200, 7200):
        monkeypatch.setattr(time, "time", lambda jump=jump: true() + jump)
        folder = one.announce(tmp_path / "out")
        assert other.announced() == folder


def test_an_old_call_is_history(tmp_path: Path) -> None:
    now = 1000.0
    one, other = (Announcement(tmp_path, "run-1", lambda: now) for _ in range(2))
    one.announce(tmp_path / "out")
    assert other.announced() is not None
    now += 121
    assert other.announced() is None
    assert one.announce(tmp_path / "next") == other.announced() == tmp_path / "next"


@pytest.mark.parametrize("text", ["", "soon /x", "nan /x", "/x"])
def test_a_call_file_of_something_else(text: str, tmp_path: Path) -> None:
    call = Announcement(tmp_path, "run-1")
    (tmp_path / f".hangdoc-{run_identity.digest('run-1')}.hang").write_text(text)
    assert call.announced() is None
    assert call.announce(tmp_path / "out") == tmp_path / "out" == call.announced()


def expire(watchdog: Watchdog, capsys: pytest.CaptureFixture[str], text: str) -> str:
    """Until the watchdog of a trainer that does not beat has said so."""
    said = ""
    until = time.monotonic() + 20
    with watchdog:
        while text not in said:
            assert time.monotonic() < until, said
            time.sleep(0.05)
            said += capsys.readouterr().err
    return said


def test_a_directory_that_cannot_be_made_is_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    said = expire(Watchdog(0.3, directory=tmp_path / "file" / "x"), capsys, "cannot write evidence")
    assert said.count("cannot write evidence") == 1


def test_a_beacon_that_cannot_be_made_leaves_the_watchdog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runtime").write_text("not a directory")
    called: list[Path] = []
    said = expire(Watchdog(0.3, directory=tmp_path / "out", on_hang=called.append), capsys, "no progress")
    assert said.count("could not create the heartbeat file") == 1


def test_a_callable_is_given_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdoc.watchdog.alarm._SNAPSHOT_SECONDS", 0.01)  # no look from outside: it is not the point
    monkeypatch.setattr("hangdoc.watchdog.alarm._REPORT_SECONDS", 0.01)
    called: list[Path] = []
    with Watchdog(0.3, directory=tmp_path / "out", on_hang=called.append):
        until = time.monotonic() + 20
        while not called and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.8)
    (folder,) = called  # once
    assert "test_a_callable_is_given_the_directory" in (folder / "rank-3.stacks.txt").read_text()


def test_raise_ends_a_loop_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdoc.watchdog.alarm._SNAPSHOT_SECONDS", 0.01)
    monkeypatch.setattr("hangdoc.watchdog.alarm._REPORT_SECONDS", 0.01)
    until = time.monotonic() + 20
    with pytest.raises(HangError), Watchdog(0.3, directory=tmp_path, on_hang="raise"):
        while time.monotonic() < until:
            time.sleep(0.01)


@pytest.mark.parametrize("allowed", [True, False])
def test_who_may_attach_where_yama_asks(allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel would be told: this one has no Yama. Anybody of the same user from the start, or only for the look."""
    asked: list[tuple[int, int]] = []
    libc = SimpleNamespace(prctl=lambda option, who, *_: asked.append((option, who.value)))
    monkeypatch.setattr("ctypes.CDLL", lambda *_: libc)
    monkeypatch.setattr("hangdoc.watchdog.alarm._SNAPSHOT_SECONDS", 0.01)
    monkeypatch.setattr("hangdoc.watchdog.alarm._REPORT_SECONDS", 0.01)
    called: list[Path] = []
    anybody, nobody = (0x59616D61, 2**64 - 1), (0x59616D61, 0)
    with Watchdog(0.5, directory=tmp_path, on_hang=called.append, allow_attach=allowed):
        time.sleep(0.2)
        assert asked == ([anybody] if allowed else [])
        until = time.monotonic() + 20
        while not called and time.monotonic() < until:
            time.sleep(0.05)
    assert asked == ([anybody] if allowed else [anybody, nobody])


class Hooks:
    """A module or an optimizer, as far as its hooks go."""

    def __init__(self) -> None:
        self.hooks: dict[str, Callable[..., None]] = {}

    def __getattr__(self, name: str) -> Callable[..., object]:
        if not name.startswith("register_"):
            raise AttributeError(name)

        def register(hook: Callable[..., None]) -> object:
            self.hooks[name] = hook
            return SimpleNamespace(remove=lambda: self.hooks.pop(name))

        return register


def test_hooks_find_the_stages(runtime: Path) -> None:
    module, optimizer = Hooks(), Hooks()

    def fetched() -> Iterator[int]:
        for n in range(3):
            time.sleep(0.02)  # data
            yield n

    with Watchdog(100) as watchdog:
        watchdog.follow(module, optimizer)  # type: ignore[arg-type]
        rounds = [time.perf_counter()]
        for _ in watchdog.watch(fetched()):
            for micro_batch in range(2):
                module.hooks["register_forward_pre_hook"]()
                time.sleep(0.03)
                module.hooks["register_forward_hook"]()
                time.sleep(0.05 if micro_batch else 0.01)  # its backward
            optimizer.hooks["register_step_pre_hook"]()
            time.sleep(0.01)
            optimizer.hooks["register_step_post_hook"]()
            rounds.append(time.perf_counter())
        longest = max(after - before for before, after in itertools.pairwise(rounds))  # stages are smoothed over rounds
        beat = own_beat(runtime)
    data, forward, backward, step = beat.stages
    assert min(data / 0.02, forward / 0.06, backward / 0.06, step / 0.01) > 0.99
    assert data + forward + backward + step <= longest + 0.001  # no time is counted twice
    assert (beat.step, beat.batches_done) == (3, 3)
    assert not module.hooks  # taken out with the watchdog
    assert not optimizer.hooks


def test_a_fork_inherits_no_watchdog(runtime: Path) -> None:
    with Watchdog(100) as watchdog:
        child = os.fork()
        if child == 0:
            watchdog.beat(99)
            watchdog.stop()
            os._exit(0)
        os.waitpid(child, 0)
        assert own_beat(runtime).step is None


PROGRAM = """
import sys, time
from hangdoc.watchdog import Watchdog
watchdog = Watchdog(100).start()
watchdog.beat(1)
{end}
"""


@pytest.fixture(params=["", "sys.exit(3)", "raise ValueError('mine')"])
def ending(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


def test_it_ends_with_the_interpreter(ending: str, runtime: Path) -> None:
    """Never stopped by its owner: at exit, on an exception."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(end=ending)], capture_output=True, text=True, timeout=20,
                          check=False)  # fmt: skip
    assert done.returncode == {"": 0, "sys.exit(3)": 3}.get(ending, 1)
    assert "hangdoc" not in done.stderr.replace("hangdoc.watchdog", "")
    assert not list(runtime.glob("*.beacon"))
