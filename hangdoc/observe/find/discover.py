"""Finds every rank of torch.distributed on this host, the launchers above them and the helpers below them.

A rank is recognized by the environment it was started with. If that does not name a rank, by its interpreter's memory
(`os.environ`, torch's process groups), by torch's spawn frame, or by the beacon of its watchdog. Every other descendant of a
rank is a helper: it inherits the rank's environment and often its command line, but is no rank.
"""

import os
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from hangdoc import run_identity
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Target
from hangdoc.observe.access.owner_rights import runs_set_user_id
from hangdoc.observe.find import identity
from hangdoc.observe.find.rank_search import BY_ORDER, Search, communicates, find, launchers_of
from hangdoc.observe.find.slurm import tasks_of
from hangdoc.observe.kernel import process_table
from hangdoc.observe.kernel.process_table import Entry, ProcessTable, is_hangdoc, launcher_gone, starters
from hangdoc.observe.kernel.targets import close_target, make_target
from hangdoc.observe.memory.maps import is_python
from hangdoc.phrases import amount
from hangdoc.procfs import ProcFS, network_of
from hangdoc.snapshot import RankIdentity, Unavailable
from hangdoc.torch_facts import serving, thread_names

_MOST_UNREAD = 4096
_SECONDS_FOR_HELPER = 5.0
_LONGEST_COMMAND = 1 << 14
"""Characters. Each engine of a server has the command line of the server again."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Which ranks to observe; all ranks of this host by default."""

    pids: tuple[int, ...] = ()
    """Only ranks in the process trees of these pids."""
    run_of: int | None = None
    """Only ranks of the run that this process is a rank of, and those in the trees of `pids`."""
    slurm_job: str | None = None
    """Only processes of this Slurm job: `123`, `123.0`, `100_3`."""


class Discovered(msgspec.Struct):
    """The result of discovery."""

    targets: dict[int, Target]
    problems: list[str]
    restricted: bool = False
    """Only the trees of named processes were searched."""
    unread: tuple[int, ...] = ()
    """Processes that could not be read at all."""


def discover(proc: ProcFS, deadline: Deadline, scope: Scope | None = None) -> Discovered:
    """Every rank, launcher and helper in the scope."""
    scope = scope or Scope()
    table = process_table.read(proc)
    search = _find_ranks(proc, table, _list_wanted(table, scope), deadline)
    restricted = bool(scope.pids) and scope.run_of is None and _may_have_ranks_outside(search)
    if scope.run_of is not None:
        # A run that has a name is searched for on the whole host.
        restricted = _digest_of(search, scope.run_of) is None
        search.ranks = _find_ranks_of_run(search, scope)
        search.wanted &= {below for pid in search.ranks for below in table.tree(pid)}
    targets = _make_rank_targets(search)
    _add_launchers(search, targets)
    _add_zombies(search, targets)
    _add_helpers(search, targets)
    _close_other_users(search, targets)
    for target in targets.values():
        target.whole_tree = not restricted or target.pid in search.wanted
    unread = tuple(sorted(table.unread)[:_MOST_UNREAD])
    problems = _report_unreadable(search, targets)
    if scope.run_of is not None and _is_no_rank(search, scope.run_of):
        problems.append(f"pid {scope.run_of} is not a rank, so the ranks below it were observed; `--pid` is for that")
    return Discovered(targets, problems, restricted, unread)


def _find_ranks(proc: ProcFS, table: ProcessTable, wanted: set[int], deadline: Deadline) -> Search:
    """The ranks among the wanted processes of a host."""
    launchers = {pid: launch for pid, launch in launchers_of(table).items() if not runs_set_user_id(proc, str(pid))}
    search = Search(proc, table, wanted, launchers)
    find(search, deadline)
    search.ranks = {pid: who for pid, who in search.ranks.items() if not runs_set_user_id(proc, str(pid))}
    return search


class Helper(NamedTuple):
    """What a helper is, and the rank that it is below."""

    what: str
    """`a dataloader worker`, `a process that rank 2 has started`."""
    rank_pid: int


def find_helper(proc: ProcFS, pid: int) -> Helper | None:
    """What a process below a rank is. It has the variables of its rank and so, searched alone, looks like it. None for a rank,
    for a process with a rank in its tree, and where no process above it has a process group."""
    line = process_table.read_ancestry(proc, pid)
    if pid not in line or communicates(proc, pid):
        return None
    above = next((ancestor for ancestor in line.ancestors(pid) if communicates(proc, ancestor)), None)
    if above is None:
        return None
    if line[pid].stat.name == thread_names.DATALOADER_WORKER:
        return Helper("a dataloader worker", above)
    table = process_table.read(proc)
    tree = table.tree(pid)
    wanted = {*table.ancestors(pid), *tree} & set(table) - {os.getpid()}
    ranks = _find_ranks(proc, table, wanted, Deadline(_SECONDS_FOR_HELPER)).ranks
    if above not in ranks or pid not in table or tree & set(ranks):
        return None
    return Helper(f"a process that rank {ranks[above].rank} has started", above)


