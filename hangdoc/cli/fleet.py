"""Options of the commands that observe many hosts."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hangdoc.cli.numbers import Number
from hangdoc.cli.options import in_place_of
from hangdoc.commands.hosts import Hosts, Ship

F = TypeVar("F", bound=Callable[..., Any])


def fleet_options(what: str = "Observe these hosts") -> Callable[[F], F]:
    """Add --hosts and related options to a command, which gets them as one `fleet`. `what` begins the help of --hosts."""

    def decorate(command: F) -> F:
        def gathered(hosts: str | None, via: str | None, ssh_option: tuple[str, ...], remote_command: str, fanout: int,
                     host_timeout: float, ship: Ship, **others: Any) -> Any:  # fmt: skip
            fleet = Hosts(hosts=hosts, via=via, ssh_option=ssh_option, remote_command=remote_command, fanout=fanout,
                          host_timeout=host_timeout, ship=ship)  # fmt: skip
            return command(fleet=fleet, **others)

        wrapped = in_place_of(command, gathered)
        for option in reversed(
            (
                click.option("--hosts", metavar="NODESET",
                             help=f"{what}: node[0-63], @group or slurm:JOBID (a ClusterShell node set)."),
                click.option("--via", metavar="COMMAND",
                             help="Reach a host with this command instead of ssh, for example 'kubectl exec -i {host} --'."),
                click.option("--ssh-option", multiple=True, metavar="OPTION", help="An option for ssh -o. Repeatable."),
                click.option("--remote-command", default="hangdoc", show_default=True, metavar="COMMAND",
                             help="How to start hangdoc on a host: a path, or a command such as 'docker exec -i train hangdoc'."),
                click.option("--fanout", type=Number(1, 4096, whole=True), default=64, show_default=True, metavar="N",
                             help="How many hosts to contact at the same time."),
                click.option("--host-timeout", type=Number(2, 3600), default=20.0, show_default=True,
                             metavar="SECONDS", help="Time limit for one host."),
                click.option("--ship", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True,
                             help="Bring hangdoc's single file along and remove it again: auto (to hosts without hangdoc or with "
                                  "another version), always, or never."),
            )
        ):  # fmt: skip
            wrapped = option(wrapped)
        return wrapped  # type: ignore[no-any-return]

    return decorate
