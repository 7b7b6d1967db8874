"""hangdoc: says who everybody is waiting for, and why it does not come, in a frozen torch.distributed run."""

from hangdoc.version import __version__

__all__ = ["__version__"]
