"""Versions of torch beside the installed one: wheels from the package index, unpacked for a while."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

CACHE = Path.home() / ".cache" / "hangdoc" / "layouts"
_SMALL = 300 << 20
"""Wheels of up to so many bytes are kept. One with CUDA has 500 to 900 MiB."""
_UNUSED = ("torch/include/", "torch/share/", "torch/test/")


@contextmanager
def unpacked(version: str, python: str) -> Iterator[Path]:
    """The folder in which a version of torch for a Python (`3.11`) is unpacked with numpy; removed at the end. Raises
    CalledProcessError if there is none."""
    wheels = fetch_wheel("torch", python, version), fetch_wheel("numpy", python)
    with TemporaryDirectory(dir=CACHE, prefix=f"{version}-{python}-") as folder:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                names = [
                    name for name in archive.namelist() if not name.startswith(_UNUSED) and not name.endswith(".a")
                ]
                archive.extractall(folder, names)
        yield Path(folder)
    for wheel in wheels:
        if wheel.stat().st_size > _SMALL:
            wheel.unlink()


def fetch_wheel(package: str, python: str, version: str = "") -> Path:
    """The wheel of a version or the newest one, from the cache or from the package index, without what it depends on: for torch,
    that is several GB of CUDA. Raises CalledProcessError if there is none for this Python."""
    folder = CACHE / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    tag = f"cp{python.replace('.', '')}"
    name = f"{package}-{version}{'-' if version else ''}*{tag}-{tag}-*.whl"  # some have the number of a build behind the version
    if not any(folder.glob(name)):
        # Exactly this version: not the build without CUDA that this machine may have as `2.13.0+cpu`.
        wanted = f"{package}==={version}" if version else package
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--only-binary=:all:",
             f"--python-version={python}", f"--dest={folder}", wanted], check=True,
        )  # fmt: skip
    return next(folder.glob(name))
