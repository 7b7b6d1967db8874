"""The report: many ranks, odd values, no colour, pages."""

import io
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from docs.reports import FOLDER
from hangdoc import codec
from hangdoc.diagnosis import Evidence, Operation, RankView, Unseen, Where
from hangdoc.phrases import beginning, duration, numbers
from hangdoc.reasoning.build.absent import _unlooked
from hangdoc.reasoning.engine import diagnose, examine
from hangdoc.reasoning.model.rank import Wait
from hangdoc.reasoning.text import words as sentence_words
from hangdoc.render import html_ranks, words
from hangdoc.render.text import report
from hangdoc.render.words import loops_of_batches, name_uncounted
from hangdoc.snapshot import FileBytes, Process, Snapshot, Stack, Unavailable
from hangdoc.torch_facts import call_names, file_names
from tests.rules import fires
from tests.rules.shapes import machine
from tests.unit.builders import c10d, frame, rank, snapshot, stack


def lines(evidence: Snapshot, width: int = 80) -> list[str]:
    out = io.StringIO()
    report(diagnose(evidence), Console(file=out, width=width))
    return out.getvalue().splitlines()


def many(world: int = 64) -> Snapshot:
    waiting = [rank(n, *c10d("all_reduce"), frame("main", 5), world=world) for n in range(world - 1)]
    return snapshot(*waiting, rank(world - 1, frame("work", 3), world=world, state="T"), silence=None)


def test_several_runs_are_listed_first() -> None:
    """A shared host: what tells the runs apart, and what is wrong with each."""

    def run(port: int, **more: Any) -> list[Process]:
        ranks = [
            rank(n, *c10d("all_reduce"), frame("main", 5), uid=1000, cwd=f"/home/me/{port}", **more) for n in (0, 1)
        ]
        return [
            replace(one, pid=one.pid + port, owner=port, identity=replace(one.identity, master_port=port, run_id=str(port)))
            for one in ranks if one.identity is not None
        ]  # fmt: skip

    shown = lines(snapshot(*run(7), *run(9, state="T"), silence=None))
    assert shown[0] == "2 runs"
    assert beginning("\n".join(shown)).startswith("HUNG")  # in a log
    text = " ".join(" ".join(shown[:8]).split())
    assert "train.py · 2 ranks" in text
    assert "HD302 rank-stopped, ranks 0-1 --job 9@10.0.0.1:9, pid 109 on h0, uid 1000, in /home/me/9" in text


def test_an_overloaded_host_is_one_sentence_and_progress_is_said_where_cpu_time_was_not_read() -> None:
    late = Unavailable(reason="it could not be read within 0.2 s")
    ranks = [
        replace(rank(n, frame("main", 5), clocks=late), stack_before=stack(frame("main", 4 if n else 5)))
        for n in (0, 1)
    ]
    texts = ("pid 100: it could not be read within 0.2 s", "the stacks probe was abandoned: it had not ended")
    told = {
        load: " ".join(" ".join(lines(snapshot(*ranks, late=texts, machine=machine(cores=2, load_1m=load)))).split())
        for load in (1.0, 23.0)
    }
    assert all(text in told[1.0] and text not in told[23.0] for text in texts)
    overloaded = (
        "the host is overloaded (load 23 on 2 cores): not read in time: CPU times of pids 100-101; 2 readings in all"
    )
    assert overloaded in told[23.0]
    moving = snapshot(*(replace(one, stack_before=stack(frame("main", 4))) for one in ranks), silence=None)
    assert "Every rank is making progress: ranks 0-1: its stack changed." in lines(moving)


@pytest.mark.parametrize(("cpu_read", "verdict"), [(True, "healthy"), (False, "unknown")])
def test_a_stack_of_one_moment_shows_no_progress(cpu_read: bool, verdict: str) -> None:
    thread = replace(stack(frame("main", 5)).threads[0], active=True)
    at = Stack(at_seconds=0.0, threads=(thread,))
    seen = rank(0, cpu=0.9, world=1, stack=at, stack_before=at)
    clocks = seen.clocks if cpu_read else Unavailable(reason="it could not be read in time")
    assert diagnose(snapshot(replace(seen, clocks=clocks), silence=None)).verdict == verdict


