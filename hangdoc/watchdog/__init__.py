"""The part of hangdoc that runs in a trainer: it publishes progress, and saves evidence when there is none.

    from hangdoc.watchdog import Watchdog

    with Watchdog(timeout=300) as watchdog:
        for batch in watchdog.watch(loader):
            ...

It imports only the standard library. Everything else is imported or started when there is a hang.
"""

from hangdoc.watchdog.guard import EXIT_CODE, HangError
from hangdoc.watchdog.watchdog import Watchdog

__all__ = ["EXIT_CODE", "HangError", "Watchdog"]
