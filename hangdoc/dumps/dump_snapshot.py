"""The dumps of a directory as a snapshot: one pseudo host, on which only the record of each rank was read."""

import datetime
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from hangdoc import redact
from hangdoc.dumps.folder import NO_DUMP, list_dumps
from hangdoc.dumps.rank_dump import SOURCE, NoDumpError, RankDump, find_time_of_writing, read_rank
from hangdoc.dumps.runs import Run, group_by_run
from hangdoc.host_bounds import MOST_PROCESSES
from hangdoc.parse import encodable
from hangdoc.phrases import do, duration, ranks
from hangdoc.snapshot import FlightRecorder, Host, Process, RankIdentity, RecordedGroup, Snapshot, Unavailable
from hangdoc.version import __version__

_NOT_READ = Unavailable(reason="only torch's dump was read")
_UNREAD = Process(
    pid=0, ppid=0, role="rank", name="", argv=(), state="?", started_seconds_ago=0.0, environment=_NOT_READ, clocks=_NOT_READ,
    stack=_NOT_READ, stack_before=_NOT_READ, native=_NOT_READ, interpreter=_NOT_READ, progress=_NOT_READ, data=_NOT_READ,
    runtime=_NOT_READ, files=_NOT_READ, loops=_NOT_READ, stores=_NOT_READ,
)  # fmt: skip
_KNOWN_PREFIXES = ("_trace_rank_",)
"""How torch's default names end: `nccl_trace_rank_`, `comm_lib_trace_rank_`; `hccl_trace_rank_` of torch_npu."""
_NO_RANK = "skipped (the number in the name is no rank of the default group)"
_SHOWN = 5
_UNDATED = (
    "the files do not show when torch wrote them (a copy has a later time), so waits have no age, and a timeout is taken to be "
    "the reason"
)
_US = 1_000_000


def read_dumps(path: Path, seconds: float) -> Snapshot:
    """The dumps in a directory, read for at most so many seconds. Without a dump, the snapshot has no process, and its problems
    say what was found instead. Raises FolderError."""
    began = time.monotonic()
    listed = list_dumps(path, lambda: time.monotonic() - began < seconds)
    rank_dumps: list[RankDump] = []
    for file in listed.candidates:
        try:
            rank_dumps.append(read_rank(file))
        except NoDumpError:
            listed.skipped.setdefault(NO_DUMP, []).append(file.name)
    runs, left_out = _without_strays(group_by_run(_keep_real_ones(rank_dumps, listed.skipped)))
    surplus = [f"{dump.name} ({run.dumps[dump.rank].name} is of the same rank)" for run in runs for dump in run.surplus]
    dumps = [[run.dumps[rank] for rank in sorted(run.dumps)] for run in runs]
    problems = [
        *_describe_problems((dump for run in dumps for dump in run), surplus),
        *_describe_skipped(listed.skipped),
        *left_out,
    ]
    name = encodable(path.resolve().name or str(path))
    hosts = [
        host
        for number, run in enumerate(dumps, 1)
        for host in _make_hosts(f"{name}#{number}" if len(runs) > 1 else name, path, run, time.monotonic() - began)
    ] or [_make_host(name, path, (), None, time.monotonic() - began)]
    problems += _describe_runs(runs)
    if any(find_time_of_writing(run) is None and any(dump.last_us for dump in run) for run in dumps):
        problems.append(_UNDATED)
    hosts[0] = replace(hosts[0], problems=tuple(dict.fromkeys(problems)))
    return redact.snapshot(Snapshot(hangdoc=__version__, hosts=tuple(hosts)))