def test_words_that_fit_what_was_seen() -> None:
    one = diagnose(snapshot(rank(0, frame("main", 5), cpu=0.9), silence=None)).jobs[0]
    unseen = (Unseen(rank=1, why=_unlooked("h0", {}, (), restricted=False).why),)
    partly = replace(one, verdict="healthy", unseen=unseen)
    assert words.without_finding(partly) == "Every observed rank is making progress."
    assert unseen[0].why == "no process was found on h0: not started yet, or already gone"
    view = replace(one.ranks[0], label="blocked", state="waiting-data", progress=None)
    loads = replace(one, verdict="healthy", unseen=(), ranks=(view,))
    assert words.without_finding(loads) == "Every rank is making progress, and waits for its dataloader now."
    still = words.without_finding(replace(loads, verdict="waiting"))
    assert still == "No rank is making progress, but no rank is waiting for another rank."
    ended = replace(view, rank=1, label="dead", state="exited")
    ending = words.without_finding(replace(loads, verdict="waiting", ranks=(view, ended)))
    assert ending == "No rank is making progress, but no rank is waiting for another rank; rank 1 has ended."
    assert words.operation(Operation(op="rpc_sync", peer=0)) == "rpc_sync to 0"
    assert file_names.origin_of_call("/x/torch/nn/parallel/distributed.py", "DDP._run_ddp_forward") == "user"
    assert call_names.key_as_written("/default_pg/0//ckpt/ready") == "ckpt/ready"


def test_a_rank_that_hardly_computes_is_at_work() -> None:
    moved = FileBytes(read_bytes=1 << 20, written_bytes=0)
    ranks = (rank(0, *c10d("barrier"), frame("main", 5)), rank(1, frame("load", 7), files=moved))
    (finding,) = diagnose(snapshot(*ranks)).jobs[0].findings
    assert "rank 1, which is at work at " in finding.summary


def test_a_log_has_the_beginning_of_a_report_and_what_to_do() -> None:
    shown = beginning("\n".join(lines(fires("HD203")))).splitlines()
    assert shown[0].startswith("HUNG")
    assert not any("evidence" in line or "$ " in line for line in shown)
    at = next(number for number, line in enumerate(shown) if line.startswith("  to do "))
    assert " ".join(" ".join(shown[at:]).split()) == f"to do {diagnose(fires('HD203')).jobs[0].findings[0].remedy}"


def test_equal_ranks_are_one_row() -> None:
    shown = lines(many())
    rows = [line for line in shown if line.startswith("0-62 ")]
    assert len(rows) == 1
    assert "blocked: in-collective" in rows[0]
    assert any(line.startswith("63 ") and "stopped" in line for line in shown)
    assert len(shown) < 40
    assert max(map(len, shown)) <= 80


def test_a_culprit_has_a_row_of_its_own_and_different_cpu_is_no_average() -> None:
    (job,) = diagnose(many()).jobs
    ranks = tuple(replace(job.ranks[0], rank=number, cpu_percent=percent) for number, percent in enumerate((2, 74, 4)))
    (finding, *_) = job.findings
    blamed = replace(job, ranks=ranks, findings=(replace(finding, culprits=(1,)), replace(finding, culprits=())))
    assert [[view.rank for view in group] for group in words.classes(blamed)] == [[0, 2], [1]]
    all_blamed = replace(blamed, findings=(replace(finding, culprits=(0, 1, 2)),))
    (together,) = words.classes(all_blamed)
    assert (words.cpu(together), words.cpu([ranks[0], ranks[2]]), words.cpu([])) == ("2-74%", "3%", "-")


