"""An IterableDataset streams the shards of its node through two dataloader workers; node 1 has 6 shards and node 0 has 40. Rank 1
ran out of data and saves its state after a barrier; rank 0 waits in DDP's all-reduce."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_reduce", "barrier"]
# finding = "HD101"
# culprits = [1]
# victims = [0]
# nodes = [{environment = {DATA_DIR = "node0/shards"}}, {environment = {DATA_DIR = "node1/shards"}}]
# ///
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.npy"))

    def __iter__(self):
        worker = get_worker_info()
        for path in self.files[worker.id :: worker.num_workers]:
            data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32)
            yield from data.view(-1, 8)


def save(model):
    dist.barrier()
    torch.save(model.state_dict(), f"rank{dist.get_rank()}.pt")


def main():
    dist.init_process_group("gloo")
    folder = Path(os.environ["DATA_DIR"])
    folder.mkdir(parents=True)
    for number in range(6 if dist.get_rank() else 40):
        (folder / f"{number:04}.npy").write_bytes(bytes(8 * 4 * 4))
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    loader = DataLoader(Shards(folder), batch_size=4, num_workers=2)
    print("ready", flush=True)
    for batch in loader:
        model(batch).sum().backward()
    save(model)


main()
