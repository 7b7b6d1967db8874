"""The smallest training that every launcher of the table can start. It trains until the data of a rank end.

    train.py FOLDER [--under NAME] [--meet URL] [--watchdog SECONDS]

Each rank writes `rank-N` (its pid) into the folder after some steps, and updates `step-N` at every step. The data of rank N end
when `end-N` is created there.
"""

import argparse
import os
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist

READY = 5


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--under", default="torch")
    parser.add_argument("--meet", default="env://")
    parser.add_argument("--watchdog", type=float)
    return parser.parse_known_args()[0]  # DeepSpeed and torch.distributed.launch add --local-rank


def batches(rank):
    while not Path(f"end-{rank}").exists():
        yield torch.ones(4, 16)


def train(args):
    os.chdir(args.folder)
    rank = dist.get_rank()
    # DistributedDataParallel and torch.optim import torch._dynamo: a second of CPU for each of thirty ranks that start at once.
    model = torch.nn.Linear(16, 1)
    with watchdog(args) as dog:
        for step, batch in enumerate(batches(rank)):
            model.zero_grad()
            model(batch).mean().backward()
            for weights in model.parameters():
                dist.all_reduce(weights.grad)
                weights.data -= 1e-3 * weights.grad
            Path(f"step-{rank}").write_text(str(step))
            if step == READY:
                Path(f"rank-{rank}").write_text(str(os.getpid()))
            if dog is not None:
                dog.beat(step)
            time.sleep(0.1)
        dist.barrier()


def watchdog(args):
    if not args.watchdog:
        return nullcontext()
    from hangdoc.watchdog import Watchdog

    return Watchdog(timeout=args.watchdog)


def in_group(args, rank=-1, world=-1):
    """Train in torch's process group. Without a given rank, `env://` takes it from the environment."""
    dist.init_process_group("gloo", init_method=args.meet, rank=rank, world_size=world)
    train(args)
    dist.destroy_process_group()


def spawned(rank, args):
    in_group(args, rank, 2)


def under_spawn(args):
    torch.multiprocessing.spawn(spawned, args=(args,), nprocs=2)


def under_slurm(args):
    in_group(args, int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"]))


def under_mpi(args):
    in_group(args, int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"]))


def under_accelerate(args):
    from accelerate import PartialState

    PartialState(cpu=True)
    train(args)


def under_fabric(args):
    from lightning_fabric import Fabric

    Fabric(accelerator="cpu", devices=2, strategy="ddp").launch()
    train(args)


def under_ray(args):
    from ray.train import ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    TorchTrainer(
        lambda: train(args), scaling_config=ScalingConfig(num_workers=2), torch_config=TorchConfig(backend="gloo")
    ).fit()


if __name__ == "__main__":
    args = options()
    globals().get(f"under_{args.under}", in_group)(args)
