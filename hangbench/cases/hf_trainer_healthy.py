"""Hugging Face's Trainer trains on two ranks. Nothing is wrong."""

# /// hangbench
# requires = ["transformers", "accelerate"]
# verdict = ["healthy", "waiting"]
# ///
import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Numbers(Dataset):
    def __len__(self):
        return 10_000_000

    def __getitem__(self, index):
        return {"x": torch.randn(8), "labels": torch.randn(1)}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": (out - labels).pow(2).mean(), "logits": out}


arguments = TrainingArguments("out", per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy="no",
                              disable_tqdm=True, logging_strategy="no", max_steps=10_000_000)  # fmt: skip
trainer = Trainer(model=Model(), args=arguments, train_dataset=Numbers())
print("ready", flush=True)
trainer.train()
