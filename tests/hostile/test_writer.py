"""Where hangdoc writes a file: what is at the path is never destroyed, and no link leads elsewhere."""

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hangdoc import codec
from tests.hostile.users import MALLORY, VICTIM, private_file, run_as
from tests.live.needs import needs
from tests.unit.builders import rank, snapshot, train

SEEN = snapshot(rank(0, train(12)))
DEVICES = """
mount -t tmpfs none /dev
mknod -m 666 /dev/null c 1 3
mknod -m 666 /dev/zero c 1 5
mknod -m 600 /dev/disk b 7 200
ln -s /proc/self/fd /dev/fd
ln -s fd/1 /dev/stdout
exec "$@"
"""
"""Devices of its own for one command: never the machine's."""


def test_a_device_is_written_into_and_stays(tmp_path: Path) -> None:
    """Row 4 of the issue: `--save /dev/null` and `--html /dev/stdout` of root broke the machine."""
    needs("root", "unshare")
    bundle = tmp_path / "a.hangdoc"
    codec.write(SEEN, bundle)
    hangdoc = f"{sys.executable} -m hangdoc diagnose {bundle}"
    script = (
        f"{hangdoc} --save /dev/null --html /dev/stdout; {hangdoc} --save /dev/disk; "
        "stat -c '%n is %F' /dev/null /dev/stdout /dev/disk; ls -A /dev"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-ec", DEVICES, "sh", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    assert "<!doctype html" in done.stdout.lower()
    assert (
        "/dev/null is character special file\n/dev/stdout is symbolic link\n/dev/disk is block special file"
        in done.stdout
    )
    assert done.stdout.splitlines()[-5:] == ["disk", "fd", "null", "stdout", "zero"]
    assert "cannot write /dev/disk: it is a disk." in done.stderr


def test_a_pipe_that_is_read_gets_the_content(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    while True:  # until the reader has opened it
        assert reader.is_alive()
        try:
            codec.write_aside(pipe, bytes(300_000))
            break
        except codec.BundleError as error:
            assert "a pipe that nobody reads" in str(error)
    reader.join(5)
    assert got == [bytes(300_000)]
    assert pipe.is_fifo()


def test_a_pipe_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(codec.BundleError, match="a pipe that nobody reads"):
        codec.write_aside(tmp_path / "pipe", b"x")


def test_a_pipe_of_another_user_gets_no_evidence(shared: Path) -> None:
    pipe = shared / "a.hangdoc"
    run_as(MALLORY, lambda: os.mkfifo(pipe, 0o666))
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(codec.BundleError, match="a pipe of another user"):
            codec.write(SEEN, pipe)
        assert os.read(reading, 10) == b""
    finally:
        os.close(reading)


def test_root_follows_no_link_of_another_user(shared: Path) -> None:
    """Neither as the file nor as a folder of the path."""
    precious = private_file(shared / "precious", VICTIM)
    secret = shared / "of-root"
    secret.mkdir(mode=0o700)

    def plant() -> None:
        (shared / "m").mkdir()
        (shared / "m" / "report.html").symlink_to(precious)
        (shared / "m" / "folder").symlink_to(secret)

    assert run_as(MALLORY, plant) == 0
    for name in ("m/report.html", "m/folder/x"):
        with pytest.raises(codec.BundleError, match="leads through a link of another user"):
            codec.write_aside(shared / name, b"x")
    assert precious.read_bytes() == b"precious"
    assert list(secret.iterdir()) == []


def test_an_own_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "latest").symlink_to("runs")
    (tmp_path / "runs" / "now.html").symlink_to("1.html")
    codec.write_aside(tmp_path / "latest" / "now.html", b"page")
    assert (tmp_path / "runs" / "1.html").read_bytes() == b"page"
    assert (tmp_path / "runs" / "now.html").is_symlink()


def test_another_users_file_in_a_sticky_folder_stays(shared: Path, capfd: pytest.CaptureFixture[str]) -> None:
    theirs = private_file(shared / "a.html", MALLORY)

    def write() -> None:
        with pytest.raises(codec.BundleError, match="it belongs to another user"):
            codec.write_aside(theirs, b"x")

    assert run_as(VICTIM, write) == 0, capfd.readouterr().err
    assert theirs.read_bytes() == b"precious"
    assert [path.name for path in shared.iterdir()] == ["a.html"]


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_modes_do_not_depend_on_the_umask(umask: int, tmp_path: Path) -> None:
    from hangdoc.file_writer import make_directory

    before = os.umask(umask)
    try:
        make_directory(tmp_path / "a" / "b")
        codec.write_aside(tmp_path / "a" / "b" / "x", b"x")
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/b/x")]
    assert modes == [0o700, 0o700, 0o600]


def test_a_file_that_grows_too_large_leaves_the_old_one(tmp_path: Path) -> None:
    """EFBIG, as a quota or a full disk in the middle of the content."""
    target = tmp_path / "x"
    codec.write_aside(target, b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(codec.BundleError, match="file too large"):
            codec.write_aside(target, bytes(300_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


WRITER = """
import sys
from pathlib import Path
from hangdoc import codec
target = Path(sys.argv[1])
print("ready", flush=True)
while True:
    for letter in b"ab":
        codec.write_aside(target, bytes([letter]) * 2_000_000)
"""


def test_a_killed_writer_leaves_the_old_content_or_the_new(tmp_path: Path) -> None:
    target = tmp_path / "x"
    codec.write_aside(target, b"a" * 2_000_000)
    for _ in range(15):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            inode = target.stat().st_ino
            while target.stat().st_ino == inode:  # it is in the middle of its work
                assert child.poll() is None
            child.send_signal(signal.SIGKILL)
        content = target.read_bytes()
        assert content in (b"a" * 2_000_000, b"b" * 2_000_000)
