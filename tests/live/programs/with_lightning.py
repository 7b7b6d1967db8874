"""Lightning's Trainer, with the watchdog as a callback."""

import torch
from pytorch_lightning import LightningModule, Trainer
from stuck import Model, Numbers
from torch.utils.data import DataLoader

from hangdoc.watchdog.lightning import WatchdogCallback


class Task(LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def training_step(self, batch, index):
        return self.model(**batch)["loss"]

    def validation_step(self, batch, index):
        self.model(**batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, val_check_interval=5, limit_val_batches=2,
    callbacks=[WatchdogCallback(timeout=5)],
)  # fmt: skip
trainer.fit(Task(), DataLoader(Numbers(), 4), DataLoader(Numbers(16), 4))
