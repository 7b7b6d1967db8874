"""Which processes are one run: by the launcher's name, the meeting point, connections, the launcher; not by the parent's pid."""

import itertools
from typing import Any

import msgspec
import pytest

from hangdoc import run_identity
from hangdoc.diagnosis import Diagnosis
from hangdoc.launch.launchers import launch_of
from hangdoc.reasoning.engine import diagnose
from hangdoc.reasoning.runs import launch
from hangdoc.snapshot import (
    Clocks,
    Connection,
    Connections,
    Environment,
    Frame,
    Group,
    Holder,
    Interpreter,
    Launch,
    Listener,
    Process,
    RankIdentity,
    Snapshot,
    Unavailable,
)
from tests.unit.builders import TORCH, c10d, frame, local, rank, silent, snapshot, stack, train

RENDEZVOUS = (frame("_create_c10d_store", 1, TORCH + "distributed/rendezvous.py"), frame("main", 3))


def told(number: int, *frames: Any, run: str | None = None, port: int = 29500, world: int = 2, **more: Any) -> Process:
    """A rank whose launcher calls its run `run`; none of its variables names a meeting point where that is None."""
    identity = RankIdentity(
        rank=number, source="environment", world_size=world, master_address="127.0.0.1", master_port=port, run=run
    )
    return rank(number, *(frames or (train(12),)), world=world, **{"identity": identity, **more})


def ranks_of(value: Snapshot) -> list[list[int]]:
    """The ranks of each run that have a process."""
    return sorted([r.rank for r in job.ranks if r.pid is not None] for job in diagnose(value).jobs)


def agent(number: int, pid: int, port: int, **more: Any) -> Process:
    """A torchrun that waits for the other node."""
    return Process(
        pid=pid, ppid=1, role="launcher", name="pt_elastic", argv=("torchrun", "train.py"), state="S",
        started_seconds_ago=100.0, namespaces={"net": "net:[1]"},
        launch=Launch(tool="torchrun", nnodes="2", nproc_per_node="1", node_rank=number, endpoint=f"127.0.0.1:{port}"),
        stack=stack(frame("next_rendezvous", 5, TORCH + "distributed/elastic/rendezvous/static.py")), **more,
    )  # fmt: skip


def test_a_node_that_is_still_being_prepared_may_arrive() -> None:
    busy = Holder(pid=9, name="rsync", state="R", works=True)
    for others, verdict in (((), "hung"), ((busy,), "waiting")):
        (job,) = diagnose(snapshot(agent(0, 50, 29500, others_at_work=others))).jobs
        assert (job.verdict, job.findings[0].code) == (verdict, "HD401")
        assert ("rsync" in str(job.findings[0].evidence)) is bool(others)


@pytest.mark.parametrize("function, file", [("init_process_group", "distributed_c10d"), ("init_rpc", "rpc/__init__")])
def test_ranks_meet_as_many_as_their_call_says(function: str, file: str) -> None:
    """A script may pass another number to torch than its launcher put into WORLD_SIZE."""
    call = frame(function, 9, f"{TORCH}distributed/{file}.py", locals=(local("world_size", 3),))
    ranks = [told(n, RENDEZVOUS[0], call, RENDEZVOUS[1], environment={"WORLD_SIZE": "2"}) for n in range(2)]
    (job,) = diagnose(snapshot(*ranks)).jobs
    finding = job.findings[0]
    assert (job.verdict, job.world_size, finding.code, finding.culprits) == ("hung", 3, "HD401", (2,))
    assert f"passes world_size=3 to {function}, but WORLD_SIZE is 2 (also rank 1)" in str(finding.evidence)
    assert finding.remedy.startswith("Pass the number of ranks that the launcher starts")


