"""Ranks that are like another rank of their host. A summary has only the numbers, the CPU time, the command line and the
environment of each; the rest of its evidence is that of the other rank.

`hangdoc.reasoning.summary` decides which ranks are alike. In a bundle, such a rank is an `Alike`.
"""

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from hangdoc.shared_frames import without_locals
from hangdoc.snapshot import (
    Alike,
    Clocks,
    Communicators,
    Environment,
    FlightRecorder,
    Host,
    Interpreter,
    KernelThread,
    Loops,
    Process,
    Progress,
    RankIdentity,
    Recorded,
    Snapshot,
    Stack,
    Unavailable,
)

_NOT_HERE = Unavailable(reason="not needed")


class Pattern(Struct, frozen=True):
    """What all ranks that are like `first` have in common."""

    process: Process
    identity: RankIdentity
    argv: tuple[str, ...]
    clocks: Clocks
    """Of the threads but the main one, only the names are known."""
    environment: dict[str, str]

    @classmethod
    def from_process(cls, first: Process) -> "Pattern":
        """Raises ValueError for a process without identity, environment and clocks."""
        who, clocks, environment = first.identity, first.clocks, first.environment
        if who is None or not isinstance(clocks, Clocks) or not isinstance(environment, Environment):
            raise ValueError(f"process {first.pid} is no rank that others can be like")
        shared = replace(common(first), like=first.pid)
        if isinstance(first.progress, Progress) and isinstance(shared.progress, Progress):
            shared = replace(shared, progress=replace(shared.progress, beacon=first.progress.beacon))
        if isinstance(first.recorder, FlightRecorder) and isinstance(shared.recorder, FlightRecorder):
            shared = replace(shared, recorder=replace(shared.recorder, age_seconds=first.recorder.age_seconds))
        return cls(shared, who, first.argv, replace(clocks, threads=_names(first, clocks)), environment.variables)

    def rank(self, own: Alike) -> Process:
        """The process of one such rank."""
        main = KernelThread(
            tid=own.pid, name=self.process.name, state=own.state, cpu_ns=own.cpu_ns, voluntary_switches=None,
            involuntary_switches=None, idle_seconds=own.idle_seconds,
        )  # fmt: skip
        return replace(
            self.process,
            pid=own.pid,
            argv=self.argv if own.argv is None else own.argv,
            state=own.state,
            identity=replace(self.identity, rank=own.rank, local_rank=own.local_rank),
            started_seconds_ago=own.started_seconds_ago,
            resident_bytes=own.resident_bytes,
            environment=Environment(variables={**self.environment, **own.variables}),
            clocks=replace(self.clocks, threads=(main, *self.clocks.threads)),
        )


def common(process: Process) -> Process:
    """The evidence of a rank without what differs between any two: numbers, times, addresses, variables that no loop changes,
    and the size in memory. The native stack is missing too, because not every rank's is read."""
    clocks, interpreter, progress = process.clocks, process.interpreter, process.progress
    if isinstance(interpreter, Interpreter):
        groups = tuple(replace(group, address=0) for group in interpreter.groups)
        interpreter = replace(interpreter, globals=(), globals_before=(), groups=groups)
    if isinstance(progress, Progress):
        changing = (
            counter
            for counter in progress.counters
            if counter.looped or counter.advances or counter.before != counter.after
        )
        beacon = replace(progress.beacon, age_seconds=0.0) if progress.beacon is not None else None
        progress = replace(progress, counters=tuple(changing), beacon=beacon)
    if isinstance(clocks, Clocks):
        clocks = replace(clocks, threads=_names(process, clocks), window_seconds=0.0)
    return replace(
        process,
        pid=0,
        argv=(),
        identity=replace(process.identity, rank=0, local_rank=None) if process.identity is not None else None,
        started_seconds_ago=0.0,
        environment=_NOT_HERE,
        resident_bytes=None,
        clocks=clocks,
        stack=_without_variables(process.stack),
        stack_before=_without_variables(process.stack_before),
        native=_NOT_HERE,
        interpreter=interpreter,
        progress=progress,
        recorder=_numbers(process.recorder),
        communicators=_placeless(process.communicators),
        loops=_counts(process.loops),
    )


def _counts(loops: Loops | Unavailable) -> Loops | Unavailable:
    """The counts of a rank's loops, without its workers and what they are at, and without the earlier counts and when they
    were read."""
    if not isinstance(loops, Loops):
        return loops
    loaders = (replace(loader, workers=(), outstanding=None, done_before=None) for loader in loops.loaders)
    counts = tuple(replace(count, done_before=None) for count in loops.counts)
    return replace(loops, loaders=tuple(loaders), counts=counts, between_seconds=None)


