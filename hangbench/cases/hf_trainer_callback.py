"""Hugging Face's Trainer runs with a callback whose rank 1 sleeps forever after a step. Rank 0 waits for rank 1 in a
collective of the Trainer or of DDP.
"""

# /// hangbench
# requires = ["transformers", "accelerate"]
# verdict = ["hung"]
# states = ["in-collective", "sleeping"]
# finding = "HD202"
# culprits = [1]
# victims = [0]
# ///
import time

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


class Upload(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            print("ready", flush=True)
            if args.process_index == 1:
                time.sleep(100_000)


trainer = Trainer(
    model=Model(),
    args=TrainingArguments("out", per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy="no",
                           disable_tqdm=True, logging_strategy="no"),
    train_dataset=Numbers(),
    callbacks=[Upload()],
)  # fmt: skip
trainer.train()
