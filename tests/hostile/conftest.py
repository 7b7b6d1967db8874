"""Directories in which the users of a test meet."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.needs import needs


def _directory(mode: int) -> Iterator[Path]:
    needs("root")
    path = Path(tempfile.mkdtemp(prefix="hangdoc-hostile-", dir="/tmp"))
    path.chmod(mode)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory like /tmp, in which each user may create files."""
    yield from _directory(0o1777)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of root that each user may enter; pytest's `tmp_path` is closed to them."""
    yield from _directory(0o755)
