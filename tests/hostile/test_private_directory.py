"""Shared places that another user has prepared: folders of `run`, hang directories, beacons."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoc import beacon, run_identity
from hangdoc.private_directory import PrivateDirectory, UntrustedDirectoryError, reason_against
from hangdoc.watch.nodes import name_of_run
from hangdoc.watchdog import Watchdog
from hangdoc.watchdog.hang_directory import Announcement, clean, make_room
from tests.hostile.users import MALLORY, VICTIM, private_file, run_as
from tests.unit.test_run_nodes import _Node, host_of, waiting


def test_links_in_the_folder_of_a_run_lead_nowhere(shared: Path) -> None:
    """Row 3: `leave` deleted what a planted link points at."""
    who = waiting(0).identity
    assert who is not None
    home = shared / "home"
    home.mkdir()
    os.chown(home, VICTIM, VICTIM)
    precious = [private_file(home / name, VICTIM) for name in ("thesis.tex", "0.beacon")]
    folder = shared / f".hangdoc-run-{name_of_run(who)}"
    assert run_as(MALLORY, lambda: folder.symlink_to(home)) == 0

    def use() -> None:
        node = _Node(0, shared, host_of(0, waiting(0)))
        node.look()
        node.look()
        assert any("is a link or no directory" in text for text in node.said), node.said
        node.leave()

    assert run_as(VICTIM, use) == 0
    assert [path.read_bytes() for path in precious] == [b"precious"] * 2
    assert sorted(path.name for path in home.iterdir()) == ["0.beacon", "thesis.tex"]


def test_leaving_removes_only_what_hangdoc_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdoc.watch.nodes._GATHER_SECONDS", 0.0)
    who = waiting(0).identity
    assert who is not None
    node = _Node(0, tmp_path, host_of(0, waiting(0)))
    node.look()
    node.look()
    folder = tmp_path / f".hangdoc-run-{name_of_run(who)}"
    (folder / "notes.txt").write_text("mine")
    (folder / ".n-1.hangdoc.0123456789ab").write_text("half a bundle")
    node.leave()
    node.leave()
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_a_bundle_that_was_saved_before_the_request_is_not_used(tmp_path: Path) -> None:
    from hangdoc import codec
    from hangdoc.watch.nodes import _Folder

    first, second = _Folder(tmp_path, "x", "n0-1"), _Folder(tmp_path, "x", "n1-1")
    since = first.request()
    second.share(host_of(1, waiting(1)))
    assert list(first.others(since)) == ["n1-1"]
    (folder,) = tmp_path.iterdir()
    old = (folder / "n1-1.hangdoc").read_bytes()
    later = first.request()
    first.share(host_of(0, waiting(0)))
    (folder / "n1-1.hangdoc").write_bytes(old)
    assert first.others(later) == {}
    (folder / "n1-1.hangdoc").write_bytes(codec.encode(host_of(1, waiting(1))))
    assert first.others(later) == {}
    second.share(host_of(1, waiting(1)))
    assert list(first.others(later)) == ["n1-1"]


@pytest.mark.parametrize("planted", ["link", "directory", "open"])
def test_no_beacon_in_a_directory_that_others_prepared(planted: str, shared: Path) -> None:
    """Row 9: in /tmp/hangdoc-UID, links made the trainer overwrite its user's files."""
    runtime = shared / "runtime"
    runtime.mkdir(mode=0o1777)
    runtime.chmod(0o1777)
    precious = private_file(shared / "precious", VICTIM)
    place = beacon.directory(VICTIM, str(runtime))

    where = shared / "m" if planted == "link" else place

    def plant() -> None:
        where.mkdir()
        where.chmod(0o777)
        if planted == "link":
            place.symlink_to(where)

    assert run_as(VICTIM if planted == "open" else MALLORY, plant) == 0

    def train() -> None:
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)
        for name in ("stacks", "flight.json", "new", "beacon"):  # as Mallory may do, who sees the pid
            (where / f"{os.getpid()}.{name}").symlink_to(precious)
        with Watchdog(60, directory=shared / "out") as watchdog:
            watchdog.beat(3)

    assert run_as(VICTIM, train) == 0
    assert precious.read_bytes() == b"precious"


