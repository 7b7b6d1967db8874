"""The lines of a source file, as one text."""

import re
from array import array
from collections.abc import Sequence
from typing import overload


class Lines(Sequence[str]):
    """Lines as Python counts them (only a line feed ends one), from 0, each made when it is asked for.

    Lists of the lines of all files that a rank is in while it imports torch would be some 100,000 small objects, and Python's
    allocator would not give all of their memory back.
    """

    def __init__(self, text: str = "") -> None:
        self.text = text
        """With `\\n` after each line, as files are read."""
        ends = (found.end() for found in re.finditer("\n", text))
        self._starts = array("I", [0, *ends, *([len(text) + 1] if not text.endswith("\n") and text else [])])

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
