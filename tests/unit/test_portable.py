"""hangdoc.pyz: which Python its shell script takes, what older Pythons do with it, and where it unpacks itself.

The file under test has a small program in the place of hangdoc. Nothing is fetched.
"""

import fcntl
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from hangdoc import portable
from hangdoc.cli import demo, mcp
from hangdoc.commands.errors import CommandError
from hangdoc.fleet.find_python import CLOSED
from hangdoc.observe.kernel.process_table import is_hangdoc
from hangdoc.observe.stacks import pyspy
from hangdoc.reasoning.engine import diagnose
from hangdoc.render.console import record_console
from hangdoc.render.text import as_typed, report
from hangdoc.typed_programs import typed_programs
from scripts.portable.build import HERE, MACHINES, assemble, merge
from tests import pythons
from tests.rules import fires

OWN = f"cpython-{sys.version_info[0]}{sys.version_info[1]}"
PROGRAM = """
def main():
    import os, sys
    from hangdoc.portable import find_portable
    here = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    print("%d.%d" % sys.version_info[:2], here, find_portable(), *sys.argv[1:], flush=True)
    os._exit(5)
"""
SHELLS = [shell for shell in ("sh", "bash", "busybox") if shutil.which(shell)]
pytestmark = pytest.mark.skipif(os.uname().machine not in MACHINES, reason="the file is for other machines")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    shared = {
        "hangdoc/__init__.py": b"", "hangdoc/cli/__init__.py": b"", "hangdoc/cli/main.py": textwrap.dedent(PROGRAM).encode(),
        "hangdoc/portable.py": Path(portable.__file__).read_bytes(), f"other.{OWN}-x.so": b"", "other.cpython-39-x.so": b"",
    }  # fmt: skip
    binaries = {machine: {"bin/py-spy": b"#!/bin/sh\n"} for machine in MACHINES}
    out = tmp_path / portable.NAME
    out.write_bytes(assemble({"any": shared, **binaries}))
    out.chmod(0o755)
    return out


def answer(*command: str | Path, path: str = "/usr/bin:/bin", **variables: str) -> "subprocess.CompletedProcess[str]":
    home = str(variables.pop("HOME", "/nowhere"))
    environment = {"PATH": path, "HOME": home, **variables}
    return subprocess.run(
        [*map(str, command)], env=environment, capture_output=True, text=True, timeout=100, check=False, cwd="/"
    )


def only(folder: Path, *programs: str) -> str:
    """A PATH with what the script needs, and these Pythons."""
    folder.mkdir()
    for name in ("sh", "id", "stat", "ls", "sed", "grep", "timeout", "find", "readlink"):
        (folder / name).symlink_to(shutil.which(name) or name)
    for program in programs:
        (folder / Path(program).name).symlink_to(program)
    return str(folder)


def test_two_builds_are_the_same(file: Path, tmp_path: Path) -> None:
    files = {"b": b"2", "a": b"1"}
    assert assemble({"any": files}) == assemble({"any": dict(reversed(files.items()))})
    assert assemble({"any": files}) != assemble({"any": {"a": b"1"}})


def test_it_is_unpacked_once_into_a_private_directory(file: Path, tmp_path: Path) -> None:
    for _ in range(2):
        done = answer(sys.executable, file, "a b", XDG_CACHE_HOME=str(tmp_path / "cache"))
        assert done.returncode == 5, done.stderr
        version, here, found, *rest = done.stdout.split()
        assert (version, found, rest) == (f"{sys.version_info[0]}.{sys.version_info[1]}", str(file), ["a", "b"])
    (unpacked,) = (tmp_path / "cache" / "hangdoc").iterdir()
    assert Path(here) == unpacked
    assert stat.S_IMODE(unpacked.stat().st_mode) == 0o700
    assert stat.S_IMODE((unpacked / "bin/py-spy").stat().st_mode) == 0o755, "py-spy may run with fewer rights"
    assert [path.name for path in unpacked.glob("other.*")] == [f"other.{OWN}-x.so"]


