"""Values whose names indicate a secret. They are removed wherever else they occur."""

from collections.abc import Iterator, Mapping, Set
from functools import lru_cache
from urllib.parse import quote

from hangdoc.redact.kept import ByIdentity
from hangdoc.redact.names import HARD, NONE, secrecy
from hangdoc.redact.patterns import REDACTED, harmless, is_path
from hangdoc.redact.shapes import NOT_STORED
from hangdoc.snapshot import Environment, Interpreter, Process, Snapshot, Stack

_SHORTEST, _LONGEST = 8, 4096
_IN_VARIABLES: ByIdentity[Mapping[str, str], frozenset[str]] = ByIdentity()
"""Secrets of environments, from one poll to the next."""


def known_secrets(evidence: Snapshot) -> tuple[str, ...]:
    """Values whose names indicate a secret."""
    secrets: set[str] = set()
    _IN_VARIABLES.begin()
    for process in (process for host in evidence.hosts for process in host.processes):
        if isinstance(process.environment, Environment):
            secrets |= _IN_VARIABLES.get(process.environment.variables, _secrets_in_environment)
        if isinstance(process.interpreter, Interpreter):
            secrets |= _IN_VARIABLES.get(process.interpreter.environment, _secrets_in_environment)
        secrets |= _secrets_in_words(process.argv) | _secrets_in_words(process.parent_argv)
        secrets |= set(_secrets_in_variables(process))
    return with_spellings(secrets)


def _secrets_in_variables(process: Process) -> Iterator[str]:
    """Texts of program variables whose names certainly indicate a secret."""
    stacks = (stack for stack in (process.stack, process.stack_before) if isinstance(stack, Stack))
    frames = (frame.locals for stack in stacks for thread in stack.threads for frame in thread.frames)
    scopes = (process.interpreter.globals, *frames) if isinstance(process.interpreter, Interpreter) else frames
    for scope in scopes:
        for variable in scope:
            if (
                variable.text[:1] in ("'", '"')
                and secrecy(variable.name) == HARD
                and _is_distinctive(variable.name, value := variable.text.strip("'\""))
            ):
                yield value


def with_spellings(secrets: Set[str]) -> tuple[str, ...]:
    """The secrets, each also in its URL-encoded spelling, the longest first."""
    spelled = secrets | {quote(value, safe="") for value in secrets}
    return tuple(sorted(spelled, key=lambda value: (-len(value), value)))


def secrets_of(variables: Mapping[str, str], words: tuple[str, ...]) -> frozenset[str]:
    """Values of an environment and a command line whose names indicate a secret."""
    return _secrets_in_environment(variables) | _secrets_in_words(words)


def _secrets_in_environment(variables: Mapping[str, str]) -> frozenset[str]:
    return frozenset(value for name, value in variables.items() if _is_distinctive(name, value))


@lru_cache(1024)
def _secrets_in_words(words: tuple[str, ...]) -> frozenset[str]:
    secrets = set()
    for before, word in zip(("", *words), words, strict=False):
        name, equals, value = word.partition("=")
        if equals and _is_distinctive(name, value):
            secrets.add(value)
        elif (
            before.startswith("-") and "=" not in before and not word.startswith("-") and _is_distinctive(before, word)
        ):
            secrets.add(word)
    return frozenset(secrets)


def _is_distinctive(name: str, value: str) -> bool:
    """Whether a value can be removed everywhere. If a password is `all_reduce`, not every `all_reduce` may be removed."""
    level = secrecy(name)
    if (
        level == NONE
        or not _SHORTEST <= len(value) <= _LONGEST
        or REDACTED in value
        or NOT_STORED in value
        or harmless(value, level)
    ):
        return False
    return not (value.replace("_", "").isalpha() and len(value) < 24) and not value.isdigit() and not is_path(value)