def test_a_rank_that_started_other_ranks_has_no_work_of_theirs() -> None:
    """Rank 0 waits for rank 1, its child, which works: rank 0 is not at work itself. The child has no options to compare."""
    main = told(0, *c10d("recv", local("src", 1)), train(15), argv=("python3", "train.py", "--num-steps", "9"))
    spawned = ("python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "--multiprocessing-fork")
    node = told(1, frame("rollout", 7), ppid=main.pid, owner=main.pid, cpu=0.9, argv=spawned)
    (job,) = diagnose(snapshot(main, node)).jobs
    assert [(one.label, one.state) for one in job.ranks] == [("blocked", "in-p2p"), ("computing", "computing")]
    assert not [finding for finding in job.findings if finding.code == "HD501"]


def test_ranks_that_are_numbered_from_one() -> None:
    (job,) = diagnose(snapshot(*(told(number, *RENDEZVOUS, world=3) for number in (1, 2, 3)))).jobs
    finding = job.findings[0]
    assert (job.verdict, finding.code, finding.culprits, finding.victims) == ("hung", "HD401", (0,), (1, 2, 3))
    assert finding.summary.startswith("2 of 3 ranks reached the rendezvous")
    assert finding.summary.endswith("rank 0 is missing, and rank 3 is too high")
    assert finding.remedy == "Number the ranks from 0 to 2."


@pytest.mark.parametrize("restarts", [None, 0, 2])
def test_a_rank_is_missing_after_restarts(restarts: int | None) -> None:
    """Its torchrun may have used them up. Then nothing keeps the rank from the master."""
    process = told(0, *RENDEZVOUS, world=2)
    assert process.identity is not None
    process = msgspec.structs.replace(
        process, identity=msgspec.structs.replace(process.identity, restart_count=restarts)
    )
    (finding,) = diagnose(snapshot(process)).jobs[0].findings
    assert (finding.code, finding.culprits) == ("HD401", (1,))
    text = "torchrun has started these ranks again after a failure (restart 2)"
    assert (text in [line.text for line in finding.evidence]) is bool(restarts)
    assert ("it may have ended after its last restart" in (finding.remedy or "")) is bool(restarts)
    assert ("reach the master" in (finding.remedy or "")) is not bool(restarts)


@pytest.mark.parametrize(
    ("numbers", "more", "runs"),
    [
        ((0, 1, 1), {}, [[0, 1]]),
        ((0, 1, 1), {"ppid": 51}, [[0, 1], [1]]),
        ((0, 1, 1), {"started_seconds_ago": 60.0}, [[0, 1], [1]]),
        ((0, 1, 1), {"started_seconds_ago": 111.0}, [[0, 1], [1]]),  # compared with the rank of its number alone
        ((0, 1, 1), {"started_seconds_ago": 109.0}, [[0, 1]]),
        ((0, 1, 2, 1), {}, [[0, 1, 2], [1]]),  # all of the run is there
    ],
)
def test_a_rank_that_was_started_twice(numbers: tuple[int, ...], more: dict[str, Any], runs: list[list[int]]) -> None:
    """Two runs with one name are more than one run expects, or were started by different parents or at different times."""
    *others, last = numbers
    processes = [told(number, *RENDEZVOUS, world=3) for number in others]
    value = snapshot(*processes, told(last, *RENDEZVOUS, world=3, pid=200, **more))
    assert ranks_of(value) == runs
    if len(runs) == 1:
        (finding,) = diagnose(value).jobs[0].findings
        assert (finding.code, finding.culprits, finding.victims) == ("HD401", (2,), (0, 1))
        assert finding.summary.endswith("rank 2 is missing, and rank 1 was started more than once")
        assert "started together as rank 1: pids 101, 200" in [line.text for line in finding.evidence]
        assert (finding.remedy or "").startswith("Give each process a rank of its own, from 0 to 2")


@pytest.mark.parametrize(("first", "last"), [(RENDEZVOUS, (train(12),)), ((train(12),), RENDEZVOUS)])
def test_a_rank_was_started_twice_only_if_both_still_meet(first: tuple[Frame, ...], last: tuple[Frame, ...]) -> None:
    """One that is past the rendezvous has met the ranks of a run of its own."""
    processes = [told(number, *first, world=3) for number in (0, 1)]
    assert ranks_of(snapshot(*processes, told(1, *last, world=3, pid=200))) == [[0, 1], [1]]


def test_a_process_that_a_dead_rank_had_forked_is_not_that_rank() -> None:
    """It has the variables, the group and the connections of the rank, but none of Gloo's threads."""
    interpreter = Interpreter(
        environment={}, globals=(), groups=(Group(address=1, name="0", ranks=(0, 1), default=True, backend="cpu:gloo"),)
    )
    waits = told(0, *c10d("all_reduce"), train(15), interpreter=interpreter)
    left = told(1, frame("ship", 7), interpreter=interpreter, ppid=1, owner=None)
    assert isinstance(left.clocks, Clocks)
    main = tuple(thread for thread in left.clocks.threads if thread.tid == left.pid)
    copy = msgspec.structs.replace(left, clocks=msgspec.structs.replace(left.clocks, threads=main))
    (job,) = diagnose(snapshot(waits, copy)).jobs
    finding = job.findings[0]
    assert (job.verdict, finding.code, finding.culprits) == ("hung", "HD301", (1,))
    assert "pid 101, which it had forked, is still alive" in finding.summary
    (job,) = diagnose(snapshot(copy)).jobs
    assert job.ranks[-1].pid == 101, "alone, it is shown"


def test_a_launcher_that_is_rank_0_has_no_world_size() -> None:
    """Lightning's script launcher: it starts the other ranks and passes their number to init_process_group itself."""
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "LOCAL_RANK": "0"}
    group = Group(address=1, name="0", ranks=(0, 1), default=True, backend="cpu:gloo")
    interpreter = Interpreter(environment={}, globals=(), groups=(group,))
    given = [variables, {**variables, "LOCAL_RANK": "1", "WORLD_SIZE": "2"}]
    ranks = [told(n, *c10d("barrier"), train(15), interpreter=interpreter, environment=given[n]) for n in (0, 1)]
    (job,) = diagnose(snapshot(*ranks)).jobs
    assert "HD406" not in {finding.code for finding in job.findings}


