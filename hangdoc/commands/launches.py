"""Reads launch lines as text and compares them. Nothing is executed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from hangdoc import redact, untrusted
from hangdoc.commands.documents import Comparison
from hangdoc.commands.errors import USAGE, CommandError
from hangdoc.launch import launchers
from hangdoc.launch.compare import compare
from hangdoc.launch.derived import derived
from hangdoc.launch.layers import ACCEPTED, LaunchLine, launches
from hangdoc.launch.shell import ShellError
from hangdoc.phrases import shorten

_LONGEST_PATH = 1024
_MAX_BYTES = 1 << 20
"""Limit for a script with launch lines."""
Named = tuple[str, LaunchLine]
"""The name of a column, and its launch."""


def read(text: str) -> list[Named]:
    """The launches in a file, or in `text` itself. Raises CommandError if there is none."""
    path = Path(text) if len(text) < _LONGEST_PATH and "\n" not in text else None
    if path is None or not path.is_file():
        return parsed(text)
    try:
        content = untrusted.read_file(path, _MAX_BYTES)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}.", USAGE) from None
    except untrusted.UntrustedError as error:
        raise CommandError(f"{path} {error}. Name a script or a launch line.", USAGE) from None
    return parsed(content.decode("utf-8", "replace"), path.name)


def parsed(content: str, name: str = "") -> list[Named]:
    """The launches in the text of a command or of a script called `name`. Raises CommandError if there is none."""
    if not name and " " not in content.strip():
        raise CommandError(f"{content[:80]!r} is neither a file nor a launch line.", USAGE)
    try:
        lines = [_without_secrets(line) for line in launches(content)]
    except ShellError as error:
        raise CommandError(f"{name or 'the command'} cannot be read: {error}.", USAGE) from None
    if not lines:
        what = name or shorten(content.strip(), 60)
        raise CommandError(f"{what!r} contains no launch line ({ACCEPTED}).", USAGE)
    return [(_name_column(name, line, number if len(lines) > 1 else 0), line) for number, line in enumerate(lines, 1)]


def compared(named: Sequence[Named]) -> Comparison:
    """Two or more launches side by side. Raises CommandError for fewer."""
    if len(named) < 2:
        raise CommandError(
            "only one launch line was given. Give the lines of at least two nodes, or use `hangdoc launch-explain`.",
            USAGE,
        )
    lines = [line for _, line in named]
    names = tuple(name or f"line {number}" for number, (name, _) in enumerate(named, 1))
    return Comparison(lines=names, rows=tuple(compare(lines)), derived=dict(derived(lines)))


def _without_secrets(line: LaunchLine) -> LaunchLine:
    """The launch without values whose name or form shows that they are secrets. The comparison needs none of them."""
    launched = line.launched
    shown = msgspec.structs.replace(
        launched,
        options={name: redact.setting_without_secrets(name, value) for name, value in launched.options.items()},
        arguments=redact.without_secrets(launched.arguments),
    )
    layers = tuple(
        replace(layer, text=" ".join(redact.without_secrets(tuple(layer.text.split(" "))))) for layer in line.layers
    )
    around, variables = (
        {name: redact.setting_without_secrets(name, value) for name, value in given.items()}
        for given in (line.around, line.environment)
    )
    return replace(line, launched=shown, environment=variables, layers=layers, around=around)


def _name_column(name: str, line: "LaunchLine", number: int) -> str:
    """The name of a line: its host, file or node rank; empty for none."""
    if line.host is not None:
        return line.host
    options = line.launched.options
    ignored = launchers.without_effect(line.launched.tool, options, line.environment)
    node_rank = options.get("node-rank") if "node-rank" not in ignored else None
    plain = name or (f"node {node_rank}" if node_rank is not None else "")
    return f"{plain}:{number}" if number and plain else plain
