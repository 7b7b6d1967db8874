"""Cycles of calls: exactly one kind, and the right ranks to blame."""

from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.diagnosis import Job
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.ranks.made_work import find_made_call
from hangdoc.snapshot import (
    AwaitedFile,
    Connection,
    Connections,
    Counter,
    Exit,
    Frame,
    Group,
    Holder,
    Interpreter,
    Loader,
    Local,
    Loop,
    Loops,
    Process,
    Progress,
    PythonThread,
    Stack,
    TrainerCount,
    Transfer,
)
from tests.unit.builders import backward, c10d, frame, local, native_backward, rank, silent, snapshot, stack


def call(number: int, op: str, peer: int | None = None, *, world: int, line: int = 5) -> Process:
    key = "dst" if op == "send" else "src"
    arguments = () if peer is None else (local(key, peer),)
    return rank(number, *c10d(op, *arguments), frame("main", line), world=world)


def job(*processes: Process) -> Job:
    diagnosis = diagnose(snapshot(*processes))
    assert not diagnosis.problems
    return diagnosis.jobs[0]


def blamed(found: Job) -> list[tuple[str, str, tuple[int, ...], tuple[int, ...]]]:
    assert len(found.blockages) == len(found.findings) == 1
    return [(found.blockages[0].kind, f.code, f.culprits, f.victims) for f in found.findings]


def test_a_stage_that_receives_from_the_wrong_neighbour() -> None:
    """Stage 2 of 4 waits for stage 3, which waits for stage 2; stage 1 wants to send to it, and stage 0 to stage 1."""
    found = job(
        call(0, "send", 1, world=4),
        call(1, "send", 2, world=4),
        call(2, "recv", 3, world=4),
        call(3, "recv", 2, world=4),
    )
    assert blamed(found) == [("point-to-point", "HD204", (2,), (0, 1, 3))]


def test_a_young_cycle_with_data_in_transit_tells_from_when_on_it_is_a_hang() -> None:
    """Bytes on their way may end it: only its age tells that they do not."""
    sockets = silent(2, 10.0)
    on_their_way = tuple(replace(each, unacked=1) for each in sockets.connections)
    ranks = [call(0, "recv", 1, world=2), call(1, "recv", 0, world=2)]
    young = diagnose(snapshot(*ranks, connections=Connections(connections=on_their_way))).jobs[0]
    assert young.verdict == "waiting"
    assert young.findings[0].summary.endswith("; this has lasted 10 s and counts as HUNG from 30 s on")
    still = diagnose(snapshot(*ranks, connections=sockets)).jobs[0]
    assert (still.verdict, "counts as" in still.findings[0].summary) == ("hung", False)


def test_what_ranks_have_posted_together_tells_who_names_the_wrong_peer() -> None:
    """Rank 2 of a ring sends to rank 0 in place of rank 3; ranks 0 and 1 are in the next round."""
    loop = Loop(line=18, end_line=19, header="for step in range(50)", counters=("step",), every=1, start=0, bound="50")
    cpp = {"send": "UnboundBuffer::waitSend", "recv": "UnboundBuffer::waitRecv"}
    posted = {0: ([1, 3], [3, 1]), 1: ([2, 0], [0, 2]), 2: ([0, 1], [1, 3]), 3: ([0, 2], [2, 0])}

    def at(number: int, waits: str, step: int) -> Process:
        sends, receives = posted[number]
        calls = [f"P2POp(isend, {peer})" for peer in sends] + [f"P2POp(irecv, {peer})" for peer in receives]
        ops = tuple(local(f"ops[{at}]", call) for at, call in enumerate(calls))
        frames = (frame("exchange", 16, locals=ops, source="work.wait()", native=False),
                  frame("main", 19, loops=(loop,), locals=(local("step", step),)))  # fmt: skip
        inner = frame(f"gloo::transport::tcp::{cpp[waits]}", 0, "libtorch_cpu.so", native=True)
        return rank(number, *frames, world=4, native=stack(inner, *frames))

    ranks = [at(0, "recv", 7), at(1, "send", 7), at(2, "send", 6), at(3, "recv", 6)]
    found = job(*ranks)
    assert blamed(found) == [("unposted", "HD204", (2, 3), (0, 1))]
    assert found.findings[0].summary == "rank 3 has posted a receive from rank 2, which has posted no send to it"
    assert "rank=2, probe='variables', text='has posted sends to ranks 0-1 and receives from ranks 1, 3'" in str(
        found.findings[0].evidence
    )
    # The source has a send beside the list: rank 2 may have sent with that.
    own = frame("main", 19, loops=(loop,), locals=(local("step", 6),), transfers=(Transfer(line=12, call="isend"),))
    beside = [stack(*each.stack.threads[0].frames[:-1], own) for each in ranks if isinstance(each.stack, Stack)]
    found = job(*(replace(each, stack=one, stack_before=one) for each, one in zip(ranks, beside, strict=True)))
    assert "posted" not in found.findings[0].summary


@pytest.mark.parametrize(
    ("line", "culprits"),
    [
        ("work = dist.isend(buf, dst=1); work.wait()", (1,)),
        ("work = dist.isend(buf, 1); work.wait()", (1,)),
        ("work = dist.isend(buf, dst=peer); work.wait()", (0, 1, 2)),
    ],
)
def test_the_peer_in_the_call_whose_work_is_waited_for(line: str, culprits: tuple[int, ...]) -> None:
    own = frame("main", 7, source=line, context=line)
    inner = frame("gloo::transport::tcp::UnboundBuffer::waitSend", 0, "libtorch_cpu.so", native=True)
    sends = rank(0, own, world=3, native=stack(inner, own))
    reduces = [rank(number, *c10d("all_reduce"), frame("main", 10), world=3) for number in (1, 2)]
    assert job(sends, *reduces).findings[0].culprits == culprits


COLLECT = """def collect(self):
    bufs, works = [], []
    for a in range(1, self.n + 1):
        tag = 10 + a
        if self.bug: tag = 10 + a + 100
        works.append(dist.irecv(b, src=a, tag=tag)); bufs.append(b)
    for a, w in enumerate(works):
        w.wait()"""


def collects(at: int, tag: int) -> Process:
    """Rank 0, which waits for the work at a place among three, with the tag of the last one in its variable."""
    loop = Loop(line=7, end_line=8, header="for (a, w) in enumerate(works)", counters=("a",), every=1, start=0)
    own = frame("Learner.collect", 8, source="w.wait()", context=COLLECT, loops=(loop,),
                locals=(local("self.n", 3), local("a", at), local("tag", tag)))  # fmt: skip
    loader = Loader(kind="list_iterator", done=at + 1, total=3, function="collect", file=own.file, line=8, begins=7)
    inner = frame("gloo::transport::tcp::UnboundBuffer::waitRecv", 0, "libtorch_cpu.so", native=True)
    return rank(0, own, frame("main", 3), world=4, native=stack(inner, own), loops=Loops(loaders=(loader,)))


def sends_to_learner(number: int, line: str) -> Process:
    own = frame(
        "Actor.run",
        9,
        source="w.wait()",
        context=f"{line}\n{'    ' * line.endswith(':')}w.wait()",
        locals=(local("self.rank", number), local("number", number)),
    )
    inner = frame("gloo::transport::tcp::UnboundBuffer::waitSend", 0, "libtorch_cpu.so", native=True)
    return rank(number, own, frame("main", 5), world=4, native=stack(inner, own))


def test_works_of_a_learner_and_an_actor_that_have_different_tags() -> None:
    """The line that made the work names its peer and its tag. Ranks 1 and 2 have passed, and wait for rank 0."""
    pulls = [rank(number, *c10d("broadcast", local("group_src", 0)), frame("pull", 7), world=4) for number in (1, 2)]
    found = job(collects(2, 113), *pulls, sends_to_learner(3, "w = dist.isend(x, dst=0, tag=10 + self.rank)"))
    assert blamed(found) == [("point-to-point", "HD204", (0, 3), (1, 2))]
    (finding,) = found.findings
    assert finding.summary == (
        "a send and a receive name each other and have different tags: rank 0 in recv from rank 3 with tag 113; rank 3 in send "
        "to rank 0 with tag 13"
    )
    assert "the work of `dist.irecv(b, src=a, tag=tag)`, whose tag is 113" in str(finding.evidence)
    assert "batch_isend_irecv" not in (finding.remedy or "")
    assert (found.ranks[0].batches_done, found.ranks[0].batches_total) == (None, None)  # its works are no batches


