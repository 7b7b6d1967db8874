"""Hugging Face's Trainer: `Trainer(..., callbacks=[WatchdogCallback(timeout=300)])`."""

from typing import Any

from transformers import TrainerCallback

from hangdoc.watchdog.dog import Watchdog


class WatchdogCallback(TrainerCallback):  # type: ignore[misc]
    """A watchdog from the beginning of `train` to its end; arguments are Watchdog's. Evaluating and saving are phases, with
    `evaluate_timeout` seconds of patience between two of their signs of life."""

    def __init__(self, timeout: Any = 300.0, *, evaluate_timeout: float = 0.0, **options: Any) -> None:
        self._options = {"timeout": timeout, **options}
        self._patience = evaluate_timeout
        self.dog: Watchdog | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin to watch."""
        if self.dog is None:
            who = {"rank": args.process_index, "world_size": args.world_size}
            self.dog = Watchdog(**{**who, **self._options}).start()
            self.dog.beat(state.global_step, of=state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A step is done; what the Trainer does next has a name."""
        coming = "evaluate" if control.should_evaluate else "checkpoint" if control.should_save else "train"
        self._beat(state.global_step, batches=state.global_step, epoch=int(state.epoch or 0), phase=coming)

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        """Evaluation goes on."""
        self._beat(phase="evaluate", patience=self._patience)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """And is over."""
        self._beat(phase="checkpoint" if control.should_save else "train", patience=0.0)

    def on_save(self, *_: Any, **__: Any) -> None:
        """Saving is over."""
        self._beat(phase="train", patience=0.0)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Stop watching. After an exception the watchdog ends with the process."""
        if self.dog is not None:
            self.dog.stop()
            self.dog = None

    def _beat(self, *step: int, **what: Any) -> None:
        if self.dog is not None:
            self.dog.beat(*step, **what)
