"""Values whose names indicate a secret. They are removed wherever else they occur."""

from collections.abc import Iterator, Mapping
from urllib.parse import quote

from hangdoc.redact.names import HARD, NONE, secrecy
from hangdoc.redact.patterns import REDACTED, harmless, is_path
from hangdoc.redact.shapes import NOT_STORED
from hangdoc.snapshot import Environment, Interpreter, Process, Snapshot, Stack

_SHORTEST, _LONGEST = 8, 4096


def known_secrets(evidence: Snapshot) -> tuple[str, ...]:
    """Values whose names indicate a secret."""
    secrets: set[str] = set()
    for process in (process for host in evidence.hosts for process in host.processes):
        started = process.environment.variables if isinstance(process.environment, Environment) else {}
        changed = process.interpreter.environment if isinstance(process.interpreter, Interpreter) else {}
        secrets |= secrets_of(started, process.argv) | secrets_of(changed, process.parent_argv)
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


def with_spellings(secrets: set[str]) -> tuple[str, ...]:
    """The secrets, each also in its URL-encoded spelling, the longest first."""
    spelled = secrets | {quote(value, safe="") for value in secrets}
    return tuple(sorted(spelled, key=lambda value: (-len(value), value)))


def secrets_of(variables: Mapping[str, str], words: tuple[str, ...]) -> set[str]:
    """Values of an environment and a command line whose names indicate a secret."""
    secrets = {value for name, value in variables.items() if _is_distinctive(name, value)}
    for before, word in zip(("", *words), words, strict=False):
        name, equals, value = word.partition("=")
        if equals and _is_distinctive(name, value):
            secrets.add(value)
        elif (
            before.startswith("-") and "=" not in before and not word.startswith("-") and _is_distinctive(before, word)
        ):
            secrets.add(word)
    return secrets


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
