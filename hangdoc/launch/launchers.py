"""Parses the command lines of torchrun, accelerate, srun and mpirun: options, program, and the program's arguments. What torchrun
takes from variables, and its defaults, is read here too."""

import re
from collections.abc import Mapping
from posixpath import basename
from typing import Literal

import msgspec
from msgspec.structs import replace

from hangdoc.parse import natural
from hangdoc.regex import regex
from hangdoc.run_identity import spell_endpoint
from hangdoc.snapshot import Launch
from hangdoc.torch_facts import thread_names
from hangdoc.torch_facts.launchers import (
    C10D,
    DEFAULT_ENDPOINTS,
    DEFAULT_PORTS,
    DEFAULTS,
    FLAGS,
    IN_TORCHRUN,
    LONG_NAMES_ONLY,
    MODULES,
    MPI_PAIRS,
    NODE_RANK,
    OF_LAUNCH_MODULE,
    ONLY_SEVERAL,
    ONLY_STATIC,
    OPTION_VARIABLE,
    PROGRAMS,
    SHORT_OF_TORCHRUN,
    SHORT_OPTIONS,
    SHORT_WITH_VALUE,
    SIZES,
    STANDALONE_ENDPOINT,
    STARTS_ANYTHING,
    STATIC,
    TAKES_TORCHRUN_OPTIONS,
    TORCHRUN_OPTIONS,
    WITH_SUBCOMMAND,
    WITH_UNDERSCORES,
    WITHOUT_VARIABLE,
)

_PYTHON = regex(r"(python|pypy)[\d.]*$")
_WITH_VALUE = regex(r"-[A-Za-z]*?([mcWX])|--(check-hash-based-pycs)(?==|$)")
"""Options of Python with a value, which may follow without a space or as the next word. Letters may be joined: `-um module`."""
_SHORT_AND_VALUE = regex(r"-([A-Za-z])(\d[\d:,-]*)$")
"""`-r0:1,1:3`, `-N2-4`."""
_WITHOUT_PORT = regex(r"[\w.-]+|\[[\da-fA-F:.]+\]")
"""A name or an address of a host, and nothing that the shell replaces."""

EXPORTED = "x "
"""How the name of an option begins that has a variable: `mpirun -x NAME=value` is `x NAME`."""
STARTED_ONCE = "with --cpu, accelerate starts the script once, in one process that meets no other"
IN_LINE = "the launch line"
"""Where an endpoint comes from that the options of a launch name."""
_NOT_STATIC = "only the static rendezvous uses such options"
_NEEDS_PORT = "the static rendezvous refuses an endpoint without a port: add it"


class Launched(msgspec.Struct, frozen=True):
    """A parsed command line of a launcher."""

    tool: str
    options: dict[str, str]
    """Values by name. Names have no leading dashes, and `-` instead of `_`. An option without a value has `(set)`."""
    program: str
    """`train.py`, or `-m package.module`; empty if there is none."""
    arguments: tuple[str, ...]
    """Arguments of the program."""


def after_python(argv: tuple[str, ...]) -> tuple[str, ...]:
    """A command line without Python and its options: `train.py ...`, `-m module ...` or `-c code ...`."""
    if not argv or not _PYTHON.match(basename(argv[0])):
        return argv
    words = list(argv[1:])
    while words and len(words[0]) > 1 and words[0].startswith("-"):
        word = words.pop(0)
        option = _WITH_VALUE.match(word)
        if option is None:
            continue
        value = [word[option.end() :]] if option.end() < len(word) else [words.pop(0)] if words else []
        if option[1] in ("m", "c"):
            return (f"-{option[1]}", *value, *words)
    return tuple(words)


