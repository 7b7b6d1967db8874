"""What of a text is kept if its name says nothing: words of the field, numbers, addresses and paths. All else may be a secret.

This is an allow-list. `patterns` finds what is certainly a secret; here, what is certainly none is kept.
"""

import re
from functools import lru_cache
from hashlib import sha256

from hangdoc.redact.names import HARD, NONE, secrecy
from hangdoc.redact.patterns import REDACTED, random_looking, text
from hangdoc.redact.vocabulary import WORDS
from hangdoc.regex import regex
from hangdoc.torch_facts.launchers import RANDOM_FOLDERS

NOT_STORED = "<str>"
"""Replaces a text that no rule reads."""
LONGEST = 512
_MAX_WORDS, _MAX_LETTERS, _MAX_DIGITS = 10, 16, 5

_WORDS_AROUND = regex(r"[-_.:/+*%,@|#^?()\[\]]+")
_CAMEL = regex(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_WITH_NUMBER = regex(r"(?P<word>[A-Za-z]{1,12})(?P<digits>\d{1,4})(?P<unit>[a-z]?)")
_AMOUNT = regex(r"\d{1,6}(?:[KMGTkmgtBb]i?[Bb]?|ms|us|ns|s|h|min|d|e\d{1,3}|x\d{1,6}|m\d{1,4})")
_NUMBER = regex(r"[-+]?(?:\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})(?:[eE][-+]?\d{1,3})?")
_STRANGER = regex(r"[a-z]{1,16}|[A-Z]{1,16}|[A-Z][a-z]{1,15}")
_VOWEL = regex(r"[aeiouyAEIOUY]")
_CONSONANTS = regex(r"[^aeiouyAEIOUY]{5}")
_PLAIN = regex(
    r"\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?(?::\d{1,5})?"  # an IPv4 address, with a port or a prefix length
    r"|\[?(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}\]?(?::\d{1,5})?"  # IPv6
    r"|v?\d{1,4}(?:\.\d{1,5}){1,3}(?:[-+.](?:post|dev|rc|a|b|cpu|cu)?\d{0,4})?"  # a version
    r"|20\d\d-?[01]\d-?[0-3]\d(?:[T_-]?[0-2]\d:?[0-5]\d(?::?[0-5]\d)?(?:\.\d{1,6})?Z?)?"  # a time
    r"|\d{1,2}(?::\d\d){1,2}"
    r"|(?:en[ops]|wl[ps]|ib[ps]?)\d{1,3}(?:[sfdpn]\d{1,4}){0,4}"  # a network interface
    r"|0x[0-9a-f]{1,16}"
)
_HOST_NAME = regex(
    r"(?:[a-z0-9]{1,20}[.-]){1,12}(?:local|internal|cluster|svc|com|org|net|io|edu|gov|ai|lan|de|uk|ch|fr)(?::\d{1,5})?"
)
_IDENTITY = regex(r"[\w.:/@+=,%*\[\]^-]{1,256}")
_SETTING = regex(r"[A-Za-z]{1,20}(?:[-_.][A-Za-z]{1,20}){0,5}")
_ODD_WORD = regex(r"[^\s\"'(){}\[\]<>,;:/\\]+")
_RANDOM_RUN = regex(r"[A-Za-z0-9+]{16,}+")
FILTERED = r"<str>|<redacted(?: [0-9a-f]{4})?>"
"""What replaces a part of a text."""
_FILTERED = regex(FILTERED)
SPACE = r"(?:(?<!<redacted)\s|(?<=<redacted)\s(?![0-9a-f]{4}>))"
"""White space that is not in the place of something redacted."""
_SHORTEST_RANDOM, _LONGEST_PATH = 16, 4096
_MOST_DIGITS = 12
"""Of a number in a key of a store."""
_URL = regex(rf"(?P<scheme>[a-z][a-z0-9+.-]{{1,12}})://(?P<rest>(?:[^\s\"'<>]|{FILTERED})*+)")
_PATH = regex(r"(?:~|\.{1,2})?/[\w.@+~,=%/: -]*|[\w.@+~,=%/-]+")
_SUFFIX = regex(
    r"\.(?:json|jsonl|ya?ml|toml|bin|pth?|pem|txt|parquet|sock|idx|np[yz]|py|pyc|sh|lock|db|[ct]sv|tar|gz|zst|log|ckpt|safetensors|cfg"
    r"|ini|conf|h5|tmp|part|c|cc|cpp|cu|so|pkl|model|md|whl|pipe|arrow|mds|tfrecords?|zarr|journal|pid|xml|html|png|jpe?g|wav|mp4)$"
)
_RUN = regex(r"[A-Za-z0-9]{8,}")
_RANDOM_FOLDERS = regex(RANDOM_FOLDERS)
_ENDINGS = ("s", "es", "ed", "ing", "er", "ers", "or", "ors")
_SAYS_SECRET = regex(r"(?i)secret|passw|passphrase|hunter2|geheim")


@lru_cache(4096)
def is_plain(value: str, strangers: int = 0) -> bool:
    """Whether a text consists of words of the field and numbers: `float16`, `cuda:0`, `all_reduce`, `rank3`, `10.0.0.1:29500`.
    Up to `strangers` other words may be among them, if they look like words: `myproject.train`."""
    if len(value) > 96 or not value.isascii() or _RANDOM_FOLDERS.search(value):
        return False
    if len(value) < 3 or _PLAIN.fullmatch(value):
        return True
    parts = _WORDS_AROUND.split(value)
    if len(parts) > 1:
        parts = [part for part in parts if part]
    if len(parts) > _MAX_WORDS or _SAYS_SECRET.search(value):
        return False
    short = 0
    for part in parts:
        kind = _kind(part)
        if kind is None:
            return False
        short += kind == "short"
        strangers -= kind == "stranger"
    return strangers >= 0 and short <= 3


@lru_cache(8192)
def _kind(part: str) -> str | None:
    """`word` or `number`; `short` for one or two letters, `stranger` for an unknown word; None for anything else."""
    if part.isdigit():
        return "number" if len(part) <= _MAX_DIGITS else None
    if part.isalpha():
        lower = part.lower()
        if lower in WORDS or _stem_is_known(lower):
            return "word"
        if len(part) < 3:
            return "short"
        words = _CAMEL.findall(part)
        if len(words) > 1 and all(len(word) > 2 and word.lower() in WORDS for word in words):
            return "word"
        return "stranger" if _looks_like_a_word(part) else None
    if _AMOUNT.fullmatch(part):
        return "number"
    numbered = _WITH_NUMBER.fullmatch(part)
    if numbered is not None and (len(numbered["word"]) < 3 or numbered["word"].lower() in WORDS):
        return "short" if len(numbered["word"]) < 3 else "word"
    return None


def _stem_is_known(word: str) -> bool:
    """Whether it is a form of a word of the field: `snapshots`, `compressing`, `retried`."""
    return any(
        word.endswith(end)
        and len(word) - len(end) > 2
        and (word[: -len(end)] in WORDS or word[: -len(end)] + "e" in WORDS)
        for end in _ENDINGS
    )


def _looks_like_a_word(part: str) -> bool:
    return (
        _STRANGER.fullmatch(part) is not None
        and len(part) <= _MAX_LETTERS
        and _VOWEL.search(part) is not None
        and _CONSONANTS.search(part) is None
        and secrecy(part) == NONE
    )


def names_a_setting(name: str) -> bool:
    """Whether a text can be the name of an option, a key or a variable, and is no value."""
    return is_plain(name, 2) or (secrecy(name) != NONE and _SETTING.fullmatch(name) is not None)


def is_number(value: str) -> bool:
    """Whether a text is a number of at most 12 digits."""
    return _NUMBER.fullmatch(value) is not None


def kept(value: str, strangers: int = 0) -> str:
    """What is kept of a text: all of it if it is plain; a path without random-looking parts; the host of an address; else
    NOT_STORED."""
    if not value or value in (NOT_STORED, REDACTED) or is_plain(value, strangers):
        return value
    if len(value) > LONGEST:
        return NOT_STORED
    url = _URL.fullmatch(value)
    if url is not None:
        return _address(url, strangers)
    if _HOST_NAME.fullmatch(value) and not any(map(random_looking, _RUN.findall(value))):
        return value
    return path(value) if is_path_like(value) else NOT_STORED


def store_key(value: str) -> str:
    """The name of a key in a store: its numbers and plain parts between `/`, and one other word. Of a longer number, a digest of
    16 bits is kept: keys that differ only there stay two. What follows a name of secrets is dropped."""
    parts = []
    strangers, after_secret = 1, False
    for part in value[:LONGEST].split("/"):
        number = part.lstrip("-").isdecimal()
        if _FILTERED.fullmatch(part):
            parts.append(part)
        elif (after_secret and part) or not (number or is_plain(part, strangers)):
            parts.append(NOT_STORED)
        elif number and len(part) > _MOST_DIGITS:
            parts.append(f"<redacted {_digest(part)}>")
        else:
            parts.append(part)
            strangers -= not (number or is_plain(part))
        after_secret = after_secret or secrecy(part) == HARD
    return "/".join(parts)


def identity(value: str, *, random: bool = False) -> str:
    """A name by which ranks and hosts find each other: kept unless it looks like a secret or cannot be a name. The id of a run
    may look `random`."""
    if "://" in value:
        url = _URL.fullmatch(value)
        return _address(url, 2) if url is not None else NOT_STORED
    return (
        text(value, strict=not random, digests=random)
        if not value or value in (NOT_STORED, REDACTED) or _IDENTITY.fullmatch(value)
        else NOT_STORED
    )


def is_path_like(value: str) -> bool:
    """Whether a text is written like a path: absolute, relative to a named directory, or a file with a known suffix."""
    if "<" in value:
        value = _FILTERED.sub("x", value)
    if len(value) > LONGEST or _PATH.fullmatch(value) is None:
        return False
    return value.startswith(("/", "~/", "./", "../")) or _SUFFIX.search(value.removesuffix("...")) is not None


def path(value: str) -> str:
    """A path, without its parts that look random or like a secret. Of a random folder of torchrun, a digest of 16 bits is kept:
    those of two launchers stay two."""
    parts = _RANDOM_FOLDERS.sub(lambda folder: f"<redacted {_digest(folder[0])}>", value).split("/")
    if len(parts) == 2 and not parts[0] and _SUFFIX.search(value) is None:
        return value if is_plain(parts[1], 1) else f"/{NOT_STORED}"
    return "/".join(map(_path_part, parts))


@lru_cache(4096)
def _path_part(part: str) -> str:
    if len(part) < 3 or part in (NOT_STORED, REDACTED):
        return part
    if any(map(_is_random_name, _RUN.findall(part))) or (_SAYS_SECRET.search(part) and "=" in part):
        return REDACTED
    name, equals, _ = part.partition("=")
    if equals and secrecy(name) != NONE:
        return f"{name}={REDACTED}"
    words = _FILTERED.sub("", part)
    return REDACTED if " " in words and not all(map(is_plain, words.split())) else text(part)


def _is_random_name(run: str) -> bool:
    """Whether letters and digits alternate more than in a word with a number and perhaps a letter, as `trial23a`."""
    numbered = _WITH_NUMBER.fullmatch(run)
    return random_looking(run) and not (numbered is not None and _looks_like_a_word(numbered["word"]))


def file_name(value: str) -> str:
    """The path of a file, which distinguishes ranks. Of a part that looks random, a digest of 16 bits is kept: two files stay
    two, on all hosts alike."""
    if len(value) < _SHORTEST_RANDOM:
        return value
    parts = value.split("/")
    if len(value) > _LONGEST_PATH:
        return NOT_STORED
    shown = [_with_digests(part) if len(part) > 5 else part for part in parts]
    return "/".join(shown) if shown != parts else value


@lru_cache(4096)
def _with_digests(part: str) -> str:
    if "<redacted" in part:
        return part
    part = text(part, digests=True)
    return _RANDOM_RUN.sub(lambda run: f"<redacted {_digest(run[0])}>" if _is_random(run[0]) else run[0], part)


def _is_random(run: str) -> bool:
    return random_looking(run) or (len(run) >= 32 and any(map(str.isdigit, run)))


def _digest(run: str) -> str:
    return sha256(run.encode("utf-8", "replace")).hexdigest()[:4]


def without_odd_words(value: str) -> str:
    """A text without words that mix letters and digits as passwords do and names do not."""
    return _ODD_WORD.sub(lambda match: match[0] if _is_no_password(match[0]) else REDACTED, value)


def _is_no_password(word: str) -> bool:
    if len(word) < 8 or not any(map(str.isdigit, word)) or not any(map(str.isalpha, word)):
        return True
    return is_plain(word.strip("_.-+=&!$%*#"), 2) or "<redacted" in word


def _address(url: re.Match[str], strangers: int) -> str:
    """An address without login, query and unknown parts of its path."""
    scheme, rest = url["scheme"], url["rest"]
    if scheme == "file":
        return f"file://{path(rest)}"
    rest, query = re.split(r"[?#]", rest, maxsplit=1)[0], re.search(r"[?#]", rest) is not None
    host, slash, below = rest.partition("/")
    login, at, host = host.rpartition("@")
    shown = identity(host) if host not in ("", NOT_STORED) else host
    named = REDACTED if at and login else ""
    parts = [part if is_plain(part, max(1, strangers)) else _kept_part(part) for part in below.split("/")]
    return f"{scheme}://{named}{at}{shown}{slash}{'/'.join(parts)}" + (f"?{NOT_STORED}" if query else "")


def _kept_part(part: str) -> str:
    if part in (NOT_STORED, REDACTED):
        return part
    return _path_part(part) if _SUFFIX.search(part) else NOT_STORED
