"""Which hosts to observe, and how to reach them: the values of `--hosts` and related options."""

import shlex
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from hangdoc.commands.errors import USAGE, CommandError, suggest

if TYPE_CHECKING:
    from hangdoc.fleet.shipment import Shipment
    from hangdoc.fleet.transport import Transport


Ship = Literal["auto", "always", "never"]
"""To which hosts hangdoc's single file is brought: those that lack hangdoc or have another version, all, or none."""


class Hosts(msgspec.Struct, frozen=True, kw_only=True):
    """The values of --hosts and related options. `hosts` is None for this host only."""

    hosts: str | None
    via: str | None
    ssh_option: tuple[str, ...]
    remote_command: str
    fanout: int
    host_timeout: float
    ship: Ship = "auto"
    expanded: tuple[str, ...] | None = None
    """The names of `hosts`, where they are known already."""

    @property
    def slurm_job(self) -> str | None:
        """The job of `slurm:JOBID`. Only its processes are observed, because other jobs may share its hosts."""
        return self.hosts.removeprefix("slurm:") if self.hosts is not None and self.hosts.startswith("slurm:") else None

    def names(self) -> tuple[str, ...]:
        """The names of the hosts. Raises CommandError for an invalid node set."""
        from hangdoc.fleet.hosts import HostsError, expand

        if self.expanded is not None:
            return self.expanded
        try:
            return expand(self.hosts or "")
        except HostsError as error:
            raise CommandError(str(error), USAGE) from None

    def naming(self, text: str) -> "Hosts":
        """The same with the hosts that somebody else than the user names: as `--hosts` has them, or plain names. Raises
        CommandError for other text."""
        from hangdoc.fleet.hosts import HostsError, expand_plain

        if text == self.hosts:
            return self
        try:
            return msgspec.structs.replace(self, hosts=text, expanded=expand_plain(text))
        except HostsError as error:
            raise CommandError(str(error), USAGE) from None

    def transport(self, timeout: float) -> "Transport":
        """How to reach the hosts. Raises CommandError for an invalid command."""
        from hangdoc.fleet.transport import Transport

        via = words(self.via, "--via") if self.via is not None else None
        if via is not None and not any("{host}" in word for word in via):
            raise CommandError(
                "--via needs {host} in place of the host name. Example: --via 'kubectl exec -i {host} --'.", USAGE
            )
        transport = Transport(
            via=via,
            ssh_options=tuple(word for option in self.ssh_option for word in ("-o", option)),
            remote_command=words(self.remote_command, "--remote-command"),
            fanout=self.fanout,
            host_timeout=min(self.host_timeout, timeout),
            timeout=timeout,
            shipment=self._find_shipment(),
            always=self.ship == "always",
        )
        if self.ship == "always" and transport.brings() is None:
            raise CommandError(
                f"--ship always needs a --remote-command that ends with hangdoc. {self.remote_command!r} does not.",
                USAGE,
            )
        return transport

    def _find_shipment(self) -> "Shipment | None":
        """The file to bring; None if there is none, or if it is not wanted."""
        from hangdoc.fleet.shipment import ShipmentError, open_shipment
        from hangdoc.portable import find_portable

        path = find_portable() if self.ship != "never" else None
        if path is None and self.ship == "always":
            raise CommandError(
                "--ship always: there is no hangdoc.pyz to bring. Name it with HANGDOC_PYZ, or put it beside `hangdoc`.",
                USAGE,
            )
        try:
            return open_shipment(path) if path is not None else None
        except ShipmentError as error:
            raise CommandError(str(error), USAGE) from None


def command_words(text: str, option: str, names: Iterable[str] = ()) -> tuple[str, ...]:
    """`words` of a command that runs later, when nobody may be there. Raises CommandError also if its program is not there now.
    `names`: what the option takes besides a command."""
    command = words(text, option)
    if shutil.which(command[0]) is None:
        meant = suggest(command[0], names)
        raise CommandError(
            f"{option}: there is no program {command[0]!r}.{meant} Name one that is in PATH, or give its path.", USAGE
        )
    return command


def words(text: str, option: str) -> tuple[str, ...]:
    """The words of an option that contains a command. Raises CommandError for invalid quoting or no words."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise CommandError(f"{option} {text!r} cannot be read as a command: {error}.", USAGE) from None
    if not words:
        raise CommandError(f"{option} is empty.", USAGE)
    return words