# --- the name --------------------------------------------------------------------------------------------------------

TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "29500"}
SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_ess_base_jobid": "18282"}


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "0b1c"}, "torchrun:0b1c@29500"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}, "h:29500"),
        ({**TORCHRUN, "MASTER_ADDR": "localhost"}, "localhost(net:[1]):29500"),
        ({**TORCHRUN, "MASTER_ADDR": "127.0.0.1"}, "localhost(net:[1]):29500"),
        ({**TORCHRUN, **SLURM}, "h:29500"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "x", **SLURM}, "torchrun:x@29500"),
        (SLURM, "slurm:7.0"),
        ({**SLURM, "MASTER_ADDR": "h", "MASTER_PORT": "1"}, "slurm:7.0"),
        ({**SLURM, "SLURM_NTASKS": "1"}, None),  # an interactive shell: several runs may be started in it
        ({name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"}, None),  # the batch script
        (MPI, "mpi:18282"),
        ({**MPI, "PMIX_NAMESPACE": "prte-1"}, "mpi:prte-1"),
        ({"MASTER_ADDR": "h", "MASTER_PORT": "1"}, "h:1"),
        ({"MASTER_ADDR": "h", "MASTER_PORT": "01"}, "h:1"),
        ({}, None),
    ],
)
def test_what_a_run_is_called(environment: dict[str, str], name: str | None) -> None:
    assert run_identity.name(environment, "net:[1]") == name


def test_long_names_keep_their_identity() -> None:
    """A UUID and a port are longer than a beacon's field: two names with one beginning must stay two."""
    one, other = (f"torchrun:{'0' * 36}@{port}" for port in (29500, 29501))
    assert run_identity.digest(one) != run_identity.digest(other)
    assert len(run_identity.digest(one)) == run_identity.DIGEST_LENGTH < 32