@pytest.mark.parametrize(("at", "named"), [(0, (1, None)), (1, (2, None)), (2, (3, 13))])
def test_the_peer_of_a_work_in_a_list_is_that_of_its_round(at: int, named: tuple[int, int | None]) -> None:
    """Later rounds have assigned the variable with the tag again."""
    learner = collects(at, 13)
    made = find_made_call(learner, learner.stack.threads[0])  # type: ignore[union-attr]
    assert made is not None
    assert (made.peer, made.tag) == named


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("w = dist.isend(x, dst=0, tag=10 + self.rank)", (0, 13)),
        ("w = dist.isend(x, 4 - self.rank)", (1, None)),
        ("w = dist.isend(x, dst=peer)", (None, None)),
        ("w = dist.isend(x, dst=self.rank)\nself.rank = 3", (None, None)),
        ("if last:\n    w = dist.isend(x, 0)", None),  # it may have been made before
        ("w = dist.isend(x, dst=1)\nfor i in range(3):", None),  # each round may make another one
        ("w = dist.all_reduce(x, async_op=True)", None),
        ("w = 0", None),
        ("w = (", None),
        ("w = dist.isend(x, dst=0)\nw.wait()\nw = dist.isend(x, dst=2)", None),  # at which of them is not known
        ("w = dist.isend(x, dst=self.rank)\nadvance()", (None, None)),  # which may have changed it
        ("w = dist.isend(x, dst=number, tag=4)\nadvance()", (3, 4)),
        ("w = dist.isend(x, dst=1, tag=4)\nv = dist.isend(x, dst=1, tag=5)", (1, None)),  # it meets either
        ("w = self.pipe.isend(x, self.rank)", None),  # of a wrapper with numbers of its own
        ("w = dist.isend(*given, 2)", None),
        ("try:\n    w = dist.isend(x, 0)\nexcept ValueError:", None),
        ("match x:\n  case 1:\n    w = dist.isend(x, 0)\n  case _:", None),
        ("from ranks import number\nw = dist.isend(x, number)", (3, None)),
        ("w = dist.isend(x, number)\nfrom ranks import number", (None, None)),
    ],
)
def test_the_call_that_made_a_work(line: str, named: tuple[int | None, int | None] | None) -> None:
    actor = sends_to_learner(3, line)
    made = find_made_call(actor, actor.stack.threads[0])  # type: ignore[union-attr]
    assert (None if made is None else (made.peer, made.tag)) == named


@pytest.mark.parametrize("line", ["self.work.wait()", "works[0].wait()", "v.wait(); w.wait()"])
def test_the_work_of_another_line_or_variable_is_not_that_of_a_local_one(line: str) -> None:
    actor = sends_to_learner(3, "work = w = v = dist.isend(x, dst=0)\nworks = [w]")
    stack_, (thread,) = actor.stack, actor.stack.threads  # type: ignore[union-attr]
    assert isinstance(stack_, Stack)
    inner, main = thread.frames
    own = replace(inner, source=line, context=(inner.context or "").replace("w.wait()", line))
    assert find_made_call(actor, replace(thread, frames=(own, main))) is None


@pytest.mark.parametrize(
    "body",
    [
        "    if a == 2: continue\n    works.append(dist.irecv(b, src=a))",
        "    a = 4 - a\n    works.append(dist.irecv(b, src=a))",
        "    works.append(dist.irecv(b, src=a)); works.pop()",
    ],
)
def test_works_of_which_not_one_is_of_each_round_are_of_no_known_peer(body: str) -> None:
    learner = collects(0, 13)
    (thread,) = learner.stack.threads  # type: ignore[union-attr]
    inner, main = thread.frames
    context = f"works = []\nfor a in range(1, 4):\n{body}\nfor a, w in enumerate(works):\n    w.wait()"
    assert find_made_call(learner, replace(thread, frames=(replace(inner, context=context), main))) is None


def test_calls_of_which_one_is_no_send_or_receive_need_no_batch() -> None:
    (finding,) = job(
        sends_to_learner(0, "w = dist.isend(x, dst=peer)"), *(call(n, "barrier", world=4) for n in (1, 2, 3))
    ).findings
    assert "batch_isend_irecv" not in (finding.remedy or "")


def test_a_send_and_a_receive_that_name_each_other_and_do_not_meet() -> None:
    (finding,) = job(call(0, "send", 1, world=3), call(1, "recv", 0, world=3), call(2, "barrier", world=3)).findings
    assert (finding.code, finding.culprits) == ("HD204", (0, 1))
    assert "`tag`" in (finding.remedy or "") and "batch_isend_irecv" not in (finding.remedy or "")


@pytest.mark.parametrize(
    ("posts", "tag", "together"),
    [
        ("q = [dist.isend(a, right, tag=step), dist.irecv(b, left, tag=step)]", True, True),
        ("q.append(dist.isend(a, right, tag=r))\nq.append(dist.irecv(b, left, tag=left))", False, True),
        ("q = [dist.isend(a, right, tag=step)]", True, False),
    ],
)
def test_sends_and_receives_that_are_posted_together(posts: str, tag: bool, together: bool) -> None:
    """A ring: all ranks have posted, and rank 2 is in another step."""
    line = "for x in q: x.wait()"
    loop = Loop(line=7, end_line=7, header="for x in q")

    def at(number: int, step: int) -> Process:
        named = (local("step", step), local("r", number), local("left", (number - 1) % 3))
        own = frame("main", 7, source=line, context=f"{posts}\n{line}", loops=(loop,), locals=named)
        side = "waitRecv" if number == 0 else "waitSend"
        inner = frame(f"gloo::transport::tcp::UnboundBuffer::{side}", 0, "libtorch_cpu.so", native=True)
        return rank(number, own, world=3, native=stack(inner, own))

    (finding,) = job(at(0, 41), at(1, 41), at(2, 40)).findings
    assert finding.code == "HD204"
    assert ("the tag `step` is 41 on ranks 0-1; 40 on rank 2" in str(finding.evidence)) == tag
    assert ("the tag" in str(finding.evidence)) == tag
    assert ("batch_isend_irecv" not in (finding.remedy or "")) == together


@pytest.mark.parametrize(("values", "named"), [((4, 6), True), ((4, 4), False), ((1, 2), False)])
def test_a_number_by_which_the_loops_around_both_calls_go(values: tuple[int, int], named: bool) -> None:
    """Rank 2 of a pipeline waits for more micro batches than rank 1 has. What is each rank's own number is no setting."""

    def stage(number: int, function: str, peer: int, micro: int) -> Process:
        loop = Loop(line=4, end_line=9, header="for m in reversed(range(self.n_micro))", counters=("m",))
        variables = (local("self.n_micro", micro), local("m", 3))
        own = frame(f"Stage.{function}", 5, loops=(loop,), locals=variables)
        return rank(number, *c10d("recv", local("src", peer)), own, frame("main", 30), world=3)

    ahead, behind = stage(1, "backward", 2, values[0]), stage(2, "forward", 1, values[1])
    (finding,) = job(stage(0, "backward", 1, values[0]), ahead, behind).findings
    assert finding.code == "HD204"
    text = f"`self.n_micro`, which is {values[0]} on rank 1, {values[1]} on rank 2"
    assert any(text in line.text for line in finding.evidence) == named
    assert named or not any("self.n_micro" in line.text for line in finding.evidence)


def test_a_send_and_a_receive_with_different_tags() -> None:
    def tagged(sends: int, receives: int) -> str:
        calls = (
            c10d("send", local("dst", 1), local("tag", sends)),
            c10d("recv", local("src", 0), local("tag", receives)),
        )
        (finding,) = job(*(rank(number, *at, frame("main", 5), world=2) for number, at in enumerate(calls))).findings
        assert (finding.code, finding.culprits) == ("HD204", (0, 1))
        return finding.summary

    assert tagged(20, 21) == (
        "a send and a receive name each other and have different tags: rank 0 in send to rank 1 with tag 20; "
        "rank 1 in recv from rank 0 with tag 21"
    )
    assert "tag" not in tagged(20, 20)


def test_a_front_end_and_a_worker_that_wait_for_each_other_may_both_owe_the_message() -> None:
    """Workers 1 and 3 have replied, and wait for the next request like worker 2."""
    found = job(call(0, "recv", 2, world=4), *(call(number, "recv", 0, world=4) for number in (1, 2, 3)))
    assert blamed(found) == [("point-to-point", "HD204", (0, 2), (1, 3))]


def test_two_that_send_first_are_both_to_blame() -> None:
    found = job(call(0, "send", 1, world=2), call(1, "send", 0, world=2))
    assert blamed(found) == [("point-to-point", "HD204", (0, 1), ())]
    # A stage that waits for one of them shows nothing about who should have received.
    found = job(call(0, "recv", 1, world=3), call(1, "send", 2, world=3), call(2, "send", 1, world=3))
    assert blamed(found) == [("point-to-point", "HD204", (1, 2), (0,))]


@pytest.mark.parametrize(
    ("mine", "theirs", "blame"),
    [
        (("seen > 0",), (), ("subset", "HD203", (1,), (0, 2))),
        ((), (), ("mismatch", "HD201", (1,), (0, 2))),
        (("seen > 0",), ("done",), ("subset", "HD203", (1,), (0, 2))),
        (("except ValueError",), (), ("mismatch", "HD201", (1,), (0, 2))),
    ],
)
def test_the_only_call_under_a_condition(
    mine: tuple[str, ...], theirs: tuple[str, ...], blame: tuple[str, str, tuple[int, ...], tuple[int, ...]]
) -> None:
    """Nothing shows which of two hooks of a package comes first."""
    fit = frame("main", 3)

    def hook(number: int, op: str, name: str, conditions: tuple[str, ...]) -> Process:
        package = frame("call", 9, f"/site-packages/lightning/{name}.py", library=True)
        own = frame(name, 5, f"/home/me/{name}.py", conditions=conditions)
        return rank(number, *c10d(op), own, package, fit, world=3)

    others = [hook(number, "all_reduce", "saves", theirs) for number in (0, 2)]
    found = job(*others, hook(1, "all_gather", "ends", mine))
    assert blamed(found) == [blame]


