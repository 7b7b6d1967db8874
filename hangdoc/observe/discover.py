"""Finds every rank of torch.distributed on this host, the launchers above and the helpers below them.

A rank is found by the environment it was started with; failing that by what its interpreter holds now (`os.environ`,
torch's process groups), by torch's own spawn frame, and by the beacon that its watchdog publishes. Everything else that
descends from a rank is its helper: it inherits the rank's environment and often its command line, and is no rank.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hangdoc.observe import identity
from hangdoc.observe.deadline import Deadline
from hangdoc.observe.inside import look_inside
from hangdoc.observe.procfs import Denied, ProcError, ProcFS, Stat
from hangdoc.observe.published import beat_of
from hangdoc.observe.scene import Scene, Target
from hangdoc.parse import natural
from hangdoc.snapshot import Launch, RankIdentity, Unavailable


class Entry(NamedTuple):
    """A process of the host's table."""

    pid: int
    stat: Stat
    argv: tuple[str, ...]
    environment: dict[str, str] | Unavailable


@dataclass
class Found:
    """What discovery hands over."""

    targets: dict[int, Target]
    problems: list[str]


def discover(proc: ProcFS, deadline: Deadline, roots: Iterable[int] = ()) -> Found:
    """Every rank, launcher and helper; with `roots`, ranks in the trees of these pids only."""
    table = _table(proc)
    tree = _Tree(table)
    own = set(tree.ancestors(os.getpid())) | {os.getpid()} | set(tree.descendants(os.getpid()))
    named = {pid for root in roots for pid in (root, *tree.descendants(root))}
    scope = named or set(table)
    # Even where it runs below a rank, as a watchdog has it: the observer is no helper, and the launcher above it is one.
    own = (own - named) | {os.getpid()}
    problems: list[str] = []

    launchers: dict[int, Target] = {}
    known: dict[int, RankIdentity] = {}
    denied: set[int] = set()
    for pid, entry in table.items():
        launch = identity.launch_of(entry.stat.name, entry.argv) if pid != os.getpid() else None
        # `bash -c "torchrun ..."` and a pager showing the word are no launchers: the program itself must run it.
        if launch and entry.stat.state not in "ZX":
            launchers[pid] = _target(proc, entry, "launcher", launch=launch)
            continue
        if pid not in scope or pid in own:
            continue
        if isinstance(entry.environment, Unavailable):
            if entry.argv and entry.argv != ("",) and "python" in entry.argv[0]:
                denied.add(pid)
            continue
        if found := identity.by_environment(entry.environment):
            known[pid] = found

    ranks = _representatives(proc, table, tree, known, set(launchers))
    below = {pid for rank in ranks for pid in tree.descendants(rank)}
    deep = [
        pid
        for pid in table
        if pid in scope and pid not in own and pid not in ranks and pid not in below and pid not in launchers
        and _maps_torch(proc, pid)
    ]  # fmt: skip
    inner: dict[int, dict[str, str]] = {}
    for pid in deep:  # parents come before their children: pids of one boot seldom wrap, and a helper costs one look
        if any(ancestor in ranks for ancestor in tree.ancestors(pid)):
            continue
        forked = _maps_torch(proc, table[pid].stat.ppid)
        found, inner[pid] = look_inside(proc, deadline, pid, table[pid].argv, forked)
        if found:
            ranks[pid] = found
    for pid in sorted(scope & set(table) - own - set(ranks) - set(launchers)):
        beat = beat_of(proc, pid, table[pid].environment)
        if beat is not None and beat.rank is not None and not any(a in ranks for a in tree.ancestors(pid)):
            ranks[pid] = RankIdentity(rank=beat.rank, source="beacon", world_size=beat.world_size, run_id=beat.run)

    targets: dict[int, Target] = {}
    for pid, who in ranks.items():
        target = _target(proc, table[pid], "rank", identity=who)
        target.inner_environment = inner.get(pid, {})
        target.owner = next((a for a in tree.ancestors(pid) if a in launchers), None)
        if target.owner is None and table[pid].stat.ppid > 1:
            target.owner = table[pid].stat.ppid
        targets[pid] = target
    _add_launchers(proc, table, tree, targets, launchers, scope, bool(tuple(roots)))
    _add_zombies(proc, table, targets)
    for pid in ranks:
        for helper in tree.descendants(pid):
            if helper not in targets and helper not in own:
                targets[helper] = _target(proc, table[helper], "helper")
                targets[helper].owner = next(a for a in tree.ancestors(helper) if a in ranks)

    above = {pid: next((a for a in tree.ancestors(pid) if a in launchers), None) for pid in denied}
    hidden = {pid for pid, launcher in above.items() if launcher is not None}
    for launcher, count in Counter(above[pid] for pid in hidden).items():
        if launcher in targets:
            targets[launcher].unreadable_below = count
    if hidden:
        others = [pid for pid in hidden if _uid(proc, pid) != os.geteuid()]
        problems.append(
            f"{len(hidden)} process(es) below a launcher belong to another user and can't be read: "
            "run hangdoc as that user or as root"
            if others
            else f"{len(hidden)} process(es) below a launcher can't be read though they are this user's: the container "
            "lacks CAP_SYS_PTRACE, or they forbid it; run hangdoc as root with that capability"
        )
    return Found(targets, problems)


