"""Another user gives a process the variables of somebody else's run, or listens at its address on another host: neither can
rename the run for those who ask for it, take its id, hide its hang or end it."""

from itertools import islice

from msgspec.structs import replace

from hangdoc.diagnosis import Diagnosis
from hangdoc.reasoning.engine import diagnose
from hangdoc.snapshot import Host, Launch, Process, Snapshot
from hangdoc.watch.confirm import Changes, Confirmation
from hangdoc.watch.hangs import Place, observed_in
from hangdoc.watch.loop import Watch
from tests.hostile.users import MALLORY, VICTIM
from tests.unit.builders import frame, rank

LOW, HIGH = 9_000, 100_000
"""Two uids of which the first is the lower number and the later text."""
_NAME = "none@127.0.0.1:29500"


def waiting(pid: int, uid: int, **more: object) -> Process:
    """The only rank of a run, which waits for input: its run is hung."""
    one = rank(0, frame("input", 3, library=False), world=1, pid=pid, uid=uid, owner=None, ppid=1, **more)
    who = one.identity
    assert who is not None
    return replace(one, state="T", identity=replace(who, master_address="127.0.0.1"))


def working(pid: int, uid: int) -> Process:
    return replace(waiting(pid, uid), state="R", clocks=rank(0, cpu=0.9, pid=pid).clocks)


def agent(pid: int, uid: int, endpoint: str, run_id: str = "none") -> Process:
    asked = Launch(tool="torchrun", nnodes="2", nproc_per_node="1", endpoint=endpoint, run_id=run_id)
    return Process(
        pid=pid, ppid=1, role="launcher", name="torchrun", argv=("torchrun", "x.py"), state="S", uid=uid,
        started_seconds_ago=50.0, launch=asked,
    )  # fmt: skip


