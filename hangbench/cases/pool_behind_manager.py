"""Rank 1 tokenizes its files in a pool of processes and polls the queue of a manager for their results, as `datasets.map` does.
The workers were forked while a thread held a lock, so they never get it. The manager replies to each poll. That is no work."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///
import multiprocessing
import queue
import threading
from collections.abc import Iterator
from multiprocessing.pool import Pool

import torch
import torch.distributed as dist

CACHE = threading.Lock()


def tokenize(results: "queue.Queue[int]", part: int) -> None:
    with CACHE:
        results.put(part)


def tokenized(parts: int) -> Iterator[int]:
    with multiprocessing.Manager() as manager, Pool(parts) as pool:
        results = manager.Queue()
        pending = [pool.apply_async(tokenize, (results, part)) for part in range(parts)]
        while True:
            try:
                yield results.get(timeout=0.05)
            except queue.Empty:
                if all(one.ready() for one in pending):
                    return


def refresh(held: threading.Event) -> None:
    with CACHE:
        held.set()
        threading.Event().wait(2.0)


dist.init_process_group("gloo")
print("ready", flush=True)
for step in range(100):
    if dist.get_rank() == 1 and step == 3:
        held = threading.Event()
        threading.Thread(target=refresh, args=(held,)).start()
        held.wait()
        print(sum(tokenized(2)))
    dist.broadcast(torch.ones(5), src=1)
