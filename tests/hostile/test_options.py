"""Options with numbers: NaN, infinity, negative numbers and numbers beyond any range are bad usage, with one sentence."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import hangdoc
from hangdoc.cli.group import cli
from hangdoc.cli.numbers import ByteSize, Number

HANGDOC = str(Path(sys.executable).with_name("hangdoc"))
_WRONG = ("nan", "-nan", "NaN", "inf", "-inf", "infinity", "1e999", "-1", "-0.5", "9" * 5000, "", "x", "²")
_ARGUMENTS = {"run": ["--", "true"], "launch-diff": ["a"], "launch-explain": ["a"]}


def _options() -> Iterator[tuple[str, click.Option]]:
    group = click.Context(cli)
    for name in cli.list_commands(group):
        command = cli.get_command(group, name)
        assert command is not None
        yield from ((name, option) for option in command.params if isinstance(option, click.Option))


def test_every_option_with_a_number_has_the_same_type() -> None:
    others = [
        (command, option.name)
        for command, option in _options()
        if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
        and not isinstance(option.type, Number)
        and not option.count
    ]
    assert not others
    assert sum(isinstance(option.type, Number) for _, option in _options()) > 25


@pytest.mark.parametrize("value", _WRONG, ids=lambda value: value[:12])
def test_no_command_accepts_it(value: str) -> None:
    for name, option in _options():
        if isinstance(option.type, Number | ByteSize):
            words = [name, f"{option.opts[0]}={value}", *_ARGUMENTS.get(name, [])]
            with pytest.raises(click.BadParameter) as refused:
                cli.main(words, prog_name="hangdoc", standalone_mode=False)
            assert refused.value.exit_code == 2
            message = refused.value.message
            assert message.endswith(".") and len(message) < 140, (name, option.name)


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose", "--window", "nan"],
        ["watch", "--patience", "inf"],
        ["watch", "--keep-bytes", "9" * 400 + "T"],
        ["watch", "--metrics", "²"],
        ["watch", "--metrics", "9" * 5000],
        ["preflight", "--params", "nan"],
        ["preflight", "--params", "inf"],
        ["preflight", "--params", "-1"],
        ["preflight", "--master", "node:²"],
        ["diagnose", "--pid", "9" * 5000],
    ],
    ids=lambda words: " ".join(words)[:30],
)
def test_it_ends_with_one_sentence(words: list[str], tmp_path: Path) -> None:
    done = subprocess.run([HANGDOC, *words], capture_output=True, text=True, timeout=200, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line and not line.startswith(("Usage:", "Try "))]
    assert len(lines) == 1, done.stderr


@pytest.mark.parametrize("name", ["window", "timeout", "patience", "host_timeout"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_the_api_rejects_it_too(name: str, value: float) -> None:
    with pytest.raises(hangdoc.DiagnoseError, match=f"`{name}`") as refused:
        hangdoc.diagnose(pids=[1], **{name: value})  # type: ignore[arg-type]
    assert refused.value.exit_code == 2