def test_columns_that_would_be_cut_move_together() -> None:
    """With the passes of the ranks, the table is too wide for 80 columns with two spaces between its columns."""
    (job,) = (diagnosis := diagnose(snapshot(*(rank(n, *c10d("all_reduce"), frame("main", 5)) for n in (0, 1))))).jobs
    views = [
        replace(view, pid=18_087 + view.rank, batches_done=54, batches_total=54, batches_ended=True,
                state="in-collective-call-1", batches_pass_number=10 + view.rank) for view in job.ranks
    ]  # fmt: skip
    for width, title in ((100, "  pass  "), (80, " pass ")):
        out = io.StringIO()
        report(replace(diagnosis, jobs=(replace(job, ranks=tuple(views)),)), Console(file=out, width=width))
        shown = out.getvalue().splitlines()
        header = next(line for line in shown if line.startswith("rank"))
        assert title in header and header.endswith("silent") and max(map(len, shown)) <= width
        assert any(line.startswith("0 ") and "in-collective-call-1 " in line for line in shown)
        assert "pass     which pass over its data a rank is in (its epoch), from 1" in shown


def test_a_run_on_many_hosts_fits_a_screen_and_names_the_culprits_host() -> None:
    """The example of docs/howto/frozen-now.md."""
    shown = lines(codec.read(FOLDER / "large.hangdoc"))
    assert len(shown) <= 38
    assert max(map(len, shown)) <= 80
    assert "  culprit   rank 37 on node4" in shown
    assert not any("min…" in line or "34…" in line for line in shown)
    assert sum("12 min" in line for line in shown if line.startswith(("0-36, 38-63 ", "37 "))) == 2


def test_six_lines_of_evidence_unless_verbose() -> None:
    found = diagnose(fires("HD101"))
    evidence = found.jobs[0].findings[0].evidence
    assert len(evidence) == 7
    short, long = (io.StringIO(), io.StringIO())
    report(found, Console(file=short, width=200))
    report(found, Console(file=long, width=200), verbose=True)
    assert [one.text in short.getvalue() for one in evidence] == [True] * 6 + [False]
    assert "... 1 more (--verbose)" in short.getvalue()
    assert all(one.text in long.getvalue() for one in evidence)
    assert "more (--verbose)" not in long.getvalue()
    assert "--verbose shows nothing more here" not in long.getvalue()


def test_verbose_says_that_the_page_has_no_stacks_of_ranks_that_move() -> None:
    found = diagnose(fires("HD203"))
    moving = tuple(replace(view, label="computing", where_source="recorder") for view in found.jobs[0].ranks)
    out = io.StringIO()
    report(replace(found, jobs=(replace(found.jobs[0], ranks=moving),)), Console(file=out, width=200), verbose=True)
    assert "--html has the stacks, but not of ranks that move (--stacks reads them), --json" in out.getvalue()


@pytest.mark.parametrize(
    ("age", "shown"),
    [(0.4, "last call at t.py:34 in main"), (5.8, "last call 5.8 s ago at t.py:34 in main; its stack was not read")],
)
def test_the_place_of_an_old_call_has_its_age(age: float, shown: str) -> None:
    """A rank that had slept for 5 s in its checkpoint was shown at the line of its last call."""
    found = diagnose(fires("HD203"))
    left = {"label": "computing", "where_source": "recorder", "operation": None, "stack_seconds_ago": age}
    ranks = (replace(found.jobs[0].ranks[0], **left, where=Where(file="t.py", line=34, function="main")),)
    out = io.StringIO()
    report(replace(found, jobs=(replace(found.jobs[0], ranks=ranks),)), Console(file=out, width=200))
    assert f"rank 0  {shown}\n" in out.getvalue()


