"""Hosts without hangdoc, to which its file is brought. A host is a local process with an environment of its own."""

import shutil
import subprocess
import sys
import time
import types
import zipfile
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from hangdoc.commands.errors import CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.diagnosis import Brought, Diagnosis
from hangdoc.fleet import find_python, loader
from hangdoc.fleet.courier import Courier
from hangdoc.fleet.gather import gather
from hangdoc.fleet.session import MARK, run_session
from hangdoc.fleet.shipment import open_shipment, request
from hangdoc.fleet.transport import Transport
from hangdoc.observe.look.observe import Options
from hangdoc.render import words
from hangdoc.snapshot import Snapshot
from hangdoc.version import __version__

REPOSITORY = Path(__file__).resolve().parents[2]
_PROGRAM = f"""
import sys
sys.path[1:1] = ["{REPOSITORY}"]
import time
from msgspec.structs import replace
from hangdoc import bundle_text, codec
from hangdoc.version import __version__
from tests.unit.builders import c10d, rank, snapshot, train

name, nonce = sys.argv[1], sys.argv[sys.argv.index("--nonce") + 1]
one = snapshot(rank(0, *c10d("all_reduce"), train(15), local_world=1), silence=None)
one = replace(one, hosts=(replace(one.hosts[0], name=name, machine_id=name),))
print(bundle_text.begin(sys.argv[2], time.time()))
print(*bundle_text.lines(codec.encode(one, nonce)), sep="\\n")
"""
"""Prints a bundle of one rank, as `hangdoc snapshot --as-text` of this version does."""


