"""Filters every text of a snapshot, between observation and storage."""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from inspect import get_annotations
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from hangdoc.parse import encodable, names_in
from hangdoc.redact.fields import FIELDS, Kind
from hangdoc.redact.kept import ByIdentity
from hangdoc.redact.named_values import known_secrets, secrets_of, with_spellings
from hangdoc.redact.names import HARD, secrecy
from hangdoc.redact.patterns import REDACTED, text
from hangdoc.redact.sentences import sentence
from hangdoc.redact.shapes import NOT_STORED, file_name, kept, store_key
from hangdoc.redact.source import source
from hangdoc.redact.titles import program, thread
from hangdoc.redact.values import local
from hangdoc.redact.words import argv, command, environment
from hangdoc.regex import regex
from hangdoc.snapshot import (
    CallForm,
    Counter,
    DataSources,
    Frame,
    Interpreter,
    Local,
    Process,
    Progress,
    PythonThread,
    Snapshot,
    Stack,
)

T = TypeVar("T", bound=Struct)
Locals = Literal["used", "all"]
LOCALS: tuple[Locals, ...] = ("used", "all")
"""Which texts of variables are kept: only those that a diagnosis can use (paths and short names), or all except secrets."""

_STACKS = ("stack", "stack_before", "native")
_LARGE = (PythonThread, Frame, Interpreter, DataSources, CallForm)
"""Structs that are often the same objects in two looks, or twice in one."""
_NO_TEXT = (int, float, bool, NoneType)
_LONGEST_NAME = 4096
_MAX_COUNT = 10**15
"""No counter is larger, but keys are."""
_FUNCTION = regex(r"[\w.<>@$-]{0,400}|(?=.{0,400}?\w::|.{0,400}?\()[\w:<>, *&()\[\]~{}=.@$#'!+|/^%-]{1,8000}")


def snapshot(evidence: Snapshot, locals_: Locals = "used") -> Snapshot:
    """The snapshot with only those texts that a rule of the diagnosis reads, and without secrets in them. With "all", texts of
    variables that look like no secret are kept as well.

    If the name of an environment variable, an option or a variable indicates a secret, its value is removed everywhere in the
    snapshot. Idempotent. Never raises: a text on which a filter fails is removed.
    """
    filter_ = _filter(known_secrets(evidence), locals_ == "all")
    filter_.begin(evidence)
    return cast(Snapshot, filter_.value(evidence))


def node_report(report: T, variables: Mapping[str, str], words: tuple[str, ...]) -> T:
    """Any other value that is sent to another host (preflight's report), without the secrets in the environment `variables` and
    the command line `words`. The caller must have filtered the report's own environment and arguments."""
    return cast(T, _Filter(with_spellings(secrets_of(variables, words)), keep_all=False, other="name").value(report))


@lru_cache(2)
def _filter(secrets: tuple[str, ...], keep_all: bool) -> "_Filter":
    """A cached filter: between polls, most texts are the same."""
    return _Filter(secrets, keep_all)