def _is_no_rank(search: Search, pid: int) -> bool:
    """Whether a living process is no rank. One that was a rank may have ended."""
    return pid in search.table and pid not in search.ranks and search.table[pid].stat.state not in "ZX"


def _list_wanted(table: ProcessTable, scope: Scope) -> set[int]:
    """The processes that may be ranks. hangdoc, its ancestors and its descendants are none, unless the scope names them (a
    watchdog starts hangdoc below the rank that it observes)."""
    named = {pid for root in scope.pids for pid in table.tree(root) | tasks_of(table, root)}
    if scope.run_of is not None:
        named |= table.tree(scope.run_of)
    # A named process may have ended: a watch continues anyway.
    wanted = named & set(table) if scope.pids and scope.run_of is None else set(table)
    if scope.slurm_job is not None:
        wanted &= {pid for pid, entry in table.items() if scope.slurm_job in _slurm_job(entry)}
    own = {*table.ancestors(os.getpid()), *table.descendants(os.getpid())} - named
    other = {
        pid for pid in wanted if is_hangdoc(table[pid].argv)
    }  # `hangdoc run` has the variables of the command that it starts
    return wanted - own - other - {os.getpid()}


def _slurm_job(entry: Entry) -> frozenset[str]:
    return frozenset() if isinstance(entry.environment, Unavailable) else run_identity.slurm_job(entry.environment)


def _find_ranks_of_run(search: Search, scope: Scope) -> dict[int, RankIdentity]:
    """The ranks of the run that `scope.run_of` belongs to, and those in the trees of `scope.pids`. For a run without a name,
    only the ranks in these trees."""
    assert scope.run_of is not None  # noqa: S101
    digest = _digest_of(search, scope.run_of)
    named = {pid for root in (scope.run_of, *scope.pids) for pid in search.table.tree(root)}
    return {
        pid: who
        for pid, who in search.ranks.items()
        if pid in named
        or (
            digest is not None
            and run_identity.digest_of(who) == digest
            and search.user(pid) == search.user(scope.run_of)
        )
    }


def _may_have_ranks_outside(search: Search) -> bool:
    """Whether ranks of the same runs may exist outside of the named trees: a process there has the run's variables, or has loaded
    torch and has no variables, or the run has no name to compare."""
    digests = {run_identity.digest_of(who) for who in search.ranks.values()}
    users = {search.user(pid) for pid in search.ranks}
    inside = {below for pid in search.ranks for below in search.table.tree(pid)} | search.wanted
    for pid, entry in search.table.items():
        if (
            pid in inside
            or pid in search.launchers
            or is_hangdoc(entry.argv)
            or isinstance(entry.environment, Unavailable)
        ):
            continue
        who = identity.by_environment(entry.environment, network_of(search.proc, pid))
        if who is None and not search.maps_torch(pid):
            continue
        same = who is None or (run_identity.digest_of(who) in digests and search.is_python(pid))
        if same and search.user(pid) in users:
            return True
    return None in digests


def _digest_of(search: Search, pid: int) -> str | None:
    mine = search.ranks.get(pid)
    return run_identity.digest_of(mine) if mine is not None else None


def _make_rank_targets(search: Search) -> dict[int, Target]:
    targets: dict[int, Target] = {}
    for pid, who in search.ranks.items():
        target = targets[pid] = make_target(search.proc, search.table[pid], "rank", identity=who)
        target.live_environment = search.live_environments.get(pid, {})
        target.owner = next((a for a in search.table.ancestors(pid) if a in search.launchers), None)
        target.launcher_gone = launcher_gone(search.proc, search.table, pid)
        if target.owner is None and search.table[pid].stat.ppid > 1:
            target.owner = search.table[pid].stat.ppid
    return targets


def _report_unreadable(search: Search, targets: dict[int, Target]) -> list[str]:
    """Problems for processes below a launcher that can't be read; counts them in `Target.unreadable_below` of the launcher."""
    denied = {
        pid
        for pid, entry in search.table.items()
        if isinstance(entry.environment, Unavailable)
        and entry.stat.state not in "ZX"
        and pid in search.wanted
        and pid not in search.launchers
    }
    unseen = denied - set(search.ranks)
    launcher_of = {pid: next((a for a in search.table.ancestors(pid) if a in search.launchers), None) for pid in denied}
    unreadable = [pid for pid in denied if launcher_of[pid] is not None and search.table[pid].stat.ppid not in denied]
    for launcher, count in Counter(launcher_of[pid] for pid in unreadable if pid in unseen).items():
        if launcher in targets:
            targets[launcher].unreadable_below = count
    of_ray = _report_workers_of_ray(search, {pid for pid in unseen if launcher_of[pid] is None})
    if not unreadable:
        return of_ray
    others = any(search.user(pid) != os.geteuid() for pid in unreadable)
    numbered = [
        f"the numbers of {amount(len(by_order), 'rank')} that can't be read are assumed: by the order in which torchrun started "
        "them, as if this were the only node"
        for by_order in [[who for who in search.ranks.values() if who.source == BY_ORDER]]
        if by_order
    ]
    processes = amount(len(unreadable), "process", "es")
    return [
        *of_ray,
        *numbered,
        f"{processes} of another user below a launcher, and what they started, can't be read: run hangdoc as that user or as root"
        if others
        else f"{processes} of this user below a launcher can't be read: the container lacks "
        "CAP_SYS_PTRACE, or the processes forbid it; run hangdoc as root with that capability",
    ]


