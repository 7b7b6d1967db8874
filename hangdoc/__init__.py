"""hangdoc finds the rank that a frozen torch.distributed run is waiting for, and why.

`hangdoc.diagnose(pids=..., hosts=...)` is the Python API (`hangdoc.api`). Importing hangdoc loads nothing else, because the
watchdog imports it in trainers.
"""

import sys
from types import ModuleType

from hangdoc.version import __version__

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, without the millisecond that importing typing takes
if TYPE_CHECKING:
    from typing import Any

    from hangdoc.api import DiagnoseError, Result, diagnose

__all__ = ["DiagnoseError", "Result", "__version__", "diagnose"]


class _CallablePackage(ModuleType):
    """The package `hangdoc.diagnose`, made callable: calling it calls the API function of the same name."""

    def __call__(self, *arguments: "Any", **options: "Any") -> "Result":
        from hangdoc.api import diagnose

        return diagnose(*arguments, **options)


class _Package(ModuleType):
    """hangdoc itself. The import system sets the attribute `diagnose` to the package when it loads that."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "diagnose" and isinstance(value, ModuleType):
            value.__class__ = _CallablePackage
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> "Any":
        from importlib import import_module

        if name == "diagnose":
            return import_module("hangdoc.diagnose")
        if name in ("DiagnoseError", "Result"):
            return getattr(import_module("hangdoc.api"), name)
        raise AttributeError(f"module 'hangdoc' has no attribute {name!r}")


sys.modules[__name__].__class__ = _Package
