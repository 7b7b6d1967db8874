"""Sentences about the records of ranks: how far each has come in a group, when torch ends the run, what stores and RPC
have recorded, and what the cards do.
"""

from collections.abc import Collection, Iterable, Iterator

from hangdoc.diagnosis import Evidence
from hangdoc.phrases import also, duration, least_minutes, milliseconds, timeout
from hangdoc.phrases import ranks as ranks_text
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.ledger.compare import (
    Behind,
    Differs,
    Side,
    SizesDiffer,
    Unfinished,
    compare,
    find_earlier_difference,
    next_timeout,
    unfinished_calls,
)
from hangdoc.reasoning.ledger.history import may_be_shifted
from hangdoc.reasoning.ledger.lags import Lag, Pace
from hangdoc.reasoning.ledger.nccl_counts import find_uneven, find_uneven_by_ras, ras_groups
from hangdoc.reasoning.model.ledger import Call, GroupCalls, Pending, RankCalls, Site
from hangdoc.reasoning.model.rank import Class, numbers_of
from hangdoc.reasoning.model.run import Run, StoreWait
from hangdoc.reasoning.ranks.card import Use, card_of, use_of
from hangdoc.snapshot import Card
from hangdoc.torch_facts import call_names

PROBE = "recorder"
PROBE_OF_NCCL = "nccl"
_SHOWN = 8
_SOON_SECONDS = 300.0
"""Before torch ends a run, a person should save the evidence."""


def group_name(group: GroupCalls) -> str:
    """`the default group`, `group rows`."""
    return "the default group" if group.name is None else f"group {group.label or group.name}"


def name_call(call: Call, *, tensors: bool = False, beside: Iterable[Call] = ()) -> str:
    """`an all_reduce of float32[8, 8] (train.py:14)`; beside another call of the same line also the line at which the
    ways to them part: `an all_gather (train.py:14, through trainer.py:90)`."""
    article = "an" if call.name[:1] in "aeiou" else "a"
    data = f" of {call.tensors[0]}" if tensors and len(call.tensors) == 1 else ""
    return f"{article} {call.name}{data}{at_place(call, beside)}"


def place_of(call: Call) -> str:
    """`train.py:14`; `an unknown line` without a traceback."""
    return f"{call.site.file}:{call.site.line}" if call.site is not None else "an unknown line"


def at_place(call: Call, beside: Iterable[Call] = ()) -> str:
    """` (train.py:14)`; beside another call of the same line ` (train.py:14, through trainer.py:90)`; empty without a
    traceback."""
    if call.site is None:
        return ""
    parting = _find_parting_site(call, (other for other in beside if place_of(other) == place_of(call)))
    return f" ({place_of(call)}{f', through {parting.file}:{parting.line}' if parting is not None else ''})"


def _find_parting_site(call: Call, others: Iterable[Call]) -> Site | None:
    """The line at which the way to a call parts from those to some others: for each the outermost that differs, and of these the
    innermost. None for none."""
    outside = call.sites[::-1]
    parted = []
    for other in others:
        pairs = enumerate(zip(outside, reversed(other.sites), strict=False))
        parted += [at for at, (mine, theirs) in pairs if (mine.file, mine.line) != (theirs.file, theirs.line)][:1]
    return outside[max(parted)] if parted else None


def stuck_group(run: Run, ranks: Collection[int]) -> GroupCalls | None:
    """The group in which most of some ranks wait by their records; None if no record shows that."""
    counts = [
        (sum(_waits_in(run, rank, group, calls) for rank, calls in group.ranks.items() if rank in ranks), group)
        for group in run.ledger.groups
    ]
    most = max((count for count, _ in counts), default=0)
    best = [group for count, group in counts if count == most > 0]
    return next((group for group in best if isinstance(compare(group), Behind)), best[0] if best else None)


def _waits_in(run: Run, rank: int, group: GroupCalls, calls: RankCalls) -> bool:
    """Whether a rank waits in a call of a group, by its record. A card has calls of other groups that come after it."""
    wait = run.ranks[rank].wait if rank in run.ranks else None
    if wait is not None and wait.number is not None and wait.operation.group != group.name:
        return False
    return any(waiting.source == "recorder" for waiting in calls.pending)