def test_links_in_a_hang_directory_of_another_user_are_not_written_through(shared: Path) -> None:
    precious = private_file(shared / "precious", VICTIM)
    hang = shared / "hangdoc-0123456789ab-20261126-101500"

    def plant() -> None:
        hang.mkdir()
        hang.chmod(0o777)
        for name in ("rank-0.trial", "rank-0.stacks.txt", "report.txt", "report.new", "host-x.hangdoc"):
            (hang / name).symlink_to(precious)

    assert run_as(MALLORY, plant) == 0

    def write() -> None:
        with pytest.raises(UntrustedDirectoryError, match="belongs to another user"):
            make_room(hang, 0)

    assert run_as(VICTIM, write) == 0
    assert precious.read_bytes() == b"precious"


def test_an_announcement_is_not_written_through_a_link(shared: Path) -> None:
    """The folder may be shared, so names in it can be planted; they can't be guessed, and no link is followed."""
    precious = private_file(shared / "precious", VICTIM)
    digest = run_identity.digest("run-1")

    def announce() -> None:
        call = Announcement(shared, "run-1")
        assert call.announce(shared / "out") == shared / "out"
        assert call.announced() in (None, shared / "out")

    def plant() -> None:
        (shared / f".hangdoc-{digest}.hang").symlink_to(precious)
        for pid in range(os.getpid(), os.getpid() + 200):
            (shared / f".hangdoc-{digest}.{pid}").symlink_to(precious)

    assert run_as(MALLORY, plant) == 0
    assert run_as(VICTIM, announce) == 0
    assert precious.read_bytes() == b"precious"


def test_a_forged_announcement_is_not_heard(shared: Path) -> None:
    call = Announcement(shared, "run-1", lambda: 1000.0)
    forged = shared / f".hangdoc-{run_identity.digest('run-1')}.hang"
    assert run_as(MALLORY, lambda: forged.write_text(f"1000.0 {shared}/theirs") and None) == 0

    assert call.announced() is None
    forged.unlink()
    os.mkfifo(forged)
    assert call.announced() is None  # and does not wait


def test_a_name_from_the_store_of_a_run_is_no_way_out() -> None:
    assert clean("../../etc/cron.d") == "_.._etc_cron.d"
    assert clean("..") == "run"


def test_who_may_have_made_a_directory(shared: Path) -> None:
    theirs, ours, of_root = (shared / name for name in ("theirs", "ours", "root"))
    for path, owner in ((theirs, MALLORY), (ours, VICTIM), (of_root, 0)):
        path.mkdir(mode=0o700)
        os.chown(path, owner, owner)
    for path, trusted in ((theirs, False), (ours, True), (of_root, True)):
        fd = os.open(path, os.O_RDONLY)
        assert (reason_against(fd, VICTIM) is None) is trusted
        os.fchmod(fd, 0o720)
        assert reason_against(fd, VICTIM) is not None
        os.fchmod(fd, 0o700)
        os.close(fd)
    private_file(ours / "a", VICTIM)
    private_file(ours / "b", MALLORY)
    (ours / "link").symlink_to("a")
    os.mkfifo(ours / "pipe")
    with PrivateDirectory(ours, owner=VICTIM) as directory:
        assert directory.read("a", 100) == b"precious"
        for name in ("b", "link", "pipe"):
            with pytest.raises(OSError):
                directory.read(name, 100)
            assert not directory.has(name)
        with pytest.raises(OSError, match="more than 3 bytes"):
            directory.read("a", 3)
        for name in ("../theirs/x", "..", ""):
            with pytest.raises(ValueError, match="not the name"):
                directory.read(name, 100)


def test_an_exchanged_directory_changes_nothing(shared: Path) -> None:
    """Between the check and the writing, the folder above may give its name to another one."""
    ours = shared / "hang"
    with PrivateDirectory(ours, create=True) as directory:
        ours.rename(shared / "moved")
        (shared / "victim").mkdir()
        ours.symlink_to(shared / "victim")
        directory.write("report.txt", b"x")
        child = f"/proc/self/fd/{directory.descriptor}/page.html"
        code = f"from pathlib import Path; from hangdoc import codec; codec.write_aside(Path({child!r}), b'y')"
        subprocess.run([sys.executable, "-c", code], check=True, pass_fds=(directory.descriptor,))
        directory.remove_if_empty()
    assert list((shared / "victim").iterdir()) == []
    assert sorted(path.name for path in (shared / "moved").iterdir()) == ["page.html", "report.txt"]
