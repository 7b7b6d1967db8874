"""Filters variables as py-spy and the memory probe print them: numbers, quoted texts, and containers, possibly truncated.

A text in a variable may be anything: a prompt, a password, a row of the training data. A diagnosis needs numbers, lengths, types,
devices and paths, and the texts of the variables that conditions and loops test. Only these are kept.
"""

from hangdoc.redact import readers
from hangdoc.redact.names import HARD, NONE, secrecy
from hangdoc.redact.patterns import REDACTED, harmless, text
from hangdoc.redact.shapes import NOT_STORED, identity, is_number, is_plain, kept, names_a_setting, without_odd_words
from hangdoc.regex import regex

LOGIN_OPTIONS = frozenset(["-u", "--user", "--userpwd", "--proxy-user", "--http-auth", "--auth"])
"""Options whose value is `user:password`. Python's own -u has no value."""
_MAX_DEPTH = 4
_MAX_TEXT = 20_000
"""Characters of a container. py-spy prints 240."""
# py-spy writes ' in a text as \" and does not escape ", so a quote ends a text only where a value may end.
_TOKEN = regex(
    r"""(?P<string>(?P<quote>["'])(?P<content>(?:\\[\s\S]|(?!(?P=quote)|\\)[\s\S]|(?P=quote)(?![ \t]{0,8}(?:[,\])}:]|\Z)))*+)"""
    r"""(?:(?P=quote)|\\?\Z))"""
    r"""|(?P<open>[\[({])|(?P<close>[\])}])|(?P<comma>,)|(?P<colon>:)|(?P<bare>[^"'\[\](){},:]+)"""
)
_NUMBER_TEXT = r"[-+]?(?:\d{1,15}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?j?"
"""No counter is longer; an exponent of a key is."""
_BARE = regex(
    rf"\s*+(?:(?:[A-Za-z_][\w.]*=)?{_NUMBER_TEXT}|(?:[A-Za-z_][\w.]*=)?[-+]?(?:inf|nan|bigint)|0x[0-9a-f]+|\?|\.\.\.|[-+*/|=]"
    r"|<(?:(?:built-in |bound )?(?:function|method|class|module) )?(?:[\w.]|<lambda>|<locals>){1,160}(?: object)?"
    r"(?: at 0x[0-9a-f]+)?>"
    r"|<[\w.]{1,60} of \d{1,18}>|<redacted>|<str>|@|)\s*+"
)
_WORD = regex(r"\s*+(?P<name>[A-Za-z_][\w.]*)(?P<equals>\s*=)?\s*+")
_COLON = regex(r"[ \t]{0,8}:")
_KEYWORD = regex(r"(?<![\w.])([A-Za-z_][\w.]*+)\s*+=\s*+$")
_ASSIGNED = regex(r"(?P<name>[A-Za-z_][\w.]*+)\s*+=\s*+(?P<number>[-+]?\d[\d.eE+-]+)")
_NUMBER = regex(r"[-+]?\d[\d.eE+-]*")
_OPTION = regex(r"--?[A-Za-z][A-Za-z_.-]{0,40}")
_JOINED = regex(r"(?<![^\s\"'])-(?P<letters>[A-Za-z][^\s\"'<>-][^\s\"'<>]*)")
"""An option of one letter with its value, as `mysql -pX`, or several letters."""
_LETTERS = regex(r"[A-Za-z](?:[A-Za-z]?|\d{1,2})")
"""`-lm`, `-rf`, `-O3`, `-j16`."""


def local(name: str, value: str, keep_all: bool = False, tested: bool = False) -> str:
    """The text of a variable as it is stored. `tested`: a condition or a loop of the program reads it. `keep_all` keeps every
    text that does not look like a secret."""
    level = secrecy(name)
    plain = '"' not in value and "'" not in value
    if plain:
        if level == HARD and _NUMBER.fullmatch(value):
            return REDACTED
        if _BARE.fullmatch(value):
            return value
    allowed = readers.of_local(name, tested=tested)
    if not plain and len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[0] + _text(value[1:-1], level, keep_all, allowed=allowed) + value[0]
    return container(value, level, keep_all=keep_all, allowed=allowed)


class _Level:
    """One open bracket."""

    __slots__ = ("before", "inherited", "key", "name", "opened", "previous")

    def __init__(self, opened: str, inherited: int) -> None:
        self.opened, self.inherited = opened, inherited
        self.key = NONE
        """Secrecy of the key or argument whose value is next."""
        self.previous = NONE
        """Secrecy that the previous text gives the next one: `"--api-key", "x"`."""
        self.name = ""
        """The key, the argument or the option whose value is next."""
        self.before = ""

    def secrecy(self) -> int:
        return max(self.inherited, self.key, self.previous)


