"""One rank in detail, and two ranks side by side, from a kept look."""

from collections.abc import Iterable, Iterator
from itertools import takewhile

from msgspec import structs

from hangdoc import settings
from hangdoc.agents.answers import (
    EVIDENCE,
    Compared,
    CounterRow,
    DataRow,
    Difference,
    FrameRow,
    Gap,
    RankAnswer,
    SocketRow,
    ThreadRow,
    Variables,
)
from hangdoc.agents.bounds import LINE, TEXT, clip, clipped, first
from hangdoc.agents.diagnoses import row, unread
from hangdoc.agents.looks import Look
from hangdoc.diagnosis import Job, RankView
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.model.rank import Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.views.detail import STANDING_ORDER, compare_settings, frames_of, place_of_frame
from hangdoc.snapshot import (
    Connection,
    DataSource,
    DataSources,
    Frame,
    Local,
    Process,
    Progress,
    PythonThread,
    Runtime,
    Stack,
)

_FUNCTIONS = 3
"""Innermost functions whose variables are shown."""
_SHORT = 6
_STANDING = {"unknown": "hangdoc does not know this setting", "inert": "has no effect with this backend"}


def detail(look: Look, job: Job, run: Run, number: int, most: int) -> RankAnswer:
    """Everything known about one rank."""
    rank = look.rank(number, run)
    stack, below = first(rank.thread.frames if rank.thread is not None else (), most)
    counters, uncounted = first(_list_counters(rank), most)
    sockets, unconnected = first(sorted(rank.connections, key=_address), min(most, 16))
    threads, others = first(_list_other_threads(rank), min(most, 8))
    helpers, more = first(run.helpers(rank), min(most, 8))
    return RankAnswer(
        note=EVIDENCE,
        look=look.number,
        taken_at=look.diagnosis.taken_at,
        seconds_ago=look.seconds_ago(),
        job=clip(job.id, LINE),
        rank=row([_find_view(job, number)]),
        why=clip(rank.why),
        role=_describe_role(job, number),
        stack=tuple(map(_describe_frame, stack)),
        stack_left_out=below,
        native=tuple(
            clip(f"{frame.function} ({frame.file})", LINE) for frame in _list_native_frames(rank)[: min(most, 12)]
        ),
        variables=tuple(_list_variables(rank.own[:_FUNCTIONS], most)),
        counters=counters,
        counters_left_out=uncounted,
        data=tuple(_describe_sources(_list_sources(rank)[:_SHORT])),
        sockets=tuple(map(_describe_socket, sockets)),
        sockets_left_out=unconnected,
        threads=tuple(map(_describe_thread, threads)),
        threads_left_out=others,
        helpers=tuple(map(_describe_helper, helpers)),
        helpers_left_out=more,
        environment=dict(list(_list_environment(rank, run.backend))[:most]),
        arguments=clip(" ".join(rank.process.argv), 2 * TEXT) if rank.process is not None else "",
        versions=_list_versions(rank),
        not_seen=(*_of_another(rank), *unread(run, [number]))[:most],
    )


def _of_another(rank: Rank) -> tuple[Gap, ...]:
    if rank.like is None:
        return ()
    why = f"the host sent those of rank {rank.like}, which is in the same state: look at it"
    return (Gap(source="variables and threads", why=why, ranks=str(rank.rank)),)


def comparison(look: Look, job: Job, run: Run, first_number: int, second_number: int, most: int) -> Compared:
    """The differences between two ranks."""
    ranks = {number: look.rank(number, run) for number in (first_number, second_number)}
    views = _find_view(job, first_number), _find_view(job, second_number)
    # The outermost frame first.
    frames = [tuple(reversed(frames_of(rank))) for rank in (ranks[first_number], ranks[second_number])]
    common = sum(
        1
        for _ in takewhile(lambda pair: place_of_frame(pair[0]) == place_of_frame(pair[1]), zip(*frames, strict=False))
    )
    differences, hidden = first(
        [*_compare_views(*views), *_compare_rank_settings(run, ranks, first_number, second_number)], most
    )
    return Compared(
        note=EVIDENCE,
        look=look.number,
        taken_at=look.diagnosis.taken_at,
        seconds_ago=look.seconds_ago(),
        job=clip(job.id, LINE),
        first=row([views[0]]),
        second=row([views[1]]),
        differences=differences,
        differences_left_out=hidden,
        common_frames=common,
        last_common=_describe_frame(frames[0][common - 1]) if common else None,
        first_goes_on=tuple(map(_describe_frame, frames[0][common : common + min(most, 12)])),
        second_goes_on=tuple(map(_describe_frame, frames[1][common : common + min(most, 12)])),
    )


