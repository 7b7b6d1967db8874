"""Parses shell text into simple commands, with tree-sitter's grammar of bash (https://github.com/tree-sitter/tree-sitter-bash).

Variables that the text sets are expanded. Everything that only a running shell knows is kept as written: `$HOME`, `$(date)`."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import tree_sitter
import tree_sitter_bash
from tree_sitter import Node

MAX_BYTES = 1 << 20
_MAX_DEPTH = 200
_MOST_IN_A_WORD = 64 << 10
"""Characters that variables may put into one word or value. A variable that contains another ten times, nine times over, is a
billion times as long."""
_MOST_IN_ALL = 4 << 20
"""The same for a whole text."""
_ACTIVATES, _LOADS = frozenset({"activate"}), frozenset({"load", "add", "swap", "switch", "restore"})
_PREPARES: dict[str, frozenset[str]] = {
    ".": frozenset(), "source": frozenset(), "conda": _ACTIVATES, "mamba": _ACTIVATES, "micromamba": _ACTIVATES,
    "pyenv": frozenset({"activate", "shell"}), "module": _LOADS, "ml": frozenset(), "spack": frozenset({"load"}),
}  # fmt: skip
"""Commands that change the shell itself, and their verbs that do; none: it always does."""
_MOST_PREPARED = 40
_PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class ShellError(Exception):
    """Text that can't be parsed as shell. The message is one sentence."""


class Expansion:
    """How much variables have put into a text so far."""

    def __init__(self) -> None:
        self._in_word = self._in_all = 0

    def begin_word(self) -> None:
        """The next value belongs to another word."""
        self._in_word = 0

    def take(self, value: str) -> str:
        """The value of a variable. Raises ShellError if there are too many."""
        self._in_word += len(value)
        if self._in_word > _MOST_IN_A_WORD:
            raise ShellError(f"its variables expand to more than {_MOST_IN_A_WORD >> 10} KiB in one word")
        return self.count(value)

    def count(self, value: str) -> str:
        """A text that contains values of variables. Raises ShellError if all of these are too long together."""
        self._in_all += len(value)
        if self._in_all > _MOST_IN_ALL:
            raise ShellError(f"its variables expand to more than {_MOST_IN_ALL >> 20} MiB")
        return value


@dataclass
class Scope:
    """The state of the shell at one point of the text."""

    variables: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    folder: str = ""
    """The working directory, from `cd`; empty for the initial one."""
    expansion: Expansion = field(default_factory=Expansion)
    """Shared by all scopes of a text."""
    prepared: tuple[str, ...] = ()
    """The first commands that change this shell in a way that the text does not show: `source FILE`, `conda activate NAME`."""

    def copy(self) -> "Scope":
        """The same state, for changes that do not come back."""
        return Scope(dict(self.variables), set(self.exported), self.folder, self.expansion, self.prepared)

    def environment(self) -> dict[str, str]:
        """The exported variables, which a command inherits."""
        return {name: self.variables[name] for name in sorted(self.exported) if name in self.variables}

    def change_directory(self, to: str) -> None:
        """Apply `cd`."""
        absolute = to.startswith(("/", "~", "$")) or not self.folder
        self.folder = to if absolute else f"{self.folder.rstrip('/')}/{to}"

    def prepare(self, command: str) -> None:
        """Keep a command that changes this shell."""
        if len(self.prepared) < _MOST_PREPARED:
            self.prepared = (*self.prepared, command)


@dataclass(frozen=True)
class Simple:
    """One command with its words, in the scope in which it runs."""

    words: tuple[str, ...]
    assignments: dict[str, str]
    """Variables that are set only for this command: `A=b command`."""
    scope: Scope
    redirection: str
    """Where the line sends its output: `2>&1 | tee log`."""


def commands(text: str, scope: Scope | None = None) -> Iterator[Simple]:
    """All simple commands in the order of the text, of all branches. `cd`, `export`, `source` and assignments are not returned:
    they change the scope of the commands after them. Raises ShellError."""
    raw = text.encode("utf-8", "replace")
    if len(raw) > MAX_BYTES:
        raise ShellError(f"it is longer than {MAX_BYTES >> 20} MiB, so it is not a launch script")
    tree = _PARSER.parse(raw)
    if "\0" in text:
        raise ShellError("it contains NUL characters, so it is not a text file")
    yield from _walk(tree.root_node, scope if scope is not None else Scope(), "", 0)


def _walk(node: Node, scope: Scope, redirection: str, depth: int) -> Iterator[Simple]:
    if depth > _MAX_DEPTH:
        raise ShellError("it is nested too deeply")
    kind = node.type
    if kind == "command":
        yield from _read_command(node, scope, redirection)
    elif kind == "declaration_command":
        _declare(node, scope)
    elif kind == "variable_assignment":
        name, value = _read_assignment(node, scope)
        scope.variables[name] = value
    elif kind == "unset_command":
        for child in node.named_children:
            scope.variables.pop(_expand_word(child, scope), None)
    elif kind == "subshell":
        inner = scope.copy()
        for child in node.named_children:
            yield from _walk(child, inner, redirection, depth + 1)
    elif kind == "redirected_statement":
        redirects = [_read_raw(child) for child in node.named_children if child.type.endswith("redirect")]
        for child in node.named_children:
            if not child.type.endswith("redirect"):
                yield from _walk(child, scope, " ".join((*redirects, redirection)).strip(), depth + 1)
    elif kind == "pipeline":
        first, *others = [child for child in node.named_children if child.type != "comment"]
        pipe = " ".join("| " + _read_raw(other) for other in others)
        yield from _walk(first, scope, f"{pipe} {redirection}".strip(), depth + 1)
        for other in others:
            yield from _walk(other, scope, "", depth + 1)
    else:
        for child in node.named_children:
            yield from _walk(child, scope, redirection, depth + 1)


