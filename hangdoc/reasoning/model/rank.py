"""A rank, the operation that it waits in, and classes of ranks about which the same was concluded."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from hangdoc.diagnosis import Label, Operation, Where
from hangdoc.reasoning.model.holds import Hold, OnNetwork
from hangdoc.regex import regex
from hangdoc.snapshot import Clocks, Connection, Frame, Loop, Process, PythonThread, Stack
from hangdoc.torch_facts import call_names, thread_names

BUSY = 0.10
"""Share of one core above which a thread is busy. Waiting threads poll: a rendezvous uses 2-4 %, a monitor up to 5 %."""
WAITING_IN = {"collective": "in-collective", "p2p": "in-p2p", "rendezvous": "in-rendezvous", "store": "in-store"}
"""The state of a rank by the kind of its wait."""
_MOSTLY = 0.5
"""Share of the window."""

_FORM = regex(r"_(into_tensor|tensor|single|coalesced)$")


def form(op: str) -> str:
    """One name for the variants of a collective: a native stack has all_gather where a Python frame has
    all_gather_into_tensor."""
    return _FORM.sub("", op)


class Wait(Struct, frozen=True, gc=False):
    """The operation of a blocked rank, and the ranks that it names."""

    kind: str
    """`collective`, `p2p`, `rendezvous` or `store`: waits that another rank can end."""
    operation: Operation
    members: tuple[int, ...] | None = None
    """Ranks of the group, if the interpreter lists them; None means the default group."""
    sure: bool = True
    """False if the operation was inferred (from an idle backward, for example), not read from a frame."""
    root: int | None = None
    """Of a rooted collective, the root: the rank within its group that sends to all or receives from all."""
    tag: int | None = None
    """Of a send or a receive: it meets one with the same tag only."""
    asked: str | None = None
    """Of a call of torch.distributed.rpc, the name of the worker that must answer."""
    answered_by: int | None = None
    """The rank of that worker, if it has accepted the call: it answers when other ranks have made theirs, and is no `peer`."""

    makes: tuple[int, ...] | None = None
    """Of a call that makes a group, the ranks that this group is to have. All ranks of the default group must make the call."""

    counter: str | None = None
    """Of a call outside of the process groups, the title of the process that counts the ranks that have made it, or another call
    that it counts: those meet."""

    number: int | None = None
    """Of a call that a card executes, its number in its group: those of different numbers do not meet."""
    thread_at: str | None = None
    """Of such a call, `file:line` where its thread is now, which has gone on: it waits there for the card."""
    way: tuple[tuple[str, int], ...] = ()
    """Of an unknown operation, the lines of the user's code that lead to it: other lines wait for another operation."""

    @property
    def point(self) -> tuple[Hashable, ...]:
        """Equal for ranks that can meet there."""
        origin = self.operation.origin
        return (
            self.counter or form(self.operation.op),
            self.operation.group,
            self.members,
            origin if origin in ("ddp-backward", "store") else None,
            self.way if self.operation.op == "wait" else (),
            self.number,
        )

    @property
    def root_rank(self) -> int | None:
        """The rank of the root; None if it is not known."""
        if self.root is None or self.members is None:
            return self.root
        return self.members[self.root] if self.root < len(self.members) else None

    def with_details(self, **details: Any) -> "Wait":
        """The same wait, with some fields of its operation replaced."""
        return replace(self, operation=replace(self.operation, **details))

    @property
    def of_group(self) -> tuple[str | None, tuple[int, ...] | None]:
        """Equal for calls of one group."""
        return self.operation.group, self.members


class PassedTensor(NamedTuple):
    """The tensor that a rank passed to its collective."""

    lines: tuple[int, ...]
    """At which one of torch's calls makes another: broadcast_object_list sends a size first, then what it is of."""
    tensor: str
    """Of the innermost call, as `float32[64, 8]`."""
    number: int | None
    """Of the call in its group; None if it is not recorded. Calls with different numbers may have different tensors."""


class LoopView(Struct, frozen=True, gc=False):
    """The loop over the data that a rank is in or has left, with its counter."""

    loop: Loop
    inside: bool
    done: int | None
    """Rounds completed."""
    total: int | None
    of_batches: bool = True
    """Whether a round is a batch; False for an epoch."""
    by_iterator: bool = False
    """Whether `done` is what the rank's own iterator counts, and not a variable of the program."""
    recorded: bool = False
    """Whether the rank's own iterator or dataloader says `total`."""
    pass_id: int | None = None
    """As `Loader.pass_id`, of the iterator that gives `done`."""
    begin: int | None = None
    """The value at which its counter began, if the header names a variable for it and that was read. The rounds before it are
    not counted."""


class AtRest(NamedTuple):
    """In what a thread is asleep."""

    state: str
    why: str
    """A phrase that follows `is`."""


class Activity(NamedTuple):
    """What a rank does, as a view shows it."""

    label: Label | None
    state: str
    operation: Operation | None


