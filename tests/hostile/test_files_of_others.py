"""Ranks that name files which their owner may not read: root's hangdoc must not read them for the owner."""

import os
import time
from pathlib import Path

import pytest

from hangdoc.observe.access import process_files
from hangdoc.observe.access.owner_rights import Refused, rights_of
from hangdoc.observe.access.process_files import files_of
from hangdoc.procfs import Gone, ProcFS
from tests.hostile.ranks import rank, run_hangdoc
from tests.hostile.users import MALLORY, VICTIM, private_file
from tests.live.needs import needs

pytestmark = pytest.mark.usefixtures("can_attach")
PROC = ProcFS()
MARK = "marker_of_what_is_private"
SOURCE = f"first = 1\n{MARK} = 2\nthird = 3\n"


@pytest.fixture(autouse=True)
def _root() -> None:
    needs("root")


def private_source(path: Path, owner: int, text: str = SOURCE) -> Path:
    """A file of an hour ago that only its owner may read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    private_file(path, owner, text.encode())
    hour = time.time() - 3600
    os.utime(path, (hour, hour))
    return path


def start_ticks(pid: int) -> int:
    return PROC.stat(str(pid)).start_ticks


@pytest.mark.parametrize("owner", [0, VICTIM], ids=["root", "another-user"])
def test_code_that_claims_to_come_from_a_private_file(owner: int, place: Path) -> None:
    target = private_source(place / "train.py", owner)
    with rank(f"wait({str(target)!r}, 2)") as pid:
        seen = run_hangdoc("--pid", str(pid), folder=place)
    assert seen.document["jobs"], seen.text
    assert MARK not in seen.text


def test_the_owners_own_private_file_is_shown(place: Path) -> None:
    """What the rank's user can read stays evidence."""
    target = private_source(place / "train.py", MALLORY)
    with rank(f"wait({str(target)!r}, 2)") as pid:
        assert MARK in run_hangdoc("--pid", str(pid), folder=place).text


def test_a_link_in_a_package_that_leads_to_a_private_source(place: Path) -> None:
    target = private_source(place / "root" / "key.py", 0)
    package = place / "site-packages" / "module.py"
    package.parent.mkdir()
    package.symlink_to(target)
    with rank(f"wait({str(package)!r}, 2)") as pid:
        assert MARK not in run_hangdoc("--pid", str(pid), folder=place).text


def test_the_environment_of_a_process_of_root_as_source(place: Path) -> None:
    with (
        rank("wait('train.py', 1)", uid=0, environment={"PLANTED": f"\n{MARK} = 1\n"}) as other,
        Path(f"/proc/{other}/environ").open() as older,  # than the attacker, so that hangdoc takes it for a source
        rank(f"wait('/proc/{other}/environ', 2)", 1, port=2) as pid,
    ):
        assert os.fstat(older.fileno()).st_mtime < time.time()
        assert MARK not in run_hangdoc("--pid", str(pid), folder=place).text


def test_a_link_out_of_a_mount_namespace(place: Path) -> None:
    """The host's file does not exist for the rank, which has mounted something else there."""
    hidden, link = place / "hidden", place / "link.py"
    target = private_source(hidden / "secret.py", 0)
    target.chmod(0o644)
    link.symlink_to(target)
    over = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {hidden} && exec "$@"', "sh")
    with rank(f"wait({str(link)!r}, 2)", before=over) as pid:
        assert MARK not in run_hangdoc("--pid", str(pid), folder=place).text


def test_a_data_directory_of_another_user_is_not_listed(place: Path) -> None:
    data = place / "data"
    private_source(data / "a.parquet", VICTIM)
    data.chmod(0o700)
    os.chown(data, VICTIM, VICTIM)
    with rank("wait('/train.py', 1)", environment={"DATA_DIR": str(data)}) as pid:
        assert ".parquet" not in run_hangdoc("--pid", str(pid), folder=place).text
    os.chown(data, MALLORY, MALLORY)
    with rank("wait('/train.py', 1)", environment={"DATA_DIR": str(data)}) as pid:
        assert ".parquet" in run_hangdoc("--pid", str(pid), folder=place).text


