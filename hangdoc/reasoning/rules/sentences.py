"""What several rules write: about a loop that some ranks have left, about calls that do not meet, about settings that differ."""

import ast
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from hangdoc import settings
from hangdoc.diagnosis import Evidence, Severity
from hangdoc.launch.launchers import program_words
from hangdoc.parse import has_removed_part, names_in, parsed_expression, shows_address
from hangdoc.phrases import amount, duration, shorten, shorten_values
from hangdoc.program import around, tests_files
from hangdoc.reasoning.causes.disagreements import find_other_data
from hangdoc.reasoning.causes.loops import CountedOut, counts_left_round, describe_exit
from hangdoc.reasoning.evidence import observed
from hangdoc.reasoning.evidence.stack import name_line, reading, short
from hangdoc.reasoning.model.agreement import Difference
from hangdoc.reasoning.model.blockage import Blockage
from hangdoc.reasoning.model.cause import Differs
from hangdoc.reasoning.model.holds import Asleep, Busy, Hold, Starves
from hangdoc.reasoning.model.kinds import LeftLoop
from hangdoc.reasoning.model.rank import Class, Rank
from hangdoc.reasoning.model.run import Run
from hangdoc.reasoning.ranks import conditions, iterators
from hangdoc.reasoning.ranks.counters import (
    count_rounds,
    frame_of,
    goes_round,
    is_over_data,
    is_over_nothing,
    positions,
)
from hangdoc.reasoning.ranks.place import continued_by
from hangdoc.reasoning.rules.draft import Draft, WithRemedy, reported_causes
from hangdoc.reasoning.text import words
from hangdoc.snapshot import IN_THE_WAY, Exit, Frame, Local, Loop
from hangdoc.torch_facts import call_names

_SHOWN = 4
_COMPARED = 3
_SEPARATOR = "/"

# --- a loop that some ranks have left ------------------------------------------------------------------------------------


def loop_evidence(run: Run, left: LeftLoop) -> list[Evidence]:
    """The strongest difference in data, the framework's step, the loop counters, both stacks, then the other differences. Each
    pair of amounts is listed once: a loop bound, a variable and a beacon often hold the same number."""
    listed: set[tuple[int | None, ...]] = {tuple(count_rounds(side.first)[1] for side in (left.short, left.inside))}
    shown: list[Difference] = []
    for difference in left.differences:
        amounts = (difference.fewer, difference.more)
        if amounts not in listed and len(shown) < _SHOWN:
            listed.add(amounts)
            shown.append(difference)
    strongest, others = ([line for each in some for line in each.evidence] for some in (shown[:1], shown[1:]))
    stacks = words.class_evidence([left.short, left.inside])
    named = find_other_data(run, left.short.first, left.inside.first)
    data = [line for option in named[:_SHOWN] for line in _values(ARGUMENTS, option)]
    return [
        *strongest,
        *data,
        *_compare_inner_loops(left),
        *_steps(left),
        *counter_evidence(left),
        *stacks,
        *others,
        *words.standstill(run),
    ]


def describe_counted(run: Run, blockage: Blockage, cause: CountedOut, remedy: str) -> Draft:
    """Ranks that have done all batches which their framework counts, beside others that have more."""
    who, inside = blockage.blamed, cause.inside
    classes = [alike for alike in (*blockage.awaited, *blockage.waiting) if set(alike.ranks) & {*who, *inside}]
    waiting = next(alike for alike in classes if set(alike.ranks) & set(inside))
    return Draft(
        confidence=0.93,
        summary=f"{words.have(who)} done all {cause.done} of {words.verb(who, 'its', 'their')} batches; "
        f"{words.have(inside)} {'at least ' * cause.at_least}{cause.more}, and {words.be(inside)} waiting in "
        f"{words.operation(waiting.first)}",
        victims=inside,
        evidence=[*cause.evidence, *words.class_evidence(classes), *words.standstill(run)],
        remedy=remedy,
    )


