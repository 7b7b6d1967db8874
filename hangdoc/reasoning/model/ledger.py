"""The value: group, ranks, and the calls of each rank with their numbers."""

import math
from functools import lru_cache
from typing import Literal, NamedTuple

from hangdoc.parse import natural
from hangdoc.regex import regex
from hangdoc.torch_facts import call_names

Source = Literal["recorder", "inferred"]

TENSOR = regex(r"^(\w+)\[([\d, ]*)\]$")
"""A tensor in words, such as `float32[64, 8]`: its dtype and shape."""


class Site(NamedTuple):
    """A line of Python that makes a call, or calls what makes it."""

    file: str
    """Without its directory, which may differ between hosts."""
    line: int
    function: str
    path: str = ""
    """The whole path."""
    library: bool = False


class Call(NamedTuple):
    """What a rank called, and where: equal for equal calls, on all ranks."""

    op: str
    tensors: tuple[str, ...] = ()
    """Its inputs, each as `float32[64, 8]`."""
    sites: tuple[Site, ...] = ()
    """Where it was called, innermost first, without torch's own frames. Empty if unknown."""
    by_join: bool = False
    """Whether torch's `Join` made it for a rank that has no more data, so that the others can go on."""
    called: str | None = None
    """The function of torch.distributed that made it: Gloo records a reduce_scatter_single as all_reduce. None where no frame
    shows it."""

    @property
    def name(self) -> str:
        """The operation, by the name that it has in a stack."""
        return self.called or self.op

    @property
    def site(self) -> Site | None:
        """The innermost line of the user's code, or of a framework if there is none."""
        return next((site for site in self.sites if not site.library), self.sites[0] if self.sites else None)


CLOCK_SECONDS = 2.0
"""A file's time of modification and the clock of a rank may differ by so much."""

Signature = tuple[str, tuple[str, ...], tuple[tuple[str, int, str], ...]]


@lru_cache(1 << 14)
def signature(call: Call) -> Signature:
    """What must be equal if two ranks made the same call: operation, amounts of data where they must agree, and lines."""
    lines = tuple((site.file, site.line, site.function) for site in call.sites)
    return plain_name(call.op), amounts(call), lines


def plain_name(op: str) -> str:
    """One name for the variants of a collective."""
    return call_names.FORMS.get(op, op.lstrip("_"))


@lru_cache(1 << 14)
def amounts(call: Call) -> tuple[str, ...]:
    """Dtype and number of elements of each tensor (`float32 x 512`), where these must agree; otherwise empty. Shapes may differ
    if the numbers of elements are equal."""
    return tuple(map(describe_amount, call.tensors)) if plain_name(call.op) in call_names.EQUAL_AMOUNTS else ()


def describe_amount(tensor: str) -> str:
    """Dtype and number of elements of a tensor; text that is no tensor as it is."""
    match = TENSOR.match(tensor)
    if match is None:
        return tensor
    return f"{match[1]} x {math.prod(natural(size) or 0 for size in match[2].split(', ') if size)}"


class Pending(NamedTuple):
    """A call that a rank has made and that is not complete."""

    number: int
    call: Call
    age_seconds: float | None = None
    timeout_seconds: float | None = None
    """After this time since the call was made, torch ends the process."""
    source: Source = "recorder"

    @property
    def has_timed_out(self) -> bool:
        """Whether its timeout has passed. Then torch is about to end the process."""
        return (
            self.timeout_seconds is not None
            and self.age_seconds is not None
            and self.age_seconds >= self.timeout_seconds - CLOCK_SECONDS
        )


class RankCalls(NamedTuple):
    """The calls of a rank in one group, as columns of equal length in the order of their numbers."""

    rank: int
    host: str
    source: Source = "recorder"
    made: int | None = None
    """The number of its last call; None if it is not known."""
    made_before: int | None = None
    """The same at the beginning of the window."""
    pending: tuple[Pending, ...] = ()
    """The oldest first."""
    last: Call | None = None
    """Its last call, complete or not."""
    last_age_seconds: float | None = None
    numbers: tuple[int, ...] = ()
    calls: tuple[Call, ...] = ()
    made_us: tuple[int, ...] = ()
    """By the wall clock of its host, in microseconds since 1970."""
    whole: bool = False
    """Whether the columns begin with its first call: nothing was overwritten."""
    generation: int = 1
    """How many groups of this name the rank has called: numbers of different ones can't be compared."""

    @property
    def moved(self) -> bool:
        """Whether it made a call during the window."""
        return self.made is not None and self.made_before is not None and self.made > self.made_before

    def made_at(self, number: int) -> int | None:
        """When it made its call of a number, by `made_us`; None if that is not in the record."""
        return dict(zip(self.numbers, self.made_us, strict=True)).get(number)

    def at(self, number: int) -> Call | None:
        """Its call of a number; None if that is not in the record."""
        for waiting in self.pending:
            if waiting.number == number:
                return waiting.call
        if not self.numbers or not self.numbers[0] <= number <= self.numbers[-1]:
            return None
        return self.by_number().get(number)

    def by_number(self) -> dict[int, Call]:
        """Its calls. Of several with one number (coalesced ones), the first."""
        return dict(zip(reversed(self.numbers), reversed(self.calls), strict=True))

    def count_like(self, call: Call) -> int | None:
        """How often it has made a call at the same lines, the pending one included; None if its record is not whole."""
        wanted = signature(call)
        return sum(signature(made) == wanted for made in self.calls) if self.whole and call.sites else None

    def count_within(self, path: str, first: int, last: int) -> tuple[int, int] | None:
        """(how often it has completed the call that it waits in since it last made one outside of some lines of a file, the
        number of that one or 0 if all were inside). None if it waits in none, or the record does not reach back so far."""
        if not self.pending:
            return None
        waiting, times = self.pending[0], 0
        wanted = signature(waiting.call)
        for number, call in zip(reversed(self.numbers), reversed(self.calls), strict=True):
            if number >= waiting.number:
                continue
            if not any(site.path == path and first <= site.line <= last for site in call.sites):
                return times, number
            times += signature(call) == wanted
        return (times, 0) if self.whole else None


