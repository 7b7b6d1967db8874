"""The Python interpreters at hand, as victims for tests of what is read from their memory."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangbench.recorder import observed as observed
from hangdoc.observe.memory.locate import Image, locate
from hangdoc.procfs import ProcFS

VERSIONS = tuple(f"3.{minor}" for minor in range(10, 16))
"""Those that torch runs on, or will."""
_CHROOT = os.environ.get("HANGDOC_CHROOT")
"""A Debian with several Pythons (`make pythons`): they run in it and are looked at from outside."""


def command(version: str) -> list[str] | None:
    """How `python3.X` (or `pypy3`, `python3.14t`) is started here; None where it is not installed."""
    if _CHROOT and (found := _which(version, Path(_CHROOT))):
        return ["chroot", _CHROOT, found]
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return [sys.executable]
    name = version if version.startswith("pypy") else f"python{version}"
    installed = [shutil.which(name), *map(str, sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/{name}")))]
    return next(([path] for path in installed if path and _is(path, version)), None)


def _which(version: str, root: Path) -> str | None:
    name = version if version.startswith("pypy") else f"python{version}"
    return f"/usr/bin/{name}" if (root / "usr/bin" / name).exists() else None


def _is(path: str, version: str) -> bool:
    """Not a stand-in of pyenv's, which fails for a version that is not selected, nor a free-threaded build under a plain name."""
    program = f"import sys; sys.exit(('t' in getattr(sys, 'abiflags', '')) is not {version.endswith('t')})"
    return subprocess.run([path, "-c", program], capture_output=True, check=False).returncode == 0


@contextmanager
def running(words: list[str], program: str, environment: dict[str, str] | None = None) -> Iterator[int]:
    """The pid of a process that runs `program`, which prints a line when it is ready and then waits for its input."""
    started = subprocess.Popen(
        [*words, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == b"ready\n"
        yield started.pid
    finally:
        started.kill()
        started.communicate()


@contextmanager
def located(version: str, program: str) -> Iterator[tuple[int, Image]]:
    """The pid of a Python of this version that runs `program`, as `running`, and its interpreter. Skips the test where it is not
    installed."""
    words = command(version)
    if words is None:
        pytest.skip(f"Python {version} is not installed here (`make pythons` runs 3.13 and 3.14)")
    with running(words, program) as pid:
        yield pid, locate(ProcFS(), pid)
