"""Filters variables as py-spy and the memory probe print them: numbers, quoted texts, and containers, possibly truncated.

A text in a variable may be anything: a prompt, a password, a row of the training data. A diagnosis needs only numbers, lengths,
types, devices and names, so only these and paths are stored.
"""

from hangdoc.redact.names import HARD, NONE, secrecy
from hangdoc.redact.patterns import REDACTED, harmless, is_path, random_looking, text
from hangdoc.regex import regex

NOT_STORED = "<str>"
"""Replaces a text that is neither a path nor a short name."""

LOGIN_OPTIONS = frozenset(["-u", "--user", "--userpwd", "--proxy-user", "--http-auth", "--auth"])
"""Options whose value is `user:password`. Python's own -u has no value."""
_MAX_WORDS = 4
_MAX_DEPTH = 4
# py-spy writes ' in a text as \" and does not escape ", so a quote ends a text only where a value may end.
_TOKEN = regex(
    r"""(?P<string>(?P<quote>["'])(?P<content>(?:\\[\s\S]|(?!(?P=quote)|\\)[\s\S]|(?P=quote)(?!\s*(?:[,\])}:]|\Z)))*)(?:(?P=quote)|\\?\Z))"""
    r"""|(?P<open>[\[({])|(?P<close>[\])}])|(?P<comma>,)|(?P<colon>:)|(?P<bare>[^"'\[\](){},:]+)"""
)
_BARE = regex(
    r"\s*(?:[A-Za-z_][\w.]*(?:\s*=)?|(?:[A-Za-z_][\w.]*=)?[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?j?|[-+]?(?:inf|nan|bigint)|0x[0-9a-f]+|\?|\.\.\.|[-+*/|]"
    r"|<[\w.<> -]{1,120}(?: at 0x[0-9a-f]+)?>|<redacted>|<str>|@|)\s*"
)
_COLON = regex(r"\s*:")
_KEYWORD = regex(r"([A-Za-z_][\w.]*)\s*=\s*$")
_NUMBER = regex(r"[-+]?\d[\d.eE+-]*")
_KEY = regex(r"[\w./ -]{1,64}")
_SEPARATORS = regex(r"[^A-Za-z0-9]+")
_SHORT = regex(r"[\w.:/@+=,%*<>#?|\[\]()^-]{0,64}")
_NAME_LIKE = regex(
    r"[A-Za-z]{1,20}|\d{1,10}|[A-Za-z]{1,12}\d{1,6}[a-z]{0,4}|\d{1,6}[A-Za-z]{1,4}\d{0,2}|(?:[A-Z]?[a-z]{1,16}){1,4}|e\dm\d\w*|[a-z]{1,4}(?:\d{1,3}[a-z]{0,2}){1,3}"
)
_SAYS_SECRET = regex(r"(?i)secret|passw|hunter2")


def local(name: str, value: str, keep_all: bool = False) -> str:
    """The text of a variable as it is stored. `keep_all` keeps every text that does not look like a secret."""
    level = secrecy(name)
    if '"' not in value and "'" not in value:
        if level == HARD and _NUMBER.fullmatch(value):
            return REDACTED
        if _BARE.fullmatch(value):
            return value
    elif len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[0] + _text(value[1:-1], level, keep_all) + value[0]
    return container(value, level, keep_all=keep_all)


class _Level:
    """One open bracket."""

    __slots__ = ("before", "inherited", "key", "opened", "previous")

    def __init__(self, opened: str, inherited: int) -> None:
        self.opened, self.inherited = opened, inherited
        self.key = NONE
        """Secrecy of the key or argument whose value is next."""
        self.previous = NONE
        """Secrecy that the previous text gives the next one: `"--api-key", "x"`."""
        self.before = ""

    def secrecy(self) -> int:
        return max(self.inherited, self.key, self.previous)


