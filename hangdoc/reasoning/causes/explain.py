"""Step 6: what explains a blockage: of the causes for which there is evidence, that with the strongest."""

from collections.abc import Callable
from enum import IntEnum

from hangdoc.reasoning.causes import disagreements, hardware, launches, loops, network, rounds, signals
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause
from hangdoc.reasoning.model.holds import Stopped, WaitsForInput
from hangdoc.reasoning.model.run import Run

Provider = Callable[[Run, Blockage], Cause | None]
"""Looks for the evidence of one cause; None if there is none, or if the cause cannot block ranks in this way."""


class Strength(IntEnum):
    """How directly evidence shows that a cause keeps ranks waiting. Causes of the same strength are each about another thing that
    is broken, or about another kind of blockage."""

    POSSIBLE = 1
    """It would explain the blockage, and nothing shows another reason: data that may have ended, or been split unevenly."""
    LIKELY = 2
    """The two sides visibly had different amounts to do, and nothing shows that this is what parted them."""
    SETTING = 3
    """A setting differs that is known to decide what ranks call, or whether they meet."""
    PARTED = 4
    """The two sides have parted as the cause predicts: those with less to do left, or an option separates them."""
    RECORDED = 5
    """The record of calls shows the call in which they parted."""
    NO_REPLY = 6
    """Packets get no reply. What drops them was not observed."""
    FAULT = 7
    """What is broken was observed itself: a port, an interface, a card, a loader without data, a dead launcher."""
    CONTRADICTION = 8
    """What each side was told excludes that they meet, whatever else is broken: other settings, or an address without a way."""


_ANYWHERE: dict[Provider, Strength] = {
    hardware.find_card_fault: Strength.FAULT,
    loops.find_no_data: Strength.FAULT,
    signals.find_signal_handler: Strength.FAULT,
    launches.find_orphans: Strength.FAULT,
    network.find_dead_link: Strength.NO_REPLY,
    disagreements.find_divergence: Strength.RECORDED,
    rounds.find_calls_per_round: Strength.RECORDED,
    loops.find_less_data: Strength.PARTED,
    loops.find_counted_data: Strength.PARTED,
    loops.find_ends: Strength.PARTED,
    disagreements.find_setting: Strength.SETTING,
    loops.find_beginnings: Strength.LIKELY,
    loops.find_end_of_data: Strength.POSSIBLE,
}
_IN_A_RENDEZVOUS: dict[Provider, Strength] = {
    launches.find_different_launches: Strength.CONTRADICTION,
    network.find_unreachable_address: Strength.CONTRADICTION,
    launches.find_taken_port: Strength.FAULT,
    launches.find_unusable_interface: Strength.FAULT,
    network.find_no_answer: Strength.NO_REPLY,
    launches.find_loopback_name: Strength.PARTED,
    disagreements.find_environment: Strength.SETTING,
}


def explain(run: Run, blockage: Blockage) -> Cause | None:
    """The cause of a blockage; None if its kind is all that is known."""
    if isinstance(blockage.kind, Stopped | WaitsForInput):
        return None
    providers = (_IN_A_RENDEZVOUS if _in_a_rendezvous(blockage) else {}) | _ANYWHERE
    for find in sorted(providers, key=providers.__getitem__, reverse=True):
        if (cause := find(run, blockage)) is not None:
            return cause
    return None


def _in_a_rendezvous(blockage: Blockage) -> bool:
    """Whether ranks, or the launchers of ranks, wait in a rendezvous."""
    classes = (*blockage.awaited, *blockage.waiting)
    kinds = {each.first.wait.kind for each in classes if each.first.wait is not None}
    return not classes or not kinds.isdisjoint(("rendezvous", "store"))
