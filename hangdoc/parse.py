"""Parses numbers and conditions in texts from outside: processes, bundles, command lines, source."""

import ast
import contextlib
import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

from hangdoc.regex import regex

_MAX_SOURCE = 2_000
"""Characters. Observed lines and conditions have at most 200."""
_VERSION = regex(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", re.ASCII)
_FLOAT = regex(r"-?\d{1,20}(?:\.\d{1,20}(?:e[+-]?\d{1,3})?|e[+-]?\d{1,3})")
_NAME = regex(r"[A-Za-z_][\w.]*")
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_MOST_OPERATIONS = 8


def integer(text: str | None) -> int | None:
    """A decimal integer of at most 18 ASCII digits; None for anything else."""
    if not text:
        return None
    digits = text[1:] if text[0] == "-" else text
    return int(text) if digits.isdigit() and digits.isascii() and len(digits) <= 18 else None


def rounded(text: str) -> str:
    """A number with a point or an exponent to six digits, and any other text as it is: two clocks always differ in the rest."""
    if _FLOAT.fullmatch(text) is None:
        return text
    return f"{float(text):g}"


def natural(text: str | None) -> int | None:
    """As `integer`, but None for negative numbers."""
    number = integer(text)
    return number if number is not None and number >= 0 else None


def version(text: str) -> tuple[int, int, int] | None:
    """The version at the beginning of a text, without that of the build: (2, 6, 0) of `2.6.0a0+git5`; None if there is none."""
    match = _VERSION.match(text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match is not None else None


def names_in(source: str) -> list[str]:
    """The names in Python source, attributes with what they are of: `self.seen`. Words in strings count too."""
    return _NAME.findall(source)


def was_removed(text: str) -> bool:
    """Whether a text of a snapshot stands for one that was not stored (`hangdoc.redact`). Two of them may be different texts."""
    return text.startswith(("<str", "<redacted"))


def has_removed_part(text: str) -> bool:
    """Whether a part of a text was not stored, as of a path with a secret in it."""
    return any(mark in text for mark in ("<str", "<redacted"))


def shows_address(value: str) -> bool:
    """Whether the text of a variable is only a type and an address, `<Stopper at 0x7f>`: two objects always differ in it."""
    return " at 0x" in value


def parsed_statement(text: str, most: int = _MAX_SOURCE) -> ast.Module | None:
    """The syntax tree of a piece of Python source; None for any other text, and for one that is deep or has more than `most`
    characters."""
    tree = _parse(text, "exec", most)
    return tree if isinstance(tree, ast.Module) else None


def parsed_expression(text: str) -> ast.expr | None:
    """As `parsed_statement`, of an expression."""
    tree = _parse(text, "eval")
    return tree.body if isinstance(tree, ast.Expression) else None


def _parse(text: str, mode: Literal["exec", "eval"], most: int = _MAX_SOURCE) -> ast.AST | None:
    if len(text) > most:
        return None
    try:
        return ast.parse(text, mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # MemoryError: the parser's stack is full
        return None


def unparsed(node: ast.expr) -> str | None:
    """As `write_condition`; None for a tree that is too deep, or has an int of more than 4,300 digits."""
    try:
        return write_condition(node)
    except (ValueError, RecursionError):
        return None


def write_condition(node: ast.expr) -> str:
    """The source of a condition. `ast.unparse` puts parentheses around `not b` in `a and not b`, which nobody writes. Raises what
    that raises."""
    if isinstance(node, ast.BoolOp):
        word, loose = (" and ", ast.BoolOp) if isinstance(node.op, ast.And) else (" or ", ())
        return word.join(_write_operand(operand, loose) for operand in node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return f"not {_write_operand(node.operand, (ast.BoolOp,))}"
    return ast.unparse(node)


def _write_operand(node: ast.expr, loose: type[ast.expr] | tuple[type[ast.expr], ...]) -> str:
    """An operand, in parentheses if it binds less than what is around it: if it is one of `loose`, or unparsed with them."""
    negates = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    if not negates and not isinstance(node, ast.BoolOp):
        return ast.unparse(ast.UnaryOp(ast.Not(), node)).removeprefix("not ")
    text = write_condition(node)
    return f"({text})" if isinstance(node, loose) else text


def evaluate(node: ast.expr, read: Callable[[str], str | None], depth: int = 0) -> tuple[Any] | None:
    """The value of a constant, a variable or a short sum; None if it is not known. `read` says the value of a variable as source,
    None if it does not know it."""
    if isinstance(node, ast.Constant):
        return (node.value,)
    if isinstance(node, ast.BinOp):
        if depth == _MOST_OPERATIONS:
            return None
        sides = (evaluate(node.left, read, depth + 1), evaluate(node.right, read, depth + 1))
        compute = _OPERATIONS.get(type(node.op))
        if compute is None or not all(side is not None and type(side[0]) is int for side in sides):
            return None
        with contextlib.suppress(ZeroDivisionError):
            return (compute(*(side[0] for side in sides if side is not None)),)
        return None
    text = read(unparsed(node) or "") if isinstance(node, ast.Name | ast.Attribute) else None
    # `-'a'` is no literal, and neither is what stands for a float that is too large.
    with contextlib.suppress(ValueError):
        return (ast.literal_eval(text),) if text is not None else None
    return None


def negated(test: str) -> str:
    """The negation of a condition in Python source: `rank != 0` for `rank == 0`, `x` for `not x`; `not (...)` in general."""
    return _negated(test) if len(test) <= _MAX_SOURCE else f"not ({test})"


@lru_cache(1024)
def _negated(test: str) -> str:
    node = parsed_expression(test)  # None if it is cut, or an `except`
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return unparsed(node.operand) or f"not ({test})"
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and (opposite := _OPPOSITES.get(type(node.ops[0]))):
        return unparsed(ast.Compare(node.left, [opposite()], node.comparators)) or f"not ({test})"
    return f"not {test}" if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) else f"not ({test})"


def denied(test: str) -> str | None:
    """What a condition denies as a whole, as the source has it: `not a and b` for `not (not a and b)`. None if it is none of
    these; `not done` is plain enough."""
    node = parsed_expression(test)
    if not isinstance(node, ast.UnaryOp) or not isinstance(node.op, ast.Not):
        return None
    return unparsed(node.operand) if isinstance(node.operand, ast.BoolOp | ast.Compare) else None


def are_opposite(first: str, second: str) -> bool:
    """Whether one of two conditions is the negation of the other."""
    return negated(first) == second or first == negated(second)


def encodable(text: str) -> str:
    """A text that can be written as UTF-8. Bytes of a path that are no UTF-8, which Python holds as lone surrogates (PEP 383),
    are shown as in Python: `\\xff`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        surrogates = (char for char in text if "\ud800" <= char <= "\udfff")
        how = "surrogateescape" if all("\udc80" <= char <= "\udcff" for char in surrogates) else "backslashreplace"
        return text.encode("utf-8", how).decode("utf-8", "backslashreplace")
    return text
