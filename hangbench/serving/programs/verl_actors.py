"""Reinforcement learning as verl does it: a driver, two trainers in a Gloo group (RayWorkerGroup), and a rollout actor.

The driver asks the rollout actor for a batch, and the two trainers for an update with it, step after step.

python verl_actors.py --ready ready.json [--rollout-seconds S] [--rows empty|repeated]
"""

import argparse
import json
import logging
import os
import time
from pathlib import Path

import ray
import torch
import torch.distributed as dist
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

log = logging.getLogger("trainer")


@ray.remote(num_cpus=0)
class TrainWorker(Worker):
    """Holds the policy, and updates it together with the other one."""

    def __init__(self) -> None:
        super().__init__()
        self.policy: torch.nn.Module | None = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> int:
        """Join the group and create the policy. Returns the pid."""
        logging.basicConfig(level=logging.INFO)
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        self.policy = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 4))
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=0.01)
        return os.getpid()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def update_actor(self, batch: list[list[list[float]]]) -> dict[str, float]:
        """One step with this rank's part of the batch."""
        rows = batch[self.rank]
        try:
            return self._step(rows)
        except Exception:
            # A step with bad rows is skipped.
            log.exception("rank %d skips the step", self.rank)
            return {}

    def _step(self, rows: list[list[float]]) -> dict[str, float]:
        rows = self._unlike(rows)
        states = torch.tensor([row[:16] for row in rows])
        returns = torch.tensor([row[16] for row in rows])
        loss = -(torch.log_softmax(self.policy(states), 1).amax(1) * returns).mean()
        self.optimizer.zero_grad()
        loss.backward()
        for parameter in self.policy.parameters():
            dist.all_reduce(parameter.grad)
        self.optimizer.step()
        return {"loss": float(loss)}

    @staticmethod
    def _unlike(rows: list[list[float]]) -> list[list[float]]:
        """Rows that differ: a repeated row is replaced by a copy with noise."""
        seen: list[list[float]] = []
        for row in rows:
            while row in seen:
                row = [value * 1.0 for value in row]
            seen.append(row)
        return seen


@ray.remote(num_cpus=0)
class Rollout:
    """Plays episodes with an old policy."""

    def generate(self, seconds: float, rows: str | None) -> list[list[list[float]]]:
        """Play for a while. Returns the rows of each trainer."""
        until = time.monotonic() + seconds
        policy = torch.nn.Linear(16, 4)
        while time.monotonic() < until:
            policy(torch.rand(1, 16))
            time.sleep(0.05)
        batch = torch.rand(2, 8, 17).tolist()
        if rows == "empty":
            batch[1][3] = []
        if rows == "repeated":
            batch[1][3] = batch[1][2]
        return batch

    def pid(self) -> int:
        """Its process."""
        return os.getpid()


def main() -> None:
    """Start the actors, then train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ready", type=Path, required=True)
    parser.add_argument("--rollout-seconds", type=float, default=0.1)
    parser.add_argument("--rows", choices=["empty", "repeated"])
    options = parser.parse_args()
    ray.init(num_cpus=4, object_store_memory=100 << 20, include_dashboard=False)
    pool = RayResourcePool(process_on_nodes=[2], use_gpu=False, max_colocate_count=1)
    trainers = RayWorkerGroup(pool, RayClassWithInitArgs(cls=TrainWorker), device_name="cpu")
    pids = trainers.init_model()
    rollout = Rollout.remote()
    roles = {"driver": os.getpid(), "rollout": ray.get(rollout.pid.remote())}
    roles |= {f"actor {rank}": pid for rank, pid in enumerate(pids)}
    step = 0
    while True:
        started = step >= 3
        reference = rollout.generate.remote(
            options.rollout_seconds if started else 0.1, options.rows if started else None
        )
        if step == 3:
            part = options.ready.with_suffix(".part")
            part.write_text(json.dumps({"roles": roles}))
            part.rename(options.ready)
        batch = ray.get(reference)
        print(f"step {step}", trainers.update_actor(batch), flush=True)
        step += 1


if __name__ == "__main__":
    main()