def _find_view(job: Job, number: int) -> RankView:
    return next(view for view in job.ranks if view.rank == number)


def _describe_role(job: Job, number: int) -> str:
    roles = [
        f"{finding.role if number in finding.culprits else 'waiting'} in {finding.code} {finding.name}"
        for finding in job.findings
        if number in finding.culprits or number in finding.victims
    ]
    return clip("; ".join(roles[:_SHORT]))


def _describe_frame(frame: Frame) -> FrameRow:
    return FrameRow(
        at=clip(f"{frame.function} ({frame.file}:{frame.line})", LINE),
        source=clip(frame.source, LINE),
        own=not frame.library and not frame.native,
    )


def _list_native_frames(rank: Rank) -> tuple[Frame, ...]:
    """The C++ frames above the training thread's innermost Python frame."""
    if rank.process is None or not isinstance(rank.process.native, Stack):
        return ()
    return tuple(takewhile(lambda frame: frame.native, frames_of(rank, native=True)))


def _list_variables(frames: Iterable[Frame], most: int) -> Iterator[Variables]:
    """Variables of the innermost functions, each value once (`self.rank` is the same in all methods)."""
    earlier: set[tuple[str, str]] = set()
    for frame in frames:
        values = [shown for shown in map(_describe_local, frame.locals) if shown not in earlier]
        earlier.update(values)
        kept, hidden = first(values, most)
        if kept:
            yield Variables(function=clip(frame.function, LINE), values=dict(kept), left_out=hidden)


def _describe_local(local: Local) -> tuple[str, str]:
    length = f" (length {local.length})" if local.length is not None else ""
    return clip(local.name, LINE), clip(local.text, LINE) + length


def _list_counters(rank: Rank) -> list[CounterRow]:
    """The counters that a loop advances or that changed; if there are none, all."""
    progress = rank.process.progress if rank.process is not None else None
    if not isinstance(progress, Progress):
        return []
    telling = [c for c in progress.counters if c.looped or c.advances or c.before != c.after] or progress.counters
    ordered = sorted(telling, key=lambda c: (not c.looped, c.before == c.after, c.function, c.name))
    return [
        CounterRow(name=clip(c.name, LINE), function=clip(c.function, LINE), before=c.before, after=c.after)
        for c in ordered
    ]


def _list_sources(rank: Rank) -> list[DataSource]:
    """Data directories, those with the most files first."""
    data = rank.process.data if rank.process is not None else None
    return sorted(data.sources, key=lambda source: -source.files) if isinstance(data, DataSources) else []


def _describe_sources(sources: Iterable[DataSource]) -> Iterator[DataRow]:
    for source in sources:
        yield DataRow(path=clip(source.path, LINE), files=source.files, origin=clip(source.origin, LINE))


def _address(c: Connection) -> tuple[str, int, int]:
    return c.remote_address, c.remote_port, c.local_port


def _describe_socket(c: Connection) -> SocketRow:
    return SocketRow(
        remote=f"{clip(c.remote_address, LINE)}:{c.remote_port}",
        state=c.state,
        last_sent_seconds=_to_seconds(c.last_sent_ms),
        last_received_seconds=_to_seconds(c.last_received_ms),
        unread_bytes=c.receive_queue_bytes,
        unsent_bytes=c.send_queue_bytes,
        retransmits=c.retransmits or 0,
    )


def _to_seconds(milliseconds: int | None) -> float | None:
    return round(milliseconds / 1000, 1) if milliseconds is not None else None


