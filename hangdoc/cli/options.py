"""Options that several commands share: what to observe, for how long, and when a wait is an error."""

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from hangdoc.cli.numbers import Number
from hangdoc.commands.errors import USAGE, CommandError
from hangdoc.redact import LOCALS, Locals

F = TypeVar("F", bound=Callable[..., Any])

pid_option = click.option(
    "--pid", "pids", type=Number(1, whole=True), multiple=True, metavar="PID",
    help="Observe only this process and its descendants. The pid of a launcher covers all its ranks. Repeatable.",
)  # fmt: skip
native_option = click.option(
    "--native", type=click.Choice(["auto", "never", "always"]), default="auto", show_default=True,
    help="Read C++ frames: auto (only if the Python stack is not enough), never, or always (of every rank).",
)  # fmt: skip
stacks_option = click.option(
    "--stacks", "all_stacks", is_flag=True,
    help="Also read the stacks of ranks that make calls, if all of their run do. Each takes a pause of some milliseconds.",
)  # fmt: skip
ras_option = click.option(
    "--ras", type=click.Choice(["auto", "never", "always"]), default="auto", show_default=True,
    help="Ask NCCL's RAS for the calls of ranks without a record: auto (only if that is known to be safe), never, or always.",
)  # fmt: skip

locals_option = click.option(
    "--locals", "locals_", type=click.Choice(LOCALS), default="used", show_default=True,
    help="Strings in variables to store: used (paths and short names) or all (everything except secrets).",
)  # fmt: skip


def _seconds(name: str, kind: Number, default: float, text: str) -> Callable[[F], F]:
    return click.option(name, type=kind, default=default, show_default=True, metavar="SECONDS", help=text)


_POLLS = "How long to observe the ranks."
_ONE_LOOK = f"{_POLLS} Without this option, 0.1 s if the kernel shows that nothing has run for a second before."


def window_option(text: str = _POLLS, *, default: float = 1.0) -> Callable[[F], F]:
    """--window."""
    return _seconds("--window", Number(0.1, 600), default, text)


def timeout_option(text: str = "Time limit for the whole command.") -> Callable[[F], F]:
    """--timeout."""
    return _seconds("--timeout", Number(1, 3600), 30.0, text)


def patience_option(
    text: str = "How long ranks may wait for a rank that makes no progress before the wait is an error.",
) -> Callable[[F], F]:
    """--patience."""
    return _seconds("--patience", Number(0), 30.0, text)


def scope_options(command: F) -> F:
    """--pid, --run-of and --slurm-job: which ranks of a host."""
    for option in (
        click.option("--slurm-job", metavar="JOBID", help="Observe only the processes of this Slurm job."),
        click.option(
            "--run-of", type=Number(1, whole=True), metavar="PID",
            help="Observe only the run of the rank with this pid.",
        ),
        pid_option,
    ):  # fmt: skip
        command = option(command)
    return command


_OF_A_LOOK = frozenset(
    [
        "window",
        "native",
        "all_stacks",
        "ras",
        "locals_",
        "timeout",
        "via",
        "ssh_option",
        "remote_command",
        "fanout",
        "host_timeout",
        "ship",
    ]
)
"""Parameters that say how to look at running ranks. Which ranks: hangdoc.commands.bundles.check_saved_or_running."""


def refuse_look_options(evidence: str, remedy: str, *, also: Collection[str] = (), but: Collection[str] = ()) -> None:
    """Raise CommandError if the caller gave an option that only a look at running ranks uses: one of these or of `also`, but not
    of `but` (names of parameters). `evidence` names what is read instead, and `remedy` what to leave out for a look."""
    context = click.get_current_context()
    look_options = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name is not None
        and parameter.name in (_OF_A_LOOK | set(also)) - set(but)
        and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]
    if look_options:
        names = " and ".join(look_options)
        are = "is" if len(look_options) == 1 else "are"
        raise CommandError(
            f"{names} {are} for a look at running ranks, but {evidence} is saved evidence. Leave out {names}, or {remedy}.",
            USAGE,
        )


def in_place_of(command: F, gathered: Callable[..., Any]) -> Any:
    """Give `gathered` the help text and the click options of the command that it calls."""
    gathered.__doc__ = command.__doc__
    gathered.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    return gathered


def observation_options(
    *, window: float = 1.0, native: bool = True, stacks: bool = True, what: str = "the whole command"
) -> Callable[[F], F]:
    """Add the options of an observation to a command, which gets them as one `options`."""

    def decorate(command: F) -> F:
        def gathered(pids: tuple[int, ...], run_of: int | None, slurm_job: str | None, window: float, locals_: Locals,
                     timeout: float, ras: str, native: str = "auto", all_stacks: bool = False, **others: Any) -> Any:  # fmt: skip
            from hangdoc.observe.look.observe import Options

            source = click.get_current_context().get_parameter_source("window")
            options = Options(pids=pids, run_of=run_of, slurm_job=slurm_job, window=window, locals=locals_,
                              shorten=source is ParameterSource.DEFAULT, timeout=timeout, native=native, ras=ras,
                              stacks=all_stacks)  # fmt: skip
            return command(options=options, **others)

        wrapped = in_place_of(command, gathered)
        wrapped = timeout_option(f"Time limit for {what}.")(wrapped)
        wrapped = locals_option(wrapped)
        wrapped = ras_option(wrapped)
        wrapped = native_option(wrapped) if native else wrapped
        wrapped = stacks_option(wrapped) if stacks else wrapped
        wrapped = window_option(_ONE_LOOK if stacks else _POLLS, default=window)(wrapped)
        return scope_options(wrapped)  # type: ignore[no-any-return]

    return decorate
