"""Every help text and every error message, in files that a person reviews.

After a change: `pytest tests/unit/test_helps.py --snapshot-update`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from hangdoc.cli.group import cli

ROOT = Path(__file__).parents[2]
ERRORS = {"CommandError", "UsageError", "StartError", "StateError", "DiagnoseError", "HangError", "Refused", "Unreachable",
          "BundleError", "BundleTextError", "HostsError", "ShellError", "OutputLost", "fail"}  # fmt: skip
"""The exceptions whose messages a person sees, and click's `fail`."""
COLUMNS = 78
"""What click uses of a terminal of 80 columns."""


class _Text(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def reviewed(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """The reviewed file of a test, in __snapshots__/test_helps."""
    return snapshot.use_extension(_Text)


def _helps() -> Iterator[str]:
    group = click.Context(cli, info_name="hangdoc", terminal_width=COLUMNS, **cli.context_settings)
    yield cli.get_help(group)
    for name in cli.list_commands(group):
        command = cli.get_command(group, name)
        assert command is not None
        yield command.get_help(click.Context(command, info_name=name, parent=group, terminal_width=COLUMNS))


def _messages(path: Path) -> Iterator[str]:
    """The first argument of every error that is made, with its values as {expressions}."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        text = ast.unparse(node.args[0])
        passed_on = text.endswith(("str(error)", "(str(error))"))  # another error's message
        if name in ERRORS and not passed_on:
            yield f"{path.relative_to(ROOT)}: {text}"


def test_helps(reviewed: SnapshotAssertion) -> None:
    texts = list(_helps())
    assert max(len(line) for text in texts for line in text.splitlines()) <= COLUMNS
    assert "\n\n\n".join(texts) + "\n" == reviewed


def test_short_helps_are_whole() -> None:
    """`hangdoc --help` cuts the first sentence of a command where it is too long for one line."""
    assert "..." not in next(_helps()).partition("Commands:")[2]


def test_errors(reviewed: SnapshotAssertion) -> None:
    found = [message for path in sorted((ROOT / "hangdoc").rglob("*.py")) for message in _messages(path)]
    assert len(found) > 30
    assert "\n".join(found) + "\n" == reviewed
