"""Filters command lines and environments: of a value is kept what the rules read of its name (`readers`)."""

import shlex
from functools import lru_cache
from posixpath import basename

from hangdoc.redact import readers
from hangdoc.redact.names import NONE, secrecy
from hangdoc.redact.patterns import REDACTED, harmless, text
from hangdoc.redact.shapes import NOT_STORED, identity, is_number, is_path_like, is_plain, kept, names_a_setting, path
from hangdoc.redact.source import source
from hangdoc.redact.titles import thread
from hangdoc.redact.values import LOGIN_OPTIONS, container
from hangdoc.regex import regex
from hangdoc.torch_facts.serving import MODEL_OPTIONS, SERVE

_NAMED = regex(r"(?P<name>[-+]*[A-Za-z_][\w./-]{0,160}+)=(?P<value>[\s\S]*)")
_DOTTED = regex(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
"""The name of a setting before its value, in the style of yacs: `wandb.api_key x`."""
_SEPARATED = regex(r"([,;])")
_LONG_OPTION = regex(r"--?[A-Za-z][\w.-]{0,60}")
_FLAG = regex(r"-[A-Za-z0-9]?")
_PYTHON = regex(r"(?:python|pypy)[\d.]*")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_SCRIPT = regex(r"[^\s\"']*\.(?:py|sh|bash|pl|rb|js|lua|R|jl|exe|pyz)")
_PROGRAM = regex(r"[A-Za-z_][A-Za-z_.+-]{0,30}\d{0,2}(?:\.\d{1,2})?")
_SUBCOMMANDS = frozenset(
    ["accelerate", "aws", "az", "conda", "docker", "fabric", "gcloud", "gh", "git", "gsutil", "hf", "huggingface-cli",
     "kubectl", "make", "mlflow", "nvidia-smi", "pip", "pip3", "podman", "ray", "rclone", "s3cmd", "s5cmd", "srun",
     "systemctl", "torchrun", "wandb"]
)  # fmt: skip
"""Programs whose first word is a command of theirs, and no value."""
_MARKS = ("\ue000", "\ue001")
_MAX_LINE = 4000
_MAX_DEPTH = 2
_PASSES = 4


def variable(name: str, value: str) -> str:
    """What is kept of the value of an environment variable."""
    if not value or value == NOT_STORED:
        return value
    level = secrecy(name)
    if level != NONE:
        return _secret(value, level)
    allowed = readers.of_variable(name)
    return NOT_STORED if allowed == readers.NOTHING else _value(value, allowed)


def environment(variables: dict[str, str]) -> dict[str, str]:
    """All variables, with the values that the rules read."""
    return {(name if _is_name(name) else NOT_STORED): variable(name, value) for name, value in variables.items()}


@lru_cache(2048)
def _is_name(name: str) -> bool:
    return len(name) <= 100 and text(name, strict=True) == name


def option(name: str, value: str) -> str:
    """What is kept of the value of an option."""
    level = secrecy(name)
    if level != NONE:
        return _secret(value, level)
    if name.lstrip("-").replace("_", "-") in MODEL_OPTIONS:
        return model(value)
    return value if is_number(value) or is_plain(value) else _value(value, readers.of_option(name))


def model(value: str) -> str:
    """What is kept of the name or the directory of a model that a server serves."""
    return path(value) if is_path_like(value) else identity(value)


def _secret(value: str, level: int) -> str:
    """The value of a name that indicates a secret: what cannot be one."""
    if value == NOT_STORED:
        return value
    return (
        kept(value)
        if harmless(value, level) and not is_number(value) and is_path_like(value)
        else (value if harmless(value, level) else REDACTED)
    )


def _value(value: str, allowed: int, depth: int = 0) -> str:
    if allowed >= readers.PLACE and "," not in value and "=" not in value:
        return identity(value, random=allowed == readers.ID)
    if value[:1] in "{[(\"'" and value[-1:] in "}])\"'" and any(mark in value for mark in "\"':="):
        return container(value, keep_all=False, allowed=allowed)  # JSON, or Python's repr of a container
    if is_number(value) or is_plain(value, readers.STRANGERS[allowed]):
        return value
    if depth < _MAX_DEPTH and len(value) <= _MAX_LINE and any(mark in value for mark in ",;="):
        parts = _SEPARATED.split(value)
        return "".join(part if part in ",;" else _part(part, allowed, depth) for part in parts)
    return kept(value, readers.STRANGERS[allowed])


def _part(part: str, allowed: int, depth: int) -> str:
    """One part of a list, which may be `name=value`."""
    named = _NAMED.fullmatch(part)
    if named is None:
        return identity(part) if allowed >= readers.PLACE else _value(part, allowed, _MAX_DEPTH)
    return f"{_option_name(named['name'])}={option(named['name'], named['value'])}"


def argv(words: tuple[str, ...]) -> tuple[str, ...]:
    """The command line of a rank or a launcher: its program, its options, and the values that the rules read, in every spelling
    (`--lr 0.1`, `--lr=0.1`, `lr=0.1`, `+model.lr=0.1`). `<str>` replaces what no rule reads. Idempotent: what is left of a word
    may be of another kind, which then passes the filter of that kind."""
    for _ in range(_PASSES):
        before, words = words, _filtered_argv(words)
        if words == before:
            break
    return words


def _filtered_argv(words: tuple[str, ...]) -> tuple[str, ...]:
    if len(words) == 1 and (" " in words[0] or ":" in words[0]):
        return (_title(words[0], argv),)
    out: list[str] = []
    before, program = "", ""
    for at, word in enumerate(words):
        if at == 0:
            program = basename(word)
            out.append(_program(word))
            continue
        named = _NAMED.fullmatch(word)
        takes_code = before == "-c" or (before.startswith("-") and before.endswith("c") and len(before) <= 4)
        if word in (NOT_STORED, REDACTED, ""):
            out.append(word)
        elif takes_code and (_PYTHON.fullmatch(program) or program in _SHELLS):
            out.append(source(word) if _PYTHON.fullmatch(program) else _shell(word))
        elif program == "sshpass" and before == "-p":
            out.append(REDACTED)
        elif word.startswith("-") and not is_number(word):
            out.append(
                f"{_option_name(named['name'])}={option(named['name'], named['value'])}" if named else _flag(word)
            )
        elif before in LOGIN_OPTIONS and ":" in word and "/" not in word:
            out.append(container(f'["{before}","{word}"]', keep_all=False).split('"')[3])
        elif before == "-m":
            out.append(word if is_plain(word, 4) else kept(word))
        elif words[at - 1] == SERVE:
            out.append(model(word))
        elif before:
            out.append(option(before, word))
        elif named:
            out.append(f"{_option_name(named['name'])}={_assigned(named['name'], named['value'])}")
        elif (_PROGRAM.fullmatch(basename(word)) and is_path_like(word)) or _SCRIPT.fullmatch(word):
            program = basename(word)
            out.append(path(word))
        else:
            out.append(_word(word))
        before = word if (word.startswith("-") and not named) or _DOTTED.fullmatch(word) else ""
        if program in _SHELLS and word.startswith("-") and "c" not in word:
            before = ""
    return tuple(out)


def _assigned(name: str, value: str) -> str:
    """The value of `NAME=value`: an environment variable before or among the words, or a setting."""
    return (
        variable(name, value)
        if name.isupper() and readers.of_variable(name) != readers.NOTHING
        else option(name, value)
    )


def command(words: tuple[str, ...]) -> tuple[str, ...]:
    """The command line of any other process: its program, script, module, command and the names of its options. No rule reads
    their values."""
    if len(words) == 1 and (" " in words[0] or ":" in words[0]):
        return (_title(words[0], command),)
    out: list[str] = []
    program = basename(words[0]) if words else ""
    run = before = ""
    """The script, module or command that the program runs."""
    for at, word in enumerate(words):
        python = _PYTHON.fullmatch(program) is not None
        if at == 0:
            out.append(_program(word))
        elif word in (NOT_STORED, REDACTED, ""):
            out.append(word)
        elif before == "-c" and python:
            out.append(source(word))
            run = word
        elif before.startswith("-") and before.endswith("c") and program in _SHELLS:
            out.append(_shell(word))
            run = word
        elif before == "-m" and python:
            out.append(word if is_plain(word, 4) else NOT_STORED)
            run = word
        elif word.startswith("-"):
            name, equals, _ = word.partition("=")
            out.append(f"{_option_name(name)}={NOT_STORED}" if equals else _flag(word))
        elif not run and (_SCRIPT.fullmatch(word) or (python and is_path_like(word))):
            out.append(path(word))
            run = word
        elif not run and not before and program in _SUBCOMMANDS and word.isalpha() and is_plain(word, 1):
            out.append(word)
            run = word
        elif word.startswith("/") and is_path_like(word) and word.count("/") > 1:
            out.append(path(word))
        else:
            out.append(NOT_STORED)
        before = word if word.startswith("-") and "=" not in word else ""
    return tuple(out)


def _program(word: str) -> str:
    """The first word: a path, the name of a program, or the title of a process."""
    if word in (NOT_STORED, REDACTED, ""):
        return word
    if is_path_like(word) and word.startswith(("/", "~", ".")):
        return path(word)
    return word if _PROGRAM.fullmatch(word) or is_plain(word, 2) else kept(word)


def _title(word: str, each: object) -> str:
    """A process title, or a whole command line in one word."""
    if len(word) > _MAX_LINE:
        return NOT_STORED
    if " " not in word:
        return thread(word)
    words = tuple(word.split(" "))
    return " ".join(each(words))  # type: ignore[operator]


def _shell(text_: str) -> str:
    """Shell code: the programs that it runs. Anything but simple commands is not kept."""
    if len(text_) > _MAX_LINE:
        return NOT_STORED
    text_ = text_.replace(NOT_STORED, _MARKS[0]).replace(REDACTED, _MARKS[1])
    try:
        lexer = shlex.shlex(text_, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        words = list(lexer)
    except ValueError:
        return NOT_STORED
    out: list[str] = []
    simple: list[str] = []
    for word in [*(word.replace(_MARKS[0], NOT_STORED).replace(_MARKS[1], REDACTED) for word in words), ";"]:
        if set(word) <= set("();<>|&"):
            out += [*command(tuple(simple)), word]
            simple = []
        elif not simple and _NAMED.fullmatch(word):
            out.append(f"{word.partition('=')[0]}={NOT_STORED}")
        else:
            simple.append(word)
    return " ".join(out[:-1])


def without_secrets(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a launch line that the user has given: only what its name or form shows to be a secret is removed."""
    out: list[str] = []
    before = ""
    for word in words:
        named = _NAMED.fullmatch(word)
        if named:
            out.append(f"{named['name']}={setting_without_secrets(named['name'], named['value'])}")
        else:
            out.append(word if word.startswith("-") else setting_without_secrets(before, word))
        before = word if word.startswith("-") and not named else ""
    return tuple(out)


def setting_without_secrets(name: str, value: str) -> str:
    """The same for one value."""
    level = secrecy(name) if name else NONE
    if level != NONE:
        return value if harmless(value, level) else REDACTED
    return text(value, strict=True)


def _flag(word: str) -> str:
    """An option without its value: `--lr`, `-u`. A value may be joined to its letter: `-pX`."""
    if _FLAG.fullmatch(word) or word == "--":
        return word
    if _LONG_OPTION.fullmatch(word) and _is_option(word):
        return word
    return word[:2] + REDACTED if not word.startswith("--") else f"--{NOT_STORED}"


def _is_option(word: str) -> bool:
    name = word.lstrip("-")
    if word.startswith("--"):
        return names_a_setting(name)
    takes_text = readers.of_option(name) > readers.NUMBERS or name.lower() in ("token", "password", "key")
    return is_plain(name) or (takes_text and names_a_setting(name))


def _option_name(name: str) -> str:
    """The name in `--name=value` or `name=value`."""
    plain = name.lstrip("-+")
    return name if name == NOT_STORED or names_a_setting(plain) else NOT_STORED


def _word(word: str) -> str:
    """A word that belongs to no option."""
    if word[:1] in "{[(\"'" and word[-1:] in "}])\"'":
        return container(word, keep_all=False)
    if " " in word:
        return NOT_STORED if len(word) > _MAX_LINE else " ".join(argv(("", *word.split(" ")))[1:])
    return _value(word, readers.NUMBERS) if is_path_like(word) or "://" in word or "," in word else kept(word)
