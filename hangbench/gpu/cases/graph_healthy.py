"""The step with its all-reduce is captured in a CUDA graph and replayed. torch's record does not change, and nothing is wrong."""

# /// hangbench
# verdict = ["healthy"]
# needs_card = true
# ///
import torch
import torch.distributed as dist


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
        static.copy_(torch.randn(1024, 1024, device="cuda"))
        graph.replay()
        if step % 10 == 0:
            print(step, out.mean().item(), flush=True)


main()
