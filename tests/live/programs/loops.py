"""Two ranks whose loops over their data differ. The first argument is the form of the loop; `--move` lets them run on.

In batch `STOP`, rank 1 leaves the loop or prints a line and waits, and rank 0 waits for it in that batch.
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

FORM, MOVES = sys.argv[1], "--move" in sys.argv
STOP = 7
EPOCH = 1


class Numbers(Dataset):
    def __init__(self, count: int) -> None:
        self.paths = list(range(count))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(self.paths[index])])


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = torch.utils.data.get_worker_info()
        yield from torch.arange(1000.0)[worker.id :: worker.num_workers] if worker else torch.arange(1000.0)


dist.init_process_group("gloo")
rank = dist.get_rank()


def step(number: int, batch: Any) -> bool:
    """One batch; whether rank 1 leaves the loop."""
    if number == STOP and not MOVES:
        print(f"begins {rank}", flush=True)
        if rank == 1:
            return True
    dist.all_reduce(torch.ones(1))
    if MOVES:
        if number == 1:
            print(f"begins {rank}", flush=True)
        time.sleep(0.01)
    return False


def generate(loader: DataLoader) -> Iterator[Any]:
    for batch in loader:  # noqa: UP028 (this loop is to be found)
        yield batch


def train(loader: DataLoader) -> None:
    for epoch in range(1 if not MOVES else 1000):
        for number, batch in enumerate(loader):
            if step(number, batch):
                break


def epochs(loader: DataLoader) -> None:
    for epoch in range(3):
        number = 0
        for batch in loader:
            if epoch == EPOCH and step(number, batch):
                break
            number += 1  # noqa: SIM113


loader = DataLoader(Numbers(160 if not MOVES else 400_000), batch_size=4)
if FORM == "function":
    train(loader)
elif FORM == "epochs":
    epochs(loader)
elif FORM == "zip":
    for number, (batch, other) in enumerate(zip(loader, DataLoader(Numbers(100), batch_size=4), strict=False)):
        if step(number, batch):
            break
elif FORM == "tqdm":
    from tqdm import tqdm

    for number, batch in enumerate(tqdm(loader, disable=rank == 1)):
        if step(number, batch):
            break
elif FORM == "workers":
    loader = DataLoader(TensorDataset(torch.zeros(160, 1)), 2, num_workers=2, sampler=DistributedSampler(range(160)))
    for number, batch in enumerate(loader):
        if step(number, batch):
            break
elif FORM == "iterable":
    loader = DataLoader(Stream(), batch_size=4, num_workers=2)
    for number, batch in enumerate(loader):
        if step(number, batch):
            break
elif FORM == "generator":
    for number, batch in enumerate(generate(loader)):
        if step(number, batch):
            break
elif FORM == "shards":
    count = 4 if rank == 1 else 201
    loader = DataLoader(Numbers(count), batch_size=1)
    print(f"begins {rank}", flush=True)
    for x in loader:
        dist.all_reduce(x)
elif FORM == "files":
    files = list(range(5 if rank == 1 else 8))
    made = 0
    print(f"begins {rank}", flush=True)
    for x in (row for file in files for row in torch.ones(10, 1).add(file)):
        made += 1  # noqa: SIM113  # as users count
        dist.all_reduce(x)
    dist.barrier()
else:  # "module"
    number = 0
    for batch in loader:
        if step(number, batch):
            break
        number += 1  # noqa: SIM113
dist.barrier()
dist.destroy_process_group()
