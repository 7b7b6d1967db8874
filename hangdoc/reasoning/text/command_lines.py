"""The commands that findings suggest.

People paste them into a shell, often root's, and agents run them; and hosts, bundles and processes choose the addresses, paths
and names in them. So a command is a list of words, and only this module makes a line of it.
"""

import ipaddress
import shlex

from msgspec import Struct

from hangdoc.regex import regex

_HOST = regex(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?(?:#\d{1,6})?")
"""A host name, with the number that machines of one name get."""


class Command(Struct, frozen=True):
    """One command."""

    words: tuple[str, ...]
    into: tuple[str, ...] = ()
    """The words of a command that reads its output."""
    host: str = ""
    """Where to run it; empty for the host of the rank."""
    note: str = ""
    """A remark in hangdoc's own words."""
    constant: str = ""
    """Instead of words: a line of which hangdoc has written every character."""

    @property
    def line(self) -> str:
        """For a shell. Every word is quoted; the host is left out if it is no host name."""
        line = self.constant or " | ".join(shlex.join(words) for words in (self.words, self.into) if words)
        note = f"on {self.host}" if is_host(self.host) else self.note
        return f"{line}   # {note}" if note else line


def command(*words: str, host: str = "", note: str = "") -> Command:
    """A command of these words."""
    return Command(words, host=host, note=note)


def constant(line: str, note: str = "") -> Command:
    """A line that is written in the source, for shell syntax such as `$(hostname)`."""
    return Command((), constant=line, note=note)


def to_host(*words: str, address: str, host: str = "", note: str = "") -> tuple[Command, ...]:
    """A command about an address or a host name, which is one of the words; none if the text is neither."""
    return (Command(words, host=host, note=note),) if is_host(address) else ()


def operand(path: str) -> str:
    """A path as a word that no command takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def is_host(text: str) -> bool:
    """Whether a text can be an IP address or the name of a host."""
    if _HOST.fullmatch(text):
        return True
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return isinstance(address, ipaddress.IPv4Address) or is_host(address.scope_id or "x")
