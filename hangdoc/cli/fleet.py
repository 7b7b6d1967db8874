"""Options of the commands that look at many hosts, and the look itself."""

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from hangdoc.cli.errors import USAGE, CommandError
from hangdoc.cli.options import in_place_of

if TYPE_CHECKING:
    from hangdoc.fleet.transport import Transport

F = TypeVar("F", bound=Callable[..., Any])


class Hosts(msgspec.Struct, frozen=True, kw_only=True):
    """What --hosts and its companions say; `hosts` is None for this host alone."""

    hosts: str | None
    via: str | None
    ssh_option: tuple[str, ...]
    remote_command: str
    fanout: int
    host_timeout: float

    @property
    def slurm_job(self) -> str | None:
        """The job of `slurm:JOBID`, whose processes alone are looked at; other jobs may share its hosts."""
        return self.hosts.removeprefix("slurm:") if self.hosts is not None and self.hosts.startswith("slurm:") else None

    def names(self) -> tuple[str, ...]:
        """The hosts; raises CommandError where the text can't be read."""
        from hangdoc.fleet.hosts import HostsError, expand

        try:
            return expand(self.hosts or "")
        except HostsError as error:
            raise CommandError(str(error), USAGE) from None

    def transport(self, timeout: float) -> "Transport":
        """How to get there; raises CommandError where a command can't be read."""
        from hangdoc.fleet.transport import Transport

        via = words(self.via, "--via") if self.via is not None else None
        if via is not None and not any("{host}" in word for word in via):
            raise CommandError("--via needs {host} where the host's name belongs: 'kubectl exec {host} --'.", USAGE)
        return Transport(
            via=via,
            ssh_options=tuple(word for option in self.ssh_option for word in ("-o", option)),
            remote_command=words(self.remote_command, "--remote-command"),
            fanout=self.fanout,
            host_timeout=min(self.host_timeout, timeout),
            timeout=timeout,
        )


def fleet_options(command: F) -> F:
    """Add --hosts and its companions to a command, which gets them as one `fleet`."""

    def gathered(hosts: str | None, via: str | None, ssh_option: tuple[str, ...], remote_command: str, fanout: int,
                 host_timeout: float, **others: Any) -> Any:  # fmt: skip
        fleet = Hosts(hosts=hosts, via=via, ssh_option=ssh_option, remote_command=remote_command, fanout=fanout,
                      host_timeout=host_timeout)  # fmt: skip
        return command(fleet=fleet, **others)

    wrapped = in_place_of(command, gathered)
    for option in reversed(
        (
            click.option("--hosts", metavar="NODESET",
                         help="Look at these hosts: node[0-63], @group or slurm:JOBID (a ClusterShell node set)."),
            click.option("--via", metavar="COMMAND",
                         help="Reach a host with this command instead of ssh, for example 'kubectl exec {host} --'."),
            click.option("--ssh-option", multiple=True, metavar="OPTION", help="An option for ssh -o. Repeatable."),
            click.option("--remote-command", default="hangdoc", show_default=True, metavar="COMMAND",
                         help="How to start hangdoc on a host: a path, or a command such as 'docker exec train hangdoc'."),
            click.option("--fanout", type=click.IntRange(1, 4096), default=64, show_default=True, metavar="N",
                         help="How many hosts to contact at the same time."),
            click.option("--host-timeout", type=click.FloatRange(2, 3600), default=20.0, show_default=True,
                         metavar="SECONDS", help="Time limit for one host."),
        )
    ):  # fmt: skip
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


def words(text: str, option: str) -> tuple[str, ...]:
    """An option that holds a command, as its words; raises CommandError."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise CommandError(f"{option} {text!r} can't be read as a command: {error}.", USAGE) from None
    if not words:
        raise CommandError(f"{option} is empty.", USAGE)
    return words
