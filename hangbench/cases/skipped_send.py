"""An actor and a learner exchange trajectories and weights. In round 12 the actor drops an empty trajectory and waits for the
next weights. So both wait to receive from each other, and the actor is the one that did not send."""

# /// hangbench
# known_miss = "Nothing records which send is missing. So both ranks are named."
# verdict = ["hung"]
# states = ["in-p2p", "in-p2p"]
# operations = ["recv", "recv"]
# finding = "HD204"
# culprits = [1]
# victims = [0]
# ///
import torch
import torch.distributed as dist

ROUNDS = 40


def rollout(weights, number):
    steps = torch.full((16,), 0.5) * weights.sum()
    return steps[:0] if number == 12 else steps


def learn():
    weights = torch.ones(4)
    for number in range(ROUNDS):
        dist.send(weights, dst=1)
        steps = torch.zeros(16)
        dist.recv(steps, src=1)
        weights = weights + steps.mean()


def act():
    weights = torch.zeros(4)
    for number in range(ROUNDS):
        dist.recv(weights, src=0)
        steps = rollout(weights, number)
        if len(steps) == 0:
            continue
        dist.send(steps, dst=0)


dist.init_process_group("gloo")
print("ready", flush=True)
if dist.get_rank() == 0:
    learn()
else:
    act()
