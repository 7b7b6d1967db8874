"""FSDP2: rank 1 gets a NaN and skips that batch's backward, so it waits in the forward of the next batch, inside the loop over
the layers. Rank 0 waits for it in the backward, where that loop is over."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# finding = "HD203"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class Blocks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return x


def batches(me):
    for number in range(60):
        yield torch.full((4, 8), float("nan") if me == 1 and number == 30 else 1.0)


def train(model, me):
    step = skipped = 0
    for batch in batches(me):
        loss = model(batch).pow(2).mean()
        if not torch.isfinite(loss):
            skipped += 1
            continue
        loss.backward()
        step += 1
    return step, skipped


def main():
    dist.init_process_group("gloo")
    model = Blocks()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    print("ready", flush=True)
    train(model, dist.get_rank())


main()