def _list_other_threads(rank: Rank) -> list[PythonThread]:
    stack = rank.process.stack if rank.process is not None else None
    threads = stack.threads if isinstance(stack, Stack) else ()
    others = [thread for thread in threads if thread.frames and thread != rank.thread]
    return sorted(others, key=lambda thread: (not thread.owns_gil, not thread.active))


def _describe_thread(thread: PythonThread) -> ThreadRow:
    return ThreadRow(
        name=clip(thread.name, LINE),
        at=_describe_frame(thread.frames[0]).at,
        state="holds the GIL" if thread.owns_gil else "",
    )


def _describe_helper(process: Process) -> ThreadRow:
    stack = process.stack
    at = (
        next((_describe_frame(thread.frames[0]).at for thread in stack.threads if thread.frames), "")
        if isinstance(stack, Stack)
        else ""
    )
    return ThreadRow(name=clip(process.name, LINE), at=at, pid=process.pid, state=process.state)


def _list_environment(rank: Rank, backend: str | None) -> Iterator[tuple[str, str]]:
    """Environment variables that matter to torch.distributed."""
    if rank.process is None:
        return
    for name, value in sorted(observed.environment(rank.process).items()):
        if settings.variable(name) is not None and not settings.inert(name, backend):
            yield clip(name, LINE), clip(value, LINE)


def _list_versions(rank: Rank) -> dict[str, str]:
    runtime = rank.process.runtime if rank.process is not None else None
    if not isinstance(runtime, Runtime):
        return {}
    return {name: clip(value, LINE) for name, value in (("Python", runtime.python), ("torch", runtime.torch)) if value}


def _compare_views(first_view: RankView, second_view: RankView) -> Iterator[Difference]:
    """Differences in what they do."""
    rows = row([first_view]), row([second_view])
    for what in ("state", "operation", "where", "source", "batches", "host"):
        values = [getattr(shown, what) for shown in rows]
        if values[0] != values[1]:
            yield Difference(what=what, first=values[0] or "unknown", second=values[1] or "unknown")


def _compare_rank_settings(
    run: Run, ranks: dict[int, Rank], first_number: int, second_number: int
) -> Iterator[Difference]:
    """Differences in their data, versions, arguments and variables."""
    sources = _list_sources(ranks[first_number]), _list_sources(ranks[second_number])
    common = {source.digest for source in sources[0]} & {source.digest for source in sources[1]}
    shown = [
        _describe_folders(_describe_sources(source for source in own_sources if source.digest not in common))
        for own_sources in sources
    ]
    if any(shown):
        yield Difference(
            what="training data",
            first=shown[0] or "no other data",
            second=shown[1] or "no other data",
            why="ranks with different amounts of data hang; equal amounts of different data cause no hang and no error",
        )
    versions = _list_versions(ranks[first_number]), _list_versions(ranks[second_number])
    for name in sorted(versions[0].keys() & versions[1].keys()):
        if versions[0][name] != versions[1][name]:
            yield Difference(what=f"{name} version", first=versions[0][name], second=versions[1][name])
    both = structs.replace(run, ranks=ranks)
    telling = (setting for setting in compare_settings(both) if setting.differs and setting.standing != "may differ")
    for setting in sorted(telling, key=lambda setting: STANDING_ORDER.index(setting.standing)):
        value_of = {number: value for value, group in setting.values.values for number in group}
        yield Difference(
            what=f"{setting.origin} {clip(setting.name.removeprefix('argument '), LINE)}",
            first=_describe_value(value_of.get(first_number)),
            second=_describe_value(value_of.get(second_number)),
            why=clip(
                f"{setting.standing}: {setting.why}"
                if setting.why
                else _STANDING.get(setting.standing, setting.standing)
            ),
        )


def _describe_folders(rows: Iterable[DataRow]) -> str:
    return "; ".join(clipped(f"{folder.files} files in {folder.path}" for folder in rows)[:_SHORT])


def _describe_value(value: str | None) -> str:
    return "not set" if value is None else clip(value, LINE)
