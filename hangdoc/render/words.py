"""Words, glyphs and colours that all views share. Each glyph has a word next to it, so no view depends on colour."""

import datetime
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from hangdoc.diagnosis import Diagnosis, Finding, GpuView, Job, Operation, PaceView, PastView, RankView, Where
from hangdoc.phrases import (
    apart_from_waits,
    caller,
    compared_calls,
    do,
    duration,
    frequency,
    milliseconds,
    numbers,
    printable,
    ranks,
    shorten,
)

_NO_RANK = (
    "No rank of this run was observed: all have just ended, or none has started. Look at the log of the launcher, or run hangdoc "
    "again in some seconds."
)
_UNREADABLE = "No rank of this run could be read. Processes of its launcher are alive, and hangdoc may not read them."
VERDICT_STYLE = {
    "hung": "bold red",
    "waiting": "bold yellow",
    "healthy": "bold green",
    "unknown": "bold magenta",
}
LABEL_STYLE = {"computing": "green", "blocked": "yellow", "dead": "red", None: "magenta"}
CULPRIT_STYLE = "bold dark_orange"
LABEL_GLYPH = {"computing": "▶", "blocked": "■", "dead": "✗", None: "?"}
_MOST_HOSTS = 3
_HOSTS_SHOWN = 8
_PIDS_SHOWN = 4
_TELLING_SECONDS = 0.001
_A_LOOK = 1.0
_DAY_SECONDS = 86_400
_MOST_OF_REASON = 60
_LOOPS_SHOWN = 3
_PROGRESS_SHOWN = 3
_ALIKE_PERCENT = 10
"""Of a core. Ranks at the same work differ by a few percent from one second to the next."""
SEVERITY_STYLE = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def clean(text: str) -> str:
    """Text from a process without control, formatting and invisible characters, safe for a terminal."""
    return printable(text)


def operation(op: Operation | None) -> str:
    """`all_reduce (DDP backward)`, `recv from 1`, `barrier of group 2`, `store.wait`."""
    if op is None:
        return ""
    text = "store.wait" if (op.op, op.origin) == ("wait", "store") else op.op
    if op.peer is not None:
        text += f" {'to' if 'send' in op.op or op.op.startswith('rpc_') else 'from'} {op.peer}"
    text += op.of_group
    return clean(text + (f" ({caller(op.origin)})" if op.origin not in (None, "user", "store") else ""))


def place(where: Where | None) -> str:
    """`train.py:15 in train`."""
    return "" if where is None else clean(f"{where.file}:{where.line} in {where.function}")


def is_last_call(rank: RankView) -> bool:
    """Whether the place of a rank is that of its last call, which it has left: where it is now was not read."""
    return rank.where_source == "recorder" and rank.operation is None


def is_old(rank: RankView) -> bool:
    """Whether the place of a rank is older than this look."""
    return (rank.stack_seconds_ago or 0.0) >= THIS_LOOK


def name_last_call(rank: RankView) -> str:
    """`last call at `, `last call 5.4 s ago at `: before the place of a rank that has left that call."""
    return f"last call {duration(rank.stack_seconds_ago or 0.0)} ago at " if is_old(rank) else "last call at "


def label_and_state(rank: RankView) -> str:
    """`blocked: in-collective`; one word where both are the same."""
    label = rank.label or "unknown"
    return label if label == rank.state else f"{label}: {rank.state}"


def classes(job: Job) -> list[list[RankView]]:
    """Groups of ranks in the same state, in the order of their lowest number: one row each. A culprit shares its row only with
    culprits of the same findings."""
    groups: dict[object, list[RankView]] = {}
    passes = in_other_passes(job.ranks)
    culprits = [frozenset(finding.culprits) for finding in job.findings]
    for rank in job.ranks:
        key = (rank.label, rank.state, rank.operation, rank.where, rank.made_by, rank.batches_done, rank.batches_total,
               rank.batches_ended, rank.batches_pass_number if passes else None,
               tuple(rank.rank in ranks_ for ranks_ in culprits))  # fmt: skip
        groups.setdefault(key, []).append(rank)
    return sorted(groups.values(), key=lambda group: group[0].rank)


def worst_first(jobs: Iterable[Job]) -> list[Job]:
    """The jobs, the worst verdict first."""
    return sorted(jobs, key=lambda job: ("hung", "unknown", "waiting", "healthy").index(job.verdict))