def evidence(run: Run, ranks: Collection[int], group: GroupCalls | None = None) -> list[Evidence]:
    """How far each rank has come in a group, or else in the one in which most of `ranks` wait, and when torch ends the run. Empty
    without a record."""
    group = group or stuck_group(run, ranks)
    if group is None:
        waits = [run.ranks[rank].wait for rank in ranks if rank in run.ranks]
        ending = _timeout(run) if any(wait is not None and wait.kind == "p2p" for wait in waits) else []
        return [*launched(run, ranks), *ending]
    comparison = compare(group)
    if isinstance(comparison, Behind):
        lines = [*_behind(group, comparison), *_sides(group, comparison.number, comparison.waiting)]
    elif isinstance(comparison, Differs | SizesDiffer):
        lines = list(_sides(group, comparison.number, comparison.sides, tensors=True))
    elif isinstance(comparison, Unfinished):
        lines = [_unfinished(group, comparison)]
    else:
        return []
    return [*lines[:_SHOWN], *_timeout(run)]


def launched(run: Run, ranks: Collection[int]) -> list[Evidence]:
    """What NCCL has launched for each rank of a communicator in which some of `ranks` have launched more than others."""
    processes = {number: rank.process for number, rank in run.ranks.items() if rank.process is not None}
    by_place = {(rank.host, rank.pid): number for number, rank in run.ranks.items() if rank.pid is not None}
    uneven = find_uneven(processes) or find_uneven_by_ras(ras_groups(run.hosts), by_place)
    lines = []
    for launches in uneven:
        if not set(ranks) & launches.launched.keys():
            continue
        what = "kernels, replays of CUDA graphs included" if launches.graphs else "collectives"
        by_count: dict[int, list[int]] = {}
        for rank, number in sorted(launches.launched.items()):
            by_count.setdefault(number, []).append(rank)
        where = f"in the communicator of {ranks_text(tuple(sorted(launches.launched)))}"
        for number, same in sorted(by_count.items()):
            lines.append(Evidence(same[0], PROBE_OF_NCCL, f"has launched {number} {what}, {where}{also(same)}"))
        for (host, pid), number in sorted(launches.unobserved.items())[:_SHOWN]:
            text = f"pid {pid} on {host} has launched {number} {what} there"
            lines.append(Evidence(None, PROBE_OF_NCCL, text))
    return lines[:_SHOWN]


def doubt(run: Run, ranks: Collection[int]) -> Evidence | None:
    """Why the lines at which some ranks wait may not show what they skipped; None if their records leave no such doubt."""
    group = stuck_group(run, ranks)
    if group is None or not may_be_shifted(group):
        return None
    text = (
        f"the ranks make the same calls of {group_name(group)}, but not at the same numbers, in the whole record: one may have "
        "skipped or added a call before it begins"
    )
    return Evidence(None, PROBE, text)


def describe_earlier_difference(run: Run, ranks: Collection[int]) -> Evidence | None:
    """Where the calls of the group in which some ranks wait first differed, if that was in a call that is complete; None if no
    record shows that."""
    group = stuck_group(run, ranks)
    comparison = compare(group) if group is not None else None
    if group is None or not isinstance(comparison, Differs | SizesDiffer):
        return None
    earlier = find_earlier_difference(group, comparison)
    if earlier is None:
        return None
    number, calls = earlier
    named = {rank: name_call(call, beside=calls.values()) for rank, call in sorted(calls.items())}
    made = "; ".join(f"{call} on rank {rank}" for rank, call in named.items())
    return Evidence(None, PROBE, f"the calls of {group_name(group)} first differ in number {number}: {made}")


def _behind(group: GroupCalls, comparison: Behind) -> Iterator[Evidence]:
    """One line for all ranks behind that made as many calls."""
    by_made: dict[int | None, list[RankCalls]] = {}
    for rank in comparison.ranks:
        by_made.setdefault(group.ranks[rank].made, []).append(group.ranks[rank])
    for made, ranks in by_made.items():
        last = ranks[0].last
        age = ranks[0].last_age_seconds
        when = f" {duration(age)} ago" if age is not None else ""
        latest = f", the last one {name_call(last)}{when}" if last is not None and made else ""
        absent = f", and not number {comparison.number}" if made else ""
        text = f"has made {count(made or 0)} in {group_name(group)}{latest}{absent}"
        numbers = [calls.rank for calls in ranks]
        yield Evidence(numbers[0], PROBE, text + also(numbers))


def count(number: int) -> str:
    """`26 calls`, `no call`."""
    return f"{number} call{'s' * (number != 1)}" if number else "no call"


