"""Secrets never enter a snapshot: they are removed by name and by look before anything is stored."""

import re

REDACTED = "<redacted>"

_SECRET_NAME = re.compile(
    r"(?i)(token|secret|passw|passphrase|api_?key|access_?key|private|credential|auth|cookie|signature|webhook|\bdsn\b|_key$|^key$)"
)
_HARMLESS_NAME = re.compile(
    r"(?i)^(tokenizers_parallelism|.*tokens?_per_.*|.*_?n?_?tokens|xauthority|num_.*|max_.*|.*_len)$"
)
_SECRET_LOOK = re.compile(
    r"""
    \bAKIA[0-9A-Z]{16}\b                                  # AWS access key id
  | \bgh[pousr]_[A-Za-z0-9]{20,}                          # GitHub
  | \bhf_[A-Za-z0-9]{20,}                                 # Hugging Face
  | \bsk-[A-Za-z0-9_-]{16,}                               # OpenAI, Anthropic
  | \bxox[abprs]-[A-Za-z0-9-]{10,}                        # Slack
  | \bglpat-[A-Za-z0-9_-]{16,}                            # GitLab
  | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*   # JWT
  | -----BEGIN[ A-Z]*PRIVATE\ KEY-----[\s\S]*
  | \b(?=[a-f0-9]*[0-9])(?=[a-f0-9]*[a-f])[a-f0-9]{40}\b  # 40 hex digits: wandb and many others
    """,
    re.VERBOSE,
)
_URL_USER = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^/\s:@]+:[^/\s@]+@")
_SECRET_OPTION = re.compile(r"(?P<option>^--?[\w-]+)(=)(?P<value>.*)$", re.DOTALL)


def names_a_secret(name: str) -> bool:
    """True where a variable or option of this name usually holds a secret."""
    plain = name.lstrip("-").replace("-", "_")
    return bool(_SECRET_NAME.search(plain)) and not _HARMLESS_NAME.match(plain)


def text(value: str) -> str:
    """`value` without whatever in it looks like a secret."""
    return _URL_USER.sub(lambda m: m["scheme"] + REDACTED + "@", _SECRET_LOOK.sub(REDACTED, value))


def variable(name: str, value: str) -> str:
    """The value of a variable, or the mark in its place."""
    if not names_a_secret(name):
        return text(value)
    # A number or a flag is no secret, and rules compare it.
    return (
        value
        if value in ("", "None", "True", "False") or (value.lstrip("-").isdigit() and len(value) < 8)
        else REDACTED
    )


def environment(variables: dict[str, str]) -> dict[str, str]:
    """All variables, redacted by name and by look."""
    return {name: variable(name, value) for name, value in variables.items()}


def argv(words: tuple[str, ...]) -> tuple[str, ...]:
    """A command line, with the values of secret options removed in both spellings (`--token=x`, `--token x`)."""
    out: list[str] = []
    hide_next = False
    for word in words:
        option = _SECRET_OPTION.match(word)
        if hide_next and not word.startswith("-"):
            out.append(REDACTED)
        elif option and names_a_secret(option["option"]):
            out.append(f"{option['option']}={variable(option['option'], option['value'])}")
        else:
            out.append(text(word))
        hide_next = word.startswith("-") and not option and names_a_secret(word) and not word.endswith("tokens")
    return tuple(out)
