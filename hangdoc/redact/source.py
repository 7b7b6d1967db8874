"""Python source without the secrets in it: literals at a name that names a secret, and literals and comments that look like one.

The code stays code: a literal keeps its quotes and its lines, so that loops and conditions can be parsed from what is left.
"""

import re

from hangdoc.redact.looks import REDACTED, harmless, text, tokens
from hangdoc.redact.names import HARD, NONE, secrecy

_BEFORE = 160
_LITERAL = re.compile(
    r"(?P<prefix>(?<![\w])[rRbBfFuU]{1,2})?(?:"
    r"(?P<triple>\"\"\"|''')(?P<long>(?:\\[\s\S]|(?!(?P=triple))[^\\])*)(?:(?P=triple)|\Z)"
    r"|(?P<quote>[\"'])(?P<short>(?:\\[\s\S]|(?!(?P=quote))[^\\\n])*)(?P<end>(?P=quote)|(?=\n)|\Z))"
    r"|(?P<comment>\#[^\n]*)"
)
_ASSIGNED = re.compile(
    r"(?P<name>[A-Za-z_][\w.]*)\s*(?:\[\s*[rbfu]?[\"'](?P<item>[^\"'\n]{1,80})[\"']\s*\])?\s*(?::[^=\n\"']{0,60})?"
    r"(?:=|==|!=|:=|\+=|\bin\b|\bnot\s+in\b|\bor\b)\s*\(?\s*$"
)
_ITEM = re.compile(r"(?P<owner>[\]\)])\s*\[\s*[\"'](?P<item>[^\"'\n]{1,80})[\"']\s*\]\s*(?:==?|!=)\s*$")
_KEYED = re.compile(r"[\"'](?P<name>[^\"'\n]{1,80})[\"']\s*:\s*\(?\s*$")
_SECOND = re.compile(r"[\"'](?P<name>[\w.-]{1,80})[\"']\s*,\s*(?:(?P<argument>\w+)\s*=\s*)?$")
_DEFAULT = re.compile(r"[\"'](?P<name>--?[\w-]{2,80})[\"'][^\"'()\n]*,\s*default\s*=\s*$")
_CALLED = re.compile(r"(?P<name>[A-Za-z_][\w.]*)\(\s*$")
_LOGS_IN = re.compile(r"(?i)(?:^|[._])(?:login|log_in|authenticate|auth)$")
_COMPARED = re.compile(r"\s*(?:==|!=)\s*(?P<name>[A-Za-z_][\w.]*)")
_COMPARED_ITEM = re.compile(r"\s*(?:==|!=)\s*[\w.]*\[\s*[\"'](?P<name>[^\"'\n]{1,80})[\"']")
_NUMBER = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?P<sep>\s*(?::\s*\w+\s*)?={1,2}\s*)(?P<number>\d{2,})\b")


def source(code: str) -> str:
    """Code of any length, a whole file or a line of it. Never raises, also not for what is no Python."""
    out: list[str] = []
    done = 0
    redacted_before = False
    for found in _LITERAL.finditer(code):
        between = code[done : found.start()]
        out.append(_numbers(between))
        done = found.end()
        if found["comment"] is not None:
            out.append(text(found[0], strict=True, prose=True))
            continue
        group = "long" if found["triple"] is not None else "short"
        content = found[group]
        continued = redacted_before and not between.strip("\\ \t\r\n")
        level = HARD if continued else _level(code, found)
        kept = content if level == NONE else content if harmless(content, level) else _blank(content, group)
        if level == NONE:
            kept = text(content, strict=True, prose=True) if len(content) >= 6 else content
        redacted_before = (level != NONE and kept != content) or (continued and REDACTED in kept)
        start, end = found.start(group) - found.start(), found.end(group) - found.start()
        out.append(found[0] if kept == content else found[0][:start] + kept + found[0][end:])
    out.append(_numbers(code[done:]))
    return tokens("".join(out))


def _level(code: str, found: re.Match[str]) -> int:
    """Secrecy of the name at which a literal stands."""
    before = code[max(0, found.start() - _BEFORE) : found.start()]
    names: list[str] = []
    if match := _ASSIGNED.search(before):
        names += [match["name"]] if match["item"] is None else [match["item"], match["name"]]
    elif match := _ITEM.search(before) or _KEYED.search(before):
        names.append(match["item"] if "item" in match.re.groupindex else match["name"])
    elif match := _CALLED.search(before):
        if _LOGS_IN.search(match["name"]):
            return HARD
        # `password("x")` and `set_token("x")`, not `get_token("name")`, `getpass("prompt")`.
        names += (
            [match["name"]]
            if not re.search(r"(?i)(?:^|[._])(?:get|has|is|load|read|find|del|pop|require)", match["name"])
            else []
        )
    if match := _DEFAULT.search(before) or _SECOND.search(before):
        names += [match["name"]] if _is_name(match["name"]) else []
    after = code[found.end() : found.end() + 100]
    if match := _COMPARED.match(after) or _COMPARED_ITEM.match(after):
        names.append(match["name"])
    return max(map(secrecy, names), default=NONE)


def _is_name(name: str) -> bool:
    """Whether a literal before another names it: an option, or the name of a variable; not any word."""
    return (
        secrecy(name) == HARD
        or name.startswith("-")
        or name.isupper()
        or name.lower() in ("authorization", "cookie", "token")
    )


def _blank(content: str, group: str) -> str:
    lines = content.count("\n")
    return REDACTED + ("\n" if group == "long" else "\\\n") * lines


def _numbers(code: str) -> str:
    return _NUMBER.sub(_number, code) if "=" in code else code


def _number(match: re.Match[str]) -> str:
    return match[0] if secrecy(match["name"]) != HARD else f'{match["name"]}{match["sep"]}"{REDACTED}"'