def _sides(group: GroupCalls, number: int, sides: tuple[Side, ...], *, tensors: bool = False) -> Iterator[Evidence]:
    """One line for all ranks that are in one call, and one for those that have come out of it; those that most ranks are not in
    come first."""
    for side in sorted(sides, key=lambda side: (len(side.ranks), side.ranks)):
        what = name_call(side.call, tensors=tensors)
        if side.inferred:
            made = group.ranks[side.ranks[0]].made
            text = f"has made {count(made or 0)} in {group_name(group)} and is in {what}, inferred from its stack"
            yield Evidence(side.ranks[0], "stacks", text + also(side.ranks))
            continue
        inside = [rank for rank in side.ranks if any(p.number == number for p in group.ranks[rank].pending)]
        if inside:
            text = f"has made {count(number - 1)} in {group_name(group)} and is in number {number}, {what}"
            yield Evidence(inside[0], PROBE, text + also(inside))
        by_waiting: dict[Pending | None, list[int]] = {}
        for rank in sorted(set(side.ranks) - set(inside)):
            by_waiting.setdefault(next(iter(group.ranks[rank].pending), None), []).append(rank)
        for waiting, ranks in by_waiting.items():
            now = f", and is in number {waiting.number}, {name_call(waiting.call)}" if waiting is not None else ""
            text = f"has completed number {number} of {group_name(group)}, {what}{now}"
            yield Evidence(ranks[0], PROBE, text + also(ranks))


def _unfinished(group: GroupCalls, comparison: Unfinished) -> Evidence:
    made = [
        number for number, calls in group.ranks.items() if calls.made is not None and calls.made >= comparison.number
    ]
    everyone = len(made) == len(group.members)
    who = "all ranks have" if everyone else f"{ranks_text(made)} {'have' if len(made) > 1 else 'has'}"
    text = f"{who} made call {comparison.number} of {group_name(group)}, {name_call(comparison.call, tensors=True)}"
    return Evidence(None, PROBE, f"{text}, and it has not finished{_on(group, comparison)}")


def _on(group: GroupCalls, comparison: Unfinished) -> str:
    recorded = sum(calls.made is not None for calls in group.ranks.values())
    if recorded == 1:
        return ""
    some = len(comparison.waiting) < recorded
    return f" on {ranks_text(comparison.waiting)}" if some else " on any of them"


def _timeout(run: Run) -> list[Evidence]:
    if run.after_the_fact:
        return _passed_timeout(run)
    limit = next_timeout(unfinished_calls(run))
    if limit is None:
        return []
    text = f"torch ends this run in {least_minutes(limit.seconds)} at the earliest (timeout {timeout(limit.timeout_seconds)})"
    if limit.seconds < _SOON_SECONDS:
        text += "; its evidence ends with it, so save it now (hangdoc snapshot -o FILE)"
    return [Evidence(None, PROBE, text)]


def _passed_timeout(run: Run) -> list[Evidence]:
    """Whose timeout had passed when torch wrote its dump."""
    late = {
        calls.rank: waiting.timeout_seconds
        for group in run.ledger.groups
        for calls in group.ranks.values()
        for waiting in calls.pending[:1]
        if waiting.has_timed_out and waiting.timeout_seconds
    }
    if not late:
        return []
    text = f"torch wrote its dump after the timeout of this call ({timeout(min(late.values()))})"
    return [Evidence(min(late), PROBE, text + also(late))]


# --- pace ------------------------------------------------------------------------------------------------------------


def lateness(lag: Lag) -> str:
    """`52 ms behind the median of the others (p90 57 ms)`, `earlier than the median of the others`."""
    if lag.median_seconds < 0:  # of two others, the median is between them, where no rank is
        return "earlier than the median of the others"
    late, most = milliseconds(lag.median_seconds), milliseconds(lag.p90_seconds)
    return f"{late} behind the median of the others (p90 {most})"


def clocks(pace: Pace) -> list[Evidence]:
    """What was assumed about the clocks of several hosts."""
    return [Evidence(None, PROBE, pace.clocks)] if pace.clocks is not None else []


# --- stores and RPC ---------------------------------------------------------------------------------------------------


_MOST_KEYS, _MOST_ALIKE, _MOST_RANKS = 3, 3, 4


def recorded_waits(run: Run, classes: Iterable[Class]) -> list[Evidence]:
    """The keys and the answers that ranks of these classes wait for."""
    classes = tuple(classes)
    return [*awaited_keys(run, classes), *_open_calls(run, classes)]