def _table(proc: ProcFS) -> dict[int, Entry]:
    table = {}
    for pid in proc.pids():
        try:
            stat = proc.stat(str(pid))
            argv = proc.words(f"{pid}/cmdline")
        except ProcError:
            continue
        environment: dict[str, str] | Unavailable
        try:
            environment = proc.environ(pid)
        except Denied:
            environment = Unavailable(reason="permission denied (another user's process)")
        except ProcError as error:
            environment = Unavailable(reason=str(error))
        table[pid] = Entry(pid, stat, argv, environment)
    return table


class _Tree:
    """Who descends from whom."""

    def __init__(self, table: dict[int, Entry]) -> None:
        self._parent = {pid: entry.stat.ppid for pid, entry in table.items()}
        self._children: dict[int, list[int]] = {}
        for pid, parent in self._parent.items():
            self._children.setdefault(parent, []).append(pid)

    def children(self, pid: int) -> list[int]:
        return self._children.get(pid, [])

    def ancestors(self, pid: int) -> Iterator[int]:
        """Nearest first."""
        seen = {pid}
        while (pid := self._parent.get(pid, 0)) > 0 and pid not in seen:
            seen.add(pid)
            yield pid

    def descendants(self, pid: int) -> Iterator[int]:
        """Parents before their children."""
        todo = list(self.children(pid))
        while todo:
            pid = todo.pop(0)
            yield pid
            todo += self.children(pid)


def _target(
    proc: ProcFS,
    entry: Entry,
    role: str,
    *,
    identity: RankIdentity | None = None,
    launch: Launch | None = None,
) -> Target:
    return Target(
        pid=entry.pid,
        ppid=entry.stat.ppid,
        role=role,
        name=entry.stat.name,
        argv=entry.argv,
        state=entry.stat.state,
        start_ticks=entry.stat.start_ticks,
        identity=identity,
        launch=launch,
        environment=entry.environment,
        python=entry.stat.state not in "ZX" and _is_python(proc, entry.pid),
    )


def _uid(proc: ProcFS, pid: int) -> int | None:
    try:
        return natural(proc.status(str(pid)).get("Uid", "").split()[0])
    except (ProcError, IndexError):
        return None


def _is_python(proc: ProcFS, pid: int) -> bool:
    try:
        program = os.path.basename(proc.link(f"{pid}/exe")).removesuffix(" (deleted)")
    except ProcError:
        return False
    if program.startswith(("python", "pypy")):
        return True
    try:
        return b"/libpython3" in proc.read(f"{pid}/maps")
    except ProcError:
        return False


def _maps_torch(proc: ProcFS, pid: int) -> bool:
    try:
        return b"/libtorch_python" in proc.read(f"{pid}/maps")
    except ProcError:
        return False