@pytest.mark.parametrize("start", [(sys.executable,), ("sh",)])
def test_a_part_of_the_file_says_that_it_is_damaged(start: tuple[str, ...], file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: whole.index(b"PK") + 40])
    done = answer(*start, file, path=only(tmp_path / "bin", sys.executable))
    assert done.returncode == 1
    assert "If Python shows this line, this hangdoc.pyz is damaged. Copy it again.\n" in done.stderr


def test_a_link_on_the_path_is_the_command(file: Path, tmp_path: Path) -> None:
    tools = only(tmp_path / "bin", sys.executable)
    (tmp_path / "bin/hangdoc").symlink_to(file)
    done = answer("sh", "-c", "hangdoc x", path=tools, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (done.returncode, done.stdout.split()[3:]) == (5, ["x"]), done.stderr


def test_files_that_were_removed_are_unpacked_again(file: Path, tmp_path: Path) -> None:
    first = answer(sys.executable, file, XDG_CACHE_HOME=str(tmp_path / "cache"))
    unpacked = Path(first.stdout.split()[1])
    (unpacked / "hangdoc/__init__.py").write_text("kept = 1")
    for removed in ("hangdoc/cli/main.py", "hangdoc/cli", "bin/py-spy", "CONTENTS"):
        path = unpacked / removed
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        done = answer(sys.executable, file, XDG_CACHE_HOME=str(tmp_path / "cache"))
        assert (done.returncode, done.stdout) == (5, first.stdout), done.stderr
        assert path.exists()
    assert stat.S_IMODE((unpacked / "bin/py-spy").stat().st_mode) == 0o755
    assert (unpacked / "hangdoc/__init__.py").read_text() == "kept = 1", "another hangdoc may use it"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_during_the_first_start_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    """The signal arrives when the first file has been written."""
    (tmp_path / "main.py").write_text(
        f"import os, signal\nwrite = open\ndef open(*arguments):\n    os.kill(os.getpid(), {number:d})\n"
        "    return write(*arguments)\n" + (HERE / "main.py").read_text()
    )
    archives = {"any": {"x": b"1"}, **{machine: {"bin/py-spy": b""} for machine in MACHINES}}
    out = tmp_path / portable.NAME
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scripts.portable.build.HERE", tmp_path)
        shutil.copy(HERE / "header.sh", tmp_path)
        out.write_bytes(assemble(archives))
    done = answer(sys.executable, out, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (done.returncode, done.stderr) == (128 + number, "")
    assert list((tmp_path / "cache/hangdoc").iterdir()) == []


def test_what_killed_processes_left_is_removed(file: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache/hangdoc"
    for name in ("hangdoc-unpacked-old/x", "hangdoc-unpacked-held/x", "hangdoc-unpacked-new/x", "hangdoc-other/x"):
        (cache / name).mkdir(parents=True)
    for folder in cache.iterdir():
        if folder.name != "hangdoc-unpacked-new":
            os.utime(folder, (1, 1))
    held = os.open(cache / "hangdoc-unpacked-held", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    done = answer(sys.executable, file, XDG_CACHE_HOME=str(tmp_path / "cache"))
    os.close(held)
    unpacked = Path(done.stdout.split()[1]).name
    left = {folder.name for folder in cache.iterdir()}
    assert left == {"hangdoc-unpacked-held", "hangdoc-unpacked-new", "hangdoc-other", unpacked}


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user gets to. Those of pytest are closed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_a_directory_that_others_can_change_is_not_used(file: Path, reachable: Path) -> None:
    open_to_all = reachable / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    cache = reachable / "home/.cache"
    for _ in range(2):
        done = answer(sys.executable, file, XDG_CACHE_HOME=str(open_to_all), HOME=str(cache.parent))
        assert done.stdout.split()[1].startswith(f"{cache}/hangdoc/")
        assert not list(open_to_all.iterdir())
        (cache / "hangdoc").chmod(0o777)  # still, nobody else gets there
    for folder in (cache.parent, cache):
        folder.chmod(0o755)
    done = answer(sys.executable, file, XDG_CACHE_HOME=str(open_to_all), HOME=str(cache.parent))
    elsewhere = Path(done.stdout.split()[1])
    shutil.rmtree(elsewhere, ignore_errors=True)
    assert reachable not in elsewhere.parents


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_without_a_home_it_leaves_nothing(file: Path, reachable: Path) -> None:
    """As a user without a home: the directory in /dev/shm or /tmp is removed when the process has ended."""
    file = Path(shutil.copy(file, reachable))
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    shown = answer(*nobody, _system_python(), file, XDG_CACHE_HOME="/proc/1", HOME="/proc/1")
    assert shown.returncode == 5, shown.stderr
    unpacked = Path(shown.stdout.split()[1])
    assert unpacked.parent in (Path("/dev/shm"), Path("/tmp"))
    for _ in range(1000):
        if not unpacked.exists():
            break
        subprocess.run(["sleep", "0.01"], check=True)
    assert not unpacked.exists()


def _system_python() -> str:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no Python that nobody may run")
    return "/usr/bin/python3"


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_takes_a_python_of_the_path(shell: str, file: Path, tmp_path: Path) -> None:
    words = ["busybox", "sh"] if shell == "busybox" else [shell]
    path = only(tmp_path / "bin", sys.executable) + ":/usr/bin:/bin"
    done = answer(*words, file, "x", path=path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (done.returncode, done.stdout.split()[3:]) == (5, ["x"]), done.stderr
    done = answer(file, "x", path=path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (done.returncode, done.stdout.split()[3:]) == (5, ["x"]), done.stderr


@pytest.mark.parametrize("version", ["3.6", "3.9"])
def test_an_older_python_hands_over(version: str, file: Path, tmp_path: Path) -> None:
    old = pythons.command(version)
    if old is None:
        pytest.skip(f"no Python {version} here")
    newer = tmp_path / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    newer.symlink_to(sys.executable)
    path = only(tmp_path / "bin", str(newer))
    done = answer(*old, file, "x", path=path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (done.returncode, done.stdout.split()[3:]) == (5, ["x"]), done.stderr
    assert done.stderr == f"hangdoc: runs with {path}/{newer.name}.\n"


def run_apart(
    file: Path, path: str, prepare: str, *, reader: str = "", **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run the script where it sees no other processes than those that `prepare` starts."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    script = f"{prepare}\nPATH={path} {reader or path + '/sh'} {file} x"
    return answer(
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        script,
        path=os.environ["PATH"],
        **variables,
    )


RANK = """
import mmap, sys
with open("{folder}/libtorch_cpu.so", "r+b") as file:
    kept = mmap.mmap(file.fileno(), 0)
print("ready", flush=True)
sys.stdin.read()
"""


def rank(folder: Path, python: str) -> str:
    """Shell lines that start a process which has loaded torch, as far as /proc shows it, and wait until it has."""
    (folder / "libtorch_cpu.so").write_bytes(b"x" * 4096)
    (folder / "rank.py").write_text(RANK.format(folder=folder))
    return f"""
        mkfifo {folder}/keep {folder}/out
        {python} {folder}/rank.py <{folder}/keep >{folder}/out &
        exec 8>{folder}/keep
        read line <{folder}/out
    """


def test_without_a_python_it_takes_that_of_a_rank(file: Path, tmp_path: Path) -> None:
    real = os.path.realpath(sys.executable)
    done = run_apart(file, only(tmp_path / "bin"), rank(tmp_path, real), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (done.returncode, done.stdout.split()[3:]) == (5, ["x"]), done.stderr
    assert f"hangdoc: runs with {real}, the Python of process " in done.stderr


def test_root_runs_no_python_that_others_can_change(file: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "env/bin/python3"
    theirs.parent.mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), theirs)
    os.chown(theirs.parent.parent, 65534, 65534)
    home = Path(sys.base_prefix)
    start = rank(tmp_path, f"env PYTHONHOME={home} LD_LIBRARY_PATH={home}/lib {theirs}")
    done = run_apart(file, only(tmp_path / "bin"), start, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 2
    assert (
        f"root does not run {theirs}, which other users can change. Run hangdoc as the user of the ranks" in done.stderr
    )


@pytest.mark.parametrize("path", ["", "/nowhere"])
def test_its_own_programs_are_found_without_a_path(path: str, file: Path, tmp_path: Path) -> None:
    """An empty PATH is that of the system. Another one decides which Python is taken, not where `id` and `sed` are."""
    real = os.path.realpath(sys.executable)
    prepare = rank(tmp_path, real)
    if not path:
        prepare += "\nmount -t tmpfs none /usr/sbin; ln -s /bin/true /usr/sbin/python3"
    done = run_apart(file, f"'{path}'", prepare, reader="/bin/sh", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == (0 if not path else 5), done.stderr


def test_what_root_is_told_can_be_copied(file: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "env/bin/python3"
    theirs.parent.mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), theirs)
    os.chown(theirs, 65534, 65534)
    start = rank(tmp_path, f"env PYTHONHOME={sys.base_prefix} LD_LIBRARY_PATH={sys.base_prefix}/lib {theirs}")
    words = f"{file.name} 'a b' \"it's\" --pid=3"
    done = run_apart(words, only(tmp_path / "bin"), f"{start}\ncd {file.parent}")
    assert f"sudo -u '#0' sh {file} 'a b' 'it'\\''s' --pid=3 x\n" in done.stderr


def _give_away(name: str) -> Callable[[Path], object]:
    return lambda home: os.chown(home / name, 65534, 65534)


def _link(home: Path) -> None:
    (home / "theirs").mkdir()
    os.chown(home / "theirs", 65534, 65534)
    (home / "theirs/x.py").touch()
    (home / "lib/python3.11/x.py").symlink_to(home / "theirs/x.py")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("change", "closed"),
    [
        (lambda home: None, True),
        (lambda home: os.chown(home / "lib/python3.11/site-packages", 65534, 65534), True),  # not imported with -S
        (_give_away("bin/python3.11"), False),
        (_give_away("lib"), False),
        (_give_away("lib/python3.11"), False),
        (_give_away("lib/python3.11/encodings/__init__.py"), False),
        (_give_away("lib/libz.so"), False),
        (lambda home: (home / "lib/python3.11/encodings").chmod(0o777), False),
        (lambda home: home.chmod(0o775), False),
        (lambda home: shutil.rmtree(home / "lib/python3.11"), False),
        (lambda home: (home / "bin/python3._pth").touch(), False),
        (lambda home: (home / "pyvenv.cfg").symlink_to("/nowhere"), False),
        (_link, False),
    ],
)
def test_which_python_only_root_can_change(
    change: Callable[[Path], object], closed: bool, shell: str, tmp_path: Path
) -> None:
    home = tmp_path / "a b"
    for name in (
        "bin/python3.11",
        "lib/libz.so",
        "lib/python3.11/encodings/__init__.py",
        "lib/python3.11/site-packages/x.py",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    (home / "lib/libpython3.so").symlink_to("libz.so")
    (home / "lib/python3.11/os.py").symlink_to("encodings/__init__.py")
    change(home)
    words = ["busybox", "sh"] if shell == "busybox" else [shell]
    done = answer(*words, "-fuc", f'{CLOSED}closed "$1"', "sh", home / "bin/python3.11")
    assert ((done.returncode == 0), done.stderr) == (closed, "")


def test_root_runs_no_python_whose_library_others_can_change(file: Path, tmp_path: Path) -> None:
    real = Path(os.path.realpath(sys.executable))
    library = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}"
    theirs = tmp_path / "env"
    (theirs / "bin").mkdir(parents=True)
    shutil.copy(real, theirs / "bin/python3")
    (theirs / library).parent.mkdir(parents=True)
    (theirs / library).symlink_to(Path(sys.base_prefix, library))
    ran = rank(tmp_path, f"env LD_LIBRARY_PATH={sys.base_prefix}/lib {theirs}/bin/python3")
    spoil = f"rm {theirs / library}; mkdir -p {theirs / library}/encodings; chown 65534 {theirs / library}\n"
    spoil += f'echo \'open("{tmp_path}/ran", "w")\' > {theirs / library}/encodings/__init__.py'
    done = run_apart(file, only(tmp_path / "tools"), f"{ran}\n{spoil}", XDG_CACHE_HOME=str(tmp_path / "cache"),
                     LD_LIBRARY_PATH=f"{sys.base_prefix}/lib")  # fmt: skip
    assert not (tmp_path / "ran").exists()
    assert done.returncode == 2
    assert f"root does not run {theirs}/bin/python3, which other users can change" in done.stderr


def test_without_any_python_it_says_what_to_do(file: Path, tmp_path: Path) -> None:
    done = run_apart(file, only(tmp_path / "bin"), "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("hangdoc: needs CPython 3.10 to 3.14.")
    assert done.stderr.count("\n") == 1


def test_wheels_become_one_folder(tmp_path: Path) -> None:
    import zipfile

    def wheel(name: str, files: dict[str, str]) -> Path:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        return tmp_path / name

    both = {"a/__init__.py": "1", "a-1.dist-info/METADATA": "m"}
    one = wheel(
        "a-1-cp310-cp310-manylinux_2_17_x86_64.whl",
        {**both, "a/c.cpython-310-x86_64.so": "x", "a-1.dist-info/RECORD": "1"},
    )
    two = wheel(
        "a-1-cp311-cp311-manylinux_2_17_x86_64.whl",
        {**both, "a/c.cpython-311-x86_64.so": "y", "a-1.dist-info/RECORD": "2"},
    )
    spy = wheel("py_spy-1-py3-none-manylinux_2_17_aarch64.whl", {"py_spy-1.data/scripts/py-spy": "spy"})
    assert merge([one, two, spy]) == {
        "any": {"a/__init__.py": b"1", "a-1.dist-info/METADATA": b"m"},
        "x86_64": {"a/c.cpython-310-x86_64.so": b"x", "a/c.cpython-311-x86_64.so": b"y"},
        "aarch64": {"bin/py-spy": b"spy"},
    }
    other = wheel("a-1-cp312-cp312-manylinux_2_17_x86_64.whl", {"a/__init__.py": "2"})
    with pytest.raises(ValueError, match=r"has another a/__init__\.py"):
        merge([one, other])


def test_where_the_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command, beside = tmp_path / "hangdoc", tmp_path / portable.NAME
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.delenv("HANGDOC_PYZ", raising=False)
    assert portable.find_portable() is None
    beside.touch()
    assert portable.find_portable() == beside
    monkeypatch.setenv("HANGDOC_PYZ", str(tmp_path / "none"))
    assert portable.find_portable() is None
    monkeypatch.setenv("HANGDOC_PYZ", str(command))
    assert portable.find_portable() == command


@pytest.mark.parametrize(
    "start", ["python3 /x/hangdoc.pyz", "/usr/bin/python3.11 -I -S ./hangdoc.pyz", "python3 -m hangdoc"]
)
def test_its_process_is_no_rank(start: str) -> None:
    assert is_hangdoc((*start.split(), "run"))
    assert not is_hangdoc(("python3", "train.py", "hangdoc.pyz"))


def test_py_spy_is_found_beside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `pip install --target` and hangdoc.pyz leave it, and nothing on the PATH."""
    monkeypatch.setattr("hangdoc.observe.stacks.pyspy.untrusted.__file__", str(tmp_path / "hangdoc/untrusted.py"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.metadata.files", lambda name: None)
    assert pyspy.executable() is None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/py-spy").touch()
    assert pyspy.executable() == str(tmp_path / "bin/py-spy")


def test_without_a_place_it_says_what_was_tried(file: Path) -> None:
    """In a mount namespace in which every place is read-only or forbids to run programs."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    kept = "/run/hangdoc-test.pyz"
    script = f"""
        mount -t tmpfs none /run && cp {file} {kept}
        for place in /dev/shm /tmp; do mount -t tmpfs -o noexec none $place; done
        for place in /var/tmp /root; do mount -t tmpfs -o ro none $place; done
        exec {_system_python()} {kept}
    """
    done = answer("unshare", "--mount", "sh", "-c", script, path="/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "hangdoc: can't unpack itself (/root/.cache/hangdoc: Read-only file system; /dev/shm is mounted noexec; /tmp is mounted "
        "noexec; /var/tmp: Read-only file system). Name a directory of your own: XDG_CACHE_HOME=DIRECTORY\n"
    )


@pytest.mark.parametrize(
    ("first", "python"),
    [
        ("#!/opt/a b/bin/python3.11\n", "/opt/a b/bin/python3.11"),
        ("#!/usr/bin/env python3\n", None),
        ("#!/bin/sh\n", None),
        ("\x7fELF\xff", None),
    ],
)
def test_the_python_of_a_launcher(
    first: str, python: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert portable.find_launcher_python("torchrun") is None
    (tmp_path / "torchrun").write_text(first + "import x\n")
    (tmp_path / "torchrun").chmod(0o755)
    assert portable.find_launcher_python("torchrun") == python


@pytest.mark.parametrize(
    ("command", "lacking", "advice"),
    [
        (
            mcp.command,
            "hangdoc.agents.server",
            "hangdoc.pyz does not contain it. Install hangdoc with it: pip install '.[mcp]' in a checkout, or "
            "'hangdoc-VERSION-py3-none-any.whl[mcp]'.",
        ),
        (demo.command, "torch", "Run this file with a Python that has it: PYTHON /x/hangdoc.pyz demo shard-mismatch"),
    ],
)
def test_what_the_file_does_not_contain(
    command: click.Command, lacking: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangdoc.cli.mcp.running_from", lambda: Path("/x/hangdoc.pyz"))
    monkeypatch.setattr("hangdoc.cli.demo.running_from", lambda: Path("/x/hangdoc.pyz"))
    monkeypatch.setattr("hangdoc.cli.mcp.end_at_once", lambda: None)
    monkeypatch.setattr("hangdoc.cli.demo.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, lacking, None)
    with pytest.raises(CommandError, match=re.escape(advice)):
        command([], standalone_mode=False)


@pytest.mark.parametrize("on_path", [True, False])
def test_what_a_person_types_to_start_hangdoc_again(
    on_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "hangdoc"
    command.touch(0o755)
    monkeypatch.setattr("sys.argv", [str(command) if on_path else "/x y/hangdoc"])
    monkeypatch.setenv("PATH", str(tmp_path) if on_path else "/nowhere")
    monkeypatch.setattr("hangdoc.typed_programs.executable", lambda: "/venv/bin/py-spy")
    path = str(command) if on_path else "'/x y/hangdoc'"
    typed = typed_programs()
    assert typed == {
        "hangdoc": "hangdoc" if on_path else path,
        "sudo hangdoc": f"sudo {path}",  # sudo does not search a virtual environment
        "py-spy": "/venv/bin/py-spy",
    }
    assert as_typed("sudo hangdoc diagnose --pid 7", typed) == f"sudo {path} diagnose --pid 7"
    assert as_typed("sudo cat /proc/7/stack", typed) == "sudo cat /proc/7/stack"


def test_a_program_that_is_gone_still_has_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one of that name is on the PATH: a report must not be lost for that."""
    (tmp_path / "hangdoc").touch(0o755)
    monkeypatch.setattr("sys.argv", ["/gone/hangdoc"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert typed_programs()["hangdoc"] == "/gone/hangdoc"


def test_a_report_of_the_one_file_suggests_the_file() -> None:
    console = record_console(100)
    report(diagnose(fires("HD302")), console, programs={"hangdoc": "sh /x/hangdoc.pyz", "kill": "/bin/kill"})
    text = console.export_text()
    assert "sh /x/hangdoc.pyz rules rank-stopped" in text
    assert "$ /bin/kill -CONT" in text
