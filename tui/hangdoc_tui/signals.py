"""The signals that top may send if a person allows it: continue a stopped rank, end an orphan."""

import os
import signal
import time
from dataclasses import dataclass

import psutil

from hangdoc.phrases import duration
from hangdoc_tui.view_model import ViewModel


@dataclass(frozen=True)
class SignalAction:
    """One signal to one process. Its pid and its start time identify it, because pids are reused."""

    pid: int
    created: float
    signal: signal.Signals
    question: str

    def do(self) -> str:
        """Send the signal if the process is still the same one, and return what happened in words."""
        try:
            process = psutil.Process(self.pid)
            if process.create_time() != self.created:
                return f"pid {self.pid} is now a different process: no signal sent"
            os.kill(self.pid, self.signal)
        except (psutil.NoSuchProcess, ProcessLookupError):
            return f"pid {self.pid} has ended: no signal sent"
        except (PermissionError, psutil.AccessDenied):
            return f"pid {self.pid} belongs to another user: no signal sent"
        return f"sent {self.signal.name} to pid {self.pid}"


def continue_action(model: ViewModel) -> SignalAction | str:
    """The signal that continues the selected rank, or the reason why there is none."""
    view = model.view(model.selected)
    if view is None or view.state != "stopped" or view.pid is None:
        return "the selected rank is not stopped"
    return _signal_action(view.pid, signal.SIGCONT, f"Continue rank {view.rank}")


def end_action(model: ViewModel) -> SignalAction | str:
    """The signal that ends the selected rank if its launcher is gone, or the reason why there is none."""
    view = model.view(model.selected)
    rank = model.run.ranks.get(model.selected) if model.selected is not None else None
    if view is None or view.pid is None or rank is None or rank.process is None:
        return "the selected rank has no process"
    if not rank.process.launcher_gone:
        return f"rank {view.rank} is not an orphan: its launcher is still running"
    return _signal_action(view.pid, signal.SIGTERM, f"End rank {view.rank}, an orphan")


def _signal_action(pid: int, which: signal.Signals, what: str) -> SignalAction | str:
    try:
        process = psutil.Process(pid)
        created = process.create_time()
        command = " ".join(process.cmdline())[:200]
    except psutil.Error:
        return f"pid {pid} has ended"
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(created))
    age = duration(time.time() - created)
    return SignalAction(
        pid, created, which, f"{what}: {which.name} to pid {pid}, started {started} ({age} ago)?\n\n{command}"
    )
