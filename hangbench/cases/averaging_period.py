"""Local SGD: the ranks average their weights every few steps, rank 1 every 7 and rank 0 every 5. Both run 60 rounds.
Rank 1 has finished and waits in a barrier; rank 0 waits in the all_reduce of an average that rank 1 does not
make."""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_reduce", "barrier"]
# finding = "HD203"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    net = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    period = 5 if dist.get_rank() == 0 else 7
    print("ready", flush=True)
    for step in range(1, 61):
        net(torch.randn(4, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % period == 0:
            for weights in net.parameters():
                dist.all_reduce(weights.data)
                weights.data /= dist.get_world_size()
    dist.barrier()
    dist.barrier()


main()