def test_a_list_of_losses_is_no_data() -> None:
    """Its length is the number of the iterations. The loop trains, and only its data can end it, so the data ended first."""
    batches = Loop(
        line=10, end_line=20, header="for i, rows in enumerate(reader.epoch())", counters=("i",), every=1, start=0
    )

    def variables(i: int, losses: int) -> tuple[Local, ...]:
        return local("i", i), local("losses", "[...]", length=losses)

    inside = frame("train", 15, loops=(batches,), locals=variables(17, 17))
    left = frame("train", 22, loops=(batches,), locals=variables(15, 16))
    found = job(rank(0, *backward(), inside, native=native_backward()), rank(1, *c10d("barrier"), left))
    assert blamed(found) == [("left-loop", "HD101", (1,), (0,))]
    assert "losses" not in str(found.findings[0].evidence)


def test_ranks_that_resumed_at_different_epochs() -> None:
    """Those that began later have left the loop with a higher counter than the one that is still inside has."""
    loop = Loop(
        line=4,
        end_line=8,
        header="for n in range(start, 16)",
        counters=("n",),
        every=1,
        start=0,
        begin="start",
        bound="16",
    )

    def at(number: int, op: str, line: int, n: int, start: int) -> Process:
        variables = (local("n", n), local("start", start))
        return rank(number, *c10d(op), frame("run", line, loops=(loop,), locals=variables), world=3)

    found = job(at(0, "gather", 9, 15, 6), at(1, "gather", 9, 15, 6), at(2, "all_reduce", 6, 10, 0))
    assert blamed(found) == [("left-loop", "HD105", (2,), (0, 1))]
    assert "`start`, at which the loop begins, is 6 on ranks 0-1; 0 on rank 2" in found.findings[0].summary
    texts = [one.text for one in found.findings[0].evidence]
    assert "left the loop `for n in range(start, 16)` (line 4) after 10 of 10 iterations, begun at 6" in texts
    assert "still inside the loop `for n in range(start, 16)` (line 4), in iteration 11 of 16" in texts
    assert [(seen.batches_done, seen.batches_total) for seen in found.ranks] == [(10, 10), (10, 10), (10, 16)]


@pytest.mark.parametrize(
    ("name", "ends", "code", "odd"),
    [
        ("mb", (4, 4, 6), "HD105", (2,)),  # the few are odd, although they are still inside
        ("mb", (6, 4, 6), "HD105", (1,)),
        ("num_batches", (4, 4, 6), "HD101", (1,)),  # by its name it counts data
    ],
)
def test_a_number_at_which_a_loop_ends_need_not_count_data(
    name: str, ends: tuple[int, ...], code: str, odd: tuple[int, ...]
) -> None:
    """A pipeline whose stages have files with other numbers of micro batches. The batches are those of the loop around, which no
    rank has left."""
    steps = Loop(line=2, end_line=12, header="for step in range(9)", counters=("step",), every=1, start=0, bound="9")
    micro = Loop(line=4, end_line=6, header=f"for i in range({name})", counters=("i",), every=1, start=0, bound=name)

    def stage(number: int, line: int, i: int, peer: int) -> Process:
        variables = (local("step", 3), local("i", i), local(name, ends[number]))
        own = frame("main", line, loops=(steps, micro), locals=variables)
        argv = ("python3", "train.py", "--config", f"{ends[number]}.yaml")
        return rank(number, *c10d("recv", local("src", peer)), own, world=3, argv=argv)

    found = job(stage(0, 9, ends[0] - 1, 1), stage(1, 9, 3, 2), stage(2, 5, 4, 1))
    finding = found.findings[0]
    assert (finding.code, finding.culprits) == (code, odd)
    assert code == "HD101" or finding.commands == (f"py-spy dump --pid {100 + odd[0]}",)
    assert ("`config` parts the same ranks" in str(finding.evidence)) == (code == "HD105")
    assert ("data" in finding.summary) == (code == "HD101")
    assert [(seen.batches_done, seen.batches_ended) for seen in found.ranks] == [(3, False)] * 3


@pytest.mark.parametrize(
    ("of_module", "file", "seen"),
    [
        (True, "/home/me/train.py", True),
        (False, "/home/me/train.py", False),  # py-spy does not list a variable that an inner function shares
        (True, "/home/me/lib.py", False),  # it sees the variables of its own module
    ],
)
def test_a_loop_in_a_function_may_end_at_a_number_of_the_script(of_module: bool, file: str, seen: bool) -> None:
    """`M = int(os.environ.get("CHUNKS", "4"))` above `def main()`, and a wrapper that sets CHUNKS for rank 2."""
    loop = Loop(line=4, end_line=6, header="for i in range(M)", counters=("i",), every=1, start=0, bound="M",
                bound_of_module=of_module)  # fmt: skip

    def stage(number: int, line: int, i: int, peer: int, most: int) -> Process:
        own = frame("main", line, file, loops=(loop,), locals=(local("i", i),))
        module = Interpreter(environment={}, globals=(local("M", most),))
        script = frame("<module>", 20)
        variables = {"RANK": str(number), "SHLVL": str(number)} | ({"CHUNKS": "<str>"} if number == 2 else {})
        call = c10d("recv", local("src", peer))
        return rank(number, *call, own, script, world=3, interpreter=module, environment=variables)

    finding = job(stage(0, 9, 3, 1, 4), stage(1, 9, 3, 2, 4), stage(2, 5, 4, 1, 6)).findings[0]
    assert (finding.code, finding.culprits) == ("HD105", (2,) if seen else (1,))
    assert ("`M`, at which the loop ends, is 4 on ranks 0-1; 6 on rank 2" in finding.summary) is seen
    text = "`CHUNKS` parts the same ranks: not set on ranks 0-1; set on rank 2"
    assert [one.text for one in finding.evidence if "parts" in one.text] == [text] * seen
    assert ("start all ranks with the same `CHUNKS`" in (finding.remedy or "")) is seen


STOPS = Exit(line=4, statement="break", conditions=("rank == 0", "except StopIteration"))
STOPS_EARLY = replace(STOPS, conditions=("except StopIteration", "bad_epochs > patience"))


def stage(
    number: int, op: str, peer: int | None, step: int, exits: tuple[Exit, ...], *, inside: bool, loaders: Any = ()
) -> Process:
    """A stage of a pipeline in, or behind, `for step in range(steps)`."""
    loop = Loop(line=2, end_line=6, header="for step in range(steps)", counters=("step",), every=1, start=0,
                bound="steps", exits=exits)  # fmt: skip
    own = frame("main", 5 if inside else 9, loops=(loop,), locals=(local("step", step), local("steps", 90)))
    call = c10d(op, *(() if peer is None else (local("dst" if op == "send" else "src", peer),)))
    return rank(number, *call, own, world=3, loops=Loops(loaders=loaders))


@pytest.mark.parametrize(
    ("exits", "ahead", "code", "remedy"),
    [
        ((STOPS,), 0, "HD101", "Begin a new pass over the data"),
        ((STOPS,), 2, "HD101", "Begin a new pass over the data"),  # who waits has sent some rounds ahead
        ((STOPS, Exit(line=5, statement="break", conditions=("best > 3",))), 0, "HD105", "Nothing shows how much data"),
        ((Exit(line=5, statement="break", conditions=("best > 3",)),), 0, "HD105", "Make all ranks leave the loop"),
        ((STOPS_EARLY,), 0, "HD105", "Make all ranks leave the loop"),  # it begins a new pass otherwise
        ((STOPS,), -1, "HD204", "Compare the calls of rank 0"),  # it did the round in which rank 1 waits
    ],
)
def test_a_rank_that_left_a_loop_in_which_others_send_and_receive(
    exits: tuple[Exit, ...], ahead: int, code: str, remedy: str
) -> None:
    """Rank 0 read its data with `next()` until it ended. The stages behind it wait for its next micro-batch."""
    read = Loader(
        kind="_SingleProcessDataLoaderIter", done=40, total=40, name="data", function="main", file="/home/me/train.py"
    )
    found = job(
        stage(0, "barrier", None, 40, exits, inside=False, loaders=(read,)),
        stage(1, "recv", 0, 40 + ahead, exits, inside=True),
        stage(2, "recv", 1, 40 + ahead, exits, inside=True),
    )
    finding = found.findings[0]
    assert (finding.code, finding.culprits, finding.victims) == (code, (0,), (1, 2))
    assert (finding.remedy or "").startswith(remedy)
    texts = [one.text for one in finding.evidence]
    assert ("its dataloader `data` has given all of its 40 batches" in texts) == (code == "HD101")
    assert ("only `except StopIteration` (line 4) ends the loop before its last round" in texts) == (code == "HD101")
    assert any(text.startswith("left the loop `for step in range(steps)`") for text in texts)
    assert found.ranks[0].batches_done == 40


@pytest.mark.parametrize(
    ("header", "exits", "early"),
    [
        ("for step in range(90)", (Exit(line=5, statement="break", conditions=("best > 3",)),), True),
        ("for batch in loader", (), True),
        ("for step in range(90)", (), False),
    ],
)
def test_a_rank_that_left_a_function_in_which_others_send_and_receive(
    header: str, exits: tuple[Exit, ...], early: bool
) -> None:
    """Its rounds are not known: it may have done all of them with fewer micro-batches in each."""
    behind = rank(2, *c10d("barrier"), frame("fit", 20), world=3)
    loop = Loop(line=2, end_line=6, header=header, counters=("step",), every=1, start=0, bound="90", exits=exits)

    def sends(number: int) -> Process:
        own = frame("main", 5, loops=(loop,), locals=(local("step", 31),))
        return rank(number, *c10d("send", local("dst", number + 1)), own, frame("fit", 18), world=3)

    finding = job(sends(0), sends(1), behind).findings[0]
    assert (finding.code, finding.culprits, finding.victims) == ("HD204", (2,), (0, 1))
    assert (finding.remedy or "").startswith("If rank 2 left the loop before its end") == early
    assert f"left the loop `{header}` (line 2)" in [one.text for one in finding.evidence]