def job_names(jobs: Sequence[Job]) -> dict[str, str]:
    """The name of each job, by its id: `train.py · torchrun · 2 ranks`. Jobs that would look alike also have their endpoint, or
    their id if they share that too."""
    plain = {job.id: clean(job.name or job.id) for job in jobs}
    alike = Counter(plain.values())
    full = {job.id: f"{plain[job.id]} · {clean(job.master or job.id)}" for job in jobs}
    same = Counter(full.values())
    return {
        job: name if alike[name] == 1 else full[job] if same[full[job]] == 1 else f"{name} · {clean(job)}"
        for job, name in plain.items()
    }


def origin(job: Job) -> str:
    """`--job none@node1:29500, pid 4711 on node1, uid 1000, in /home/me/run`."""
    parts = [f"--job {shlex.quote(job.id)}"]
    if job.started_by is not None:
        parts.append(f"{_name_pids(job.started_by.pids or (job.started_by.pid,))} on {job.started_by.host}")
        parts += [f"uid {job.started_by.uid}"] if job.started_by.uid is not None else []
        parts += [f"in {job.started_by.directory}"] if job.started_by.directory is not None else []
    return clean(", ".join(parts))


def _name_pids(pids: Sequence[int]) -> str:
    """`pid 7`, `pids 7, 8`, `pids 7, 8, 9, 10 and 3 more`."""
    more = len(pids) - _PIDS_SHOWN
    return f"pid{'s' * (len(pids) > 1)} {', '.join(map(str, pids[:_PIDS_SHOWN]))}" + (
        f" and {more} more" if more > 0 else ""
    )


def without_finding(job: Job) -> str:
    """The sentence for a job about which there is no finding."""
    if job.verdict == "healthy":
        every = f"Every {'observed ' * bool(job.unseen)}rank"
        if (silent := _blocked_since(job)) is not None:
            return f"{every} made progress in this look, but all have been blocked for the last {duration(silent)}: look again."
        return f"{every} is making progress{_at_loaders(job)}{_progress_without_clocks(job)}."
    if job.verdict != "waiting":
        unread = any(rank.unreadable for rank in job.unseen)
        return "Nothing found." if job.ranks else _UNREADABLE if unread else _NO_RANK
    if any(rank.label != "dead" for rank in job.ranks):
        still = all(rank.progress is None for rank in job.ranks)
        ended = [rank.rank for rank in job.ranks if rank.label == "dead"]
        gone = f"; {do(ended, 'has ended', 'have ended')}" if ended else ""
        none = "No rank is" if still else "Some ranks are not"
        return f"{none} making progress, but no rank is waiting for another rank{gone}."
    return (
        "No rank of this run is alive: the launcher has not started any yet, all have ended, or it runs the script once and "
        "without ranks, as `accelerate launch --cpu` does."
    )


def _blocked_since(job: Job) -> float | None:
    """For how long all ranks of a run have been in recorded calls, if that is as long as a look: it may just have stopped."""
    ages: list[float] = []
    for rank in job.ranks:
        waits = [call.age_seconds for call in rank.calls if call.pending is not None and call.age_seconds is not None]
        if rank.label != "blocked" or not waits:
            return None
        ages.append(max(waits))
    return min(ages) if ages and min(ages) >= _A_LOOK else None


def _at_loaders(job: Job) -> str:
    """What bounds a run in which each rank waits for its data."""
    return ", and waits for its dataloader now" if all(rank.state == "waiting-data" for rank in job.ranks) else ""


def _progress_without_clocks(job: Job) -> str:
    """`: rank 0: its stack changed`: what shows the progress of the ranks whose CPU time could not be read."""
    shown: dict[str, list[int]] = {}
    for rank in job.ranks:
        if rank.cpu_percent is None and rank.progress is not None:
            shown.setdefault(rank.progress, []).append(rank.rank)
    parts = [f"{ranks(which)}: {clean(what)}" for what, which in list(shown.items())[:_PROGRESS_SHOWN]]
    return ": " + "; ".join(parts) if parts else ""


def pace(job: Job) -> str:
    """`310 calls per second over 5.0 s, and 14.9 steps per second in this look; the ranks wait for a later one in
    collectives 79% of the time, mostly for rank 2 (52 ms behind, last in 96% of the last 425 calls)`; empty if not measured."""
    measured = job.pace
    if measured is None:
        return ""
    steps = measured.steps_per_second
    counted = f", and {frequency(steps)} steps per second in this look" if steps is not None else ""
    text = f"{_call_rates(measured, 'calls per second')}{counted}; "
    text += f"the ranks wait for a later one in collectives {measured.waited_share:.0%} of the time"
    text += _apart_from_waits(measured)
    calls = compared_calls(measured.calls or 0, measured.of_calls or 0, measured.operations)
    if not measured.tells_of_ranks:
        return f"{text}; these are too few calls to tell whether one rank slows the others"
    if measured.slowest is None:  # one that is the last in all of them may come so little later that it is none
        return f"{text}; no single rank slows the others much{f', by {calls}' if measured.calls else ''}"
    late = f"{milliseconds(measured.late_seconds or 0)} behind, last in {measured.last_share or 0:.0%} of {calls}"
    return f"{text}, mostly for rank {measured.slowest} ({late})"


