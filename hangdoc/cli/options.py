"""Options that several commands share: what to look at, for how long, and when a wait is an error."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hangdoc.redact import LOCALS

F = TypeVar("F", bound=Callable[..., Any])

pid_option = click.option(
    "--pid", "pids", type=click.IntRange(min=1), multiple=True, metavar="PID",
    help="Only ranks in this process's tree (repeatable; a launcher's pid stands for its workers).",
)  # fmt: skip
native_option = click.option(
    "--native", type=click.Choice(["auto", "never", "always"]), default="auto", show_default=True,
    help="C++ frames: where the Python stack leaves it open, or never, or of every rank.",
)  # fmt: skip

locals_option = click.option(
    "--locals", "locals_", type=click.Choice(LOCALS), default="used", show_default=True,
    help="Texts of variables to keep: paths and short names, or all that look like no secret.",
)  # fmt: skip


def _seconds(name: str, kind: click.FloatRange, default: float, text: str) -> Callable[[F], F]:
    return click.option(name, type=kind, default=default, show_default=True, metavar="SECONDS", help=text)


def window_option(text: str = "Length of the observation.", *, default: float = 1.0) -> Callable[[F], F]:
    """--window."""
    return _seconds("--window", click.FloatRange(0.1, 600), default, text)


def timeout_option(text: str = "Bound on the whole command.") -> Callable[[F], F]:
    """--timeout."""
    return _seconds("--timeout", click.FloatRange(1, 3600), 30.0, text)


def patience_option(text: str = "How long a wait for a working rank is no error.") -> Callable[[F], F]:
    """--patience."""
    return _seconds("--patience", click.FloatRange(min=0), 30.0, text)


def observation_options(command: F) -> F:
    """Add --pid, --window, --native, --locals and --timeout to a command that looks."""
    for option in (timeout_option(), locals_option, native_option, window_option(), pid_option):
        command = option(command)
    return command