def _representatives(
    proc: ProcFS, table: dict[int, Entry], tree: _Tree, known: dict[int, RankIdentity], launchers: set[int]
) -> dict[int, RankIdentity]:
    """Of the processes that share an identity down a tree, the topmost Python: wrappers above it are shells."""
    chosen: dict[int, RankIdentity] = {}
    for pid in sorted(known, key=lambda p: sum(1 for _ in tree.ancestors(p))):
        who = known[pid]
        # Only torch's own variables make a rank by themselves; a cluster's do for whatever runs under it.
        if not _is_python(proc, pid) or (who.source != identity.TORCH and not _maps_torch(proc, pid)):
            continue
        for ancestor in tree.ancestors(pid):
            if ancestor in launchers:
                ancestor_rank = None
                break
            if ancestor in chosen:
                ancestor_rank = chosen[ancestor]
                break
        else:
            ancestor_rank = None
        if ancestor_rank is None or (ancestor_rank.rank, ancestor_rank.run_id) != (who.rank, who.run_id):
            chosen[pid] = who
    # In a container whose environment names a rank, everything in it looks like that rank: those with torch win.
    by_rank: dict[tuple[object, ...], list[int]] = {}
    for pid, who in chosen.items():
        by_rank.setdefault((who.rank, who.master_address, who.master_port, who.run_id), []).append(pid)
    for pids in by_rank.values():
        with_torch = [pid for pid in pids if _maps_torch(proc, pid)] if len(pids) > 1 else []
        for pid in pids:
            if with_torch and pid not in with_torch:
                del chosen[pid]
    return chosen


def _add_launchers(
    proc: ProcFS,
    table: dict[int, Entry],
    tree: _Tree,
    targets: dict[int, Target],
    launchers: dict[int, Target],
    scope: set[int],
    restricted: bool,
) -> None:
    """Launchers in scope or above a rank, and as one the parent that several ranks share (mp.spawn)."""
    above = {ancestor for pid in targets for ancestor in tree.ancestors(pid)}
    targets.update(
        (pid, target)
        for pid, target in launchers.items()
        if pid in above or (pid in scope and (target.name == "pt_elastic" or target.python))
    )
    if restricted:
        return
    for pid in {target.owner for target in targets.values() if target.role == "rank" and target.owner}:
        if pid in table and pid not in targets and _is_python(proc, pid):
            targets[pid] = _target(proc, table[pid], "launcher")


def _add_zombies(proc: ProcFS, table: dict[int, Entry], targets: dict[int, Target]) -> None:
    """Children that ranks' parents have not reaped: ranks that ended. Their environment went with their memory."""
    parents = {t.ppid for t in targets.values() if t.role == "rank"} | {
        pid for pid, t in targets.items() if t.role == "launcher"
    }
    names = {t.name for t in targets.values() if t.role == "rank"}
    for pid, entry in table.items():
        if entry.stat.state in "ZX" and entry.stat.ppid in parents - {1} and pid not in targets:
            if names and entry.stat.name not in names:
                continue
            targets[pid] = _target(proc, entry, "rank")
            targets[pid].owner = entry.stat.ppid


def adopt_helpers(scene: Scene) -> list[int]:
    """Add the helpers that ranks have started since discovery; their pids. A loader whose workers were not there yet
    must not look like one whose workers are gone."""
    table = {}
    for pid in scene.proc.pids():
        if pid not in scene.targets:
            with contextlib.suppress(ProcError):
                table[pid] = scene.proc.stat(str(pid))
    ranks = {target.pid for target in scene.ranks()}
    adopted = []
    for pid, stat in table.items():
        if stat.ppid in ranks and stat.state not in "ZX" and pid != os.getpid():
            entry = Entry(pid, stat, scene.proc.words(f"{pid}/cmdline"), Unavailable(reason="not looked at"))
            target = scene.targets[pid] = _target(scene.proc, entry, "helper")
            target.owner = stat.ppid
            adopted.append(pid)
    return [pid for pid in adopted if scene.targets[pid].python]
