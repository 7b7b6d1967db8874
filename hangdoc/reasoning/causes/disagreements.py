"""What ranks do not agree in: settings that must be the same on all (options, variables, versions), and earlier calls."""

import re
from collections.abc import Mapping
from typing import TypeVar

from hangdoc import settings
from hangdoc.parse import was_removed
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.ledger.compare import Behind, SizesDiffer, compare
from hangdoc.reasoning.ledger.compare import Differs as CallsDiffer
from hangdoc.reasoning.ledger.history import FirstDifference, first_difference
from hangdoc.reasoning.model.agreement import Agreement, Value, compare_values
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Cause, Differs, OptionDiffers, VariableDiffers, VersionDiffers
from hangdoc.reasoning.model.kinds import Cycle, PointToPoint, SameCall
from hangdoc.reasoning.model.ledger import GroupCalls
from hangdoc.reasoning.model.rank import Rank, numbers_of
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks import amounts
from hangdoc.reasoning.runs.launch import program, read_arguments
from hangdoc.regex import regex
from hangdoc.snapshot import Environment, Process, Runtime

_LEAST_CALLS = 10
"""A difference that is younger is a part of the hang itself."""
_NO_DATA = regex(r"\(set\)|[\d.e+-]+")
_Kind = TypeVar("_Kind", OptionDiffers, VariableDiffers)


class DivergedEarlier(Cause, frozen=True, kw_only=True):
    """Since an earlier call, the calls of some ranks are those of the others, shifted."""

    NAME = "diverged-earlier"
    group: GroupCalls
    difference: FirstDifference


def compare_settings(run: Run) -> tuple[Differs, ...]:
    """All settings of a run that differ."""
    return (*_options(run), *_variables(run), *_versions(run))


def agree(first: Rank, other: Rank) -> bool:
    """Whether two living ranks agree in all settings that are compared here: options and variables of the environment."""
    processes = {rank.rank: rank.process for rank in (first, other) if rank.process is not None}
    programs, lines = _programs(processes), read_arguments(processes)
    if programs[first.rank] != programs[other.rank]:
        return False
    for name in _list_differing_names(lines[first.rank], lines[other.rank]):
        setting = _compared_option(name)
        values = {rank.rank: lines[rank.rank].get(name) for rank in (first, other)}
        if setting is not None and (setting.kind != "data" or _name_other_data(values)):
            return False
    variables = _list_differing_names(observed.environment(first.process), observed.environment(other.process))
    # On a host alone, the backend of the whole run is not known.
    return not any(_compared_variable(name, None) for name in variables)


def _list_differing_names(mine: Mapping[str, str], theirs: Mapping[str, str]) -> set[str]:
    return {name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name)}


def _programs(processes: Mapping[int, Process]) -> dict[int, str]:
    """The program that each rank runs."""
    names = {argv: program(argv) for argv in {process.argv for process in processes.values()}}
    return {rank: names[process.argv] for rank, process in processes.items()}


def _options(run: Run) -> list[OptionDiffers]:
    """All options that differ and must or should agree, those that change collectives first, those that name data last."""
    lines, programs = read_arguments(run.whole), _programs(run.whole)
    different: list[OptionDiffers] = []
    for name in sorted({name for options in {id(each): each for each in lines.values()}.values() for name in options}):
        setting = _compared_option(name)
        if setting is None:
            continue
        # A rank that another one has spawned, or that runs another program, has no such option.
        having = {programs[rank] for rank, options in lines.items() if name in options}
        by_rank = {rank: _plain(options.get(name)) for rank, options in lines.items() if programs[rank] in having}
        if setting.kind == "data" and not _name_other_data(by_rank):
            continue
        if (values := differing_in(run, by_rank)) is not None:
            different.append(_differs(OptionDiffers, name, values, setting, by_node=_is_equal_in_nodes(run, by_rank)))
    return sorted(different, key=lambda option: (not option.decisive, option.names_data, option.name))


def _is_equal_in_nodes(run: Run, values: Mapping[int, str | None]) -> bool:
    """Whether the ranks of each launcher have one value. Two nodes may be on one host. A default is no such value."""
    if None in values.values():
        return False
    nodes = {rank: (run.ranks[rank].host, run.whole[rank].owner) for rank in values}
    return len({(nodes[rank], value) for rank, value in values.items()}) == len(set(nodes.values()))


def _variables(run: Run) -> list[VariableDiffers]:
    """All variables that differ and have an effect under the run's backend."""
    environments = {
        rank: observed.environment(process)
        for rank, process in run.whole.items()
        if isinstance(process.environment, Environment)
    }
    different = []
    for name in sorted(set().union(*environments.values())):
        setting = _compared_variable(name, run.backend)
        if setting is None:
            continue
        values = differing_in(run, {rank: environment.get(name) for rank, environment in environments.items()})
        # A directory that differs by node is common; a default on one of them is not.
        if values is None or (setting.kind == "data" and all(value is not None for value, _ in values.values)):
            continue
        different.append(_differs(VariableDiffers, name, values, setting))
    return different


def _compared_option(name: str) -> settings.Setting | None:
    """What is known of an option that must be the same on all ranks; None for any other option."""
    setting = settings.argument(name)
    return setting if setting is not None and setting.kind in ("collectives", "numbers", "data") else None


def _name_other_data(values: Mapping[int, str | None]) -> bool:
    """Whether the values of an option by rank name different data: not if each rank has its own part (`part-3`), or if the option
    has numbers or no value."""
    if any(value is not None and _NO_DATA.fullmatch(value) for value in values.values()):
        return False
    alike = {re.sub(rf"(?<!\d)0*{rank}(?!\d)", "RANK", _plain(value) or "") for rank, value in values.items()}
    return len(alike) > 1


