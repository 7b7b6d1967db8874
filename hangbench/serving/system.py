"""What a system and a state of it are."""

import os
from dataclasses import dataclass, field
from pathlib import Path

_DEFAULT_HOME = "/var/tmp/hangdoc-serving"  # noqa: S108 - as in the Makefile
HOME = Path(os.environ.get("HANGDOC_SERVING", _DEFAULT_HOME)).expanduser().absolute()
"""The environments, the model and the results. Not below /tmp, because each system gets a /tmp of its own."""
PROGRAMS = Path(__file__).parent / "programs"

HUNG = ("hung",)
GOING = ("healthy", "waiting")
ENDED = ("no rank is left",)
LOOPS = ("waiting", "hung")
"""An endless loop looks like a long one, but it is known who waits for it."""


@dataclass(frozen=True)
class State:
    """A state of a system, and the right answer about it.

    `clients` are arguments of programs/client.py after the URL; they run until the end. `signal` is sent to a role
    after the clients have got answers for a while: (role, name of the signal). `arguments` go to the system's program.
    `cause` has the roles where the cause lies; () if nothing is wrong.
    """

    name: str
    truth: str
    verdict: tuple[str, ...]
    cause: tuple[str, ...] = ()
    clients: tuple[tuple[str, ...], ...] = ()
    signal: tuple[str, str] | None = None
    arguments: tuple[str, ...] = ()
    cold: bool = False
    """Whether the state begins without the system's warm-up."""


@dataclass(frozen=True)
class System:
    """A system: the interpreter of its environment, the command that starts it, and the roles whose pids hangdoc gets.

    In `command` {python}, {port}, {ready} and {programs} are replaced. `roles` are those that the file of the system
    must name when it is ready. `looks` has the name of each look and its role. One look without a pid follows.
    """

    name: str
    python: Path
    command: tuple[str, ...]
    roles: tuple[str, ...]
    looks: tuple[tuple[str, str], ...]
    states: tuple[State, ...]
    real: str
    """What is other people's code, and what is not."""
    environment: dict[str, str] = field(default_factory=dict)
    path: str = ""
    """The path below the URL that clients post to."""
    warm_up: str = ""
    """A document that is posted three times, and answered, before the state begins: a first request may compile."""
