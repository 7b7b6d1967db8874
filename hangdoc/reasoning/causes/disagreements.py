"""Settings that must be the same on all ranks: options, environment variables, versions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from hangdoc import settings
from hangdoc.parse import integer
from hangdoc.reasoning.evidence import observed as known
from hangdoc.reasoning.model.agreement import Agreement, Value, agreement
from hangdoc.reasoning.model.cause import Differs, OptionDiffers, VariableDiffers, VersionDiffers
from hangdoc.reasoning.model.rank import Class, Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks import amounts
from hangdoc.reasoning.ranks.counters import counters_in
from hangdoc.reasoning.runs.launch import program
from hangdoc.regex import regex
from hangdoc.snapshot import Environment, Process, Runtime

_SETTINGS = regex(r"(?i)(^|\.|_)(args?|cfg|conf|config\w*|opts?|options|hparams|hyper\w*|flags|settings|params)$")
_ACCUMULATION = regex(r"(?i)accum\w*(_steps|_iters?|_every|ulation)$|^grad(ient)?s?_accum\w*$|^accum(ulate)?$")


_Kind = TypeVar("_Kind", OptionDiffers, VariableDiffers)


def of(run: Run) -> tuple[Differs, ...]:
    """All settings of a run that differ."""
    return (*_options(run), *_variables(run), *_versions(run))


def agree(run: Run, one: Rank, other: Rank) -> bool:
    """Whether two living ranks agree in all settings that are compared here: options, variables of the script and of the
    environment."""
    settable = _configuration(alike.first for alike in run.classes)
    processes = {rank.rank: rank.process for rank in (one, other) if rank.process is not None}
    lines, programs = _command_lines(processes), _programs(processes)
    mine, theirs = (_given(rank, lines[rank.rank], settable) for rank in (one, other))
    if programs[one.rank] != programs[other.rank] or any(map(_compared_option, _apart(mine, theirs))):
        return False
    mine, theirs = (known.environment(rank.process) for rank in (one, other))
    # On a host alone, the backend of the whole run is not known.
    return not any(_compared_variable(name, None) for name in _apart(mine, theirs))


def _apart(one: Mapping[str, str], other: Mapping[str, str]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def separating(run: Run, parts: Sequence[Class]) -> OptionDiffers | None:
    """An option of the command line that is the same on all ranks that wait in one call, and another one for each call: even an
    option of which nothing is known explains why they differ. Where each part is a single rank, any option that differs fits, so
    it must be the only one, and a number that does not number the ranks."""
    if len(parts) < 2:
        return None
    lines, programs = _command_lines(run.processes), _programs(run.processes)
    running = {programs.get(rank) for part in parts for rank in part.ranks}
    if len(running) > 1 or None in running:
        return None  # the ranks run different programs, or one is dead
    found = []
    for name in sorted({name for part in parts for name in lines[part.ranks[0]]}):
        setting = settings.argument(name)
        values = [{_plain(lines[rank].get(name)) for rank in part.ranks} for part in parts]
        apart = all(len(one) == 1 for one in values) and len(set().union(*values)) == len(parts)
        if apart and (setting is None or setting.kind == "collectives"):
            shared = agreement({rank: _plain(lines[rank].get(name)) for part in parts for rank in part.ranks})
            why = setting.why if setting is not None else "separates the ranks that wait in different calls"
            found.append(
                OptionDiffers(name=name, values=shared, why=why, decisive=setting is not None, culprits=shared.odd)
            )
    if all(len(part.ranks) == 1 for part in parts) and not (len(found) == 1 and _is_amount(found[0])):
        return None
    return min(found, key=lambda one: not one.decisive, default=None)


def _is_amount(option: OptionDiffers) -> bool:
    """Whether the values of an option are numbers, and not those of the ranks, or consecutive ones as for ports."""
    numbers = [integer(value) for value, _ in option.values.values]
    known = sorted(number for number in numbers if number is not None)
    return len(known) == len(numbers) and known != list(range(known[0], known[0] + len(known)))


def _command_lines(processes: Mapping[int, Process]) -> dict[int, dict[str, str]]:
    """The options of each rank's command line. Ranks with one line share one dict."""
    lines = {argv: settings.options(argv) for argv in {process.argv for process in processes.values()}}
    return {rank: lines[process.argv] for rank, process in processes.items()}


def _programs(processes: Mapping[int, Process]) -> dict[int, str]:
    """The program that each rank runs."""
    names = {argv: program(argv) for argv in {process.argv for process in processes.values()}}
    return {rank: names[process.argv] for rank, process in processes.items()}


