"""Finds the runs that are already on a node, to be ended, waited for, or asked about."""

import os
import pwd
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from os.path import basename
from typing import NamedTuple

from hangdoc import redact
from hangdoc.launch.launchers import after_python
from hangdoc.observe.access.observation import Target
from hangdoc.observe.look.abilities import find_only_user
from hangdoc.phrases import amount, duration, ranks, shorten, shorten_before
from hangdoc.preflight.plan import OtherRun
from hangdoc.procfs import ProcError, ProcFS, age
from hangdoc.reasoning.runs.launch import program
from hangdoc.torch_facts import environment_names
from hangdoc.torch_facts.launchers import PROGRAMS

_NAME_SECONDS = 1.0
_REST_SECONDS = 1.0
_MOST_AT_REST = 0.01
"""Of a core: threads of torch wake up now and then while their rank waits."""


def describe_others(proc: ProcFS, running: Mapping[int, Target]) -> Iterator[OtherRun]:
    """Ranks that already run on this node, as `_find_other_ranks` has them together."""
    runs, unread = _find_other_ranks(proc, running), _find_unread(running)
    users = _name_other_users(each[0] for each in (*runs, *unread))
    at_rest = _find_at_rest(proc, [target for each in runs for target in each])
    for each in runs:
        first = each[0]
        launchers = [] if first.launcher_gone else _find_launchers(running, each)
        pid, *more = dict.fromkeys(target.pid if first.launcher_gone else target.owner or target.pid for target in each)
        yield OtherRun(
            pid=pid,
            other_pids=tuple(more),
            text=_describe_ranks(proc, each, launchers),
            user=users.get(first.uid),
            at_rest=all(target.pid in at_rest for target in each),
            left_over=first.launcher_gone,
        )
    for launchers in unread:
        pid, *more = (launcher.pid for launcher in launchers)
        text = _describe_unread(proc, launchers)
        yield OtherRun(pid=pid, other_pids=tuple(more), text=text, user=users.get(launchers[0].uid))


def _find_other_ranks(proc: ProcFS, running: Mapping[int, Target]) -> list[list[Target]]:
    """Ranks that already run on this node, in the order of their numbers: those of one run and user together, also under several
    launchers, and each whose launcher is gone alone. The processes of this preflight do not count."""
    mine, launcher = {os.getpid(), os.getppid()}, os.environ.get(environment_names.RUN_ID) is not None
    runs: dict[tuple[int | None, str], list[Target]] = {}
    for pid, target in running.items():
        if target.role == "rank" and pid not in mine and not (launcher and target.ppid == os.getppid()):
            alone = target.launcher_gone or target.owner is None
            runs.setdefault((proc.user(pid), f"pid {pid}" if alone else target.run), []).append(target)
    return [sorted(targets, key=_order_by_rank) for targets in runs.values()]


def _find_unread(running: Mapping[int, Target]) -> list[list[Target]]:
    """The launchers below which processes can't be read, and none is known as a rank: those of one user and run together, as far
    as their launch lines say so."""
    at_work = {target.owner for target in running.values() if target.role == "rank"}
    runs: dict[tuple[object, ...], list[Target]] = {}
    for pid, target in running.items():
        if target.unreadable_below and pid not in at_work:
            launch = target.launch
            name = (launch.endpoint, launch.run_id) if launch is not None and launch.endpoint is not None else (pid,)
            runs.setdefault((target.uid, *name), []).append(target)
    return list(runs.values())


