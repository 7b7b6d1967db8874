"""Plain DDP: hooks alone, the loop knows nothing of the watchdog."""

import torch
import torch.distributed as dist
from stuck import Model, Numbers
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from hangdoc.watchdog import Watchdog

dist.init_process_group("gloo")
model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = Numbers()
watchdog = Watchdog(timeout=5).start()
watchdog.follow(model, optimizer)
for batch in DataLoader(data, 4, sampler=DistributedSampler(data)):
    model(**batch)["loss"].backward()
    optimizer.step()
    optimizer.zero_grad()
