"""hangdoc finds the rank that a frozen torch.distributed run is waiting for, and why.

`hangdoc.diagnose(pids=..., hosts=...)` is the Python API (`hangdoc.api`). Importing hangdoc loads nothing else, because the
watchdog imports it in trainers.
"""

from hangdoc.version import __version__

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, without the millisecond that importing typing takes
if TYPE_CHECKING:
    from hangdoc.api import DiagnoseError, Result, diagnose

__all__ = ["DiagnoseError", "Result", "__version__", "diagnose"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'hangdoc' has no attribute {name!r}")
    from hangdoc import api

    return getattr(api, name)