def left_after(left: LeftLoop, addition: str = "", *, total: int | None = None) -> str:
    """How far the ranks came that left the loop: ` after 3 batches (addition)`, or with `total`, of a loop with a counter of its
    own, ` in batch 4 of 9`. Of several ranks only the first one was counted: ` (rank 1 after 3 batches, addition)`."""
    done = count_rounds(left.short.first)[0]
    count = "" if done is None else _left_at(left, done, total)
    first, *others = left.short.ranks
    if not others:
        return "".join(f" {part}" for part in (count, addition and f"({addition})") if part)
    parts = ", ".join(filter(None, (count and f"rank {first} {count}", addition)))
    return parts and f" ({parts})"


def list_uncounted(left: LeftLoop) -> list[str]:
    """The handlers that continue the loop, if its counter does not count the iterations that they ended: `except OSError`."""
    frame, view = frame_of(left.loop, left.inside.first), left.short.first.loop
    counted = view is None or view.loop != left.loop or view.by_iterator or left.loop.every or not left.loop.counters
    return continued_by(frame) if frame is not None and not counted else []


def handler_evidence(left: LeftLoop) -> list[Evidence]:
    """The handlers that continue the loop after an exception, at the call of the ranks inside it."""
    return _handlers([left.inside.first])


def _left_at(left: LeftLoop, done: int, total: int | None) -> str:
    if total is not None and done < total and left.loop.header.startswith("for "):
        return f"in {_unit(left, several=False)} {done + 1}{_of(total)}"
    if done > 0 and counts_left_round(left):
        return f"in {_unit(left, several=False)} {done}"
    return f"after {_iterations(left, done, total)}"


def _iterations(left: LeftLoop, done: int, total: int | None) -> str:
    """`3 of 9 batches`."""
    amount = done if total is None else total
    return f"{done}{_of(total)} {_unit(left, several=amount != 1)}"


def _unit(left: LeftLoop, *, several: bool) -> str:
    """What an iteration is: a batch, or of a loop over numbers an iteration."""
    of_data = observed.beacon(left.short.first.process) is not None or is_over_data(left.loop)
    return ("batch" + "es" * several) if of_data else ("iteration" + "s" * several)


def _of(total: int | None) -> str:
    return f" of {total}" if total is not None else ""


def counter_evidence(left: LeftLoop) -> list[Evidence]:
    """How far each side came in the loop that one has left."""
    lines = []
    for side, text in ((left.short, "left"), (left.inside, "still inside")):
        done, total = count_rounds(side.first)
        begin = side.first.loop.begin if side.first.loop is not None else None
        count = ""
        if done is not None and left.loop.begin is not None and begin is None:  # a resumed run did not do them all
            count = f" at iteration {done}"
        elif done is not None and side is left.inside and (total is None or done < total):
            # The batch that it is in, so that it differs from a rank that left after as many.
            count = f", in {_unit(left, several=False)} {done + 1}{_of(total)}"
        elif done is not None:
            count = f" {_left_at(left, done, total)}"
        count += f", begun at {begin}" if count and begin else ""
        holder = frame_of(left.loop, side.first) or frame_of(
            left.loop, left.inside.first
        )  # it may have left the function
        at = name_line(left.loop.line, holder, side.first.frame)
        text = f"{text} the loop `{left.loop.header}` ({at}){count}"
        lines.append(Evidence(side.first.rank, "progress", text))
    return lines


def _compare_inner_loops(left: LeftLoop) -> list[Evidence]:
    """The numbers that differ between the two sides and stand in the headers of loops around the call, inside the one that was
    left: one side then makes more calls in a round."""
    outside, inside = left.short.first, left.inside.first
    frame = frame_of(left.loop, inside)
    inner = [loop.header for loop in around(frame) if loop.line > left.loop.line] if frame is not None else []
    numbers = conditions.compare_numbers(outside, inside, left.loop) if inner else {}
    return [
        Evidence(
            None,
            "variables",
            f"`{name}` is {a} on rank {outside.rank}, {b} on rank {inside.rank}, in the loop `{header}`",
        )
        for header in inner
        for name, (a, b) in sorted(numbers.items())
        if name in names_in(header)
    ][:_COMPARED]


