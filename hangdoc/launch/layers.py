"""Unwraps a shell command, layer by layer, to the launch inside: ssh, tmux, bash -c, env, containers, srun, torchrun."""

import shlex
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import PurePath

from msgspec.structs import replace

from hangdoc.launch import containers, launchers
from hangdoc.launch.launchers import Launched
from hangdoc.launch.options import CONTAINER_IMAGE
from hangdoc.launch.shell import Scope, Simple, commands
from hangdoc.torch_facts.launchers import MEETING_VARIABLES, PROGRAMS, STARTS_ANYTHING

_MAX_LAYERS = 40
_LAUNCHERS, *_MOST, _LAST = ", ".join(dict.fromkeys(PROGRAMS.values())), *MEETING_VARIABLES
ACCEPTED = f"{_LAUNCHERS}, or python with {', '.join(_MOST)} or {_LAST} in its line"
"""What is a launch, for messages."""
_VARIABLES = "environment variables"
_SETS_VARIABLES = "sets variables for the command"
_CHANGES_SHELL = "changes this shell; the variables that it sets are unknown"
SETS_VARIABLES = frozenset({_VARIABLES, _SETS_VARIABLES})
"""What a layer does that only sets the variables in `LaunchLine.environment`."""


@dataclass(frozen=True)
class Layer:
    """One layer around a launch."""

    text: str
    """As written in the command."""
    why: str
    """What it does, for readers."""


@dataclass(frozen=True)
class LaunchLine:
    """One launch, with the layers around it."""

    launched: Launched
    environment: dict[str, str]
    """The variables that the text sets. Those that the shell already had are unknown."""
    folder: str
    host: str | None
    layers: tuple[Layer, ...]
    around: dict[str, str] = field(default_factory=dict)
    """The options of srun and mpirun that start this launcher, and the image of its container."""


@dataclass
class _Cursor:
    """The state of the unwrapping: the remaining words, and what the removed layers have set."""

    words: list[str]
    environment: dict[str, str]
    folder: str
    host: str | None = None
    layers: list[Layer] = field(default_factory=list)
    around: list[dict[str, str]] = field(default_factory=list)
    """The options of each launcher and the image of each container among the removed layers."""
    starter: Launched | None = None
    """The last srun or mpirun among the removed layers, which starts a rank if the rest is Python. `around` has its options."""

    def go_to(self, host: str) -> None:
        """Go to a new shell on a host, which has nothing from this one."""
        self.host, self.environment, self.folder, self.starter = host, {}, "", None

    def peel(self, count: int, why: str) -> None:
        """Remove the first `count` words as one layer."""
        self.layers.append(Layer(" ".join(self.words[:count]), why))
        del self.words[:count]


def launches(text: str) -> list[LaunchLine]:
    """All launches in a text, in its order. Raises ShellError."""
    return [line for simple in commands(text) for line in _unwrap(simple, None, 0)]


def _unwrap(simple: Simple, outer: _Cursor | None, depth: int) -> Iterator[LaunchLine]:
    """The launches in a command. `outer`: the command that contains it as text."""
    environment = {**simple.scope.environment(), **simple.assignments}
    cursor = _Cursor(list(simple.words), environment, simple.scope.folder)
    if outer is not None:
        cursor.host, cursor.layers, cursor.around = outer.host, list(outer.layers), list(outer.around)
        cursor.starter = outer.starter
    host = cursor.host
    if simple.scope.folder and not any(layer.text == f"cd {simple.scope.folder}" for layer in cursor.layers):
        cursor.layers.append(Layer(f"cd {simple.scope.folder}", "the directory for relative paths"))
    for command in simple.scope.prepared:
        cursor.layers.append(Layer(simple.scope.expansion.count(command), _CHANGES_SHELL))
    if environment:
        shown = simple.scope.expansion.count(" ".join(f"{name}={value}" for name, value in environment.items()))
        cursor.layers.append(Layer(shown, _VARIABLES))
    if simple.redirection:
        cursor.layers.append(Layer(simple.redirection, _describe_output(simple.redirection)))
    while cursor.words and depth < _MAX_LAYERS:
        depth += 1
        name = PurePath(cursor.words[0]).name
        if (inner := _find_nested(name, cursor)) is not None:
            scope = (
                Scope(expansion=simple.scope.expansion)
                if cursor.host != host
                else Scope(dict(cursor.environment), set(cursor.environment), cursor.folder, simple.scope.expansion)
            )
            found = [line for inner_command in commands(inner, scope) for line in _unwrap(inner_command, cursor, depth)]
            yield from _without_preparation(found, cursor.starter)
            return
        if name in _WRAPPERS:
            _WRAPPERS[name](cursor)
            continue
        split = launchers.split("", tuple(cursor.words))
        if split is None:
            yield from _plain_python(cursor)
            return
        launched = launchers.read(*split)
        layer = Layer(f"{launched.tool} {_shown(launched.options)}".strip(), "starts the command on each node")
        exported = _list_exported(launched)
        cursor.environment |= exported  # as variables they are compared, and need no second row as options
        again = {launchers.EXPORTED + name for name in exported}
        options = {name: value for name, value in launched.options.items() if name not in again}
        launched = replace(launched, options=options)
        if launched.tool in STARTS_ANYTHING and _starts_another(launched):
            cursor.layers.append(layer)
            cursor.around.append(launched.options)
            cursor.starter = launched
            cursor.words = [*launched.program.split(" ", 1), *launched.arguments]
            continue
        yield _line(launched, cursor)
        return


