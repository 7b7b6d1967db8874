"""Checks of the nodes: versions, data, settings, left-over ranks. Pure."""

from collections.abc import Iterator, Sequence
from typing import Literal

from hangdoc import settings
from hangdoc.launch.rows import depend_on_default
from hangdoc.launch.spelling import spell_value
from hangdoc.parse import version
from hangdoc.phrases import amount
from hangdoc.portable import NAME
from hangdoc.preflight.absence import ASK_ITS_USER
from hangdoc.preflight.agreement import agree, shorten
from hangdoc.preflight.plan import Check, Link, MissingPath, NodeReport, OtherRun, Plan
from hangdoc.run_identity import spell_number
from hangdoc.snapshot import Machine
from hangdoc.torch_facts.launchers import (
    BUILD_WITHOUT_CARDS,
    ENDS_WITHOUT_CARD,
    RANK_PER_CARD,
    RANK_PER_CORE,
    TORCHRUN_READ_IN,
)

_SHOWN = 4
_THEY_SHARE = "They share cores and memory with this launch. `hangdoc diagnose` shows whether they hang."
_END_IT, _END_THEM = "End it if it is no longer needed: it uses", "End those that are no longer needed: they use"
_AT_REST, _AT_WORK = "memory and ports", "memory, cores and ports"
"""What ranks use."""
_REST = "The main threads of these ranks did not run for a second."
_CARDS = "CUDA_VISIBLE_DEVICES"
_SEVERAL = 2
"""Cards."""


