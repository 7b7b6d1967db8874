"""The planned launch, and the report of each node, as plain values that nodes send to each other."""

from typing import Literal

import msgspec

from hangdoc.snapshot import DataSource, Listener, Machine, Unavailable, Value

MASTER = "the master port"
"""`Link.called` for a connection to the master port."""


class Plan(Value, frozen=True, kw_only=True):
    """The planned launch, as far as it is known."""

    master: str | None = None
    """Address and port of the run's rendezvous."""
    master_origin: str | None = None
    """Where `master` was found, if it was not given as an option."""
    port_setting: str = "port"
    """The option or variable that gives the port of `master` to the launch; a word for it if that is not known."""
    address_setting: str = "--master"
    """The option or variable that gives the address."""
    ranks_per_node: int | None = 1
    """None if the launch line does not determine it."""
    parameters: int | None = None
    """Parameters of the model, to predict memory and the time of an all-reduce."""
    dtype: str | None = None
    data: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    """Arguments of the training script."""
    checkpoints: str | None = None
    nodes: int | None = 1
    """The same."""
    node_rank: int | None = None
    """Of this node; None if its rendezvous numbers the nodes, or if plain Python is started without one."""
    launcher: str | None = None
    """The tool that will start the ranks, if the launch line is known."""
    unknown_options: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """The options of the line that no torchrun known to hangdoc has; for each, those like it that torchrun has."""
    needs_cards: bool = False
    """Whether the launcher starts several ranks only where it finds several cards, as far as the line says."""
    counted: str | None = None
    """`gpu`, `auto` or `cpu` if torchrun counts on each node how many ranks to start there
    (`hangdoc.torch_facts.launchers.COUNTED`)."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    """The variables that the launch line sets."""
    python: str | None = None
    """The interpreter of the launch line; None if it shows none."""


class Card(Value, frozen=True, kw_only=True):
    """The hardware of a network interface."""

    name: str
    wireless: bool
    speed_mbit: int | None
    """None if the driver does not know: for wireless and virtual interfaces."""
    mtu: int | None


class Attach(Value, frozen=True, kw_only=True):
    """One ability that hangdoc needs to diagnose the run (`hangdoc.observe.look.abilities`)."""

    name: str
    works: bool
    found: str
    remedy: str
    only: str = ""
    """As in `Ability`."""


class Agent(Value, frozen=True, kw_only=True):
    """A launcher of the node that waits at the master of the plan, for as many nodes, and has no ranks yet: it is a node of the
    same launch, unless there are as many of them as nodes."""

    pid: int
    node_rank: int | None
    """None if it was not given one."""


class OtherRun(Value, frozen=True, kw_only=True):
    """Ranks of another run, or launchers whose processes this user can't read."""

    pid: int
    """Of their launcher, or of the first of them if that is gone or not known."""
    other_pids: tuple[int, ...] = ()
    """The same of the other nodes of the run, if several are on this host."""
    text: str
    user: str | None = None
    """The name of their user, or `uid 1000`, if this user may neither read nor end them."""
    at_rest: bool = False
    """Whether their main threads did not run for a second: they wait, and perhaps for each other."""
    left_over: bool = False
    """Whether their launcher is gone."""


class MissingPath(Value, frozen=True, kw_only=True):
    """A file or directory that a setting names and that is not on the node, as far as this user can see."""

    path: str
    origin: str
    """The option or variable that names it."""
    must_exist: bool = False
    """Whether an option of preflight names it. What one of the script names, the script may make."""
    may_be_name: bool = False
    """Whether the setting may as well give a name, as of a data set in a hub."""
    refused: str = ""
    """Why this user may not look for it or read it; empty if nothing is there."""


class NodeReport(Value, frozen=True, kw_only=True):
    """The report of one node."""

    name: str
    machine: Machine | Unavailable
    cards: tuple[Card, ...]
    versions: dict[str, str | None]
    """Versions of hangdoc, Python and torch; None if not installed."""
    other_python: str | None = None
    """The Python that runs hangdoc, if that of the launch is not known: hangdoc may have an environment of its own."""
    portable: bool = False
    """Whether it runs hangdoc.pyz."""
    launcher_python: str | None = None
    """The Python of the launcher on the PATH, if hangdoc.pyz runs."""
    resolved: dict[str, tuple[str, ...] | Unavailable]
    """Addresses of the master's name and of the node's own name, as resolved on this node."""
    is_master: bool
    """Whether this node has the master's address."""
    holder: Listener | None
    """The process that listens on the master port; only on the master. Without its command line."""
    holder_command: str = ""
    """That, without its secrets, and shortened."""
    holder_role: Literal["rank", "launcher"] | None = None
    """What that process is of another run; None if it is neither its rank nor its launcher, or its launcher is gone."""
    port_error: str | None = None
    """Why the master port can't be bound, if no process seems to listen on it."""
    environment: dict[str, str]
    arguments: tuple[str, ...]
    data: tuple[DataSource, ...]
    missing_data: tuple[MissingPath, ...] = ()
    missing_checkpoints: tuple[MissingPath, ...] = ()
    """From which the script is to resume."""
    left_over: tuple[str, ...]
    """Ranks of earlier runs, whose launcher is gone, one clause each. Without those of `foreign`."""
    left_over_at_work: tuple[str, ...] = ()
    """Those of `left_over` that are not at rest."""
    running: tuple[str, ...] = ()
    """Ranks of other runs, one clause for each launcher. Without those of `resting` and `foreign`."""
    resting: tuple[OtherRun, ...] = ()
    """Those at rest."""
    foreign: tuple[OtherRun, ...] = ()
    """Those that this user may neither read nor end."""
    agents: tuple[Agent, ...] = ()
    machine_id: str | None = None
    """As `Host.machine_id`."""
    attach: tuple[Attach, ...]
    free_bytes: int | None
    """Free space for checkpoints."""
    usable_cores: int | None = None
    """The cores that a process of this user may use: torchrun counts them (`sched_getaffinity`)."""
    lacks_checkpoints: bool = False
    """Whether the directory for checkpoints is given and does not exist."""
    address: str | None
    """The address that Gloo would publish: of the interface in GLOO_SOCKET_IFNAME, else of the host name."""
    problems: tuple[str, ...] = ()
    node: str = ""
    """The name of the node in the session."""
    token: str = ""
    """A random text by which a node finds itself in the list of all nodes."""
    port: int = 0
    """The port for test connections; 0 if there is none."""


class Link(Value, frozen=True, kw_only=True):
    """A test connection from one node to another."""

    caller: str
    called: str
    target: str
    outcome: str
    """`ok`, `refused`, `timeout`, `unreachable`, or another error message."""
    rtt_ms: float | None = None
    mbit: float | None = None
    """Throughput while all nodes send at the same time, each to the next, as in an all-reduce."""
    mtu: int | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report."""

    name: str
    status: str
    """`pass`, `warn`, `fail`, or `unknown` if it could not be checked."""
    text: str
    remedy: str = ""
    nodes: tuple[str, ...] = ()
    unless: str = ""
    """The condition under which a failure is none, as a clause of `text`; empty if there is none."""