def _read_command(node: Node, scope: Scope, redirection: str) -> Iterator[Simple]:
    words: list[str] = []
    own: dict[str, str] = {}
    for child in node.named_children:
        if child.type == "variable_assignment":
            name, value = _read_assignment(child, scope)
            own[name] = value
        elif child.type == "command_name":
            words.append(_expand_word(child.named_children[0], scope) if child.named_children else _read_raw(child))
        elif child.type.endswith("redirect"):
            redirection = f"{_read_raw(child)} {redirection}".strip()
        elif child.type != "comment":
            words += _expand_words(child, scope)
    if not words:
        scope.variables |= own
    elif words[0] == "cd":
        scope.change_directory(words[1] if len(words) > 1 else "~")
    elif words[0] in _PREPARES and (not _PREPARES[words[0]] or _PREPARES[words[0]] & set(words[1:2])):
        scope.prepare(" ".join(words))  # the variables that it sets are unknown
    elif words[0] == "set":
        if "-a" in words[1:2]:
            scope.exported |= set(scope.variables)
    else:
        yield Simple(tuple(words), own, scope.copy(), redirection)


def _expand_words(node: Node, scope: Scope) -> list[str]:
    """The words of a node: an unquoted variable may expand to several."""
    text = _expand_word(node, scope)
    if node.type == "simple_expansion" and _read_variable_name(node) in scope.variables:
        return text.split()
    return [text]


def _declare(node: Node, scope: Scope) -> None:
    exports = _read_raw(node).split(None, 1)[0] == "export" or any(
        child.type == "word" and "x" in _read_raw(child) and _read_raw(child).startswith("-")
        for child in node.named_children
    )
    for child in node.named_children:
        if child.type == "variable_assignment":
            name, value = _read_assignment(child, scope)
            scope.variables[name] = value
        elif child.type in ("variable_name", "word") and not _read_raw(child).startswith("-"):
            name = _read_raw(child)
        else:
            continue
        if exports:
            scope.exported.add(name)


def _read_assignment(node: Node, scope: Scope) -> tuple[str, str]:
    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
    return (_read_raw(name) if name is not None else "", _expand_word(value, scope) if value is not None else "")


def _read_raw(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _read_variable_name(node: Node) -> str:
    name_node = next(
        (child for child in node.named_children if child.type in ("variable_name", "special_variable_name")), None
    )
    return _read_raw(name_node) if name_node is not None else ""


def _expand_word(node: Node, scope: Scope) -> str:
    """The word as the shell would pass it to a command. Raises ShellError for a huge one."""
    scope.expansion.begin_word()
    return _expand_text(node, scope)


def _expand_text(node: Node, scope: Scope) -> str:
    """A word or a part of one."""
    kind = node.type
    if kind == "raw_string":
        return _read_raw(node)[1:-1]
    if kind == "ansi_c_string":
        return _read_raw(node)[2:-1].encode("latin-1", "backslashreplace").decode("unicode_escape", "replace")
    if kind == "word":
        return _unescape(_read_raw(node), everything=True)
    if kind == "string":
        return _expand_string(node, scope)
    if kind == "concatenation":
        return "".join(_expand_text(child, scope) for child in node.children)
    if kind in ("simple_expansion", "expansion"):
        plain = kind == "simple_expansion" or len(node.named_children) == 1
        value = scope.variables.get(_read_variable_name(node)) if plain else None
        return scope.expansion.take(value) if value is not None else _read_raw(node)
    return _read_raw(node)


def _expand_string(node: Node, scope: Scope) -> str:
    """The content of a string in double quotes, including the text between its child nodes."""
    source = node.text or b""
    at, out = node.start_byte + 1, ""
    for child in node.named_children:
        out += source[at - node.start_byte : child.start_byte - node.start_byte].decode("utf-8", "replace")
        out += (
            _unescape(_read_raw(child), everything=False)
            if child.type == "string_content"
            else _expand_text(child, scope)
        )
        at = child.end_byte
    return out + source[at - node.start_byte : len(source) - 1].decode("utf-8", "replace")


def _unescape(text: str, everything: bool) -> str:
    out, index = "", 0
    while index < len(text):
        if text[index] == "\\" and index + 1 < len(text):
            following = text[index + 1]
            if following == "\n":
                pass
            elif everything or following in '$`"\\':
                out += following
            else:
                out += "\\" + following
            index += 2
        else:
            out += text[index]
            index += 1
    return out