def stands_still(rank: RankView) -> bool:
    """Whether nothing shows that a rank makes progress. One whose own thread is blocked may, by another thread."""
    return rank.label not in ("computing", None) and rank.progress is None


def moves(rank: RankView) -> bool:
    """Whether a rank was observed and makes progress."""
    return rank.label is not None and not stands_still(rank)


def find_unread(ranks_of_job: Iterable[RankView]) -> list[int]:
    """The ranks whose stacks were not read, since they make progress. Where such a rank is, only torch's record may say."""
    return [rank.rank for rank in ranks_of_job if moves(rank) and rank.where_source != "stack"]


def _call_rates(of: PaceView | PastView, unit: str) -> str:
    """`310 calls/s over 5.0 s`; `18.6 to 193 calls/s (ranks differ) over 5.0 s`."""
    least, most = of.least_calls_per_second, frequency(of.calls_per_second)
    seconds = of.rate_seconds
    over = f" over {duration(seconds) if seconds >= 1 else milliseconds(seconds)}" if seconds else ""
    return f"{most} {unit}{over}" if least is None else f"{frequency(least)} to {most} {unit} (ranks differ){over}"


def _apart_from_waits(of: PaceView | PastView) -> str:
    return apart_from_waits(of.long_waits, of.long_wait_seconds or 0.0, of.long_wait_ranks)


def looked(diagnosis: Diagnosis) -> str:
    """`observed the run for 1 s and took 1.4 s`, `read torch's dumps in /tmp/dumps`."""
    if diagnosis.dumps is not None:
        return f"read torch's dumps in {clean(diagnosis.dumps)}"
    return f"observed the run for {window(diagnosis)} s and took {diagnosis.elapsed_seconds:.1f} s"


def brought(diagnosis: Diagnosis) -> str | None:
    """`hangdoc was brought to node3 and node7, and removed again`; None if it was brought to no host."""
    if not diagnosis.brought:
        return None
    text = f"hangdoc was brought to {_list_hosts([one.host for one in diagnosis.brought])}"
    kept = [one.host for one in diagnosis.brought if one.removed is False]
    if kept:
        return f"{text}. {_list_hosts(kept)} did not say that it was removed: look there for /tmp/hangdoc-brought-*"
    stays = any(one.removed is None for one in diagnosis.brought)
    return text + (", and is removed when this command ends" if stays else ", and removed again")


def _list_hosts(names: list[str]) -> str:
    shown = [clean(name) for name in names[:_HOSTS_SHOWN]]
    more = len(names) - len(shown)
    *most, last = [*shown, f"{more} more"] if more else shown
    return f"{', '.join(most)} and {last}" if most else last


def window(diagnosis: Diagnosis) -> str:
    """How many seconds a look observed: `1`, `2.1`."""
    return f"{round(diagnosis.window_seconds, 1):g}"


def score(finding: Finding) -> str:
    """`score 90`, `score 60 (C++ frames have not been read yet)`; empty for the finding that lists what could not be observed,
    because it claims no cause."""
    if finding.code == "HD901":
        return ""
    unread = f" ({clean(shorten(finding.unread, _MOST_OF_REASON))})" if finding.unread is not None else ""
    return f"score {finding.confidence * 100:.0f}{unread}"


def hosts(group: Iterable[RankView]) -> str:
    """The host of these ranks, or how many hosts they have."""
    names = sorted({rank.host for rank in group})
    return clean(names[0]) if len(names) == 1 else f"{len(names)} hosts"


def hosts_of(which: Iterable[int], job: Job) -> str:
    """` on node4`: the hosts of these ranks, if the job has several hosts; empty for more than three."""
    wanted = set(which)
    names = sorted({rank.host for rank in job.ranks if rank.rank in wanted})
    several = len({rank.host for rank in job.ranks}) > 1
    return f" on {clean(', '.join(names))}" if several and 0 < len(names) <= _MOST_HOSTS else ""


def has_roles(job: Job) -> bool:
    """Whether the role of any rank is known."""
    return any(rank.role is not None for rank in job.ranks)


