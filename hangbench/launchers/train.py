"""The smallest DDP training that every launcher of the table can start; what goes wrong on the last rank is an option.

    train.py FOLDER [--under NAME] [--fault none|uneven|stopped] [--meet URL] [--watchdog SECONDS]

In the folder each rank leaves `rank-N` (its pid) after some steps, and `step-N`, which changes with every step.
"""

import argparse
import os
import signal
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCHES = 100_000
FEW = 12


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--under", default="torch")
    parser.add_argument("--fault", choices=("none", "uneven", "stopped"), default="none")
    parser.add_argument("--meet", default="env://")
    parser.add_argument("--watchdog", type=float)
    return parser.parse_known_args()[0]  # DeepSpeed and torch.distributed.launch add --local-rank


def train(args):
    os.chdir(args.folder)
    rank, world = dist.get_rank(), dist.get_world_size()
    batches = list(range(BATCHES))
    if args.fault == "uneven" and rank == world - 1:
        batches = batches[:FEW]
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with watchdog(args):
        for step, _batch in enumerate(batches):
            optimizer.zero_grad()
            loss = model(torch.ones(4, 16)).mean()
            loss.backward()
            optimizer.step()
            Path(f"step-{rank}").write_text(str(step))
            if step == FEW // 2:
                Path(f"rank-{rank}").write_text(str(os.getpid()))
            if step == FEW and args.fault == "stopped" and rank == world - 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.02)
        dist.barrier()


def watchdog(args):
    if not args.watchdog:
        return nullcontext()
    from hangdoc.watchdog import Watchdog

    return Watchdog(timeout=args.watchdog)


def in_group(args, rank=-1, world=-1):
    """Train in torch's own group; where no rank is given, `env://` takes it from the environment."""
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


def under_deepspeed(args):
    import deepspeed

    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
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