def test_the_names_of_a_slurm_job() -> None:
    array = {"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "3"}
    assert run_identity.slurm_job(array) == {"12", "12.0", "10_3"}
    assert not run_identity.slurm_job({})


# --- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parents", [(50, 50), (1, 1), (1, 100), (1, 50)])
def test_the_parent_of_a_rank_proves_nothing(parents: tuple[int, int]) -> None:
    """nohup, setsid, a container; Lightning's rank 0 is the parent of rank 1."""
    processes = (told(n, ppid=parent, owner=parent if parent > 1 else None) for n, parent in enumerate(parents))
    assert ranks_of(snapshot(*processes)) == [[0, 1]]


def test_ranks_of_one_slurm_step_are_one_run_and_those_of_two_are_two() -> None:
    steps = [told(n, run="slurm:7.0", owner=60 + n, ppid=60 + n) for n in range(2)]
    other = [told(n, run="slurm:7.1", owner=70 + n, ppid=70 + n, pid=200 + n) for n in range(2)]
    value = snapshot(*steps, *other)
    assert ranks_of(value) == [[0, 1], [0, 1]]
    assert sorted(job.id for job in diagnose(value).jobs) == ["slurm:7.0", "slurm:7.1"]


def test_a_rank_known_by_its_beacon_alone_joins_by_the_digest() -> None:
    beacon = RankIdentity(rank=1, source="beacon", world_size=2, run_digest=run_identity.digest("torchrun:x@1"))
    assert ranks_of(snapshot(told(0, run="torchrun:x@1"), told(1, identity=beacon))) == [[0, 1]]


def test_connected_ranks_are_one_run_whatever_their_variables_say() -> None:
    apart = (told(0, run="a:1"), told(1, run="b:1", port=1))
    assert ranks_of(snapshot(*apart)) == [[0, 1]]
    assert ranks_of(snapshot(*apart, silence=None)) == [[0], [1]]


def test_of_two_ranks_with_one_number_the_connected_one_belongs_to_the_others() -> None:
    """The left-over is younger than the run here: only the connection tells."""
    stray = told(0, run="a:1", pid=200, started_seconds_ago=1.0)
    value = snapshot(told(0, run="a:1"), told(1, run="a:1"), stray, connections=silent(2, 60))
    assert ranks_of(value) == [[0], [0, 1]]
    host = value.hosts[0]
    for order in itertools.permutations(host.processes):
        again = msgspec.structs.replace(value, hosts=(msgspec.structs.replace(host, processes=order),))
        assert answer(diagnose(again)) == answer(diagnose(value))


def answer(found: Diagnosis) -> list[object]:
    return [(job.id, job.verdict, [r.pid for r in job.ranks]) for job in found.jobs]


# --- left-overs ------------------------------------------------------------------------------------------------------


def test_an_orphan_that_has_met_its_ranks_is_not_of_a_run_that_still_meets() -> None:
    orphan = told(1, *c10d("all_reduce"), frame("main", 5), ppid=1, owner=None, launcher_gone=True)
    fresh = told(0, *RENDEZVOUS, started_seconds_ago=5.0)
    assert ranks_of(snapshot(fresh, orphan, silence=None)) == [[0], [1]]


def test_a_rank_that_lost_its_launcher_stays_with_the_ranks_it_is_connected_to() -> None:
    orphan = told(1, ppid=1, owner=None, launcher_gone=True)
    assert ranks_of(snapshot(told(0), orphan)) == [[0, 1]]


def test_agents_that_wait_at_the_port_of_a_complete_run_are_another_run() -> None:
    """Somebody else's run holds the port: HD402, not a run that waits for its own node."""
    value = snapshot(told(0, world=1, port=29600), agent(0, 10, 29600), silence=None, connections=listening(29600))
    assert ranks_of(value) == [[], [0]]


def test_a_spare_agent_of_an_elastic_run_waits_in_its_rendezvous() -> None:
    """The ranks have another master than the rendezvous of the agents."""
    same = Launch(tool="torchrun", nnodes="1:1", nproc_per_node="1", endpoint="127.0.0.1:29600", run_id="nightly")
    starter = launcher(launch=same, namespaces={"net": "net:[1]"})
    rank_0 = told(0, train(12), world=1, port=29511, cpu=0.9, owner=starter.pid, ppid=starter.pid)
    spare = msgspec.structs.replace(agent(0, 99, 29600), launch=same)
    assert ranks_of(snapshot(starter, rank_0, spare, silence=None)) == [[0]]
    other = msgspec.structs.replace(spare, launch=msgspec.structs.replace(same, run_id="another"))
    assert ranks_of(snapshot(starter, rank_0, other, silence=None)) == [[], [0]]


def test_a_rank_that_has_ended_still_belongs_to_the_run_of_its_node() -> None:
    """Two torchruns on one host. The kernel names no network of a process that has ended: it is that of its launcher."""
    nodes = [agent(number, 90 + number, 29600) for number in range(2)]
    works = told(0, frame("save", 7), port=29600, cpu=0.9, owner=90, ppid=90, namespaces={"net": "net:[1]"})
    over = told(1, port=29600, owner=91, ppid=91, state="X", namespaces={})
    (job,) = diagnose(snapshot(*nodes, works, over, silence=None, connections=listening(29600))).jobs
    assert (job.verdict, [one.pid for one in job.ranks]) == ("waiting", [100, 101])


def test_a_launcher_that_has_ended_belongs_to_the_run_of_the_other_one() -> None:
    """Two torchruns on one host, of which one had just ended: the launch was shown as two runs."""
    line = Launch(tool="torchrun", nnodes="2", nproc_per_node="1", endpoint="127.0.0.1:29600", run_id="none")
    at_exit = stack(frame("_exit_barrier", 5, TORCH + "distributed/elastic/agent/api.py"))
    gone = Unavailable(reason="the process has ended")
    waits = launcher(launch=line, namespaces={"net": "net:[1]"}, stack=at_exit)
    over = msgspec.structs.replace(waits, pid=waits.pid + 1, state="X", stack=gone)
    (job,) = diagnose(snapshot(waits, over, silence=None)).jobs
    assert (job.verdict, job.findings[0].code) == ("waiting", "HD306")
    (job,) = diagnose(snapshot(over, silence=None)).jobs
    assert job.verdict == "unknown"


# --- launches that never meet ----------------------------------------------------------------------------------------


def listening(*ports: int) -> Connections:
    return Connections(connections=(), listeners=tuple(Listener(port=p, namespace="net:[1]", pid=None) for p in ports))


def plain(number: int, port: int) -> Process:
    variables = {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return told(number, *RENDEZVOUS, port=port, run=f"localhost(net:[1]):{port}", environment=variables, owner=None)


def test_ranks_told_different_ports_are_one_wrongly_launched_run() -> None:
    (job,) = diagnose(snapshot(plain(0, 29661), plain(1, 29662), connections=listening(29661))).jobs
    assert (job.verdict, job.findings[0].code, job.findings[0].culprits) == ("hung", "HD406", (1,))
    assert "29661 on rank 0, 29662 on rank 1" in job.findings[0].summary


def test_a_port_is_a_number() -> None:
    """torch reads it with Python's `int`."""
    first, second = plain(0, 29661), plain(1, 29661)
    environment = second.environment
    assert isinstance(environment, Environment)
    spelled = {**environment.variables, "MASTER_PORT": "029661"}
    second = msgspec.structs.replace(second, environment=Environment(variables=spelled))
    (job,) = diagnose(snapshot(first, second, connections=listening(29661))).jobs
    assert "HD406" not in {finding.code for finding in job.findings}


def test_ranks_of_two_runs_that_each_wait_for_another_host_are_not_joined() -> None:
    found = diagnose(snapshot(plain(0, 29661), plain(1, 29662), connections=listening(29661, 29662)))
    assert len(found.jobs) == 2
    assert all(finding.code != "HD406" for job in found.jobs for finding in job.findings)


def on_two_hosts(one: Snapshot, other: Snapshot) -> Snapshot:
    hosts = (*one.hosts, *(msgspec.structs.replace(host, name="h1") for host in other.hosts))
    return Snapshot(hangdoc="test", hosts=hosts)


def test_localhost_is_another_address_on_each_host() -> None:
    """Both hosts are in the network namespace of that number."""
    found = diagnose(on_two_hosts(snapshot(plain(0, 29661)), snapshot(plain(1, 29661))))
    (job,) = found.jobs
    assert (job.verdict, job.findings[0].code, job.findings[0].culprits) == ("hung", "HD406", (1,))
    assert "each host waits for the others at itself" in job.findings[0].summary
    name = "localhost(net:[1]):29661"
    alone = [told(number, train(12), run=name, port=29661, cpu=0.9, owner=None) for number in (0, 1)]
    apart = on_two_hosts(snapshot(alone[0], silence=None), snapshot(alone[1], silence=None))
    assert ranks_of(apart) == [[0], [1]]


def test_two_agents_on_one_host_with_different_ports() -> None:
    value = snapshot(agent(0, 10, 29661), agent(1, 11, 29662), silence=None, connections=listening(29661))
    (job,) = diagnose(value).jobs
    assert (job.verdict, job.findings[0].code, job.findings[0].culprits) == ("hung", "HD406", (1,))
    twice = snapshot(agent(0, 10, 29661), agent(0, 11, 29662), silence=None, connections=listening(29661))
    assert len(diagnose(twice).jobs) == 2  # both are node 0: two runs


def test_two_agents_on_one_host_with_one_endpoint_and_different_run_ids() -> None:
    line = Launch(tool="torchrun", nnodes="2", nproc_per_node="1", endpoint="127.0.0.1:29661")
    agents = [
        msgspec.structs.replace(agent(0, 10 + n, 29661), launch=msgspec.structs.replace(line, run_id=f"job{n}"))
        for n in (0, 1)
    ]
    (job,) = diagnose(snapshot(*agents, silence=None, connections=listening(29661))).jobs
    assert (job.verdict, job.findings[0].code) == ("hung", "HD406")


def starts(pid: int, line: str, file: str = "dynamic_rendezvous.py", **more: Any) -> Process:
    """A launcher that has just come to the rendezvous."""
    argv = ("/env/bin/python", *(f"/env/bin/{word}" if at == 0 else word for at, word in enumerate(line.split())))
    waits = stack(frame("next_rendezvous", 5, f"{TORCH}distributed/elastic/rendezvous/{file}"))
    return msgspec.structs.replace(
        agent(0, pid, 1),
        argv=argv,
        launch=launch_of("pt_elastic", argv, {}),
        stack=waits,
        started_seconds_ago=3.0,
        **more,
    )


STATIC = "static_tcp_rendezvous.py"
TORCHRUN = "torchrun --nnodes 2 --nproc-per-node 1"
TUNE = "tune run --nnodes 2 --nproc-per-node 1"


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (starts(10, f"{TORCHRUN} --rdzv-backend c10d --rdzv-endpoint localhost:29661 train.py"),
         starts(11, f"{TORCHRUN} train.py", STATIC), "master port is 29661 on {0}, 29500 on {1}"),
        (starts(10, f"{TORCHRUN} --node-rank 0 --master-port 29661 train.py", STATIC),
         starts(11, f"{TORCHRUN} --node-rank 1 train.py", STATIC), "master port is 29661 on {0}, 29500 on {1}"),
        (starts(10, f"{TUNE} --rdzv-backend c10d --rdzv-endpoint localhost:29661 full --config c.yaml"),
         starts(11, f"{TUNE} full --config c.yaml"), "master port is 29661 on {0}, a free one on {1}"),
    ],
)  # fmt: skip
def test_a_launcher_that_was_given_no_endpoint_never_meets_one_that_was(
    one: Process, other: Process, difference: str
) -> None:
    open_ports = listening(29661, 29500)
    here = snapshot(one, other, silence=None, connections=open_ports)
    there = on_two_hosts(snapshot(one, silence=None, connections=open_ports), snapshot(other, silence=None))
    for value, places in ((here, ("h0 (pid 10)", "h0 (pid 11)")), (there, ("h0", "h1"))):
        (job,) = diagnose(value).jobs
        assert (job.verdict, job.findings[0].code, job.findings[0].severity) == ("hung", "HD406", "error")
        assert difference.format(*places) in job.findings[0].summary


