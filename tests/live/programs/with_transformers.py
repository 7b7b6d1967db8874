"""Hugging Face's Trainer, which evaluates after its fifth step, with the watchdog as a callback."""

from stuck import Model, Numbers
from transformers import Trainer, TrainingArguments

from hangdoc.watchdog.transformers import WatchdogCallback

trainer = Trainer(
    model=Model(),
    args=TrainingArguments("out", per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy="no",
                           eval_strategy="steps", eval_steps=5, disable_tqdm=True, logging_strategy="no"),
    train_dataset=Numbers(), eval_dataset=Numbers(16),
    callbacks=[WatchdogCallback(timeout=5)],
)  # fmt: skip
trainer.train()
