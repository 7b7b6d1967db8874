"""The ranks share a SQLite cache. Rank 1 has computed a missing row and goes into an all-reduce with its transaction open. Rank 0
misses a row as well, and waits for the write lock."""

# /// hangbench
# ranks = 3
# verdict = ["hung"]
# states = ["waiting-lock", "in-collective", "in-collective"]
# operations = ["", "all_reduce", "all_reduce"]
# finding = "HD202"
# culprits = [1]
# victims = [0, 2]
# ///
import os
import sqlite3
import time

import torch
import torch.distributed as dist

BATCHES = {0: [["pear"], ["plum"]], 1: [["apple"], ["pear"]], 2: [[], []]}
COMMIT_EVERY = 64


def lengths(cache, words):
    """A row for each word, computed where the cache has none."""
    found = []
    for word in words:
        row = cache.execute("SELECT length FROM words WHERE word = ?", (word,)).fetchone()
        if row is None:
            row = (len(word),)
            cache.execute("INSERT OR IGNORE INTO words VALUES (?, ?)", (word, *row))
        found.append(row[0])
    return found


def main():
    dist.init_process_group("gloo")
    me = dist.get_rank()
    cache = sqlite3.connect("words.db", timeout=86400)
    if me == 0:
        cache.execute("CREATE TABLE IF NOT EXISTS words (word TEXT PRIMARY KEY, length INTEGER)")
        cache.commit()
    dist.barrier()
    print("ready", flush=True)
    while me == 0 and not os.path.exists("words.db-journal"):
        time.sleep(0.01)  # so that rank 1 is the first in each run
    for batch, words in enumerate(BATCHES[me]):
        loss = torch.tensor(float(sum(lengths(cache, words))))
        if batch % COMMIT_EVERY == COMMIT_EVERY - 1:
            cache.commit()
        dist.all_reduce(loss)


main()
