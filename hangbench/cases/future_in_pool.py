"""Rank 0's main thread waits for the futures of a thread
pool whose only thread computes. The others wait for its
broadcast. It is busy, not hung."""

# /// hangbench
# verdict = ["waiting"]
# finding = "HD602"
# severity = "info"
# culprits = [0]
# victims = [1]
# ///

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist


def bootstrap(series, draws, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.stack(
        [series[torch.randint(0, len(series), (len(series),), generator=generator)].mean() for _ in range(draws)]
    )


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    band = torch.zeros(2)
    print("ready", flush=True)
    if dist.get_rank() == 0:
        series = torch.randn(20_000)
        with ThreadPoolExecutor(1) as pool:
            futures = [pool.submit(bootstrap, series, 400_000, seed) for seed in range(4)]
            means = torch.cat([future.result() for future in futures])
        band = means.quantile(torch.tensor([0.05, 0.95]))
    dist.broadcast(band, src=0)


main()
