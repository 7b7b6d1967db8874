"""Checkpoints with model, optimizer and step, written to a temporary file and renamed."""

from pathlib import Path
from typing import Any

import torch
from torch import nn


def save(folder: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> Path:
    """Write the checkpoint of a step, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step_{step:06d}.pt"
    aside = path.with_suffix(".new")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, aside)
    aside.replace(path)
    return path


def load_latest(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the newest checkpoint in a folder. Returns the step to continue with; 0 if there is none."""
    found = sorted(folder.glob("step_*.pt"))
    if not found:
        return 0
    state: dict[str, Any] = torch.load(found[-1], weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])