class _Filter:
    """Filters snapshots, and caches the results by text."""

    def __init__(self, secrets: tuple[str, ...], keep_all: bool, other: Kind = "words") -> None:
        self._secrets, self._keep_all = secrets, keep_all
        self._texts: dict[tuple[Any, ...], str] = {}
        self._clean: set[tuple[Any, ...]] = set()
        """Structs with only short texts (thousands of connections) that contained no secret."""
        self._locals: dict[tuple[str, str, bool], tuple[str, str]] = {}
        """What is kept of the name and the text of a variable, by both and whether the program tests it."""
        self._kept: ByIdentity[Struct, Struct] = ByIdentity()
        """Large structs, each with what was left of it: in two looks at a stack, most are the same objects."""
        self._environments: ByIdentity[dict[str, str], dict[str, str]] = ByIdentity()
        """The same for the variables with which processes were started."""
        self._texts_before, self._clean_before, self._locals_before = self._texts, self._clean, self._locals
        """The same for the previous snapshot."""
        self._tested: frozenset[str] = frozenset()
        """Variables that a condition or a loop around a frame's line reads."""
        self._lines: frozenset[tuple[str, ...]] = frozenset()
        """The command lines of ranks and launchers."""
        self._plans: dict[type, tuple[tuple[str, Callable[[Any], Any]], ...]] = {}
        self._by_kind: dict[Kind, Callable[[Any], Any]] = {
            "name": partial(self._each, _name),
            "path": partial(self._each, file_name),
            "function": partial(self._each, _function),
            "code": partial(self._each, source),
            "argv": self._argv,
            "environment": self._environment,
            "thread": partial(self._each, thread),
            "program": partial(self._each, program),
            "key": partial(self._each, store_key),
            "sentence": partial(self._each, sentence),
            "words": partial(self._each, kept),
        }
        self._default = self._by_kind[other]

    def begin(self, evidence: Snapshot) -> None:
        """Begin a snapshot. Results that the previous snapshot did not use are dropped: the texts of ended runs and
        the values of changing variables would fill the memory of a watch."""
        self._texts_before, self._clean_before, self._locals_before = self._texts, self._clean, self._locals
        self._texts, self._clean, self._locals = {}, set(), {}
        tested = _tested_variables(evidence)
        self._kept.begin(keep=tested == self._tested)
        self._environments.begin()
        self._tested = tested
        runs = ("rank", "launcher")
        self._lines = frozenset(
            line
            for host in evidence.hosts
            for process in host.processes
            if process.role in runs
            for line in (process.argv, process.parent_argv)
        )

    def value(self, value: Any) -> Any:
        """Any value of a snapshot, filtered; the same object if nothing was removed."""
        kind = value.__class__
        if kind is str:
            return self._default(value)
        if kind is Local:
            return self._local(value)
        if kind in _LARGE:
            return self._kept.get(value, self._struct)
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
        keys = {(kind, own_texts) for own_texts in set(map(texts, values))}
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
        for field, how in self._plan(kind):
            old = getattr(value, field)
            if old is None or old == ():
                continue
            new = how(old)
            if new is not old:
                changed[field] = new
        if kind is Process:
            changed |= self._process(cast(Process, value), changed)
        if key is not None and not changed:
            self._clean.add(key)
        return msgspec.structs.replace(value, **changed) if changed else value

    def _plan(self, kind: type) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
        """The fields of a struct that can contain text, each with its filter."""
        plan = self._plans.get(kind)
        if plan is None:
            kinds = FIELDS.get(kind, {})
            plan = tuple(
                (field, self._by_kind[kinds[field]] if field in kinds else self.value) for field in _text_fields(kind)
            )
            self._plans[kind] = plan
        return plan

    def _process(self, process: Process, changed: dict[str, Any]) -> dict[str, Any]:
        """More changes of a process: its threads stay different, and its counters have no secret names."""
        more: dict[str, Any] = {}
        stacks = {field: changed.get(field, getattr(process, field)) for field in _STACKS}
        numbers = _numbers_of_threads(process, stacks)
        for field, stack in stacks.items() if numbers else ():
            if isinstance(stack, Stack):
                before = getattr(process, field).threads
                pairs = zip(before, stack.threads, strict=True)
                renamed = tuple(
                    msgspec.structs.replace(new, name=f"{new.name} {numbers[old.name]}") if old.name in numbers else new
                    for old, new in pairs
                )
                more[field] = msgspec.structs.replace(stack, threads=renamed)
        progress = changed.get("progress", process.progress)
        if isinstance(progress, Progress) and not all(map(_is_counter, progress.counters)):
            counters = tuple(filter(_is_counter, progress.counters))
            more["progress"] = msgspec.structs.replace(progress, counters=counters)
        return more

    def _local(self, value: Local) -> Local:
        name, text_ = value.name, value.text
        key = (name, text_, name in self._tested)
        shown = self._locals.get(key)
        if shown is None:
            shown = self._locals_before.get(key)
            if shown is None:
                shown = self._apply(_name, name), self._apply(local, text_, name, self._keep_all, key[2])
            self._locals[key] = shown
        if shown[1] == text_ and shown[0] == name:
            return value
        return msgspec.structs.replace(value, name=shown[0], text=shown[1])

    def _each(self, how: Callable[[str], str], value: Any) -> Any:
        """A text, or each of several texts."""
        if isinstance(value, str):
            return self._filtered(how, value)
        if isinstance(value, tuple):
            new = tuple([self._filtered(how, item) if isinstance(item, str) else self.value(item) for item in value])
            return value if all(a is b for a, b in zip(new, value, strict=True)) else new
        if isinstance(value, dict):
            return {self._filtered(how, key): self._filtered(how, item) for key, item in value.items()}
        return self.value(value)

    def _argv(self, words: tuple[str, ...]) -> tuple[str, ...]:
        new = _command_line(words, words in self._lines)
        shown = tuple(map(self._without_secrets, new))
        return words if shown == words else shown

    def _environment(self, variables: dict[str, str]) -> dict[str, str]:
        return self._environments.get(variables, self._filter_environment)

    def _filter_environment(self, variables: dict[str, str]) -> dict[str, str]:
        return {name: self._without_secrets(value) for name, value in environment(variables).items()}

    def _filtered(self, how: Callable[..., str], value: str, *more: Any) -> str:
        key = (how, value, *more)
        filtered = self._texts.get(key)
        if filtered is None:
            filtered = self._texts_before.get(key)
            if filtered is None:
                filtered = self._apply(how, value, *more)
            self._texts[key] = filtered
        return value if filtered == value else filtered

    def _apply(self, how: Callable[..., str], value: str, *more: Any) -> str:
        value = encodable(value)
        try:
            kept = self._without_secrets(how(*more[:1], value, *more[1:]))
        except Exception:  # a text on which the filter fails must not be kept
            return REDACTED
        return value if kept == value else kept

    def _without_secrets(self, value: str) -> str:
        for secret in self._secrets:
            if secret in value:
                value = value.replace(secret, REDACTED)
        return value


