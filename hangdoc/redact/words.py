"""Filters command lines and environments. Secrets are recognized by name and by form; paths, numbers and options are kept."""

from hangdoc.redact.names import NONE, secrecy
from hangdoc.redact.patterns import REDACTED, harmless, redact_at, text
from hangdoc.redact.values import LOGIN_OPTIONS, container
from hangdoc.regex import regex

_NAMED = regex(r"(?P<name>[-+]*[A-Za-z_][\w./-]*)=(?P<value>[\s\S]*)")
_DOTTED = regex(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
"""The name of a setting before its value, in the style of yacs: `wandb.api_key x`."""
_IDENTIFIES = regex(
    r"(?i)(?:^|_)(?:id|ids|uuid|hash|sha\d*|digest|commit|rev|revision|version|name|namespace|nspace|checksum)$"
)
"""Names whose values look random but are not secret: ids of runs, jobs, commits."""


def variable(name: str, value: str) -> str:
    """The value of an environment variable or an option, redacted if necessary."""
    level = secrecy(name)
    if level != NONE:
        return redact_at(level, value) if value else value
    return _plain(value, strict=_IDENTIFIES.search(name) is None)


def environment(variables: dict[str, str]) -> dict[str, str]:
    """All variables, with secrets redacted."""
    return {name: variable(name, value) for name, value in variables.items()}


def argv(words: tuple[str, ...]) -> tuple[str, ...]:
    """A command line without secrets, in every spelling: `--token=x`, `--token x`, `-token x`, `TOKEN=x`, `+wandb.api_key=x`,
    `{"token": "x"}`, `-u user:x`, and a whole command line in one word (`bash -c`, a process title)."""
    out: list[str] = []
    before = ""
    for word in words:
        named = _NAMED.fullmatch(word)
        level = secrecy(before) if before else NONE
        if (level != NONE and not word.startswith("-")) or (before == "-p" and out[0].endswith("sshpass")):
            out.append(word if harmless(word, level) else REDACTED)
        elif before in LOGIN_OPTIONS and ":" in word and "/" not in word:
            out.append(word.partition(":")[0] + ":" + REDACTED)
        elif named:
            out.append(f"{named['name']}={variable(named['name'], named['value'])}")
        else:
            out.append(_plain(word, strict=True))
        before = word if (word.startswith("-") and not named) or _DOTTED.fullmatch(word) else ""
    return tuple(out)


def _plain(value: str, strict: bool) -> str:
    if value[:1] in "{[(\"'" and value[-1:] in "}])\"'":  # JSON, or Python's repr of a container
        value = container(value, keep_all=True)
    return text(value, strict=strict)