def _without_preparation(lines: list[LaunchLine], starter: Launched | None) -> list[LaunchLine]:
    """The launches in a shell that `starter` starts, which runs each command of the text on each node. Python is the launch only
    if the text has no launcher, and then the last one: those before it prepare (`python -m pip install`)."""
    if starter is None:
        return lines
    return [line for line in lines if line.launched.options is not starter.options] or lines[-1:]


def _line(launched: Launched, cursor: _Cursor) -> LaunchLine:
    """The launch by `launched`, which may be the starter of the cursor."""
    around: dict[str, str] = {}
    for options in cursor.around:
        around |= options if options is not launched.options else {}
    launched = launchers.with_variables(launched, cursor.environment)
    return LaunchLine(launched, cursor.environment, cursor.folder, cursor.host, tuple(cursor.layers), around)


def _list_exported(launched: Launched) -> dict[str, str]:
    """The variables that `mpirun -x NAME=value` exports."""
    return {
        name.removeprefix(launchers.EXPORTED): value
        for name, value in launched.options.items()
        if name.startswith(launchers.EXPORTED) and value != "(set)"
    }


def _starts_another(launched: Launched) -> bool:
    words = (*launched.program.split(" ", 1), *launched.arguments)
    name = PurePath(words[0]).name if words else ""
    return launchers.split("", words) is not None or name in _WRAPPERS or name in ("bash", "sh")


def _plain_python(cursor: _Cursor) -> Iterator[LaunchLine]:
    """The launch of `python train.py`, if srun or mpirun starts it (`srun apptainer exec IMAGE python train.py`), or if the
    environment has torch's rendezvous variables."""
    name, starter = PurePath(cursor.words[0]).name, cursor.starter
    by_hand = cursor.environment.keys() & set(MEETING_VARIABLES)
    if not name.startswith("python") or not (starter is not None or by_hand):
        return
    launched = launchers.read("python", launchers.after_python(tuple(cursor.words)))
    if starter is not None:
        launched = replace(launched, tool=starter.tool, options=starter.options)
    yield _line(launched, cursor)


def _shown(options: dict[str, str]) -> str:
    return " ".join(f"--{name}" if value == "(set)" else f"--{name}={value}" for name, value in options.items())


def _describe_output(redirection: str) -> str:
    text = "where its output goes"
    if "tee" in redirection:
        text += "; the exit code is that of tee, unless pipefail is set"
    return text


# --- commands that contain shell text ------------------------------------------------------------------------------------

_SSH_VALUES = set("BbcDEeFIiJLlmOoPpQRSWw")
_TMUX_VALUES = {"-s", "-n", "-c", "-x", "-y", "-t", "-F", "-e", "-f", "-L", "-S"}


def _find_nested(name: str, cursor: _Cursor) -> str | None:
    """The shell text in a command, after adding a layer for the words before it; None if there is none."""
    words = cursor.words
    if name == "ssh":
        index = 1
        while index < len(words) and words[index].startswith("-"):
            index += 2 if len(words[index]) == 2 and words[index][1] in _SSH_VALUES else 1
        if index >= len(words):
            return None
        cursor.go_to(words[index].rpartition("@")[2])
        return _inner_text(
            cursor,
            index + 1,
            f"runs the rest on {cursor.host} in a new shell, without this environment",
        )
    if name in ("pdsh", "clush") and "-w" in words[:-1]:
        index = words.index("-w")
        cursor.go_to(words[index + 1])
        return _inner_text(cursor, index + 2, f"runs the rest on each host of {cursor.host}")
    if name in ("bash", "sh", "zsh", "dash") and any(w.startswith("-") and "c" in w for w in words[1:4]):
        index = next(i for i, w in enumerate(words) if i and w.startswith("-") and "c" in w)
        return _inner_text(cursor, index + 1, "runs its argument in a shell", only=True)
    if name == "tmux":
        index = next(
            (i for i, w in enumerate(words) if i and not w.startswith("-") and words[i - 1] not in _TMUX_VALUES), 1
        )
        verb = words[index] if index < len(words) else ""
        index += 1
        while index < len(words) and words[index].startswith("-"):
            index += (
                2
                if words[index] in _TMUX_VALUES or (len(words[index]) > 2 and f"-{words[index][-1]}" in _TMUX_VALUES)
                else 1
            )
        if verb in ("send-keys", "send"):
            return _inner_text(cursor, index, "types into a terminal that continues after ssh ends", only=True)
        return _inner_text(
            cursor,
            index,
            "runs the rest in a terminal that continues after ssh ends, with the environment of tmux's server",
            as_words=True,
        )
    if name == "screen":
        after = ("-S", "-dmS")
        start = next(
            (i for i, w in enumerate(words) if i and not w.startswith("-") and words[i - 1] not in after), None
        )
        return (
            _inner_text(cursor, start, "runs the rest in a terminal that continues after ssh ends", as_words=True)
            if start is not None
            else None
        )
    return None


