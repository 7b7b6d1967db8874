"""The script starts its workers with variables of its own, one line of a list each. The list has no newline at its end, so the
last worker is counted and never started.
"""

# /// hangbench
# verdict = ["hung"]
# launch = "itself"
# ranks = 3
# ready = 2
# states = ["in-rendezvous", "in-rendezvous", ""]
# operations = ["init_process_group", "init_process_group", ""]
# finding = "HD401"
# culprits = [2]
# victims = [0, 1]
# ///
import os
import subprocess
import sys

PLACEMENT = "south\nnorth\neast"


def work():
    import torch.distributed as dist

    worker, workers = int(os.environ["WORKER_ID"]), int(os.environ["WORKERS"])
    print("ready", flush=True)
    dist.init_process_group("gloo", init_method=os.environ["ENDPOINT"], rank=worker, world_size=workers)
    dist.barrier()


def main(port):
    os.environ["WORKERS"] = str(len(PLACEMENT.split("\n")))
    os.environ["ENDPOINT"] = f"tcp://127.0.0.1:{port}"
    started = []
    for line in PLACEMENT.splitlines(keepends=True):
        if line.endswith("\n"):
            variables = {**os.environ, "WORKER_ID": str(len(started))}
            started.append(subprocess.Popen([sys.executable, __file__], env=variables))
    for one in started:
        one.wait()


if len(sys.argv) > 1:
    main(int(sys.argv[1]))
else:
    work()
