"""Parses numbers and conditions in texts from outside: processes, bundles, command lines, source."""

import ast
from functools import lru_cache

from hangdoc.regex import regex

_NAME = regex(r"[A-Za-z_][\w.]*")
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


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


def names_in(source: str) -> list[str]:
    """The names in Python source, attributes with what they are of: `self.seen`. Words in strings count too."""
    return _NAME.findall(source)


def shows_address(value: str) -> bool:
    """Whether the text of a variable is only a type and an address, `<Stopper at 0x7f>`: two objects always differ in it."""
    return " at 0x" in value


@lru_cache(1024)
def negated(test: str) -> str:
    """The negation of a condition in Python source: `rank != 0` for `rank == 0`, `x` for `not x`; `not (...)` in general."""
    try:
        node = ast.parse(test, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):  # it may be cut, or be an `except`
        return f"not ({test})"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ast.unparse(node.operand)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and (opposite := _OPPOSITES.get(type(node.ops[0]))):
        return ast.unparse(ast.Compare(node.left, [opposite()], node.comparators))
    return f"not {test}" if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"not ({test})"


def are_opposite(one: str, other: str) -> bool:
    """Whether one of two conditions is the negation of the other."""
    return negated(one) == other or one == negated(other)
