"""Looks at this host again and again, as gently as can be."""

import os

import msgspec

from hangdoc.observe.observe import Options, observe
from hangdoc.snapshot import Snapshot


class Again:
    """The stacks of one look are the first of the next. Native stacks hold a rank for more than half a second, so they are
    taken only of a rank that has stood at one place since the last look, and kept for as long as it stands there."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._earlier: Snapshot | None = None

    def look(self) -> Snapshot:
        """One look. Never raises for what can't be seen."""
        first = msgspec.structs.replace(self._options, native="never")
        options = first if self._earlier is None else self._options
        self._earlier = observe(options, earlier=self._earlier)
        return self._earlier


def cpu_seconds() -> float:
    """What looking has cost so far: CPU of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