def _are_one_call(call: Call, other: Call, of: RankCalls, of_other: RankCalls) -> bool:
    """Whether calls of two ranks are at the same lines, up to functions in which only one of the two makes calls: ranks of two
    roles come to a line on ways of their own, with other amounts in each step."""
    if plain_name(call.op) != plain_name(other.op):
        return False
    if signature(call) == signature(other):
        return True
    for ours, theirs in zip(call.sites, other.sites, strict=False):
        if (ours.file, ours.function) != (theirs.file, theirs.function):
            return not (_calls_in(of, theirs) or _calls_in(of_other, ours))
        if ours.line != theirs.line:
            return False
    return False


def _calls_in(calls: RankCalls, function: Site) -> bool:
    """Whether a rank has made a call in the function of a site."""
    return any(
        (site.file, site.function) == (function.file, function.function)
        for call in dict.fromkeys(calls.calls)
        for site in call.sites
    )


GroupKind = tuple[str | None, int]
"""The description of a group and the number of its members."""


class GroupCalls(NamedTuple):
    """A process group with the calls of its ranks."""

    name: str | None
    """None for the default group."""
    members: tuple[int, ...]
    """Its ranks, by torch's table of groups; without that, those whose record has the group."""
    ranks: dict[int, RankCalls]
    """Those of its members whose calls are known."""
    backend: str | None = None
    label: str | None = None
    """What people call it, by `label_group`."""
    description: str | None = None
    """That the program gave to it; several groups may have it."""

    @property
    def kind(self) -> GroupKind:
        """What the groups have in common that one line of a program makes, each with other members."""
        return self.description, len(self.members)


class Ledger(NamedTuple):
    """All groups of a run, the default group first."""

    groups: tuple[GroupCalls, ...] = ()

    def group(self, name: str | None, rank: int) -> GroupCalls | None:
        """The group of a name of which a rank is a member."""
        return next((group for group in self.groups if group.name == name and rank in group.members), None)

    def pending_number(self, name: str | None, rank: int) -> int | None:
        """The number of the first call of a group that a rank has made and not finished; None if no record shows one."""
        group = self.group(name, rank)
        calls = group.ranks.get(rank) if group is not None else None
        return calls.pending[0].number if calls is not None and calls.source == "recorder" and calls.pending else None

    def of_rank(self, rank: int) -> list[tuple[GroupCalls, RankCalls]]:
        """The groups in which a rank's calls are known."""
        return [(group, group.ranks[rank]) for group in self.groups if rank in group.ranks]

    def have_made_as_many(self, rank: int, waiting: int) -> bool:
        """Whether a rank has made as many calls as another one in each group in which that one waits and both are recorded."""
        groups = [
            (calls.made, group.ranks[rank].made)
            for group, calls in self.of_rank(waiting)
            if calls.pending and rank in group.ranks
        ]
        return bool(groups) and all(theirs is not None and theirs == ours for theirs, ours in groups)

    def has_made_before(self, rank: int, waiting: int) -> bool:
        """Whether a rank has made the call in which another one waits before, at the same lines, or at those of its own role."""
        return any(
            _are_one_call(call, calls.pending[0].call, group.ranks[rank], calls)
            for group, calls in self.of_rank(waiting)
            if calls.pending and calls.pending[0].call.sites and rank in group.ranks
            for call in dict.fromkeys(group.ranks[rank].calls)
        )

    def has_made_as_often(self, rank: int, waiting: int) -> bool:
        """Whether a rank has made the call in which another one waits as often as that one, by their whole records. Then it was
        not kept from it in the present round: the calls of the two have met others than their own since some earlier one."""
        for group, calls in self.of_rank(waiting):
            if calls.pending and rank in group.ranks:
                theirs = calls.count_like(calls.pending[0].call)
                ours = group.ranks[rank].count_like(calls.pending[0].call)
                return theirs is not None and ours is not None and 0 < theirs <= ours
        return False