@pytest.mark.parametrize(
    ("every", "caught", "exit_", "noted"),
    [
        (0, ("except StopIteration", "except Exception"), "except StopIteration", True),
        (1, ("except StopIteration", "except Exception"), "except StopIteration", False),  # it counts each round
        (0, ("except StopIteration",), "except StopIteration", False),
        (0, ("except StopIteration", "except Exception"), "n > most", False),  # that explains it already
    ],
)
def test_rounds_that_an_exception_ended_are_not_counted(
    every: int, caught: tuple[str, ...], exit_: str, noted: bool
) -> None:
    """`try: train(next(it)); n += 1` with `except Exception: continue`. Each rank has 100 batches."""
    way_out = Exit(line=7, statement="break", conditions=(exit_,))
    loop = Loop(
        line=4, end_line=8, header="while True", counters=("n",), every=every, advances=("n",), exits=(way_out,)
    )

    def at(number: int, op: str, line: int, n: int, **more: Any) -> Process:
        return rank(number, *c10d(op), frame("main", line, loops=(loop,), locals=(local("n", n),), **more))

    (finding,) = job(at(0, "all_reduce", 6, 99, caught=caught), at(1, "barrier", 10, 99, caught=())).findings
    assert finding.code == "HD105"
    text = "after 99 iterations (not counting those that `except Exception` ended)"
    assert (text in finding.summary) is noted
    assert ((finding.remedy or "").startswith("If an exception made a rank leave out a call")) is noted


@pytest.mark.parametrize(
    ("last", "other_loop", "named"),
    [
        (3, Loop(line=14, end_line=16, header="for x in rest", advances=("x",)), True),
        (1, Loop(line=14, end_line=16, header="for x in rest", advances=("x",)), False),  # it left by the `break`
        (3, Loop(line=2, end_line=12, header="for mb in sizes", advances=("mb",)), False),
        (3, Loop(line=14, end_line=16, header="while mb < most", counters=("mb",)), False),
    ],
)
def test_a_loop_ended_at_its_number_only_if_it_came_there_and_no_loop_changes_it(
    last: int, other_loop: Loop, named: bool
) -> None:
    """Rank 0 left the loop in the round `last`, and rank 1 is in its round 5 of 6."""
    out = Exit(line=6, statement="break", conditions=("bad(i)",))
    header = "for i in range(mb)"
    loop = Loop(line=4, end_line=6, header=header, counters=("i",), every=1, start=0, bound="mb", exits=(out,))

    def at(number: int, op: str, line: int, i: int, mb: int) -> Process:
        own = frame("main", line, loops=(loop, other_loop), locals=(local("i", i), local("mb", mb)))
        return rank(number, *c10d(op), own)

    (finding,) = job(at(0, "barrier", 9, last, 4), at(1, "all_reduce", 5, 4, 6)).findings
    assert finding.code == "HD105"
    assert ("`mb`, at which the loop ends, is 4 on rank 0; 6 on rank 1" in finding.summary) is named


@pytest.mark.parametrize(("repeated", "kind"), [(0, "left-loop"), (1, "subset")])
def test_a_call_that_a_loop_makes_on_some_ranks_does_not_show_the_round(repeated: int, kind: str) -> None:
    """No counter tells the round. Rank 1 may be a round further, where the condition in the loop lets rank 0 alone make its call;
    one around the loop is true in all of its rounds."""
    around = Loop(line=2, end_line=12, header="while True")
    inner = Loop(line=4, end_line=6, header="for x in parts")

    def at(number: int, op: str, line: int, **more: Any) -> Process:
        return rank(number, *c10d(op), frame("main", line, loops=(around, inner), **more))

    found = job(at(0, "barrier", 9, conditions=("rank == 0",), repeated=repeated), at(1, "all_reduce", 5))
    assert blamed(found)[0][0] == kind


@pytest.mark.parametrize(("values", "named"), [((2, 3), True), ((3, 3), False)])
def test_a_number_by_which_a_loop_in_the_loop_goes(values: tuple[int, int], named: bool) -> None:
    """Each rank has its own number of micro batches, and all have the same data."""
    header = "for k in range(acc)"
    loops = (Loop(line=4, end_line=8, header="while True"), Loop(line=5, end_line=7, header=header, counters=("k",)))

    def at(number: int, op: str, line: int) -> Process:
        own = frame("run", line, loops=loops, context=f"while True:\n {header}:\n  step(seed)")
        numbers = (("acc", values[number]), ("seed", 5 + number))
        counters = tuple(Counter(name=n, function="run", file=own.file, before=v, after=v) for n, v in numbers)
        return rank(number, *c10d(op), own, progress=Progress(counters=counters))

    (finding,) = job(at(0, "all_reduce", 6), at(1, "barrier", 9)).findings
    assert finding.code == "HD105" and "seed" not in str(finding.evidence)
    text = f"`acc` is 3 on rank 1, 2 on rank 0, in the loop `{header}`"
    assert (text in [line.text for line in finding.evidence]) == named


def test_a_rank_that_left_by_a_break_was_in_an_iteration() -> None:
    """It has completed two, and left in the third."""
    loop = Loop(line=4, end_line=8, header="for epoch in range(10)", counters=("epoch",), every=1, start=0, bound="10",
                exits=(Exit(line=7, statement="break", conditions=("bad > 2",)),))  # fmt: skip

    def at(number: int, op: str, line: int, epoch: int) -> Process:
        return rank(number, *c10d(op), frame("run", line, loops=(loop,), locals=(local("epoch", epoch),)))

    found = job(at(0, "all_reduce", 6, 3), at(1, "barrier", 9, 2))
    assert blamed(found) == [("left-loop", "HD105", (1,), (0,))]
    assert "left the loop `for epoch in range(10)` in iteration 3 of 10" in found.findings[0].summary
    assert "in iteration 4 of 10" in str(found.findings[0].evidence)


RUN_OUT = "Nothing shows how much data there was."


def test_a_rank_in_the_handler_of_what_the_loop_raised() -> None:
    loop = Loop(line=10, end_line=20, header="for batch in stream")
    inside = (frame("train", 15, loops=(loop,)), frame("main", 5, caught=("except OSError", "except Exception")))
    handles = frame("main", 8, conditions=("except Exception",))
    (finding,) = job(rank(0, *c10d("all_reduce"), *inside), rank(1, frame("main", 8))).findings
    assert RUN_OUT in (finding.remedy or "")
    (finding,) = job(
        rank(0, *c10d("all_reduce"), *inside),
        rank(1, frame("wait", 3, "/lib/python3.11/threading.py", library=True), handles),
    ).findings
    assert (finding.code, finding.culprits) == ("HD105", (1,))
    assert "it is in `except Exception` (line 8), around the loop" in [one.text for one in finding.evidence]
    assert (finding.remedy or "").startswith("Let the exception end the rank")
    # A handler of the function of the loop, but of another `try`.
    inside = (frame("train", 15, loops=(loop,), caught=("except Exception",)),)
    handles = frame("train", 40, conditions=("except Exception",), loops=(loop,))
    (finding,) = job(rank(0, *c10d("all_reduce"), *inside), rank(1, handles)).findings
    assert "it is in" not in str(finding.evidence)


@pytest.mark.parametrize(
    ("header", "bound", "length", "unclear"),
    [
        ("for i, x in enumerate(val)", None, 6, False),
        ("for i, x in enumerate(val)", None, None, True),
        ("for i in range(6)", "6", None, False),
    ],
)
def test_a_list_and_a_number_of_the_source_show_that_a_loop_had_not_ended(
    header: str, bound: str | None, length: int | None, unclear: bool
) -> None:
    out = Exit(line=14, statement="break", conditions=("bad(x)",))
    loop = Loop(line=10, end_line=20, header=header, counters=("i",), every=1, start=0, bound=bound, exits=(out,))

    def at(number: int, op: str, line: int) -> Process:
        variables = (local("i", 3), local("val", "<list>", length=length))
        return rank(number, *c10d(op), frame("validate", line, loops=(loop,), locals=variables))

    (finding,) = job(at(0, "all_reduce", 15), at(1, "barrier", 25)).findings
    assert (finding.code, finding.culprits) == ("HD105", (1,))
    assert (RUN_OUT in (finding.remedy or "")) == unclear
    assert ("4 of 6" in finding.summary) != unclear


@pytest.mark.parametrize(("decides", "at_line", "done"), [(True, 12, 60), (True, 18, 61), (False, 12, 61)])
def test_the_round_that_a_statement_ended_before_its_call_is_not_done(decides: bool, at_line: int, done: int) -> None:
    """`a.steps` was not read. Without a value that shows who met the condition of the `break`, the data may have ended. One
    behind the call ends a whole round."""
    out = Exit(line=at_line, statement="break", conditions=("step >= 60 and r == 1" if decides else "stale(step)",))
    loop = Loop(line=10, end_line=20, header="for step in range(a.steps)", counters=("step",), every=1, start=0,
                bound="a.steps", exits=(out,))  # fmt: skip

    def at(number: int, op: str, line: int) -> Process:
        variables = (local("step", 60), local("r", number))
        return rank(number, *c10d(op), frame("main", line, loops=(loop,), locals=variables))

    stopped = job(at(0, "all_reduce", 15), at(1, "barrier", 25))
    assert ("in iteration 61" in stopped.findings[0].summary) == decides
    assert [(view.batches_done, view.batches_ended) for view in stopped.ranks] == [(60, False), (done, True)]


