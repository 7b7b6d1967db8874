"""A small loop under the watchdog, and one thing that goes wrong on rank 1 in batch 20: `watched.py MODE ON_HANG`."""

import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

from hangdoc.watchdog import HangError, Watchdog

mode, on_hang = sys.argv[1:3]


def go_wrong(watchdog):
    if mode == "sleep" and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
        time.sleep(10_000)
    if mode == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if mode == "gil":
        ctypes.PyDLL(None).sleep(10_000)
    if mode == "pause":  # until the test says so
        while not os.path.exists("over"):
            time.sleep(0.05)
    if mode == "phase":
        with watchdog.phase("evaluate", timeout=300):
            time.sleep(30)


def main():
    me, restart = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
    # A file of its own for each start: in torchrun's store a restarted Gloo (torch 2.13) meets the addresses of the dead.
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting-{restart}", rank=me, world_size=2)
    if os.environ.get("HIDE_BEACON_OF") == str(me):
        os.environ["XDG_RUNTIME_DIR"] = os.getcwd()  # where its siblings do not look
    # During a phase nothing may be late but the rank in the phase, and on a busy machine a batch takes seconds.
    with Watchdog(timeout=20 if mode == "phase" else 3, on_hang=on_hang) as watchdog:
        print(f"pid of rank {me} is {os.getpid()}", flush=True)
        try:
            for n in watchdog.watch(range(60)):
                if me == 1 and n == 20:
                    go_wrong(watchdog)
                dist.all_reduce(torch.ones(4))
        except HangError:
            print(f"rank {me} was told of the hang", flush=True)
            os._exit(7)
    dist.barrier()
    print(f"rank {me} is through", flush=True)


main()
