"""What the record of a store says of the ranks that wait for its keys, in words."""

from collections.abc import Iterable

from hangdoc.diagnosis import Evidence
from hangdoc.phrases import also
from hangdoc.reasoning.model import Class, Run, StoreWait, numbers_of
from hangdoc.reasoning.ranks import torch_names

PROBE = "store"
_MOST_KEYS, _MOST_ALIKE = 3, 3


def awaited_keys(run: Run, classes: Iterable[Class]) -> list[Evidence]:
    """The keys that ranks of these classes wait for: the first few, and how many more there are."""
    among = set(numbers_of(classes))
    waits = [(wait, ranks) for wait in run.store_waits if (ranks := [rank for rank in wait.ranks if rank in among])]
    lines = [Evidence(ranks[0], PROBE, f"{_missing(wait)}{also(ranks)}") for wait, ranks in waits[:_MOST_KEYS]]
    more = len(waits) - _MOST_KEYS
    return [*lines, Evidence(None, PROBE, f"they wait for {more} more keys")] if more > 0 else lines


def ranks_not_there(run: Run) -> set[int]:
    """The ranks that certainly have not reached the rendezvous: others wait for the addresses that they would publish."""
    return {rank for wait in run.store_waits if (rank := torch_names.publisher(wait.key)) is not None}


def _missing(wait: StoreWait) -> str:
    rank = torch_names.publisher(wait.key)
    if rank is not None:
        return f"waits for the address of rank {rank}, which is not in the store (key {_name(wait.key)})"
    return f"waits for the key {_name(wait.key)}, which is not in the store{_beside(wait)}"


def _beside(wait: StoreWait) -> str:
    """The keys that are there, if few enough to be compared: another spelling may be among them."""
    names = [_name(key) for key in dict.fromkeys(wait.alike) if key != wait.key]
    if not names or wait.alike_count > _MOST_ALIKE:
        return ""
    return f"; beside it {'is' if len(names) == 1 else 'are'} {', '.join(names)}"


def _name(key: str) -> str:
    """The key as a program names it: a TCPStore puts `/` in front."""
    return key.removeprefix("/")
