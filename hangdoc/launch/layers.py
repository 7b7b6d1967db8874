"""Layer by layer from a shell command to the launch inside: ssh, tmux, bash -c, env, containers, srun, torchrun."""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from pathlib import PurePath

from hangdoc.launch import launchers
from hangdoc.launch.launchers import Launched
from hangdoc.launch.shell import Scope, Simple, commands

_MAX_LAYERS = 40


@dataclass(frozen=True)
class Layer:
    """One step inwards."""

    text: str
    """As it was written."""
    why: str
    """What it does."""


@dataclass(frozen=True)
class LaunchLine:
    """One launch, with everything around it."""

    launched: Launched
    environment: dict[str, str]
    """What the text sets for it; what the shell had before is not known."""
    folder: str
    host: str | None
    layers: tuple[Layer, ...]


@dataclass
class _At:
    """Where we are on the way inwards."""

    words: list[str]
    environment: dict[str, str]
    folder: str
    host: str | None = None
    layers: list[Layer] = field(default_factory=list)

    def peel(self, count: int, why: str) -> None:
        """Take words off the front."""
        self.layers.append(Layer(" ".join(self.words[:count]), why))
        del self.words[:count]


def launches(text: str) -> list[LaunchLine]:
    """All launches in a text, in its order; raises ShellError."""
    return [line for simple in commands(text) for line in _inwards(simple, None, (), 0)]


def _inwards(simple: Simple, host: str | None, layers: tuple[Layer, ...], depth: int) -> Iterator[LaunchLine]:
    environment = {**simple.scope.environment(), **simple.assignments}
    at = _At(list(simple.words), environment, simple.scope.folder, host, list(layers))
    if simple.scope.folder and not any(layer.text == f"cd {simple.scope.folder}" for layer in layers):
        at.layers.append(Layer(f"cd {simple.scope.folder}", "the directory that relative paths are taken from"))
    if environment:
        shown = " ".join(f"{name}={value}" for name, value in environment.items())
        at.layers.append(Layer(shown, "variables of the environment"))
    if simple.after:
        at.layers.append(Layer(simple.after, _about_output(simple.after)))
    while at.words and depth < _MAX_LAYERS:
        depth += 1
        name = PurePath(at.words[0]).name
        if (inner := _nested(name, at)) is not None:
            scope = Scope() if at.host != host else Scope(dict(at.environment), set(at.environment), at.folder)
            for one in commands(inner, scope):
                yield from _inwards(one, at.host, tuple(at.layers), depth)
            return
        if name in _WRAPPERS:
            _WRAPPERS[name](at)
            continue
        split = launchers.split("", tuple(at.words))
        if split is None:
            yield from _plain(at)
            return
        launched = launchers.read(*split)
        if launched.tool in ("srun", "mpirun") and _starts_another(launched):
            at.layers.append(
                Layer(f"{launched.tool} {_shown(launched.options)}".strip(), "starts the command on each node")
            )
            at.words = [*launched.program.split(" ", 1), *launched.arguments]
            continue
        at.environment |= _handed_on(launched)
        yield LaunchLine(launched, at.environment, at.folder, at.host, tuple(at.layers))
        return


def _handed_on(launched: Launched) -> dict[str, str]:
    """mpirun -x NAME=value."""
    name, equals, value = launched.options.get("x", "").partition("=") if launched.tool == "mpirun" else ("", "", "")
    return {name: value} if equals else {}


def _starts_another(launched: Launched) -> bool:
    words = (*launched.program.split(" ", 1), *launched.arguments)
    name = PurePath(words[0]).name if words else ""
    return (
        launchers.split("", words) is not None
        or name in _WRAPPERS
        or name in ("bash", "sh", "singularity", "apptainer")
    )


def _plain(at: _At) -> Iterator[LaunchLine]:
    """`python train.py` is a launch where the environment says which rank it is."""
    name = PurePath(at.words[0]).name
    if not name.startswith("python") or not {"RANK", "WORLD_SIZE", "MASTER_ADDR"} & set(at.environment):
        return
    rest = [
        word for index, word in enumerate(at.words[1:]) if not (word.startswith("-") and word != "-m" and index == 0)
    ]
    launched = launchers.read("python", tuple(rest))
    yield LaunchLine(launched, at.environment, at.folder, at.host, tuple(at.layers))


def _shown(options: dict[str, str]) -> str:
    return " ".join(f"--{name}" if value == "(set)" else f"--{name}={value}" for name, value in options.items())


def _about_output(after: str) -> str:
    told = "where its output goes"
    if "tee" in after:
        told += "; behind a pipe its exit code is tee's, unless pipefail is set"
    return told


# --- commands that hold shell text ---------------------------------------------------------------------------------------

_SSH_VALUES = set("BbcDEeFIiJLlmOoPpQRSWw")
_TMUX_VALUES = {"-s", "-n", "-c", "-x", "-y", "-t", "-F", "-e", "-f", "-L", "-S"}


