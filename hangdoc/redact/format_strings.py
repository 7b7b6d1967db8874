"""Reads f-strings. Their fields are code, which since Python 3.12 may contain the quotes of the f-string itself (PEP 701)."""

from typing import NamedTuple

from hangdoc.regex import regex

_PIECE = regex(r"[^{}'\"\\\n]++|\\[\s\S]|\{\{|\}\}|[{}'\"\n]|\\\Z")
_LITERAL = regex(
    r"(?P<triple>\"\"\"|''')(?:[^\\\"']++|\\[\s\S]|(?!(?P=triple))[^\\])*+(?:(?P=triple)|\\?\Z)"
    r"|(?P<quote>[\"'])(?:[^\\\"'\n]++|\\[\s\S]|(?!(?P=quote))[^\\\n])*+(?:(?P=quote)|(?=\n)|\\?\Z)"
)


class FormatString(NamedTuple):
    """The text of an f-string."""

    end: int
    """Where the code after it begins."""
    parts: list[tuple[bool, str]]
    """Its texts, and its fields (True) without their braces."""
    closed: bool


def format_string(code: str, begin: int, quote: str) -> FormatString:
    """The f-string whose text begins at `begin`, after `quote`. It is not closed if the code ends before it does, or its line."""
    parts: list[tuple[bool, str]] = []
    text: list[str] = []
    at = begin
    while (piece := _PIECE.match(code, at)) is not None:
        if code.startswith(quote, at):
            return FormatString(at + len(quote), [*parts, (False, "".join(text))], closed=True)
        if piece[0] == "\n" and len(quote) == 1:
            break
        at = piece.end()
        if piece[0] != "{":
            text.append(piece[0])
            continue
        end, closed = _end_of_field(code, at)
        parts += [(False, "".join(text)), (True, code[at:end])]
        text, at = [], end + closed
        if not closed:
            break
    return FormatString(at, [*parts, (False, "".join(text))], closed=False)


def _end_of_field(code: str, begin: int) -> tuple[int, bool]:
    """(position of the brace that closes a field, whether there is one)."""
    at, depth = begin, 1
    while (piece := _PIECE.match(code, at)) is not None:
        if piece[0] in ("'", '"'):
            literal = _LITERAL.match(code, at)
            at = literal.end() if literal is not None else piece.end()
            continue
        for brace in piece[0] if piece[0] in ("{", "{{", "}", "}}") else "":
            depth += 1 if brace == "{" else -1
            if depth == 0:
                return at, True
            at += 1
        at = max(at, piece.end())
    return len(code), False