@lru_cache(1024)
def _command_line(words: tuple[str, ...], of_run: bool) -> tuple[str, ...]:
    try:
        return argv(words) if of_run else command(words)
    except Exception:  # as in _apply
        return tuple(REDACTED for _ in words)


def _name(value: str) -> str:
    return text(value, digests=True) if len(value) <= _LONGEST_NAME else NOT_STORED


def _function(value: str) -> str:
    """The name of a function: of Python without spaces, or of C++ with its types."""
    return text(value, digests=True) if _FUNCTION.fullmatch(value) else NOT_STORED


def _tested_variables(evidence: Snapshot) -> frozenset[str]:
    """The variables that conditions, loops and contexts around the frames' lines read, and those of remote calls."""
    texts: set[str] = set()
    for process in (process for host in evidence.hosts for process in host.processes):
        for stack in (process.stack, process.stack_before):
            for thread_ in stack.threads if isinstance(stack, Stack) else ():
                for frame in thread_.frames:
                    texts.update(frame.conditions, frame.contexts)
                    for loop in frame.loops:
                        texts.add(loop.header)
                        texts.update(test for exit_ in loop.exits for test in exit_.conditions)
                    if frame.source is not None and ("rpc" in frame.source or "remote" in frame.source):
                        texts.add(frame.source)
    return frozenset(name for code in texts for name in _names_of(code))


def _is_counter(counter: Counter) -> bool:
    return secrecy(counter.name) != HARD and max(abs(counter.before), abs(counter.after)) < _MAX_COUNT


@lru_cache(2048)
def _names_of(code: str) -> tuple[str, ...]:
    return tuple(names_in(code[:400]))


def _numbers_of_threads(process: Process, stacks: Mapping[str, Any]) -> dict[str | None, int]:
    """The number of each thread of a process whose filtered name is that of another one, by its name."""
    names: dict[str | None, str | None] = {}
    for field, stack in stacks.items():
        if isinstance(stack, Stack):
            old = getattr(process, field).threads
            names |= {a.name: b.name for a, b in zip(old, stack.threads, strict=True)}
    alike: dict[str | None, list[str | None]] = {}
    for before, after in names.items():
        alike.setdefault(after, []).append(before)
    return {name: at for group in alike.values() for at, name in enumerate(group[1:], 2)}


def _hints(kind: type) -> dict[str, Any]:
    """The types of a struct's fields. For all structs, typing.get_type_hints takes 6 ms and msgspec.inspect 15 ms."""
    annotations: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        annotations |= get_annotations(base)
    return (
        get_type_hints(kind) if any(isinstance(annotation, str) for annotation in annotations.values()) else annotations
    )


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
        return any(_has_text(argument) for argument in get_args(kind) if argument is not ...)
    return kind not in _NO_TEXT
