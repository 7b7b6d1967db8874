"""One look or repeated looks at this host or at a fleet, and the errors if there is nothing to observe."""

import os
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from hangdoc.commands.errors import NO_RANK, TOO_LITTLE_SEEN, USAGE, CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.observe.find.discover import find_helper
from hangdoc.observe.kernel import process_table
from hangdoc.observe.look.observe import Options, observe
from hangdoc.observe.memory.maps import is_python, maps_torch
from hangdoc.procfs import ProcFS
from hangdoc.reasoning.evidence.kernel import describe_exit_code
from hangdoc.snapshot import Snapshot


def look_here(
    options: Options, progress: Callable[[str], None] = lambda text: None, meanwhile: Callable[[], None] = lambda: None
) -> Snapshot:
    """Observe this host. Raises CommandError if there is no rank, or none that may be read. `progress` and `meanwhile`: see
    `hangdoc.observe.look.observe.observe`."""
    check_pids(options)
    snapshot = observe(options, progress, meanwhile)
    _check_seen(snapshot, options)
    return snapshot


def look_at_hosts(
    options: Options, fleet: Hosts, progress: Callable[[str], None] = lambda text: None, *, summary: bool | None = None
) -> Snapshot:
    """Observe all hosts of the fleet at once. Raises CommandError if none of them has a rank. `summary`: see
    `hangdoc.fleet.gather.gather`."""
    from hangdoc.fleet.gather import gather

    _refuse_pids(options)
    of_job = msgspec.structs.replace(options, slurm_job=fleet.slurm_job or options.slurm_job)
    snapshot = gather(fleet.names(), of_job, fleet.transport(options.timeout), progress, summary=summary)
    if any(process.role in ("rank", "launcher") for host in snapshot.hosts for process in host.processes):
        return snapshot
    why = [f"{unreached.host}: {unreached.why}" for unreached in snapshot.unreached]
    why += [f"{host.name}: {problem}" for host in snapshot.hosts for problem in (*host.problems, *host.late)]
    shown = "; ".join(why[:5]) + (f"; and {len(why) - 5} more" if len(why) > 5 else "")
    asked = len(snapshot.hosts) + len(snapshot.unreached)
    raise CommandError(
        f"no torch.distributed rank found. {len(snapshot.hosts)} of {asked} hosts answered"
        + (f" ({shown})." if why else "."),
        TOO_LITTLE_SEEN if why else NO_RANK,
    )


class Looker(Protocol):
    """Takes repeated looks. Its methods raise nothing for what can't be read."""

    def look(self) -> Snapshot:
        """One look."""
        ...

    def confirms(self) -> bool | None:
        """Whether what the last look has shown of the ranks is still so, at a small part of its cost; None if only a look can
        tell."""
        ...


class Looks:
    """Looks of which each is a call of a function."""

    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self.look = look

    def confirms(self) -> None:
        """Only a look can tell."""


def looker(options: Options, fleet: Hosts) -> Looker:
    """Looks at this host or at the fleet. Raises CommandError for invalid hosts and missing processes."""
    if fleet.hosts is None:
        from hangdoc.observe.look.polling import Polling

        check_pids(options)
        return Polling(options)
    from hangdoc.fleet.courier import Courier
    from hangdoc.fleet.gather import gather

    _refuse_pids(options)
    hosts, transport = fleet.names(), fleet.transport(options.timeout)
    of_job = msgspec.structs.replace(options, slurm_job=fleet.slurm_job or options.slurm_job)
    courier = Courier(transport, keep=True) if transport.brings() is not None else None
    return Looks(lambda: gather(hosts, of_job, transport, courier=courier))


def described(options: Options, fleet: Hosts) -> str:
    """What is observed, in a few words."""
    if fleet.hosts is not None:
        return fleet.hosts
    if options.run_of is not None:
        return f"the run of pid {options.run_of}"
    if options.pids:
        return f"pid {', '.join(map(str, options.pids))}"
    return f"Slurm job {options.slurm_job}" if options.slurm_job is not None else "this host"


