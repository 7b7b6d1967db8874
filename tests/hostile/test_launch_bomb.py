"""A launch line of 200 bytes whose variables grow ten times with each assignment."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from hangdoc.launch.layers import launches
from hangdoc.launch.shell import ShellError, commands

HANGDOC = str(Path(sys.executable).with_name("hangdoc"))
_TEN = "$A" * 10
BOMBS = {
    "assignments": "A=aaaaaaaaaa; " + f"A={_TEN}; " * 9 + "torchrun $A",
    "double quotes": "A=aaaaaaaaaa; " + f'A="{_TEN}"; ' * 9 + 'torchrun "$A"',
    "exported": "A=aaaaaaaaaa; " + f"export A={_TEN}; " * 9 + "torchrun x.py",
    "before the command": "A=aaaaaaaaaa; " + f"A={_TEN}; " * 3 + f"B={_TEN}{_TEN} torchrun x.py",
    "prepared": f"A={'a' * 60_000}; " + "source $A; torchrun x.py; " * 1000,
    "many words": f"A='{'a ' * 30_000}'; " + "torchrun " + "$A " * 5000,
    "many commands": f"export A={'a' * 60_000}; " + "torchrun x.py; " * 1000,
    "nested": f"A={'a' * 60_000}; " + "bash -c 'torchrun '$A; " * 1000,
    "a subshell": f"A={'a' * 60_000}; " + "(torchrun $A); " * 1000,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_expansion_is_bounded(bomb: str) -> None:
    with pytest.raises(ShellError, match="variables expand to more than"):
        for line in launches(BOMBS[bomb]):
            assert len(str(line)) < 1 << 20


def test_the_command_ends_with_a_sentence() -> None:
    """In 1 GiB and ten seconds."""
    done = subprocess.run(
        [HANGDOC, "launch-diff", BOMBS["assignments"], "torchrun x.py"], capture_output=True, timeout=200, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
    )  # fmt: skip
    assert (done.returncode, b"expand to more than 64 KiB" in done.stderr) == (2, True), done.stderr
    assert b"Traceback" not in done.stderr


def test_a_long_text_without_variables_is_read() -> None:
    word = "a" * 200_000
    (one,) = commands(f"B={'b' * 1000}; torchrun {word} $B$B$B")
    assert one.words == ("torchrun", word, "b" * 3000)
