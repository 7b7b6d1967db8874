"""Every text of a snapshot through its filter: the one gate between what was seen and what is kept."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from inspect import get_annotations
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from urllib.parse import quote

import msgspec
from msgspec import Struct

from hangdoc.redact.looks import REDACTED, harmless, is_path, text, tokens
from hangdoc.redact.names import HARD, NONE, secrecy
from hangdoc.redact.source import source
from hangdoc.redact.values import local
from hangdoc.redact.words import argv, environment
from hangdoc.snapshot import (
    AwaitedFile,
    Environment,
    Exit,
    Frame,
    Group,
    Interpreter,
    Launch,
    Listener,
    Local,
    Loop,
    Process,
    RankIdentity,
    Snapshot,
    Stack,
)

T = TypeVar("T", bound=Struct)
Locals = Literal["used", "all"]
LOCALS: tuple[Locals, ...] = ("used", "all")
"""Which texts of variables are kept: those that a diagnosis can use (paths and short names), or all that are no secrets."""

_NO_TEXT = (int, float, bool, NoneType)
_SHORTEST, _LONGEST = 8, 4096
_IDENTITIES = (RankIdentity, Launch, Group)
"""What ties ranks together may look random, and must stay the same everywhere."""


def snapshot(seen: Snapshot, locals_: Locals = "used") -> Snapshot:
    """The snapshot as it may be stored: without secrets, and without texts of variables that no diagnosis uses.

    A value that stands at the name of a secret (an environment variable's, an option's, a variable's) is removed wherever else it
    is seen.
    Idempotent; never raises: a text that a filter fails on is removed.
    """
    gate = _gate(_known(seen), locals_ == "all")
    gate.begin()
    return cast(Snapshot, gate.value(seen))


def node_report(seen: T, variables: Mapping[str, str], words: tuple[str, ...]) -> T:
    """Any other value that travels (preflight's facts), without what the variables and the command line it was made from say
    is secret. Its own environment and arguments have gone through `environment` and `argv` before."""
    return cast(T, _Gate(_sorted(_secrets(variables, words)), every=False).value(seen))


def _known(seen: Snapshot) -> tuple[str, ...]:
    """Values that are secrets by their names."""
    found: set[str] = set()
    for process in (process for host in seen.hosts for process in host.processes):
        given = process.environment.variables if isinstance(process.environment, Environment) else {}
        later = process.interpreter.environment if isinstance(process.interpreter, Interpreter) else {}
        found |= _secrets(given, process.argv) | _secrets(later, ()) | set(_in_variables(process))
    return _sorted(found)


def _in_variables(process: Process) -> Iterator[str]:
    """Texts of variables that are named after nothing else."""
    stacks = (stack for stack in (process.stack, process.stack_before) if isinstance(stack, Stack))
    frames = (frame.locals for stack in stacks for thread in stack.threads for frame in thread.frames)
    scopes = (process.interpreter.globals, *frames) if isinstance(process.interpreter, Interpreter) else frames
    for scope in scopes:
        for one in scope:
            if (
                one.text[:1] in ("'", '"')
                and secrecy(one.name) == HARD
                and _telling(one.name, value := one.text.strip("'\""))
            ):
                yield value


def _sorted(secrets: set[str]) -> tuple[str, ...]:
    """The longest first, each also as it stands in an address."""
    spelled = secrets | {quote(value, safe="") for value in secrets}
    return tuple(sorted(spelled, key=lambda value: (-len(value), value)))


def _secrets(variables: Mapping[str, str], words: tuple[str, ...]) -> set[str]:
    found = {value for name, value in variables.items() if _telling(name, value)}
    for before, word in zip(("", *words), words, strict=False):
        name, equals, value = word.partition("=")
        if equals and _telling(name, value):
            found.add(value)
        elif before.startswith("-") and "=" not in before and not word.startswith("-") and _telling(before, word):
            found.add(word)
    return found


def _telling(name: str, value: str) -> bool:
    """Whether a secret can be told from other texts: `all_reduce` for a password must not take every all_reduce away."""
    level = secrecy(name)
    if level == NONE or not _SHORTEST <= len(value) <= _LONGEST or REDACTED in value or harmless(value, level):
        return False
    return not (value.replace("_", "").isalpha() and len(value) < 24) and not value.isdigit() and not is_path(value)


@lru_cache(2)
def _gate(known: tuple[str, ...], every: bool) -> "_Gate":
    """For somebody who looks again and again: most texts are those of the look before."""
    return _Gate(known, every)


class _Gate:
    """Filters one snapshot; what it has seen once it knows."""

    def __init__(self, known: tuple[str, ...], every: bool) -> None:
        self._known, self._every = known, every
        self._texts: dict[tuple[Any, str], str] = {}
        self._clean: set[tuple[Any, ...]] = set()
        """Structs of short texts alone (connections, of which there are thousands) that had nothing to hide."""
        self._texts_before, self._clean_before = self._texts, self._clean
        """Those of the snapshot before."""
        self._special: dict[tuple[type, str], Callable[[Any], Any]] = {
            (Frame, "function"): self._same,
            (Frame, "file"): self._path,
            (Frame, "source"): self._code,
            (Frame, "context"): self._code,
            (Frame, "conditions"): self._codes,
            (Frame, "contexts"): self._codes,
            (Loop, "header"): self._code,
            (Exit, "conditions"): self._codes,
            (AwaitedFile, "name"): self._path,
            (Process, "argv"): self._argv,
            (Listener, "argv"): self._argv,
            (Process, "cwd"): self._path,
            (Environment, "variables"): self._environment,
            (Interpreter, "environment"): self._environment,
        }

    def begin(self) -> None:
        """Begin a snapshot. What the snapshot before did not contain is forgotten: the texts of runs that have ended, and values
        of variables that change all the time, would fill the memory of a watch."""
        self._texts_before, self._clean_before = self._texts, self._clean
        self._texts, self._clean = {}, set()

    def value(self, value: Any) -> Any:
        """Any value of a snapshot; the same object where nothing had to go."""
        kind = value.__class__
        if kind is str:
            return self._filtered(_prose, value)
        if kind is Local:
            return self._local(value)
        if isinstance(value, Struct):
            return self._struct(value)
        if kind is tuple:
            new = tuple([self.value(item) for item in value])
            return value if all(a is b for a, b in zip(new, value, strict=True)) else new
        if kind is dict:
            return {key: self.value(item) for key, item in value.items()}
        return value

    def _struct(self, value: Struct) -> Struct:
        kind = type(value)
        texts = _flat(kind)
        key = (kind, texts(value)) if texts is not None else None
        if key is not None and (key in self._clean or key in self._clean_before):
            self._clean.add(key)
            return value
        changed = {}
        for field in _with_text(kind):
            old = getattr(value, field)
            if old is None or old == ():
                continue
            special = self._special.get((kind, field))
            if special is None:
                special = self._path if kind in _IDENTITIES and isinstance(old, str) else self.value
            new = special(old)
            if new is not old:
                changed[field] = new
        if key is not None and not changed:
            self._clean.add(key)
        return msgspec.structs.replace(value, **changed) if changed else value

    def _local(self, value: Local) -> Local:
        kept = self._filtered(local, value.text, value.name, self._every)
        return value if kept is value.text else msgspec.structs.replace(value, text=kept)

    def _same(self, value: str) -> str:
        return value

    def _path(self, value: str) -> str:
        return self._filtered(_path, value)

    def _code(self, value: str) -> str:
        return self._filtered(source, value)

    def _codes(self, values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(self._code, values))

    def _argv(self, words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(self._without_known, argv(words)))

    def _environment(self, variables: dict[str, str]) -> dict[str, str]:
        return {name: self._without_known(value) for name, value in environment(variables).items()}

    def _filtered(self, how: Callable[..., str], value: str, *more: Any) -> str:
        key = (how, value, *more)
        known = self._texts.get(key)
        if known is None:
            known = self._texts_before.get(key)
            if known is None:
                known = self._without(how, value, *more)
            self._texts[key] = known
        return value if known == value else known

    def _without(self, how: Callable[..., str], value: str, *more: Any) -> str:
        try:
            kept = self._without_known(how(*more[:1], value, *more[1:]))
        except Exception:  # a text that the filter can't read must not be kept
            return REDACTED
        return value if kept == value else kept

    def _without_known(self, value: str) -> str:
        for secret in self._known:
            if secret in value:
                value = value.replace(secret, REDACTED)
        return value


def _prose(value: str) -> str:
    return text(value, prose=True)


def _path(value: str) -> str:
    return tokens(value)


def _hints(kind: type) -> dict[str, Any]:
    """The types of a struct's fields. typing.get_type_hints and msgspec.inspect take 6 and 15 ms to say the same of all."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        found |= get_annotations(base)
    return get_type_hints(kind) if any(isinstance(one, str) for one in found.values()) else found


@cache
def _with_text(kind: type) -> tuple[str, ...]:
    """The fields of a struct that can hold a text."""
    kinds = _hints(kind)
    return tuple(name for name in kind.__struct_fields__ if _has_text(kinds[name]))  # type: ignore[attr-defined]


@cache
def _flat(kind: type) -> Callable[[Any], Any] | None:
    """What gets the texts of a struct that has at least two, and nothing else that can hold one; None for any other."""
    kinds, fields = _hints(kind), _with_text(kind)
    if kind is Local or len(fields) < 2 or any(kinds[name] not in (str, str | None) for name in fields):
        return None
    return attrgetter(*fields)


def _has_text(kind: Any) -> bool:
    """Whether a type is, or has in it, anything but numbers; whatever it is not sure of may hold a text."""
    if isinstance(kind, UnionType) or get_origin(kind) in (tuple, Union):
        return any(_has_text(one) for one in get_args(kind) if one is not ...)
    return kind not in _NO_TEXT