def _steps(left: LeftLoop) -> list[Evidence]:
    """The step at which the framework that trains is. The loop that was left may be over epochs."""
    lines = []
    for side in (left.short, left.inside):
        counts = iterators.list_framework_counts(side.first.process)
        step = next((count for count in counts if count.done and not count.batches), None)
        if step is not None:
            lines.append(Evidence(side.first.rank, "loops", f"{step.name} is {step.done}{_of(step.total)}"))
    return lines


# --- calls that do not meet ----------------------------------------------------------------------------------------------


def name_calls(parts: Iterable[Class]) -> str:
    """`ranks 0-2 in barrier; rank 3 in all_reduce`."""
    return "; ".join(f"{words.ranks(part.ranks)} in {words.operation(part.first)}" for part in parts)


def call_on_all(rank: Rank, branch: str | None = None, *, runs: bool = True) -> str:
    """What to do about a call that `rank` makes and others leave out, because of a condition if that is known: `branch` and
    `runs` as in `Condition`. A smaller group is a way out only for who passes one: not for the user of a library that makes the
    call, and not for new_group."""
    wait, where = rank.wait, f", {'not only' if runs else 'also'} under {branch}" if branch is not None else ""
    if wait is not None and wait.makes is not None:
        return f"Call {wait.operation.op} on every rank of the run{where}: also on those that the new group does not contain."
    itself = rank.thread is not None and reading(rank.thread).calls_itself
    smaller = itself and wait is not None and wait.operation.op not in call_names.MANAGES_GROUPS
    return f"Make the call on every rank of the group{where}{_SMALLER_GROUP * smaller}."


_SMALLER_GROUP = ", or pass a group that contains only the ranks that call it"
_AGREE = {
    "exception": "Let the exception end the rank, or tell all ranks of it (all_reduce a flag) before one of them makes another "
    "call than the others.",
    "values": "Give {names} the same value on all ranks; or let all ranks decide on {branch} together: all_reduce the flag "
    "before the branch.",
    "decision": "Let all ranks decide on {branch} together: all_reduce the flag before the branch, so that all of them make the "
    "call or none does.",
}
"""What makes ranks agree, by what decides a condition that is not about the rank."""
_END_IT = (
    "If an exception made a rank leave out a call, let it end the rank, or tell all ranks of it (all_reduce a flag) before they "
    "continue the loop. A `continue` under a condition leaves out calls, too."
)


def call_evidence(run: Run, parts: Sequence[Class], deciding: Container[int]) -> list[Evidence]:
    """Their stacks, the conditions around their calls, and how long they have exchanged no data. The conditions around the calls
    of the ranks `deciding` show the remedy."""
    handlers = _handlers(part.first for part in parts[:_COMPARED])
    return [*words.class_evidence(parts), *condition_evidence(run, parts, deciding), *handlers, *words.standstill(run)]


def condition_evidence(
    run: Run, parts: Sequence[Class], deciding: Container[int], without: Container[str] = ()
) -> list[Evidence]:
    """The conditions around their calls that are not around those of the others that have to make these calls too, but for those
    that are decided by one of `without`. Those around the calls of the ranks `deciding` show the remedy."""
    firsts = [part.first for part in parts[:_COMPARED]]
    lines: list[Evidence | None] = []
    for rank in (rank for rank in firsts if rank.wait is not None):
        found = (
            conditions.find_condition(rank, other, passed=run.ledger.has_made_before(other.rank, rank.rank))
            for part in parts[:_COMPARED]
            if part.first is not rank and (other := _find_member(run, part, rank)) is not None
        )
        condition = next(filter(None, found), None)
        if condition is not None and condition.decides not in without:
            line = Evidence(rank.rank, "source", condition.text)
            if rank.rank in deciding and (remedy := _make_agree(rank, condition)) is not None:
                line = WithRemedy(line.rank, line.probe, line.text, remedy=remedy)
            lines += [line, *(_describe_option(name, firsts) for name in condition.differing)]
            lines += [_describe_folder(rank, name, value, firsts) for name, value in condition.unread]
    return [line for line in lines if line is not None]


