"""Hooks that find the stages of a step by themselves: of a module (plain or DDP) and its optimizer.

Wall clock on the host only: on a GPU a stage is the time it took to queue its kernels, unless something in it waits. The
time from the end of a forward pass to the optimizer's step (or the next forward pass) counts as backward, without what
`watch` has seen the data take; what comes before the forward pass counts as data.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol

from hangdoc.beacon import STAGES


class Module(Protocol):
    """What is used of a torch.nn.Module."""

    def register_forward_pre_hook(self, hook: Callable[..., None]) -> "Handle":
        """Called before each forward pass."""

    def register_forward_hook(self, hook: Callable[..., None]) -> "Handle":
        """And after it."""


class Optimizer(Protocol):
    """What is used of a torch.optim.Optimizer."""

    def register_step_pre_hook(self, hook: Callable[..., None]) -> "Handle":
        """Called before each step."""

    def register_step_post_hook(self, hook: Callable[..., None]) -> "Handle":
        """And after it."""


class Handle(Protocol):
    """torch.utils.hooks.RemovableHandle."""

    def remove(self) -> None:
        """Take the hook out."""


class Follower:
    """Marks where each stage ends; `done` gets the seconds of each of STAGES when a step has ended."""

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
        """So much of the stage under way went into fetching a batch."""
        self._seconds["data"] += seconds
        self._last += seconds

    def remove(self) -> None:
        """Take the hooks out."""
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