def test_launchers_with_other_endpoints_are_not_joined_if_more_are_there_than_one_run_needs() -> None:
    """Two runs of one program, of which the second node of each is about to start."""
    lines = [f"{TORCHRUN} --rdzv-backend c10d --rdzv-endpoint localhost:{port} train.py" for port in (29661, 29662)]
    two = [starts(10 + n, line) for n, line in enumerate(lines)]
    for value in ((*two,), (*two, starts(12, f"{TORCHRUN} train.py", STATIC))):
        found = diagnose(snapshot(*value, silence=None, connections=listening(29661, 29662, 29500)))
        assert (found.verdict, len(found.jobs)) == ("waiting", len(value))


def test_agents_with_the_default_endpoint_meet_on_one_host() -> None:
    nodes = [starts(10 + n, f"torchrun --nnodes 3 --node-rank {n} train.py", STATIC) for n in (0, 1)]
    (job,) = diagnose(snapshot(*nodes, silence=None, connections=listening(29500))).jobs
    assert (job.verdict, job.findings[0].code) == ("waiting", "HD401")
    assert "2 of 3 nodes reached the rendezvous at 127.0.0.1:29500; node 2" in job.findings[0].summary


@pytest.mark.parametrize(
    ("nodes", "more", "missing", "limit"),
    [
        (2, "", "the other is missing", "(join_timeout 10 min)"),
        (3, "--rdzv-conf join_timeout=1200,last_call_timeout=5", "the others are missing", "(join_timeout 20 min)"),
    ],
)
def test_a_rendezvous_says_when_torchrun_gives_up(nodes: int, more: str, missing: str, limit: str) -> None:
    line = f"torchrun --nnodes {nodes} --rdzv-backend c10d --rdzv-endpoint 10.0.0.1:29500 {more} train.py"
    (finding,) = diagnose(snapshot(starts(10, line), silence=None)).jobs[0].findings
    assert missing in finding.summary
    assert any(limit in one.text and "torchrun gives up by itself in about" in one.text for one in finding.evidence)


