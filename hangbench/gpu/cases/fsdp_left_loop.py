"""FSDP2 with loaders of different length: rank 1 has 33 batches and rank 0 has 40. Rank 1 left its loop and reduces the number of
batches; rank 0 waits for it in the all-gather of the next forward."""

# /// hangbench
# verdict = ["hung"]
# finding = "HD101"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(3)]).to(device)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = [torch.randn(8, 256) for _ in range(40 - 7 * dist.get_rank())]
    for step, batch in enumerate(batches):
        if step == 32:
            print("ready", flush=True)
        loss = model(batch.to(device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    total = torch.tensor([float(len(batches))], device=device)
    dist.all_reduce(total)
    print(total.item(), flush=True)


main()
