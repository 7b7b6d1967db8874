"""Filters every text of a snapshot, between observation and storage."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from inspect import get_annotations
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from urllib.parse import quote

import msgspec
from msgspec import Struct

from hangdoc.redact.names import HARD, NONE, secrecy
from hangdoc.redact.patterns import REDACTED, harmless, is_path, text, tokens
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
"""Which texts of variables are kept: only those that a diagnosis can use (paths and short names), or all except secrets."""

_NO_TEXT = (int, float, bool, NoneType)
_SHORTEST, _LONGEST = 8, 4096
_IDENTITIES = (RankIdentity, Launch, Group)
"""The identities of runs and groups may look random, but must stay the same in all snapshots."""


def snapshot(evidence: Snapshot, locals_: Locals = "used") -> Snapshot:
    """The snapshot without secrets, and with "used", without texts of variables that no diagnosis uses.

    If the name of an environment variable, an option or a variable indicates a secret, its value is removed everywhere in the
    snapshot. Idempotent. Never raises: a text on which a filter fails is removed.
    """
    filter_ = _filter(_known_secrets(evidence), locals_ == "all")
    filter_.begin()
    return cast(Snapshot, filter_.value(evidence))


def node_report(report: T, variables: Mapping[str, str], words: tuple[str, ...]) -> T:
    """Any other value that is sent to another host (preflight's report), without the secrets in the environment `variables` and
    the command line `words`. The caller must have filtered the report's own environment and arguments."""
    return cast(T, _Filter(_with_spellings(_secrets(variables, words)), keep_all=False).value(report))


def _known_secrets(evidence: Snapshot) -> tuple[str, ...]:
    """Values whose names indicate a secret."""
    found: set[str] = set()
    for process in (process for host in evidence.hosts for process in host.processes):
        started = process.environment.variables if isinstance(process.environment, Environment) else {}
        changed = process.interpreter.environment if isinstance(process.interpreter, Interpreter) else {}
        found |= _secrets(started, process.argv) | _secrets(changed, ()) | set(_secrets_in_variables(process))
    return _with_spellings(found)


def _secrets_in_variables(process: Process) -> Iterator[str]:
    """Texts of program variables whose names certainly indicate a secret."""
    stacks = (stack for stack in (process.stack, process.stack_before) if isinstance(stack, Stack))
    frames = (frame.locals for stack in stacks for thread in stack.threads for frame in thread.frames)
    scopes = (process.interpreter.globals, *frames) if isinstance(process.interpreter, Interpreter) else frames
    for scope in scopes:
        for one in scope:
            if (
                one.text[:1] in ("'", '"')
                and secrecy(one.name) == HARD
                and _is_distinctive(one.name, value := one.text.strip("'\""))
            ):
                yield value


def _with_spellings(secrets: set[str]) -> tuple[str, ...]:
    """The secrets, each also in its URL-encoded spelling, the longest first."""
    spelled = secrets | {quote(value, safe="") for value in secrets}
    return tuple(sorted(spelled, key=lambda value: (-len(value), value)))


def _secrets(variables: Mapping[str, str], words: tuple[str, ...]) -> set[str]:
    found = {value for name, value in variables.items() if _is_distinctive(name, value)}
    for before, word in zip(("", *words), words, strict=False):
        name, equals, value = word.partition("=")
        if equals and _is_distinctive(name, value):
            found.add(value)
        elif (
            before.startswith("-") and "=" not in before and not word.startswith("-") and _is_distinctive(before, word)
        ):
            found.add(word)
    return found


def _is_distinctive(name: str, value: str) -> bool:
    """Whether a value can be removed everywhere. If a password is `all_reduce`, not every `all_reduce` may be removed."""
    level = secrecy(name)
    if level == NONE or not _SHORTEST <= len(value) <= _LONGEST or REDACTED in value or harmless(value, level):
        return False
    return not (value.replace("_", "").isalpha() and len(value) < 24) and not value.isdigit() and not is_path(value)


@lru_cache(2)
def _filter(known: tuple[str, ...], keep_all: bool) -> "_Filter":
    """A cached filter: between polls, most texts are the same."""
    return _Filter(known, keep_all)


class _Filter:
    """Filters snapshots, and caches the results by text."""

    def __init__(self, known: tuple[str, ...], keep_all: bool) -> None:
        self._known, self._keep_all = known, keep_all
        self._texts: dict[tuple[Any, str], str] = {}
        self._clean: set[tuple[Any, ...]] = set()
        """Structs with only short texts (thousands of connections) that contained no secret."""
        self._texts_before, self._clean_before = self._texts, self._clean
        """The same for the previous snapshot."""
        self._special: dict[tuple[type, str], Callable[[Any], Any]] = {
            (Frame, "function"): self._unchanged,
            (Frame, "file"): self._path,
            (Frame, "source"): self._code,
            (Frame, "context"): self._code,
            (Frame, "conditions"): self._codes,
            (Frame, "contexts"): self._codes,
            (Frame, "caught"): self._codes,
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
        """Begin a snapshot. Results that the previous snapshot did not use are dropped: the texts of ended runs and
        the values of changing variables would fill the memory of a watch."""
        self._texts_before, self._clean_before = self._texts, self._clean
        self._texts, self._clean = {}, set()

    def value(self, value: Any) -> Any:
        """Any value of a snapshot, filtered; the same object if nothing was removed."""
        kind = value.__class__
        if kind is str:
            return self._filtered(_prose, value)
        if kind is Local:
            return self._local(value)
        if isinstance(value, Struct):
            return self._struct(value)
        if kind is tuple:
            if self._are_clean(value):
                return value
            new = tuple([self.value(item) for item in value])
            return value if all(a is b for a, b in zip(new, value, strict=True)) else new
        if kind is dict:
            return {key: self.value(item) for key, item in value.items()}
        return value

    def _are_clean(self, values: tuple[Any, ...]) -> bool:
        """Whether these are structs whose texts are known to be clean: the thousands of sockets of a large run have few texts."""
        kind = type(values[0]) if values else None
        if kind is None or not issubclass(kind, Struct) or any(type(value) is not kind for value in values):
            return False
        texts = _text_getter(kind)
        if texts is None:
            return False
        keys = {(kind, found) for found in set(map(texts, values))}
        if any(key not in self._clean and key not in self._clean_before for key in keys):
            return False
        self._clean |= keys
        return True

    def _struct(self, value: Struct) -> Struct:
        kind = type(value)
        texts = _text_getter(kind)
        key = (kind, texts(value)) if texts is not None else None
        if key is not None and (key in self._clean or key in self._clean_before):
            self._clean.add(key)
            return value
        changed = {}
        for field in _text_fields(kind):
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
        kept = self._filtered(local, value.text, value.name, self._keep_all)
        return value if kept is value.text else msgspec.structs.replace(value, text=kept)

    def _unchanged(self, value: str) -> str:
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
                known = self._apply(how, value, *more)
            self._texts[key] = known
        return value if known == value else known

    def _apply(self, how: Callable[..., str], value: str, *more: Any) -> str:
        try:
            kept = self._without_known(how(*more[:1], value, *more[1:]))
        except Exception:  # a text on which the filter fails must not be kept
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
    """The types of a struct's fields. For all structs, typing.get_type_hints takes 6 ms and msgspec.inspect 15 ms."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        found |= get_annotations(base)
    return get_type_hints(kind) if any(isinstance(one, str) for one in found.values()) else found


@cache
def _text_fields(kind: type) -> tuple[str, ...]:
    """The fields of a struct that can contain text."""
    kinds = _hints(kind)
    return tuple(name for name in kind.__struct_fields__ if _has_text(kinds[name]))  # type: ignore[attr-defined]


@cache
def _text_getter(kind: type) -> Callable[[Any], Any] | None:
    """A getter of all texts of a struct, if it has at least two str fields and no other fields that can contain text; else
    None."""
    kinds, fields = _hints(kind), _text_fields(kind)
    if kind is Local or len(fields) < 2 or any(kinds[name] not in (str, str | None) for name in fields):
        return None
    return attrgetter(*fields)


def _has_text(kind: Any) -> bool:
    """Whether a type can contain text. True for every type that is not certainly numeric."""
    if isinstance(kind, UnionType) or get_origin(kind) in (tuple, Union):
        return any(_has_text(one) for one in get_args(kind) if one is not ...)
    return kind not in _NO_TEXT
