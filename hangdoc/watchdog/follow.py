"""Hooks of a module (plain or DDP) and its optimizer that find the stages of a step.

They measure wall clock time on the host: on a GPU, a stage is the time to queue its kernels, unless something in it waits. The
stage backward is the time from the end of a forward pass to the optimizer's step or the next forward pass, without the time for
data that `watch` measures. The stage data is the time before the forward pass.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from hangdoc.beacon import STAGES


class Module(Protocol):
    """The methods of torch.nn.Module that are used here."""

    def register_forward_pre_hook(self, hook: Callable[..., None]) -> "Handle":
        """Called before each forward pass."""

    def register_forward_hook(self, hook: Callable[..., None]) -> "Handle":
        """Called after it."""


class Optimizer(Protocol):
    """The methods of torch.optim.Optimizer that are used here."""

    def register_step_pre_hook(self, hook: Callable[..., None]) -> "Handle":
        """Called before each step."""

    def register_step_post_hook(self, hook: Callable[..., None]) -> "Handle":
        """Called after it."""


class Handle(Protocol):
    """torch.utils.hooks.RemovableHandle."""

    def remove(self) -> None:
        """Remove the hook."""


class Follower:
    """Measures the stages. At the end of each step, `done` gets the seconds of each of STAGES."""

    def __init__(self, module: Module, optimizer: Any, done: Callable[[tuple[float, ...]], None]) -> None:
        self._done = done
        self._seconds = dict.fromkeys(STAGES, 0.0)
        self._last = time.perf_counter()
        self._before = "data"
        stepping: Optimizer = getattr(optimizer, "optimizer", optimizer)  # Accelerate wraps it
        self._handles = [
            module.register_forward_pre_hook(lambda *_: self._mark(self._before)),
            module.register_forward_hook(lambda *_: self._mark("forward", before="backward")),
            stepping.register_step_pre_hook(lambda *_: self._mark("backward")),
            stepping.register_step_post_hook(lambda *_: self._step()),
        ]

    def data(self, seconds: float) -> None:
        """Count this part of the current stage as data."""
        self._seconds["data"] += seconds
        self._last += seconds

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def _mark(self, stage: str, before: str | None = None) -> None:
        now = time.perf_counter()
        self._seconds[stage] += max(0.0, now - self._last)
        self._last = now
        if before is not None:
            self._before = before

    def _step(self) -> None:
        self._mark("optimizer", before="data")
        self._done(tuple(self._seconds.values()))
        self._seconds = dict.fromkeys(STAGES, 0.0)