def _keep_real_ones(dumps: Sequence[RankDump], skipped: dict[str, list[str]]) -> list[RankDump]:
    """Without files that can't be read and are not called like a dump, and those whose number is no rank."""
    readable = [dump for dump in dumps if isinstance(dump.recorder, FlightRecorder)]
    prefixes = {dump.prefix for dump in readable}
    largest = max((dump.size for dump in readable if dump.size is not None), default=None)
    kept = []
    for dump in dumps:
        is_readable = isinstance(dump.recorder, FlightRecorder)
        size = dump.size if is_readable else largest
        if size is not None and dump.rank >= size:
            skipped.setdefault(_NO_RANK, []).append(dump.name)
        elif is_readable or dump.prefix in prefixes or dump.prefix.endswith(_KNOWN_PREFIXES):
            kept.append(dump)
        else:
            skipped.setdefault(NO_DUMP, []).append(dump.name)
    return kept


def _describe_problems(dumps: Iterable[RankDump], used_otherwise: Sequence[str]) -> list[str]:
    by_problem: dict[str, list[str]] = {}
    for dump in dumps:
        if dump.problem is not None:
            by_problem.setdefault(dump.problem, []).append(dump.name)
    problems = [
        f"{encodable(names[0])} {problem}"
        if len(names) == 1
        else _listing(len(names), f"of which each {problem}", names)
        for problem, names in by_problem.items()
    ]
    if len(problems) > _SHOWN:
        problems[_SHOWN:] = [f"{len(problems) - _SHOWN} more files have problems of their own"]
    if used_otherwise:
        problems.append(_listing(len(used_otherwise), "not used", used_otherwise))
    return problems


def _describe_skipped(skipped: dict[str, list[str]]) -> list[str]:
    return [_listing(len(names), why, names) for why, names in skipped.items()]


def _listing(count: int, why: str, names: Sequence[str]) -> str:
    shown = ", ".join(encodable(name)[:200] for name in islice(names, _SHOWN))
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return f"{count} file{'s' * (count > 1)} {why}: {shown}{more}"