def _find_member(run: Run, part: Class, rank: Rank) -> Rank | None:
    """One of some ranks that has to make the call in which `rank` waits; None if all of them are outside of its group."""
    members = rank.wait.members if rank.wait is not None else None
    others = (run.ranks[number] for number in part.ranks if number in run.ranks)
    return conditions.choose_counterpart(rank, (other for other in others if members is None or other.rank in members))


def _describe_folder(rank: Rank, name: str, value: str, ranks: Sequence[Rank]) -> Evidence | None:
    """The variable of the environment that is a path variable's folder, or the path itself, if it differs between ranks; None if
    there is none."""
    path = value.strip("'\"")
    environments = {each.rank: observed.environment(each.process) for each in ranks if each.process is not None}
    for variable, folder in sorted(environments.get(rank.rank, {}).items()):
        given = {number: environment.get(variable) for number, environment in environments.items()}
        if folder.startswith(_SEPARATOR) and len(set(given.values())) > 1 and _is_below(path, folder):
            texts = (f"{'not set' if text is None else shorten(text, 60)} on rank {on}" for on, text in given.items())
            return Evidence(
                None, "environment", f"`{name}` is {shorten(path, 60)}, and {variable} is {', '.join(texts)}"
            )
    return None


def _is_below(path: str, folder: str) -> bool:
    above = folder.rstrip(_SEPARATOR)
    return above != "" and (path == above or path.startswith(above + _SEPARATOR))


def _make_agree(rank: Rank, condition: conditions.Condition) -> str | None:
    """What to do about a condition around the call of a rank; None if it only counts."""
    if condition.decides == "rank":
        return call_on_all(rank, condition.branch, runs=condition.runs)
    names = " and ".join(f"`{name}`" for name in condition.differing)
    together = condition.decides == "values" and not condition.decided_by_these
    remedy = _AGREE.get("decision" if together else condition.decides)
    return remedy.format(branch=condition.branch, names=names) if remedy is not None else None


def _describe_option(name: str, ranks: Sequence[Rank]) -> Evidence | None:
    """The option of the command lines of ranks that has the name of a variable (`--aux-loss` of `args.aux_loss`); None if there
    is none, or if it is the same on all."""
    given: dict[int, str | None] = {}
    written = ""
    for rank in ranks:
        argv = program_words(rank.process.argv) if rank.process is not None else ()
        names, values = settings.names_as_written(argv), settings.options(argv)
        option = next((each for each in values if each.replace("-", "_") == name.rpartition(".")[2]), None)
        given[rank.rank] = values[option] if option is not None else None
        written = written or (names[option] if option is not None else "")
    if not written or len(set(given.values())) < 2:
        return None
    by_value = sorted(given.items(), key=lambda item: (item[1] is None, item[0]))
    texts = (f"{'not given' if value is None else shorten(value, 60)} on rank {rank}" for rank, value in by_value)
    return Evidence(None, ARGUMENTS.probe, f"`{written}` is {', '.join(texts)}")


def unequal_loops(ranks: Iterable[Rank]) -> list[Evidence]:
    """The loops of these ranks that have more rounds on some than on others, by their bounds. The warm-up of a pipeline is meant
    to."""
    totals: dict[tuple[str, str, int, str], dict[int, Rank]] = {}
    for rank in ranks:
        for view, _ in positions(rank):
            frame = frame_of(view.loop, rank)
            if view.total is not None and frame is not None:
                key = (frame.file, frame.function, view.loop.line, view.loop.header)
                totals.setdefault(key, {}).setdefault(view.total, rank)
    lines = []
    for (*_, header), counts in totals.items():
        if len(counts) > 1:
            rounds = ", ".join(f"{amount(total, 'round')} on rank {rank.rank}" for total, rank in counts.items())
            lines.append(Evidence(counts[max(counts)].rank, "progress", f"the loop `{header}` has {rounds}"))
    return lines


