"""hangdoc: finds out which rank a frozen torch.distributed run is waiting for, and why."""

from hangdoc.version import __version__

__all__ = ["__version__"]