def test_the_pids_of_all_launchers_of_a_run_are_listed() -> None:
    """Of two nodes on one host, `--pid` with one of them gave half of the run."""
    agent = rank(0, pid=50, role="launcher", identity=None, parent_argv=(), owner=None)
    ranks = [rank(n, *c10d("all_reduce"), frame("main", 5), owner=50 + n // 2, world=4) for n in range(4)]
    (job,) = diagnose(snapshot(agent, replace(agent, pid=51), *ranks, silence=None)).jobs
    assert job.started_by is not None and (job.started_by.pid, job.started_by.pids) == (50, (50, 51))
    assert ", pids 50, 51 on h0" in words.origin(job)
    (one,) = diagnose(snapshot(agent, *(replace(each, owner=50) for each in ranks), silence=None)).jobs
    assert ", pid 50 on h0" in words.origin(one)


def test_the_shell_of_a_rank_that_started_the_others_is_no_launcher() -> None:
    """As with Lightning: the parent of the first rank was listed as a launcher."""
    first = rank(0, *c10d("all_reduce"), frame("main", 5), pid=100, owner=50, world=3)
    ranks = [first, *(rank(n, *c10d("all_reduce"), frame("main", 5), pid=100 + n, owner=100, world=3) for n in (1, 2))]
    (job,) = diagnose(snapshot(*ranks, silence=None)).jobs
    assert job.started_by is not None and (job.started_by.pid, job.started_by.pids) == (100, ())


def test_verbose_shows_all_findings_whole_or_says_that_there_is_no_more() -> None:
    whole = io.StringIO()
    report(diagnose(fires("HD203")), Console(file=whole, width=200), verbose=True)
    assert "--verbose shows nothing more here" in whole.getvalue()
    assert "--html has the stacks, --json" in whole.getvalue()
    found = diagnose(many())
    first = found.jobs[0].findings[0]
    fact = replace(first, severity="info", evidence=(Evidence(0, "cpu", "a fact of its own"),))
    found = replace(found, jobs=(replace(found.jobs[0], findings=(first, fact)),))
    for verbose in (False, True):
        out = io.StringIO()
        report(found, Console(file=out, width=200), verbose=verbose)
        assert ("a fact of its own" in out.getvalue()) == verbose


def test_the_pids_of_a_row_are_shown_as_far_as_they_fit() -> None:
    two = lines(snapshot(*(rank(n, *c10d("all_reduce"), frame("main", 5)) for n in (0, 1))))
    assert any(" 100-101  " in line for line in two)
    apart = [rank(n, *c10d("all_reduce"), frame("main", 5), pid=1000 * (n + 2), world=8) for n in range(8)]
    assert any(" 2000…  " in line for line in lines(snapshot(*apart, silence=None)))
    four = snapshot(
        *(rank(n, *c10d("all_reduce"), frame("main", 5), pid=10_000 * (n + 1), world=4) for n in range(4)), silence=None
    )
    assert any(" 10000, 20000, 30000, 40000 " in line for line in lines(four))
    assert any(" 10000… " in line for line in lines(four, width=60))


def test_unobserved_ranks_with_the_same_reason_are_one_line() -> None:
    shown = lines(fires("HD401"))
    assert [line for line in shown if line.startswith("ranks 0-7")] == [
        "ranks 0-7: not started yet: the launchers are still waiting in the rendezvous"
    ]


def test_a_rank_that_does_what_it_is_meant_to_is_no_culprit_and_missing_evidence_is_not_sure() -> None:
    assert [line.split()[0] for line in lines(fires("HD602")) if line.endswith("  rank 1")] == ["awaited"]
    assert [line.split()[0] for line in lines(fires("HD302")) if line.endswith("  rank 1")] == ["culprit"]
    assert not any(line.endswith("sure") for line in lines(fires("HD901")))


def test_a_wider_terminal_and_a_narrow_one() -> None:
    assert max(map(len, lines(many(), 200))) <= 200
    assert max(map(len, lines(many(), 60))) <= 60


def test_text_from_processes_cannot_speak_to_the_terminal() -> None:
    evil = rank(0, frame("main", 5, "/home/me/[red]x\x1b]0;t\x07.py", source="\x1b[2J[bold]"), state="T", world=1)
    text = "\n".join(lines(snapshot(evil)))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]" in text


def test_the_loop_whose_rounds_are_shown_as_batches_is_named_where_it_is_not_one_loop_over_data() -> None:
    """`0/4` of a loop over micro-batches, and the batches of a validation that only rank 0 does."""
    data, micro = "for batch in loader", "for m in range(4)"

    def views_of(*headers: str | None) -> tuple[RankView, ...]:
        loops = [Where(file="t.py", line=len(header or ""), function="f", source=header) for header in headers]
        return tuple(
            replace(view, batches_done=3, batches_loop=loop) if loop.source else replace(view, batches_done=None)
            for view, loop in zip(diagnose(many(len(headers))).jobs[0].ranks, loops, strict=True)
        )

    def named(*headers: str | None) -> str:
        return loops_of_batches(replace(diagnose(many(len(headers))).jobs[0], ranks=views_of(*headers)))

    assert named(data, data) == ""
    assert named(micro, micro) == "rounds of `for m in range(4)` at t.py:17"
    assert named(data, None) == "rank 0: rounds of `for batch in loader` at t.py:19"
    unseen = replace(diagnose(many(3)).jobs[0], ranks=views_of(data, None, data))
    assert name_uncounted(unseen) == "rank 1: no loop over batches is seen"
    moves = replace(unseen.ranks[1], label="computing", state="computing", where_source="recorder")
    moving = replace(unseen, ranks=(unseen.ranks[0], moves, unseen.ranks[2]))
    assert name_uncounted(moving) == "rank 1: not read, since it moves"
    loop = Where(file="t.py", line=17, function="f", source=micro)
    some = [replace(view, batches_done=3, batches_loop=loop if view.rank == 0 else None) for view in unseen.ranks]
    assert loops_of_batches(replace(unseen, ranks=tuple(some))) == "rank 0: rounds of `for m in range(4)` at t.py:17"
    assert named(data, micro, data) == (
        "ranks 0, 2: rounds of `for batch in loader` at t.py:19; rank 1: rounds of `for m in range(4)` at t.py:17"
    )


def test_the_caller_of_a_comprehension_is_another_line() -> None:
    """`called at t.py:20` behind `waiting in all_gather at t.py:20`: a comprehension has a frame at the line of its function."""
    waits = Wait("collective", Operation(op="wait"), way=(("t.py", 20), ("t.py", 20), ("t.py", 30)))
    _, (run,) = examine(many(2))
    seen = replace(run.ranks[0], wait=waits)
    assert sentence_words._called_at(seen) == ", called at t.py:30"
    assert sentence_words._called_at(replace(seen, wait=replace(waits, way=waits.way[:2]))) == ""


def test_batches_say_their_pass_where_ranks_are_in_different_ones() -> None:
    diagnosis = diagnose(many(2))
    job = diagnosis.jobs[0]
    first, second = (replace(view, batches_total=20, batches_pass_number=7) for view in job.ranks)
    ahead, behind = replace(first, batches_done=0), replace(second, batches_done=20, batches_ended=True)

    def shown(*views: RankView) -> tuple[list[str], list[str]]:
        out, among = io.StringIO(), replace(job, ranks=views)
        report(replace(diagnosis, jobs=(among,)), Console(file=out, width=80))
        rows = [line for line in out.getvalue().splitlines() if "/20" in line or line.startswith("rank  host")]
        cells = [" ".join(line.split("%")[-1].split()[:2]) for line in rows[1:]] if "pass" in rows[0] else []
        return cells, [line.batches for line in html_ranks.table(among, frozenset()).lines]

    assert shown(ahead, behind) == ([], ["0/20", "20/20, ended"])
    assert shown(ahead, replace(behind, batches_pass_number=6)) == (
        ["7 0/20", "6 20/20,"],
        ["0/20 of pass 7", "20/20 of pass 6, ended"],
    )


def test_phrases() -> None:
    assert numbers([5, 0, 1, 2, 2]) == "0-2, 5"
    assert numbers([]) == ""
    assert [duration(s) for s in (4.23, 48.2, 200, 7500, 604_800, 604_740 - 3600)] == [
        "4.2 s",
        "48 s",
        "3 min 20 s",
        "2 h 5 min",
        "7 d",
        "6 d 23 h",
    ]
