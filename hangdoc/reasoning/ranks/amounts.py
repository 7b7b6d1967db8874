"""How much data each rank has, from every source: beacons, loop bounds, lists, directories."""

from hangdoc.diagnosis import Evidence
from hangdoc.parse import natural
from hangdoc.program import data_exits, early_exits
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.model.agreement import Difference
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.ranks import iterators
from hangdoc.reasoning.ranks.counters import count_rounds, counters_in, counts_data
from hangdoc.regex import regex
from hangdoc.snapshot import DataSource, DataSources, Exit

_DATA_WORDS = regex(
    r"(?i)data|file|path|shard|sample|example|doc|chunk|part|batch|split|item|ind(ex|ices)|urls?$|rows?$"
)
_TOTAL = regex(
    r"(?i)(^|[._])(max|num|n|total|len)_(\w+_)?(batch(es)?|samples?|examples?|shards?|files?|docs?|rows?|items?|sequences?)$"
)
"""Names of numbers that say how much data there is."""
_FILE_WORDS = regex(r"(?i)file|path|shard|urls?$")


def compare_amounts(less: Rank, more: Rank) -> list[Difference]:
    """Everything of which `less` visibly has fewer than `more`, the strongest first; empty if these are only numbers by which a
    loop over numbers goes, which need not count data (`range(micro_batches)`)."""
    differences = [
        *_compare_beacons(less, more),
        *_compare_directories(less, more),
        *_compare_bounds(less, more),
        *_compare_inner_loaders(less, more),
        *_compare_variables(less, more),
    ]
    if not any(difference.of_data for difference in differences):
        return []
    return sorted(differences, key=lambda difference: -difference.weight)


def same_data(rank: Rank, other: Rank) -> bool:
    """Whether both ranks read directories with the same files."""
    shared = [(mine, theirs) for mine, theirs in common_sources(rank, other) if mine.files]
    return bool(shared) and all(mine.digest == theirs.digest for mine, theirs in shared)


def _compare_beacons(less: Rank, more: Rank) -> list[Difference]:
    a, b = observed.beacon(less.process), observed.beacon(more.process)
    if a is None or b is None:
        return []
    differences = []
    for verb, unit, mine, theirs in (
        ("expects", "batches", a.batches_total, b.batches_total),
        ("has", "shards", a.shards, b.shards),
    ):
        if mine is not None and theirs is not None and mine < theirs:
            evidence = _make_evidence("progress", less, f"{verb} {mine} {unit}", more, f"{verb} {theirs} {unit}")
            differences.append(Difference(mine, theirs, evidence, "batches" if unit == "batches" else "files", 0.9))
    return differences


def _make_evidence(probe: str, less: Rank, ours: str, more: Rank, theirs: str) -> tuple[Evidence, ...]:
    return Evidence(less.rank, probe, ours), Evidence(more.rank, probe, theirs)


def list_sources(rank: Rank) -> dict[str, DataSource]:
    """A rank's data directories by where their path comes from."""
    process = rank.process
    if process is None or not isinstance(process.data, DataSources):
        return {}
    return {source.origin: source for source in process.data.sources}


def common_sources(rank: Rank, other: Rank) -> list[tuple[DataSource, DataSource]]:
    """The data directories that both ranks have from the same origin."""
    mine, theirs = list_sources(rank), list_sources(other)
    return [(mine[origin], theirs[origin]) for origin in mine if origin in theirs]


def _compare_directories(less: Rank, more: Rank) -> list[Difference]:
    return [
        Difference(
            few.files, many.files, _make_evidence("data", less, _describe(few), more, _describe(many)), "files", 0.95
        )
        for few, many in common_sources(less, more)
        if few.files < many.files and few.digest != many.digest
    ]


def _describe(source: DataSource) -> str:
    kind = "/".join(source.suffixes) or "data"
    return f"{source.files} {kind} file{'s' * (source.files != 1)} in {source.path} ({source.origin})"


def _compare_bounds(less: Rank, more: Rank) -> list[Difference]:
    """The same loop with a different number of iterations, or a `for` over containers of different length. What both ranks' own
    dataloaders say leaves no doubt."""
    a, b = less.loop, more.loop
    if b is not None and b.recorded and (a is None or a.recorded):
        return _compare_loaders(less, more)
    if a is None or b is None or a.total is None or b.total is None:
        return []
    ends = [(view.total or 0) + (view.begin or 0) for view in (a, b)]  # where a rank resumed is no amount of data
    if ends[0] >= ends[1]:
        return []
    few, many = (f"`{view.loop.header}` ends at {end}" for view, end in zip((a, b), ends, strict=True))
    evidence = _make_evidence("progress", less, few, more, many)
    return [Difference(a.total, b.total, evidence, weight=0.85, of_data=counts_data(b.loop, more))]


def _compare_loaders(less: Rank, more: Rank) -> list[Difference]:
    """Dataloaders of one loop with different numbers of batches."""
    totals = read_totals(less, more)
    if totals is None or totals[0] >= totals[1]:
        return []
    few, many = (f"its dataloader has {total} batches" for total in totals)
    return [Difference(*totals, _make_evidence("loops", less, few, more, many), weight=1.0)]


def has_as_many_batches(rank: Rank, inside: Rank) -> bool:
    """Whether the dataloader of a loop that `rank` has left is known to have as many batches as that of `inside`, or more."""
    totals = read_totals(rank, inside)
    return totals is not None and totals[0] >= totals[1]


