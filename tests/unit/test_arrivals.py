"""Files that appear in the directories of a rank that polls for them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangdoc.observe.kernel import system_calls
from hangdoc.observe.outside import newest_files
from hangdoc.procfs import ProcFS
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Arrival, Clocks, Counter, KernelThread, Loop, Process, Progress, Stack
from tests.unit.builders import c10d, frame, rank, silent, snapshot, stack

POLLS = Loop(line=3, end_line=5, header="while not (self.folder / 'READY').exists()")


def of(pid: int, argv: tuple[str, ...], loop: Loop = POLLS) -> Arrival | None:
    main = KernelThread(
        tid=pid,
        name="python3",
        state="S",
        cpu_ns=0,
        voluntary_switches=0,
        involuntary_switches=0,
        syscall=min(system_calls.SLEEPS),
    )
    read = stack(frame("wait", 5, loops=(loop,)))
    assert isinstance(read, Stack)
    clocks = Clocks(window_seconds=1.0, resolution_ns=1, threads=(main,))
    return newest_files.newest(ProcFS(), pid, ProcFS().stat(str(pid)).start_ticks, argv, read, clocks)


def test_the_newest_file_below_the_working_directory_or_in_an_argument(tmp_path: Path) -> None:
    work, landing = tmp_path / "work", tmp_path / "landing"
    for folder, age in ((work, 0.0), (work / "parts", 50.0), (work / ".git", 1.0), (landing, 20.0)):
        folder.mkdir()
        os.utime(folder, (time.time() - age,) * 2)
    os.utime(work / "parts", (time.time() - 50.0,) * 2)
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=work, stdin=subprocess.PIPE) as child:
        try:
            found = of(child.pid, ("python", "train.py"))
            assert found is not None, "people make files in the working directory itself"
            assert (found.folder, found.seconds_ago) == (str(work / "parts"), pytest.approx(50.0, abs=5.0))
            found = of(child.pid, ("python", "train.py", "--landing", "../landing"))
            assert found is not None
            assert (found.folder, found.seconds_ago) == (str(landing), pytest.approx(20.0, abs=5.0))
            retries = Loop(line=3, end_line=5, header="for attempt in range(9)")
            assert of(child.pid, ("python", "train.py"), retries) is None, "it waits for no file"
        finally:
            child.kill()


def test_a_bundle_that_hangdoc_saves_is_not_what_a_rank_waits_for(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "old.bin").touch()
    time.sleep(0.3)  # the bundle is made later
    (out / "hang.hangdoc").touch()
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=tmp_path, stdin=subprocess.PIPE) as child:
        try:
            found = of(child.pid, ("python", "train.py"))
            assert found is not None and found.seconds_ago >= 0.3, "the file before it is as old as that"
            (out / "new.bin").touch()
            found = of(child.pid, ("python", "train.py"))
            assert found is not None and found.folder == str(out)
        finally:
            child.kill()


@pytest.mark.parametrize("seconds_ago, verdict", [(8.0, "waiting"), (50.0, "hung"), (None, "hung")])
def test_a_wait_for_files_is_not_older_than_the_newest_file(seconds_ago: float | None, verdict: str) -> None:
    def polling(arrival: Arrival | None) -> Process:
        return rank(
            0,
            frame("wait", 5, loops=(POLLS,)),
            frame("main", 9),
            kernel={"syscall": "clock_nanosleep", "sleep_seconds": 1.0, "idle_seconds": 1.0},
            arrival=arrival,
        )

    newest = Arrival(folder="/job/landing", seconds_ago=seconds_ago) if seconds_ago is not None else None
    waits = rank(1, *c10d("all_reduce"), frame("main", 12))  # in a broadcast it may wait for a server that is idle
    (job,) = diagnose(snapshot(polling(newest), waits, silence=None, connections=silent(2, 90.0))).jobs
    assert job.verdict == verdict
    assert ("a file appeared in /job/landing 8.0 s ago" in str(job.findings[0].evidence)) == (seconds_ago == 8.0)
    since = "; the last activity was 8.0 s ago, and this counts as HUNG after 30 s without any"
    assert job.findings[0].summary.endswith(since) == (seconds_ago == 8.0)


def test_counting_attempts_is_no_progress() -> None:
    """A loop that tests files and sleeps counts how long it has waited."""
    loop = Loop(line=3, end_line=6, header="while not path.exists()", advances=("waited",))
    for call, state in (("clock_nanosleep", "sleeping"), ("read", "computing")):
        polls = rank(
            0,
            frame("wait", 5, loops=(loop,)),
            frame("main", 9),
            kernel={"syscall": call, "sleep_seconds": 1.0 if call == "clock_nanosleep" else None},
            progress=Progress(
                counters=(
                    Counter(name="waited", function="wait", file="/home/me/train.py", before=8, after=10, looped=True),
                )
            ),
        )
        (job,) = diagnose(snapshot(polls, rank(1, *c10d("broadcast"), frame("main", 12)))).jobs
        assert job.ranks[0].state == state


@pytest.mark.parametrize(("theirs", "shown"), [("/cache/a", True), (None, True), ("/cache/b", False)])
def test_a_path_of_its_own_in_the_environment_of_a_rank_that_polls(theirs: str | None, shown: bool) -> None:
    """It looks for a file in another cache than the ranks that make it."""
    sleeps = {"syscall": "clock_nanosleep", "sleep_seconds": 1.0, "idle_seconds": 1.0}
    looks = rank(
        0,
        frame("wait", 5, loops=(POLLS,)),
        frame("main", 9),
        world=3,
        kernel=sleeps,
        environment={"CACHE_DIR": "/cache/b"},
    )
    others = {} if theirs is None else {"CACHE_DIR": theirs}
    waits = [rank(number, *c10d("all_reduce"), frame("main", 12), world=3, environment=others) for number in (1, 2)]
    (job,) = diagnose(snapshot(looks, *waits, silence=90.0)).jobs
    text = f"CACHE_DIR is /cache/b, on the others {theirs or 'not set'}"
    assert (text in [evidence.text for evidence in job.findings[0].evidence]) == shown
