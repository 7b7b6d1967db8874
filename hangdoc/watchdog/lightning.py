"""Lightning: `Trainer(callbacks=[WatchdogCallback(timeout=300)])`."""

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from hangdoc.watchdog.callback import Companion


class WatchdogCallback(Callback):  # type: ignore[misc]
    """A watchdog from the beginning of `fit` to its end; arguments are Watchdog's. Validation and the sanity check are the
    phase `evaluate`, with `evaluate_timeout` seconds of patience between two of its batches."""

    def __init__(self, timeout: Any = 300.0, *, evaluate_timeout: float = 0.0, **options: Any) -> None:
        super().__init__()
        self._companion = Companion({"timeout": timeout, **options})
        self._patience = evaluate_timeout

    def setup(self, trainer: Any, module: Any, stage: str) -> None:
        """Begin to watch."""
        if stage == "fit":
            self._companion.begin(trainer.global_rank, trainer.world_size)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch is done."""
        total = trainer.num_training_batches
        self._companion.beat(
            trainer.global_step,
            batches=batch_idx + 1,
            of=int(total) if total != float("inf") else None,
            epoch=trainer.current_epoch,
        )

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """The phase `evaluate` begins."""
        self._companion.beat(phase="evaluate", patience=self._patience)

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """Evaluation goes on."""
        self._companion.beat()

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """And is over."""
        self._companion.beat(phase="train", patience=0.0)

    def teardown(self, trainer: Any, module: Any, stage: str) -> None:
        """Stop watching; Lightning calls it after an exception too."""
        self._companion.end()