@pytest.mark.parametrize(("batches", "unclear"), [(187, False), (None, True)])
def test_a_loader_of_the_same_length_has_not_ended(batches: int | None, unclear: bool) -> None:
    """Rank 1 left the loop by a `break`, and the function after that. It still holds its loader."""
    out = Exit(line=14, statement="break", conditions=("stops(x)",))
    loop = Loop(line=10, end_line=20, header="for x in loader", counters=("i",), every=1, start=0, exits=(out,))
    loader = Loader(
        name="loader",
        file="/home/me/train.py",
        function="fit",
        kind="DataLoader",
        done=22,
        total=187,
        line=15,
        begins=10,
    )
    unused = replace(loader, done=None, total=batches, line=22, begins=0)
    inside = rank(0, *backward(), frame("fit", 15, loops=(loop,)), loops=Loops(loaders=(loader,)))
    left = rank(1, *c10d("barrier"), frame("fit", 22, loops=(loop,)), loops=Loops(loaders=(unused,)))
    (finding,) = job(inside, left).findings
    assert (finding.code, finding.culprits) == ("HD105", (1,))
    assert (RUN_OUT in (finding.remedy or "")) is unclear


@pytest.mark.parametrize(
    ("header", "done", "batches", "leaves", "unclear"),
    [
        ("for epoch in range(begin, epochs)", 30, 200, True, False),
        ("for epoch in range(begin, epochs)", 150, 200, True, True),
        ("for epoch in range(begin, epochs)", 30, None, True, True),  # a stream
        ("for epoch in range(begin, epochs)", 30, 200, False, True),  # no statement leaves it
        ("for batch in batches", 30, 200, True, True),
    ],
)
def test_a_framework_with_steps_left_did_not_run_out_of_data(
    header: str, done: int, batches: int | None, leaves: bool, unclear: bool
) -> None:
    out = Exit(line=18, statement="break", conditions=("self.stop",))
    loop = Loop(line=10, end_line=20, header=header, begin="begin", bound="epochs", exits=(out,) if leaves else ())
    loader = Loader(file="/app/main.py", function="fit", kind="dataloader", done=123, total=batches, line=4, begins=4)

    def counts(steps: int, *loaders: Loader) -> Loops:
        steps_of = TrainerCount(framework="transformers", name="TrainerState.global_step", done=steps, total=150)
        return Loops(loaders=loaders, counts=(steps_of,))

    inside = rank(0, *backward(), frame("fit", 15, loops=(loop,)), frame("main", 5), loops=counts(30, loader))
    left = rank(1, *c10d("barrier"), frame("main", 6), loops=counts(done))
    (finding,) = job(inside, left).findings
    assert (finding.code, finding.culprits) == ("HD105", (1,))
    assert (RUN_OUT in (finding.remedy or "")) == (unclear and leaves)
    assert ("Compare `begin`, at which the loop begins" in (finding.remedy or "")) is not leaves


def test_ranks_on_their_way_and_a_cycle_are_one_blockage() -> None:
    """Rank 2 waits behind the cycle of ranks 0 and 1: a victim of it, and of nothing else."""
    found = job(call(0, "send", 1, world=3), call(1, "send", 0, world=3), call(2, "recv", 0, world=3))
    assert len(found.blockages) == 1
    assert found.verdict == "hung"


@pytest.mark.parametrize(("op", "culprits"), [("broadcast", (0, 1, 2)), ("barrier", (0,))])
def test_ranks_may_come_out_of_a_rooted_call_before_the_others(op: str, culprits: tuple[int, ...]) -> None:
    """Rank 1 skipped the broadcast of rank 0. Rank 2 received it, and both are in the next step: without a record, the number of
    ranks shows nothing."""
    (finding,) = job(call(0, op, world=3), *(call(n, "all_reduce", world=3, line=4) for n in (1, 2))).findings
    assert (finding.code, finding.culprits) == ("HD201", culprits)


@pytest.mark.parametrize(
    ("counters", "blame"),
    [
        ((("step", 51, 51), ("skipped", 0, 1)), ("mismatch", "HD201", (0, 1), ())),
        # Each iteration changes one of the two counters, so both are in one iteration.
        ((("step", 51, 50), ("skipped", 0, 1)), ("left-loop", "HD105", (0,), (1,))),
        ((), ("mismatch", "HD201", (0, 1), ())),
    ],
)
def test_a_rank_that_skipped_a_call_in_a_loop(
    counters: tuple[tuple[str, int, int], ...], blame: tuple[str, str, tuple[int, ...], tuple[int, ...]]
) -> None:
    """FSDP: rank 1 skips the backward of a batch whose loss is not finite, and waits in the layers of the next forward. Without a
    record, lines show a loop that a rank has left, and not a call that it has left out."""
    names = tuple(name for name, *_ in counters)
    batches = Loop(line=10, end_line=30, header="for batch in loader", counters=names)
    layers = Loop(line=2, end_line=3, header="for layer in self.layers")

    def trains(number: int, line: int, **more: object) -> Frame:
        seen = tuple(local(name, values[number]) for name, *values in counters)
        return frame("main", line, loops=(batches,), locals=seen, **more)

    found = job(
        rank(0, *c10d("all_reduce"), trains(0, 20, conditions=("not bad",), repeated=1)),
        rank(1, *c10d("all_gather"), frame("forward", 3, loops=(layers,)), trains(1, 11)),
    )
    assert blamed(found) == [blame]


@pytest.mark.parametrize(
    ("inner", "blame"),
    [
        # Ignite calls the user's step in its loop, and transformers' trainer calls DDP.
        ((*backward(), frame("step", 69)), ("left-loop", "HD105", (1,), (0, 2))),
        (backward(), ("left-loop", "HD105", (1,), (0, 2))),
        # accelerate gathers one tensor after another: that is no loop of the program.
        (c10d("all_reduce"), ("mismatch", "HD201", (1,), (0, 2))),
    ],
)
def test_a_rank_that_has_come_back_from_a_package(
    inner: tuple[Frame, ...], blame: tuple[str, str, tuple[int, ...], tuple[int, ...]]
) -> None:
    loop = Loop(line=10, end_line=30, header="while not self.should_stop")
    package = frame("run", 20, "/site-packages/engine/loop.py", library=True, loops=(loop,))
    inside = (*inner, package, frame("main", 128))
    found = job(
        rank(0, *inside, world=3), rank(1, *c10d("all_gather"), frame("main", 129), world=3), rank(2, *inside, world=3)
    )
    assert blamed(found) == [blame]
    text = "still inside the loop `while not self.should_stop` (engine/loop.py:10)"  # a line of another file than the rank's
    texts = [one.text for one in found.findings[0].evidence]
    assert (text in texts) == (blame[0] == "left-loop")
    # The rank that left it is no longer in the function with the loop.
    assert ("left the loop `while not self.should_stop` (engine/loop.py:10)" in texts) == (blame[0] == "left-loop")


@pytest.mark.parametrize(
    ("inner", "blame"),
    [
        # Each iteration has a backward, so rank 0 is an iteration further.
        (backward(), ("left-loop", "HD105", (1,), (0,))),
        # Only some iterations synchronise a metric: rank 1 may have done as many.
        (c10d("all_gather"), ("mismatch", "HD201", (0, 1), ())),
    ],
)
def test_a_call_that_a_framework_makes_in_some_iterations(
    inner: tuple[Frame, ...], blame: tuple[str, str, tuple[int, ...], tuple[int, ...]]
) -> None:
    """Lightning: no counter shows how many iterations the ranks have done. The `break` is the end of the data."""
    end = Exit(line=29, statement="break", conditions=("except StopIteration",))
    epochs = Loop(line=10, end_line=30, header="while not self.done")
    batches = Loop(line=10, end_line=30, header="while not self.done", exits=(end,))

    def fit(line: int) -> tuple[Frame, Frame]:
        package = "/site-packages/lightning/fit.py"
        return frame("run", line, package, library=True, loops=(epochs,)), frame("main", 3)

    inside = frame("run", 20, "/site-packages/lightning/epoch.py", library=True, loops=(batches,))
    found = job(
        rank(0, *inner, inside, *fit(17)),
        rank(1, *c10d("all_reduce"), frame("check", 9, "/site-packages/lightning/stop.py", library=True), *fit(18)),
    )
    assert blamed(found) == [blame]


def test_ranks_at_one_line_differ_in_the_package_that_it_calls() -> None:
    """Both are in `trainer.fit()`: the line of each names what it is doing there, and the function that makes its call."""

    def fit(*functions: str) -> list[Frame]:
        return [
            *(frame(name, 9, f"/site-packages/lightning/{name.split('.')[0]}.py", library=True) for name in functions),
            frame("main", 3),
        ]

    found = job(
        rank(0, *c10d("all_gather"), *fit("Loop._gather", "Loop._sync", "Loop.on_end", "Trainer.fit")),
        rank(1, *c10d("all_reduce"), *fit("EarlyStopping.check", "Trainer.fit")),
    )
    first, second = (one.text for one in found.findings[0].evidence if one.rank is not None)
    assert first.endswith("train.py:3, within that call in Loop.on_end > Loop._gather")
    assert second.endswith("train.py:3, within that call in EarlyStopping.check")