def test_an_agent_at_a_free_port_never_meets_another_node() -> None:
    for line in (f"{TUNE} full --config c.yaml", f"{TORCHRUN} --standalone train.py"):
        (job,) = diagnose(snapshot(starts(10, line), silence=None)).jobs
        assert (job.verdict, job.findings[0].code, job.findings[0].severity) == ("hung", "HD401", "error")
        assert "reached the rendezvous, but at a free port that no other node can know" in job.findings[0].summary
        assert "--rdzv-endpoint" in job.findings[0].remedy
    before_it_was_standalone = starts(10, f"{TUNE} full --config c.yaml", STATIC)
    assert diagnose(snapshot(before_it_was_standalone, silence=None)).verdict == "waiting"


def test_an_agent_at_an_address_of_its_own_host_may_have_a_tunnel() -> None:
    lines = [f"{TORCHRUN} --node-rank {n} --master-addr {to} train.py" for n, to in enumerate(("h0", "127.0.0.1"))]
    for ports, verdict in (((), "hung"), ((29500,), "waiting")):
        apart = [snapshot(starts(10, line, STATIC), silence=None, connections=listening(*ports)) for line in lines]
        (job,) = diagnose(on_two_hosts(*apart)).jobs
        assert (job.verdict, job.findings[0].code) == (verdict, "HD406")