def _without_strays(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The runs to report, and what was left out: an older run of which there is one file, beside one of which there are
    several."""
    if all(len(run.dumps) < 2 for run in runs):
        return list(runs), []
    kept = [run for number, run in enumerate(runs) if number == 0 or len(run.dumps) > 1]
    main = next(run for run in kept if len(run.dumps) > 1)
    left_out = [dump for run in runs if run not in kept for dump in (*run.dumps.values(), *run.surplus)]
    texts = [
        f"{encodable(dump.name)[:200]} was left out, because it does not fit the others: {main.fit(dump).misfit}"
        for dump in left_out
    ]
    if len(texts) > _SHOWN:
        texts[_SHOWN:] = [
            _listing(
                len(texts) - _SHOWN, "left out as well, for reasons of their own", [d.name for d in left_out[_SHOWN:]]
            )
        ]
    return kept, texts


def _describe_runs(runs: Sequence[Run]) -> list[str]:
    """That there are files of several runs, which one directory should not have; and where the files of one leave that open."""
    texts = []
    if len(runs) > 1:
        largest = max(runs, key=lambda run: len(run.dumps))
        parts = [
            f"{ranks(run.dumps)}{_size(run)}{_before(run, runs[0].last_us)}{_describe_misfit(run, largest)}"
            for run in runs
        ]
        texts.append(f"the files are of {len(runs)} runs: {'; '.join(parts)}. Files of an earlier run can be removed")
    for run in runs:
        if run.unsure:
            unsure = (dump.rank for dump in run.unsure)
            why = f"no call that {do(unsure, 'has', 'have')} finished is in another file"
            counted = [calls for dump in run.dumps.values() for calls in dump.calls.values()]
            if not counted:
                why = "they do not name the ranks of the groups of their calls"
            elif not any(calls.finished_us for calls in counted) and any(len(calls.made_us) > 1 for calls in counted):
                why = "torch did not record when their calls ended, as with Gloo"
            texts.append(f"nothing in the files shows that those of {ranks(run.dumps)} are of one run: {why}")
        texts += [
            f"the clock of {encodable(name)[:200]} is {duration(abs(skew_us) / _US)} {'ahead' if skew_us > 0 else 'behind'}, "
            "or the file is of another run"
            for name, skew_us in list(run.skews_us.items())[:_SHOWN]
        ]
    return texts


def _describe_misfit(run: Run, others: Run) -> str:
    """Why the files of a run are not of the other one: what one of them says."""
    fits = ((dump, others.fit(dump).misfit) for dump in run.dumps.values()) if run is not others else ()
    return next((f" ({encodable(dump.name)[:200]}: {misfit})" for dump, misfit in fits if misfit), "")


def _size(run: Run) -> str:
    return f" of {run.size}" if run.size is not None else ""


def _before(run: Run, newest_us: int) -> str:
    before = newest_us - run.last_us
    return f", which ended {duration(before / _US)} before" if run.last_us and before >= _US else ""


def _make_hosts(name: str, path: Path, run: Sequence[RankDump], elapsed: float) -> list[Host]:
    """The hosts of one run. A host has a limited number of processes, so a large run has several."""
    world = _find_world_size(run)
    wall_us = find_time_of_writing(run)
    identity = RankIdentity(rank=0, source=SOURCE, world_size=world, run=f"dumps:{name}")
    members: dict[tuple[str, bool], tuple[int, ...]] = {}
    for dump in run:
        for (group, about), ranks_of_group in dump.members.items():
            members.setdefault((group, about == "default_pg"), ranks_of_group)
    processes = [_make_process(dump, identity, members, wall_us) for dump in run]
    newest = wall_us or max((dump.last_us for dump in run), default=0)
    return [
        _make_host(
            name if not first else f"{name}-{1 + first // MOST_PROCESSES}",
            path,
            tuple(processes[first : first + MOST_PROCESSES]),
            wall_us,
            elapsed,
            newest,
        )
        for first in range(0, len(processes), MOST_PROCESSES)
    ]


def _find_world_size(run: Iterable[RankDump]) -> int:
    sizes = [dump.size for dump in run if dump.size is not None]
    if sizes:
        return max(sizes)
    listed = (rank for dump in run for members in dump.members.values() for rank in members)
    return 1 + max([*listed, *(dump.rank for dump in run)])


def _make_process(
    dump: RankDump,
    identity: RankIdentity,
    members: dict[tuple[str, bool], tuple[int, ...]],
    wall_us: int | None,
) -> Process:
    recorder = dump.recorder
    if isinstance(recorder, FlightRecorder):
        recorder = _with_untouched(dump.rank, recorder, members)
    return replace(
        _UNREAD,
        started_seconds_ago=max(0.0, ((wall_us or dump.last_us) - dump.first_us) / _US),
        identity=replace(identity, rank=dump.rank),
        recorder=recorder,
    )


def _with_untouched(
    rank: int, recorder: FlightRecorder, members: dict[tuple[str, bool], tuple[int, ...]]
) -> FlightRecorder:
    """The record with the groups in which the rank has made no call. It is a member by the files of other ranks, and nothing is
    missing in its own."""
    if not recorder.whole:
        return recorder
    called = {(group.name, group.default) for group in recorder.groups}
    more = [
        RecordedGroup(name=name, default=default, ranks=ranks_of_group, issued=0)
        for (name, default), ranks_of_group in members.items()
        if rank in ranks_of_group and (name, default) not in called
    ]
    return replace(recorder, groups=(*recorder.groups, *more)) if more else recorder


def _make_host(
    name: str, path: Path, processes: tuple[Process, ...], wall_us: int | None, elapsed: float, newest_us: int = 0
) -> Host:
    try:
        taken_at = datetime.datetime.fromtimestamp((newest_us or time.time_ns() // 1000) / 1e6, datetime.timezone.utc)
    except (OverflowError, OSError, ValueError):
        taken_at = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)
    return Host(
        name=name,
        taken_at=taken_at.isoformat(timespec="milliseconds"),
        window_seconds=0.0,
        elapsed_seconds=round(elapsed, 3),
        processes=processes,
        wall_us=wall_us,
        dumps=encodable(str(path)),
    )