def _handlers(ranks: Iterable[Rank]) -> list[Evidence]:
    """The handlers after which the program continues the loop that a call is in: with one, an exception may skip calls. This is
    true of the program on all ranks, so no rank is named."""
    lines = [
        f"`{handler}` around {short(frame.file)}:{frame.line} continues the loop after an exception"
        for rank in ranks
        for frame in rank.own
        for handler in continued_by(frame)
    ]
    return [WithRemedy(None, "source", line, remedy=_END_IT) for line in list(dict.fromkeys(lines))[:2]]


# --- settings that differ ------------------------------------------------------------------------------------------------


class Wording(NamedTuple):
    """The texts of one rule about settings. They contain `{name}`, and `evidence` also `{value}`."""

    probe: str
    subject: str
    evidence: str
    missing: str
    """Evidence where the value is not set."""
    remedy: str


ARGUMENTS = Wording(
    probe="arguments",
    subject="`{name}`",
    evidence="{name}={value}",
    missing="{name}=(not given)",
    remedy="Start all ranks with the same arguments.",
)
_DATA_OF_NODES = (
    "If each node has a part of the data at a place of its own, give each the same amount. Otherwise, start all ranks with the "
    "same arguments."
)


def draft_of_settings(
    wording: Wording,
    settings: Sequence[Differs],
    confidence: float,
    waiting: Iterable[Class] = (),
    severity: Severity | None = None,
) -> Draft:
    """The finding about one or more differences, the most important first. `waiting`: the ranks that it keeps waiting."""
    first, *others = settings
    why = f"; it {first.why}" if first.why else ""
    names = ", ".join(wording.subject.format(name=other.name) for other in others[:_SHOWN])
    more = f" ({names} {'differs' if len(others) == 1 else 'differ'} too)" if others else ""
    subject = wording.subject.format(name=first.name)
    return Draft(
        confidence=confidence,
        severity=severity,
        culprits=first.values.odd,
        summary=f"{subject} differs between ranks: {words.values_by_rank(first.values.values)}{why}{more}",
        evidence=[
            *(line for setting in settings[:_SHOWN] for line in _values(wording, setting)),
            *words.class_evidence(waiting),
        ],
        remedy=_DATA_OF_NODES if first.names_data and first.by_node else wording.remedy.format(name=first.name),
        commands=(),
    )


def unexplained(run: Run, what: type[Differs]) -> list[Differs]:
    """The differences of a kind that do not explain a blockage."""
    explained = {cause.name for cause in reported_causes(run, Differs)}
    return [setting for setting in run.differing if isinstance(setting, what) and setting.name not in explained]


def _values(wording: Wording, setting: Differs) -> list[Evidence]:
    lines = []
    values = setting.values.values[:_SHOWN]
    for (value, ranks), (shortened, _) in zip(values, shorten_values(values), strict=True):
        text = wording.missing if value is None else wording.evidence
        shown = text.format(name=setting.name, value=shortened)
        lines.append(Evidence(ranks[0], wording.probe, shown + words.also(ranks)))
    return lines


# --- what a rank polls for --------------------------------------------------------------------------------------------


def describe_poll(rank: Rank, kind: Hold | None, *, own_store: bool = False) -> list[Evidence]:
    """The loop in which a rank polls or that it repeats, the statements that end it, and the values that these test: what it
    polls for. `own_store`: as in `Idle`."""
    polls = _polls_itself(kind)
    frame = rank.frame if polls else _find_endless_frame(rank) if isinstance(kind, Busy | Starves) else None
    if frame is None or not (inside := around(frame)):
        return []
    loops = [loop for loop in inside if not is_over_nothing(rank.process, frame, loop)] or inside
    empty = [f"`{loop.header}` has nothing to go over" for loop in inside if loop not in loops]
    what = "it polls in the loop" if polls else "it repeats the loop"
    values = [
        f"`{local.name}` is {shorten(local.text, 80)}"
        for local in _list_tested(rank, frame, loops[-1])
        if not shows_address(local.text[:80])
    ]
    only = ["only the ranks are clients of that store now"] if own_store else []
    exits = map(describe_exit, _list_tested_exits(loops[-1]))
    text = "; ".join([f"{what} `{loops[-1].header}`", *empty, *exits, *values[:3], *only])
    return [Evidence(rank.rank, "source", text), *_describe_path_in_the_way(rank), *_called_at(rank, frame)]