def _refuse_pids(options: Options) -> None:
    if options.pids or options.run_of is not None:
        raise CommandError(
            "--pid and --run-of name processes of this host. They cannot be combined with --hosts.", USAGE
        )


def check_pids(options: Options) -> None:
    """Raises CommandError for a named process that does not exist, and for a helper of a rank."""
    for pid in (*options.pids, *((options.run_of,) if options.run_of is not None else ())):
        _may_signal(pid)
        if (helper := find_helper(ProcFS(), pid)) is not None:
            raise CommandError(
                f"pid {pid} is no rank: it is {helper.what}. Name its rank instead, pid {helper.rank_pid}.", NO_RANK
            )


def _may_signal(pid: int) -> bool:
    """Whether a process belongs to the user of hangdoc, or hangdoc is root. Raises CommandError if there is none."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        raise CommandError(
            f"no process with pid {pid}: it has ended, or it runs on another host. `hangdoc diagnose` without a pid finds "
            "the ranks of this host.",
            NO_RANK,
        ) from None
    except PermissionError:
        return False
    return True


def _check_seen(snapshot: Snapshot, options: Options) -> None:
    host = snapshot.hosts[0]
    roles = {process.role for process in host.processes}
    why = (*host.problems, *host.late)
    if "rank" not in roles and why:  # of another user's run, only the launcher may be visible
        raise CommandError("; ".join(why) + ".", TOO_LITTLE_SEEN)
    if roles & {"rank", "launcher"}:
        return
    if options.slurm_job is not None:
        raise CommandError(f"no torch.distributed rank of Slurm job {options.slurm_job} found on this host.", NO_RANK)
    if foreign := [pid for pid in options.pids if not _may_signal(pid)]:
        raise CommandError(
            f"pid {foreign[0]} belongs to another user. Run hangdoc as that user or as root.", TOO_LITTLE_SEEN
        )
    if options.pids:
        raise CommandError(describe_no_rank(options.pids), NO_RANK)
    raise CommandError(
        "no torch.distributed rank found on this host. Run hangdoc where the training runs (for a container: inside it, or on "
        "its host as root), or name the launcher with --pid.",
        NO_RANK,
    )


_NOT_YET = "It may not have called init_process_group yet: look again when it has."


def _describe_failed(table: process_table.ProcessTable, among: Sequence[int]) -> str:
    """Which of some processes has ended with an error, and its parent has not collected it; empty for none. Who may not trace a
    process reads 0 as its exit code (proc(5))."""
    ended = {pid: table[pid].stat for pid in among if pid in table and table[pid].stat.state == "Z"}
    failed = [(pid, stat) for pid, stat in ended.items() if stat.exit_code]
    if not failed:
        return ""
    pid, stat = failed[0]
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return (
        f"Child process {pid} of pid {stat.ppid} is dead: {describe_exit_code(stat.exit_code)}{more}. Read its log. If the "
        "others wait for it, they wait forever: end them, and start again."
    )


def describe_no_rank(pids: tuple[int, ...]) -> str:
    """Why no process in the trees of these is a rank: what they show, and what to do next."""
    proc = ProcFS()
    table = process_table.read(proc)
    below = sorted({process for pid in pids for process in table.tree(pid)} - {os.getpid()})
    who = " or ".join(map(str, pids))
    if with_torch := [pid for pid in below if maps_torch(proc, pid)]:
        return (
            f"pid {with_torch[0]} has loaded torch, but hangdoc sees no process group and no variables of a launcher in it. "
            f"{_describe_failed(table, below) or _NOT_YET}"
        )
    if with_python := [pid for pid in below if is_python(proc, pid)]:
        return (
            f"pid {with_python[0]} has not loaded torch, so it is no rank of torch.distributed yet. Look again when it has, or "
            "leave out --pid to observe every rank of this host."
        )
    return (
        f"pid {who} is neither a rank of torch.distributed nor the launcher of one. Leave out --pid to observe every rank of "
        "this host."
    )
