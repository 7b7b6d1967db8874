"""Python source as it is stored: its structure, names and numbers, and plain literals.

A literal may be anything, wherever it stands: an argument, a default, a row of a table. So it is kept only if it consists of
words of the field, or is a path or an address; a key, a name that a call looks up, or what a condition compares with may also be
another single word. Comments are not kept. The result is still valid code: literals keep their quotes and lines, so that
loops and conditions can be parsed, and different literals of conditions stay different.
"""

import re
from functools import lru_cache
from keyword import iskeyword

from hangdoc.redact import readers
from hangdoc.redact.format_strings import format_string
from hangdoc.redact.literal_names import AFTER, BEFORE, COMPARED, GETS_SECRET, HINT, identifier, literal_secrecy
from hangdoc.redact.names import HARD, NONE, secrecy
from hangdoc.redact.patterns import REDACTED, harmless, text
from hangdoc.redact.shapes import NOT_STORED, is_plain, kept
from hangdoc.redact.values import word
from hangdoc.regex import regex

_PART = 4000
"""Characters. The results of shorter texts are cached; whole files would fill the memory of a watch."""
_MAX_DEPTH = 2
_SHORT = 3
_PIECE, _LONGEST_HINT = 128, 12
_UNFORMATTED = frozenset("rRbBuU")
_OPENS = frozenset("([")
_LITERAL = regex(
    r"(?P<prefix>(?<![\w])[rRbBfFuUtT]{1,2})?(?:"
    r"(?P<triple>\"\"\"|''')(?P<long>(?:[^\\\"']++|\\[\s\S]|(?!(?P=triple))[^\\])*+)(?:(?P=triple)|\Z|\\\Z)"
    r"|(?P<quote>[\"'])(?P<short>(?:[^\\\"'\n]++|\\[\s\S]|(?!(?P=quote))[^\\\n])*+)(?P<end>(?P=quote)|(?=\n)|\Z|\\\Z))"
    r"|(?P<comment>\#[^\n]*+)"
)
_LOOKS_UP = regex(
    r"(?:^|\.)(?:get|getenv|getattr|hasattr|setattr|delattr|pop|setdefault|add_argument|import_module|wait|rpc_sync|rpc_async|remote|init_rpc"
    r"|get_worker_info|register_\w{1,40}|get_backend\w*|new_group|device|autocast|startswith|endswith|glob|open|TypeVar|Literal|NewType)$"
)
"""Calls whose first argument is the name of something."""
_COMPARES = regex(r"(?:==|!=|\bin|\bin\s*[(\[{])$")
_NUMBER = regex(
    r"(?<![\w.])(?P<name>[A-Za-z_][\w.]*+)(?P<sep>\s{0,20}+(?::\s{0,4}\w{1,40}+\s{0,20}+)?(?:={1,2}|!=|\()\s{0,20}+)(?P<number>\d{2,40}+)(?!\w)"
)
_LONG_NUMBER = regex(r"(?<![\w.])(?:0[xX][0-9a-fA-F_]{13,}+|0[bBoO][0-7_]{24,}+|\d[\d_]{15,}+)(?![\w.])")
_VALUE_OF_KEY = regex(r"\s{0,8}:\s{0,8}(?P<number>\d{2,40})\b")
_OPTION = regex(r"--?[A-Za-z][A-Za-z_-]{0,40}")
_VARIABLE = regex(r"[A-Z][A-Z_]{2,60}")
_FORMAT = regex(r"[^A-Za-z0-9]{0,12}|%[\d.]*[a-z]|[rwabx+tU]{1,3}|\.{0,2}/?|\\[ntr\\\"'0]")
_MARKED = regex(r"<str(?: \d{1,4})?>")
_SPACES = regex(r"(?P<before>\s*+)(?P<body>[\s\S]*?)(?P<after>[\s:,;./=-]*)$")
_MAX_FORMAT = 4000