# --- kinds, each at the reader -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("walks", [False, True], ids=["openat2", "walk"])
def test_a_path_stays_below_the_root_of_its_process(walks: bool, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if walks:
        monkeypatch.setattr(process_files, "_OPENAT2", 100_000)  # no kernel has this system call
    inside = place / "root"
    for name in ("etc", "proc", "home"):
        (inside / name).mkdir(parents=True)
    (inside / "etc" / "hostname").write_text("inner")
    (inside / "home" / "absolute").symlink_to("/etc/hostname")
    (inside / "home" / "above").symlink_to("../../../../../etc/hostname")
    (inside / "home" / "loop").symlink_to("loop")
    enter = f"os.chroot({str(inside)!r}); os.chdir('/'); wait('train.py', 1)"
    with rank(enter, uid=0) as pid, files_of(PROC, pid, start_ticks(pid)) as files:
        for path in ("/etc/hostname", "/home/absolute", "/home/above", "/../../etc/hostname", "//etc/./hostname"):
            assert files.read(path, 100).raw == b"inner", path
        for path in ("/home/loop", "/etc/passwd", "/etc/hostname/..", "/home/\0"):
            with pytest.raises(OSError):
                files.read(path, 100)


@pytest.mark.parametrize("walks", [False, True], ids=["openat2", "walk"])
def test_what_is_no_regular_file_is_not_opened(walks: bool, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if walks:
        monkeypatch.setattr(process_files, "_OPENAT2", 100_000)
    os.mkfifo(place / "fifo")
    (place / "zero").symlink_to("/dev/zero")
    with rank("wait('train.py', 1)", uid=0) as pid, files_of(PROC, pid, start_ticks(pid)) as files:
        began = time.monotonic()
        for path in (place / "fifo", place / "zero", place, "/dev/zero", "/proc/1/environ", f"/proc/{pid}/root/etc/passwd",
                     "/proc/self/fd/0", "/sys/kernel/notes"):  # fmt: skip
            with pytest.raises(OSError):
                files.read(str(path), 100)
        assert time.monotonic() - began < 60


def test_a_read_is_bounded_and_refuses_a_file_that_changes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = place / "train.py"
    file.write_bytes(b"x" * 1000)
    os.chown(file, MALLORY, MALLORY)
    with rank("wait('train.py', 1)") as pid, files_of(PROC, pid, start_ticks(pid)) as files:
        assert len(files.read(str(file), 100).raw) == 100
        real = process_files._read_up_to

        def swapped(descriptor: int, most: int) -> bytes:
            file.write_bytes(b"y" * 2000)
            return real(descriptor, most)

        monkeypatch.setattr(process_files, "_read_up_to", swapped)
        with pytest.raises(Refused, match="changed"):
            files.read(str(file), 5000)


def test_a_pid_that_is_reused_leads_to_no_other_process() -> None:
    with rank("wait('train.py', 1)") as pid, pytest.raises(Gone), files_of(PROC, pid, start_ticks(pid) - 1):
        pass


def test_a_set_user_id_program_gives_no_rights() -> None:
    """Its user is not the one whose rights it has."""
    before = f"os.setresuid({MALLORY}, 0, 0); wait('train.py', 1)"
    with rank(before, uid=0) as pid, pytest.raises(Refused, match="several users"):
        rights_of(PROC, str(pid))


def test_the_rights_are_those_of_one_thread_only(place: Path) -> None:
    target = private_source(place / "train.py", 0)
    with rank("wait('train.py', 1)") as pid, files_of(PROC, pid, start_ticks(pid)) as files:
        with pytest.raises(PermissionError):
            files.read(str(target), 100)
        assert files.run(lambda root: os.listdir("/proc/self/task"))
        assert target.read_text() == SOURCE, "this thread is root's"
        assert (place / "new").touch() is None


def test_a_root_without_capabilities_reads_no_more_than_it_could(place: Path) -> None:
    """As in a container that has dropped them: the user is root, and reads no file of others."""
    target = private_source(place / "train.py", VICTIM)
    drop = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
    with (
        rank("wait('train.py', 1)", uid=0, before=drop) as pid,
        files_of(PROC, pid, start_ticks(pid)) as files,
        pytest.raises(PermissionError),
    ):
        files.read(str(target), 100)


def test_a_reading_that_never_returns_is_abandoned(place: Path) -> None:
    with rank("wait('train.py', 1)") as pid, files_of(PROC, pid, start_ticks(pid)) as files:
        began = time.monotonic()
        with pytest.raises(process_files.NoAnswer):
            files.run(lambda root: time.sleep(100), 0.1)
        assert files.run(lambda root: "the next one is answered", 60.0)
        assert time.monotonic() - began < 50
