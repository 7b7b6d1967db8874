"""The CPU priority of what observes a run for hours."""

import os

NICENESS = 10
"""Measured with no idle core (`bench priority`): at 10, polls come each second, as at 0. At 19 they come every three to seven
seconds beside processes that never sleep, and with SCHED_IDLE never. The run loses no more than at 19, within the noise."""


def give_way() -> None:
    """Lower the priority of this process below that of the run."""
    os.nice(NICENESS)