def find_path_in_the_way(rank: Rank) -> str | None:
    """The path whose end a rank polls for, if something is there."""
    file = rank.process.polled_lock if rank.process is not None else None
    return file.name if file is not None and file.kind == IN_THE_WAY else None


def _describe_path_in_the_way(rank: Rank) -> list[Evidence]:
    """Since when it is there."""
    process, path = rank.process, find_path_in_the_way(rank)
    if process is None or process.polled_lock is None or path is None:
        return []
    text = (
        f"{path} is still there, and was made or changed {duration(process.polled_lock.changed_seconds_ago or 0.0)} ago"
    )
    if not process.others_at_work and not process.others_asleep:
        text += "; another run counts only if it was started before"
    return [Evidence(rank.rank, "processes", text)]


def is_polling_for_file(rank: Rank, kind: Hold | None) -> bool:
    """Whether a rank polls in a loop that ends when a file comes or goes."""
    return _find_file_loop(rank, kind) is not None


def find_polled_path(rank: Rank, kind: Hold | None) -> str | None:
    """The absolute path that a rank tests which polls for a file: of the file, or of a directory for it. None if no variable of
    the tests has one, or if a part of it was not stored."""
    loop = _find_file_loop(rank, kind)
    if loop is None or rank.frame is None:
        return None
    values = (parsed_expression(local.text) for local in _list_tested(rank, rank.frame, loop))
    texts = (value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str))
    paths = (text for text in texts if text.startswith("/") and text.isprintable())
    return next((path for path in paths if not has_removed_part(path)), None)


def _find_file_loop(rank: Rank, kind: Hold | None) -> Loop | None:
    loops = around(rank.frame) if _polls_itself(kind) and rank.frame is not None else []
    return loops[-1] if loops and tests_files(loops[-1]) else None


def _polls_itself(kind: Hold | None) -> bool:
    return isinstance(kind, Asleep) and kind.polls and kind.of_child is None


def _list_tested_exits(loop: Loop) -> list[Exit]:
    """The first statements with a test that end a loop."""
    return [end for end in loop.exits if end.conditions][:2]


def _list_tested(rank: Rank, frame: Frame, loop: Loop) -> list[Local]:
    """The variables in the tests that end a loop of a frame, but for lists, tuples, dicts and sets."""
    tests = " ".join([loop.header, *(test for end in _list_tested_exits(loop) for test in end.conditions)])
    seen = {local.name: local for local in reversed(list(observed.variables(rank.process, [frame])))}
    return [seen[name] for name in dict.fromkeys(names_in(tests)) if name in seen and seen[name].length is None]


def _find_endless_frame(rank: Rank) -> Frame | None:
    """The user's own frame with the loop that a rank repeats without an end; None where its counters show progress."""
    if rank.process is None or not goes_round(rank.process, rank.thread):
        return None
    return next((frame for frame in rank.own if around(frame)), None)


def _called_at(rank: Rank, of: Frame) -> list[Evidence]:
    """Where the function in which a rank polls was called: for what it polls may be an argument."""
    at = next((at for at, frame in enumerate(rank.own) if frame is of), None)
    caller = rank.own[at + 1] if at is not None and at + 1 < len(rank.own) else None
    if caller is None or caller.source is None:
        return []
    return [Evidence(rank.rank, "source", f"it was called at {short(caller.file)}:{caller.line} `{caller.source}`")]