def read_totals(outside: Rank, inside: Rank) -> tuple[int, int] | None:
    """How many batches the dataloaders of one loop have; None where one is not known. A rank that has left the function of the
    loop may still hold its dataloader in a variable."""
    view, other = outside.loop, inside.loop
    theirs = next(
        (loader for loader in iterators.list_loaders(inside.process) if other and loader.begins == other.loop.line),
        None,
    )
    if other is None or other.total is None or theirs is None:
        return None
    if view is not None:
        total = view.total
    else:
        mine = iterators.find_unused_like(outside.process, theirs)
        total = mine.total if mine is not None else None
    return (total, other.total) if total is not None else None


def find_equal_length(less: Rank, more: Rank) -> int | None:
    """The number of samples behind the dataloaders of one loop, if it is the same on both ranks, although the numbers of batches
    differ; None if not."""
    if more.loop is None:
        return None
    theirs = next((each for each in iterators.list_loaders(more.process) if each.begins == more.loop.loop.line), None)
    mine = iterators.find_unused_like(less.process, theirs) if theirs is not None else None
    if theirs is None or mine is None or mine.total == theirs.total:
        return None
    return mine.dataset_length if mine.dataset_length == theirs.dataset_length else None


def _compare_inner_loaders(less: Rank, more: Rank) -> list[Difference]:
    """Dataloaders of loops inside the one that was left, such as those of an epoch: a rank with fewer batches in each of them has
    done its epochs sooner. Nothing, if it may have left the loop before its end."""
    if more.loop is None or early_exits(more.loop.loop) or left_by_break(less):
        return []
    differences = []
    for theirs in iterators.list_loaders(more.process):
        if not theirs.begins or not theirs.total or theirs.begins == more.loop.loop.line:
            continue
        mine = iterators.find_unused_like(less.process, theirs)
        if mine is not None and mine.total is not None and mine.total < theirs.total:
            few, many = f"its dataloader has {mine.total} batches", f"its dataloader has {theirs.total} batches"
            evidence = _make_evidence("loops", less, few, more, many)
            differences.append(Difference(mine.total, theirs.total, evidence, "batches", 0.7))
    return differences


def left_before_end(rank: Rank) -> bool:
    """Whether a rank left its loop before the end of the loop."""
    view = rank.loop
    return view is not None and view.done is not None and view.total is not None and view.done < view.total


def left_by_break(rank: Rank) -> bool:
    """Whether a rank left its loop before the end of the loop, for a reason other than the data."""
    return left_before_end(rank) and find_data_exit(rank) is None


def find_data_exit(rank: Rank) -> Exit | None:
    """The statement by which a rank left its loop before the end of the loop, when the data ended that it reads there with
    `next()`: nothing else leaves it. None for none."""
    exits = data_exits(rank.loop.loop) if rank.loop is not None and left_before_end(rank) else ()
    return exits[0] if exits and rank.loop is not None and not early_exits(rank.loop.loop) else None


def _compare_variables(less: Rank, more: Rank) -> list[Difference]:
    """Containers of different length under one name, and numbers that equal what the shorter rank has done."""
    mine, theirs = _list_amounts(less), _list_amounts(more)
    done = count_rounds(less)[0] if not left_by_break(less) else None  # what made it leave is no amount of data
    differences: dict[tuple[str, int, int], Difference] = {}
    for key in sorted(mine.keys() & theirs.keys()):
        (few, container), (many, _), name = mine[key], theirs[key], key[1]
        # Every function on the way to the loop holds the same object.
        if few >= many or (name, few, many) in differences:
            continue
        if (few, many) == (done, count_rounds(more)[0]):  # a list of losses
            continue
        # A difference alone proves little: lists of losses differ too. A number that equals the iterations of the shorter rank is
        # no accident, and a container that is named after data most likely holds data.
        telling = few == done and few != less.rank
        total = not container and bool(_TOTAL.search(name))
        if not telling and not total and not (container and _DATA_WORDS.search(name)):
            continue
        what = f"`{name}` has length {{}}" if container else f"`{name}` is {{}}"
        evidence = _make_evidence("stacks", less, what.format(few), more, what.format(many))
        unit = "files" if container and _FILE_WORDS.search(name) else ""
        if total and "batch" in name.lower():
            unit = "batches"
        weight = 0.8 if telling or few == 0 else 0.7 if total else 0.5
        of_data = container or total or more.loop is None or counts_data(more.loop.loop, more)
        differences[name, few, many] = Difference(few, many, evidence, unit, weight, of_data)
    return list(differences.values())


def _list_amounts(rank: Rank) -> dict[tuple[str, str], tuple[int, bool]]:
    """(function, name) to (amount, whether it is a container's length) for the program's variables."""
    amounts: dict[tuple[str, str], tuple[int, bool]] = {}
    scopes = [(frame.function, frame.locals, counters_in([frame])) for frame in rank.program]
    of_module = counters_in(frame for frame in rank.program if frame.function == "<module>")
    scopes.append(("<module>", observed.module(rank.process), of_module))
    for function, variables, counters in scopes:
        for local in variables:
            if local.length is not None:
                amounts.setdefault((function, local.name), (local.length, True))
            elif (number := natural(local.text)) is not None and local.name not in counters:
                amounts.setdefault((function, local.name), (number, False))
    return amounts


def other_files(rank: Rank, other: Rank) -> bool:
    """Whether the ranks visibly read different sets of files: directories or published digests that are not equal."""
    if any(mine.digest != theirs.digest for mine, theirs in common_sources(rank, other) if theirs.files):
        return True
    a, b = observed.beacon(rank.process), observed.beacon(other.process)
    return a is not None and b is not None and a.shards is not None and b.shards is not None and a.shards != b.shards
