"""Ranks of which the last one never comes: `stores.py MODE`. The others wait for it in `init_process_group` (MODE is `init`), in
`new_group` (`group`), or for keys of their store (`keys`)."""

import datetime
import os
import sys
import time

import torch.distributed as dist


def last_one_sleeps(rank: int, world: int) -> None:
    print("ready", flush=True)
    if rank == world - 1:
        time.sleep(10**6)


def main() -> None:
    mode = sys.argv[1]
    if mode == "init":
        last_one_sleeps(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()
    if mode == "keys" and rank == world - 1:
        store.set("result/done", "a value that nobody may see")
    last_one_sleeps(rank, world)
    if mode == "group":
        dist.new_group(range(world))
    store.wait([f"result/{rank}", "result/last"], datetime.timedelta(hours=1))


main()
