"""Python source without the secrets in it: literals at a name that names a secret, and literals and comments that look like one.

The code stays code: a literal keeps its quotes and its lines, so that loops and conditions can be parsed from what is left.
"""

import re
from functools import lru_cache
from keyword import iskeyword

from hangdoc.redact.looks import REDACTED, harmless, text, tokens
from hangdoc.redact.names import HARD, NONE, SOFT, secrecy
from hangdoc.regex import regex

_BEFORE, _AFTER = 160, 80
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
"""In every name that `secrecy` knows of: most literals stand at none."""
_OPERATORS = ("==", "!=", ":=", "+=", "=", " in", " or", " else")
_DEFAULT = regex(r"[\"'](?P<name>--?[\w-]{2,80})[\"'][^\"'()\n]*,\s*default\s*=\s*$")
_LOGS_IN = regex(r"(?i)(?:^|[._])(?:login|log_in|authenticate|auth)$")
_ASKS = regex(r"(?i)(?:^|[._])(?:get|has|is|load|read|find|del|pop|require)")
"""`password("x")` and `set_token("x")` are given a secret, `get_token("name")` and `getpass("prompt")` are not."""
_TARGET = regex(r"\s*(?P<name>[A-Za-z_][\w.]*)\s*(?::[^=]{1,60})?=(?!=)")
_COMPARED = regex(
    r"\s*(?P<operator>==|!=|\bin\b)\s*(?P<name>[A-Za-z_][\w.]*)(?:\[\s*[\"'](?P<item>[^\"'\n]{1,80})[\"'])?"
)
_NUMBER = regex(r"(?P<name>[A-Za-z_][\w.]*)(?P<sep>\s*(?::\s*\w+\s*)?={1,2}\s*)(?P<number>\d{2,})\b")


@lru_cache(256)
def source(code: str) -> str:
    """Code of any length, a whole file or a line of it. Never raises, also not for what is no Python."""
    out: list[str] = []
    done = 0
    sequence = continued = NONE
    in_key = False
    for found in _LITERAL.finditer(code):
        between = code[done : found.start()]
        out.append(_numbers(between))
        done = found.end()
        gap = between.strip("\\ \t\r\n")
        in_key = in_key and gap in ("", ",", "+")  # a private key, one literal or comment a line
        if found["comment"] is not None:
            out.append(f"#{REDACTED}" if in_key else text(found[0], strict=True, prose=True))
            in_key = _in_key(found[0], in_key)
            continue
        group = "long" if found["triple"] is not None else "short"
        content = found[group]
        before = code[max(0, found.start() - _BEFORE) : found.start()].rstrip()
        # `"a" "b"` is one text; in `password = ("a", "b")` both are.
        among = sequence if gap == "," else NONE
        level = (HARD if in_key else NONE) or (NONE if gap else continued) or among or _level(code, before, found.end())
        in_key = _in_key(content, in_key)
        continued = NONE if in_key else level
        sequence = level if before[-1:] in "([" or among else NONE
        if level == NONE:
            kept = text(content, strict=True, prose=True)
        else:
            kept = content if harmless(content, level) else REDACTED + _lines(content, group)
        start, end = found.start(group) - found.start(), found.end(group) - found.start()
        out.append(found[0] if kept == content else found[0][:start] + kept + found[0][end:])
    out.append(_numbers(code[done:]))
    return tokens("".join(out))


def _in_key(literal: str, before: bool) -> bool:
    """Whether a private key goes on behind a literal."""
    begins, ends = (literal.rfind(mark) for mark in ("-----BEGIN", "-----END"))
    return begins > ends if max(begins, ends) >= 0 else before


def _level(code: str, before: str, end: int) -> int:
    """Secrecy of the name at which a literal stands, by the code before it and behind its end."""
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
            ["password"] if _LOGS_IN.search(called) else [] if _ASKS.search(called) else [called, *_target(plain, HARD)]
        )
    if plain.endswith(":"):
        return [_quoted(plain[:-1].rstrip())]
    if plain.endswith(","):  # `"--api-key", "x"`, `("PASSWORD", "x")`
        return [*_announced(_quoted(plain[:-1].rstrip())), *_target(plain, HARD)]
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
        names += _announced(_quoted(plain.removesuffix(called).rstrip()[:-1].rstrip()))
    return [*names, called]


def _target(code: str, level: int = SOFT) -> list[str]:
    """What the line assigns to, where that holds a secret: `password = get("name", "x")`."""
    target = _TARGET.match(code.rpartition("\n")[2])
    return [target["name"]] if target is not None and secrecy(target["name"]) >= level else []


def _identifier(code: str) -> str:
    """The name that code ends with, dots included."""
    at = len(code)
    while at and (code[at - 1].isalnum() or code[at - 1] in "_."):
        at -= 1
    return code[at:]


def _quoted(code: str) -> str:
    """What the literal holds that code ends with; nothing for other code."""
    mark = code[-1:]
    return code[:-1].rpartition(mark)[2] if mark and mark in "\"'" else ""


def _announced(name: str) -> list[str]:
    """The literal before, where it is a name and not any word: an option, or a variable's name."""
    names = name.startswith("-") or name.isupper() or name.lower() in ("authorization", "cookie", "token")
    return [name] if name and " " not in name and (names or secrecy(name) == HARD) else []


def _lines(content: str, group: str) -> str:
    return ("\n" if group == "long" else "\\\n") * content.count("\n")


def _numbers(code: str) -> str:
    return _NUMBER.sub(_number, code) if "=" in code else code


def _number(match: re.Match[str]) -> str:
    return match[0] if secrecy(match["name"]) != HARD else f'{match["name"]}{match["sep"]}"{REDACTED}"'
