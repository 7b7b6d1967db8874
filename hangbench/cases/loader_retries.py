"""The dataset of rank 1 requests a shard from a server that refuses it, and sleeps between its forty attempts. Rank 1 has no
dataloader worker, so it sleeps itself; rank 0 waits for it in all_reduce. The server may work again, so this is not a hang."""

# /// hangbench
# verdict = ["waiting"]
# states = ["in-collective", "waiting-data"]
# operations = ["all_reduce", ""]
# finding = "HD103"
# severity = "info"
# culprits = [1]
# victims = [0]
# patience = 1.0
# ///
import http.client
import socket
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __init__(self, port, missing):
        self.port, self.missing = port, missing

    def __len__(self):
        return 64

    def download(self, name):
        for _attempt in range(40):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                connection.request("GET", name)
                return connection.getresponse().read()
            except OSError:
                time.sleep(15)
        raise TimeoutError(name)

    def __getitem__(self, index):
        if index == self.missing:
            self.download(f"/shard-{index}")
        return torch.ones(4)


dist.init_process_group("gloo")
closed = socket.socket()
closed.bind(("127.0.0.1", 0))
loader = DataLoader(Remote(closed.getsockname()[1], missing=10 if dist.get_rank() == 1 else None), batch_size=2)
print("ready", flush=True)
for batch in loader:
    total = batch.sum()
    dist.all_reduce(total)