def look(*processes: Process, name: str = "h0", **more: object) -> Snapshot:
    host = Host(
        name=name, taken_at="2026-01-01T00:00:00+00:00", window_seconds=1.0, elapsed_seconds=1.2, processes=processes,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return Snapshot(hangdoc="t", hosts=(host,))


def ids(answer: Diagnosis) -> dict[int | None, str]:
    """The job of each pid."""
    return {view.pid: job.id for job in answer.jobs for view in job.ranks}


def observe(*snapshots: Snapshot, every: float = 10.0, patience: float = 0.0) -> list[Changes]:
    """What a watch sees in looks `every` so many seconds."""
    sure, found = Confirmation(patience), []
    for at, snapshot in enumerate(snapshots, 1):
        found.append(sure.add(diagnose(snapshot, patience=0.0), at * every, observed_in(snapshot, at * every - 1)))
    return found


def test_a_run_that_nobody_else_claims_has_its_plain_name() -> None:
    assert ids(diagnose(look(waiting(7, VICTIM)))) == {7: _NAME}


def test_ids_are_unique_whatever_is_claimed() -> None:
    """The launch line of an agent can contain any text, also one that looks like the id of another job."""
    victim = ids(diagnose(look(waiting(7, HIGH), waiting(8, LOW))))[7]
    lines = ("127.0.0.1:29500#2", victim.removeprefix("none@"), "127.0.0.1:29500")
    agents = [agent(20 + at, LOW, line) for at, line in enumerate(lines)]
    answer = diagnose(look(waiting(7, HIGH), waiting(8, LOW), *agents))
    every = [job.id for job in answer.jobs]
    assert len(set(every)) == len(every)
    assert ids(answer)[7] == victim
    assert [view.pid for job in diagnose(look(waiting(7, HIGH), waiting(8, LOW), *agents), job=victim).jobs
            for view in job.ranks] == [7]  # fmt: skip


def test_an_id_of_an_earlier_look_still_names_the_run() -> None:
    """A script that asks for `--job ID` finds the run, whether or not somebody else claims its name now."""
    alone, claimed = look(waiting(7, VICTIM)), look(waiting(7, VICTIM), waiting(8, MALLORY))
    for asked in {ids(diagnose(alone))[7], ids(diagnose(claimed))[7]}:
        for snapshot in (alone, claimed):
            assert 7 in ids(diagnose(snapshot, job=asked)), asked


def test_runs_at_a_loopback_address_of_two_hosts_are_called_by_their_hosts() -> None:
    hosts = (look(waiting(7, VICTIM), name=name).hosts[0] for name in ("n1", "n2"))
    answer = diagnose(Snapshot(hangdoc="t", hosts=tuple(hosts)))
    assert [job.id for job in answer.jobs] == [f"{_NAME}#uid{VICTIM}@n1", f"{_NAME}#uid{VICTIM}@n2"]


def test_users_are_sorted_by_number() -> None:
    answer = diagnose(look(waiting(7, HIGH), waiting(8, LOW)))
    assert [view.pid for job in answer.jobs for view in job.ranks] == [8, 7]


def test_a_name_that_flaps_does_not_hide_a_hang() -> None:
    """The claimant comes and goes with the looks, so that the hung run has another id in each."""
    quiet, claimed = look(waiting(7, HIGH)), look(waiting(7, HIGH), working(8, LOW))
    changes = observe(quiet, claimed, quiet, claimed)
    assert [[one.job.ranks[0].pid for one in seen.began] for seen in changes] == [[], [7], [], []]


def test_a_claimed_name_does_not_end_a_hang() -> None:
    quiet, claimed = look(waiting(7, HIGH)), look(waiting(7, HIGH), working(8, LOW), agent(9, LOW, "127.0.0.1:29500#2"))
    changes = observe(quiet, quiet, claimed, claimed, quiet)
    assert [len(seen.began) for seen in changes] == [0, 1, 0, 0, 0]
    assert [seen.over for seen in changes] == [[]] * 5


def test_two_users_with_one_name_have_a_hang_each() -> None:
    both = look(waiting(7, HIGH), waiting(8, LOW))
    assert [len(seen.began) for seen in observe(both, both, both)] == [0, 2, 0]


def test_a_pid_of_another_user_does_not_continue_a_hang() -> None:
    """The rank has ended, and its pid is reused."""
    changes = observe(*[look(waiting(7, HIGH))] * 2, *[look(waiting(7, LOW))] * 2)
    assert [[end.ending for end in seen.over] for seen in changes] == [[], [], [], ["ended"]]


def test_a_pid_that_started_since_does_not_continue_a_hang() -> None:
    again = look(replace(waiting(7, HIGH), started_seconds_ago=3.0))
    changes = observe(*[look(waiting(7, HIGH))] * 2, again, look(replace(waiting(7, HIGH), started_seconds_ago=13.0)))
    assert [[end.ending for end in seen.over] for seen in changes] == [[], [], [], ["ended"]]
    assert [len(seen.began) for seen in changes] == [0, 1, 0, 1]


def test_a_host_with_the_name_of_another_does_not_hide_its_hang() -> None:
    """One host of a fleet calls itself like another, in every second look."""

    def fleet(claimed: str) -> Snapshot:
        good = look(waiting(7, VICTIM), name=claimed, asked_as="good").hosts[0]
        return Snapshot(hangdoc="t", hosts=(good,))

    changes = observe(fleet("good"), fleet("good#1"), fleet("good"), fleet("good#1"))
    assert [len(seen.began) for seen in changes] == [0, 1, 0, 0]
    assert changes[1].began[0].hang.processes == (Place("good", 7),)


def test_the_watch_recognises_runs_by_their_processes() -> None:
    """The same with the watch's own clock."""
    looks = iter([look(waiting(7, HIGH)), look(waiting(7, HIGH), working(8, LOW))] * 2)
    watch = Watch(
        lambda: next(looks), lambda one: diagnose(one, patience=0.0), lambda: 0.0, 0.0, 0.0, pause=lambda seconds: None
    )
    seen = [one.changes for one in islice(watch.looks(), 4)]
    assert [len(changes.began) for changes in seen] == [0, 1, 0, 0]
