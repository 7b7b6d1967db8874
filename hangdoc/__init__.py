"""hangdoc finds the rank that a frozen torch.distributed run is waiting for, and why.

`hangdoc.diagnose(pids=..., hosts=...)` is the Python API (`hangdoc.api`). Importing hangdoc loads nothing else, because the
watchdog imports it in trainers.
"""

import sys
from types import ModuleType

from hangdoc.version import __version__

TYPE_CHECKING = False  # like typing.TYPE_CHECKING, without the millisecond that importing typing takes
if TYPE_CHECKING:
    from inspect import Signature
    from typing import Any

    from hangdoc.api import DiagnoseError, Result, diagnose

__all__ = ["DiagnoseError", "Result", "__version__", "diagnose"]


# `hangdoc.diagnose` is the package of the reasoning and the function of the API. The import system sets the name to the package
# when that is loaded: a function of this name would be lost, and a module's `__getattr__` (PEP 562) would not be asked. So the
# package itself is callable. Type checkers see the function here, and `from hangdoc.diagnose import ...` finds the package.
class _CallablePackage(ModuleType):
    """The package `hangdoc.diagnose`, made callable: calling it calls the API function of the same name."""

    def __call__(self, *arguments: "Any", **options: "Any") -> "Result":
        from hangdoc.api import diagnose

        return diagnose(*arguments, **options)

    @property
    def __signature__(self) -> "Signature":
        from inspect import signature

        from hangdoc.api import diagnose

        return signature(diagnose)

    def __reduce__(self) -> "tuple[Any, ...]":
        from importlib import import_module

        return import_module, (self.__name__,)  # a module is not pickled, but a function is sent to other processes


class _Package(ModuleType):
    """hangdoc itself. A package that is set as the attribute `diagnose` becomes callable."""

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