def test_a_call_that_a_package_makes_has_the_name_of_its_function() -> None:
    """The line of `trainer.fit()` does not show why a rank is in a broadcast."""
    check = frame("Trainer._check.<locals>.ask", 9, "/venv/site-packages/lightning/stop.py", library=True)
    waits = frame("wait", 4, "/usr/lib/python3.11/threading.py", library=True)
    found = job(
        rank(0, *c10d("broadcast"), waits, check, frame("main", 3)), rank(1, *c10d("all_reduce"), frame("main", 8))
    )
    texts = [one.text for one in found.findings[0].evidence]
    assert sum("made by" in text for text in texts) == 1
    assert any("in broadcast" in text and text.endswith(", made by ask of lightning") for text in texts)
    assert [view.made_by for view in found.ranks] == ["ask of lightning", None]


def test_ranks_that_all_wait_in_the_store_wait_for_a_key() -> None:
    """Each has its own prefix: nobody sets the key of another. The store is no collective."""
    waits = frame("read", 27, source="self.store.wait([key])")
    found = job(*(rank(number, waits, world=3) for number in range(3)))
    assert blamed(found) == [("in-store", "HD202", (0, 1, 2), ())]


DATALOADER = frame("_next_data", 9, "/x/site-packages/torch/utils/data/dataloader.py", library=True)


@pytest.mark.parametrize("inside", [(), (DATALOADER,)])
@pytest.mark.parametrize(("call", "kind"), [("flock", "file"), ("clock_nanosleep", "lock")])
@pytest.mark.parametrize(("works", "verdict"), [(False, "hung"), (True, "waiting")])
def test_a_rank_that_holds_a_lock_while_it_waits(
    inside: tuple[Frame, ...], call: str, kind: str, works: bool, verdict: str
) -> None:
    """Rank 2 waits in an all-reduce with an open transaction, and rank 1 waits for the lock on the database, perhaps in its
    dataset. Another thread of rank 2 may be at work, and release it."""
    file = AwaitedFile(kind=kind, name="/data/x.db", holders=(Holder(pid=102, name="x", state="S", works=works),))  # type: ignore[arg-type]
    python = stack(frame("put", 40), *inside, frame("main", 9))
    python = replace(python, threads=(replace(python.threads[0], tid=101),))
    waits = {"syscall": call, "files": (file,)[: call == "flock"]}
    needs = rank(1, world=3, kernel=waits, stack=python, stack_before=python)
    meets = [rank(number, *c10d("all_reduce"), frame("main", 12), world=3) for number in (0, 2)]
    found = job(meets[0], replace(needs, polled_lock=None if call == "flock" else file), meets[1])
    assert found.verdict == verdict
    assert blamed(found) == [("holds-lock", "HD202", (2,), (0, 1))]
    assert "rank 1 is waiting for a lock on /data/x.db that rank 2 holds" in found.findings[0].summary


ACCEPTS = PythonThread(
    tid=900, name="Thread-1", active=False, owns_gil=False,
    frames=(frame("socket.accept", 295, "/lib/python3.11/socket.py", library=True), frame("serve", 30)),
)  # fmt: skip
MONITOR = PythonThread(
    tid=901, name="TMonitor", active=False, owns_gil=False,
    frames=(frame("run", 60, "/site-packages/tqdm/_monitor.py", library=True),),
)  # fmt: skip


def _connection(pid: int, local: int, remote: int, **more: Any) -> Connection:
    return Connection(
        **{
            "pid": pid, "namespace": "net:[1]", "state": "ESTABLISHED", "local_address": "127.0.0.1", "local_port": local,
            "remote_address": "127.0.0.1", "remote_port": remote, "receive_queue_bytes": 0, "send_queue_bytes": 0,
            "bytes_moved": 0, "last_sent_ms": 60_000, "last_received_ms": 60_000, **more,
        }
    )  # fmt: skip


MINE, THEIRS = _connection(101, 7000, 8000, inode=9), _connection(100, 8000, 7000)
LISTENS = _connection(100, 8000, 0, state="LISTEN")


@pytest.mark.parametrize(
    ("end", "other", "reply"),
    [
        (replace(LISTENS, unacked=1), None, True),  # nobody has accepted the connection
        (replace(LISTENS, unacked=1), MONITOR, True),
        (replace(LISTENS, unacked=1), ACCEPTS, False),
        (replace(THEIRS, receive_queue_bytes=20), None, True),
        (THEIRS, None, False),  # it was read: a library's thread may answer
        (replace(LISTENS, unacked=0), None, False),
    ],
)
def test_a_rank_asks_a_rank_that_waits_for_it(end: Connection, other: PythonThread | None, reply: bool) -> None:
    """Rank 1 waits for a reply on a connection to rank 0, which waits in a barrier for rank 1, and has not read what was sent. A
    thread of rank 0 that accepts connections would reply."""
    server = Holder(pid=100, name="python3", state="S", sleeps=(3600.0,))
    socket = AwaitedFile(kind="socket", name="socket:[9]", descriptor=12, inode=9, holders=(server,))
    asks = rank(1, frame("register", 5), world=3, kernel={"syscall": "recvfrom", "files": (socket,), "timed": False})
    serves, waits = (rank(number, *c10d("barrier"), frame("main", 9), world=3) for number in (0, 2))
    if other is not None:
        assert isinstance(serves.stack, Stack)
        python = replace(serves.stack, threads=(*serves.stack.threads, other))
        serves = replace(serves, stack=python, stack_before=python)
    connections = Connections(connections=(*silent(3, 60.0).connections, MINE, end))
    (found,) = diagnose(snapshot(serves, asks, waits, connections=connections)).jobs
    assert (found.verdict, found.findings[0].code) == ("hung", "HD202")
    if reply:
        assert blamed(found) == [("owes-reply", "HD202", (0, 1), (2,))]
        assert found.findings[0].summary.startswith("rank 1 is waiting for a reply from rank 0")
        assert found.findings[0].summary.endswith("rank 0 is waiting in barrier for rank 1: neither can continue")
    else:
        assert blamed(found) == [("on-network", "HD202", (1,), (0, 2))]


def at_barrier(number: int, *, world: int, works: bool = False) -> Process:
    """A rank at a barrier of multiprocessing. Its parent and all ranks have the barrier's memory; the parent sleeps."""
    synchronize, threading = "/lib/python3.11/multiprocessing/synchronize.py", "/lib/python3.11/threading.py"
    calls = [("Condition.wait", synchronize), ("Barrier._wait", threading), ("Barrier.wait", threading)]
    inside = [frame(name, 9, file, library=True) for name, file in calls]
    others = (50, *(100 + other for other in range(world) if other != number))
    holders = tuple(Holder(pid=pid, name="python", state="S", works=works, sleeps=(900.0,)) for pid in others)
    file = AwaitedFile(kind="shared-memory", name="/dev/shm/sem.x", holders=holders)
    kernel = {"syscall": "futex", "files": (file,), "timed": False}
    return rank(number, *inside, frame("epoch", 5), world=world, kernel=kernel)


@pytest.mark.parametrize(("works", "verdict"), [(False, "hung"), (True, "waiting")])
def test_a_rank_that_went_past_a_barrier_of_multiprocessing(works: bool, verdict: str) -> None:
    """Rank 2 caught an exception before the barrier, and waits in a collective."""
    comes = [at_barrier(number, world=3, works=works) for number in (0, 1)]
    found = job(*comes, rank(2, *c10d("barrier"), frame("main", 10), world=3))
    assert found.verdict == verdict
    if works:
        return
    assert blamed(found) == [("outside-barrier", "HD202", (2,), (0, 1))]
    summary = found.findings[0].summary
    assert "ranks 0-1 are waiting at a multiprocessing.Barrier to which rank 2 may have to come" in summary
    assert "lock" not in summary


def test_which_of_several_ranks_have_to_come_to_a_barrier_is_not_known() -> None:
    """It may be one of ranks 0 and 1 alone: rank 2 has its memory by a fork."""
    collective = (*c10d("all_reduce"), frame("main", 10))
    found = job(at_barrier(0, world=3), *(rank(number, *collective, world=3) for number in (1, 2)))
    (finding,) = found.findings
    assert (finding.code, finding.culprits, finding.victims) == ("HD202", (0,), (1, 2))
    assert "rank 0, which is waiting at a barrier in shared memory" in finding.summary


def test_the_training_function_runs_in_a_thread_of_ray() -> None:
    """It may be part of a package, so that no frame is the user's own code; a thread of a package beside it is not it."""
    package = "/x/site-packages/company/train.py"
    runs = frame(
        "ThreadRunner.run.<locals>._run_target",
        37,
        "/x/site-packages/ray/train/v2/_internal/execution/worker_group/thread_runner.py",
        library=True,
    )
    loop = stack(frame("main_loop", 1069, "/x/site-packages/ray/_private/worker.py", library=True))
    logs = PythonThread(
        tid=8,
        name="log",
        active=False,
        owns_gil=False,
        frames=(frame("send", 3, "/x/site-packages/log/api.py", library=True),),
    )

    def worker(number: int, op: str) -> Process:
        frames = (*c10d(op), frame("train", 12, package, library=True), runs)
        trains = PythonThread(tid=7, name="TrainingThread", active=False, owns_gil=False, frames=frames)
        threads = replace(loop, threads=(*loop.threads, logs, trains))
        return replace(rank(number), stack=threads, stack_before=threads)

    operations = [one.operation.op for one in job(worker(0, "barrier"), worker(1, "all_reduce")).ranks if one.operation]
    assert operations == ["barrier", "all_reduce"]


