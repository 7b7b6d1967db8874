"""Python source without secrets: literals whose name indicates a secret, and literals and comments that look like one.

The result is still valid code: literals keep their quotes and lines, so that loops and conditions can be parsed.
"""

import re
from functools import lru_cache
from keyword import iskeyword

from hangdoc.redact.names import HARD, NONE, SOFT, secrecy
from hangdoc.redact.patterns import REDACTED, harmless, text, tokens
from hangdoc.regex import regex

_BEFORE, _AFTER = 160, 80
_PART = 4000
"""Characters. The results of shorter texts are cached; whole files would fill the memory of a watch."""
_LITERAL = regex(
    r"(?P<prefix>(?<![\w])[rRbBfFuU]{1,2})?(?:"
    r"(?P<triple>\"\"\"|''')(?P<long>(?:\\[\s\S]|(?!(?P=triple))[^\\])*)(?:(?P=triple)|\Z)"
    r"|(?P<quote>[\"'])(?P<short>(?:\\[\s\S]|(?!(?P=quote))[^\\\n])*)(?P<end>(?P=quote)|(?=\n)|\Z))"
    r"|(?P<comment>\#[^\n]*)"
)
_HINT = regex(
    "pass|pw|ps?wd|psw|secret|cred|key|token|auth|cookie|sig|hook|cert|salt|bearer|jwt|sas|dsn|otp|pin|conn|session|pat|log_?in",
    re.IGNORECASE,
)
"""Matches every name that `secrecy` recognizes. A quick test, because most literals have no such name near them."""
_OPERATORS = ("==", "!=", ":=", "+=", "=", " in", " or", " else")
_DEFAULT = regex(r"[\"'](?P<name>--?[\w-]{2,80})[\"'][^\"'()\n]*,\s*default\s*=\s*$")
_LOGS_IN = regex(r"(?i)(?:^|[._])(?:login|log_in|authenticate|auth)$")
_GETS_SECRET = regex(r"(?i)(?:^|[._])(?:get|has|is|load|read|find|del|pop|require)")
"""The argument of `password("x")` and `set_token("x")` is a secret; that of `get_token("name")` and `getpass("x")` is not."""
_TARGET = regex(r"\s*(?P<name>[A-Za-z_][\w.]*)\s*(?::[^=]{1,60})?=(?!=)")
_COMPARED = regex(
    r"\s*(?P<operator>==|!=|\bin\b)\s*(?P<name>[A-Za-z_][\w.]*)(?:\[\s*[\"'](?P<item>[^\"'\n]{1,80})[\"'])?"
)
_NUMBER = regex(r"(?P<name>[A-Za-z_][\w.]*)(?P<sep>\s*(?::\s*\w+\s*)?={1,2}\s*)(?P<number>\d{2,})\b")


def source(code: str) -> str:
    """Code without secrets: a whole file, or a part of it. Never raises, even if the text is not Python."""
    return _part(code) if len(code) < _PART else _filtered(code)


@lru_cache(256)
def _part(code: str) -> str:
    return _filtered(code)


def _filtered(code: str) -> str:
    out: list[str] = []
    done = 0
    sequence = continued = NONE
    in_key = False
    for found in _LITERAL.finditer(code):
        between = code[done : found.start()]
        out.append(_numbers(between))
        done = found.end()
        gap = between.strip("\\ \t\r\n")
        in_key = in_key and gap in ("", ",", "+")  # a private key with one literal or comment per line
        if found["comment"] is not None:
            out.append(f"#{REDACTED}" if in_key else text(found[0], strict=True, prose=True))
            in_key = _in_key(found[0], in_key)
            continue
        group = "long" if found["triple"] is not None else "short"
        content = found[group]
        before = code[max(0, found.start() - _BEFORE) : found.start()].rstrip()
        # `"a" "b"` is one text. In `password = ("a", "b")` both are secrets.
        in_sequence = sequence if gap == "," else NONE
        level = (
            (HARD if in_key else NONE)
            or (NONE if gap else continued)
            or in_sequence
            or _level(code, before, found.end())
        )
        in_key = _in_key(content, in_key)
        continued = NONE if in_key else level
        sequence = level if before[-1:] in "([" or in_sequence else NONE
        if level == NONE:
            kept = text(content, strict=True, prose=True)
        else:
            kept = content if harmless(content, level) else REDACTED + _lines(content, group)
        start, end = found.start(group) - found.start(), found.end(group) - found.start()
        out.append(found[0] if kept == content else found[0][:start] + kept + found[0][end:])
    out.append(_numbers(code[done:]))
    return tokens("".join(out))