def cards(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """A launcher that starts several ranks only on several cards finds them. Only NVIDIA's are seen."""
    without = [
        report.node for report in reports if isinstance(report.machine, Machine) and report.machine.gpus < _SEVERAL
    ]
    if plan.needs_cards and without:
        once = f"Without several cards, {plan.launcher} starts the script once, and sets no RANK"
        remedy = (
            "Give --multi_gpu (also for ranks on the CPU), unless other cards are there or the default configuration file names "
            "the kind of launch: preflight sees neither."
        )
        text = f"{shorten(without)}: no two NVIDIA cards found. {once}"
        yield Check(name="launch", status="warn", nodes=tuple(without), text=text, remedy=remedy)


def counted_ranks(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """How many ranks a launcher starts that counts the cards or the cores of each node. Only NVIDIA's cards are seen."""
    for report in reports if plan.counted is not None and plan.ranks_per_node is None else ():
        number = count_ranks(report, plan)
        if number is None:
            continue
        by_core = plan.counted in RANK_PER_CORE and not _count_cards(report)
        of = "core that it may use" if by_core else "NVIDIA card"
        torch = report.versions.get("torch")
        lacks = (
            f", because torch {torch} sees no card"
            if _sees_no_card(report)
            else ", if torch sees no card: none was found"
        )
        why = lacks if by_core and plan.counted in RANK_PER_CARD else ""
        text = f"{report.node}: {amount(number, 'rank')}, one for each {of}{why}"
        yield Check(name="launch", status="pass", text=text)


def count_ranks(report: NodeReport, plan: Plan) -> int | None:
    """How many ranks the launch starts on a node; None if neither the line nor what the node has determines it."""
    if plan.ranks_per_node is not None or plan.counted is None:
        return plan.ranks_per_node
    cards = _count_cards(report)
    if plan.counted in RANK_PER_CARD and cards != 0:
        return cards
    return report.usable_cores if plan.counted in RANK_PER_CORE else None


def _sees_no_card(report: NodeReport) -> bool:
    """Whether the torch of the launch can see no card."""
    return BUILD_WITHOUT_CARDS in (report.versions.get("torch") or "") and report.other_python is None


def _count_cards(report: NodeReport) -> int | None:
    """The cards that torch counts; None if that is not known."""
    if _sees_no_card(report):
        return 0
    if not isinstance(report.machine, Machine) or (report.machine.gpus and _CARDS in report.environment):
        return None
    return report.machine.gpus


def counted_cards(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """A launcher that ends at once where it counts no card finds one. Only NVIDIA's are seen."""
    remedy = (
        "Give the number of ranks as a number, or as `auto`: that takes the number of cores where there is no card."
    )
    for report in reports if plan.counted in ENDS_WITHOUT_CARD else ():
        torch, ends = report.versions.get("torch") or "", f"{plan.launcher} ends at once"
        if _sees_no_card(report):
            text = f"torch {torch} on {report.node} sees no card, and --nproc-per-node gpu counts the cards: {ends}"
            yield Check(name="launch", status="fail", nodes=(report.node,), text=text, remedy=remedy)
        elif isinstance(report.machine, Machine) and not report.machine.gpus:
            text = f"{report.node}: no NVIDIA card found. --nproc-per-node gpu counts the cards: without any, {ends}"
            yield Check(name="launch", status="warn", nodes=(report.node,), text=text, remedy=remedy)


def options(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """The launcher has the options of the line. A newer torch may have more of them."""
    installed = {report.node: version(report.versions.get("torch") or "") for report in reports}
    refused = tuple(node for node, torch in installed.items() if torch is not None and torch[:2] <= TORCHRUN_READ_IN)
    for name, similar in plan.unknown_options.items():
        remedy = f"Did you mean {', '.join(similar)}?" if similar else "Correct it, or leave it out."
        newest = ".".join(map(str, TORCHRUN_READ_IN))
        text = f"up to torch {newest}, torchrun has no option {name} and refuses it"
        status = "fail" if refused else "warn"
        yield Check(name="options", status=status, nodes=refused or tuple(installed), text=text, remedy=remedy)


def versions(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """All nodes have the same versions."""
    for name in ("torch", "Python", "hangdoc"):
        values = {report.node: report.versions.get(name) for report in reports}
        if name == "torch" and None in values.values():
            yield from _torch(reports)
        else:
            status = "fail" if name == "torch" else "warn"
            yield agree(name, values, f"Install the same {name} on all nodes (HD503).", status)


def _torch(reports: Sequence[NodeReport]) -> Iterator[Check]:
    """The nodes without torch. hangdoc may run with another Python than the launch will."""
    without = [report for report in reports if report.versions.get("torch") is None]
    if missing := [report.node for report in without if report.other_python is None]:
        yield Check(name="torch", status="fail", nodes=tuple(missing), text=f"not installed on {shorten(missing)}",
                    remedy="Install torch in the environment that the launch will use.")  # fmt: skip
    if elsewhere := [report for report in without if report.other_python is not None]:
        nodes, first = [report.node for report in elsewhere], elsewhere[0]
        name = NAME if first.portable else "hangdoc"
        text = f"not checked on {shorten(nodes)}: {name} runs with {first.other_python}, which has no torch"
        remedy = "Name the launch with the path of its launcher: hangdoc preflight -- /PATH/torchrun ... train.py."
        if first.portable:
            remedy = f"Run {NAME} with the Python of the launch: {first.launcher_python or 'PYTHON'} {NAME} preflight."
        yield Check(name="torch", status="warn", nodes=tuple(nodes), text=text, remedy=remedy)


def data(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """All nodes have the same data."""
    for report in reports:
        for problem in report.problems:
            yield Check(
                name="data",
                status="fail",
                nodes=(report.node,),
                text=f"{report.node}: {problem}",
                remedy="Mount or copy the data there.",
            )
        yield from (_judge_missing(missing, report, reports) for missing in report.missing_data)
    origins = dict.fromkeys(source.origin for report in reports for source in report.data)
    for origin in origins:
        sources = {report.node: next((s for s in report.data if s.origin == origin), None) for report in reports}
        named = {report.node for report in reports if origin in {missing.origin for missing in report.missing_data}}
        missing = [node for node, source in sources.items() if source is None and node not in named]
        seen = {node: source for node, source in sources.items() if source is not None}
        counts = {node: amount(source.files, "file") for node, source in seen.items()}
        where = "; ".join(f"{node} {source.path}: {source.files}" for node, source in list(seen.items())[:4])
        if missing and len(reports) > 1:
            yield Check(name="data", status="warn", nodes=tuple(missing),
                        text=f"{origin} is set only on {shorten(list(seen))} ({where}); {shorten(missing)} uses a default",
                        remedy="Set the same data on all nodes. Ranks with different amounts of data hang (HD101).")  # fmt: skip
        elif len(set(counts.values())) > 1:
            yield Check(name="data", status="fail", nodes=tuple(counts), text=f"{origin}: {where}",
                        remedy="Copy the missing shards. Ranks with different amounts of data hang (HD101).")  # fmt: skip
        elif len({source.digest for source in seen.values()}) > 1:
            yield Check(name="data", status="warn", nodes=tuple(seen), text=f"{origin}: same count, different files ({where})",
                        remedy="Copy the same files to all nodes, or the replicas train on different data (HD104).")  # fmt: skip
        elif any(source.files == 0 for source in seen.values()):
            yield Check(
                name="data",
                status="warn",
                nodes=tuple(seen),
                text=f"{origin}: no shards ({where})",
                remedy="Copy the shards there.",
            )
        else:
            same = ", the same on all nodes" if len(reports) > 1 else ""
            yield Check(name="data", status="pass", text=f"{origin}: {next(iter(counts.values()))}{same}")


def _judge_missing(missing: MissingPath, report: NodeReport, reports: Sequence[NodeReport]) -> Check:
    """Many programs download or prepare their data at the start. Nothing shows that they do so on some nodes only."""
    if missing.refused:
        return judge_refused("data", missing, report)
    elsewhere = any(missing.path == source.path for other in reports for source in other.data)
    must_exist = missing.must_exist or elsewhere
    remedy = "Mount or copy the data there" + (
        "." if must_exist else ", unless the script itself makes or downloads it."
    )
    text = f"{report.node}: the data {missing.path} ({missing.origin}) does not exist"
    if missing.may_be_name and not must_exist:
        text += "; it may be the name of a data set instead"
        return Check(
            name="data", status="unknown", nodes=(report.node,), text=text, remedy="If it is a path, correct it."
        )
    status: Literal["fail", "warn"] = "fail" if must_exist else "warn"
    return Check(name="data", status=status, nodes=(report.node,), text=text, remedy=remedy)


def judge_refused(name: str, missing: MissingPath, report: NodeReport) -> Check:
    """A path that the user of preflight may not look for or read: the user of the launch may."""
    text = f"{report.node}: {missing.path} ({missing.origin}) cannot be checked by this user: {missing.refused}"
    return Check(name=name, status="unknown", nodes=(report.node,), text=text, remedy=ASK_ITS_USER)


def arguments(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """Arguments and variables that must agree do agree."""
    if len(reports) < 2:
        return
    wrong = 0
    arguments = {report.node: settings.options(("", *report.arguments)) for report in reports}
    written = {
        name: shown
        for report in reversed(reports)
        for name, shown in settings.names_as_written(("", *report.arguments)).items()
    }
    for name in sorted({name for options in arguments.values() for name in options}):
        argument = settings.argument(name)
        values = {node: spell_value(options[name]) if name in options else None for node, options in arguments.items()}
        if len(set(values.values())) > 1 and argument is not None and argument.kind in ("collectives", "numbers"):
            wrong += 1
            by_default = depend_on_default(values.values())
            default = "Where it is not given, the default of the script decides. " if by_default else ""
            why = f"{argument.why} (HD501). {default}Launch all nodes with the same value."
            fails = argument.kind == "collectives" and not by_default
            yield agree(written[name], values, why, "fail" if fails else "warn")
    for name in sorted({name for report in reports for name in report.environment}):
        setting = settings.variable(name)
        values = {report.node: report.environment.get(name) for report in reports}
        if setting is not None and setting.kind == "meeting":
            values = {node: value if value is None else spell_number(value) for node, value in values.items()}
        if (
            len(set(values.values())) > 1
            and setting is not None
            and setting.kind in ("collectives", "meeting", "numbers")
        ):
            wrong += 1
            yield agree(name, values, f"{setting.why} (HD502).", "warn" if setting.kind == "numbers" else "fail")
    if not wrong:
        yield Check(
            name="settings", status="pass", text="all arguments and variables that must agree are the same on all nodes"
        )


def left_over(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """No rank of an earlier run is still running, and no other run."""
    for report in reports:
        for text in _shorten_runs(report.left_over, "rank"):
            end = _END_IT if text in report.left_over else _END_THEM
            uses = _AT_WORK if text in report.left_over_at_work else _AT_REST
            yield Check(name="left-overs", status="warn", nodes=(report.node,), text=f"{report.node}: {text}",
                        remedy=f"{end} {uses} (HD305).")  # fmt: skip
        for text in _shorten_runs(report.running, "run"):
            yield Check(name="other runs", status="warn", nodes=(report.node,), text=f"{report.node}: {text}",
                        remedy=_THEY_SHARE)  # fmt: skip
        resting = {each.text: each for each in report.resting}
        for text in _shorten_runs(tuple(resting), "run"):
            look = "See whether they hang: `hangdoc diagnose`."
            if text in resting:
                look = f"See whether the run hangs: `{_write_diagnose(resting[text])}`."
            end = _END_IT if text in resting else _END_THEM
            yield Check(name="other runs", status="warn", nodes=(report.node,), text=f"{report.node}: {text}",
                        remedy=f"{_REST} {look} {end} {_AT_REST}.")  # fmt: skip
        yield from _list_foreign(report)
    if not any(report.left_over or any(run.left_over for run in report.foreign) for report in reports):
        only = dict.fromkeys(each.only for report in reports for each in report.attach if each.only)
        limit = f"; hangdoc can recognize only {' and '.join(only)}" if only else ""
        yield Check(name="left-overs", status="pass", text=f"no rank without a launcher is running{limit}")


def _list_foreign(report: NodeReport) -> Iterator[Check]:
    """The runs that only their users and root can look at and end."""
    runs = {run.text: run for run in report.foreign}
    for text in _shorten_runs(tuple(runs), "run"):
        run = runs.get(text)
        name = "left-overs" if run is not None and run.left_over else "other runs"
        remedy = _ask_user(run) if run is not None else "They belong to other users: ask these, or root."
        yield Check(name=name, status="warn", nodes=(report.node,), text=f"{report.node}: {text}", remedy=remedy)


def _ask_user(run: OtherRun) -> str:
    """Who can look at a run and end it, and what it uses."""
    who = "root" if run.user == "root" else f"{run.user} and root"
    seen = f"{_REST} " if run.at_rest else ""
    return (
        f"{seen}The run belongs to {run.user}: only {who} can see whether it hangs (`{_write_diagnose(run)}`), and "
        f"end it. Ask {run.user} whether it is still needed: it uses {_AT_REST if run.at_rest else _AT_WORK}"
        f"{' (HD305)' if run.left_over else ''}."
    )


def _write_diagnose(run: OtherRun) -> str:
    """The command that looks at a run: with one launcher of several, it would miss the ranks of the others."""
    return " ".join(("hangdoc diagnose", *(f"--pid {pid}" for pid in (run.pid, *run.other_pids))))


def _shorten_runs(texts: Sequence[str], what: str) -> tuple[str, ...]:
    """The first texts, and one that counts the others: `2 more runs, which hangdoc diagnose lists`."""
    left_out = len(texts) - _SHOWN
    more = (f"{amount(left_out, f'more {what}')}, which hangdoc diagnose lists",) if left_out > 0 else ()
    return (*texts[:_SHOWN], *more)


def attach(reports: Sequence[NodeReport], links: Sequence[Link], plan: Plan) -> Iterator[Check]:
    """hangdoc is able to observe the ranks on all nodes."""
    bad = [(report.node, ability) for report in reports for ability in report.attach if not ability.works]
    for node, ability in bad[:8]:
        yield Check(
            name="hangdoc",
            status="warn",
            nodes=(node,),
            text=f"{node}: {ability.name}: {ability.found}",
            remedy=ability.remedy,
        )
    if not bad:
        yield Check(name="hangdoc", status="pass", text="will be able to diagnose the run if it freezes")