def _inner_text(cursor: _Cursor, index: int, why: str, only: bool = False, as_words: bool = False) -> str:
    """The words from `index` as shell text: joined as they are, as ssh does; with `only`, the first one; with `as_words`, one
    word is shell text, and several are a command and its arguments, as tmux and screen take them."""
    cursor.layers.append(Layer(" ".join(cursor.words[:index]), why))
    rest = cursor.words[index:]
    if as_words and len(rest) > 1:
        return shlex.join(rest)
    return rest[0] if only and rest else " ".join(rest)


# --- commands that start the words after them ----------------------------------------------------------------------------


def _wrapper(why: str, values: Set[str] = frozenset(), positional: int = 0) -> Callable[[_Cursor], None]:
    def peel(cursor: _Cursor) -> None:
        index, left = 1, positional
        while index < len(cursor.words) and (cursor.words[index].startswith("-") or left):
            word = cursor.words[index]
            if word == "--":
                index += 1
                break
            if word.startswith("-"):
                index += 2 if word in values else 1
            else:
                index, left = index + 1, left - 1
        cursor.peel(index, why)

    return peel


def _env(cursor: _Cursor) -> None:
    index, cleared = 1, False
    assigned: dict[str, str] = {}
    gone = set()
    while index < len(cursor.words):
        word = cursor.words[index]
        if word in ("-u", "--unset", "-C", "--chdir"):
            following = cursor.words[index + 1] if index + 1 < len(cursor.words) else ""
            if word in ("-C", "--chdir"):
                cursor.folder = following
            else:
                gone.add(following)
            index += 2
        elif word.startswith("-"):
            cleared |= word in ("-i", "-", "--ignore-environment")
            index += 1
        elif "=" in word:
            name, _, value = word.partition("=")
            assigned[name] = value
            index += 1
        else:
            break
    kept = {} if cleared else {name: value for name, value in cursor.environment.items() if name not in gone}
    cursor.environment = {**kept, **assigned}
    cursor.peel(index, _SETS_VARIABLES)


def _container(cursor: _Cursor) -> None:
    container = containers.read(cursor.words)
    cursor.environment = container.environment(cursor.environment)
    cursor.folder = container.folder if container.folder is not None else cursor.folder
    if container.image is not None:
        cursor.around.append({CONTAINER_IMAGE: container.image})
    cursor.peel(container.count, container.why)


def _runner(cursor: _Cursor) -> None:
    """Unwrap uv run, conda run, poetry run."""
    index = 2
    while index < len(cursor.words) and cursor.words[index].startswith("-"):
        index += (
            2
            if cursor.words[index] in ("-n", "--name", "-p", "--prefix", "--python", "--with", "--project", "--extra")
            else 1
        )
    cursor.peel(index, "runs the rest in a Python environment")


_WRAPPERS: dict[str, Callable[[_Cursor], None]] = {
    "env": _env,
    "sudo": _wrapper(
        "runs as another user, without most of the environment", {"-u", "-g", "--user", "--group", "-C", "-h"}
    ),
    "nohup": _wrapper("keeps running when the terminal closes"),
    "exec": _wrapper("replaces the shell"),
    "command": _wrapper("runs the program, not an alias"),
    "time": _wrapper("measures the time", {"-o", "-f"}),
    "setsid": _wrapper("runs in a new session"),
    "stdbuf": _wrapper("changes the buffering of the output", {"-i", "-o", "-e"}),
    "unbuffer": _wrapper("does not buffer the output"),
    "nice": _wrapper("changes the CPU priority", {"-n", "--adjustment"}),
    "ionice": _wrapper("changes the disk priority", {"-c", "-n"}),
    "timeout": _wrapper("ends the command after a time limit", {"-k", "-s", "--kill-after", "--signal"}, positional=1),
    "taskset": _wrapper("runs only on some cores", set(), positional=1),
    "numactl": _wrapper("uses only some cores or memory", {"-N", "-m", "-C", "-l"}),
    **dict.fromkeys(containers.NAMES, _container),
    "conda": _runner,
    "mamba": _runner,
    "uv": _runner,
    "poetry": _runner,
}
