"""A critic and a generator, each reduced in a group of its own. A rank skips the critic's step if the critic is too good on the
rank's own images, so the two ranks wait in the reductions of different models.
"""

# /// hangbench
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# operations = ["all_reduce", "all_reduce"]
# finding = "HD203"
# culprits = [1]
# victims = [0]
# patience = 2.0
# ///
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self):
        self.generator = DistributedDataParallel(torch.nn.Linear(8, 16), process_group=dist.new_group())
        self.critic = DistributedDataParallel(torch.nn.Linear(16, 1), process_group=dist.new_group())
        self.accuracy = 0.0

    def critic_step(self, images):
        loss = self.critic(images).pow(2).mean()
        loss.backward()
        self.accuracy = float((images.mean(1) > 0.6).float().mean())

    def generator_step(self, noise):
        loss = self.critic.module(self.generator(noise)).mean()
        loss.backward()

    def step(self, images):
        if self.accuracy < 0.9:
            self.critic_step(images)
        self.generator_step(torch.randn(4, 8))


dist.init_process_group("gloo")
trainer = Trainer()
print("ready", flush=True)
for step in range(10_000):
    brightness = 1.0 if dist.get_rank() == 1 and step >= 20 else 0.4
    trainer.step(torch.full((4, 16), brightness) + 0.01 * torch.randn(4, 16))
