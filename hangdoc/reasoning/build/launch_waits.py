"""Ranks that wait for a card in a call that no record has: NCCL's counts show which ranks have not launched it."""

from msgspec import structs

from hangdoc.diagnosis import Operation
from hangdoc.phrases import do
from hangdoc.reasoning.ledger.launches import Launches, find_uneven
from hangdoc.reasoning.model.rank import Rank, Wait
from hangdoc.reasoning.ranks.on_card import may_wait_for_card
from hangdoc.torch_facts import call_names


def waiting_for_launches(ranks: dict[int, Rank]) -> dict[int, Rank]:
    """The ranks, of which those wait that are busy at one line, as in the driver of a card, and have launched more in a
    communicator than ranks that wait for no other one. None of these has launched anything in the window."""
    found = dict(ranks)
    uneven = find_uneven({number: rank.process for number, rank in ranks.items() if rank.process is not None})
    for launches in uneven:
        if any(ranks[number].waits for number in launches.behind):
            continue  # it is not known for what these wait, so it may be for the others
        for number in launches.launched.keys() - set(launches.behind):
            rank = ranks[number]
            if (
                (not rank.waits or rank.spins)
                and rank.process is not None
                and may_wait_for_card(rank.process, rank.thread)
            ):
                found[number] = _waiting(rank, launches)
    return found


def _waiting(rank: Rank, launches: Launches) -> Rank:
    operation = Operation(op="wait", origin=call_names.GPU_WAIT, backend="nccl")
    number, members = launches.launched[rank.rank], tuple(sorted(launches.launched))
    wait = Wait("collective", operation, members, sure=False, number=number)
    why = f"its card waits for what {do(launches.behind, 'has', 'have')} not launched"
    return structs.replace(
        rank, label="blocked", state="in-collective", why=why, wait=wait, moving=False, work=None, hold=None
    )
