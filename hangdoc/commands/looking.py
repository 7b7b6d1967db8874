"""One look, or one after another, at this host or at the fleet, and what to say when nothing is there."""

import os
from collections.abc import Callable

import msgspec

from hangdoc.commands.errors import NO_RANK, TOO_LITTLE_SEEN, USAGE, CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.observe.observe import Options, observe
from hangdoc.snapshot import Snapshot


def look_here(
    options: Options, progress: Callable[[str], None] = lambda text: None, meanwhile: Callable[[], None] = lambda: None
) -> Snapshot:
    """Observe this host. Raises CommandError where there is no rank, or none that may be read. `progress` and `meanwhile`: see
    `hangdoc.observe.observe.observe`."""
    check_pids(options)
    snapshot = observe(options, progress, meanwhile)
    _check_seen(snapshot, options)
    return snapshot


def look_at_hosts(options: Options, fleet: Hosts, progress: Callable[[str], None] = lambda text: None) -> Snapshot:
    """Observe all hosts of the fleet at once. Raises CommandError where they can't be read, or where none has a rank."""
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


def looker(options: Options, fleet: Hosts) -> Callable[[], Snapshot]:
    """What to call for one look after another, at this host or at the fleet. The looks never raise for what can't be seen;
    raises CommandError where the hosts can't be read or a process is not there."""
    if fleet.hosts is None:
        from hangdoc.observe.again import Again

        check_pids(options)
        return Again(options).look
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


def check_pids(options: Options) -> None:
    """Raises CommandError for a named process that is not there, or another user's."""
    for pid in (*options.pids, *((options.run_of,) if options.run_of is not None else ())):
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
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
