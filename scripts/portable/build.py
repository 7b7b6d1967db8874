"""Builds hangdoc.pyz: `python -m scripts.portable.build dist/hangdoc.pyz`. Needs the package index; the file itself needs none.

The file is a shell script (`header.sh`) and an archive. The archive holds `__main__.py` (`main.py`) and three archives: what all
machines share, and the binaries of each. Python loads no extension module from an archive, so `main.py` unpacks them once.
"""

import hashlib
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from hangdoc.fleet.find_python import CLOSED

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHONS = ((3, 10), (3, 11), (3, 12), (3, 13), (3, 14))
MACHINES = ("x86_64", "aarch64")
EXTRAS = "tui,watch,gpu"  # [mcp] would add 40 MB: a pydantic-core and a cryptography for each Python and machine
_GLIBC = ("manylinux_2_17", "manylinux2014", "manylinux_2_12", "manylinux2010", "manylinux_2_5", "manylinux1")
"""The platforms of wheels for glibc 2.17, which RHEL 7 has."""
_SOURCES = ("hangdoc", "tui", "trainer", "pyproject.toml", "README.md", "LICENSE")
_BINARIES = (".so", "bin/py-spy")
_OF_ONE_WHEEL = ("RECORD", "WHEEL", "sboms")
"""In the dist-info of a package. Several of its wheels become one folder here."""


def main() -> None:
    """Build the file named on the command line."""
    out = Path(sys.argv[1])
    wheels = ROOT / "build" / "portable"
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir(parents=True)
    fetch(wheels)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(assemble(merge(sorted(wheels.glob("*.whl")))))
    out.chmod(0o755)
    print(f"{hashlib.sha256(out.read_bytes()).hexdigest()}  {out} ({out.stat().st_size / 1e6:.1f} MB)")


def fetch(wheels: Path) -> None:
    """Put the wheel of hangdoc and those of all that it needs into a folder, for each Python and machine."""
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # in the checkout, setuptools would use what an earlier build has left
        for name in _SOURCES:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder, name))
        _pip("wheel", "--no-deps", "--wheel-dir", str(wheels), folder)
    hangdoc = next(wheels.glob("hangdoc-*.whl"))
    _download(wheels, PYTHONS[0], MACHINES[0], f"hangdoc[{EXTRAS}] @ {hangdoc.resolve().as_uri()}")
    binary = {path: path.name.split("-") for path in wheels.glob("*.whl") if not path.name.endswith("-any.whl")}
    for python in PYTHONS:
        for machine in MACHINES:
            wanted = [
                f"{parts[0]}=={parts[1]}"
                for parts in binary.values()
                if python == PYTHONS[0] or parts[3] == f"cp{PYTHONS[0][0]}{PYTHONS[0][1]}"
            ]
            _download(wheels, python, machine, "--no-deps", *wanted)


def _download(wheels: Path, python: tuple[int, int], machine: str, *what: str) -> None:
    number = f"{python[0]}{python[1]}"
    platforms = [word for name in _GLIBC for word in ("--platform", f"{name}_{machine}")]
    _pip(
        "download", "--only-binary", ":all:", "--implementation", "cp", "--python-version", number, "--abi", f"cp{number}",
        "--abi", "abi3", "--abi", "none", *platforms, "--constraint", str(ROOT / "constraints.txt"),
        "--dest", str(wheels), *what,
    )  # fmt: skip


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], check=True)


def merge(wheels: list[Path]) -> dict[str, dict[str, bytes]]:
    """The files of all wheels, by the archive that they belong to. Raises ValueError if two wheels differ in a file."""
    archives: dict[str, dict[str, bytes]] = {name: {} for name in ("any", *MACHINES)}
    for wheel in wheels:
        machine = next((name for name in MACHINES if wheel.stem.endswith(name)), "any")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                folder, _, rest = name.partition("/")
                if name.endswith("/") or (folder.endswith(".dist-info") and rest.split("/")[0] in _OF_ONE_WHEEL):
                    continue
                if folder.endswith(".data"):  # only py-spy has any
                    name = "bin/" + rest.removeprefix("scripts/")
                files = archives[machine if name.endswith(_BINARIES) else "any"]
                content = archive.read(f"{folder}/{rest}" if rest else folder)
                if files.setdefault(name, content) != content:
                    raise ValueError(f"{wheel.name} has another {name} than the wheel for another Python or machine")
    return archives


def assemble(archives: Mapping[str, Mapping[str, bytes]]) -> bytes:
    """The file, the same for the same content: in order, and without times."""
    inner = {f"{name}.zip": _zip(b"", files, zipfile.ZIP_DEFLATED) for name, files in archives.items()}
    header, main_file = ((HERE / name).read_text() for name in ("header.sh", "main.py"))
    digest = hashlib.sha256(main_file.encode() + b"".join(inner[name] for name in sorted(inner))).hexdigest()[:16]
    oldest, newest = PYTHONS[0], PYTHONS[-1]
    values = {
        "OLDEST": "{}, {}".format(*oldest), "NEWEST": "{}, {}".format(*newest),
        "DIGEST": digest, "CLOSED": CLOSED.rstrip("; "), "MACHINES": " and ".join(MACHINES),
        "RANGE": f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}",
        "NAMES": " ".join(["python3", *(f"python{major}.{minor}" for major, minor in reversed(PYTHONS)), "python"]),
    }  # fmt: skip
    for name, value in values.items():
        header, main_file = header.replace(f"@{name}@", value), main_file.replace(f"@{name}@", value)
    return _zip(header.encode(), {"__main__.py": main_file.encode(), **inner}, zipfile.ZIP_STORED)


def _zip(before: bytes, files: Mapping[str, bytes], compression: int) -> bytes:
    out = io.BytesIO(before)
    out.seek(len(before))
    with zipfile.ZipFile(out, "w", compression, compresslevel=9) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name], compression)
    return out.getvalue()


if __name__ == "__main__":
    main()
