"""Ranks whose calls torch's flight recorder has: `recorded.py all FOLDER` ends frozen, each rank with a dump of its own record in
the folder; `recorded.py hammer [PAUSE]` calls without end; `recorded.py some N` makes N calls and waits,
with another argument `hold the GIL` in a call that holds it."""

import ctypes
import json
import os
import pickle
import sys
import threading
import time

import torch
import torch.distributed as dist


def raw_dump() -> bytes:
    return torch._C._distributed_c10d._dump_fr_trace(True, True, False)


def dump() -> dict:
    return pickle.loads(raw_dump())  # noqa: S301


def write_dump(folder: str, rank: int, pending: int) -> None:
    """As soon as the record has this many calls that wait."""
    while sum(not entry["retired"] for entry in dump()["entries"]) != pending:
        time.sleep(0.05)
    with open(f"{folder}/comm_lib_trace_rank_{rank}", "wb") as file:  # as NCCL's watchdog does at a timeout
        file.write(raw_dump())
    whole = dump()
    with open(f"{folder}/{rank}.entries.part", "w") as file:
        json.dump({"pid": os.getpid(), "entries": whole["entries"]}, file)
    os.rename(f"{folder}/{rank}.entries.part", f"{folder}/{rank}.entries")


def every_call(rank: int, fill: int) -> None:
    pair = dist.new_group([0, 1], group_desc="a second group with a long name")
    one = torch.ones(7, 3)
    for _ in range(fill):
        dist.all_reduce(one)
    dist.broadcast(torch.ones(11), 0, group=pair)
    dist.all_gather([torch.ones(4, 2) for _ in range(2)], torch.ones(4, 2))
    dist.all_gather_into_tensor(torch.ones(12, 1, 1, 2, 2), torch.ones(6, 1, 1, 2, 2))
    dist.reduce_scatter_tensor(torch.ones(4), torch.ones(8))
    dist.all_to_all_single(torch.ones(4), torch.ones(4))
    dist.barrier()
    dist.broadcast_object_list([{"a": 1}], 0)
    dist.all_gather_object([None, None], 3)
    dist.reduce(torch.ones(5, dtype=torch.bfloat16), 0)
    dist.gather(torch.ones(2), [torch.ones(2)] * 2 if rank == 0 else None, 0)
    dist.scatter(torch.ones(2), [torch.ones(2)] * 2 if rank == 0 else None, 0)
    dist.all_reduce_coalesced([torch.ones(2), torch.ones(3), *(torch.ones(1, 2, 3) for _ in range(5))])


def alternate() -> None:
    dist.all_reduce(torch.ones(8, 4))
    dist.broadcast(torch.ones(3, dtype=torch.int64), 0)
    dist.all_gather_into_tensor(torch.ones(2, 2, 2, 2, 1, 1, 1, 1, 1), torch.ones(2, 2, 2, 2, 1, 1, 1, 1, 1))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if sys.argv[1] == "all":
        every_call(rank, int(sys.argv[3]))
        waits = threading.Thread(target=write_dump, args=(sys.argv[2], rank, 1 - rank), daemon=True)
        waits.start()
        if rank == 0:
            dist.all_reduce(torch.ones(13, 5))
        waits.join()
    elif sys.argv[1] == "some":
        for _ in range(int(sys.argv[2])):
            alternate()
    else:
        alternate()
    print("ready", os.getpid(), flush=True)
    if sys.argv[-1] == "hold the GIL":
        ctypes.PyDLL(None).sleep(3600)
    while sys.argv[1] == "hammer":
        alternate()
        if len(sys.argv) > 2:
            time.sleep(float(sys.argv[2]))
    while True:
        time.sleep(3600)


main()
