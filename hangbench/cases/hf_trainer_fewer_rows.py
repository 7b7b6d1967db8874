"""Hugging Face's Trainer, whose loop is not in the script. Rank 1 has 40 rows and rank 0 has 400, so rank 1 evaluates at the
end of its epoch while rank 0 still trains.
"""

# /// hangbench
# requires = ["transformers", "accelerate"]
# verdict = ["hung"]
# states = ["in-collective", "in-collective"]
# finding = "HD101"
# culprits = [1]
# victims = [0]
# ///
import os

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Numbers(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows

    def __getitem__(self, index):
        return {"x": torch.randn(8), "labels": torch.randn(1)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))

    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": (out - labels).pow(2).mean(), "logits": out}


class Started(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 1:
            print("ready", flush=True)


def main():
    trainer = Trainer(
        model=Model(),
        args=TrainingArguments("out", per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy="no",
                               eval_strategy="epoch", disable_tqdm=True, logging_strategy="no"),
        train_dataset=Numbers(400 if os.environ["RANK"] == "0" else 40),
        eval_dataset=Numbers(16),
        callbacks=[Started()],
    )  # fmt: skip
    trainer.train()


main()
