"""Whether a condition in the source holds, by the values of variables."""

import ast
import contextlib
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hangdoc.parse import evaluate, parsed_expression, rounded, was_removed
from hangdoc.snapshot import MOST_OF_CONDITION, Exit, Frame, Local, Loop

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


def find_truth(test: str, variables: Sequence[Local]) -> bool | None:
    """Whether a condition holds where these are the variables, the innermost first; None if they do not decide it, and if it may
    be cut."""
    node = parsed_expression(test) if len(test) < MOST_OF_CONDITION else None
    return _find_truth(node, partial(_find_value, variables)) if node is not None else None


def is_ruled_out(exit_: Exit, loop: Loop, frame: Frame) -> bool:
    """Whether a statement of a loop of a frame has not run, by the arguments of its function: a test around it is false, and the
    function does not assign to what that names."""
    fixed = [each for each in frame.locals if each.argument and each.name in loop.settings]
    return bool(fixed) and any(find_truth(test, fixed) is False for test in exit_.conditions)


def read_constant(variables: Sequence[Local], name: str) -> str | None:
    """The value of a variable, `rounded`: a number, a string, True, False or None. The texts of other values show only what they
    are (`float32[8]`)."""
    text = _read_literal(variables, name)
    return rounded(text) if text is not None else None


def _read_literal(variables: Sequence[Local], name: str) -> str | None:
    text = _find_text(variables, name)
    node = parsed_expression(text)
    value = node.operand if isinstance(node, ast.UnaryOp) else node
    return text if isinstance(value, ast.Constant) and not was_removed(str(value.value)) else None


def _find_text(variables: Sequence[Local], name: str) -> str:
    return next((local.text for local in variables if local.name == name), "")


def _find_truth(node: ast.expr, value_of: Callable[[ast.expr], tuple[Any] | None]) -> bool | None:
    match node:
        case ast.BoolOp(op=joined, values=operands):
            decides = isinstance(joined, ast.Or)  # one operand with this value decides
            truths = [_find_truth(operand, value_of) for operand in operands]
            return decides if decides in truths else None if None in truths else not decides
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            truth = _find_truth(operand, value_of)
            return None if truth is None else not truth
        case ast.Compare(left=left, ops=[compares], comparators=[right]) if type(compares) in _COMPARISONS:
            sides = (value_of(left), value_of(right))
            if None in sides:
                return None
            with contextlib.suppress(TypeError):
                return _COMPARISONS[type(compares)](sides[0][0], sides[1][0])  # type: ignore[index]
            return None
        case _:
            value = value_of(node)
            return bool(value[0]) if value is not None else None


def _find_value(variables: Sequence[Local], node: ast.expr) -> tuple[Any] | None:
    """The value of a constant, a variable, an entry of a dict or a short sum; None if it is not known."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)):
            entries = parsed_expression(_find_text(variables, name))
            pairs = zip(entries.keys, entries.values, strict=True) if isinstance(entries, ast.Dict) else ()
            found = (each for at, each in pairs if isinstance(at, ast.Constant) and at.value == key)
            entry = next(found, None)
            return (entry.value,) if isinstance(entry, ast.Constant) and not was_removed(str(entry.value)) else None
    return evaluate(node, partial(_read_literal, variables))
