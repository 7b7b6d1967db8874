"""Both nodes have the same number of shards, but different ones, under
the same option. Nothing hangs; the ranks silently train on different
data."""

# /// hangbench
# verdict = ["healthy", "waiting"]
# finding = "HD104"
# severity = "warning"
# culprits = [0, 1]
# nodes = [{arguments = ["--data-dir", "a/fineweb"]}, {arguments = ["--data-dir", "b/fineweb"]}]
# ///
import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--data-dir", type=Path)
args = parser.parse_args()
args.data_dir.mkdir(parents=True)
for number in range(12):
    offset = int(os.environ["RANK"]) * 6
    (args.data_dir / f"shard_{number + offset:05}.bin").write_bytes(bytes(4096))


def tokens():
    while True:
        for path in sorted(args.data_dir.glob("*.bin")):
            yield torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).float().view(-1, 64)


dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
print("ready", flush=True)
for inputs in tokens():
    model(inputs).sum().backward()