class State(Struct, frozen=True, gc=False):
    """What was concluded about a rank."""

    label: Label | None
    state: str
    why: str
    """One phrase with the evidence for the state."""
    wait: Wait | None = None
    moving: bool = False
    """Whether anything progressed during the observation: CPU of its own work, stack, counters, bytes, beacon."""
    counters_moved: bool = False
    work: str | None = None
    """What progresses besides counters and stacks, as text: files, other connections, child processes."""
    training_share: float | None = None
    """Share of the observation for which its training thread was on a core; None if it could not be measured."""
    hold: Hold | None = None
    """What blocks it, if it waits for no other rank."""
    at_rest: AtRest | None = None
    """Where its own thread is asleep in the kernel while others advance its work; None if it computes itself."""
    asks: OnNetwork | None = None
    """Of one that is at work: the request to outside of the run in which its own thread was at the look; None for none."""

    passing: Wait | None = None
    """The call of a rank that goes from call to call, by its stack and its record, or by its record alone if its stack was not
    read: `wait` is for one that stays in a call."""

    def show_activity(self, waited_share: float | None) -> "Activity":
        """What it does, for people: who works beside a thread that is asleep does not make that thread compute, nor do moments
        between the calls in which a rank waits for most of the window. `waited_share`: for which share; None if unknown."""
        if self.at_rest is not None and self.state == "computing":
            return Activity("blocked", self.at_rest.state, None)
        if self.passing is not None and waited_share is not None and waited_share > _MOSTLY:
            return Activity("blocked", WAITING_IN[self.passing.kind], self.passing.operation)
        return Activity(self.label, self.state, self.wait.operation if self.wait is not None else None)


class Rank(State, frozen=True, gc=False, kw_only=True):
    """One rank. `process` is None where the rank is known to be gone and left nothing."""

    rank: int
    host: str
    process: Process | None
    like: int | None = None
    """The rank of the same host whose evidence was sent for both (`Process.like`)."""
    local_rank: int | None = None
    thread: PythonThread | None = None
    own: tuple[Frame, ...] = ()
    """Frames of the user's own code in that thread, innermost first."""
    program: tuple[Frame, ...] = ()
    """`own` with the frames of the framework that has the training loop, innermost first."""
    where: Where | None = None
    """Where it is in the user's code, by its stack; if that was not read, the line of its last recorded call."""
    frame: Frame | None = None
    """The frame `where` names."""
    cpu_percent: float | None = None
    silent_seconds: float | None = None
    """Since the last byte on its connections to other ranks."""
    store_silent_seconds: float | None = None
    """Since the last byte on its connections to stores."""
    idle_seconds: float | None = None
    """For how long its training thread had not run when the observation began, at least; None if unknown."""
    loop: LoopView | None = None
    connections: tuple[Connection, ...] = ()
    """To other ranks."""
    passed: PassedTensor | None = None

    @property
    def pid(self) -> int | None:
        """Its process, if it has one and its number is known."""
        return self.process.pid or None if self.process else None

    @property
    def by_record(self) -> bool:
        """Whether `where` is known from its record: no stack of it was read, or its card waits in a call that its thread has made
        before."""
        by_card = self.wait is not None and self.wait.thread_at is not None
        return self.where is not None and (by_card or self.is_unread)

    @property
    def is_unread(self) -> bool:
        """Whether its stack was not read."""
        return self.process is None or not isinstance(self.process.stack, Stack)

    @property
    def lacks_source(self) -> bool:
        """Whether a line of its own code was not read. Then the loops and conditions around it are unknown."""
        return any(frame.source is None and not frame.file.startswith("<") for frame in self.own)

    @property
    def at_last_call(self) -> bool:
        """Whether `where` is the line of its last call, from which it has moved on."""
        return self.where is not None and self.thread is None

    @property
    def spins(self) -> bool:
        """Whether it spins in the GPU driver, for a collective or for kernels of its own: the host cannot tell which."""
        return self.wait is not None and self.wait.operation.origin == call_names.GPU_WAIT

    @property
    def uses_rpc(self) -> bool:
        """Whether it uses torch.distributed.rpc."""
        clocks = self.process.clocks if self.process is not None else None
        return isinstance(clocks, Clocks) and any(thread_names.is_of_rpc(thread.name) for thread in clocks.threads)

    @property
    def in_rendezvous(self) -> bool:
        """Whether its operation is a rendezvous."""
        return self.wait is not None and self.wait.kind == "rendezvous"

    @property
    def waits(self) -> bool:
        """Whether it is blocked in an operation that another rank has to complete."""
        return self.wait is not None


class Class(Struct, frozen=True, gc=False):
    """Ranks with the same conclusions. The later steps treat them as one."""

    first: Rank
    ranks: tuple[int, ...]
    """Ascending; the first one's number leads."""


def numbers_of(classes: Iterable[Class]) -> Iterator[int]:
    """The ranks in some classes."""
    for alike in classes:
        yield from alike.ranks


def ranks_of(classes: Iterable[Class]) -> tuple[int, ...]:
    """The ranks in some classes, ascending."""
    return tuple(sorted(numbers_of(classes)))


def merge_classes(classes: Iterable[Class], key: Callable[[Rank], Hashable]) -> tuple[Class, ...]:
    """One class for all that have the same key, the smallest first."""
    by_key: dict[Hashable, list[Class]] = {}
    for alike in classes:
        by_key.setdefault(key(alike.first), []).append(alike)
    whole = (Class(group[0].first, ranks_of(group)) for group in by_key.values())
    return tuple(sorted(whole, key=lambda alike: (len(alike.ranks), alike.ranks)))
