"""Parses numbers and conditions in texts from outside: processes, bundles, command lines, source."""

import re

from hangdoc.regex import regex

_COMPARISON = regex(r"^([\w.\[\]()'\"]+) (==|!=) ([\w.\[\]()'\"]+)$")


def integer(text: str | None) -> int | None:
    """A decimal integer of at most 18 ASCII digits; None for anything else."""
    if not text:
        return None
    digits = text[1:] if text[0] == "-" else text
    return int(text) if digits.isdigit() and digits.isascii() and len(digits) <= 18 else None


def natural(text: str | None) -> int | None:
    """As `integer`, but None for negative numbers."""
    number = integer(text)
    return number if number is not None and number >= 0 else None


def negated(test: str) -> str:
    """The negation of a condition in Python source: `rank != 0` for `rank == 0`; `not (...)` in general."""
    if match := _COMPARISON.match(test):
        return f"{match[1]} {'!=' if match[2] == '==' else '=='} {match[3]}"
    if test.startswith("not (") and test.endswith(")"):
        return test[5:-1]
    if re.fullmatch(r"not [\w.]+(\(\))?", test):
        return test[4:]
    return f"not ({test})"