def _name_other_users(targets: Iterable[Target]) -> dict[int | None, str]:
    """The names of the users whose processes this one may neither read nor end, by uid; `uid 1000` where no name is found. Waits
    at most one second for all of them: a server may know them."""
    only = find_only_user()
    uids = {target.uid for target in targets if target.uid is not None} - {only} if only is not None else set()
    pool = ThreadPoolExecutor(4)
    names = {uid: pool.submit(pwd.getpwuid, uid) for uid in uids}
    wait(names.values(), _NAME_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    return {uid: _read_name(name) or f"uid {uid}" for uid, name in names.items()}


def _read_name(found: Future[pwd.struct_passwd]) -> str | None:
    """The name of a user; None if the name service has none, or has not answered."""
    answered = found.done() and not found.cancelled() and found.exception() is None
    return found.result().pw_name if answered else None


def _find_launchers(running: Mapping[int, Target], targets: list[Target]) -> list[Target]:
    """The launchers of the ranks of one run, in the order of these."""
    owners = dict.fromkeys(target.owner for target in targets)
    return [running[owner] for owner in owners if owner is not None and owner in running]


def _find_at_rest(proc: ProcFS, targets: list[Target]) -> frozenset[int]:
    """The pids of those whose main threads do not run for a second, and whose other threads use almost no CPU. A training loop
    that sleeps between its steps uses as little, but its main thread wakes up."""
    if not targets:
        return frozenset()
    before, start = {target.pid: _read_clock(proc, target) for target in targets}, time.monotonic()
    time.sleep(_REST_SECONDS)
    # The kernel rounds user and system time down to a tick each, so that a step of both may be less than a tick of CPU.
    most = _MOST_AT_REST * (time.monotonic() - start) * proc.ticks_per_second + 1
    after = ((target.pid, _read_clock(proc, target), before[target.pid]) for target in targets)
    return frozenset(
        pid for pid, now, then in after if now is not None and then is not None and now.rests_since(then, most)
    )


class _Clock(NamedTuple):
    """How much a process has run."""

    ticks: int
    """Of CPU, of all its threads."""
    switches: tuple[str | None, ...]
    """How often its main thread has given up its processor, by itself or not."""

    def rests_since(self, earlier: "_Clock", most: float) -> bool:
        """Whether the main thread has not run since, and all threads used at most so many ticks."""
        return self.switches == earlier.switches and self.ticks - earlier.ticks <= most


def _read_clock(proc: ProcFS, target: Target) -> _Clock | None:
    """The clock of a process; None if it has ended."""
    try:
        stat = proc.stat(str(target.pid))
        switches = proc.fields(str(target.pid), "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
    except ProcError:
        return None
    return _Clock(stat.cpu_ticks, tuple(switches)) if stat.start_ticks == target.start_ticks else None


def _order_by_rank(target: Target) -> tuple[bool, int, int]:
    """The processes whose rank is not known come last."""
    number = target.identity.rank if target.identity is not None else None
    return number is None, number or 0, target.pid


def _describe_ranks(proc: ProcFS, targets: Sequence[Target], launchers: Sequence[Target]) -> str:
    """`ranks 0-1, pids 7, 8, started 20 s ago by pid 6 in /home/me: python launch.py`, with the command and the directory of the
    first launcher, or of the first rank if there is none. A command does not always name the script."""
    first = targets[0]
    numbers = [target.identity.rank for target in targets if target.identity is not None]
    state = ", an orphan" if first.launcher_gone else ""
    by = f" by {_list_pids(launchers)}" if launchers else ""
    top = launchers[0] if launchers else first
    command = describe_command(redact.argv(top.argv))
    who = ranks(numbers) if numbers else "a rank"
    started = duration(age(proc, first.start_ticks))
    return f"{who}, {_list_pids(targets)}{state}, started {started} ago{by}{_describe_directory(proc, top)}: {command}"


def _describe_unread(proc: ProcFS, launchers: Sequence[Target]) -> str:
    """`4 processes that this user can't read, below pids 6, 7, which started 20 s ago: torchrun --nnodes 2 train.py`. When the
    processes started is not known: a launcher may have started them anew."""
    first = launchers[0]
    who = amount(sum(launcher.unreadable_below for launcher in launchers), "process", "es")
    started = f"below {_list_pids(launchers)}, which started {duration(age(proc, first.start_ticks))} ago"
    command = f"{_describe_directory(proc, first)}: {describe_command(redact.argv(first.argv))}"
    return f"{who} that this user can't read, {started}{command}"


def describe_command(argv: tuple[str, ...]) -> str:
    """`torchrun --standalone train.py` of `/env/bin/python -u /env/bin/torchrun --standalone train.py`. A long one is not cut in
    its script."""
    words = after_python(argv)
    words = words if words and basename(words[0]) in PROGRAMS else argv
    return shorten_before(" ".join((basename(words[0]), *words[1:])), program(argv), 80) if words else ""


def _list_pids(targets: Sequence[Target]) -> str:
    """`pid 7`, `pids 7, 8`; the first four and the number of the others."""
    pids = ", ".join(str(target.pid) for target in targets[:4])
    more = f" and {len(targets) - 4} more" if len(targets) > 4 else ""
    return f"pid{'s' * (len(targets) > 1)} {pids}{more}"


def _describe_directory(proc: ProcFS, target: Target) -> str:
    """` in /home/me`, filtered as the paths of its command; empty if it can't be read."""
    try:
        return f" in {shorten(redact.path(proc.link(f'{target.pid}/cwd')), 100)}"
    except ProcError:
        return ""