RAY_TRAIN = "/x/site-packages/ray/train/v2/_internal/execution/"
REPORT = (
    frame("Worker.get_objects", 1007, "/x/site-packages/ray/_private/worker.py"),
    frame("TrainContext._sync_checkpoint_dir_name_across_ranks", 254, RAY_TRAIN + "context.py"),
    frame("TrainContext.report", 474, RAY_TRAIN + "context.py"),
)
BARRIER = (REPORT[0], frame("barrier", 20, RAY_TRAIN + "collective_impl.py"))
IN_LOOP = frame("Worker.main_loop", 1069, "/x/site-packages/ray/_private/worker.py")


def test_a_report_of_ray_train_that_only_one_rank_makes() -> None:
    """All workers must make it: it ends when the last of them has come. Rank 1 is in its next backward."""
    reports = rank(0, *REPORT, frame("train", 34, conditions=("rank == 0",)), kernel={"syscall": "futex"})
    found = job(reports, rank(1, *native_backward().threads[0].frames[3:], native=native_backward()))
    assert blamed(found) == [("subset", "HD203", (0,), (1,))]
    assert found.findings[0].summary.startswith("only rank 0 called ray.train.report (inside `if rank == 0`)")
    assert not any("made by" in evidence.text for evidence in found.findings[0].evidence)


@pytest.mark.parametrize("meeting", [REPORT, BARRIER])
def test_a_meeting_of_ray_train_that_a_rank_never_makes(meeting: tuple[Frame, ...]) -> None:
    """Its training function has returned. Nothing will come for it, so it is not idle."""
    starts = "/x/site-packages/ray/train/v2/_internal/execution/worker_group/thread_runner.py"
    target = frame("ThreadRunner.run.<locals>._run_target", 37, starts)
    found = job(rank(0, *meeting, frame("train", 35), target, kernel={"syscall": "futex"}), rank(1, IN_LOOP))
    assert blamed(found) == [("gets-requests", "HD202", (1,), (0,))]
    assert found.verdict == "hung"
    assert (found.findings[0].remedy or "").startswith(
        "Rank 1 has left the training function, in which the others are."
    )


def test_all_ranks_in_a_report_of_ray_train() -> None:
    """Nobody is missing. The process that counts them may be stopped."""
    found = job(*(rank(number, *REPORT, frame("train", 35), kernel={"syscall": "futex"}) for number in range(2)))
    assert blamed(found) == [("same-call", "HD901", (), (0, 1))]
    assert "ray::SynchronizationActor" in (found.findings[0].remedy or "")


def test_a_report_of_ray_train_is_as_old_as_its_request() -> None:
    """Both ranks worked without calls for 40 s. Rank 0 came to the report 2 s ago, and rank 1 still reads its data. What Ray's
    services ask all the time is no request."""
    reports = rank(0, *REPORT, frame("train", 35), kernel={"syscall": "futex"})
    works = rank(1, frame("read", 39), frame("train", 12), kernel={"syscall": "futex"})
    (ring, *others) = silent(2, 40.0).connections
    request = replace(ring, local_port=45682, remote_port=46029, last_sent_ms=2000, last_received_ms=2000)
    service = replace(ring, local_port=54206, remote_port=38153, last_sent_ms=76, last_received_ms=76, bytes_moved=758)
    accepted = replace(ring, local_port=43887, remote_port=56514, last_sent_ms=700, last_received_ms=700)
    listens = replace(ring, local_port=43887, remote_port=0, state="LISTEN", last_sent_ms=None, last_received_ms=None)
    quiet = replace(service, bytes_moved=0, last_sent_ms=1200, local_port=54207)  # the other rank has the same service
    found = (ring, *others, request, replace(service, pid=101), quiet, accepted, listens)
    (young,) = diagnose(snapshot(reports, works, connections=Connections(connections=found))).jobs
    assert young.verdict == "waiting"
    assert "this has lasted 2.0 s" in young.findings[0].summary
    old = tuple(replace(each, last_sent_ms=39_000) if each is request else each for each in found)
    assert diagnose(snapshot(reports, works, connections=Connections(connections=old))).jobs[0].verdict == "hung"


def test_a_report_and_a_barrier_of_ray_train_meet() -> None:
    """One process counts the ranks in both. Two of three ranks are there: neither waits for the other one."""
    reports = rank(0, *REPORT, frame("train", 34), kernel={"syscall": "futex"}, world=3)
    meets = rank(1, *BARRIER, frame("train", 36), kernel={"syscall": "futex"}, world=3)
    left = rank(2, *native_backward().threads[0].frames[3:], native=native_backward(), world=3)
    assert blamed(job(reports, meets, left))[0][2] == (2,)
    reports, meets = (replace(each, identity=replace(each.identity, world_size=2)) for each in (reports, meets))
    assert blamed(job(reports, meets)) == [("same-call", "HD901", (), (0, 1))]


def test_a_rank_that_waits_for_one_in_a_cycle_of_two_groups() -> None:
    """Ranks 0 and 2 reduce gradients of two groups in opposite order. Rank 1 waits for rank 0 in a third group."""
    pair = Group(address=7, name="1", ranks=(0, 2), default=False, backend="gloo")
    exchange = Group(address=8, name="2", ranks=(0, 1), default=False, backend="gloo")
    whole = Group(address=9, name="0", ranks=(), default=True, backend="gloo")

    def call_in(number: int, op: str, group: Group, line: int) -> Process:
        inside = Interpreter(environment={}, globals=(), groups=(whole, pair, exchange))
        given = local("group", "<ProcessGroup>", address=group.address)
        return rank(number, *c10d(op, given), frame("reduce", line), world=4, interpreter=inside)

    found = job(
        call_in(0, "all_reduce", pair, 5),
        call_in(1, "all_to_all_single", exchange, 9),
        call_in(2, "all_reduce", whole, 5),
        call_in(3, "all_reduce", whole, 5),
    )
    assert blamed(found) == [("group-order", "HD205", (0, 2, 3), (1,))]


@pytest.mark.parametrize(("rounds", "shown"), [((4, 5), True), ((4, 4), False)])
def test_the_loops_of_a_pipeline_with_different_numbers_of_rounds(rounds: tuple[int, int], shown: bool) -> None:
    """Two stages, of which each receives from the other. That one receives in the loop depends on the rank: no fault."""
    loop = Loop(line=3, end_line=6, header="for m in range(micro)", counters=("m",), start=0, bound="micro")

    def stage(number: int, line: int, conditions: tuple[str, ...]) -> Process:
        variables = (local("micro", rounds[number]), local("m", 3))
        here = frame("main", line, loops=(loop,), conditions=conditions, locals=variables)
        return rank(number, *c10d("recv", local("src", 1 - number)), here)

    (job,) = diagnose(snapshot(stage(0, 9, ()), stage(1, 5, ("rank > 0",)))).jobs
    texts = [evidence.text for evidence in job.findings[0].evidence]
    assert ("the loop `for m in range(micro)` has 4 rounds on rank 0, 5 rounds on rank 1" in texts) == shown
    assert not any("rank > 0" in text for text in texts)


SCHEDULE = "/env/site-packages/torch/distributed/pipelining/schedules.py"
STEPS = Loop(
    line=12, end_line=16, header="for step in range(steps)", counters=("step",), every=1, start=0, bound="steps"
)


def _pipeline_stage(number: int, peer: int, *, step: int = 6, steps: int = 7) -> Process:
    """A stage that waits in the forward receive of torch's schedule, whose function has also posted sends and receives of the
    backward pass."""
    posted = (
        local("fwd_recvs[0]", f"P2POp(irecv, {peer})"),
        local("bwd_recvs[0]", f"P2POp(irecv, {number + 1})"),
        local("sends[0]", f"P2POp(isend, {number + 1})"),
    )
    frames = (
        frame("_wait_batch_p2p", 683, SCHEDULE, source="w.wait()"),
        frame("_step_microbatches", 910, SCHEDULE, locals=posted, source="_wait_batch_p2p(_batch_p2p(fwd_recvs))"),
        frame("main", 14, loops=(STEPS,), locals=(local("step", step), local("steps", steps)), source="sched.step()"),
    )
    inner = frame("gloo::transport::tcp::UnboundBuffer::waitRecv", 0, "libtorch_cpu.so", native=True)
    return rank(number, *frames, world=3, native=stack(inner, *frames))


@pytest.mark.parametrize(("done", "code"), [(6, "HD105"), (7, "HD204")])
def test_a_stage_of_a_pipeline_that_has_left_the_loop(done: int, code: str) -> None:
    """Stage 0 is in the barrier behind the loop. If it has sent in each round of the others, it is not short of rounds."""
    out = (*c10d("barrier"), frame("main", 18, loops=(STEPS,), locals=(local("step", done - 1), local("steps", done))))
    found = job(rank(0, *out, world=3), _pipeline_stage(1, 0), _pipeline_stage(2, 1))
    assert [(f.code, f.culprits, f.victims) for f in found.findings] == [(code, (0,), (1, 2))]


def test_the_pair_named_is_that_of_the_cycle() -> None:
    """Stage 2 is in its backward pass and has skipped a send to stage 3. Stages 0 and 1 only stand behind it."""
    stages = [call(number, "recv", number + 1, world=4, line=31) for number in range(3)]
    found = job(*stages, call(3, "recv", 2, world=4, line=13))
    assert found.findings[0].summary.startswith("rank 3 is waiting in recv from rank 2, but rank 2 did not call")


