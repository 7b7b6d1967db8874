"""Filters hangdoc's own sentences (problems, reasons), which quote paths, names and the messages of exceptions."""

from functools import lru_cache

from hangdoc.redact.patterns import REDACTED, random_looking, text
from hangdoc.redact.shapes import FILTERED, NOT_STORED, SPACE, is_number, is_path_like, is_plain, kept, path
from hangdoc.regex import regex

_WORDS = regex(rf"({SPACE}+)")
_QUOTED = regex(r"(?<!\w)(?P<mark>[\"'])(?P<content>[^\"'\n]{1,300})(?P=mark)(?!\w)")
_AROUND = regex(
    rf"(?P<before>(?:(?!{FILTERED})[(\[\"'`<])*+)(?P<word>.*?(?:{FILTERED})?)(?P<after>[)\]\"'`>.,:;!?]*)", 16
)
_FILTERED = regex(FILTERED)
_ENGLISH = regex(r"[A-Za-z]{1,20}(?:['/-][A-Za-z]{1,20}){0,4}")
_LONGEST = 2000


@lru_cache(1024)
def sentence(value: str) -> str:
    """A sentence without secrets: English words stay; quotations, and words with digits, only if they are plain."""
    if len(value) > _LONGEST:
        value = value[:_LONGEST] + "..."
    value = text(value, prose=True)
    if '"' in value or "'" in value:
        value = _QUOTED.sub(lambda match: f"{match['mark']}{_quoted(match['content'])}{match['mark']}", value)
    parts = _WORDS.split(value)
    return "".join(part if at % 2 else _word(part) for at, part in enumerate(parts))


def _quoted(content: str) -> str:
    return content if " " in content and all(map(is_plain, content.split())) else kept(content, 1)


def _word(word: str) -> str:
    if not word or word.isalpha():
        return word
    split = _AROUND.fullmatch(word)
    if split is None or not split["word"] or _FILTERED.fullmatch(split["word"]):
        return word
    return split["before"] + _plain(split["word"]) + split["after"]


def _plain(word: str) -> str:
    if _ENGLISH.fullmatch(word) or is_number(word) or is_plain(word, 3) or REDACTED in word or NOT_STORED in word:
        return word
    if is_path_like(word):
        return path(word)
    name, equals, value = word.partition("=")
    if equals and is_plain(name, 2):
        return f"{name}={kept(value, 1)}"
    # The names of hosts, packages and devices have digits too.
    return (
        word
        if len(word) <= 24
        and not random_looking(word)
        and word.isascii()
        and not word[0].isdigit()
        and len([character for character in word if not character.isalnum()]) <= 4
        and sum(map(str.isdigit, word)) <= 3
        else kept(word, 1)
    )
