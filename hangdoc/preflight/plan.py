"""What is going to be launched, and what each node says of itself: plain values that travel."""

import msgspec

from hangdoc.snapshot import DataSource, Listener, Machine, Unavailable, Value

MASTER = "the master port"
"""What a call to it calls."""


class Plan(Value, frozen=True, kw_only=True):
    """The launch to be, as far as it is known."""

    master: str | None = None
    """Address and port at which the run will meet."""
    master_origin: str | None = None
    """Where `master` was taken from, if nobody gave it as an option."""
    ranks_per_node: int = 1
    parameters: int | None = None
    """Of the model, to predict memory and the time of an all-reduce."""
    dtype: str | None = None
    data: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    """The training script's."""
    checkpoints: str | None = None
    nodes: int = 1


class Card(Value, frozen=True, kw_only=True):
    """A network interface's hardware."""

    name: str
    wireless: bool
    speed_mbit: int | None
    """None where the driver does not say: wireless and virtual ones."""
    mtu: int | None


class Attach(Value, frozen=True, kw_only=True):
    """Whether hangdoc will be able to look, if the run freezes."""

    name: str
    works: bool
    found: str
    remedy: str


class NodeReport(Value, frozen=True, kw_only=True):
    """One node."""

    name: str
    machine: Machine | Unavailable
    cards: tuple[Card, ...]
    versions: dict[str, str | None]
    """Of hangdoc, Python and torch; None for what is not installed."""
    resolved: dict[str, tuple[str, ...] | Unavailable]
    """What the master's name and the own one resolve to here."""
    is_master: bool
    """Whether the master's address is this node's."""
    holder: Listener | None
    """Who listens on the master port, where it is."""
    port_error: str | None = None
    """Why the master port can't be bound, though nobody is seen to listen on it."""
    environment: dict[str, str]
    arguments: tuple[str, ...]
    data: tuple[DataSource, ...]
    left_over: tuple[str, ...]
    """Ranks of earlier runs, one clause each."""
    attach: tuple[Attach, ...]
    free_bytes: int | None
    """Where checkpoints will be written."""
    address: str | None
    """What Gloo would publish: the named interface's address, or what the node's own name resolves to."""
    problems: tuple[str, ...] = ()
    node: str = ""
    """How the others call it."""
    token: str = ""
    """By which a node finds itself in the list of all."""
    port: int = 0
    """Where it takes test calls; 0 where it takes none."""


class Link(Value, frozen=True, kw_only=True):
    """One node's call to another."""

    caller: str
    called: str
    target: str
    outcome: str
    """`ok`, `refused`, `timeout`, `unreachable`, or another error in words."""
    rtt_ms: float | None = None
    mbit: float | None = None
    """Measured while all nodes sent at once, each to the next, as an all-reduce does."""
    mtu: int | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report."""

    name: str
    status: str
    """`pass`, `warn`, `fail`, or `unknown` where it could not be tried."""
    text: str
    remedy: str = ""
    nodes: tuple[str, ...] = ()
