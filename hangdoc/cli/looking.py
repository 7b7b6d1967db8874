"""One look, or one after another, at this host or at the fleet: the spinner, and what to say when nothing is there."""

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from hangdoc.cli.errors import NO_RANK, TOO_LITTLE_SEEN, USAGE, CommandError
from hangdoc.cli.fleet import Hosts
from hangdoc.observe.observe import Options, observe
from hangdoc.observe.procfs import ProcFS, age
from hangdoc.snapshot import Snapshot

_TO_TELL_SECONDS = 0.5
"""CPU that the diagnosis and the report take."""


def look(options: Options, fleet: Hosts | None = None, *, reports: bool = True) -> Snapshot:
    """Observe this host, or those of the fleet, with a spinner on a terminal. Raises CommandError where there is nothing to
    look at. `reports`: a report for a person will be made of it."""
    with ExitStack() as stack:
        progress = _spinner(stack) if sys.stderr.isatty() else lambda text: None
        if fleet is not None and fleet.hosts is not None:
            return _look_at_all(options, fleet, progress)
        check_pids(options)
        bounded = msgspec.structs.replace(options, timeout=left(options.timeout))
        snapshot = observe(bounded, progress, _preload if reports else _preload_rules)
    _check_seen(snapshot, options)
    return snapshot


def left(timeout: float) -> float:
    """Of the seconds for the whole command, those for looking: it has taken some to start, and will take some to diagnose and
    to print, the more the busier the machine is."""
    proc, cpu = ProcFS(), os.times()
    started = age(proc, proc.stat("self").start_ticks)
    busy = max(1.0, started / max(0.05, cpu.user + cpu.system))
    return max(timeout - started - min(_TO_TELL_SECONDS * busy, timeout / 3), timeout / 3)


def looker(options: Options, fleet: Hosts) -> Callable[[], Snapshot]:
    """What to call for one look after another, at this host or at the fleet. The looks never raise for what can't be seen;
    raises CommandError where the hosts can't be read or a process is not there."""
    if fleet.hosts is None:
        from hangdoc.observe.polling import Polling

        check_pids(options)
        return Polling(options).look
    from hangdoc.fleet.gather import gather

    _no_pids(options)
    hosts, transport = fleet.names(), fleet.transport(options.timeout)
    of_job = msgspec.structs.replace(options, slurm_job=fleet.slurm_job or options.slurm_job)
    return lambda: gather(hosts, of_job, transport)


def described(options: Options, fleet: Hosts) -> str:
    """What is looked at, in few words."""
    if fleet.hosts is not None:
        return fleet.hosts
    if options.run_of is not None:
        return f"the run of pid {options.run_of}"
    if options.pids:
        return f"pid {', '.join(map(str, options.pids))}"
    return f"Slurm job {options.slurm_job}" if options.slurm_job is not None else "this host"


def _no_pids(options: Options) -> None:
    if options.pids or options.run_of is not None:
        raise CommandError("--pid and --run-of look at this host: leave them out with --hosts.", USAGE)


def _look_at_all(options: Options, fleet: Hosts, progress: Callable[[str], None]) -> Snapshot:
    from hangdoc.fleet.gather import gather

    _no_pids(options)
    of_job = msgspec.structs.replace(options, slurm_job=fleet.slurm_job or options.slurm_job)
    snapshot = gather(fleet.names(), of_job, fleet.transport(options.timeout), progress)
    if any(process.role in ("rank", "launcher") for host in snapshot.hosts for process in host.processes):
        return snapshot
    said = [f"{one.host}: {one.why}" for one in snapshot.unreached]
    said += [f"{host.name}: {problem}" for host in snapshot.hosts for problem in host.problems]
    shown = "; ".join(said[:5]) + (f"; and {len(said) - 5} more" if len(said) > 5 else "")
    asked = len(snapshot.hosts) + len(snapshot.unreached)
    raise CommandError(
        f"no torch.distributed rank: {len(snapshot.hosts)} of {asked} hosts answered"
        + (f" ({shown})." if said else "."),
        TOO_LITTLE_SEEN if said else NO_RANK,
    )


def _preload() -> None:
    """What is needed only at the end loads while the ranks are watched."""
    _preload_rules()
    import rich.console
    import rich.padding
    import rich.table  # noqa: F401


def _preload_rules() -> None:
    from hangdoc.diagnose.rules import all_rules

    all_rules()


def _spinner(stack: ExitStack) -> Callable[[str], None]:
    from rich.console import Console

    console = Console(stderr=True)
    status = stack.enter_context(console.status("looking for ranks"))
    return lambda text: status.update(text)


def check_pids(options: Options) -> None:
    """Raises CommandError for a named process that is not there, or another user's."""
    for pid in (*options.pids, *((options.run_of,) if options.run_of is not None else ())):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            raise CommandError(f"no process with pid {pid}: it has ended, or lives on another host.", NO_RANK) from None
        except PermissionError:
            raise CommandError(
                f"pid {pid} belongs to another user: run hangdoc as that user or as root.", TOO_LITTLE_SEEN
            ) from None


def _check_seen(snapshot: Snapshot, options: Options) -> None:
    host = snapshot.hosts[0]
    roles = {process.role for process in host.processes}
    if "rank" not in roles and host.problems:  # a launcher may be all that another user's run shows
        raise CommandError(" ".join(host.problems) + ".", TOO_LITTLE_SEEN)
    if roles & {"rank", "launcher"}:
        return
    if options.slurm_job is not None:
        raise CommandError(f"no torch.distributed rank of Slurm job {options.slurm_job} on this host.", NO_RANK)
    if options.pids:
        who = " or ".join(str(pid) for pid in options.pids)
        raise CommandError(
            f"no torch.distributed rank at or below pid {who}: not a Python rank, nor its launcher. "
            "Leave out --pid to look at every rank of this host.",
            NO_RANK,
        )
    raise CommandError(
        "no torch.distributed rank on this host. Run hangdoc where the training runs (in a container: inside it, or on "
        "its host as root), or name the launcher with --pid.",
        NO_RANK,
    )


def check_writable(path: Path | None) -> None:
    """Fail before looking, not after, where an output can't be written."""
    if path is None:
        return
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        why = (
            "it is a directory"
            if path.is_dir()
            else "no such directory"
            if not folder.is_dir()
            else "permission denied"
        )
        raise CommandError(f"cannot write {path}: {why}. Choose another place.", USAGE)
