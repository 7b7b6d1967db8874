"""Directories in which the users of a test meet."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.needs import needs


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory like /tmp, in which each user may create files."""
    needs("root")
    path = Path(tempfile.mkdtemp(prefix="hangdoc-hostile-", dir="/tmp"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of root that each user may enter; pytest's `tmp_path` is closed to them."""
    needs("root")
    path = Path(tempfile.mkdtemp(prefix="hangdoc-hostile-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)
