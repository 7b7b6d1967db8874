"""What stores and RPC have recorded of the ranks that wait, in words: for which keys, and for which answers."""

from collections.abc import Iterable

from hangdoc.diagnosis import Evidence
from hangdoc.phrases import also
from hangdoc.reasoning.evidence import known
from hangdoc.reasoning.model.rank import Class, numbers_of
from hangdoc.reasoning.model.run import Run, StoreWait
from hangdoc.torch_facts import call_names

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
        wait, calls = run.ranks[number].wait, known.rpc_calls(run.ranks[number].process)
        if wait is not None and wait.operation.op in call_names.RPC_CALLS and calls:
            alike.setdefault(_unanswered(calls), []).append(number)
    shown = sorted(alike.items(), key=lambda one: (-len(one[1]), one[1]))[:_MOST_RANKS]
    return [Evidence(ranks[0], "rpc", f"{text}{also(ranks)}") for text, ranks in shown]


def _unanswered(calls: dict[str, int]) -> str:
    """`waits for answers to 3 calls to worker 'server' and 1 call to worker 'worker2'`."""
    most = sorted(calls.items(), key=lambda one: (-one[1], one[0]))
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