def roles(group: Iterable[RankView]) -> str:
    """The roles of some ranks: `PP 0, TP 0-3`, `actor 1`, or `-`; how many there are if they are of different kinds."""
    different = list(dict.fromkeys(rank.role for rank in group if rank.role is not None))
    if len(different) < 2:
        return clean(different[0]) if different else "-"
    counted = [[part.rpartition(" ") for part in role.split(", ")] for role in different]
    kinds = {tuple(name for name, _, _ in parts) for parts in counted}
    if len(kinds) > 1 or not all(number.isdecimal() for parts in counted for _, _, number in parts):
        return f"{len(different)} roles"
    columns = zip(next(iter(kinds)), zip(*counted, strict=True), strict=True)
    return clean(", ".join(f"{name} {numbers({int(number) for _, _, number in parts})}" for name, parts in columns))


def roles_of(which: Iterable[int], job: Job) -> str:
    """` (TP 1)`: the roles of these ranks; empty if none is known."""
    wanted = set(which)
    text = roles(rank for rank in job.ranks if rank.rank in wanted)
    return f" ({text})" if text != "-" else ""


def silence(group: Iterable[RankView]) -> str:
    """Time since the last byte to or from any of these ranks, without seconds from ten minutes on, or `-`."""
    seconds = [rank.silent_seconds for rank in group if rank.silent_seconds is not None]
    if not seconds:
        return "-"
    return f"{min(seconds) // 60:.0f} min" if 600 <= min(seconds) < 3600 else duration(min(seconds))


def cpu(group: Iterable[RankView]) -> str:
    """CPU use in percent of one core: `12%`, on average, of ranks that use about as much; `1-75%` of others; or `-`."""
    percents = [rank.cpu_percent for rank in group if rank.cpu_percent is not None]
    if not percents:
        return "-"
    lowest, highest = min(percents), max(percents)
    if highest - lowest > _ALIKE_PERCENT:
        return f"{lowest:.0f}-{highest:.0f}%"
    return f"{sum(percents) / len(percents):.0f}%"


def gpu(group: Iterable[RankView]) -> str:
    """Use and power of the cards of some ranks, and what is wrong with them: `100% 131 W`, `0-100% 102 W, Xid 79`, or `-`."""
    cards = [rank.gpu for rank in group if rank.gpu is not None]
    watts = [card.power_watts for card in cards if card.power_watts is not None]
    meters = (gpu_use(cards), f"{sum(watts) / len(watts):.0f} W" if watts else "")
    errors = dict.fromkeys(clean(error) for card in cards for error in card.errors)
    return ", ".join(filter(None, (" ".join(filter(None, meters)), *errors))) or "-"


def gpu_use(cards: Iterable[GpuView]) -> str:
    """How much of the time kernels ran on some cards: `100%`, `0-100%`; empty if unknown."""
    percents = sorted(card.utilisation for card in cards if card.utilisation is not None)
    if not percents:
        return ""
    lowest, highest = percents[0], percents[-1]
    return f"{lowest}%" if lowest == highest else f"{lowest}-{highest}%"


def has_gpus(job: Job) -> bool:
    """Whether the card of any rank is known."""
    return any(rank.gpu is not None for rank in job.ranks)


THIS_LOOK = 1.0
"""Seconds. What is older is not of this look, or poll."""
_NOW = 0.5
"""Seconds. A poll reads the batches of all ranks within less, and the poll before was no later."""


def batches_age(rank: RankView) -> float | None:
    """How old a rank's number of batches is, in seconds, if it is not of this look: then it can't be compared with others."""
    age = rank.batches_seconds_ago
    return age if rank.batches_done is not None and age is not None and age >= _NOW else None


def batches(rank: RankView, *, of_pass: bool = False) -> str:
    """`3/232`, `3`, or `-`; `3, ended` of a rank that runs no further one, `1/3, left` if it had more. With `of_pass`, `3/232 of
    pass 7`. A number that is not of this look has its age: `3/232, 5.0 s ago`."""
    if rank.batches_done is None:
        return "-"
    total = f"/{rank.batches_total}" if rank.batches_total is not None else ""
    end = name_end_of_batches(rank.batches_done, rank.batches_total)
    number = name_pass(rank.batches_pass_number) if of_pass else ""
    age = batches_age(rank)
    when = f", {duration(age)} ago" if age is not None else ""
    return f"{rank.batches_done}{total}{number}{f', {end}' if rank.batches_ended else ''}{when}"


def name_pass(number: int | None) -> str:
    """` of pass 7`; empty if it is unknown."""
    return f" of pass {number}" if number is not None else ""