def _in_key(literal: str, before: bool) -> bool:
    """Whether a private key continues after a literal."""
    begins, ends = (literal.rfind(mark) for mark in ("-----BEGIN", "-----END"))
    return begins > ends if max(begins, ends) >= 0 else before


def _level(code: str, before: str, end: int) -> int:
    """Secrecy of the name that a literal belongs to, from the code before and after the literal."""
    after = code[end : end + _AFTER]
    if not _HINT.search(before) and not _HINT.search(after):
        return NONE
    names = _names_before(before)
    if match := _COMPARED.match(after):
        compared = [match["name"], match["item"] or ""]
        names += [name for name in compared if match["operator"] != "in" or secrecy(name) == HARD]
    return max(map(secrecy, names), default=NONE)


def _names_before(before: str) -> list[str]:
    plain = before.rstrip("([").rstrip()
    if before.endswith("(") and (called := _identifier(plain)) and not iskeyword(called):
        return (
            ["password"]
            if _LOGS_IN.search(called)
            else []
            if _GETS_SECRET.search(called)
            else [called, *_target(plain, HARD)]
        )
    if plain.endswith(":"):
        return [_quoted(plain[:-1].rstrip())]
    if plain.endswith(","):  # `"--api-key", "x"`, `("PASSWORD", "x")`
        return [*_name_in_literal(_quoted(plain[:-1].rstrip())), *_target(plain, HARD)]
    operator = next((one for one in _OPERATORS if plain.endswith(one)), None)
    if operator is None:
        return []
    names = _target(plain) if operator in (" or", " else") else []
    if match := _DEFAULT.search(plain):
        names.append(match["name"])
    plain = plain.removesuffix(operator).removesuffix(" not").rstrip()
    if plain.endswith("]"):
        plain, _, item = plain.rpartition("[")
        names.append(item.rstrip("]").strip().strip("\"'"))
    owner, _, kind = plain.rpartition(":")
    if owner and len(kind) < 60 and not set(kind) & set("\n=\"'"):  # password: str = "x"
        names.append(_identifier(owner))
    called = _identifier(plain)
    if operator == "=" and plain.removesuffix(called).rstrip().endswith(","):  # setdefault("PASSWORD", default="x")
        names += _name_in_literal(_quoted(plain.removesuffix(called).rstrip()[:-1].rstrip()))
    return [*names, called]


def _target(code: str, level: int = SOFT) -> list[str]:
    """The name that the line assigns to, if its secrecy is at least `level`: `password = get("name", "x")`."""
    target = _TARGET.match(code.rpartition("\n")[2])
    return [target["name"]] if target is not None and secrecy(target["name"]) >= level else []


def _identifier(code: str) -> str:
    """The (dotted) name at the end of `code`."""
    at = len(code)
    while at and (code[at - 1].isalnum() or code[at - 1] in "_."):
        at -= 1
    return code[at:]


def _quoted(code: str) -> str:
    """The content of the literal at the end of `code`; empty for other code."""
    mark = code[-1:]
    return code[:-1].rpartition(mark)[2] if mark and mark in "\"'" else ""


def _name_in_literal(name: str) -> list[str]:
    """The preceding literal, if it is the name of an option or a variable."""
    names = name.startswith("-") or name.isupper() or name.lower() in ("authorization", "cookie", "token")
    return [name] if name and " " not in name and (names or secrecy(name) == HARD) else []


def _lines(content: str, group: str) -> str:
    return ("\n" if group == "long" else "\\\n") * content.count("\n")


def _numbers(code: str) -> str:
    return _NUMBER.sub(_number, code) if "=" in code else code


def _number(match: re.Match[str]) -> str:
    return match[0] if secrecy(match["name"]) != HARD else f'{match["name"]}{match["sep"]}"{REDACTED}"'