def awaited_keys(run: Run, classes: Iterable[Class]) -> list[Evidence]:
    """The keys that ranks of these classes wait for: the first few, and how many more there are."""
    among = set(numbers_of(classes))
    waits = [(wait, ranks) for wait in run.store_waits if (ranks := [rank for rank in wait.ranks if rank in among])]
    lines = [Evidence(ranks[0], "store", f"{_missing(wait)}{also(ranks)}") for wait, ranks in waits[:_MOST_KEYS]]
    more = len(waits) - _MOST_KEYS
    return [*lines, Evidence(None, "store", f"they wait for {more} more keys")] if more > 0 else lines


def _open_calls(run: Run, classes: Iterable[Class]) -> list[Evidence]:
    """The calls of torch.distributed.rpc that are not answered, of the first few ranks that wait in one."""
    alike: dict[str, list[int]] = {}
    for number in numbers_of(classes):
        wait, calls = run.ranks[number].wait, observed.rpc_calls(run.ranks[number].process)
        if wait is not None and wait.operation.op in call_names.RPC_CALLS and calls:
            alike.setdefault(_unanswered(calls), []).append(number)
    shown = sorted(alike.items(), key=lambda item: (-len(item[1]), item[1]))[:_MOST_RANKS]
    return [Evidence(ranks[0], "rpc", f"{text}{also(ranks)}") for text, ranks in shown]


def _unanswered(calls: dict[str, int]) -> str:
    """`waits for answers to 3 calls to worker 'server' and 1 call to worker 'worker2'`."""
    most = sorted(calls.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{count} call{'s' * (count > 1)} to worker '{worker}'" for worker, count in most[:_MOST_RANKS]]
    more = len(most) - len(named)
    return f"has no answer to {' and '.join(named)}{f' and to {more} more workers' if more else ''}"


def ranks_not_there(run: Run) -> set[int]:
    """The ranks that certainly have not reached the rendezvous: others wait for the addresses that they would publish."""
    return {rank for wait in run.store_waits if (rank := call_names.publishing_rank(wait.key)) is not None}


def _missing(wait: StoreWait) -> str:
    rank = call_names.publishing_rank(wait.key)
    if rank is not None:
        return f"waits for the address of rank {rank}, which is not in the store (key {_name(wait.key)})"
    return f"waits for the key {call_names.key_as_written(wait.key)}, which is not in the store{_beside(wait)}"


def _beside(wait: StoreWait) -> str:
    """The keys that are there, if few enough to be compared: another spelling may be among them."""
    names = [call_names.key_as_written(key) for key in dict.fromkeys(wait.alike) if key != wait.key]
    if not names or wait.alike_count > _MOST_ALIKE:
        return ""
    return f"; beside it {'is' if len(names) == 1 else 'are'} {', '.join(names)}"


def _name(key: str) -> str:
    """The key as a program names it: a TCPStore puts `/` in front."""
    return key.removeprefix("/")


# --- cards ------------------------------------------------------------------------------------------------------------


PROBE_OF_CARD = "card"
_USES: dict[Use, str] = {
    "waits": "it waits in a kernel, or does very little work",
    "idle": "no kernel runs on it",
}


def card_evidence(run: Run, ranks: Iterable[int]) -> list[Evidence]:
    """What the cards of some ranks of a blockage do, where that shows that they wait or have nothing to do. Equal ones share a
    line. Without differing cards nothing is shown of idle ones: on a host whose ranks wait on the CPU, all are."""
    cards: dict[Use, list[tuple[int, Card]]] = {}
    for number in sorted(set(ranks)):
        rank = run.ranks.get(number)
        host = run.host.get(rank.host) if rank is not None else None
        card = card_of(host, rank) if rank is not None and host is not None else None
        if host is not None and card is not None and (use := use_of(host, card)) is not None:
            cards.setdefault(use, []).append((number, card))
    if "waits" not in cards:
        return []
    lines = []
    for use, means in _USES.items():
        for number, card in cards.get(use, ())[:1]:
            others = tuple(rank for rank, _ in cards[use])
            lines.append(Evidence(number, PROBE_OF_CARD, f"{meters(card)}: {means}{also(others)}"))
    return lines


def meters(card: Card) -> str:
    """`card 0 at 100%, memory 0%, 131 of 700 W`."""
    parts = [f"card {card.index}" + (f" at {card.utilisation}%" if card.utilisation is not None else "")]
    if card.memory_activity is not None:
        parts.append(f"memory {card.memory_activity}%")
    if card.power_watts is not None:
        limit = f" of {card.power_limit_watts:.0f}" if card.power_limit_watts else ""
        parts.append(f"{card.power_watts:.0f}{limit} W")
    return ", ".join(parts)
