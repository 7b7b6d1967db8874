"""What a look says of a process that is no rank."""

import subprocess
import sys
from pathlib import Path

import pytest

from hangdoc.cli.group import run
from hangdoc.commands.errors import NO_RANK

_WAITS = "import ctypes, sys; {}; print('ready', flush=True); sys.stdin.read()"


@pytest.mark.parametrize(
    ("command", "says", "leave_out"),
    [
        ("torch", "has loaded torch, but hangdoc sees no process group and no variables of a launcher in it", False),
        ("python", "has not loaded torch, so it is no rank of torch.distributed yet", True),
        ("cat", "is neither a rank of torch.distributed nor the launcher of one", True),
    ],
)
def test_a_process_that_is_no_rank_yet(
    command: str, says: str, leave_out: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any file that is mapped under the name of torch's library stands for it: an import of torch takes long."""
    library = tmp_path / "torch/lib/libtorch_python.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\0" * 4096)
    maps = f"import mmap; f = open({str(library)!r}, 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)"
    words = (
        ["cat"] if command == "cat" else [sys.executable, "-c", _WAITS.format(maps if command == "torch" else "pass")]
    )
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin and process.stdout
            if command == "cat":
                process.stdin.write(b"ready\n")
                process.stdin.flush()
            assert process.stdout.readline() == b"ready\n"
            assert run(["diagnose", "--pid", str(process.pid), "--window", "0.1"]) == NO_RANK
        finally:
            process.kill()
    said = " ".join(capsys.readouterr().err.split())
    assert f"pid {process.pid} {says}" in said
    assert ("--pid" in said) == leave_out
