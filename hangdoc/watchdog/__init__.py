"""The part of hangdoc that lives in a trainer: it publishes progress, and leaves evidence behind when none comes.

    from hangdoc.watchdog import Watchdog

    with Watchdog(timeout=300) as watchdog:
        for batch in watchdog.watch(loader):
            ...

Imports the standard library only; what a hang needs beyond that is loaded, or started, when there is one.
"""

from hangdoc.watchdog.guard import EXIT_CODE, HangError
from hangdoc.watchdog.watchdog import Watchdog

__all__ = ["EXIT_CODE", "HangError", "Watchdog"]