# --- launchers without living ranks ------------------------------------------------------------------------------------


def zombie(number: int, exit_code: int) -> Process:
    return Process(
        pid=100 + number, ppid=10, role="rank", name="python3", argv=(), state="Z", started_seconds_ago=90.0, owner=10,
        exit_code=exit_code,
    )  # fmt: skip


def launcher(state: str = "S", **more: Any) -> Process:
    return Process(
        pid=10, ppid=1, role="launcher", name="python3", argv=("python3", "start.py"), state=state,
        started_seconds_ago=100.0, **more,
    )  # fmt: skip


TORCHRUN_HERE = Launch(tool="torchrun", nnodes="1", nproc_per_node="2")


@pytest.mark.parametrize(
    ("parent", "exit_code", "verdict", "code", "severity"),
    [
        (launcher("T", launch=TORCHRUN_HERE), 9, "hung", "HD302", "error"),
        (launcher(launch=TORCHRUN_HERE), 9, "waiting", "HD301", "info"),  # its agent is about to notice
        (launcher(launch=TORCHRUN_HERE), 0, "waiting", "HD301", "info"),
    ],
)
def test_a_launcher_above_zombies(parent: Process, exit_code: int, verdict: str, code: str, severity: str) -> None:
    (job,) = diagnose(snapshot(parent, zombie(0, exit_code), zombie(1, exit_code), silence=None)).jobs
    first = job.findings[0]
    assert (job.verdict, first.code, first.severity) == (verdict, code, severity)
    assert [rank.label for rank in job.ranks] == ["dead", "dead"]


def test_a_stopped_launcher_of_a_run_that_trains_is_a_warning() -> None:
    ranks = [told(n, cpu=0.9, owner=10, ppid=10) for n in range(2)]
    (job,) = diagnose(snapshot(launcher("T", launch=TORCHRUN_HERE), *ranks)).jobs
    assert (job.verdict, [(f.code, f.severity) for f in job.findings]) == ("healthy", [("HD302", "warning")])


