"""The patient: whatever happens to hangdoc, no rank stays stopped, no py-spy stays behind, nothing held is touched."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangdoc.observe.look.observe import Options, observe
from hangdoc.reasoning.engine import diagnose
from hangdoc_trainer.scenarios import Started
from tests.live.needs import lacks, needs, shares

pytestmark = [
    pytest.mark.live,
    pytest.mark.usefixtures("can_attach"),
    shares("healthy"),
]
HANGDOC = str(Path(sys.executable).with_name("hangdoc"))


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def spies_on(pids: list[int]) -> list[str]:
    """Living py-spy processes that name one of our ranks."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().decode().split("\0") if entry.isdigit() else []
        except OSError:
            continue
        if words and "py-spy" in words[0] and any(str(pid) in words for pid in pids):
            found.append(entry)
    return found


def before_main(complaint: str) -> bool:
    """Whether Python itself was interrupted, in its own start or while it looked for our main(): not ours to silence."""
    return complaint.startswith("Fatal Python error: init") or "    from hangdoc.cli.main import main\n" in complaint


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_end_at_any_moment_leaves_nothing(run: Started, number: signal.Signals, tmp_path: Path) -> None:
    ranks = list(run.rank_pids().values())
    dice = random.Random(7)  # noqa: S311
    for _ in range(6):
        bundle = tmp_path / "x.hangdoc"
        command = [HANGDOC, "snapshot", "-o", str(bundle), "--native", "always", "--pid", str(run.pids[0])]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(dice.uniform(0.05, 1.6))
        child.send_signal(number)
        _, complaint = child.communicate(timeout=200)
        assert "Traceback" not in complaint or before_main(complaint)
        until = time.monotonic() + 60  # a py-spy under way ends by itself; the kernel lets go of what it held
        while spies_on(ranks) and time.monotonic() < until:
            time.sleep(0.05)
        assert not spies_on(ranks)
        assert all(state(pid) in "RSD" for pid in ranks)
        assert not [path for path in tmp_path.iterdir() if path != bundle]
    steps = max(beat.step or 0 for beat in run.beats())
    until = time.monotonic() + 100
    while max(beat.step or 0 for beat in run.beats()) == steps:
        assert time.monotonic() < until, "the run no longer moves"
        time.sleep(0.1)


FREEZERS = {
    "v1": (Path("/sys/fs/cgroup/freezer"), "freezer.state", "FROZEN", "THAWED"),
    "beside v1": (Path("/sys/fs/cgroup/unified"), "cgroup.freeze", "1", "0"),
    "v2": (Path("/sys/fs/cgroup"), "cgroup.freeze", "1", "0"),
}
"""By hierarchy: where it is mounted, the file of a group that freezes it, what to write to freeze and to thaw."""


def is_frozen(group: Path, switch: str, freeze: str) -> bool:
    events = group / "cgroup.events"  # only of v2, whose switch shows what was written, not what is
    return "frozen 1" in events.read_text() if events.exists() else (group / switch).read_text().strip() == freeze


@pytest.mark.parametrize("name", [name for name, (mount, *_) in FREEZERS.items() if (mount / "cgroup.procs").exists()])
def test_a_frozen_control_group_is_told_and_left_frozen(run: Started, name: str) -> None:
    """The kernel shows state S or D for a frozen rank; nothing may try to pause it."""
    needs("root")
    mount, switch, freeze, thaw = FREEZERS[name]
    if not os.access(mount, os.W_OK):
        lacks(f"needs to write to {mount}")
    group, rank = mount / f"hangdoc-test-{os.getpid()}", run.rank_pids()[1]
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(rank))
        (group / switch).write_text(freeze)
        until = time.monotonic() + 60
        while not is_frozen(group, switch, freeze):
            assert time.monotonic() < until
            time.sleep(0.05)
        seen = observe(Options(pids=(run.pids[0],)))
        still = (group / switch).read_text().strip()
    finally:
        (group / switch).write_text(thaw)
        (mount / "cgroup.procs").write_text(str(rank))
        group.rmdir()
    assert still == freeze
    assert not seen.hosts[0].problems  # no probe waited for the rank until its bound
    leading = diagnose(seen).jobs[0].findings[0]
    assert (leading.code, leading.culprits) == ("HD302", (1,))
    assert "is frozen by its control group" in leading.summary
    assert state(rank) in "RSD"


AS_NOBODY = """
import encodings.utf_16_be, importlib, os, pkgutil, sys
import hangdoc
import psutil
for module in pkgutil.walk_packages(hangdoc.__path__, "hangdoc."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from hangdoc.cli import group, looking
looking._preload()
os.setgroups([])
os.setgid(65534)
os.setuid(65534)  # everything is imported: what follows may not read root's files
os._exit(group.run(sys.argv[1:]))
"""


@pytest.mark.parametrize("named", [True, False])
def test_another_user_sees_what_he_may_and_says_so(run: Started, named: bool) -> None:
    """Without the right to attach: the ranks with what their clocks show, no guess, exit code 4, and what would settle it."""
    needs("root")
    restricted = ["--pid", str(run.pids[0])] if named else []
    command = [sys.executable, "-c", AS_NOBODY, "diagnose", "--json", *restricted]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 4 or not named, result  # without a pid, the runs of other tests are in the report too
    document = json.loads(result.stdout)
    (job,) = [job for job in document["jobs"] if job["started_by"]["pid"] == run.pids[0]]
    assert [view["rank"] for view in job["ranks"]] == [0, 1]
    assert job["verdict"] == "unknown"
    assert all(view["cpu_percent"] is not None for view in job["ranks"])
    assert {finding["code"] for finding in job["findings"]} == {"HD901"}
    assert any(command.startswith("sudo hangdoc diagnose --pid") for command in job["findings"][0]["commands"])
    assert any("run hangdoc as that user or as root" in problem for problem in document["problems"])
