"""Results that are kept from one snapshot to the next."""

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ByIdentity(Generic[K, V]):
    """Results of values that nobody changes, by the identity of the value: in two polls, most are the same objects. A result is
    dropped when a snapshot did not use it."""

    def __init__(self) -> None:
        self._results: dict[int, tuple[K, V]] = {}
        """Each with its value, so that no other value gets its identity."""
        self._before: dict[int, tuple[K, V]] = {}

    def begin(self, *, keep: bool = True) -> None:
        """Begin a snapshot. Without `keep`, everything is computed again."""
        self._before, self._results = self._results if keep else {}, {}

    def get(self, value: K, compute: Callable[[K], V]) -> V:
        """The result for a value."""
        kept = self._results.get(id(value))
        if kept is None:
            kept = self._before.get(id(value)) or (value, compute(value))
            self._results[id(value)] = kept
        return kept[1]
