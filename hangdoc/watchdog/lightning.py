"""Lightning: `Trainer(callbacks=[WatchdogCallback(timeout=300)])`."""

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from hangdoc.watchdog.callback import Companion


class WatchdogCallback(Callback):  # type: ignore[misc]
    """A watchdog from the start of `fit` to its end. Arguments are those of Watchdog. Validation and the sanity check are the
    phase `evaluate`, with a timeout of `evaluate_timeout` seconds between two batches."""

    def __init__(self, timeout: Any = 300.0, *, evaluate_timeout: float = 0.0, **options: Any) -> None:
        super().__init__()
        self._companion = Companion({"timeout": timeout, **options})
        self._patience = evaluate_timeout

    def setup(self, trainer: Any, module: Any, stage: str) -> None:
        """Start watching."""
        if stage == "fit":
            self._companion.begin(trainer.global_rank, trainer.world_size)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Beat for a finished batch."""
        total = trainer.num_training_batches
        self._companion.beat(
            trainer.global_step,
            batches=batch_idx + 1,
            of=int(total) if total != float("inf") else None,
            epoch=trainer.current_epoch,
        )

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Start the phase `evaluate`."""
        self._companion.beat(phase="evaluate", patience=self._patience)

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """Beat for a batch of the evaluation."""
        self._companion.beat()

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """End the phase `evaluate`."""
        self._companion.beat(phase="train", patience=0.0)

    def teardown(self, trainer: Any, module: Any, stage: str) -> None:
        """Stop watching. Lightning calls this after an exception too."""
        self._companion.end()
