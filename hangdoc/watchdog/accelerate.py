"""Accelerate: `with watchdog(accelerator, timeout=300) as active`, then `active.watch(loader)` over the prepared loader."""

from typing import Any

from hangdoc.watchdog.watchdog import Watchdog


def watchdog(accelerator: Any, timeout: Any = 300.0, **options: Any) -> Watchdog:
    """A Watchdog with the rank of an `accelerate.Accelerator` and with its project directory for the evidence. Other arguments
    are those of Watchdog."""
    who = {"rank": accelerator.process_index, "world_size": accelerator.num_processes}
    if accelerator.project_dir is not None:
        who["directory"] = accelerator.project_dir
    return Watchdog(timeout, **{**who, **options})
