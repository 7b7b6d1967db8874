"""A program with the set-user-ID bit may have all ids of root, while a user chose its environment: it acts for that user."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoc.observe.access.owner_rights import Refused, rights_of
from hangdoc.procfs import ProcFS
from tests.hostile.ranks import PYTHON, rank, run_hangdoc
from tests.hostile.users import MALLORY
from tests.live.needs import needs

_BECOME_ROOT = (
    "import os, sys; os.setgroups([]); os.setgid(0); os.setuid(0); print('ready', flush=True); sys.stdin.read()"
)
VARIABLES = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "7", "PATH": "/bin"}


@pytest.fixture
def program(place: Path, can_attach: None) -> Path:
    needs("root", "setpriv")
    program = place / "python3"
    shutil.copyfile(os.path.realpath(PYTHON), program)
    program.chmod(0o4755)
    return program


@pytest.fixture
def impostor(program: Path) -> Iterator[int]:
    """A process with all ids of root that Mallory started with the variables of a rank."""
    lower = ["setpriv", f"--reuid={MALLORY}", f"--regid={MALLORY}", "--clear-groups"]
    command = [*lower, str(program), "-I", "-c", _BECOME_ROOT]
    with subprocess.Popen(command, env=VARIABLES, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            assert set(ProcFS().status(str(child.pid))["Uid"].split()) == {"0"}
            yield child.pid
        finally:
            child.kill()


def test_its_files_are_not_read(impostor: int) -> None:
    with pytest.raises(Refused):
        rights_of(ProcFS(), str(impostor))


def test_it_gets_into_no_run_of_root(impostor: int, place: Path) -> None:
    with rank("wait('/train.py', 1)", 0, uid=0, port=7) as mine:
        seen = run_hangdoc(f"--pid={mine}", f"--pid={impostor}", folder=place)
    (job,) = seen.document["jobs"]
    assert [view["pid"] for view in job["ranks"] if view["pid"]] == [mine]


def test_root_itself_may_run_such_a_program(program: Path, place: Path) -> None:
    command = [str(program), "-I", "-c", _BECOME_ROOT]
    with subprocess.Popen(command, env=VARIABLES, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            assert rights_of(ProcFS(), str(child.pid)).uid == 0
        finally:
            child.kill()
