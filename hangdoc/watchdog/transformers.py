"""Hugging Face's Trainer: `Trainer(..., callbacks=[WatchdogCallback(timeout=300)])`."""

from typing import Any

from transformers import TrainerCallback

from hangdoc.watchdog.callback import Companion


class WatchdogCallback(TrainerCallback):  # type: ignore[misc]
    """A watchdog from the start of `train` to its end. Arguments are those of Watchdog. Evaluation and saving are phases; the
    timeout between two prediction steps is `evaluate_timeout` seconds."""

    def __init__(self, timeout: Any = 300.0, *, evaluate_timeout: float = 0.0, **options: Any) -> None:
        self._companion = Companion({"timeout": timeout, **options})
        self._patience = evaluate_timeout

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start watching."""
        self._companion.begin(args.process_index, args.world_size)
        self._companion.beat(state.global_step, of=state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Beat for a finished step, with the phase that the Trainer starts next."""
        next_phase = "evaluate" if control.should_evaluate else "checkpoint" if control.should_save else "train"
        step = state.global_step
        self._companion.beat(step, batches=step, epoch=int(state.epoch or 0), phase=next_phase)

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        """Beat for a prediction step."""
        self._companion.beat(phase="evaluate", patience=self._patience)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the phase `evaluate`."""
        self._companion.beat(phase="checkpoint" if control.should_save else "train", patience=0.0)

    def on_save(self, *_: Any, **__: Any) -> None:
        """End the phase `checkpoint`."""
        self._companion.beat(phase="train", patience=0.0)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Stop watching. After an exception the watchdog ends with the process."""
        self._companion.end()
