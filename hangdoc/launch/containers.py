"""Commands that run another one in a container: their options, the image, and what they set for the command."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

_ONLY_GIVEN = "runs the rest in a container, only with the variables that --env sets"
_WITH_OWN = "runs the rest in a container, with the variables of this shell"


@dataclass(frozen=True)
class _Program:
    """The command line of a program that starts containers."""

    values: frozenset[str]
    """Options with a value in the next word, besides those below."""
    inherits: bool = False
    """Whether the command has the variables of this shell."""
    clean: frozenset[str] = frozenset()
    """Options with which it has not."""
    lists_variables: bool = False
    """Whether an option may set several variables: `--env A=1,B=2`."""
    variables: frozenset[str] = frozenset({"-e", "--env"})
    folders: frozenset[str] = frozenset({"-w", "--workdir"})
    images: frozenset[str] = frozenset()
    """Options with the image."""
    names_image: frozenset[str] = frozenset({"run", "create"})
    """Verbs whose first word is the image. That of the others is a container that is there."""
    after: frozenset[str] = frozenset()
    """Options with a value that may follow the first word. Without these, each word after it belongs to the command."""


_DOCKER = _Program(
    values=frozenset({
        "-v", "--volume", "--name", "--network", "--net", "--gpus", "--shm-size", "-u", "--user", "-p", "--publish", "--ipc",
        "--mount", "--device", "--cap-add", "--hostname", "-h", "--entrypoint", "--memory", "-m", "--cpus", "--runtime",
        "--ulimit", "--env-file", "--pid", "--security-opt", "--platform", "--pull", "--tmpfs", "--userns", "-l", "--label",
        "-c", "-n", "--namespace",
    }),
)  # fmt: skip
_SINGULARITY = _Program(
    values=frozenset({
        "-B", "--bind", "-H", "--home", "-o", "--overlay", "-S", "--scratch", "-W", "--workdir", "--mount", "--env-file",
        "--network", "--network-args", "--add-caps", "--drop-caps", "--security", "--hostname", "--fusemount", "--apply-cgroups",
    }),
    inherits=True,
    clean=frozenset({"-e", "--cleanenv", "-C", "--containall"}),
    lists_variables=True,
    variables=frozenset({"--env"}),
    folders=frozenset({"--pwd", "--cwd"}),
    names_image=frozenset({"exec", "run"}),
)  # fmt: skip
_PROGRAMS = {
    "docker": _DOCKER,
    "podman": _DOCKER,
    "nerdctl": _DOCKER,
    "kubectl": _Program(
        values=frozenset({"-n", "--namespace", "-c", "--container", "--context"}),
        images=frozenset({"--image"}),
        names_image=frozenset(),
        after=frozenset({"-n", "--namespace", "-c", "--container", "--image"}),
    ),
    "singularity": _SINGULARITY,
    "apptainer": _SINGULARITY,
    "enroot": _Program(
        values=frozenset({"-c", "--conf", "-m", "--mount", "--rc"}),
        inherits=True,
        folders=frozenset(),
        names_image=frozenset({"start"}),
    ),
}
"""By their names. That of srun with pyxis is an option of srun: `--container-image`."""
NAMES = frozenset(_PROGRAMS)


@dataclass
class Container:
    """What the words before the command of a container say."""

    count: int
    """How many words these are."""
    inherits: bool
    """Whether the command has the variables of this shell, besides those below."""
    image: str | None = None
    folder: str | None = None
    variables: dict[str, str | None] = field(default_factory=dict)
    """None is for the value that the variable has in this shell: `-e NAME`."""

    @property
    def why(self) -> str:
        """What it does, for readers."""
        return _WITH_OWN if self.inherits else _ONLY_GIVEN

    def environment(self, outer: Mapping[str, str]) -> dict[str, str]:
        """The variables of the command. `outer`: those of this shell that are known."""
        given = {name: outer.get(name) if value is None else value for name, value in self.variables.items()}
        kept = outer if self.inherits else {}
        return {**kept, **{name: value for name, value in given.items() if value is not None}}


def read(words: Sequence[str]) -> Container:
    """Read `docker run [OPTIONS] IMAGE command` and the like. The first word is in NAMES."""
    program = _PROGRAMS[PurePath(words[0]).name]
    found = Container(2, program.inherits)
    _take_options(found, program, words, program.values)
    if found.count < len(words) and words[found.count] != "--":
        first = words[found.count]
        found.image = first if words[1] in program.names_image else found.image
        found.count += 1
    if program.after:
        _take_options(found, program, words, program.after)
        found.count += words[found.count : found.count + 1] == ["--"]
    return found


def _take_options(found: Container, program: _Program, words: Sequence[str], values: frozenset[str]) -> None:
    """Read options, up to the first word that is none."""
    takes_value = values | program.variables | program.folders | program.images
    while found.count < len(words) and words[found.count].startswith("-") and words[found.count] != "--":
        name, equals, value = words[found.count].partition("=")
        if not equals and name in takes_value:
            value = words[found.count + 1] if found.count + 1 < len(words) else ""
            found.count += 1
        found.count += 1
        if name in program.variables:
            for setting in _split(value) if program.lists_variables else (value,):
                variable, equals, content = setting.partition("=")
                found.variables[variable] = content if equals else None
        elif name in program.clean:
            found.inherits = False
        elif name in program.folders:
            found.folder = value
        elif name in program.images:
            found.image = value


def _split(value: str) -> list[str]:
    """The settings in `A=1,B=2`. With one `=`, a comma belongs to the value (pflag/string_to_string.go)."""
    if value.count("=") < 2:
        return [value.strip('"')]
    try:
        return next(csv.reader([value]), [])
    except csv.Error:
        return [value]
