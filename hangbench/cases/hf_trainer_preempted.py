"""A callback of Hugging Face's Trainer asks for a checkpoint when a signal has announced the end of the node. Only rank 1 gets
the signal, so it waits in the all_gather before the checkpoint, and rank 0 in the backward of the next step."""

# /// hangbench
# requires = ["transformers", "accelerate"]
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# finding = "HD203"
# culprits = [1]
# victims = [0]
# ///
import os
import signal

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Numbers(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        return {"x": torch.randn(8), "labels": torch.randn(1)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": (out - labels).pow(2).mean(), "logits": out}


class Preempted(TrainerCallback):
    def __init__(self):
        self.asked = False
        signal.signal(signal.SIGUSR1, self.ask)

    def ask(self, *_):
        self.asked = True

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            print("ready", flush=True)
            if args.process_index == 1:
                os.kill(os.getpid(), signal.SIGUSR1)
        control.should_save = self.asked
        control.should_training_stop = self.asked


trainer = Trainer(
    model=Model(),
    args=TrainingArguments("out", per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy="no",
                           disable_tqdm=True, logging_strategy="no"),
    train_dataset=Numbers(),
    callbacks=[Preempted()],
)  # fmt: skip
trainer.train()
