"""Processes that try to hold up or confuse a look: each may spoil its own evidence, and nobody else's."""

import os
import time
from pathlib import Path

import pytest

from hangdoc import beacon
from hangdoc.observe.access import isolation, shares
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.isolation import Isolation
from hangdoc.observe.stacks import attach
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Unavailable
from tests.hostile.ranks import rank, run_hangdoc
from tests.hostile.test_files_of_others import PROC, private_source
from tests.hostile.users import MALLORY, VICTIM
from tests.live.needs import needs

pytestmark = pytest.mark.usefixtures("can_attach")


@pytest.fixture(autouse=True)
def _root() -> None:
    needs("root")


@pytest.mark.parametrize("name", ["fifo-beacon", "link-beacon", "fifo-source", "endless-metadata"])
def test_a_look_ends_in_time(name: str, place: Path) -> None:
    """Each of these was read to its end, which never comes."""
    code = "wait('/train.py', 1)"
    runtime = place / "runtime" / "hangdoc"
    runtime.mkdir(parents=True)
    os.chown(runtime, MALLORY, MALLORY)
    environment = {"XDG_RUNTIME_DIR": str(runtime.parent)}
    if name == "fifo-beacon":
        code = f"os.mkfifo(f'{runtime}/{{os.getpid()}}.beacon'); {code}"
    elif name == "link-beacon":
        code = f"os.symlink('/dev/zero', f'{runtime}/{{os.getpid()}}.beacon'); {code}"
    elif name == "fifo-source":
        os.mkfifo(place / "train.py")
        code = f"wait({str(place / 'train.py')!r}, 1)"
    else:
        torch = place / "site" / "torch" / "lib" / "libtorch_python.so"
        torch.parent.mkdir(parents=True)
        torch.write_bytes(b"\x7fELF" + bytes(8192))
        torch.chmod(0o644)
        (place / "site" / "torch-2.13.0.dist-info").mkdir()
        (place / "site" / "torch-2.13.0.dist-info" / "METADATA").symlink_to("/dev/zero")
        code = f"file = open({str(torch)!r}, 'rb'); kept = mmap.mmap(file.fileno(), 8192, prot=mmap.PROT_READ); {code}"
    with rank(code, environment=environment) as pid:
        began = time.monotonic()
        seen = run_hangdoc("--pid", str(pid), "--timeout", "8", folder=place)
        assert time.monotonic() - began < 60
    assert seen.document["jobs"], seen.text


def test_a_forged_beacon_says_nothing_of_another_users_rank(place: Path) -> None:
    """In a shared directory, anybody can make the directory of the victim's beacons first."""
    folder = place / "hangdoc"
    folder.mkdir()
    os.chown(folder, MALLORY, MALLORY)
    with rank("wait('/train.py', 1)", uid=VICTIM, environment={"XDG_RUNTIME_DIR": str(place)}) as pid:
        forged = folder / f"{pid}.beacon"
        numbers = (66, 66, 232, 1, 4)
        for owner in (MALLORY, VICTIM):
            text = beacon._LAYOUT.pack(
                beacon.MAGIC, 2, time.monotonic_ns(), pid, *numbers, b"train", b"", 0.0, 0, 2, b"", *[0] * 8
            )
            forged.write_bytes(text)
            os.chown(forged, owner, owner)
            os.chown(folder, owner, owner)
            found = run_hangdoc("--pid", str(pid), folder=place).document["jobs"][0]["ranks"][0]
            assert found["batches_done"] == (None if owner == MALLORY else 66), "its own beacon is read"


@pytest.mark.parametrize(
    "source",
    [
        "x = (" + "not " * 50_000 + "1)\n",
        "x = " + "[" * 5_000 + "]" * 5_000 + "\n",
        "x = [" + "1, " * 500_000 + "]\n",
        "x = " + "-" * 90_000 + "1\n",
        "x = " + "a." * 90_000 + "a\n",
        "x = f'" + "{f'{1}'}" * 20_000 + "'\n",
        "if 1:\n" + "".join(" " * depth + "if 1:\n" for depth in range(1, 99)) + " " * 99 + "x = 1\n",
        "x = '" + "\\" * 400_000 + "'\n",
        "password = '" + "a=" * 300_000 + "'\n",
    ],
    ids=["not", "brackets", "list", "minus", "attributes", "f-strings", "ifs", "backslashes", "pairs"],
)
def test_a_deep_or_huge_source_spoils_only_its_own_stack(source: str, place: Path) -> None:
    deep = private_source(place / "deep.py", MALLORY, source + "def wait():\n    pass\n")
    good = private_source(place / "good.py", VICTIM, "def step():\n    work()\n")
    with (
        rank(f"wait({str(deep)!r}, 1)") as hostile,
        rank(f"wait({str(good)!r}, 2)", uid=VICTIM, port=2) as victim,
    ):
        began = time.monotonic()
        seen = run_hangdoc("--pid", str(hostile), "--pid", str(victim), folder=place)
        assert time.monotonic() - began < 100
    assert "work()" in seen.text
    assert "probe failed" not in seen.text, seen.text[-2000:]
    assert {view["pid"] for job in seen.document["jobs"] for view in job["ranks"]} >= {hostile, victim}


