"""One spelling for each value of a launch line: two texts with the same meaning are equal then. Pure."""

from decimal import Decimal
from posixpath import normpath

from hangdoc.regex import regex

_NUMBER = regex(r"[+-]?(?:(?:0|[1-9]\d{0,12})(?:\.\d{0,14})?|\.\d{1,14})(?:[eE][+-]?\d{1,2})?")
"""`0.01`, `1e-2`; with at most 28 digits, the precision of decimals. `007` is rather a name."""


def spell_value(value: str) -> str:
    """`0.01` of `1e-2`; any text that is no number as it is."""
    return f"{Decimal(value).normalize():f}" if _NUMBER.fullmatch(value) else value


def spell_option(name: str, value: str) -> str:
    """The value of an option of a launcher: a number of nodes as `MIN:MAX`."""
    if name == "nnodes":
        least, _, most = value.partition(":")
        return f"{spell_value(least)}:{spell_value(most or least)}"
    return spell_value(value)


def spell_program(program: str) -> str:
    """`train.py` of `./train.py`."""
    return program if not program or program.startswith("-m ") else normpath(program)
