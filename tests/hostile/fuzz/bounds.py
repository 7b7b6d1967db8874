"""Bounds of one attack: CPU time and memory."""

import contextlib
import faulthandler
import gc
import resource
import signal
import time
from collections.abc import Iterator

CPU_SECONDS = 5.0
"""More than any budget, so that only what is not bounded exceeds it."""
MEMORY_BYTES = 400 << 20


@contextlib.contextmanager
def bounded(seconds: float = CPU_SECONDS, size: int = MEMORY_BYTES) -> Iterator[None]:
    """Fails if the block takes more CPU time, or more memory at its peak than there was before. The block runs without the
    collector of cycles, as commands of one look do (`hangdoc.cli.main`)."""
    with open("/proc/self/clear_refs", "w") as file:  # 5: the peak begins anew (proc_pid_clear_refs(5))
        file.write("5")
    gc.disable()
    try:
        memory, began = _peak_bytes(), time.thread_time()
        yield
        took, more = time.thread_time() - began, _peak_bytes() - memory
    finally:
        gc.enable()
    assert took < seconds, f"{took:.1f} s of CPU"
    assert more < size, f"{more >> 20} MiB of memory"


def end_endless_attack(seconds: int) -> None:
    """End this process, with its traceback, when it has used as much CPU time from now on: for a loop in C that never ends."""
    faulthandler.register(signal.SIGXCPU, chain=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds, resource.RLIM_INFINITY))


def _peak_bytes() -> int:
    with open("/proc/self/status", "rb") as file:
        return int(file.read().split(b"VmHWM:", 1)[1].split(None, 1)[0]) << 10