def source(code: str) -> str:
    """Code without literals that may be secrets: a whole file, or a part of it. Never raises, even if the text is not Python."""
    return _part(code) if len(code) < _PART else _Source(code).filtered()


@lru_cache(512)
def _part(code: str) -> str:
    return _Source(code).filtered()


class _Source:
    """One text, filtered once."""

    def __init__(self, code: str, depth: int = 0) -> None:
        self._code, self._depth = code, depth
        self._hints: dict[int, bool] = {}
        """Whether a name that may indicate a secret is in a piece of the text, by its number."""
        self._compared: dict[str, str] = {}
        """Literals of conditions that are not kept, with what replaces each."""

    def filtered(self) -> str:
        """The text without secrets."""
        code, out = self._code, list[str]()
        done, at = 0, 0
        sequence = continued = NONE
        in_key = compared = False
        key_level = NONE
        while (literal := _LITERAL.search(code, at)) is not None:
            start = literal.start()
            between = code[done:start]
            out.append(self._plain_code(between, key_level))
            gap = between.strip("\\ \t\r\n")
            in_key = in_key and gap in ("", ",", "+")  # a private key with one literal or comment per line
            done = at = literal.end()
            key_level = NONE
            if literal.lastgroup == "comment":
                out[-1] = out[-1].rstrip(" \t")
                in_key = _in_key(literal[0], in_key)
                continue
            if literal["prefix"] is not None and not _UNFORMATTED.issuperset(literal["prefix"]):
                end, shown = self._formatted(literal)
                out.append(shown)
                done = at = end
                sequence = continued = NONE
                continue
            group = "long" if literal["triple"] is not None else "short"
            content = literal[group]
            # `"a" "b"` is one text. In `password = ("a", "b")` both are secrets.
            in_sequence = sequence if gap == "," else NONE
            level = (HARD if in_key else NONE) or (NONE if gap else continued) or in_sequence
            if level == NONE and self._has_hint(start, done):
                level = literal_secrecy(code[max(0, start - BEFORE) : start].rstrip(), code[done : done + AFTER])
            in_key = _in_key(content, in_key)
            continued = NONE if in_key else level
            sequence = level if gap[-1:] in _OPENS or in_sequence else NONE
            compared = bool(_COMPARES.search(gap, max(0, len(gap) - 12))) or (compared and gap == ",")
            if level != NONE:
                shown = content if harmless(content, level) else REDACTED
            elif len(content) < _SHORT:
                shown = content
            else:
                compared = compared or bool(COMPARED.match(code, done, done + AFTER))
                shown = self._kept(content, gap, code[done : done + 8], compared=compared)
            key_level = _secrecy_of_key(content)
            if shown == content:
                out.append(literal[0])
            else:
                shown += _lines(content, group)
                out.append(
                    literal[0][: literal.start(group) - start] + shown + literal[0][literal.end(group) - start :]
                )
        out.append(self._plain_code(code[done:], key_level))
        return "".join(out)

    def _has_hint(self, start: int, end: int) -> bool:
        """Whether a name that may indicate a secret is near a literal."""
        before = range(max(0, start - BEFORE) // _PIECE, start // _PIECE + 1)
        after = range(end // _PIECE, (end + AFTER) // _PIECE + 1)
        return any(map(self._hints_in, before)) or any(map(self._hints_in, after))

    def _hints_in(self, piece: int) -> bool:
        has_hint = self._hints.get(piece)
        if has_hint is None:
            has_hint = HINT.search(self._code, max(0, piece * _PIECE - _LONGEST_HINT), (piece + 1) * _PIECE) is not None
            self._hints[piece] = has_hint
        return has_hint

    def _kept(self, content: str, before: str, after: str, *, compared: bool) -> str:
        """What is kept of a literal whose name says nothing."""
        if _FORMAT.fullmatch(content) or _MARKED.fullmatch(content) or content == REDACTED:
            return content
        if len(content) > 200:
            return NOT_STORED
        plain = content.strip() if content[:1] == " " or content[-1:] == " " else content
        if is_plain(plain) or ((_OPTION.fullmatch(content) or _VARIABLE.fullmatch(content)) and is_plain(content, 3)):
            return content
        is_key = after.lstrip()[:1] == ":" or (before[-1:] == "[" and after.lstrip()[:1] == "]")
        called = identifier(before[:-1].rstrip()) if before[-1:] == "(" else ""
        if is_plain(content, 2 if is_key or (called and _LOOKS_UP.search(called)) else 1 if compared else 0):
            return content
        if called and _LOOKS_UP.search(called) and called.rpartition(".")[2].startswith(("rpc", "remote", "init_rpc")):
            return content if is_plain(content, 1) else NOT_STORED
        shown = word(content, readers.NUMBERS)
        if compared and shown == NOT_STORED:
            number = len(self._compared) + 1
            return self._compared.setdefault(content, NOT_STORED if number == 1 else f"<str {number}>")
        return text(shown, strict=True)

    def _formatted(self, literal: re.Match[str]) -> tuple[int, str]:
        """(end, what is kept) of an f-string."""
        prefix, quote = literal["prefix"] or "", literal["triple"] or literal["quote"]
        begin = literal.start() + len(prefix) + len(quote)
        read = format_string(self._code, begin, quote)
        shown = "".join(
            f"{{{self._field(part)}}}" if field else self._text_of_format(part) for field, part in read.parts
        )
        return read.end, prefix + quote + shown + (quote if read.closed else "")

    def _field(self, code: str) -> str:
        if self._depth >= _MAX_DEPTH or len(code) > _MAX_FORMAT:
            return "_" + "\n" * code.count("\n")
        return _Source(code, self._depth + 1).filtered()

    def _text_of_format(self, content: str) -> str:
        """What is kept of the text between the fields of an f-string: plain words, and punctuation."""
        if not content or len(content) > 200:
            return (NOT_STORED if content else "") + "\n" * content.count("\n")
        if _FORMAT.fullmatch(content) or _MARKED.fullmatch(content) or content == REDACTED:
            return content
        split = _SPACES.fullmatch(content)
        body = split["body"] if split is not None else content
        if split is not None and (is_plain(body) or kept(body) == body):
            return content
        spaces = (split["before"], split["after"]) if split is not None else ("", "")
        shown = spaces[0] + NOT_STORED + spaces[1]
        return shown + "\n" * (content.count("\n") - shown.count("\n"))

    def _plain_code(self, code: str, key_level: int) -> str:
        """Code between literals, without numbers that names of secrets are given."""
        if not code:
            return code
        if key_level == HARD and (value := _VALUE_OF_KEY.match(code)) is not None:
            code = f'{code[: value.start("number")]}"{REDACTED}"{code[value.end("number") :]}'
        if any(mark in code for mark in "=("):
            code = _NUMBER.sub(_number, code)
        return _LONG_NUMBER.sub(f'"{NOT_STORED}"', code)


def _in_key(literal: str, before: bool) -> bool:
    """Whether a private key continues after a literal."""
    begins, ends = (literal.rfind(mark) for mark in ("-----BEGIN", "-----END"))
    return begins > ends if max(begins, ends) >= 0 else before


def _secrecy_of_key(content: str) -> int:
    return secrecy(content) if len(content) <= 80 and HINT.search(content) else NONE


def _lines(content: str, group: str) -> str:
    return ("\n" if group == "long" else "\\\n") * content.count("\n")


def _number(match: re.Match[str]) -> str:
    name = match["name"]
    if secrecy(name) != HARD or ("(" in match["sep"] and (GETS_SECRET.search(name) or iskeyword(name))):
        return match[0]
    return f'{name}{match["sep"]}"{REDACTED}"'
