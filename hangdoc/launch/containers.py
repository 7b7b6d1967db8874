"""Commands that run another one in a container: their options, the image, and what they set for the command."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

_ONLY_GIVEN = "runs the rest in a container, only with the variables that -e sets"
_WITH_OWN = "runs the rest in a container, with the variables of this shell"


@dataclass(frozen=True)
class _Program:
    """The command line of a program that starts containers."""

    values: frozenset[str]
    """Options with a value in the next word, besides those below."""
    why: str = _ONLY_GIVEN
    variables: frozenset[str] = frozenset({"-e", "--env"})
    folders: frozenset[str] = frozenset({"-w", "--workdir"})
    images: frozenset[str] = frozenset()
    """Options with the image."""
    names_image: frozenset[str] = frozenset({"run", "create"})
    """Verbs whose first word is the image. That of the others is a container that is there."""
    after: frozenset[str] = frozenset()
    """Options with a value that may follow the first word."""


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
        "-B", "--bind", "-H", "--home", "-o", "--overlay", "-S", "--scratch", "-W", "--mount", "--env-file", "--network",
        "--network-args", "--add-caps", "--drop-caps", "--security", "--hostname", "--fusemount", "--apply-cgroups",
    }),
    why=_WITH_OWN,
    variables=frozenset({"--env"}),
    folders=frozenset({"--pwd", "--cwd", "--workdir"}),
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
        why=_WITH_OWN,
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
    why: str
    image: str | None = None
    folder: str | None = None
    variables: dict[str, str] = field(default_factory=dict)


def read(words: Sequence[str]) -> Container:
    """Read `docker run [OPTIONS] IMAGE command` and the like. The first word is in NAMES."""
    program = _PROGRAMS[PurePath(words[0]).name]
    found = Container(2, program.why)
    _take_options(found, program, words, program.values)
    if found.count < len(words) and words[found.count] != "--":
        first = words[found.count]
        found.image = first if words[1] in program.names_image else found.image
        found.count += 1
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
            variable, _, content = value.partition("=")
            found.variables[variable] = content
        elif name in program.folders:
            found.folder = value
        elif name in program.images:
            found.image = value
