"""The step with its all-reduce is captured in a CUDA graph. Rank 1 waits for a file and no longer replays it; rank 0's replay
waits for rank 1 on the card. No record of torch has what a graph launches."""

# /// hangbench
# verdict = ["unknown"]
# finding = "HD202"
# severity = "info"
# culprits = [1]
# victims = [0]
# needs_card = true
# ///
import os
import time

import torch
import torch.distributed as dist


def next_batch(step, rank):
    while rank == 1 and step == 40 and not os.path.exists("/nonexistent/batch-40.pt"):
        time.sleep(0.2)
    return torch.randn(1024, 1024, device="cuda")


def main():
    dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
    static = torch.randn(1024, 1024, device="cuda")
    weight = torch.randn(1024, 1024, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            out = static @ weight
            dist.all_reduce(out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        out = static @ weight
        dist.all_reduce(out)
    for step in range(10**9):
        if step == 30:
            print("ready", flush=True)
        static.copy_(next_batch(step, dist.get_rank()))
        graph.replay()
        print(step, out.mean().item(), flush=True)


main()
