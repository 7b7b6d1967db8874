"""What several `hangdoc run` of one run agree on through a directory that they share."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from hangdoc.diagnosis import Diagnosis
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Process, RankIdentity, Snapshot, merge
from hangdoc.watch.nodes import Nodes, name_of_run
from tests.live.needs import needs
from tests.unit.builders import c10d, rank, snapshot, train


def judge(seen: Snapshot) -> Diagnosis:
    return diagnose(seen, patience=0.0)


def host_of(number: int, *processes: Process, silence: float = 60.0) -> Snapshot:
    """A look of node `number`, whose host has that name."""
    look = snapshot(*processes, silence=silence)
    return replace(look, hosts=(replace(look.hosts[0], name=f"node{number}", machine_id=f"m{number}"),))


def waiting(number: int, world: int = 2, **more: object) -> Process:
    """A rank in an all_reduce, alone on its node."""
    who = RankIdentity(rank=number, source="environment", world_size=world, local_rank=0, local_world_size=1,
                       master_address="10.0.0.1", master_port=29500, run_id="none", **more)  # fmt: skip
    return replace(rank(number, *c10d("all_reduce"), train(15), world=world), identity=who)


def asleep(number: int) -> Process:
    return replace(waiting(number), stack=(quiet := rank(number, train(15)).stack), stack_before=quiet)


class _Node(Nodes):
    """A node that looks at built values; what it says is kept."""

    def __init__(
        self, number: int, folder: Path, *looks: Snapshot, reach: Callable[[], Snapshot] | None = None
    ) -> None:
        self.said: list[str] = []
        left = list(looks)
        super().__init__(1, lambda: left.pop(0) if len(left) > 1 else left[0], judge, folder, self.said.append, reach)
        self.host = f"node{number}"
        self._me = f"node{number}-{os.getpid()}"


def seen_ranks(look: Snapshot) -> set[int]:
    return {p.identity.rank for host in look.hosts for p in host.processes if p.identity is not None}


def test_a_run_is_named_alike_on_all_nodes_and_unlike_another_run() -> None:
    mine = waiting(0).identity
    there = waiting(1).identity
    assert mine is not None
    assert there is not None
    assert name_of_run(mine) == name_of_run(there)
    for other in ({"master_port": 29501}, {"run_id": "7f"}, {"world_size": 4}, {"master_address": "10.0.0.2"}):
        assert name_of_run(replace(mine, **other)) != name_of_run(mine)


def test_rank_0_gets_the_bundle_of_a_node_that_was_called(tmp_path: Path) -> None:
    first = _Node(0, tmp_path, host_of(0, waiting(0)))
    second = _Node(1, tmp_path, host_of(1, asleep(1)))
    assert seen_ranks(first.look()) == {0}  # one look is not enough to call
    second.look()

    def answer() -> None:
        second.pause(30)  # a call ends it
        second.look()

    thread = threading.Thread(target=answer)
    thread.start()
    both = first.look()
    thread.join()
    assert seen_ranks(both) == {0, 1}
    (job,) = first.mine(judge(both)).jobs
    assert (job.verdict, job.findings[0].culprits, first.missing(job)) == ("hung", (1,), None)
    assert (first.reports_here(job), second.reports_here(job)) == (True, False)
    first.announce("there")
    assert (first.announced(), second.announced(), second.announced()) == (None, "there", None)
    for node in (first, second):
        node.leave()
    assert list(tmp_path.iterdir()) == []


def test_with_hosts_only_the_node_of_rank_0_looks_further_and_needs_no_folder(tmp_path: Path) -> None:
    asked = []

    def reach() -> Snapshot:
        asked.append(True)
        return merge((host_of(0, waiting(0)), host_of(1, asleep(1))))

    first = _Node(0, tmp_path, host_of(0, waiting(0)), reach=reach)
    second = _Node(1, tmp_path, host_of(1, asleep(1)), reach=reach)
    first.look()
    assert asked == []
    assert seen_ranks(first.look()) == {0, 1}
    assert len(asked) == 1
    for _ in range(3):
        assert seen_ranks(second.look()) == {1}
    assert len(asked) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_healthy_run_shares_nothing(tmp_path: Path) -> None:
    busy = replace(waiting(0), clocks=rank(0, train(15), cpu=0.9).clocks, stack=rank(0, train(15)).stack,
                   stack_before=rank(0, train(16)).stack)  # fmt: skip
    node = _Node(0, tmp_path, host_of(0, busy, silence=0.0))
    for _ in range(3):
        node.look()
    assert judge(node.look()).verdict == "healthy"
    assert not list(tmp_path.glob("*/*.hangdoc"))


def test_absence_from_this_nodes_tree_is_not_death(tmp_path: Path) -> None:
    """With a loopback address as the meeting point, a look at one host takes absent ranks for dead: HD301."""
    local = waiting(0)
    assert local.identity is not None
    local = replace(local, identity=replace(local.identity, master_address="127.0.0.1"))
    alone = judge(host_of(0, local))
    assert (alone.verdict, alone.jobs[0].findings[0].code) == ("hung", "HD301")
    node = _Node(0, tmp_path, host_of(0, local))
    answer = node.mine(judge(node.look()))
    assert (answer.verdict, answer.jobs[0].verdict) == ("unknown", "unknown")
    missing = node.missing(answer.jobs[0])
    assert missing is not None
    assert missing.startswith("rank 1 not observed")


def test_a_rank_that_its_launcher_here_started_may_be_dead(tmp_path: Path) -> None:
    """A launcher below the command (this process stands for it) has started both ranks of the node: one is gone."""
    launcher = Process(pid=os.getpid(), ppid=1, role="launcher", name="torchrun", argv=("torchrun",), state="S",
                       started_seconds_ago=100.0)  # fmt: skip
    left = replace(rank(0, *c10d("all_reduce"), train(15)), owner=launcher.pid)
    node = _Node(0, tmp_path, host_of(0, launcher, left))
    node._command = launcher.pid
    assert node.mine(judge(node.look())).verdict == "hung"
    assert list(tmp_path.iterdir()) == []  # nobody else to ask


def test_a_folder_of_another_user_is_not_trusted(tmp_path: Path) -> None:
    needs("root")
    first = _Node(0, tmp_path, host_of(0, waiting(0)))
    who = waiting(0).identity
    assert who is not None
    theirs = tmp_path / f".hangdoc-run-{name_of_run(who)}"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    assert seen_ranks(first.look()) == {0}
    first.look()
    (said,) = first.said
    assert "belongs to another user" in said
