"""Processes of one user beside those of another: none gets into the other's run, and none shows the other's evidence."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from hangdoc.observe.kernel import file_holders, process_table, shared_memory
from hangdoc.observe.outside import processes_at_work
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Unavailable
from tests.hostile.ranks import PYTHON, program, rank, run_hangdoc
from tests.hostile.users import MALLORY, VICTIM, private_file
from tests.live.needs import needs

pytestmark = pytest.mark.usefixtures("can_attach")
MARK = "marker_of_roots_service"
_SERVICE = """
import os, subprocess, sys
def serve({mark}_argument):
    child = subprocess.Popen([sys.executable, "-I", "-c", sys.argv[1]], stdin=0, stdout=1, env={{
        "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "7", "PATH": os.environ["PATH"]}})
    child.wait()
serve("{mark}_value")
"""


@pytest.fixture(autouse=True)
def _root() -> None:
    needs("root")


def test_a_service_of_root_above_a_users_rank_is_closed(place: Path) -> None:
    """As JupyterHub or supervisord: the user chooses the variables of what it starts."""
    code = program("wait('/train.py', 1)", MALLORY)
    script = private_file(place / "service.py", 0, _SERVICE.format(mark=MARK).encode())
    with subprocess.Popen(
        [PYTHON, "-I", str(script), code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "SETTING": MARK},
        start_new_session=True,
    ) as service:
        try:
            assert service.stdout is not None
            assert service.stdout.readline() == b"ready\n"
            child = Path(f"/proc/{service.pid}/task/{service.pid}/children").read_text().split()[0]
            for pid in (child, str(service.pid)):
                seen = run_hangdoc("--pid", pid, folder=place)
                assert [view["pid"] for view in seen.document["jobs"][0]["ranks"][:1]] == [int(child)], seen.text
                assert MARK not in seen.text
        finally:
            os.killpg(service.pid, signal.SIGKILL)


def test_a_process_of_another_user_gets_into_no_run(place: Path) -> None:
    """It has the variables of a rank of the victim's run, and is not connected with it."""
    variables = {"TORCHELASTIC_RUN_ID": "the-victims-run"}
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                rank("wait('/train.py', 1)", number, uid=VICTIM, port=7, world_size=2, environment=variables)
            )
            for number in (0, 1)
        ]
        alone = run_hangdoc(*(f"--pid={pid}" for pid in ranks), folder=place).document["jobs"]
        for number in (0, 1, 2):
            with rank("wait('/train.py', 1)", number, port=7, world_size=3, environment=variables) as liar:
                jobs = run_hangdoc(*(f"--pid={pid}" for pid in (*ranks, liar)), folder=place).document["jobs"]
            (victim,) = [job for job in jobs if {view["pid"] for view in job["ranks"]} & set(ranks)]
            assert [(view["rank"], view["pid"]) for view in victim["ranks"]] == [(0, ranks[0]), (1, ranks[1])]
            assert victim["world_size"] == alone[0]["world_size"]
            assert [finding["code"] for finding in victim["findings"]] == [one["code"] for one in alone[0]["findings"]]


def test_the_environments_of_one_user_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 MB for each process, and as many processes as the user may have: hangdoc reads those of the whole host."""
    monkeypatch.setattr(process_table, "_MOST_OF_A_USER", 1 << 20)
    large = {f"FILLER_{number}": "x" * 120_000 for number in range(16)}
    with contextlib.ExitStack() as stack:
        victim = stack.enter_context(rank("wait('/train.py', 1)", uid=VICTIM, environment={"NOTE": "y" * 9_000}))
        fillers = [
            stack.enter_context(rank("wait('/train.py', 1)", number, port=7, environment=large)) for number in range(8)
        ]
        table = process_table.read(ProcFS())
    sizes = [
        sum(map(len, environment.values())) if isinstance(environment := table[pid].environment, dict) else 0
        for pid in fillers
    ]
    assert max(sizes) <= 256 << 10
    assert sum(sizes) <= 1 << 20
    refused = [
        entry.environment for entry in (table[pid] for pid in fillers) if isinstance(entry.environment, Unavailable)
    ]
    assert refused
    assert all("of its user" in one.reason for one in refused)
    assert isinstance(table[victim].environment, dict), "another user's processes keep theirs"


# --- who may end a wait: identities, not names that users choose ---------------------------------------------------------


def test_another_file_of_the_same_name_is_no_lock(tmp_path: Path) -> None:
    """In a mount namespace of its own, a process opens any path."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "lock").touch()
    awaited = file_holders.identity_of((tmp_path / "a" / "lock").stat())
    with (tmp_path / "b" / "lock").open():
        assert not file_holders.openers(ProcFS(), str(tmp_path / "a" / "lock"), awaited, -11)
    with (tmp_path / "a" / "lock").open():
        opened = file_holders.openers(ProcFS(), str(tmp_path / "a" / "lock"), awaited, -12)
        assert [holder.pid for holder in opened or ()] == [os.getpid()]


def test_shared_memory_of_another_file_system_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system of its own gives a process any inode number."""
    for pid, device in ((10, "00:1b"), (11, "00:1b"), (12, "00:77")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "maps").write_text(
            f"7f0000000000-7f0000001000 rw-s 00000000 {device} 200   /dev/shm/x\n"
        )
        (tmp_path / str(pid) / "status").write_text("Uid:\t0\t0\t0\t0\n")
    monkeypatch.setattr(file_holders, "read_holders", lambda proc, pids: tuple(pids))
    assert shared_memory.holders_of(ProcFS(str(tmp_path)), 10, 200) == (11,)


def test_only_the_user_and_root_work_for_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may work in the directory of a job."""
    users = {1: 0, 2: VICTIM, 3: MALLORY, 9: VICTIM}
    monkeypatch.setattr(process_table, "user_of", lambda proc, pid: users[pid])
    monkeypatch.setattr(processes_at_work, "_find_group_members", lambda *_: set())
    monkeypatch.setattr(processes_at_work, "_find_in_directory", lambda *_: {1, 2, 3})
    assert processes_at_work._find_beside(ProcFS(), 9, frozenset(), for_files=True) == {1, 2}


def test_the_open_files_of_one_user_take_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time in which those of others are read is not used up."""
    users = dict.fromkeys(range(10), MALLORY) | {10: VICTIM}
    monkeypatch.setattr(process_table, "user_of", lambda proc, pid: users[pid])
    monkeypatch.setattr(ProcFS, "pids", lambda self: list(range(11)))
    taken = dict(file_holders.each_of_host(ProcFS(), lambda pid: "x" * 100, 250))
    assert [pid for pid, links in taken.items() if links is None] == [3, 4, 5, 6, 7, 8, 9]
    assert taken[10] is not None
