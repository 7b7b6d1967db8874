"""Measures steps of the included trainer with and without a watchdog, in alternating blocks: `torchrun bench/steps.py`.

Rank 0 prints a line per pair of blocks with seconds per step, first with and then without a watchdog.
"""

import os
import sys
import time

from hangdoc.watchdog import Watchdog
from hangdoc_trainer.base_train import Trainer, arguments
from hangdoc_trainer.data import loader

PAIRS, STEPS = 40, 60


def main() -> None:
    """Run all blocks."""
    trainer = Trainer(arguments(sys.argv[1:]))
    batches = loader(trainer.shards, 0)

    def block(watchdog: Watchdog | None) -> float:
        began = time.perf_counter()
        for n in range(STEPS):
            if watchdog is not None:
                watchdog.beat(n, batches=n)
            trainer.step(list(trainer.take(batches)))
        return (time.perf_counter() - began) / STEPS

    block(None)
    for pair in range(PAIRS):
        seconds = {}
        for watched in (True, False) if pair % 2 else (False, True):
            if watched:
                with Watchdog(timeout=300) as watchdog:
                    watchdog.follow(trainer.model, trainer.optimizer)
                    seconds[True] = block(watchdog)
            else:
                seconds[False] = block(None)
        if os.environ["RANK"] == "0":
            print("pair", seconds[True], seconds[False], flush=True)


main()
