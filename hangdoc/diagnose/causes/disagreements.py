"""Settings that must be the same on all ranks: options, environment variables, versions."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from hangdoc.diagnose.causes import amounts, settings
from hangdoc.diagnose.causes.agreement import Agreement, agreement
from hangdoc.diagnose.causes.cause import Cause
from hangdoc.diagnose.model import Rank, Run, environment_of
from hangdoc.diagnose.ranks.counters import counters_in
from hangdoc.parse import integer
from hangdoc.regex import regex
from hangdoc.snapshot import Environment, Interpreter, Runtime

_SETTINGS = regex(r"(?i)(^|\.|_)(args?|cfg|conf|config\w*|opts?|options|hparams|hyper\w*|flags|settings|params)$")
_ACCUMULATION = regex(r"(?i)accum\w*(_steps|_iters?|_every|ulation)$|^grad(ient)?s?_accum\w*$")


class Differs(Cause, frozen=True, kw_only=True):
    """A setting that differs between ranks. `decisive`: it changes which collectives are called."""

    NAME: ClassVar[str] = "differs"
    name: str
    values: Agreement[str | None, int]
    why: str = ""
    decisive: bool = True


class OptionDiffers(Differs, frozen=True, kw_only=True):
    """An option of the command line, or a number of that name in the scripts' own variables."""

    NAME = "option"


class VariableDiffers(Differs, frozen=True, kw_only=True):
    """An environment variable."""

    NAME = "variable"


class VersionDiffers(Differs, frozen=True, kw_only=True):
    """The version of torch or Python."""

    NAME = "version"


def options(run: Run) -> list[OptionDiffers]:
    """All options that differ and must or should agree, those that change collectives first."""
    ranks = _living(run)
    lines = _memoised(settings.options, {rank.rank: rank.process.argv for rank in ranks if rank.process})
    given = {rank.rank: {**_variables(rank), **lines.get(rank.rank, {})} for rank in ranks}
    on_lines = {name for options in lines.values() for name in options}
    found = []
    for name in sorted({name for values in given.values() for name in values}):
        setting = settings.argument(name)
        if setting is None or setting.kind not in ("collectives", "numbers"):
            continue
        known = [rank.rank for rank in ranks if name in on_lines or name in given[rank.rank]]
        values = agreement({rank: _plain(given[rank].get(name)) for rank in known})
        if values.differs:
            found.append(
                OptionDiffers(
                    name=name,
                    values=values,
                    why=setting.why,
                    decisive=setting.kind == "collectives",
                    culprits=values.odd,
                )
            )
    return sorted(found, key=lambda one: (not one.decisive, one.name))


def variables(run: Run) -> list[VariableDiffers]:
    """All variables that differ and have an effect under the run's backend."""
    living = [rank for rank in _living(run) if rank.process and isinstance(rank.process.environment, Environment)]
    known = {rank.rank: environment_of(rank.process) for rank in living if rank.process is not None}
    found = []
    for name in sorted({name for environment in known.values() for name in environment}):
        setting = settings.variable(name)
        if setting is None or setting.kind in ("differs", "tuning", "meeting") or settings.inert(name, run.backend):
            continue
        values = agreement({rank: environment.get(name) for rank, environment in known.items()})
        # A directory that differs by node is common; a default on one of them is not.
        if not values.differs or (setting.kind == "data" and all(value is not None for value, _ in values.values)):
            continue
        found.append(
            VariableDiffers(
                name=name, values=values, why=setting.why, decisive=setting.kind == "collectives", culprits=values.odd
            )
        )
    return found


def versions(run: Run) -> list[VersionDiffers]:
    """torch, then Python."""
    running = {
        r.rank: r.process.runtime for r in run.ranks.values() if r.process and isinstance(r.process.runtime, Runtime)
    }
    found = []
    for name in ("torch", "python"):
        values = agreement({n: text for n, one in running.items() if (text := getattr(one, name)) is not None})
        if values.differs:
            found.append(VersionDiffers(name=name, values=values, decisive=name == "torch", culprits=values.odd))
    return found


def other_files(run: Run) -> bool:
    """Whether two ranks visibly read different files."""
    first, *others = (rank for rank in run.ranks.values() if rank.process is not None)
    return any(amounts.other_files(first, rank) for rank in others)


def _living(run: Run) -> list[Rank]:
    return [rank for rank in run.ranks.values() if rank.process is not None and rank.label != "dead"]


def _memoised(
    read: Callable[[tuple[str, ...]], dict[str, str]], lines: Mapping[int, tuple[str, ...]]
) -> dict[int, dict[str, str]]:
    """What is read from command lines, each different one once."""
    known = {line: read(line) for line in set(lines.values())}
    return {rank: known[line] for rank, line in lines.items()}


def _plain(value: str | None) -> str | None:
    """A path's last part: nodes may keep the same thing in different places."""
    return value.rstrip("/").rpartition("/")[2] if value is not None and "/" in value else value


def _variables(rank: Rank) -> dict[str, str]:
    """Settings among the whole numbers of the script's own frames and of its module."""
    found: dict[str, str] = {}
    scopes = [frame.locals for frame in rank.own]
    counters = counters_in(rank.own)
    if rank.process is not None and isinstance(rank.process.interpreter, Interpreter):
        scopes.append(rank.process.interpreter.globals)
    for scope in scopes:
        for local in scope:
            if local.name not in counters and integer(local.text) is not None and _is_configuration(local.name):
                found.setdefault(local.name, local.text)
    return found


def _is_configuration(name: str) -> bool:
    """Whether a variable holds a setting, and not how far the work has come: an attribute of what people call their
    settings, or the length of an accumulation."""
    owner, dot, _ = name.rpartition(".")
    return bool(_SETTINGS.search(owner)) if dot else bool(_ACCUMULATION.search(name))