def _report_workers_of_ray(search: Search, unread: Iterable[int]) -> list[str]:
    """Problems for workers of Ray in other users' processes. No launcher is above them, and only their memory shows whether they
    are ranks."""
    titles = {pid: next(iter(search.table[pid].argv), "") for pid in unread if search.user(pid) != os.geteuid()}
    workers = [
        title
        for title in titles.values()
        if title.startswith(serving.RAY_WORKER) and not title.startswith(serving.RAY_WITHOUT_TASKS)
    ]
    if not workers:
        return []
    number = amount(len(workers), "worker")
    return [
        f"{number} of Ray of another user can't be read, and ranks may be among them: run hangdoc as that user or as root"
    ]


def _add_launchers(search: Search, targets: dict[int, Target]) -> None:
    """Add launchers in scope or above a rank, and the Python parent of ranks (mp.spawn, an engine) as a launcher."""
    proc, table = search.proc, search.table
    above = {ancestor for pid in targets for ancestor in table.ancestors(pid)}
    for pid, launch in search.launchers.items():
        target = make_target(proc, table[pid], "launcher", launch=launch)
        if pid in above or (pid in search.wanted and (target.name == thread_names.AGENT or target.python)):
            targets[pid] = target
    for pid in {target.owner for target in targets.values() if target.role == "rank" and target.owner}:
        if pid in table and pid not in targets and is_python(proc, pid):
            targets[pid] = make_target(proc, table[pid], "launcher")
            line = (pid, *starters(table, pid))
            targets[pid].launcher_gone = any(launcher_gone(proc, table, each) for each in line)
            targets[pid].parent_argv = _find_command_above(search, pid)


def _find_command_above(search: Search, pid: int) -> tuple[str, ...]:
    """The command line of the process that started an engine, which shows only a title itself. Empty for any other process, if
    they belong to two users, and if it is longer than that of any server."""
    entry, user = search.table[pid], search.user(pid)
    above = search.table.get(entry.stat.ppid)
    if len(entry.argv) != 1 or above is None or user is None or search.user(above.pid) != user:
        return ()
    return above.argv if sum(map(len, above.argv)) <= _LONGEST_COMMAND else ()


def _add_zombies(search: Search, targets: dict[int, Target]) -> None:
    """Add ranks that have ended and whose parent has not reaped them. Their environment is gone, so they have no identity."""
    parents = {t.ppid for t in targets.values() if t.role == "rank"} | {
        pid for pid, t in targets.items() if t.role == "launcher"
    }
    names = {t.name for t in targets.values() if t.role == "rank"}
    for pid, entry in search.table.items():
        if entry.stat.state in "ZX" and entry.stat.ppid in parents - {1} and pid not in targets:
            if names and entry.stat.name not in names:
                continue
            targets[pid] = make_target(search.proc, entry, "rank")
            targets[pid].owner = entry.stat.ppid


def _add_helpers(search: Search, targets: dict[int, Target]) -> None:
    """Add the helpers. A hangdoc that a watchdog started, and its children, are below the rank but are no helpers of it.
    `hangdoc run` is above its ranks."""
    below = {os.getpid(), *search.table.descendants(os.getpid())}
    for pid in search.ranks:
        own = set() if pid in below else below
        for helper in search.table.descendants(pid):
            if helper not in targets and helper not in own:
                target = targets[helper] = make_target(search.proc, search.table[helper], "helper")
                target.owner = next(a for a in search.table.ancestors(helper) if a in search.ranks)


def _close_other_users(search: Search, targets: dict[int, Target]) -> None:
    """Read no memory and no environment of launchers and helpers of another user than their ranks: a service of root may have
    started the rank of a user, who must not see it through hangdoc."""
    ranks = [target for target in targets.values() if target.role == "rank"]
    for rank in ranks:
        user = search.user(rank.pid)
        related = [targets[pid] for pid in search.table.ancestors(rank.pid) if pid in targets]
        related += [target for target in targets.values() if target.owner == rank.pid]
        for target in related:
            if target.role != "rank" and search.user(target.pid) not in (user, None):
                close_target(target)
