"""Rank 0 builds an index and puts its path into the store.
The name of the key contains the hash of a string, which
each process computes with its own seed, so rank 1 waits
for another key."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///

import datetime
import os

import torch
import torch.distributed as dist


def index_path(store, config):
    key = f"index/{hash(str(config))}"
    if dist.get_rank() == 0:
        store.set(key, "/data/index.bin")
        return "/data/index.bin"
    return store.get(key).decode()


def main():
    dist.init_process_group("gloo")
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), timeout=datetime.timedelta(hours=1))
    print("ready", flush=True)
    index_path(store, {"dim": 64})
    dist.all_reduce(torch.ones(1))


main()
