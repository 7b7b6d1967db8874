"""The name that a literal in Python source belongs to: what it is assigned to, compared with or passed as."""

import re
from keyword import iskeyword

from hangdoc.redact.names import HARD, NONE, SOFT, secrecy
from hangdoc.regex import regex

HINT = regex(
    "pass|pw|ps?wd|psw|secret|cred|key|token|auth|cookie|sig|hook|cert|salt|bearer|jwt|sas|dsn|otp|pin|conn|session|pat|log_?in|mfa|code|phrase|mnemonic",
    re.IGNORECASE,
)
"""Matches every name that `secrecy` recognizes. A quick test, because most literals have no such name near them."""
_OPERATORS = ("==", "!=", ":=", "+=", "=", " in", " or", " else")
_DEFAULT = regex(r"[\"'](?P<name>--?[\w-]{2,80})[\"'][^\"'()\n]*,\s*default\s*=\s*$")
_LOGS_IN = regex(r"(?i)(?:^|[._])(?:login|log_in|authenticate|auth)$")
GETS_SECRET = regex(r"(?i)(?:^|[._])(?:get|has|is|load|read|find|del|pop|require)")
"""The argument of `password("x")` and `set_token("x")` is a secret; that of `get_token("name")` and `getpass("x")` is not."""
_TARGET = regex(r"\s*(?P<name>[A-Za-z_][\w.]*)\s*(?::[^=]{1,60})?=(?!=)")
COMPARED = regex(
    r"\s{0,8}(?P<operator>==|!=|\bin\b|\bnot\s+in\b)\s{0,8}(?P<name>[A-Za-z_][\w.]*)(?:\[\s*[\"'](?P<item>[^\"'\n]{1,80})[\"'])?"
)
BEFORE, AFTER = 160, 80
"""Characters of the code before and after a literal in which its name is looked for."""


def literal_secrecy(before: str, after: str) -> int:
    """Secrecy of the name that a literal belongs to, from the code before and after the literal."""
    names = _names_before(before)
    if match := COMPARED.match(after):
        compared = [match["name"], match["item"] or ""]
        names += [name for name in compared if "in" not in match["operator"] or secrecy(name) == HARD]
    return max(map(secrecy, names), default=NONE)


def _names_before(before: str) -> list[str]:
    plain = before.rstrip("([").rstrip()
    if before.endswith("(") and (called := identifier(plain)) and not iskeyword(called):
        return (
            ["password"]
            if _LOGS_IN.search(called)
            else []
            if GETS_SECRET.search(called)
            else [called, *_target(plain, HARD)]
        )
    if plain.endswith(":"):
        return [_quoted(plain[:-1].rstrip())]
    if plain.endswith(","):  # `"--api-key", "x"`, `("PASSWORD", "x")`
        return [*_name_in_literal(_quoted(plain[:-1].rstrip())), *_target(plain, HARD)]
    operator = next((sign for sign in _OPERATORS if plain.endswith(sign)), None)
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
        names.append(identifier(owner))
    called = identifier(plain)
    if operator == "=" and plain.removesuffix(called).rstrip().endswith(","):  # setdefault("PASSWORD", default="x")
        names += _name_in_literal(_quoted(plain.removesuffix(called).rstrip()[:-1].rstrip()))
    return [*names, called]


def _target(code: str, level: int = SOFT) -> list[str]:
    """The name that the line assigns to, if its secrecy is at least `level`: `password = get("name", "x")`."""
    target = _TARGET.match(code.rpartition("\n")[2])
    return [target["name"]] if target is not None and secrecy(target["name"]) >= level else []


def identifier(code: str) -> str:
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