def find_other_data(run: Run, first: Rank, other: Rank) -> tuple[OptionDiffers, ...]:
    """The options by which two ranks were given different data, and the words by which they may have been (not `certain`)."""
    return tuple(
        option
        for option in run.differing
        if isinstance(option, OptionDiffers)
        and option.names_data
        and option.value_of(first.rank) != option.value_of(other.rank)
    )


def find_parting_variables(run: Run, values: Agreement[object, int]) -> tuple[VariableDiffers, ...]:
    """The variables that may be the script's own and part the ranks of one host as `values` do. Those of other hosts differ for
    reasons of the hosts, and where no two ranks are alike, so do those that number the ranks or their cards. Of a text that is
    not stored, it is only known that the variable is set."""
    if len(run.host) != 1 or not values.has_majority:
        return ()
    environments = {rank: observed.environment(process) for rank, process in run.whole.items()}
    different = []
    for name in sorted(filter(settings.may_be_own, set().union(*environments.values()))):
        texts = {rank: environment.get(name) for rank, environment in environments.items()}
        shown = {rank: "set" if text is not None and was_removed(text) else text for rank, text in texts.items()}
        parted = differing_in(run, shown)
        if parted is not None and parted.parts_like(values):
            different.append(VariableDiffers(name=name, values=parted))
    return tuple(different)


def _compared_variable(name: str, backend: str | None) -> settings.Setting | None:
    """What is known of an environment variable that must or should be the same on all ranks; None for any other variable."""
    setting = settings.variable(name)
    if setting is None or setting.kind in ("differs", "tuning", "meeting") or settings.inert(name, backend):
        return None
    return setting


def _versions(run: Run) -> list[VersionDiffers]:
    """torch, then Python."""
    running = {rank: process.runtime for rank, process in run.whole.items() if isinstance(process.runtime, Runtime)}
    versions = {
        "torch": {rank: runtime.torch for rank, runtime in running.items() if runtime.torch is not None},
        "python": {rank: runtime.python for rank, runtime in running.items() if runtime.python is not None},
    }
    return [
        VersionDiffers(name=name, values=values, decisive=name == "torch", culprits=values.odd)
        for name, by_rank in versions.items()
        if (values := differing_in(run, by_rank)) is not None
    ]


def _differs(
    kind: type[_Kind],
    name: str,
    values: Agreement[str | None, int],
    setting: settings.Setting,
    *,
    by_node: bool = False,
) -> _Kind:
    decisive, names_data = setting.kind == "collectives", setting.kind == "data"
    certain = setting is not settings.POSITIONAL
    return kind(
        name=name, values=values, why=setting.why, decisive=decisive, names_data=names_data, certain=certain,
        by_node=by_node, culprits=values.odd,
    )  # fmt: skip


def _plain(value: str | None) -> str | None:
    """A path's last part: nodes may keep the same thing in different places."""
    return value.rstrip("/").rpartition("/")[2] if value is not None and "/" in value else value


def differing_in(run: Run, values: Mapping[int, Value]) -> Agreement[Value, int] | None:
    """The values of all ranks of a run, from those that have evidence of their own; None if they agree."""
    if len(set(values.values())) < 2:
        return None
    return compare_values({rank: value for first, value in values.items() for rank in run.alike(first)})


# --- as causes -----------------------------------------------------------------------------------------------------------


def find_setting(run: Run, blockage: Blockage) -> Differs | None:
    """A setting that makes ranks call different collectives. Directories that visibly differ are a better explanation than the
    options that name them."""
    kind = blockage.kind
    if not isinstance(kind, Cycle | SameCall):
        return None
    setting = _decisive(run, *((VariableDiffers, VersionDiffers) if _read_other_files(run) else (Differs,)))
    if setting is not None and isinstance(kind, PointToPoint) and kind.pair is not None:
        # A setting of other ranks than the one that did not send or receive does not explain that.
        return setting if set(setting.values.odd) & set(kind.pair[0].ranks) else None
    return setting


def find_environment(run: Run, blockage: Blockage) -> Differs | None:
    """A variable or a version that keeps ranks from meeting. The options of a script matter only later."""
    return _decisive(run, VariableDiffers, VersionDiffers)


def _decisive(run: Run, *kinds: type[Differs]) -> Differs | None:
    return next((setting for setting in run.differing if isinstance(setting, kinds) and setting.decisive), None)


def _read_other_files(run: Run) -> bool:
    """Whether two ranks visibly read different files."""
    first, *others = (rank for rank in run.ranks.values() if rank.process is not None)
    return any(amounts.other_files(first, rank) for rank in others)


def find_divergence(run: Run, blockage: Blockage) -> DivergedEarlier | None:
    """The first such difference in a group in which ranks of a blockage wait in calls that do not meet."""
    if not isinstance(blockage.kind, Cycle | SameCall) or blockage.under_way:
        return None
    ranks = set(numbers_of((*blockage.awaited, *blockage.waiting)))
    for group in run.ledger.groups:
        if _stands_still(group, ranks) and isinstance(compare(group), Behind | CallsDiffer | SizesDiffer):
            difference = first_difference(group)
            if difference is not None and difference.calls_ago >= _LEAST_CALLS and ranks & set(difference.ranks):
                few = len(difference.ranks) < len(difference.others)
                culprits = difference.ranks if few else (*difference.ranks, *difference.others)
                return DivergedEarlier(culprits=tuple(sorted(culprits)), group=group, difference=difference)
    return None


def _stands_still(group: GroupCalls, ranks: set[int]) -> bool:
    """Whether some of the ranks wait in a call of the group, and no rank has made one in the window."""
    waiting = any(made.pending and rank in ranks for rank, made in group.ranks.items())
    return waiting and not any(made.moved for made in group.ranks.values())
