"""The parts that each rank gives, put together to the ledger of a run."""

from collections.abc import Iterable
from typing import NamedTuple

from hangdoc.reasoning.model.ledger import GroupCalls, Ledger, RankCalls


class Part(NamedTuple):
    """The calls of one rank in one group, before ranks are put together."""

    name: str | None
    members: tuple[int, ...]
    """Empty if unknown."""
    backend: str | None
    calls: RankCalls


def put_together(parts: Iterable[Part]) -> Ledger:
    """A ledger from the parts of all ranks. Groups are the same if their names are, and their members if these are known: torch
    gives a name to each group of a run once, but not in every version to groups that only their members make."""
    listed: dict[tuple[str | None, tuple[int, ...]], list[Part]] = {}
    nameless: list[Part] = []
    for part in parts:
        if part.members:
            listed.setdefault((part.name, part.members), []).append(part)
        else:
            nameless.append(part)
    for part in nameless:  # they join the group of their name that lists them, or the others without members
        keys = [key for key in listed if key[0] == part.name and (not key[1] or part.calls.rank in key[1])]
        listed.setdefault(keys[0] if keys else (part.name, ()), []).append(part)
    groups = [_group(name, members, same) for (name, members), same in listed.items()]
    return Ledger(tuple(sorted(groups, key=lambda group: (group.name is not None, group.name or "", group.members))))


def _group(name: str | None, members: tuple[int, ...], parts: list[Part]) -> GroupCalls:
    ranks: dict[int, RankCalls] = {}
    for part in parts:
        before = ranks.get(part.calls.rank)
        ranks[part.calls.rank] = part.calls if before is None else _with_stack(before, part.calls)
    newest = max(calls.generation for calls in ranks.values())
    # Of a rank that has not called the group since it was made again, only calls of the earlier one are known.
    ranks = {rank: calls for rank, calls in ranks.items() if calls.generation == newest or calls.source == "inferred"}
    backend = next((part.backend for part in parts if part.backend is not None), None)
    return GroupCalls(name, members or tuple(sorted(ranks)), dict(sorted(ranks.items())), backend)


def _with_stack(first: RankCalls, second: RankCalls) -> RankCalls:
    """The record of a rank with the call in which its stack waits, if the record has no call that is not complete: torch does not
    record `monitored_barrier`, and a call is recorded only when it has been handed over."""
    if first.source == second.source == "recorder":
        return max(first, second, key=lambda calls: calls.generation)
    record, stack = (first, second) if first.source == "recorder" else (second, first)
    if record.pending or not stack.pending or record.source == "inferred":
        return record
    return record._replace(pending=(stack.pending[0]._replace(number=(record.made or 0) + 1),))