def test_a_rank_outside_of_the_named_trees_is_not_dead() -> None:
    """`--pid` of one rank: the other may be alive beside it, as long as a connection leads to somebody who was not looked at.
    Below a launcher that was looked at whole, and without such a connection, it is gone."""
    alone = told(0, *c10d("all_reduce"), frame("main", 5), owner=10, ppid=10)
    to_another = Connections(connections=tuple(c for c in silent(2, 60).connections if c.pid == 100))
    (job,) = diagnose(snapshot(alone, restricted=True, connections=to_another)).jobs
    assert (job.unseen[0].rank, "observed processes (--pid)" in job.unseen[0].why) == (1, True)
    assert all(finding.code != "HD301" for finding in job.findings)
    assert (job.findings[0].code, job.findings[0].commands) == ("HD901", ("hangdoc diagnose",))
    both = msgspec.structs.replace(alone.identity, local_rank=0, local_world_size=2)
    below = msgspec.structs.replace(alone, identity=both)
    (job,) = diagnose(snapshot(below, restricted=True)).jobs
    assert (job.ranks[1].label, job.findings[0].code) == ("dead", "HD301")
    (job,) = diagnose(snapshot(launcher(launch=TORCHRUN_HERE), below, restricted=True)).jobs
    assert (job.ranks[1].label, job.findings[0].code) == ("dead", "HD301")


def store(moved: int, silent_ms: int) -> tuple[Connection, ...]:
    """The ends of the connections to a store that rank 0 serves for itself and rank 1."""

    def end(pid: int, port: int, remote: int, state: str = "ESTABLISHED") -> Connection:
        return Connection(
            pid=pid, namespace="net:[1]", state=state, local_address="127.0.0.1", local_port=port,
            remote_address="127.0.0.1", remote_port=remote, receive_queue_bytes=0, send_queue_bytes=0,
            bytes_moved=moved, last_sent_ms=silent_ms, last_received_ms=silent_ms,
        )  # fmt: skip

    own, other = (end(100, 4000, 4001), end(100, 4001, 4000)), (end(100, 4000, 4002), end(101, 4002, 4000))
    return (end(100, 4000, 0, "LISTEN"), *own, *other)


def test_the_store_is_known_by_its_servers_connection_to_itself() -> None:
    """`init_method="tcp://..."`: no variable names the port, and a watchdog goes on asking the store in a hang."""
    connections = Connections(connections=(*silent(2, 60).connections, *store(500, 100)))
    ranks = (told(0, *c10d("all_reduce"), frame("main", 5)), told(1, *c10d("barrier"), frame("main", 9)))
    (job,) = diagnose(snapshot(*ranks, connections=connections)).jobs
    assert (job.verdict, [rank.silent_seconds for rank in job.ranks]) == ("hung", [60.0, 60.0])


@pytest.mark.parametrize(("silent_ms", "verdict"), [(140_000, "hung"), (4_000, "waiting")])
def test_the_silence_of_a_store_dates_the_wait_for_its_key(silent_ms: int, verdict: str) -> None:
    """An observer made the threads run four seconds ago, and the ranks have no other connection."""
    waits = frame("take", 28, source="self.store.wait([key])")
    ranks = (told(number, waits, kernel={"idle_seconds": 4.0}) for number in range(2))
    (job,) = diagnose(snapshot(*ranks, connections=Connections(connections=store(0, silent_ms)))).jobs
    assert job.verdict == verdict


def test_runs_that_are_called_alike_have_ids_of_their_own() -> None:
    """A left-over of the same meeting point comes last, whoever was found first."""
    orphan = told(0, world=1, port=29600, ppid=1, owner=None, launcher_gone=True)
    orphan = msgspec.structs.replace(orphan, identity=msgspec.structs.replace(orphan.identity, run_id="none"))
    jobs = diagnose(snapshot(orphan, agent(0, 10, 29600), silence=None, connections=listening(29600))).jobs
    assert [(job.id, len(job.ranks)) for job in jobs] == [("none@127.0.0.1:29600", 0), ("none@127.0.0.1:29600#2", 1)]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("python -u -m pdb -c continue train.py --x 1", "train.py"),
        ("/v/bin/python3.11 /v/bin/torchbiggraph_train cfg.py --rank 0", "torchbiggraph_train"),
        ("python -m scripts.train --x", "scripts.train"),
        ("python -c pass", ""),
        ("python /v/bin/tune run --nnodes 2 full_finetune_distributed --config c.yaml", "full_finetune_distributed"),
        ("/v/bin/python3.11 /v/bin/accelerate launch --cpu --num_processes 2 train.py", "train.py"),
        ("python /v/bin/deepspeed --num_gpus 2 train.py", "train.py"),
    ],
)
def test_the_program_of_a_command_line(line: str, name: str) -> None:
    assert launch.program(tuple(line.split())) == name
