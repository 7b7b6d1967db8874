"""The lines of a source file, as one text."""

from array import array
from collections.abc import Sequence
from io import StringIO
from itertools import accumulate
from typing import overload


class Lines(Sequence[str]):
    """The lines of a text, numbered from 0. As in Python, only a line feed ends a line. Each line is created on access.

    While a rank imports torch, lists of the lines of all files on its stack would be some 100,000 small objects, and Python's
    allocator would not return all of their memory.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text
        """Each line ends with `\\n`, as in a file."""
        self._starts = array("I", accumulate(map(len, StringIO(text, newline="\n")), initial=0))
        if text and not text.endswith("\n"):
            self._starts[-1] += 1

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self.text[self._starts[at] : self._starts[at + 1] - 1]