def test_only_the_rank_that_a_receive_names_skipped_its_send() -> None:
    """Ranks 1 and 2 are in the broadcast of the next round, and rank 0 receives from rank 2."""

    def in_round(number: int, step: int, op: str, line: int, *given: Local) -> Process:
        return rank(
            number, *c10d(op, *given), frame("main", line, loops=(STEPS,), locals=(local("step", step),)), world=3
        )

    ahead = [in_round(number, 20, "broadcast", 12) for number in (1, 2)]
    (finding,) = job(in_round(0, 19, "recv", 14, local("src", 2)), *ahead).findings
    assert (finding.code, finding.culprits) == ("HD204", (2,))
    assert "but rank 2 is waiting in broadcast" in finding.summary
    assert finding.remedy.startswith("Compare the calls of rank 2 with")
    assert any(line.text.startswith("`step` is 20 on rank 2, 19 on rank 0, in the loop") for line in finding.evidence)


def test_most_ranks_ran_out_of_data_before_one() -> None:
    """The last common round is complete on all: no rank left out a call in it. In it, one would have."""
    loop = replace(STEPS, header="for step, x in enumerate(batches)", bound=None)

    def at(number: int, step: int, *, inside: bool) -> Process:
        inner = c10d("all_reduce") if inside else c10d("all_gather_object")
        return rank(
            number, *inner, frame("main", 14 if inside else 18, loops=(loop,), locals=(local("step", step),)), world=3
        )

    codes = {}
    for step in (80, 81):
        (finding,) = job(at(0, 80, inside=False), at(1, 80, inside=False), at(2, step, inside=True)).findings
        codes[step] = finding.code, finding.culprits
    assert codes == {80: ("HD201", (2,)), 81: ("HD105", (0, 1))}


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize(
    ("totals", "exits", "condition", "blame"),
    [
        ((None, None), (), (), ("HD101", (0, 1))),
        ((8, 12), (), (), ("HD101", (0, 1))),
        ((12, 12), (), (), ("HD201", (2,))),  # a call of rank 2 met another one of the others before
        ((None, None), (Exit(line=7, statement="break"),), (), ("HD105", (0, 1))),
        ((None, None), (), ("loss > 9",), ("HD203", (2,))),
        ((None, None), (), ("in sync()", "loss > 9"), ("HD203", (2,))),
    ],
    ids=[
        "streams",
        "more batches",
        "as many batches",
        "a break",
        "a call in some rounds",
        "in some calls of a function",
    ],
)
def test_most_ranks_have_left_a_loop_that_ends_with_its_data(
    totals: tuple[int | None, int | None],
    exits: tuple[Exit, ...],
    condition: tuple[str, ...],
    blame: tuple[str, tuple[int, ...]],
    *,
    returned: bool,
) -> None:
    """Four files for three ranks: rank 2 has more batches, and no counter shows how many the others have had."""
    batches = Loop(line=5, end_line=8, header="for x in loader", exits=exits)
    stream = local("loader", "<torch.utils.data.dataloader.DataLoader object>")

    def at(number: int, op: str, line: int, tests: tuple[str, ...] = (), **more: Any) -> Process:
        inner = (frame("sync", 31, conditions=tests[1:]),) if "in sync()" in tests else ()
        tests = () if inner else tests
        own = frame("evaluate", line, loops=(batches,), locals=(stream,), conditions=tests, repeated=len(tests))
        loader = Loader(name="loader", function="evaluate", file=own.file, line=line, dataset="Stream", **more)
        frames = (frame("main", 21),) if line > 8 and returned else (*inner, own, frame("main", 20, caught=()))
        return rank(number, *c10d(op), *frames, world=3, loops=Loops(loaders=(loader,)))

    outside = [at(number, "barrier", 10, kind="DataLoader", done=None, total=totals[0], begins=0) for number in (0, 1)]
    inside = at(2, "all_reduce", 6, condition, kind="_SingleProcessDataLoaderIter", done=9, total=totals[1], begins=5)
    (finding,) = job(*outside, inside).findings
    assert (finding.code, finding.culprits) == blame


@pytest.mark.parametrize(
    ("epoch", "fetched", "totals", "files", "code"),
    [
        (0, 91, (90, 100), (9, 9), "HD101"),
        (0, 11, (90, 100), (9, 9), "HD201"),
        (2, 71, (90, 100), (9, 9), "HD101"),
        (1, 61, (90, 100), (9, 9), "HD101"),
        (0, 100, (99, 100), (9, 9), "HD102"),
        (2, 100, (100, 100), (9, 9), "HD201"),
        (2, 71, (None, None), (9, 20), "HD101"),
        (0, 71, (None, None), (9, 9), "HD201"),
    ],
    ids=[
        "one epoch",
        "more in the only one",
        "the last one",
        "an earlier one",
        "one less",
        "as many",
        "fewer files",
        "more iterations",
    ],
)
def test_ranks_with_equal_epochs_may_have_uneven_batches(
    epoch: int, fetched: int, totals: tuple[int | None, int | None], files: tuple[int, int], code: str
) -> None:
    """Rank 1 has had all its epochs, and is in the barrier behind them."""
    epochs = Loop(line=4, end_line=9, header="for epoch in range(n)", counters=("epoch",), every=1, start=0, bound="n")
    batches = Loop(line=5, end_line=8, header="for i, x in enumerate(loader)", counters=("i",), every=1, start=0)
    last = 2 if epoch else 0

    def at(number: int, op: str, line: int, epoch: int, i: int, *loaders: Loader) -> Process:
        counted = (("epoch", epoch), ("n", last + 1), ("i", i))
        paths = Local(name="paths", text=f"<list of {files[1 - number]}>", length=files[1 - number])
        values = tuple(local(name, value) for name, value in counted)
        own = frame("main", line, loops=(epochs, batches), locals=(*values, paths))
        counters = tuple(Counter(name=n, function="main", file=own.file, before=v, after=v) for n, v in counted)
        return rank(number, *c10d(op), own, progress=Progress(counters=counters), loops=Loops(loaders=loaders))

    def loader(line: int, **more: Any) -> Loader:
        return Loader(name="loader", function="main", file=frame("main", line).file, line=line, **more)

    going = loader(6, kind="_SingleProcessDataLoaderIter", done=fetched, total=totals[1], begins=5)
    ended = loader(10, kind="DataLoader", done=None, total=totals[0], begins=0)
    seen = totals != (None, None)
    ranks = (
        at(0, "all_reduce", 6, epoch, fetched - 1, *[going] * seen),
        at(1, "barrier", 10, last, (totals[0] or 90) - 1, *[ended] * seen),
    )
    finding = job(*ranks).findings[0]
    assert finding.code == code
    if code == "HD101":
        assert finding.culprits == (1,)
        assert finding.summary.startswith("rank 1 ran out of data after 90 batches")


@pytest.mark.parametrize(
    ("epoch", "batch", "header"),
    [(2, 5, "for x in loader"), (2, 11, "for epoch in range(3)"), (1, 5, "for epoch in range(3)")],
)
def test_a_rank_that_has_left_the_function_of_its_epochs(epoch: int, batch: int, header: str) -> None:
    """Nothing shows its numbers. But where the other one is in its last epoch, it has not left that loop early; and in the last
    batch of that, a call may have been left out as well."""
    epochs = Loop(line=4, end_line=9, header="for epoch in range(3)", counters=("epoch",), every=1, start=0, bound="3")
    batches = Loop(line=5, end_line=8, header="for x in loader")
    own = frame("train", 6, loops=(epochs, batches), locals=(local("epoch", epoch),))
    going = Loader(
        kind="_SingleProcessDataLoaderIter", done=batch + 1, total=12, name="loader", function="train", file=own.file,
        line=6, begins=5,
    )  # fmt: skip
    counter = Counter(name="epoch", function="train", file=own.file, before=epoch, after=epoch)
    inside = rank(0, *c10d("all_reduce"), own, frame("main", 20), progress=Progress(counters=(counter,)),
                  loops=Loops(loaders=(going,)))  # fmt: skip
    finding = job(inside, rank(1, *c10d("barrier"), frame("main", 21))).findings[0]
    assert finding.culprits == (1,)
    assert finding.summary.startswith(f"rank 1 left the loop `{header}`")


@pytest.mark.parametrize(("lengths", "told"), [((640, 640), True), ((480, 640), False), ((None, None), False)])
def test_equally_long_datasets_have_other_batches(lengths: tuple[int | None, int | None], told: bool) -> None:
    """The batch size differs. Nobody has less data."""
    batches = Loop(line=5, end_line=8, header="for x in loader")

    def at(number: int, op: str, line: int, **more: Any) -> Process:
        own = frame("main", line, loops=(batches,))
        loader = Loader(name="loader", function="main", file=own.file, line=line, dataset="TensorDataset",
                        sampler="RandomSampler", dataset_length=lengths[1 - number], **more)  # fmt: skip
        return rank(number, *c10d(op), own, loops=Loops(loaders=(loader,)))

    inside = at(0, "all_reduce", 6, kind="_SingleProcessDataLoaderIter", done=21, total=27, begins=5)
    finding = job(inside, at(1, "barrier", 10, kind="DataLoader", done=None, total=20, begins=0)).findings[0]
    assert (finding.code, finding.culprits) == ("HD101", (1,))
    ended = "came to the end of its dataloader" if told else "ran out of data"
    assert finding.summary.startswith(f"rank 1 {ended} after 20 batches (rank 0 expects 27)")
    assert ("the same batch size" in (finding.remedy or "")) is told
    text = "its dataset is as long as that of rank 0 (640), so its dataloader makes other batches"
    assert (text in [line.text for line in finding.evidence]) is told
