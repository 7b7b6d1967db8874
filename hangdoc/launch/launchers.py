"""torchrun, accelerate, srun, mpirun: their own options, the program, and its arguments."""

import re
from pathlib import PurePath

import msgspec

from hangdoc.regex import regex

MODULES = {"torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
           "accelerate.commands.launch": "accelerate", "deepspeed.launcher.launch": "deepspeed"}  # fmt: skip
PROGRAMS = {"torchrun": "torchrun", "accelerate": "accelerate", "accelerate-launch": "accelerate",
            "mpirun": "mpirun", "mpiexec": "mpirun", "srun": "srun", "deepspeed": "deepspeed"}  # fmt: skip
_PYTHON = regex(r"(python|pypy)[\d.]*$")
_TAKE_NOTHING = {
    "standalone", "no-python", "run-path", "use-env", "module", "multi-gpu", "multi-node", "cpu", "use-fsdp", "use-deepspeed",
    "debug", "quiet", "overcommit", "exclusive", "overlap", "pty", "label", "unbuffered", "allow-run-as-root", "oversubscribe",
    "verbose", "tag-output", "report-bindings", "no-ssh-check",
}  # fmt: skip
_SHORT = {
    "np": "n",
    "N": "nodes",
    "H": "host",
    "w": "nodelist",
    "p": "partition",
    "J": "job-name",
    "r": "redirects",
    "t": "tee",
}
_MPI_PAIRS = {"mca", "genv", "gmca"}


class Launched(msgspec.Struct, frozen=True):
    """A launcher with what it was given."""

    tool: str
    options: dict[str, str]
    """Names without dashes before them and with `-` inside; `(set)` for one without a value."""
    program: str
    """`train.py`, or `-m package.module`; empty where there is none."""
    arguments: tuple[str, ...]
    """The program's own."""


def split(name: str, argv: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
    """A launcher's name and the words behind it; None for any other command. `name` is the kernel's short name of a process:
    torchrun calls itself `pt_elastic`."""
    words = list(argv)
    if words and _PYTHON.match(PurePath(words[0]).name):
        words.pop(0)
        while words and words[0].startswith("-") and words[0] not in ("-m", "-c"):
            words.pop(0)  # -u, -O, ...: what a launcher is started with takes no value
    if words[:1] == ["-m"] and len(words) > 1 and words[1] in MODULES:
        return MODULES[words[1]], tuple(words[2:])
    program = PurePath(words[0]).name if words else ""
    if program in PROGRAMS:
        rest = tuple(words[1:])
        return PROGRAMS[program], rest[1:] if program == "accelerate" else rest
    return ("torchrun", ()) if name == "pt_elastic" else None


def read(tool: str, words: tuple[str, ...]) -> Launched:
    """What follows a launcher's name: options until the program begins."""
    options: dict[str, str] = {}
    index = 0
    while index < len(words):
        word = words[index]
        if word == "--":
            index += 1
            break
        if word in ("-m", "--module") or not word.startswith("-") or word == "-":
            break
        name, equals, value = word.lstrip("-").partition("=")
        name = _name(tool, word, name)
        if (glued := re.fullmatch(r"-([nNcpw])(\d+)", word)) and tool in ("srun", "mpirun"):
            options[_SHORT.get(glued[1], glued[1])] = glued[2]
            index += 1
            continue
        following = words[index + 1] if index + 1 < len(words) else "-"
        if tool == "mpirun" and name in _MPI_PAIRS:
            options[f"{name} {following}"] = words[index + 2] if index + 2 < len(words) else ""
            index += 3
        elif equals:
            options[name] = value
            index += 1
        elif name in _TAKE_NOTHING or (following.startswith("-") and not re.fullmatch(r"-\d+", following)):
            options[name] = "(set)"
            index += 1
        else:
            options[name] = following
            index += 2
    rest = words[index:]
    if rest and tool in ("srun", "mpirun") and _PYTHON.match(PurePath(rest[0]).name):
        rest = tuple(
            word for at, word in enumerate(rest[1:], 1) if at > 1 or word in ("-m", "-c") or not word.startswith("-")
        )
    if rest[:1] in (("-m",), ("--module",)) and len(rest) > 1:
        return Launched(tool, options, f"-m {rest[1]}", rest[2:])
    return Launched(tool, options, rest[0] if rest else "", rest[1:])


def _name(tool: str, word: str, name: str) -> str:
    plain = name.replace("_", "-")
    if word.startswith("--") or tool in ("torchrun", "accelerate", "deepspeed"):
        return plain
    return _SHORT.get(plain, plain)


def endpoint(options: dict[str, str]) -> str | None:
    """The rendezvous of torchrun, from its options."""
    if options.get("rdzv-endpoint"):
        return options["rdzv-endpoint"]
    if "master-addr" in options or "master-port" in options:
        return f"{options.get('master-addr', '127.0.0.1')}:{options.get('master-port', '29500')}"
    return None