def container(value: str, level: int = NONE, *, keep_all: bool, depth: int = 0) -> str:
    """Filter each text in a variable, a JSON value or Python's `repr` of a container."""
    out: list[str] = []
    levels = [_Level("", level)]
    for found in _TOKEN.finditer(value):
        token, top = found[0], levels[-1]
        kind = found.lastgroup
        if kind == "string":
            content = found["content"]
            if _COLON.match(value, found.end()):
                top.key = secrecy(content)
                kept = text(content, strict=True) if keep_all or _KEY.fullmatch(content) else NOT_STORED
            else:
                kept = _text(content, top.secrecy(), keep_all, depth)
                if top.before in LOGIN_OPTIONS and ":" in content and "/" not in content and kept == content:
                    kept = content.partition(":")[0] + ":" + REDACTED
                # A list may have an option before its value; a dict may be `"name": "PASSWORD", "value": "x"`.
                top.before, top.previous = content, _secrecy_of_next(content) if top.opened else NONE
            out.append(token if kept == content else token[0] + kept + token[1 + len(content) :])
        elif kind == "open":
            levels.append(_Level(token, top.secrecy()))
            out.append(token)
        elif kind == "close":
            if len(levels) > 1:
                levels.pop()
            out.append(token)
        elif kind == "comma":
            top.key = NONE
            out.append(token)
        elif kind == "bare":
            if token.strip():
                out.append(_bare(token, top.secrecy(), keep_all))
                if named := _KEYWORD.search(token):
                    top.key = secrecy(named[1])
                else:
                    top.previous = NONE
            else:
                out.append(token)
        else:
            out.append(token)
    return "".join(out)


def _secrecy_of_next(content: str) -> int:
    """The secrecy that a text in a list gives the next one, if it is an option, a header or the name of a variable."""
    if not content or len(content) > 64 or "=" in content or " " in content:
        return NONE
    level = secrecy(content)
    return (
        level
        if content.startswith("-") or level == HARD or content.lower() in ("authorization", "cookie", "token")
        else NONE
    )


def _text(content: str, level: int, keep_all: bool, depth: int = 0) -> str:
    if level != NONE:
        return content if harmless(content, level) else REDACTED
    if not keep_all and not _is_short(content):
        # A path is kept, without secrets in it; also that of a file in which ranks meet.
        path = content.removeprefix("file://")
        return text(content) if is_path(path) or is_path(path.removesuffix("...")) else NOT_STORED
    if keep_all and content[:1] in "{[(" and any(mark in content for mark in "\"'"):
        if depth >= _MAX_DEPTH:
            return NOT_STORED
        escaped = '\\"' in content
        inner = container(content.replace('\\"', '"') if escaped else content, keep_all=True, depth=depth + 1)
        return inner.replace('"', '\\"') if escaped else inner
    return text(content, strict=True)


def _is_short(content: str) -> bool:
    """Whether a text is a short name, a number, an option, a host: `float16`, `cuda:0`, `--lr=0.1`, `ip-10-0-0-1.internal`."""
    if content in (NOT_STORED, REDACTED) or len(content) < 3:
        return True
    if _SHORT.fullmatch(content) is None or _SAYS_SECRET.search(content):
        return False
    words = [word for word in _SEPARATORS.split(content) if word]
    if not all(_NAME_LIKE.fullmatch(word) and not (len(word) >= 10 and random_looking(word)) for word in words):
        return False
    dotted = content.replace(".", "").replace("_", "").isalnum()
    return sum(not word.isdigit() for word in words) <= (_MAX_WORDS * 2 if dotted or "/" in content else _MAX_WORDS)


def _bare(token: str, level: int, keep_all: bool) -> str:
    """Filter text outside of quotes: numbers, names and `<Foo at 0x7f>` are kept. Anything else may be a text whose quotes were
    not recognized."""
    plain = token.strip()
    if level == HARD and _NUMBER.fullmatch(plain) and plain not in ("0", "1"):
        return token.replace(plain, REDACTED)
    if _BARE.fullmatch(token):
        return token
    if keep_all:
        return text(token, strict=True)
    words = plain.split()
    return (
        token if len(words) <= 3 and all(_BARE.fullmatch(word) for word in words) else token.replace(plain, NOT_STORED)
    )
