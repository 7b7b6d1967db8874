"""The learner receives the trajectory of each actor in turn, and then broadcasts the weights. An actor sends nothing if its
trajectory is empty, and goes on to the broadcast.
"""

# /// hangbench
# verdict = ["hung"]
# ranks = 4
# states = ["in-p2p", "in-collective", "in-collective", "in-collective"]
# operations = ["recv", "broadcast", "broadcast", "broadcast"]
# finding = "HD204"
# culprits = [3]
# victims = [0, 1, 2]
# ///
import torch
import torch.distributed as dist

LEARNER, MOST = 0, 8


def episode():
    steps = 0
    while steps < MOST and float(torch.rand(1)) > 0.08:
        steps += 1
    return torch.rand(steps, 2)


def act(rank, weights):
    torch.manual_seed(rank)
    for _ in range(10_000):
        trajectory = episode()
        if rank != 3 or len(trajectory):
            padded = torch.zeros(MOST, 2)
            padded[: len(trajectory)] = trajectory
            dist.send(padded, dst=LEARNER)
        dist.broadcast(weights, src=LEARNER)


def learn(weights):
    for _ in range(10_000):
        for src in range(1, dist.get_world_size()):
            trajectory = torch.zeros(MOST, 2)
            dist.recv(trajectory, src=src)
            weights += trajectory.mean(0)
        dist.broadcast(weights, src=LEARNER)


dist.init_process_group("gloo")
print("ready", flush=True)
weights = torch.zeros(2)
if dist.get_rank() == LEARNER:
    learn(weights)
else:
    act(dist.get_rank(), weights)