def program_words(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The program of a command line and its arguments: `train.py ...`, `module ...`."""
    words = after_python(argv)
    return words[1:] if words[:1] in (("-m",), ("-c",)) else words


def split(name: str, argv: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
    """A launcher's name and the words after it; None for any other command. `name` is the kernel's short name of a process, which
    is `pt_elastic` for torchrun."""
    words = list(after_python(argv))
    if words[:1] == ["-m"] and len(words) > 1 and words[1] in MODULES:
        return MODULES[words[1]], tuple(words[3 if words[1].endswith("_cli") else 2 :])
    program = basename(words[0]) if words else ""
    if program in PROGRAMS and _starts_ranks(program, words):
        rest = tuple(words[1:])
        return PROGRAMS[program], rest[1:] if program in WITH_SUBCOMMAND else rest
    return ("torchrun", ()) if name == thread_names.AGENT else None


def _starts_ranks(program: str, words: list[str]) -> bool:
    """Whether a command is a launcher: `fabric` and `tune` are the names of other programs too, and have other subcommands."""
    if program not in ("fabric", "tune"):
        return True
    # Without an option of torchrun, `tune run RECIPE` runs the recipe in its own process.
    return words[1:2] == ["run"] and (program == "fabric" or words[2:3] == [] or words[2].startswith("-"))


def read(tool: str, words: tuple[str, ...]) -> Launched:
    """Parse the words after a launcher's name: its options, the program, and the program's arguments."""
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
        if (joined := _SHORT_AND_VALUE.match(word)) and joined[1] in SHORT_WITH_VALUE.get(tool, ()):
            options[SHORT_OPTIONS.get(joined[1], joined[1])] = joined[2]
            index += 1
            continue
        following = words[index + 1] if index + 1 < len(words) else "-"
        if tool == "mpirun" and name == "x":  # may be given for each variable
            variable, _, value = following.partition("=")
            options[f"{EXPORTED}{variable}"] = value or "(set)"
            index += 2
        elif tool == "mpirun" and name in MPI_PAIRS:
            options[f"{name} {following}"] = words[index + 2] if index + 2 < len(words) else ""
            index += 3
        elif equals:
            options[name] = value
            index += 1
        elif name in FLAGS or (following.startswith("-") and not re.fullmatch(r"-\d+", following)):
            options[name] = "(set)"
            index += 1
        else:
            options[name] = following
            index += 2
    rest = words[index:]
    if tool in STARTS_ANYTHING:
        rest = after_python(rest)
    if rest[:1] in (("-m",), ("--module",)) and len(rest) > 1:
        return Launched(tool, options, f"-m {rest[1]}", rest[2:])
    return Launched(tool, options, rest[0] if rest else "", rest[1:])


def _name(tool: str, word: str, name: str) -> str:
    plain = name.replace("_", "-")
    if not word.startswith("--") and name in SHORT_WITH_VALUE.get(tool, ()):
        return SHORT_OPTIONS.get(name, name)
    if tool in TAKES_TORCHRUN_OPTIONS and plain not in TORCHRUN_OPTIONS:
        meant = [option for option in TORCHRUN_OPTIONS if option.startswith(plain)]
        plain = meant[0] if len(meant) == 1 else plain  # argparse takes a beginning that is that of one option only
    if word.startswith("--") or tool in LONG_NAMES_ONLY:
        return plain
    return SHORT_OPTIONS.get(plain, plain)


def in_torchrun(tool: str, options: dict[str, str]) -> dict[str, str]:
    """The options of a launcher by the names that torchrun has for them."""
    renamed = _rename(tool, options, IN_TORCHRUN.get(tool, {}))
    ranks, nodes = natural(renamed.pop("ranks", None)), natural(renamed.get("nnodes", "1"))
    if ranks is not None and nodes:
        renamed["nproc-per-node"] = str(ranks // nodes)
    return renamed


def sizes_in_torchrun(tool: str, options: dict[str, str]) -> dict[str, str]:
    """The options of any launcher, those about nodes and ranks by torchrun's names; `ranks` are those of all nodes."""
    return _rename(tool, options, SIZES.get(tool, {}))


def _rename(tool: str, options: dict[str, str], names: Mapping[str, str]) -> dict[str, str]:
    renamed = {names.get(name, name): value for name, value in options.items()}
    return {**renamed, "ranks": "1", "nnodes": "1"} if starts_once(tool, options) else renamed


def starts_once(tool: str, options: dict[str, str]) -> bool:
    """Whether accelerate starts the script once, whatever number of processes it is given: on the CPU, without MPI
    (accelerate/commands/launch.py 1.15, `simple_launcher`)."""
    return tool == "accelerate" and "cpu" in options and "mpirun-hostfile" not in options


def starts_fewer(tool: str, options: dict[str, str]) -> bool:
    """Whether a launcher starts the script once, but is given several processes or nodes."""
    given = (natural(options.get(name)) for name in ("num-processes", "num-machines"))
    return starts_once(tool, options) and any((number or 1) > 1 for number in given)


def with_variables(launched: Launched, environment: Mapping[str, str]) -> Launched:
    """A launch whose options are also those that torchrun takes from variables."""
    if launched.tool not in TAKES_TORCHRUN_OPTIONS:
        return launched
    return replace(launched, options=_read_variables(environment) | launched.options)


def as_used(tool: str, options: dict[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The options of a launcher, with those that torchrun takes from variables, and with the port of an endpoint that names
    none."""
    if tool not in TAKES_TORCHRUN_OPTIONS:
        return options
    options = _read_variables(environment) | options
    given, port = options.get("rdzv-endpoint", ""), DEFAULT_PORTS.get(_rendezvous_backend(tool, options))
    if port is None or not _WITHOUT_PORT.fullmatch(given):
        return options
    return options | {"rdzv-endpoint": f"{given}:{port}"}


def with_defaults(tool: str, options: dict[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """As `as_used`, and with the launcher's defaults for the options that are not given. For one node, torchrun takes a free
    port. Where its static rendezvous meets is in both of its forms."""
    used, defaults = as_used(tool, options, environment), dict(DEFAULTS.get(tool, {}))
    if tool in TAKES_TORCHRUN_OPTIONS:
        meets = _default_endpoint(tool, used)
        if meets is None:
            del defaults["master-port"]
        elif meets == DEFAULT_ENDPOINTS[C10D]:
            defaults["rdzv-endpoint"] = meets
        return _write_both_forms(tool, defaults | used)
    return defaults | used


def _write_both_forms(tool: str, options: dict[str, str]) -> dict[str, str]:
    """Options with where the static rendezvous meets, which is its endpoint if it is given one, and else its address and port
    (torch/distributed/run.py, `get_rdzv_endpoint`), as an endpoint and as an address and a port."""
    if _rendezvous_backend(tool, options) != STATIC:
        return options
    address, port = options.get("master-addr", ""), options.get("master-port", "")
    if given := options.get("rdzv-endpoint"):
        address, _, port = given.rpartition(":")
    if not address or not port:
        return options
    address = address.strip("[]")
    return options | {"rdzv-endpoint": f"{address}:{port}", "master-addr": address, "master-port": port}


def _rendezvous_backend(tool: str, options: dict[str, str]) -> str:
    """The backend of torchrun's rendezvous that the options choose."""
    return C10D if _is_standalone(tool, options) else options.get("rdzv-backend", STATIC)


def without_effect(tool: str, options: dict[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The options that a launcher takes and does not use, and why: a clause."""
    if starts_once(tool, options):
        return dict.fromkeys(ONLY_SEVERAL[tool], STARTED_ONCE)
    is_static = _rendezvous_backend(tool, as_used(tool, options, environment)) == STATIC
    return {} if is_static else dict.fromkeys(ONLY_STATIC.get(tool, ()), _NOT_STATIC)


def refused(tool: str, options: dict[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The options with whose values a launcher ends at once, and why: a clause."""
    used = as_used(tool, options, environment)
    ends = tool in TAKES_TORCHRUN_OPTIONS and _rendezvous_backend(tool, used) == STATIC
    return {"rdzv-endpoint": _NEEDS_PORT} if ends and _WITHOUT_PORT.fullmatch(used.get("rdzv-endpoint", "")) else {}


def unknown_options(tool: str, options: dict[str, str]) -> list[str]:
    """Those that torchrun did not have in the version that was read."""
    known = TORCHRUN_OPTIONS | SHORT_OF_TORCHRUN | OF_LAUNCH_MODULE
    return sorted(options.keys() - known) if tool == "torchrun" else []


def node_rank(tool: str, options: dict[str, str], environment: Mapping[str, str]) -> int | None:
    """The node rank that torchrun uses, which is 0 without the option; None if its rendezvous numbers the nodes. Of plain Python,
    the one that Lightning takes, if it is set."""
    if tool == "python":
        return natural(environment.get(NODE_RANK))
    options = as_used(tool, options, environment)
    used = {name: value for name, value in options.items() if name not in without_effect(tool, options, {})}
    is_static = _rendezvous_backend(tool, options) == STATIC
    return natural(in_torchrun(tool, used).get("node-rank", "0")) if is_static else None


def endpoint(tool: str, options: dict[str, str]) -> str | None:
    """torchrun's rendezvous as `host:port`, from its options, in one spelling; None if they do not give one. Of a launcher that
    runs torchrun, the options by torchrun's names."""
    if options.get("rdzv-endpoint"):
        return spell_endpoint(options["rdzv-endpoint"])
    if "master-addr" in options or "master-port" in options:
        used = DEFAULTS["torchrun"] | in_torchrun(tool, DEFAULTS.get(tool, {})) | options
        return spell_endpoint(f"{used['master-addr']}:{used['master-port']}")
    return None


def _is_standalone(tool: str, options: dict[str, str]) -> bool:
    """Whether a launcher waits at a free port of its own host, whatever endpoint it is given."""
    if tool not in TAKES_TORCHRUN_OPTIONS:
        return False
    return "standalone" in options or (tool == "tune" and not options.get("rdzv-endpoint"))


def _default_endpoint(tool: str, options: dict[str, str]) -> str | None:
    """Where torchrun meets the other nodes without an option; None for one node and for other launchers."""
    most = natural(options.get("nnodes", "1").rpartition(":")[2])
    if tool not in TAKES_TORCHRUN_OPTIONS or most is None or most < 2:
        return None
    if _is_standalone(tool, options):
        return STANDALONE_ENDPOINT
    return DEFAULT_ENDPOINTS.get(_rendezvous_backend(tool, options))


def meeting_point(tool: str, options: dict[str, str], environment: Mapping[str, str]) -> tuple[str, str] | None:
    """(`host:port` at which the nodes of a launch meet, where that comes from); None if the launcher takes a free port, or if the
    line does not determine it."""
    if tool in TAKES_TORCHRUN_OPTIONS:
        options = as_used(tool, options, environment)
        if _is_standalone(tool, options):
            return None
        if (given := given_endpoint(tool, options)) is not None:
            return given, IN_LINE
        default = _default_endpoint(tool, options)  # with one node, torch 2.13 takes a free port
        return (default, f"{tool}'s default") if default is not None else None
    given = given_endpoint(tool, options)
    return (given, IN_LINE) if given is not None else None


def given_endpoint(tool: str, options: dict[str, str], environment: Mapping[str, str] | None = None) -> str | None:
    """Where the nodes of a launch meet as `host:port`, from those of its options that have an effect; None if they do not say."""
    options = as_used(tool, options, environment or {})
    ignored = without_effect(tool, options, {})
    return endpoint(tool, in_torchrun(tool, {name: value for name, value in options.items() if name not in ignored}))


def meeting_option(
    tool: str, options: dict[str, str], environment: Mapping[str, str], part: Literal["master-addr", "master-port"]
) -> str:
    """The option by which a launcher takes the address or the port at which its nodes meet, as its users write it."""
    options = as_used(tool, options, environment)
    in_endpoint = options.get("rdzv-endpoint") or "master-port" in without_effect(tool, options, {})
    name = "rdzv-endpoint" if in_endpoint else part
    return write_option(tool, next((own for own, its in IN_TORCHRUN.get(tool, {}).items() if its == name), name))


def write_option(tool: str, name: str) -> str:
    """An option of a launcher as its users write it: `--main_process_port`."""
    return f"--{name.replace('-', '_') if tool in WITH_UNDERSCORES else name}"


def launch_of(name: str, argv: tuple[str, ...], environment: Mapping[str, str] | None = None) -> Launch | None:
    """The options of a launcher; None for any other process. `name` is the kernel's short name. Without its `environment`, which
    may hold options too, it is not known whether it uses the defaults."""
    tool_and_words = split(name, argv)
    if tool_and_words is None:
        return None
    tool, words = tool_and_words
    given = as_used(tool, read(tool, words).options, environment or {})
    ignored = without_effect(tool, given, {})
    options = in_torchrun(tool, {name: value for name, value in given.items() if name not in ignored})
    chosen = endpoint(tool, options) if not _is_standalone(tool, options) else None
    default = _default_endpoint(tool, options) if environment is not None and chosen is None else None
    return Launch(
        tool=tool,
        nnodes=options.get("nnodes", _default_nodes(tool, environment)),
        nproc_per_node=options.get("nproc-per-node"),
        node_rank=natural(options.get("node-rank")),
        endpoint=chosen or default,
        default_endpoint=default is not None,
        run_id=options.get("rdzv-id"),
    )


def _default_nodes(tool: str, environment: Mapping[str, str] | None) -> str | None:
    """torchrun starts one node without an option, unless a variable gives the number."""
    return "1" if tool in TAKES_TORCHRUN_OPTIONS and environment is not None else None


def _read_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The options that the environment sets, by their names. A flag is set by a number other than 0
    (torch/distributed/argparse_util.py, `check_env`)."""
    given = ((variable_option(name), value) for name, value in environment.items())
    options = {option: value for option, value in given if option is not None}
    return {
        option: "(set)" if option in FLAGS else value
        for option, value in options.items()
        if option not in FLAGS or natural(value) != 0
    }


def variable_option(name: str) -> str | None:
    """The option that torchrun takes from a variable of this name; None if there is none."""
    option = name.removeprefix(OPTION_VARIABLE).lower().replace("_", "-")
    known = name.startswith(OPTION_VARIABLE) and option in TORCHRUN_OPTIONS - WITHOUT_VARIABLE
    return option if known else None


def option_variable(tool: str, name: str) -> str | None:
    """The variable from which a launcher takes an option too; None if there is none."""
    if tool not in TAKES_TORCHRUN_OPTIONS or name not in TORCHRUN_OPTIONS - WITHOUT_VARIABLE:
        return None
    return f"{OPTION_VARIABLE}{name.replace('-', '_').upper()}"
