"""The types of options that are numbers. Whatever is not a finite number in the range is bad usage, with one sentence."""

import math
import re
from typing import Any

import click

_MAX_BYTES = 1 << 60


class Number(click.FloatRange):
    """A number from `low` to `high`; without `high`, any finite number of at least `low`. `whole`: an integer.

    click's own types accept NaN, because it is neither below nor above a limit, and infinity where a limit is missing.
    """

    name = "number"

    def __init__(self, low: float, high: float | None = None, *, whole: bool = False) -> None:
        super().__init__(low, high)
        self._low, self._high, self._whole = low, high, whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = int(value) if self._whole else float(value)
        except ValueError:
            number = math.nan
        if not (self._low <= number and (number < math.inf if self._high is None else number <= self._high)):
            range_ = f"of at least {self._low:g}" if self._high is None else f"from {self._low:g} to {self._high:g}"
            self.fail(f"{str(value)[:40]!r} is not a {'whole ' * self._whole}number {range_}.", param, ctx)
        return number


class ByteSize(click.ParamType[int]):
    """A number of bytes: 500M, 20G, 1048576. Suffixes are powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d{1,20}(?:\.\d+)?)([KMGT]?)(?:i?B)?", str(value), re.IGNORECASE | re.ASCII)
        size = int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " ")) if match is not None else -1
        if not 0 <= size <= _MAX_BYTES:
            self.fail(
                f"{str(value)[:40]!r} is not a size. Give a number of bytes, for example 500M or 20G.", param, ctx
            )
        return size