def test_a_directory_whose_name_is_not_utf_8(place: Path) -> None:
    """Its rank is shown, with a printable name, and its files are read."""
    folder = os.fsencode(place) + b"/d\xff\xfe"
    os.mkdir(folder)
    os.mkdir(folder + b"/data")
    with open(folder + b"/data/a.parquet", "wb"):
        pass
    with rank("wait('/train.py', 1)", cwd=folder, environment={"DATA_DIR": "./data"}) as pid:
        seen = run_hangdoc("--pid", str(pid), folder=place)
    assert seen.document["jobs"], seen.text
    assert "d\\\\xff\\\\xfe" in seen.text
    assert ".parquet" in seen.text


def test_a_chroot_that_a_process_made_itself_is_not_entered(place: Path) -> None:
    """py-spy runs in the chroot of a process only if root made it: this one forges a /proc."""
    inside = place / "root"
    inside.mkdir()
    code = f"ctypes.CDLL(None).unshare(0x10000000); os.chroot({str(inside)!r}); os.chdir('/'); wait('train.py', 1)"
    with rank(code) as pid:
        forged = inside / "proc" / str(pid)
        forged.mkdir(parents=True)
        (forged / "stat").write_bytes(Path(f"/proc/{pid}/stat").read_bytes())
        assert PROC.link(f"{pid}/root") == str(inside)
        assert attach._find_other_root(PROC, pid) is None


def test_of_processes_one_may_never_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_EACH_SECONDS", 0.2)
    monkeypatch.setattr(isolation, "_LATER_SECONDS", 0.2)
    readings = Isolation(ProcFS())

    def read(pid: int) -> int:
        if pid == 3:
            time.sleep(120)
        if pid == 4:
            raise RecursionError("too deep")
        if pid == 5:
            raise MemoryError
        return pid * pid

    began = time.monotonic()
    results = readings.read_each(range(1, 8), read, Deadline(10))
    assert time.monotonic() - began < 60
    assert {pid: result for pid, result in results.items() if isinstance(result, int)} == {1: 1, 2: 4, 6: 36, 7: 49}
    assert all(isinstance(results[pid], Unavailable) for pid in (3, 4, 5))
    assert [problem for problem in readings.take_problems() if problem.startswith("pid 3: it could not be read")]
    again = readings.read_each([3, 6], read, Deadline(10))
    assert (again[3], again[6]) == (results[3], 36), "it is not tried again soon"
    readings.forget([3])
    assert readings.read_each([3], lambda pid: pid, Deadline(10)) == {3: 3}


def test_hangdoc_stops_reading_at_its_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = Isolation(ProcFS())
    look = Deadline(5)
    assert readings.read_each([1], lambda pid: pid, look) == {1: 1}
    monkeypatch.setattr(shares, "resident_bytes", lambda: 10 << 30)
    assert readings.read_each([1], lambda pid: pid, Deadline(5)) == {1: 1}, (
        "what the program used before does not count"
    )
    (refused,) = readings.read_each([1], lambda pid: pid, look).values()
    assert isinstance(refused, Unavailable)
    assert "limit" in refused.reason
    assert any("memory" in problem for problem in readings.take_problems())


def test_a_rank_that_traces_itself_is_read_and_left_as_it_was(place: Path) -> None:
    """A process has at most one tracer: its own child keeps every other from attaching."""
    code = """
libc = ctypes.CDLL(None, use_errno=True)
parent = os.getpid()
if os.fork() == 0:
    assert libc.ptrace(0x4206, parent, None, None) == 0  # PTRACE_SEIZE
    assert libc.ptrace(0x4207, parent, None, None) == 0  # PTRACE_INTERRUPT
    os.waitpid(parent, 0x40000000)  # __WALL
    print('ready', flush=True)
    signal.pause()
time.sleep(1000)
"""
    with rank(code) as child:
        pid = int(PROC.status(str(child))["PPid"])
        began = time.monotonic()
        seen = run_hangdoc("--pid", str(pid), folder=place)
        assert time.monotonic() - began < 60
        (view,) = seen.document["jobs"][0]["ranks"][:1]
        assert (view["pid"], view["state"]) == (pid, "stopped"), seen.text[:3000]
        assert PROC.status(str(pid))["State"].startswith("t"), "it is still held by its own tracer"


def test_a_rank_that_may_make_no_system_call_is_read(place: Path) -> None:
    """seccomp(2) in its strict mode kills it at any call but read, write and exit: hangdoc makes it call no other."""
    script = private_source(place / "train.py", MALLORY, "def step():\n    wait_here()\n")
    code = f"""
print('ready', flush=True)
assert ctypes.CDLL(None).prctl(22, 1, 0, 0, 0) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_STRICT
exec(compile('\\n' + 'os.read(0, 1)', {str(script)!r}, 'exec'))
"""
    with rank(code) as pid:
        until = time.monotonic() + 100
        while PROC.status(str(pid))["Seccomp"] != "1":
            assert time.monotonic() < until
        seen = run_hangdoc("--pid", str(pid), folder=place)
        assert PROC.status(str(pid))["State"].startswith("S"), "it still waits"
    assert "wait_here" in seen.text