def _options(run: Run) -> list[OptionDiffers]:
    """All options that differ and must or should agree, those that change collectives first."""
    lines = _command_lines(run.whole)
    settable = _configuration(one.first for one in run.classes)
    given = {rank: _given(run.ranks[rank], options, settable) for rank, options in lines.items()}
    different = list({id(one): one for one in given.values()}.values())
    on_lines = {name for options in {id(one): one for one in lines.values()}.values() for name in options}
    programs = _programs(run.whole)
    found: list[OptionDiffers] = []
    for name in sorted({name for one in different for name in one}, key=lambda name: (name not in on_lines, name)):
        setting = _compared_option(name)
        if setting is None:
            continue
        # A rank that another one has spawned, or that runs another program, has no such option.
        having_it = {programs[rank] for rank, options in lines.items() if name in options} if name in on_lines else ()
        having = [rank for rank, one in given.items() if name in one or programs[rank] in having_it]
        values = differing_in(run, {rank: _plain(given[rank].get(name)) for rank in having})
        if values is not None and not any(
            _is_variable_of(name, one.name) and one.culprits == values.odd for one in found
        ):
            found.append(_differs(OptionDiffers, name, values, setting))
    return sorted(found, key=lambda one: (not one.decisive, one.name))


def _variables(run: Run) -> list[VariableDiffers]:
    """All variables that differ and have an effect under the run's backend."""
    environments = {
        rank: known.environment(process)
        for rank, process in run.whole.items()
        if isinstance(process.environment, Environment)
    }
    found = []
    for name in sorted(set().union(*environments.values())):
        setting = _compared_variable(name, run.backend)
        if setting is None:
            continue
        values = differing_in(run, {rank: environment.get(name) for rank, environment in environments.items()})
        # A directory that differs by node is common; a default on one of them is not.
        if values is None or (setting.kind == "data" and all(value is not None for value, _ in values.values)):
            continue
        found.append(_differs(VariableDiffers, name, values, setting))
    return found


def _compared_option(name: str) -> settings.Setting | None:
    """What is known of an option that must be the same on all ranks; None for any other option."""
    setting = settings.argument(name)
    return setting if setting is not None and setting.kind in ("collectives", "numbers") else None


def _compared_variable(name: str, backend: str | None) -> settings.Setting | None:
    """What is known of an environment variable that must or should be the same on all ranks; None for any other variable."""
    setting = settings.variable(name)
    if setting is None or setting.kind in ("differs", "tuning", "meeting") or settings.inert(name, backend):
        return None
    return setting


def _versions(run: Run) -> list[VersionDiffers]:
    """torch, then Python."""
    running = {rank: process.runtime for rank, process in run.whole.items() if isinstance(process.runtime, Runtime)}
    found = []
    for name in ("torch", "python"):
        values = differing_in(run, {n: text for n, one in running.items() if (text := getattr(one, name)) is not None})
        if values is not None:
            found.append(VersionDiffers(name=name, values=values, decisive=name == "torch", culprits=values.odd))
    return found


def other_files(run: Run) -> bool:
    """Whether two ranks visibly read different files."""
    first, *others = (rank for rank in run.ranks.values() if rank.process is not None)
    return any(amounts.other_files(first, rank) for rank in others)


def _differs(kind: type[_Kind], name: str, values: Agreement[str | None, int], setting: settings.Setting) -> _Kind:
    decisive = setting.kind == "collectives"
    return kind(name=name, values=values, why=setting.why, decisive=decisive, culprits=values.odd)


def _is_variable_of(name: str, option: str) -> bool:
    """Whether a variable holds an option of the command line: `args.local_epochs` holds `--local-epochs`."""
    return name.rpartition(".")[2] == option.replace("-", "_")


def _plain(value: str | None) -> str | None:
    """A path's last part: nodes may keep the same thing in different places."""
    return value.rstrip("/").rpartition("/")[2] if value is not None and "/" in value else value


def _given(rank: Rank, options: dict[str, str], settable: set[str]) -> dict[str, str]:
    """The options of a rank's command line, and settings among the whole numbers of the script's own frames and of its module.
    `settable`: the names of all variables that may hold one."""
    found: dict[str, str] = {}
    for local in known.variables(rank.process, rank.own) if settable else ():
        if local.name in settable and integer(local.text) is not None:
            found.setdefault(local.name, local.text)
    if not found:
        return options
    for counter in counters_in(rank.own):
        found.pop(counter, None)
    return found | options


def _configuration(ranks: Iterable[Rank]) -> set[str]:
    """The names of all variables that hold a setting. The ranks of a class have the same few names."""
    names = {local.name for rank in ranks for frame in rank.own for local in frame.locals}
    names |= {local.name for rank in ranks for local in known.module(rank.process)}
    return set(filter(_is_configuration, names))


def _is_configuration(name: str) -> bool:
    """Whether a variable holds a setting, and not how far the work has come: an attribute of what people call their
    settings, or the length of an accumulation."""
    owner, dot, _ = name.rpartition(".")
    return bool(_SETTINGS.search(owner)) if dot else bool(_ACCUMULATION.search(name))


def differing_in(run: Run, values: Mapping[int, Value]) -> Agreement[Value, int] | None:
    """The values of all ranks of a run, from those that have evidence of their own; None if they agree."""
    if len(set(values.values())) < 2:
        return None
    return agreement({rank: value for first, value in values.items() for rank in run.alike(first)})