def _numbers(recorder: FlightRecorder | Unavailable) -> FlightRecorder | Unavailable:
    """What a rank's record of calls has in common with that of another one: how far it is in each group, without times."""
    if not isinstance(recorder, FlightRecorder):
        return recorder
    groups = tuple(
        replace(
            group,
            completed=_timeless(group.completed) if group.completed is not None else None,
            pending=tuple(map(_timeless, group.pending)),
            history=None,
        )
        for group in recorder.groups
    )
    return replace(recorder, age_seconds=0.0, groups=groups, forms=())


def _placeless(communicators: Communicators | Unavailable) -> Communicators | Unavailable:
    """What the communicators of a rank have in common with those of another one: which they are, and how far it is in each."""
    if not isinstance(communicators, Communicators):
        return communicators
    placeless = (
        replace(communicator, rank=None, cuda_device=None, bus=None, node=0)
        for communicator in communicators.communicators
    )
    return replace(communicators, communicators=tuple(placeless))


def _timeless(recorded: Recorded) -> Recorded:
    return replace(recorded, age_seconds=None)


def _names(process: Process, clocks: Clocks) -> tuple[KernelThread, ...]:
    """The threads of a process but its main one, with nothing but their names, which show what the process is."""
    names = sorted(thread.name for thread in clocks.threads if thread.tid != process.pid)
    return tuple(
        KernelThread(tid=0, name=name, state="S", cpu_ns=0, voluntary_switches=None, involuntary_switches=None)
        for name in names
    )


def _without_variables(stack: Stack | Unavailable) -> Stack | Unavailable:
    if not isinstance(stack, Stack):
        return stack
    threads = (replace(thread, tid=None, frames=tuple(map(without_locals, thread.frames))) for thread in stack.threads)
    return Stack(at_seconds=0.0, threads=tuple(threads))


def share(snapshot: Snapshot) -> Snapshot:
    """The snapshot whose hosts have such ranks in `alike` instead of in `processes`."""
    return replace(snapshot, hosts=tuple(map(_shared, snapshot.hosts)))


def _shared(host: Host) -> Host:
    if all(process.like is None for process in host.processes):
        return host
    first: dict[int | None, Process] = {process.pid: process for process in host.processes if process.like is None}
    alike = tuple(own_of(process, first[process.like]) for process in host.processes if process.like in first)
    return replace(
        host, processes=tuple(process for process in host.processes if process.like not in first), alike=alike
    )


def own_of(process: Process, first: Process) -> Alike:
    """What a rank has of its own that is like `first`."""
    who, clocks = process.identity, process.clocks
    assert who is not None and isinstance(clocks, Clocks)  # noqa: S101
    theirs = first.environment.variables if isinstance(first.environment, Environment) else {}
    mine = process.environment.variables if isinstance(process.environment, Environment) else {}
    idle = [thread.idle_seconds for thread in clocks.threads if thread.tid == process.pid]
    return Alike(
        pid=process.pid,
        like=first.pid,
        state=process.state,
        rank=who.rank,
        local_rank=who.local_rank,
        started_seconds_ago=process.started_seconds_ago,
        cpu_ns=sum(thread.cpu_ns for thread in clocks.threads),
        idle_seconds=idle[0] if idle else None,
        resident_bytes=process.resident_bytes,
        argv=process.argv if process.argv != first.argv else None,
        variables={name: value for name, value in mine.items() if theirs.get(name) != value},
    )


def resolve(hosts: tuple[Host, ...], most: int) -> None:
    """Give newly decoded hosts the processes of such ranks. Raises KeyError for one that is like a process that does not exist,
    and ValueError for one that is like a process that is no rank. Each rank gets a copy of an environment, so a few bytes could
    fill the memory: raises ValueError if these have more than `most` variables together."""
    copied = 0
    for host in hosts:
        if not host.alike:
            continue
        first = {process.pid: process for process in host.processes}
        patterns = {pid: Pattern.from_process(first[pid]) for pid in {alike.like for alike in host.alike}}
        copied += sum(len(patterns[alike.like].environment) + len(alike.variables) for alike in host.alike)
        if copied > most:
            raise ValueError(f"its ranks have more than {most:,} environment variables")
        ranks = [patterns[alike.like].rank(alike) for alike in host.alike]
        force_setattr(host, "processes", (*host.processes, *ranks))  # nothing else refers to it yet
        force_setattr(host, "alike", ())
