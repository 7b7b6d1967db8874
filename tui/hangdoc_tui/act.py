"""What may be done to a process of a run, where a person has allowed it: continue a stopped rank, end an orphan."""

import os
import signal
import time
from dataclasses import dataclass

import psutil

from hangdoc.phrases import duration
from hangdoc_tui.scene import Scene


@dataclass(frozen=True)
class SignalAction:
    """A signal for one process, which is known by its start as well as by its pid: pids come back."""

    pid: int
    created: float
    signal: signal.Signals
    question: str

    def do(self) -> str:
        """Send it, if it is still that process; what happened, in words."""
        try:
            process = psutil.Process(self.pid)
            if process.create_time() != self.created:
                return f"pid {self.pid} is another process by now: nothing was sent"
            os.kill(self.pid, self.signal)
        except (psutil.NoSuchProcess, ProcessLookupError):
            return f"pid {self.pid} has ended: nothing was sent"
        except (PermissionError, psutil.AccessDenied):
            return f"pid {self.pid} belongs to another user: nothing was sent"
        return f"sent {self.signal.name} to pid {self.pid}"


def continuing(scene: Scene) -> SignalAction | str:
    """Let the selected rank go on, or why there is nothing to do."""
    view = scene.view(scene.selected)
    if view is None or view.state != "stopped" or view.pid is None:
        return "the selected rank is not stopped"
    return _deed(view.pid, signal.SIGCONT, f"Continue rank {view.rank}")


def ending(scene: Scene) -> SignalAction | str:
    """End the selected rank where its launcher is gone, or why not."""
    view = scene.view(scene.selected)
    rank = scene.run.ranks.get(scene.selected) if scene.selected is not None else None
    if view is None or view.pid is None or rank is None or rank.process is None:
        return "the selected rank has no process"
    if not rank.process.launcher_gone:
        return f"rank {view.rank} is no orphan: its launcher is there"
    return _deed(view.pid, signal.SIGTERM, f"End rank {view.rank}, an orphan")


def _deed(pid: int, which: signal.Signals, what: str) -> SignalAction | str:
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
