"""Command lines and environments: secrets go by the names before them, and by their look; paths, numbers and options stay."""

from hangdoc.redact.looks import REDACTED, harmless, text, under
from hangdoc.redact.names import NONE, secrecy
from hangdoc.redact.values import OF_A_LOGIN, container
from hangdoc.regex import regex

_NAMED = regex(r"(?P<name>[-+]*[A-Za-z_][\w./-]*)=(?P<value>[\s\S]*)")
_DOTTED = regex(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
"""A setting before its value, as yacs has them: `wandb.api_key x`."""
_IDENTIFIES = regex(
    r"(?i)(?:^|_)(?:id|ids|uuid|hash|sha\d*|digest|commit|rev|revision|version|name|namespace|nspace|checksum)$"
)
"""Names of random texts that are no secrets: of runs, jobs, commits."""


def variable(name: str, value: str) -> str:
    """The value of an environment variable or an option, or the mark in its place."""
    level = secrecy(name)
    if level != NONE:
        return under(level, value) if value else value
    return _plain(value, strict=_IDENTIFIES.search(name) is None)


def environment(variables: dict[str, str]) -> dict[str, str]:
    """All variables, redacted by name and by look."""
    return {name: variable(name, value) for name, value in variables.items()}


def argv(words: tuple[str, ...]) -> tuple[str, ...]:
    """A command line without the values of secret options, in every spelling: `--token=x`, `--token x`, `-token x`, `TOKEN=x`,
    `+wandb.api_key=x`, `{"token": "x"}`, `-u user:x`, and one word that holds a whole line (`bash -c`, a process title)."""
    out: list[str] = []
    before = ""
    for word in words:
        named = _NAMED.fullmatch(word)
        level = secrecy(before) if before else NONE
        if (level != NONE and not word.startswith("-")) or (before == "-p" and out[0].endswith("sshpass")):
            out.append(word if harmless(word, level) else REDACTED)
        elif before in OF_A_LOGIN and ":" in word and "/" not in word:
            out.append(word.partition(":")[0] + ":" + REDACTED)
        elif named:
            out.append(f"{named['name']}={variable(named['name'], named['value'])}")
        else:
            out.append(_plain(word, strict=True))
        before = word if (word.startswith("-") and not named) or _DOTTED.fullmatch(word) else ""
    return tuple(out)


def _plain(value: str, strict: bool) -> str:
    if value[:1] in "{[(\"'" and value[-1:] in "}])\"'":  # JSON, or what Python prints of a dict
        value = container(value, every=True)
    return text(value, strict=strict)
