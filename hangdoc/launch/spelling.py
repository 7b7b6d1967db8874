"""One spelling for each value of a launch line: two texts with the same meaning are equal then. Pure."""

from decimal import Decimal
from posixpath import normpath

from hangdoc.regex import regex
from hangdoc.run_identity import spell_endpoint, spell_number

_NUMBER = regex(r"[+-]?(?:(?:0|[1-9]\d{0,12})(?:\.\d{0,14})?|\.\d{1,14})(?:[eE][+-]?\d{1,2})?")
"""`0.01`, `1e-2`; with at most 28 digits, the precision of decimals. `007` is rather a name."""
_IN_BRACES = regex(r"\$\{(\w+)\}(?!\w)")
"""A variable that the text does not set. Before a letter or a digit, it needs the braces."""
_WHOLE_NUMBERS = frozenset({
    "main-port", "main-process-port", "machine-rank", "master-port", "max-restarts", "node-rank", "nproc-per-node",
})  # fmt: skip
"""Options of launchers that read their value with Python's `int`, for which `029500` is 29500."""


def spell_value(value: str) -> str:
    """`0.01` of `1e-2`, `$LR` of `${LR}`; any other text as it is."""
    if _NUMBER.fullmatch(value):
        return f"{Decimal(value).normalize():f}"
    return spell_unset(value)


def spell_unset(text: str) -> str:
    """`$LR` of `${LR}`, a variable that the lines do not set."""
    return _IN_BRACES.sub(r"$\1", text)


def spell_option(name: str, value: str) -> str:
    """The value of an option of a launcher: a number of nodes as `MIN:MAX`, the port of an endpoint as a number."""
    if name == "nnodes":
        least, _, most = value.partition(":")
        return f"{_spell_whole(least)}:{_spell_whole(most or least)}"
    if name == "rdzv-endpoint":
        return spell_endpoint(spell_value(value))
    return _spell_whole(value) if name in _WHOLE_NUMBERS else spell_value(value)


def _spell_whole(value: str) -> str:
    """`29500` of `029500`; any other text as any value."""
    return spell_value(spell_number(value))


def spell_program(program: str) -> str:
    """`train.py` of `./train.py`."""
    return program if not program or program.startswith("-m ") else normpath(program)
