"""Two ranks of which the second stays away from the 21st all-reduce: for ever, or for a phase that it announces. With
`stop` it is the first, in which the run's store lives, and stops."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

from hangdoc.watchdog import Watchdog

dist.init_process_group("gloo")
me = dist.get_rank()
stop = sys.argv[1:] == ["stop"]
phase = sys.argv[1:] == ["phase"]
# During a phase nothing may be late but the rank in the phase, and on a busy machine a batch takes seconds.
with Watchdog(timeout=(20 if phase else 3) if me == 0 or stop else 600) as watchdog:
    for n in watchdog.watch(range(40)):
        if n == 20 and stop and me == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        if n == 20 and me == 1 and not stop:
            if phase:
                with watchdog.phase("evaluate", timeout=300):
                    time.sleep(30)
            else:
                time.sleep(10_000)
        dist.all_reduce(torch.ones(4))
print(f"rank {me} is through", flush=True)
os._exit(0)