def container(value: str, level: int = NONE, *, keep_all: bool, depth: int = 0, allowed: int = readers.NUMBERS) -> str:
    """Filter each text in a variable, a JSON value or Python's `repr` of a container: fields and keys count as variables."""
    if len(value) > _MAX_TEXT:
        return NOT_STORED
    out: list[str] = []
    levels = [_Level("", level)]
    for match in _TOKEN.finditer(value):
        token, top = match[0], levels[-1]
        kind = match.lastgroup
        if kind == "string":
            content = match["content"]
            if _COLON.match(value, match.end()):
                top.key, top.name = secrecy(content), content
                shown = without_odd_words(text(content, strict=True)) if keep_all else _key(content)
            else:
                may = max(allowed, readers.of_option(top.name)) if top.name else allowed
                shown = _text(content, top.secrecy(), keep_all, depth, allowed=may)
                if top.before in LOGIN_OPTIONS and ":" in content and "/" not in content and shown != REDACTED:
                    shown = _login(content)
                # A list may have an option before its value; a dict may be `"name": "PASSWORD", "value": "x"`.
                top.before, top.previous = content, _secrecy_of_next(content) if top.opened else NONE
                top.name = content if _OPTION.fullmatch(content) else ""
            out.append(token if shown == content else token[0] + shown + token[1 + len(content) :])
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
                calls = value[match.end() : match.end() + 1] == "("
                out.append(_bare(token, top.secrecy(), keep_all, calls=calls))
                if named := _KEYWORD.search(token):
                    top.key, top.name = secrecy(named[1]), named[1]
                else:
                    top.previous = NONE
            else:
                out.append(token)
        else:
            out.append(token)
    return "".join(out)


def _login(content: str) -> str:
    user = content.partition(":")[0]
    return f"{user if is_plain(user, 1) else REDACTED}:{REDACTED}"


def _key(content: str) -> str:
    """What is kept of a key, which names its value."""
    return content if names_a_setting(content) or content in (NOT_STORED, REDACTED) else NOT_STORED


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


def _text(content: str, level: int, keep_all: bool, depth: int = 0, *, allowed: int = readers.NUMBERS) -> str:
    if level != NONE:
        return content if harmless(content, level) else REDACTED
    if not keep_all:
        return word(content, allowed)
    if content[:1] in "{[(" and any(mark in content for mark in "\"'"):
        if depth >= _MAX_DEPTH:
            return NOT_STORED
        escaped = '\\"' in content
        inner = container(content.replace('\\"', '"') if escaped else content, keep_all=True, depth=depth + 1)
        return inner.replace('"', '\\"') if escaped else inner
    return _without_joined(without_odd_words(text(content, strict=True)))


def _without_joined(content: str) -> str:
    """A text without values that are joined to the letter of an option."""
    if "-" not in content:
        return content
    return _JOINED.sub(lambda match: match[0] if _are_options(match["letters"]) else match[0][:2] + REDACTED, content)


def _are_options(letters: str) -> bool:
    return _LETTERS.fullmatch(letters) is not None or (letters.isalpha() and is_plain(letters))


def word(content: str, allowed: int) -> str:
    """What is kept of a text: an option's name and what is kept of its value, a plain text, a path, or the host of an address."""
    if allowed >= readers.PLACE:
        return identity(content, random=allowed == readers.ID)
    name, equals, value = content.partition("=")
    if _OPTION.fullmatch(name) and is_plain(name, 2):
        if not equals:
            return content
        level = secrecy(name)
        if level != NONE:
            return content if harmless(value, level) else f"{name}={REDACTED}"
        return f"{name}={value if is_number(value) else kept(value, readers.STRANGERS[readers.of_option(name)])}"
    return kept(content, int(allowed == readers.WORDS))


def _bare(token: str, level: int, keep_all: bool, *, calls: bool) -> str:
    """Filter text outside of quotes: numbers, names and `<Foo at 0x7f>` are kept. Anything else may be a text whose quotes were
    not recognized."""
    plain = token.strip()
    if level == HARD and _NUMBER.fullmatch(plain) and plain not in ("0", "1"):
        return token.replace(plain, REDACTED)
    assigned = _ASSIGNED.fullmatch(plain)
    if assigned is not None and secrecy(assigned["name"]) == HARD:
        return token.replace(assigned["number"], REDACTED)
    if _BARE.fullmatch(token):
        return token
    if _NUMBER.fullmatch(plain):
        return token.replace(plain, NOT_STORED)
    name = _WORD.fullmatch(token)
    if name is not None and (name["equals"] or calls or keep_all or is_plain(name["name"], 1)):
        return token
    if keep_all:
        return without_odd_words(text(token, strict=True))
    words = plain.split()
    plain_words = len(words) <= 3 and all(_BARE.fullmatch(word) or is_plain(word, 1) for word in words)
    return token if plain_words else token.replace(plain, NOT_STORED)