class World:
    """Hosts by name: `same` has this hangdoc, `older` another one, all others none. Each call of a host is a line in `calls`."""

    def __init__(self, folder: Path, padding: int = 1_000_000) -> None:
        self.folder = folder
        (folder / "program.py").write_text(_PROGRAM)
        self.pyz = folder / "hangdoc.pyz"
        with zipfile.ZipFile(self.pyz, "w") as file:
            brought = _PROGRAM.replace("sys.argv[1], ", '"brought", ').replace("sys.argv[2]", "__version__")
            file.writestr("__main__.py", brought)
            file.writestr("padding", bytes(padding))
        python = self._script("bin/python3", f'exec {sys.executable} "$@"')
        for tool in ("sh", "env"):
            (python.parent / tool).symlink_to(f"/bin/{tool}" if tool == "sh" else "/usr/bin/env")
        self._script("host", f"""
            echo "$1 $2" >> {folder}/calls
            name=$1; shift
            if [ "$1" = hangdoc ]; then case $name in
                same*) exec {sys.executable} {folder}/program.py "$name" {__version__} "$@";;
                older*) exec {sys.executable} {folder}/program.py "$name" 0.0.1 "$@";;
                *) echo "sh: hangdoc: command not found" >&2; exit 127;;
            esac; fi
            exec env -i PATH={folder}/bin TMPDIR={folder}/tmp HOME={folder} "$@"
        """)  # fmt: skip
        (folder / "tmp").mkdir(mode=0o700)

    def _script(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def transport(self, *, always: bool = False) -> Transport:
        way = (str(self.folder / "host"), "{host}")
        shipment = open_shipment(self.pyz)
        return Transport(via=way, host_timeout=60, timeout=100, shipment=shipment, always=always)

    def calls(self) -> list[str]:
        return sorted((self.folder / "calls").read_text().splitlines())

    def left(self) -> list[Path]:
        return list((self.folder / "tmp").iterdir())


@pytest.fixture
def world(tmp_path: Path) -> World:
    tmp_path.chmod(0o755)
    return World(tmp_path)


def brought(found: Snapshot) -> list[tuple[str, bool | None]]:
    return [(one.host, one.removed) for one in found.brought]


@pytest.mark.parametrize(
    ("host", "always", "expected"),
    [
        ("same", False, ["same hangdoc"]),
        ("older", False, ["older hangdoc", "older sh"]),
        ("bare", False, ["bare hangdoc", "bare sh"]),
        ("same", True, ["same sh"]),
    ],
)
def test_the_plan_for_one_host(world: World, host: str, always: bool, expected: list[str]) -> None:
    found = gather((host,), Options(), world.transport(always=always))
    assert world.calls() == expected
    assert [one.asked_as for one in found.hosts] == [host], found.unreached
    assert brought(found) == ([(host, True)] if "sh" in expected[-1].split() else [])
    assert world.left() == []


def test_ssh_as_the_way_to_a_host(world: World) -> None:
    """It joins its words for a shell of the host; other ways pass them on as they are."""
    ssh = world._script("bin/ssh", f'shift 2; name=$1; shift; exec {world.folder}/host "$name" sh -c "$*"')
    transport = replace(world.transport(), via=(str(ssh), "-p", "2222", "{host}"))
    found = gather(("bare",), Options(), transport)
    assert brought(found) == [("bare", True)], found.unreached
    assert world.left() == []


def test_never_asks_only_the_installed_one(world: World) -> None:
    found = gather(("bare",), Options(), replace(world.transport(), shipment=None))
    assert world.calls() == ["bare hangdoc"]
    assert "bring it along: name a hangdoc.pyz with HANGDOC_PYZ" in found.unreached[0].why


def test_an_older_hangdoc_answers_where_it_cannot_be_brought(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_python, "_OF_A_RANK", "")  # this machine may have ranks
    (world.folder / "bin/python3").unlink()
    found = gather(("older", "bare"), Options(), world.transport())
    (host,), (gone,) = found.hosts, found.unreached
    assert host.problems[0].startswith(
        f"its hangdoc is 0.0.1 and this one is {__version__}: hangdoc could not be brought there"
    )
    assert gone.why.startswith("hangdoc could not be brought there: the host has no Python 3.10 to 3.14 on its PATH")
    assert found.brought == ()


def test_a_file_smaller_than_a_pipe(tmp_path: Path) -> None:
    world = World(tmp_path, padding=1)
    found = gather(("bare",), Options(), world.transport())
    assert brought(found) == [("bare", True)]


def test_looks_of_a_session_bring_it_once(world: World) -> None:
    transport = world.transport()
    with Courier(transport, keep=True) as courier:
        for _ in range(3):
            found = gather(("bare", "same"), Options(), transport, courier=courier)
            assert [host.asked_as for host in found.hosts] == ["bare", "same"] or found.unreached
            assert brought(found) == [("bare", None)]
        assert len(world.left()) == 1
    assert [call for call in world.calls() if call.startswith("bare")] == ["bare hangdoc", "bare sh"]
    assert world.left() == []


def test_a_connection_that_broke_is_made_again(world: World) -> None:
    transport = world.transport()
    with Courier(transport, keep=True) as courier:
        gather(("bare",), Options(), transport, courier=courier)
        (world.folder / "tmp/x").touch()
        link = courier._links["bare"]
        assert link.delivery is not None
        link.delivery.client.popen.kill()
        wait_until(lambda: "bare" not in courier._links)
        found = gather(("bare",), Options(), transport, courier=courier)
        assert len(found.hosts) == 1
        assert brought(found) == [("bare", None)]


def test_more_hosts_than_the_fan_out(world: World) -> None:
    hosts = tuple(f"bare-{n}" for n in range(7))
    found = gather(hosts, Options(), replace(world.transport(always=True), fanout=2))
    assert len(found.brought) == 7
    assert all(one.removed for one in found.brought)
    assert world.left() == []


def test_a_file_that_changed_on_the_way_is_not_run(world: World) -> None:
    transport = world.transport(always=True)
    assert transport.shipment is not None
    vars(transport.shipment)["digest"] = "0" * 64
    found = gather(("bare",), Options(), transport)
    assert "its SHA-256 differs), so it was not run" in found.unreached[0].why
    assert world.left() == []


def test_a_way_without_standard_input_says_what_to_add(world: World) -> None:
    world._script("closed", f'exec {world.folder}/host "$@" < /dev/null')
    transport = replace(world.transport(always=True), via=(str(world.folder / "closed"), "{host}"))
    found = gather(("bare",), Options(), transport)
    assert "Add -i to it, as in kubectl exec -i" in found.unreached[0].why


def test_a_command_that_does_not_end_with_hangdoc_has_no_way() -> None:
    assert Transport(remote_command=("sudo", "-n", "/opt/hangdoc")).way == ("sudo", "-n")
    assert Transport(remote_command=("hangdoc",)).way == ()
    assert Transport(remote_command=("/opt/start-it",)).way is None


def test_always_without_a_file_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fleet = Hosts(hosts="a", via=None, ssh_option=(), remote_command="hangdoc", fanout=1, host_timeout=5, ship="always")
    monkeypatch.setattr("hangdoc.portable.find_portable", lambda: None)
    with pytest.raises(CommandError, match=r"no hangdoc\.pyz to bring"):
        fleet.transport(5)
    monkeypatch.setattr("hangdoc.portable.find_portable", lambda: tmp_path)
    with pytest.raises(CommandError, match="cannot be brought"):
        fleet.transport(5)
    assert msgspec.structs.replace(fleet, ship="never").transport(5).brings() is None


def wait_until(so: object, seconds: float = 60) -> None:
    assert callable(so)
    end = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_file_goes_when_the_connection_breaks_during_a_look(world: World) -> None:
    with zipfile.ZipFile(world.pyz, "w") as file:
        file.writestr("__main__.py", f"open('{world.folder}/runs', 'w').close(); import time; time.sleep(1000)")
    shipment = open_shipment.__wrapped__(world.pyz)
    child = subprocess.Popen(
        [world.folder / "host", "bare", *shipment.command()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline().startswith(loader.WANTS.encode())
    child.stdin.write(world.pyz.read_bytes() + request(("snapshot",), 1000))
    child.stdin.flush()
    wait_until((world.folder / "runs").exists)
    assert len(world.left()) == 1
    child.stdin.close()
    assert child.stdout.read().decode().splitlines() == [f"{loader.ENDED} -15", loader.REMOVED]
    child.wait()
    assert world.left() == []


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"f_flag": 1}, "is read-only"),
        ({"f_flag": 8}, "is mounted noexec"),
        ({"f_bavail": 3 << 8}, "is full: 3 MiB are free"),
        ({"f_favail": 0}, "is full"),
        ({}, ""),
    ],
)
def test_why_a_directory_does_not_fit(
    about: dict[str, int], reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free = {"f_flag": 0, "f_bavail": 1 << 20, "f_frsize": 4096, "f_files": 10, "f_favail": 10, **about}
    monkeypatch.setattr("os.statvfs", lambda place: types.SimpleNamespace(**free))
    found = loader._reason_against(str(tmp_path), 100 << 20)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_a_directory_that_others_can_change_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert loader._reason_against(str(tmp_path), 1) == "can be changed by other users"
    assert loader._reason_against(str(tmp_path / "none"), 1) == "is missing"


def test_without_a_path_the_one_of_the_system_is_used() -> None:
    """Then `python3` and the programs that look at ranks are found."""
    *_, script, _ = find_python.command()
    for given, expected in (("", "/usr/sbin:/usr/bin:/sbin:/bin"), ("/x", "/x")):
        said = subprocess.run(["/bin/sh", "-c", script.partition("; ")[0] + '; echo "$PATH"'], env={"PATH": given}, text=True,
                              capture_output=True, check=True).stdout  # fmt: skip
        assert said == expected + "\n"
    program = script.partition("PATH=$PATH:")[2].partition("; ")[0]
    assert all(shutil.which(tool, path=program) for tool in ("id", "stat", "find", "grep", "readlink"))


def test_login_shells_pass_the_command_on_unchanged() -> None:
    """csh ends a word at a line end and replaces `!`, fish replaces `\\\\` and `\\'`, all inside single quotes."""
    *_, script, program = find_python.command()
    for text in (script, Path(loader.__file__).read_text()):
        assert not set("'!\\") & set(text)
        assert text.isascii()
    assert "\n" not in script + program
    assert "{host}" not in script + program


@pytest.mark.parametrize(
    ("removed", "text"),
    [
        ((True, True), "hangdoc was brought to n0 and n1, and removed again"),
        ((None, None), "hangdoc was brought to n0 and n1, and is removed when this command ends"),
        (
            (True, False),
            "hangdoc was brought to n0 and n1. n1 did not say that it was removed: look there for /tmp/hangdoc-brought-*",
        ),
        ((), None),
    ],
)
def test_the_report_says_where_it_was_brought(removed: tuple[bool | None, ...], text: str | None) -> None:
    hosts = tuple(Brought(host=f"n{n}", python=None, removed=one) for n, one in enumerate(removed))
    diagnosis = Diagnosis(hangdoc="1", taken_at="", window_seconds=1, elapsed_seconds=1, verdict="hung", jobs=(), problems=(),
                          brought=hosts)  # fmt: skip
    assert words.brought(diagnosis) == text


def test_a_session_goes_on_after_the_file(world: World) -> None:
    """Two rounds of a preflight: its lines follow the file, and only the command reads them."""
    with zipfile.ZipFile(world.pyz, "w") as file:
        file.writestr("padding", bytes(300_000))
        file.writestr(
            "__main__.py",
            f"import sys\nfor line in sys.stdin:\n    print('{MARK.decode()}' + line, end='', flush=True)\n",
        )

    def script() -> Generator[bytes, Mapping[str, bytes], list[Mapping[str, bytes]]]:
        return [(yield b"one"), (yield b"two")]

    transport = replace(world.transport(), shipment=open_shipment.__wrapped__(world.pyz))
    said, silent = run_session(("bare-1", "bare-2"), ("preflight", "--answer"), transport, script())
    assert said == [{"bare-1": b"one", "bare-2": b"one"}, {"bare-1": b"two", "bare-2": b"two"}]
    assert silent == {}
    wait_until(lambda: world.left() == [])
