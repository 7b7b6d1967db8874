"""Regular expressions that are compiled on first use. A diagnose of two ranks imports a hundred, whose compilation takes 15 ms,
and uses half of them."""

import re
import sys
from typing import Any, AnyStr, Generic, cast

_POSSESSIVE = (3, 11, 5)
"""The first Python whose possessive repetitions match what they should (https://github.com/python/cpython/issues/106052). Since
3.11.0 they exist, but give up on texts that match: Debian 12 has Python 3.11.2."""
_PARTS = (
    r"""\\[\s\S]|\[\^?\]?(?:\\[\s\S]|[^\]\\])*\]|\(\?P=\w+\)"""
    r"""|(?P<open>\((?:\?(?:P<\w+>|<?[=!]|:))?)|(?P<close>\))"""
    r"""|(?P<repeats>(?:[*+?]|\{(?:\d+(?:,\d*)?|,\d+)\})(?P<how>[+?]?))|[\s\S]"""
)
"""The parts of an expression: what matches, where a group begins and ends, how often it is repeated."""


class _Later(Generic[AnyStr]):
    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `copy` and others look up special methods
            raise AttributeError(name)
        text = self._text
        if sys.version_info < _POSSESSIVE and isinstance(text, str):
            text = without_possessive(text)
        attribute = getattr(re.compile(text, self._flags), name)
        setattr(self, name, attribute)  # the next access does not come here
        return attribute


def regex(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`, but compiled on first use."""
    return cast("re.Pattern[AnyStr]", _Later(text, flags))


def without_possessive(text: str) -> str:
    """An expression for older Pythons, without possessive repetitions (`X*+`). What a look-ahead has matched is
    not tried again either, so `(?=(X*))` and a reference to its group match the same text in the same time."""
    out: list[str] = []
    opened: list[int] = []
    begin = count = 0
    for part in re.finditer(_PARTS, text):
        if part["open"]:
            opened.append(len(out))
        elif part["close"]:
            begin = opened.pop()
        elif part["how"] == "+":
            count += 1
            whole = "".join([*out[begin:], part["repeats"][:-1]])
            out[begin:] = [f"(?=(?P<possessive_{count}>{whole}))(?P=possessive_{count})"]
            continue
        elif not part["repeats"]:
            begin = len(out)
        out.append(part[0])
    return "".join(out)
