"""The group of commands, each imported when it is called, and the mapping of errors to exit codes."""

import gc
import os
import sys
from importlib import import_module

import click

from hangdoc.cli.interrupts import INTERRUPTED
from hangdoc.cli.output import tell
from hangdoc.codec import BundleError
from hangdoc.commands.errors import CommandError, suggest

# name: module of hangdoc.cli, and the name of the click command in it
_COMMANDS = {
    "diagnose": ("diagnose", "command"),
    "top": ("top", "command"),
    "snapshot": ("take_snapshot", "command"),
    "watch": ("watch", "command"),
    "run": ("run", "command"),
    "preflight": ("preflight", "command"),
    "launch-diff": ("launches", "diff"),
    "launch-explain": ("launches", "explain"),
    "demo": ("demo", "command"),
    "rules": ("rules", "command"),
    "doctor": ("doctor", "command"),
    "schema": ("schema", "command"),
    "mcp": ("mcp", "command"),
}
_ALSO = {"explain": "rules"}
"""Other names of commands: each report has a line `explain`."""
_MEANT = {"help": "--help"}
"""What people type instead of a command."""
_LAUNCH_LINES = {
    "preflight": "write `--` before the launch line",
    "launch-explain": "write the launch line in quotes",
    "launch-diff": "write each launch line in quotes",
}
"""How these commands take a launch line."""
_ONE_LOOK = ("diagnose", "snapshot")
"""Commands that look once and end. Garbage collection would only traverse the evidence of all ranks repeatedly."""
_COLLECTED = 50_000, 10, 10
"""Thresholds of the collector in the others, instead of 700, 10, 10. A poll makes many values and hardly a cycle of them."""


class _Lazy(click.Group):
    """Imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if args[0].startswith("-"):
                raise  # of an option
            meant = _MEANT.get(args[0])
            hint = f" Did you mean {meant}?" if meant is not None else suggest(args[0], [*_COMMANDS, *_ALSO])
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx) from None

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = _ALSO.get(cmd_name, cmd_name)
        if cmd_name not in _COMMANDS:
            return None
        module, name = _COMMANDS[cmd_name]
        command = getattr(import_module(f"hangdoc.cli.{module}"), name)
        if cmd_name not in _ONE_LOOK:
            gc.freeze()
            gc.set_threshold(*_COLLECTED)
            gc.enable()
        assert isinstance(command, click.Command)  # noqa: S101
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="hangdoc", message="hangdoc %(version)s")
def cli() -> None:
    """Find out which rank a frozen torch.distributed run is waiting for, and why."""


def _keep_near(error: click.NoSuchOption) -> click.NoSuchOption:
    """The error with those of click's suggestions that are near without their dashes too: these make any two options alike."""
    from difflib import get_close_matches

    options = {option.lstrip("-"): option for option in error.possibilities or ()}
    near = get_close_matches(error.option_name.lstrip("-"), options)
    return click.NoSuchOption(error.option_name, possibilities=[options[name] for name in near], ctx=error.ctx)


def _refer_to_launch_line(error: click.NoSuchOption, arguments: list[str]) -> click.NoSuchOption | None:
    """The error for an option of a launcher, if that is what it is: its line was not marked as one."""
    how = _LAUNCH_LINES.get(error.ctx.info_name or "") if error.ctx is not None else None
    if how is None or "--" in arguments:
        return None
    from hangdoc.torch_facts.launchers import PROGRAMS

    launcher = next((word for word in arguments if os.path.basename(word) in PROGRAMS), None)
    if launcher is None:
        return None
    return click.NoSuchOption(
        error.option_name,
        f"No such option {error.option_name!r}. If it is an option of {launcher}, {how}.",
        ctx=error.ctx,
    )


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code. Raises KeyboardInterrupt, SystemExit and OutputLost."""
    try:
        code = cli.main(arguments, prog_name="hangdoc", standalone_mode=False)
    except click.exceptions.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            error = _refer_to_launch_line(error, arguments) or _keep_near(error)
        error.show(sys.stderr)
        return error.exit_code
    except BundleError as error:
        tell(f"hangdoc: {error}")
        return 2
    except CommandError as error:
        tell(f"hangdoc: {error}")
        return error.exit_code
    return code if isinstance(code, int) else 0
