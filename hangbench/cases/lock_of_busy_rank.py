"""Rank 1 imports rows into a SQLite file in one transaction, for minutes. Rank 0 waits for the write lock, and rank 2 waits for
both in a barrier. The import will end."""

# /// hangbench
# ranks = 3
# verdict = ["waiting"]
# ///
import sqlite3
import time

import torch
import torch.distributed as dist

ROWS = 40_000


def insert(database, rows):
    for at in range(rows):
        vector = torch.randn(24, 24).matrix_exp().sum()
        database.execute("INSERT INTO vectors VALUES (?, ?)", (at, float(vector)))
        time.sleep(0.002)
    database.commit()


def main():
    dist.init_process_group("gloo")
    me = dist.get_rank()
    database = sqlite3.connect("vectors.db", timeout=86400)
    if me == 0:
        database.execute("CREATE TABLE IF NOT EXISTS vectors (row INTEGER, value REAL)")
        database.commit()
    dist.barrier()
    if me == 1:
        database.execute("INSERT INTO vectors VALUES (-1, 0)")
    dist.barrier()
    print("ready", flush=True)
    if me < 2:
        insert(database, ROWS if me == 1 else 10)
    dist.barrier()


main()