def _nested(name: str, at: _At) -> str | None:
    """The shell text inside of a command, after peeling off what stands before it; None where there is none."""
    words = at.words
    if name == "ssh":
        index = 1
        while index < len(words) and words[index].startswith("-"):
            index += 2 if len(words[index]) == 2 and words[index][1] in _SSH_VALUES else 1
        if index >= len(words):
            return None
        at.host = words[index].rpartition("@")[2]
        at.environment, at.folder = {}, ""
        return _take(
            at, index + 1, f"runs the rest on {at.host}, in a shell of its own: nothing of the environment goes along"
        )
    if name in ("pdsh", "clush") and "-w" in words[:-1]:
        index = words.index("-w")
        at.host = words[index + 1]
        at.environment, at.folder = {}, ""
        return _take(at, index + 2, f"runs the rest on each of {at.host}")
    if name in ("bash", "sh", "zsh", "dash") and any(w.startswith("-") and "c" in w for w in words[1:4]):
        index = next(i for i, w in enumerate(words) if i and w.startswith("-") and "c" in w)
        return _take(at, index + 1, "a shell that runs the text it is given", only=True)
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
            return _take(at, index, "types into a terminal that stays when ssh ends", only=True)
        return _take(
            at, index, "a terminal that stays when ssh ends; it has the environment of tmux's server, not of this shell"
        )
    if name == "screen":
        after = ("-S", "-dmS")
        start = next(
            (i for i, w in enumerate(words) if i and not w.startswith("-") and words[i - 1] not in after), None
        )
        return _take(at, start, "a terminal that stays when ssh ends") if start is not None else None
    return None


def _take(at: _At, index: int, why: str, only: bool = False) -> str:
    """One word is text for a shell; several are joined, as ssh and tmux do."""
    at.layers.append(Layer(" ".join(at.words[:index]), why))
    rest = at.words[index:]
    return rest[0] if only and rest else " ".join(rest)


# --- commands that start the words behind them ---------------------------------------------------------------------------


def _skip(why: str, values: Set[str] = frozenset(), positional: int = 0) -> Callable[[_At], None]:
    def peel(at: _At) -> None:
        index, left = 1, positional
        while index < len(at.words) and (at.words[index].startswith("-") or left):
            word = at.words[index]
            if word == "--":
                index += 1
                break
            if word.startswith("-"):
                index += 2 if word in values else 1
            else:
                index, left = index + 1, left - 1
        at.peel(index, why)

    return peel


def _env(at: _At) -> None:
    index, cleared = 1, False
    found: dict[str, str] = {}
    gone = set()
    while index < len(at.words):
        word = at.words[index]
        if word in ("-u", "--unset", "-C", "--chdir"):
            following = at.words[index + 1] if index + 1 < len(at.words) else ""
            if word in ("-C", "--chdir"):
                at.folder = following
            else:
                gone.add(following)
            index += 2
        elif word.startswith("-"):
            cleared |= word in ("-i", "-", "--ignore-environment")
            index += 1
        elif "=" in word:
            name, _, value = word.partition("=")
            found[name] = value
            index += 1
        else:
            break
    kept = {} if cleared else {name: value for name, value in at.environment.items() if name not in gone}
    at.environment = {**kept, **found}
    at.peel(index, "sets variables for the command behind it")


_DOCKER_VALUES = {
    "-v", "--volume", "-w", "--workdir", "--name", "--network", "--net", "--gpus", "--shm-size", "-u", "--user", "-p",
    "--publish",
    "--ipc", "--mount", "--device", "--cap-add", "--hostname", "-h", "--entrypoint", "--memory", "-m", "--cpus", "--runtime",
    "--ulimit", "--env-file", "-c", "--container", "-n", "--namespace",
}  # fmt: skip


def _container(at: _At) -> None:
    """docker, podman run|exec IMAGE command; kubectl exec POD -- command."""
    index = 2
    while index < len(at.words) and at.words[index].startswith("-") and at.words[index] != "--":
        word = at.words[index]
        if word in ("-e", "--env") and index + 1 < len(at.words):
            name, _, value = at.words[index + 1].partition("=")
            at.environment = {**at.environment, name: value}
            index += 2
        else:
            if word in ("-w", "--workdir") and index + 1 < len(at.words):
                at.folder = at.words[index + 1]
            index += 2 if word in _DOCKER_VALUES else 1
    index += 1  # the image, or the container
    while index < len(at.words) and (at.words[index] == "--" or at.words[index] in ("-c", "-n")):
        index += 1 if at.words[index] == "--" else 2
    at.peel(index, "runs the rest in a container: only what -e names of the environment goes along")


def _runner(at: _At) -> None:
    """uv run, conda run, poetry run."""
    index = 2
    while index < len(at.words) and at.words[index].startswith("-"):
        index += (
            2
            if at.words[index] in ("-n", "--name", "-p", "--prefix", "--python", "--with", "--project", "--extra")
            else 1
        )
    at.peel(index, "runs the rest in a Python environment")


_WRAPPERS: dict[str, Callable[[_At], None]] = {
    "env": _env,
    "sudo": _skip("as another user; the environment is mostly dropped", {"-u", "-g", "--user", "--group", "-C", "-h"}),
    "nohup": _skip("goes on when the terminal ends"),
    "exec": _skip("in the shell's place"),
    "command": _skip("the program, not an alias"),
    "time": _skip("measures", {"-o", "-f"}),
    "setsid": _skip("in a session of its own"),
    "stdbuf": _skip("buffers its output otherwise", {"-i", "-o", "-e"}),
    "unbuffer": _skip("does not buffer its output"),
    "nice": _skip("at another priority", {"-n", "--adjustment"}),
    "ionice": _skip("at another priority for disks", {"-c", "-n"}),
    "timeout": _skip("is ended after a time", {"-k", "-s", "--kill-after", "--signal"}, positional=1),
    "taskset": _skip("on some cores only", set(), positional=1),
    "numactl": _skip("on some cores or memory only", {"-N", "-m", "-C", "-l"}),
    "docker": _container,
    "podman": _container,
    "nerdctl": _container,
    "kubectl": _container,
    "conda": _runner,
    "mamba": _runner,
    "uv": _runner,
    "poetry": _runner,
}