def in_other_passes(ranks_: Iterable[RankView]) -> bool:
    """Whether ranks are known to be in different passes: then a number of batches says little without its pass."""
    return len({rank.batches_pass_number for rank in ranks_} - {None}) > 1


def loops_of_batches(job: Job) -> str:
    """What is counted, where a reader could take it for something else: ``rounds of `for x, y in val` at train.py:57``. Empty if
    all ranks go over their data in one loop."""
    loops: dict[tuple[str, int], tuple[Where, list[int]]] = {}
    for rank in job.ranks:
        if rank.batches_done is not None and (loop := rank.batches_loop) is not None:
            loops.setdefault((loop.file, loop.line), (loop, []))[1].append(rank.rank)
    others = any(
        rank.label != "dead" and (rank.batches_done is None or rank.batches_loop is None) for rank in job.ranks
    )
    over_data = not any(" in range(" in (loop.source or "") for loop, _ in loops.values())
    if not loops or (len(loops) == 1 and over_data and not others):
        return ""
    parts = []
    for loop, which in loops.values():
        header = f" `{clean(loop.source.removesuffix(':'))}`" if loop.source else ""
        who = f"{ranks(which)}: " if others or len(loops) > 1 else ""
        parts.append(f"{who}rounds of{header or ' the loop'} at {clean(f'{loop.file}:{loop.line}')}")
    more = len(parts) - _LOOPS_SHOWN
    return "; ".join([*parts[:_LOOPS_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def name_uncounted(job: Job) -> str:
    """`rank 2: no loop over batches is seen; ranks 3-4: not read, since they move`, where other ranks have a count; empty
    otherwise."""
    uncounted = [rank.rank for rank in job.ranks if rank.batches_done is None and rank.label != "dead"]
    if not uncounted or len(uncounted) == sum(rank.label != "dead" for rank in job.ranks):
        return ""
    unread = set(find_unread(job.ranks)) & set(uncounted)
    seen = [rank for rank in uncounted if rank not in unread]
    parts = [f"{ranks(seen)}: no loop over batches is seen"] if seen else []
    if unread:
        parts.append(f"{ranks(unread)}: not read, since {'they move' if len(unread) > 1 else 'it moves'}")
    return "; ".join(parts)


def name_end_of_batches(done: int, total: int | None) -> str:
    """How a rank that runs no further batch came out of its loop: `ended` after its last batch, `left` before it."""
    return "left" if total is not None and done < total else "ended"


def amount_of_batches(done: int, total: int | None, *, ended: bool, of_pass: int | None = None) -> str:
    """`3 of 232`, `0 of 20 of pass 7`, and of ranks that run no further one `ended at 3 of 3`, `left at 1 of 3`."""
    end = f"{name_end_of_batches(done, total)} at " if ended else ""
    return f"{end}{done:,}{f' of {total:,}' if total is not None else ''}{name_pass(of_pass)}"


def past(before: PastView) -> str:
    """`50 calls/s over 5.0 s until 14:02:31 UTC, then none; rank 2 made its last call 3.0 s earlier. Rank 2 was the last in 96 %
    of the last 425 calls, 52 ms after the others, which waited 66 % of the time.`"""
    text = _call_rates(before, "calls/s")
    if before.stopped_us is not None:
        text += f" until {_show_time(before.stopped_us, before.stopped_seconds_ago or 0.0)}, then none"
    if before.first_stopped_seconds is not None:
        made = do(before.first_stopped, "made its last call", "made their last calls")
        text += f"; {made} {duration(before.first_stopped_seconds)} earlier"
    if before.slowest is None:
        return f"{text}."
    late = before.late_seconds or 0.0
    after = f" {milliseconds(late)} after the others, which" if late >= _TELLING_SECONDS else " and the others"
    calls = compared_calls(before.calls, before.of_calls or 0, before.operations)
    return (
        f"{text}. Rank {before.slowest} was the last in {before.last_share:.0%} of {calls},{after}"
        f" waited {before.others_waited_share:.0%} of the time{_apart_from_waits(before)}."
    )


def _show_time(at_us: int, ago: float) -> str:
    """`14:02:31 UTC`, with the day if it was not within the last one."""
    try:
        at = datetime.datetime.fromtimestamp(at_us / 1e6, datetime.timezone.utc)
    except (OverflowError, OSError, ValueError):  # a damaged bundle
        return "an unknown time"
    return at.strftime("%Y-%m-%d %H:%M:%S UTC" if ago >= _DAY_SECONDS else "%H:%M:%S UTC")
