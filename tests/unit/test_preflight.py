"""What reports and links mean for a launch."""

import os
import platform
import pwd
import shlex
import socket
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from hangdoc.commands import preflight as preflights
from hangdoc.commands.errors import CommandError
from hangdoc.commands.hosts import Hosts
from hangdoc.commands.preflight import checked, data_type, parameters, planned
from hangdoc.launch.launchers import launch_of
from hangdoc.observe.access.observation import Target
from hangdoc.observe.find.discover import Discovered
from hangdoc.observe.kernel import sockets
from hangdoc.preflight import connections, node_report, other_runs, session
from hangdoc.preflight.checks import all_checks
from hangdoc.preflight.network_checks import all_reduce_seconds
from hangdoc.preflight.plan import Agent, Attach, Card, Check, Link, MissingPath, NodeReport, OtherRun, Plan
from hangdoc.procfs import ProcFS
from hangdoc.render.console import make_console
from hangdoc.render.preflight import report as report_checks
from hangdoc.snapshot import DataSource, Interface, Launch, Listener, Machine, RankIdentity, Unavailable
from tests.rules.shapes import machine


def node(number: int, **more: object) -> NodeReport:
    """A node in good order at 10.0.0.number."""
    name, address = f"n{number}", f"10.0.0.{number}"
    card = Interface(name="eth0", up=True, addresses=(address,), networks=("10.0.0.0/24",))
    good = NodeReport(
        name=name, node=name, address=address, machine=machine(interfaces=(card,), memory_available_bytes=10**10),
        cards=(Card(name="eth0", wireless=False, speed_mbit=1000, mtu=1500),),
        versions={"hangdoc": "1", "Python": "3.11", "torch": "2.13"}, resolved={name: (address,), "n1": ("10.0.0.1",)},
        is_master=number == 1, holder=None, environment={"OMP_NUM_THREADS": "1"}, arguments=("--depth", "4"), data=(),
        left_over=(), attach=(), free_bytes=10**10, port=1,
    )  # fmt: skip
    return replace(good, **more)


def ok(caller: str, called: str, **more: object) -> Link:
    values: dict[str, object] = {"outcome": "ok", "rtt_ms": 0.1, "mbit": 900.0, "mtu": 1500}
    return Link(caller=caller, called=called, target="10.0.0.9:1", **{**values, **more})  # type: ignore[arg-type]


PLAN = Plan(master="n1:29500", nodes=2)
LINKS = [ok("n1", "n2"), ok("n2", "n1")]


def failing(reports: list[NodeReport], links: list[Link] = LINKS, plan: Plan = PLAN) -> dict[str, Check]:
    return {check.name: check for check in all_checks(reports, links, plan) if check.status in ("fail", "warn")}


def test_two_nodes_in_good_order() -> None:
    assert not failing([node(1), node(2)])


def test_each_thing_that_is_wrong_is_the_only_one_named() -> None:
    data = DataSource(path="/d", origin="DATA_DIR", files=201, bytes=1, suffixes=(), digest="a")
    stranger = Listener(port=29500, namespace="", pid=7, name="nc", argv=("nc",), orphan=True)
    wrong: dict[str, tuple[list[NodeReport], list[Link]]] = {
        "master's name": (
            [node(1), node(2, resolved={"n2": ("10.0.0.2",), "n1": Unavailable(reason="unknown")})],
            LINKS,
        ),
        "own name": ([node(1), node(2, resolved={"n2": ("127.0.1.1",), "n1": ("10.0.0.1",)})], LINKS),
        "master port": ([node(1, holder=stranger), node(2)], LINKS),
        "connections": ([node(1), node(2)], [ok("n1", "n2"), ok("n2", "n1", outcome="timeout")]),
        "interface": ([node(1), node(2, environment={"GLOO_SOCKET_IFNAME": "eth9", "OMP_NUM_THREADS": "1"})], LINKS),
        "link": ([node(1), node(2, cards=(Card(name="eth0", wireless=True, speed_mbit=None, mtu=1500),))], LINKS),
        "throughput": ([node(1), node(2)], [ok("n1", "n2"), ok("n2", "n1", mbit=30.0)]),
        "MTU": ([node(1), node(2)], [ok("n1", "n2", mtu=9000), ok("n2", "n1")]),
        "torch": ([node(1), node(2, versions={"hangdoc": "1", "Python": "3.11", "torch": "2.12"})], LINKS),
        "data": ([node(1, data=(data,)), node(2, data=(replace(data, files=4, digest="b"),))], LINKS),
        "--depth": ([node(1), node(2, arguments=("--depth", "2"))], LINKS),
        "left-overs": ([node(1), node(2, left_over=("rank 0, pid 7",))], LINKS),
    }
    for name, (reports, links) in wrong.items():
        assert set(failing(reports, links)) == {name}


def test_an_argument_that_a_node_leaves_out_may_be_its_default() -> None:
    assert failing([node(1), node(2, arguments=("--depth", "2"))])["--depth"].status == "fail"
    left_out = failing([node(1), node(2, arguments=())])["--depth"]
    assert (left_out.status, left_out.text) == ("warn", "4 on n1; none on n2")
    assert "Where it is not given, the default of the script decides." in left_out.remedy
    assert failing([node(1, arguments=("--bf16",)), node(2, arguments=())])["--bf16"].status == "fail"


def test_a_value_may_be_written_in_two_ways() -> None:
    """`launch-diff` knew that, and preflight failed."""
    first, second = ("--max_steps", "1e3", "--lr", "0.01"), ("--max_steps", "1000", "--lr", "1e-2")
    assert not failing([node(1, arguments=first), node(2, arguments=second)])
    other = failing([node(1, arguments=first), node(2, arguments=("--max_steps", "1001", "--lr", "0.01"))])
    assert {name: check.status for name, check in other.items()} == {"--max_steps": "fail"}


def test_a_port_is_a_number() -> None:
    first, second = (node(at, environment={"MASTER_PORT": port}) for at, port in ((1, "029500"), (2, "29500")))
    assert "MASTER_PORT" not in failing([first, second])
    assert failing([first, replace(second, environment={"MASTER_PORT": "29501"})])["MASTER_PORT"].status == "fail"
    words = ("MASTER_ADDR=h1", "MASTER_PORT=029500", "RANK=0", "python", "t.py")
    plan, _ = planned(Plan(), words, {}, master=None, ranks_per_node=None)
    assert plan.master == "h1:29500"
    with pytest.raises(CommandError, match="Set it to 1-65535"):  # Python reads no number of so many digits
        planned(Plan(), (), {"MASTER_ADDR": "h1", "MASTER_PORT": "9" * 5000}, master=None, ranks_per_node=None)


def test_an_address_in_brackets_is_that_address() -> None:
    """torchrun takes them off. With them, no name service knows the address, and a launch that works failed."""
    words = ("torchrun", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "[fd00::1]:29500", "t.py")
    for master in (None, "[fd00::1]:29500", "fd00::1:29500"):
        assert planned(Plan(), words, {}, master=master, ranks_per_node=None)[0].master == "fd00::1:29500"
    without_port = (*words[:6], "[fd00::1]", "t.py")
    assert planned(Plan(), without_port, {}, master=None, ranks_per_node=None)[0].master == "fd00::1:29400"
    ranks = {"MASTER_ADDR": "[fd00::1]", "MASTER_PORT": "29500"}  # ranks give it to the name service as it is
    assert planned(Plan(), (), ranks, master=None, ranks_per_node=None)[0].master == "[fd00::1]:29500"


def test_the_python_of_the_one_file_may_lack_torch() -> None:
    """The launch may use another one, so this is no failure."""
    versions = {"hangdoc": "1", "Python": "3.11", "torch": None}
    there = node(
        2, versions=versions, other_python="/usr/bin/python3", portable=True, launcher_python="/opt/conda/bin/python3"
    )
    (check,) = failing([node(1), there]).values()
    assert (check.status, check.nodes) == ("warn", ("n2",))
    assert check.text == "not checked on n2: hangdoc.pyz runs with /usr/bin/python3, which has no torch"
    assert (
        check.remedy == "Run hangdoc.pyz with the Python of the launch: /opt/conda/bin/python3 hangdoc.pyz preflight."
    )
    (check,) = failing([node(1), node(2, versions=versions, other_python="/tools/bin/python")]).values()
    assert check.text == "not checked on n2: hangdoc runs with /tools/bin/python, which has no torch"
    assert (
        check.remedy
        == "Name the launch with the path of its launcher: hangdoc preflight -- /PATH/torchrun ... train.py."
    )
    found = [check for check in all_checks([node(1, versions=versions), there], LINKS, PLAN) if check.name == "torch"]
    assert [(check.status, check.nodes) for check in found] == [("fail", ("n1",)), ("warn", ("n2",))]


def test_torch_is_looked_up_in_the_environment_of_the_launch(tmp_path: Path) -> None:
    """hangdoc is often installed in one of its own."""
    torch = tmp_path / "lib/python3.12/site-packages/torch-2.9.1.dist-info"
    torch.mkdir(parents=True)
    (torch / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1\n")
    (tmp_path / "bin").mkdir()
    launcher = tmp_path / "bin/torchrun"
    launcher.write_text(f"#!{tmp_path}/bin/python3\n")
    launcher.chmod(0o755)
    for line in ((str(launcher), "t.py"), (sys.executable, "-m", "torch.distributed.run", "t.py")):
        plan, _ = planned(Plan(), line, {}, master=None, ranks_per_node=None)
        versions = node_report._read_versions(plan.python)
        own = {"Python": platform.python_version(), "torch": metadata.version("torch")}
        assert versions == ({"Python": "3.12", "torch": "2.9.1"} if line[0] == str(launcher) else own)
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.4\n")
    assert node_report._read_versions(f"{tmp_path}/bin/python3")["Python"] == "3.12.4"


@pytest.mark.parametrize(
    ("line", "nodes", "ranks", "master", "script", "launch"),
    [
        ("torchrun --nproc_per_node 2 train.py --lr 1", 1, 2, None, ("--lr", "1"), "torchrun: 2 ranks on one node"),
        ("torchrun --nnodes 2 --nproc-per-node 4 --master-addr n0 --max-restarts 3 t.py", 2, 4, "n0:29500", (),
         "torchrun: 4 ranks on each of 2 nodes, meeting at n0:29500; not used here: --max-restarts"),
        ("accelerate launch --num_processes 4 --num_machines 2 --main_process_ip n0 --main_process_port 1 t.py --x 1", 2, 2,
         "n0:1", ("--x", "1"), "accelerate: 2 ranks on each of 2 nodes, if it finds several cards, meeting at n0:1"),
        ("accelerate launch --multi_gpu --num_processes 2 --mixed_precision no t.py", 1, 2, None, (),
         "accelerate: 2 ranks on one node; not used here: --mixed-precision"),
        ("deepspeed --num_gpus 4 t.py", 1, 4, None, (), "deepspeed: 4 ranks on one node"),
        ("deepspeed --hostfile h t.py", None, None, None, (),
         "deepspeed: an unknown number of ranks; not used here: --hostfile"),
        ("srun -N 2 --ntasks-per-node 8 python t.py", 2, 8, None, (), "srun: 8 ranks on each of 2 nodes"),
        ("srun -n 8 python t.py", None, None, None, (), "srun: 8 ranks on all nodes together"),
        ("srun -N 2 env A=b torchrun --nproc-per-node 4 --nnodes 2 t.py", 2, 4, "127.0.0.1:29500", (),
         "torchrun: 4 ranks on each of 2 nodes, meeting at 127.0.0.1:29500; not used here: `srun --nodes=2`"),
        ("mpirun -np 4 -H a:2,b:2 -x MASTER_ADDR=a -x MASTER_PORT=1 python t.py", 2, 2, "a:1", (),
         "mpirun: 2 ranks on each of 2 nodes, meeting at a:1"),
        ("torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint n0 t.py", 2, 1, "n0:29400", (),
         "torchrun: 1 rank on each of 2 nodes, meeting at n0:29400"),
        ("mpirun -np 4 -N 2 python t.py", 1, 2, None, (), "mpirun: 2 ranks on one node"),
        ("env PET_NNODES=2 PET_MASTER_ADDR=n0 torchrun --nproc-per-node 2 t.py", 2, 2, "n0:29500", (),
         "torchrun: 2 ranks on each of 2 nodes, meeting at n0:29500"),
    ],
)  # fmt: skip
def test_a_plan_is_made_of_a_launch_line(
    line: str, nodes: int | None, ranks: int | None, master: str | None, script: tuple[str, ...], launch: str
) -> None:
    plan, (check, *_) = planned(Plan(), tuple(line.split()), {}, master=None, ranks_per_node=None)
    assert (plan.nodes, plan.ranks_per_node, plan.master, plan.arguments) == (nodes, ranks, master, script)
    assert (check.name, check.text, check.status) == ("launch", launch, "pass" if ranks is not None else "unknown")


def test_variables_of_the_shell_are_options_of_torchrun() -> None:
    environment = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "n0"}
    plan, _ = planned(Plan(), ("torchrun", "t.py"), environment, master=None, ranks_per_node=None)
    assert (plan.nodes, plan.node_rank, plan.master) == (2, 1, "n0:29500")
    assert plan.master_origin == "PET_ variables of the environment"
    words = ("torchrun", "--nnodes", "2", "--master-addr", "n0", "t.py")
    plan, _ = planned(Plan(), words, environment, master=None, ranks_per_node=None)
    assert plan.master_origin == "the launch line"
    plan, _ = planned(Plan(), ("torchrun", "t.py"), {"PET_NNODES": "2"}, master=None, ranks_per_node=None)
    assert plan.master_origin == "torchrun's default"
    plan, _ = planned(Plan(), ("ssh", "n1", "torchrun t.py"), environment, master=None, ranks_per_node=None)
    assert (plan.nodes, plan.master) == (1, None)  # in another shell


CPU, ROCM = ({"hangdoc": "1", "Python": "3.11", "torch": torch} for torch in ("2.13.0+cpu", "2.13.0+rocm7"))


@pytest.mark.parametrize(
    ("value", "more", "found"),
    [
        ("auto", {"versions": CPU}, "n1: 3 ranks, one for each core that it may use, because torch 2.13.0+cpu sees no card"),
        ("auto", {"versions": CPU, "other_python": "/p"},
         "n1: 3 ranks, one for each core that it may use, if torch sees no card: none was found"),
        ("auto", {"versions": ROCM}, "n1: 3 ranks, one for each core that it may use, if torch sees no card: none was found"),
        ("cpu", {}, "n1: 3 ranks, one for each core that it may use"),
        ("auto", {"machine": machine(gpus=4)}, "n1: 4 ranks, one for each NVIDIA card"),
        ("gpu", {"machine": machine(gpus=4)}, "n1: 4 ranks, one for each NVIDIA card"),
        ("auto", {"machine": machine(gpus=4), "environment": {"CUDA_VISIBLE_DEVICES": "0"}}, None),
        ("gpu", {"versions": CPU}, None),
    ],
)  # fmt: skip
def test_a_node_tells_how_many_ranks_torchrun_counts(value: str, more: dict[str, object], found: str | None) -> None:
    line = f"python -um torch.distributed.run --nproc-per-node={value} t.py"
    plan, (launch, *_) = planned(Plan(), tuple(line.split()), {}, master=None, ranks_per_node=None)
    assert (plan.nodes, plan.ranks_per_node, plan.counted) == (1, None, value)
    assert (launch.status, launch.text) == (
        "pass",
        "torchrun: on one node, a rank for each card or core that it counts",
    )
    checks = all_checks([node(1, usable_cores=3, **more)], [], plan)
    assert [check.text for check in checks if (check.name, check.status) == ("launch", "pass")] == [found] * bool(found)
    assert ("cores" in [check.name for check in checks]) == bool(found)
    given, _ = planned(Plan(), tuple(line.split()), {}, master=None, ranks_per_node=5)
    assert not [
        c for c in all_checks([node(1, usable_cores=3)], [], given) if c.name == "launch" and c.status == "pass"
    ]


def test_a_node_reports_the_cores_that_its_processes_may_use() -> None:
    assert node_report.gather(Plan()).usable_cores == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("env MASTER_ADDR=n0 NODE_RANK=1 python t.py", "fail"),
        ("env MASTER_ADDR=n0 NODE_RANK=0 python t.py", "unknown"),
        ("srun -n 8 python t.py", "unknown"),
        ("env MASTER_ADDR=n0 RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 python t.py", "pass"),
        ("torchrun --nproc-per-node 2 t.py", "pass"),
    ],
)
def test_all_ranks_are_here_only_if_the_line_says_so(line: str, status: str) -> None:
    plan, (launch, *_) = planned(Plan(), tuple(line.split()), {}, master=None, ranks_per_node=None)
    checks = {check.name: check for check in all_checks([local(1)], [], plan)}
    assert checks["own name"].status == status
    assert ("all ranks are on this host" in checks["own name"].text) == (status == "pass")
    decider = "the script" if "NODE_RANK" in line else None
    assert (
        decider is None or launch.remedy == f"Give --ranks-per-node: the line leaves the number of ranks to {decider}."
    )


@pytest.mark.parametrize(("value", "passes"), [("eth9", False), ("lo", False), ("eth0", True), ("eth0,eth1", True)])
def test_an_interface_that_does_not_exist_is_no_reason_to_pass(value: str, passes: bool) -> None:
    here = node(1, environment={"GLOO_SOCKET_IFNAME": value}, resolved={"n1": ("127.0.1.1",)})
    loopback = Interface(name="lo", up=True, addresses=("127.0.0.1",), networks=())
    seen = here.machine.interfaces if isinstance(here.machine, Machine) else ()
    here = replace(here, machine=machine(interfaces=(*seen, loopback)))
    checks = {check.name: check for check in all_checks([here], [], Plan())}
    assert ("own name" in checks) == passes
    assert not passes or checks["own name"].text.endswith(f"but GLOO_SOCKET_IFNAME={value} is used")
    assert checks["interface"].status == "fail" if not passes else True


@pytest.mark.parametrize(
    ("line", "environment", "origin", "text"),
    [
        ("MASTER_ADDR=n0 python", {}, None, "not checked: MASTER_ADDR is set in the launch line and MASTER_PORT is not"),
        ("RANK=0 python", {"MASTER_PORT": "1"}, None,
         "not checked: MASTER_PORT is set in the environment and MASTER_ADDR is not"),
        ("MASTER_ADDR=n0 MASTER_PORT=1 python", {"MASTER_PORT": "2"}, "MASTER_ADDR and MASTER_PORT of the launch line", None),
        ("RANK=0 python", {"MASTER_PORT": "1", "MASTER_ADDR": "n0"}, "MASTER_ADDR and MASTER_PORT of the environment", None),
        ("MASTER_ADDR=n0 python", {"MASTER_PORT": "1"},
         "MASTER_ADDR of the launch line and MASTER_PORT of the environment", None),
    ],
)  # fmt: skip
def test_a_master_has_the_place_where_it_is_set(
    line: str, environment: dict[str, str], origin: str | None, text: str | None
) -> None:
    plan, checks = planned(Plan(), ("env", *line.split(), "t.py"), environment, master=None, ranks_per_node=None)
    assert plan.master_origin == origin
    assert [check.text for check in checks if check.name == "master port"] == [text] * bool(text)


def test_words_without_a_launcher_are_arguments_of_the_script_or_refused() -> None:
    plan, more = planned(Plan(), ("--depth", "4"), {}, master="n1:1", ranks_per_node=3)
    assert (plan.arguments, plan.ranks_per_node, plan.master, more) == (("--depth", "4"), 3, "n1:1", [])
    (named,) = planned(Plan(), ("pretrain", "--depth", "4"), {}, master=None, ranks_per_node=2)[1]
    assert named.text == "no launch line: the arguments of the script are `pretrain --depth 4`"
    for command in ("bash launch.sh", "env A=b ls", "bash -c 'torchrun a.py; torchrun b.py'"):
        with pytest.raises(CommandError, match="After `--`, write one command of torchrun"):
            planned(Plan(), tuple(shlex.split(command)), {}, master=None, ranks_per_node=None)


@pytest.mark.parametrize(
    ("words", "text", "remedy"),
    [
        ((), "no launch line: 1 rank on each node is assumed", "Give the launch line after `--`, or --ranks-per-node."),
        (("--lr", "1"), "no launch line: 1 rank on each node is assumed", None),
        (
            ("finetune", "--lr", "1"),
            "no launch line: the arguments of the script are `finetune --lr 1`, and 1 rank on each node is assumed",
            "Did you mean tune?",
        ),
    ],
)
def test_without_a_launch_line_a_rank_is_assumed(words: tuple[str, ...], text: str, remedy: str | None) -> None:
    plan, (check,) = planned(Plan(), words, {}, master=None, ranks_per_node=None)
    assert (plan.ranks_per_node, check.text, check.remedy) == (1, text, remedy or check.remedy)
    assert check.status == ("warn" if "mean" in check.remedy else "unknown")


def test_a_mistyped_launcher_in_front_of_a_script_is_refused() -> None:
    for words in (("torchrn", "--nproc-per-node", "2", "train.py"), ("mpirn", "-n", "2", "python", "train.py")):
        with pytest.raises(CommandError, match=r"no launch in `(torchrn|mpirn) .*`\. Did you mean (torchrun|mpirun)\?"):
            planned(Plan(), words, {}, master=None, ranks_per_node=None)
    # With a number of ranks, no launch line is asked for.
    assert planned(Plan(), ("run", "config.py"), {}, master="n0:1", ranks_per_node=2)[0].arguments == (
        "run",
        "config.py",
    )


@pytest.mark.parametrize(
    ("options", "torch", "found"),
    [
        ("--master-prt 3", "2.13.0+cpu", {"fail": ["Did you mean --master-port?"]}),
        ("--master-prt 3 --sudden", "2.6", {"fail": ["Did you mean --master-port?", "Correct it, or leave it out."]}),
        ("--master-prt 3", "2.14.0", {"warn": ["Did you mean --master-port?"]}),
        ("--master-prt 3", None, {"warn": ["Did you mean --master-port?"]}),
        ("--nproc_per_node 2 --nnode 1 -r 3 -t 3 --use_env", "2.13.0", {}),
        ("-r3 -t0:1,1:3", "2.13.0", {}),
    ],
)
def test_torchrun_refuses_options_that_it_does_not_have(
    options: str, torch: str | None, found: dict[str, list[str]]
) -> None:
    plan = planned(Plan(), ("torchrun", *options.split(), "train.py"), {}, master=None, ranks_per_node=None)[0]
    versions = {"hangdoc": "1", "Python": "3.11", "torch": torch}
    checks = [check for check in all_checks([node(1, versions=versions)], [], plan) if check.name == "options"]
    assert {check.status for check in checks} == set(found)
    assert [check.remedy for check in checks] == [each for remedies in found.values() for each in remedies]
    assert all("no option --" in check.text for check in checks)


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        ("accelerate launch --multi_gpu --num_processes 2 --main_process_port 29611 t.py", "--main_process_port"),
        ("fabric run --devices 2 --main-port 29611 t.py", "--main-port"),
        ("deepspeed --num_gpus 2 --master_port 29611 t.py", "--master_port"),
        ("torchrun --master-port 29611 t.py", "--master-port"),
        ("torchrun --nnodes 2 t.py", "--master-port"),
        ("torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint n0:29611 t.py", "--rdzv-endpoint"),
        ("tune run --nnodes 2 --rdzv-endpoint n0:29611 full", "--rdzv-endpoint"),
        ("PET_RDZV_ENDPOINT=n0:29611 torchrun --nnodes 2 t.py", "--rdzv-endpoint"),
        ("MASTER_ADDR=n0 MASTER_PORT=29611 srun -n 2 python t.py", "MASTER_PORT"),
        ("", "MASTER_PORT"),
    ],
)
def test_the_remedy_for_a_port_in_use_is_a_setting_of_the_launch(line: str, setting: str) -> None:
    environment = {"MASTER_ADDR": "n0", "MASTER_PORT": "29611"}
    plan, _ = planned(Plan(), tuple(line.split()), environment, master=None, ranks_per_node=None)
    holder = Listener(port=29611, namespace="", pid=7, name="python")
    for more in ({"holder": holder}, {"holder": holder, "holder_role": "rank"}, {"port_error": "denied"}):
        assert f"se another {setting}" in failing([node(1, **more)], [], plan)["master port"].remedy
    plan, _ = planned(Plan(), ("--lr", "1"), {}, master="n0:29611", ranks_per_node=None)
    assert failing([node(1, holder=holder)], [], plan)["master port"].remedy.endswith("or use another port.")


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("torchrun --nnodes 2 --node_rank 0 --master_addr 10.9.9.9 t.py",
         "Node 0, which the line starts, must have it: run preflight on that node, or correct --master-addr."),
        ("torchrun --nnodes 2 --node_rank 1 --master_addr 10.9.9.9 t.py",
         "Run preflight on node 0, which must have it, or correct --master-addr."),
        ("torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint 10.9.9.9:1 t.py",
         "Run preflight on all nodes, or correct --rdzv-endpoint."),
        ("accelerate launch --multi_gpu --num_machines 2 --num_processes 2 --machine_rank 1 --main_process_ip 10.9.9.9 t.py",
         "Run preflight on node 0, which must have it, or correct --main_process_ip."),
        ("MASTER_ADDR=10.9.9.9 MASTER_PORT=1 RANK=0 python t.py", "Run preflight on all nodes, or correct MASTER_ADDR."),
        ("--lr 1", "Run preflight on all nodes, or correct --master."),
    ],
)  # fmt: skip
def test_the_remedy_for_a_master_elsewhere_is_a_setting_of_the_launch(line: str, remedy: str) -> None:
    master = "10.9.9.9:1" if line.startswith("--") else None
    plan, _ = planned(Plan(), tuple(line.split()), {}, master=master, ranks_per_node=None)
    checks = all_checks([node(1, is_master=False)], [], plan)
    assert [check.remedy for check in checks if check.name == "master port"] == [remedy]


def test_options_that_contradict_the_launch_line_are_refused() -> None:
    words = ("torchrun", "--nproc-per-node", "2", "--nnodes", "2", "--master-addr", "n0", "t.py")
    with pytest.raises(CommandError, match="--ranks-per-node is 4, but 2 in the launch line"):
        planned(Plan(), words, {}, master=None, ranks_per_node=4)
    with pytest.raises(CommandError, match="--master is n1:1, but n0:29500 in the launch line"):
        planned(Plan(), words, {}, master="n1:1", ranks_per_node=None)
    assert planned(Plan(), words, {}, master="n0:29500", ranks_per_node=2)[0].ranks_per_node == 2


def test_a_launch_that_cannot_work_on_any_nodes_fails() -> None:
    line = "torchrun --nproc-per-node 2 --master-port 22222 --nnodes 2 --node-rank 3 train.py"
    checks = planned(Plan(), tuple(line.split()), {}, master=None, ranks_per_node=None)[1]
    failed = [check.text for check in checks if check.name == "launch" and check.status == "fail"]
    assert failed == ["node rank: 3 of 2 nodes"]
    line = "torchrun --rdzv-endpoint n0 t.py"
    checks = planned(Plan(), tuple(line.split()), {}, master=None, ranks_per_node=None)[1]
    (failed_check,) = (check for check in checks if check.name == "launch" and check.status == "fail")
    assert failed_check.text == "rdzv-endpoint: n0"


LOCAL = replace(PLAN, master="127.0.0.1:29500", node_rank=1)


def local(number: int, **more: object) -> NodeReport:
    """A node whose master and own name are loopback."""
    resolved = {f"n{number}": ("127.0.1.1",), "127.0.0.1": ("127.0.0.1",)}
    here = machine(interfaces=(), net_namespace="net:[1]", memory_available_bytes=10**10)
    more = {"machine_id": "boot pid:[1]", "machine": here, **more}
    return node(number, resolved=resolved, address="127.0.1.1", is_master=True, cards=(), **more)


def test_a_loopback_master_fails_unless_the_nodes_are_on_one_host() -> None:
    failed = failing([local(1)], [], LOCAL)
    assert set(failed) == {"master's name", "own name"}
    text = "n1 resolves 127.0.0.1 to itself (127.0.0.1), so each node connects to itself, unless all nodes are on this host"
    assert failed["master's name"].text == text
    assert "master's name" not in [check.name for check in all_checks([local(1)], [], LOCAL) if check.status == "pass"]
    apart = failing([local(1), local(2, machine_id="other pid:[1]")], [], LOCAL)
    assert "unless" not in apart["master's name"].text + apart["own name"].text
    assert failing([local(1, machine_id=None), local(2, machine_id=None)], [], LOCAL)
    assert not failing([local(1), local(2)], [], LOCAL)


@pytest.mark.parametrize(
    ("node_rank", "status", "says"),
    [
        (0, "unknown", "n1 resolves n1 to itself (127.0.1.1), which only the master may do, and how the other nodes"),
        (
            None,
            "unknown",
            "n1 resolves n1 to itself (127.0.1.1), which only the master may do, and how the other nodes",
        ),
        (1, "fail", "n1 resolves n1 to itself (127.0.1.1), so it connects to itself, unless all nodes are on"),
    ],
)
def test_only_the_master_may_resolve_its_name_to_itself(node_rank: int | None, status: str, says: str) -> None:
    (check,) = (
        check
        for check in all_checks([local(1)], [], replace(PLAN, node_rank=node_rank))
        if check.name == "master's name"
    )
    assert check.status == status
    assert check.text.startswith(says)


def test_a_master_whose_name_is_loopback_on_itself_alone_is_found_by_the_others() -> None:
    master = node(
        1, resolved={"n1": ("127.0.1.1",)}, environment={"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
    )
    other = node(2, environment=master.environment)
    checks = all_checks([master, other], LINKS, PLAN)
    assert [(check.status, check.text) for check in checks if check.name == "master's name"] == [
        ("pass", "n1 is 10.0.0.1")
    ]
    other = replace(other, resolved={"n1": ("127.0.1.1",), "n2": ("10.0.0.2",)})
    found = failing([master, other])["master's name"]
    assert (found.status, found.nodes) == ("fail", ("n2",))


def test_loopback_is_no_link_between_nodes() -> None:
    lo = Interface(name="lo", up=True, addresses=("127.0.1.1",), networks=("127.0.0.0/8",))
    card = Card(name="lo", wireless=False, speed_mbit=None, mtu=65536)
    here = replace(local(1), machine=machine(interfaces=(lo,), memory_available_bytes=10**10), cards=(card,))
    shown = [check.text for check in all_checks([here], [], replace(LOCAL, nodes=1)) if check.name == "link"]
    assert shown == ["n1 uses lo: loopback, MTU 65536"]
    checks = all_checks([here], [], LOCAL)
    assert "link" not in [check.name for check in checks]
    (own,) = (check for check in checks if check.name == "own name")
    assert own.remedy.startswith("Set GLOO_SOCKET_IFNAME on n1 to the interface that the nodes share, or correct")


def test_the_conclusion_has_the_condition_of_its_failures() -> None:
    def conclude(reports: list[NodeReport]) -> str:
        console = make_console()
        with console.capture() as printed:
            report_checks(all_checks(reports, [], LOCAL), len(reports), console)
        return " ".join(printed.get().rpartition("\n\n")[2].split())

    condition = "this launch cannot work, unless all nodes are on this host ("
    assert conclude([local(1)]).startswith(condition)
    assert conclude([local(1, missing_data=(MissingPath(path="/d", origin="--data", must_exist=True),))]).startswith(
        "this launch cannot work ("
    )
    assert conclude([local(1), local(2, machine_id="other pid:[1]")]).startswith("this launch cannot work (")
    assert conclude([local(1), local(2)]).startswith("nothing that was checked prevents this launch (")


@pytest.mark.parametrize(
    ("running", "own", "fails"),
    [
        ((0,), 1, False),
        ((None,), 1, False),
        ((1,), 1, True),  # this node itself: no second one can listen there
        ((0,), None, False),
        ((), 1, True),
        ((0, 1), 1, True),  # another run of the same line
        ((None, None), None, True),
    ],
)
def test_the_other_node_of_a_loopback_master_already_runs_here(
    running: tuple[int | None, ...], own: int | None, fails: bool
) -> None:
    agents = tuple(Agent(pid=7 + number, node_rank=node_rank) for number, node_rank in enumerate(running))
    holder = Listener(port=29500, namespace="", pid=7, name="pt_elastic", argv=("torchrun",)) if agents else None
    here = local(1, agents=agents, holder=holder)
    failed = failing([here], [], replace(LOCAL, node_rank=own))
    assert ("master's name" in failed, "own name" in failed) == (fails, fails)
    assert ("master port" in failed) == (fails and bool(running))


def test_as_many_agents_as_nodes_are_another_run_on_whatever_host_they_wait() -> None:
    holder = Listener(port=29500, namespace="", pid=7, name="pt_elastic", argv=("torchrun",))
    agent = Agent(pid=7, node_rank=None)
    master = node(1, agents=(agent,), holder=holder)
    assert "master port" not in failing([master, node(2)])
    assert "belongs to pid 7" in failing([master, node(2, agents=(agent,))])["master port"].text
    same = {"machine_id": "boot pid:[1]", "agents": (agent,)}
    assert "master port" not in failing([replace(master, **same), node(2, **same)])  # one agent, in two reports


@pytest.mark.parametrize(
    ("options", "node_rank"),
    [("--node_rank 1", 1), ("", 0), ("--node_rank 1 --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:29500", None)],
)
def test_a_launcher_that_waits_at_the_master_is_a_node_of_the_launch(
    options: str, node_rank: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"torchrun --nnodes 2 --master_addr 127.0.0.1 {options} t.py"
    plan, _ = planned(Plan(), tuple(line.split()), {}, master=None, ranks_per_node=None)
    assert plan.node_rank == node_rank
    launch = launch_of("pt_elastic", tuple(line.replace("29500", "029500").split()), {})
    own = os.getpid()
    launcher = Target(own, 1, "launcher", "pt_elastic", tuple(line.split()), "S", 0, None, launch=launch)
    found = {own: launcher}
    monkeypatch.setattr(node_report, "discover", lambda proc, deadline: Discovered(found, []))
    assert [agent.pid for agent in node_report.gather(plan).agents] == [own]
    assert node_report.gather(replace(plan, master="127.0.0.1:1")).agents == ()
    assert node_report.gather(replace(plan, nodes=3)).agents == ()
    launcher.unreadable_below = 1
    assert node_report.gather(plan).agents == ()
    launcher.unreadable_below = 0
    found[own + 1] = Target(own + 1, own, "rank", "python", ("python", "t.py"), "S", 0, None, owner=own)
    assert node_report.gather(plan).agents == ()  # it trains


def test_a_launch_without_its_script_cannot_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))

    def check(line: str) -> list[tuple[str, str]]:
        return [
            (each.name, each.status)
            for each in planned(Plan(), tuple(shlex.split(line)), {}, master=None, ranks_per_node=None)[1][1:]
        ]

    assert check("torchrun --nproc-per-node 2 train.py") == [("launcher", "fail"), ("script", "fail")]
    assert check("torchrun --nnodes 2 --node-rank 0 --master-addr n0 train.py")[1:2] == [("script", "warn")]
    assert check("docker run image torchrun train.py") == []
    (tmp_path / "file").touch()
    assert check("torchrun --nproc-per-node 2 file/train.py")[1:] == [("script", "fail")]
    (tmp_path / "train.py").touch()
    (tmp_path / "torchrun").touch(0o755)
    assert check("torchrun --nproc-per-node 2 train.py") == []


def test_the_beginning_of_an_option_is_that_option() -> None:
    words = ("torchrun", "--nproc-per-nod", "3", "--standal", "train.py")
    plan, (launch, *_) = planned(Plan(), words, {}, master=None, ranks_per_node=None)
    assert (plan.ranks_per_node, launch.text) == (3, "torchrun: 3 ranks on one node")


def test_variables_of_the_launch_line_count_on_the_node() -> None:
    words = ("env", "OMP_NUM_THREADS=7", "torchrun", "--nproc-per-node", "2", "t.py")
    plan, _ = planned(Plan(), words, {}, master=None, ranks_per_node=None)
    assert node_report.gather(plan).environment["OMP_NUM_THREADS"] == "7"


def test_a_launcher_that_limits_no_threads() -> None:
    plan = replace(PLAN, ranks_per_node=2, launcher="srun")
    silent = [node(1, environment={}), node(2, environment={})]
    assert [check.status for check in all_checks(silent, LINKS, plan) if check.name == "cores"] == ["unknown"] * 2
    assert not failing(silent, plan=replace(plan, launcher="torchrun"))
    assert not failing(silent, plan=replace(plan, ranks_per_node=None))


def test_too_many_ranks_are_not_cured_by_fewer_threads() -> None:
    crowded = failing([node(1), node(2)], plan=replace(PLAN, ranks_per_node=65))["cores"]
    assert crowded.remedy == "Start fewer ranks on this node."


def test_ranks_whose_launcher_lives_are_in_use() -> None:
    found = failing([node(1, running=("ranks 0-1, pids 7, 8",)), node(2)])
    assert set(found) == {"other runs"}
    assert (
        found["other runs"].remedy
        == "They share cores and memory with this launch. `hangdoc diagnose` shows whether they hang."
    )
    held = Listener(port=29500, namespace="", pid=7, name="python", argv=("python",), orphan=False)
    taken = failing([node(1, running=("ranks 0-1, pids 7, 8",), holder=held), node(2)])
    assert taken["master port"].remedy.startswith("End that process if it belongs to an earlier run")
    of_run = failing([node(1, holder=held, holder_role="rank"), node(2)])["master port"]
    assert of_run.text.endswith("belongs to pid 7 (python), a rank of another run (HD402)")
    assert of_run.remedy == "In use: use another port, or end that run if it is no longer needed."


def test_a_run_whose_ranks_do_not_run_is_not_in_use() -> None:
    found = failing([node(1, resting=(OtherRun(pid=6, text="ranks 0-1, pids 7, 8"),)), node(2)])["other runs"]
    assert found.text == "n1: ranks 0-1, pids 7, 8"
    assert "`hangdoc diagnose --pid 6`" in (found.remedy or "") and "In use" not in (found.remedy or "")


def test_a_run_with_two_launchers_is_looked_at_with_both() -> None:
    """With one of them, ranks of it are missing."""
    run = OtherRun(pid=6, other_pids=(9,), text="ranks 0-3")
    assert "`hangdoc diagnose --pid 6 --pid 9`" in failing([node(1, resting=(run,)), node(2)])["other runs"].remedy
    foreign = replace(run, user="root")
    assert "`hangdoc diagnose --pid 6 --pid 9`" in failing([node(1, foreign=(foreign,)), node(2)])["other runs"].remedy


def test_a_run_that_can_not_be_read_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As two nodes of another user's run on this host: of several nodes, no order tells the ranks."""
    ticks, line = ProcFS().stat("self").start_ticks, "torchrun --nnodes 2 --master-addr n0 --node-rank {} t.py"

    def launcher(pid: int, node_rank: int, port: int) -> Target:
        argv = tuple(f"{line.format(node_rank)} --master-port {port}".split())
        launch = Launch(tool="torchrun", nnodes="2", endpoint=f"n0:{port}")
        return Target(pid, 1, "launcher", "pt_elastic", argv, "S", ticks, uid=0, launch=launch, unreadable_below=2)

    found = [launcher(2**22, 0, 7), launcher(2**22 + 1, 1, 7), launcher(2**22 + 2, 0, 8)]
    waiting = replace(found[0], pid=2**22 + 3, unreadable_below=0)
    running = {target.pid: target for target in (*found, waiting)}
    monkeypatch.setattr(node_report, "discover", lambda proc, deadline: Discovered(running, []))
    monkeypatch.setattr(other_runs, "find_only_user", lambda: 1000)
    runs = node_report.gather(Plan()).foreign
    assert [(run.pid, run.other_pids, run.user) for run in runs] == [
        (2**22, (2**22 + 1,), "root"),
        (2**22 + 2, (), "root"),
    ]
    assert runs[0].text.startswith(
        f"4 processes that this user can't read, below pids {2**22}, {2**22 + 1}, which started "
    )
    assert " ago: torchrun --nnodes 2" in runs[0].text


@pytest.mark.parametrize(("user", "who"), [("root", "root"), ("alice", "alice and root"), ("uid 7", "uid 7 and root")])
def test_a_run_of_another_user_is_for_that_user(user: str, who: str) -> None:
    """This one can neither diagnose nor end it."""
    run = OtherRun(pid=6, text="ranks 0-1, pids 7, 8", user=user, at_rest=True)
    (check,) = failing([node(1, foreign=(run,)), node(2)]).values()
    assert (check.name, check.text) == ("other runs", "n1: ranks 0-1, pids 7, 8")
    assert check.remedy == (
        f"The main threads of these ranks did not run for a second. The run belongs to {user}: only {who} can see whether it "
        f"hangs (`hangdoc diagnose --pid 6`), and end it. Ask {user} whether it is still needed: it uses memory and ports."
    )
    orphan = replace(run, at_rest=False, left_over=True)
    (check,) = failing([node(1, foreign=(orphan,)), node(2)]).values()
    assert check.name == "left-overs"
    assert check.remedy.endswith(f"Ask {user} whether it is still needed: it uses memory, cores and ports (HD305).")
    runs = tuple(replace(run, text=f"rank 0, pid {pid}") for pid in range(6))
    *_, rest = (check for check in all_checks([node(1, foreign=runs), node(2)], LINKS, PLAN) if check.status == "warn")
    assert rest.text.endswith("2 more runs, which hangdoc diagnose lists")
    assert rest.remedy == "They belong to other users: ask these, or root."


@pytest.mark.parametrize(("only", "foreign"), [(1000, ["root", "uid 4242424"]), (None, [])])
def test_the_runs_of_others_are_told_by_their_users(
    monkeypatch: pytest.MonkeyPatch, only: int | None, foreign: list[str]
) -> None:
    ticks = ProcFS().stat("self").start_ticks

    def target(pid: int, uid: int) -> Target:
        return Target(pid, 6, "rank", "python", ("python", "t.py"), "S", ticks, uid=uid, owner=pid + 50)

    found = {pid: target(pid, uid) for pid, uid in ((2**22, 0), (2**22 + 1, 1000), (2**22 + 2, 4242424))}
    monkeypatch.setattr(node_report, "discover", lambda proc, deadline: Discovered(found, []))
    monkeypatch.setattr(other_runs, "find_only_user", lambda: only)
    report = node_report.gather(Plan())
    assert [run.user for run in report.foreign] == foreign
    assert len(report.running) == 3 - len(foreign)


def test_a_name_service_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run of another user took a second."""
    release, ticks = threading.Event(), ProcFS().stat("self").start_ticks
    found = {
        pid: Target(pid, 6, "rank", "python", ("python", "t.py"), "S", ticks, uid=uid, owner=pid + 50)
        for pid, uid in ((2**22, 70001), (2**22 + 1, 70001), (2**22 + 2, 70002))
    }
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: release.wait())
    monkeypatch.setattr(other_runs, "find_only_user", lambda: 1000)
    waits = list[float | None]()
    monkeypatch.setattr(other_runs, "wait", lambda names, seconds: waits.append(seconds))
    try:
        runs = list(other_runs.describe_others(ProcFS(), found))
    finally:
        release.set()
    assert [run.user for run in runs] == ["uid 70001", "uid 70001", "uid 70002"]
    assert waits == [1.0]


@pytest.mark.parametrize(
    ("at_work", "uses"), [((), "memory and ports"), (("rank 0, pid 7",), "memory, cores and ports")]
)
def test_a_left_over_rank_uses_cores_if_it_runs(at_work: tuple[str, ...], uses: str) -> None:
    found = failing([node(1, left_over=("rank 0, pid 7",), left_over_at_work=at_work), node(2)])["left-overs"]
    assert found.remedy == f"End it if it is no longer needed: it uses {uses} (HD305)."


def test_left_overs_that_cannot_be_recognized_are_not_denied() -> None:
    own = Attach(name="other users' ranks", works=True, found="", remedy="", only="the runs of uid 7")
    checks = all_checks([node(1, attach=(own,)), node(2, attach=(own,))], LINKS, PLAN)
    (passed,) = (check for check in checks if check.name == "left-overs")
    assert passed.text == "no rank without a launcher is running; hangdoc can recognize only the runs of uid 7"


def test_a_port_of_another_user_is_not_for_this_one_to_free() -> None:
    held = Listener(port=29500, namespace="", pid=None, name="", argv=(), orphan=False)
    found = failing([node(1, holder=held), node(2)])["master port"]
    assert found.remedy == "Use another port, or ask the user of that process to end it."


def test_words_that_are_not_shown_are_explained() -> None:
    def lines(*runs: str) -> str:
        console = make_console(width=200)
        with console.capture() as printed:
            report_checks(all_checks([node(1, running=runs), node(2)], LINKS, PLAN), 2, console)
        return printed.get()

    assert "<str> and <redacted> stand for words" in lines("rank 0, pid 7: torchrun t.py --bug <str>")
    assert "stand for words" not in lines("rank 0, pid 7: torchrun t.py --bug ckpt")


@pytest.mark.parametrize("work", ["while True: pass", "import time\nwhile True: time.sleep(0.05)"])
def test_ranks_at_rest_are_those_that_do_not_run(monkeypatch: pytest.MonkeyPatch, work: str) -> None:
    """One sleeps, one works, even if it sleeps between its steps: a run of both is in use, one of the first alone is not."""
    with (
        subprocess.Popen(["sleep", "60"]) as sleeps,
        subprocess.Popen([sys.executable, "-c", work]) as works,
    ):
        try:
            proc, found = ProcFS(), {}
            for number, (pid, owner) in enumerate(((sleeps.pid, 6), (sleeps.pid, 5), (works.pid, 5))):
                who = RankIdentity(rank=number, source="environment")
                ticks = proc.stat(str(pid)).start_ticks
                found[number] = Target(pid, owner, "rank", "python", ("python", "t.py"), "S", ticks, who, owner=owner)
                found[number + 3] = replace(found[number], owner=None, launcher_gone=True)
            monkeypatch.setattr(node_report, "discover", lambda proc, deadline: Discovered(found, []))
            report = node_report.gather(Plan())
        finally:
            sleeps.kill()
            works.kill()
    assert len(report.left_over) == 3
    assert [f"pid {works.pid}, an orphan" in text for text in report.left_over_at_work] == [True]
    assert [run.pid for run in report.resting] == [6]
    assert [f"{sleeps.pid}, {works.pid}" in text for text in report.running] == [True]


@pytest.mark.parametrize(
    ("ticks", "seconds", "rests"), [(2, 1.0, True), (3, 1.0, False), (4, 3.2, True), (30, 1.0, False)]
)
def test_a_step_of_each_clock_is_rounding(
    monkeypatch: pytest.MonkeyPatch, ticks: int, seconds: float, rests: bool
) -> None:
    """User and system time may step by a tick each although a fraction was used; on a loaded host the sleep takes longer."""
    used, now = iter((100, 100 + ticks)), iter((5.0, 5.0 + seconds))
    clocks = (other_runs._Clock(each, ("7", "1")) for each in used)
    target = Target(pid=7, ppid=6, role="rank", name="python", argv=(), state="S", start_ticks=0, owner=6)
    monkeypatch.setattr(other_runs, "_read_clock", lambda proc, target: next(clocks))
    monkeypatch.setattr(other_runs.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(other_runs.time, "monotonic", lambda: next(now))
    assert other_runs._find_at_rest(ProcFS(), [target]) == (frozenset([7]) if rests else frozenset())


def test_the_holder_of_a_port_is_a_rank_or_a_launcher_of_a_run() -> None:
    rank = Target(pid=7, ppid=6, role="rank", name="python", argv=(), state="S", start_ticks=0, owner=6)
    running = {7: rank, 9: replace(rank, pid=9, ppid=1, owner=8, launcher_gone=True)}
    assert [node_report._find_role(running, pid) for pid in (7, 6, 9, 8, None)] == [
        "rank",
        "launcher",
        None,
        None,
        None,
    ]


def test_the_ranks_of_two_agents_are_one_run() -> None:
    """Two launchers on one node have one name for their run, and a third one has a name of its own."""
    pids = [2**22 + number for number in range(6)]  # no process has such a pid
    run, other = (RankIdentity(rank=0, source="torchrun", run=f"torchrun:job@{port}") for port in (29500, 29600))
    agent = Target(pid=pids[0], ppid=1, role="launcher", name="torchrun", argv=("torchrun",), state="S", start_ticks=0)
    rank = replace(agent, pid=pids[3], ppid=pids[1], role="rank", owner=pids[1], identity=run)
    targets = [
        agent,
        replace(agent, pid=pids[1]),
        replace(rank, pid=pids[2], owner=pids[0], identity=replace(run, rank=1)),
        rank,
        replace(rank, pid=pids[4], owner=pids[5], identity=other),
    ]
    running = {target.pid: target for target in targets}
    runs = other_runs._find_other_ranks(ProcFS(), running)
    assert [[target.pid for target in each] for each in runs] == [[pids[3], pids[2]], [pids[4]]]
    launchers = other_runs._find_launchers(running, runs[0])
    assert f" by pids {pids[1]}, {pids[0]}: torchrun" in other_runs._describe_ranks(ProcFS(), runs[0], launchers)


def test_another_run_is_told_by_its_directory(tmp_path: Path) -> None:
    """Which is filtered as in a snapshot: a short name with digits is none of a secret."""
    (folder := tmp_path / "trial13d").mkdir()
    with subprocess.Popen(["sleep", "60"], cwd=folder) as process:
        try:
            argv = (f"{folder}/bin/python", "-c", "from multiprocessing.spawn import spawn_main")
            rank = Target(pid=process.pid, ppid=1, role="rank", name="python", argv=argv, state="S", start_ticks=0)
            text = other_runs._describe_ranks(ProcFS(), [rank], ())
            gone = other_runs._describe_ranks(ProcFS(), [replace(rank, pid=2**22 + 1)], ())
        finally:
            process.kill()
    assert f" ago in {folder}: " in text
    assert " ago: " in gone


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        ("/w/trial13d/bin/python -u /w/trial13d/bin/torchrun --nproc-per-node 2 --master-port 29712 t.py",
         "torchrun --nproc-per-node 2 --master-port 29712 t.py"),
        ("/w/trial13d/bin/python -u t.py", "python -u t.py"),
        ("/usr/bin/torchrun t.py", "torchrun t.py"),
        ("/w/trial13d/bin/python -m torch.distributed.run t.py", "python -m torch.distributed.run t.py"),
    ],
)  # fmt: skip
def test_a_command_of_another_run_begins_with_its_program(argv: str, shown: str) -> None:
    target = Target(
        pid=2**22 + 1, ppid=1, role="rank", name="python", argv=tuple(argv.split()), state="S", start_ticks=0
    )
    assert other_runs._describe_ranks(ProcFS(), [target], ()).endswith(f" ago: {shown}")


def test_the_holder_of_the_port_is_shown_as_another_run_is() -> None:
    """With its program, its script and the numbers among its options; of a process of no run, no values are shown."""
    folder = "/root/trial23a"
    line = f"{folder}/venv/bin/python {folder}/venv/bin/torchrun --nproc_per_node 2 --master_port 29872 train_ok.py"
    argv = tuple(line.split())
    launcher = Target(pid=7, ppid=1, role="launcher", name="torchrun", argv=argv, state="S", start_ticks=0)
    holder = Listener(port=29872, namespace="", pid=7, name="pt_elastic", argv=argv)
    command = node_report._describe_holder({7: launcher}, holder)
    assert command == "torchrun --nproc_per_node 2 --master_port 29872 train_ok.py"
    assert other_runs._describe_ranks(ProcFS(), [replace(launcher, pid=2**22 + 1)], ()).endswith(f": {command}")
    of_run = failing([node(1, holder=holder, holder_command=command, holder_role="launcher"), node(2)])["master port"]
    assert f"pid 7 ({command}), the launcher" in of_run.text
    server = replace(holder, argv=(f"{folder}/venv/bin/python", f"{folder}/serve.py", "--token", "x1"))
    assert node_report._describe_holder({}, server) == f"python {folder}/serve.py --token <str>"


def test_a_directory_is_filtered_as_the_paths_of_the_command_in_it(tmp_path: Path) -> None:
    (folder := tmp_path / "a1b2c3d4").mkdir()
    argv = ("python", f"{folder}/t.py")
    with subprocess.Popen(["sleep", "60"], cwd=folder) as process:
        try:
            rank = Target(pid=process.pid, ppid=1, role="rank", name="python", argv=argv, state="S", start_ticks=0)
            text = other_runs._describe_ranks(ProcFS(), [rank], ())
        finally:
            process.kill()
    assert "a1b2c3d4" not in text
    assert text.count("/<redacted>") == 2


def test_the_runs_that_are_not_listed_are_counted() -> None:
    runs = tuple(f"rank 0, pid {pid}" for pid in range(6))
    checks = all_checks([node(1, running=runs, left_over=runs[:5]), node(2)], LINKS, PLAN)
    listed = [check.text for check in checks if check.name == "other runs"]
    assert listed == [*(f"n1: {run}" for run in runs[:4]), "n1: 2 more runs, which hangdoc diagnose lists"]
    assert [check.text for check in checks if check.name == "left-overs"][4:] == [
        "n1: 1 more rank, which hangdoc diagnose lists"
    ]


def test_the_remedy_for_several_runs_is_for_several() -> None:
    resting = tuple(OtherRun(pid=pid, text=f"rank 0, pid {pid}") for pid in range(7))
    checks = all_checks([node(1, resting=resting), node(2)], LINKS, PLAN)
    *ones, rest = [check.remedy for check in checks if check.name == "other runs"]
    assert all(one.endswith("End it if it is no longer needed: it uses memory and ports.") for one in ones)
    assert rest.endswith(
        "See whether they hang: `hangdoc diagnose`. End those that are no longer needed: they use memory and ports."
    )


@pytest.mark.parametrize(
    ("line", "gpus", "once"),
    [
        ("accelerate launch --num_processes 2 t.py", 0, True),
        ("accelerate launch --num_processes 2 t.py", 1, True),
        ("accelerate launch --num_processes 2 t.py", 2, False),
        ("accelerate launch --num_processes 1 t.py", 0, False),
        ("accelerate launch --cpu --num_processes 2 t.py", 0, False),  # the line itself says one
        ("accelerate launch --multi_gpu --num_processes 2 t.py", 0, False),
        ("accelerate launch --config_file c.yaml --num_processes 2 t.py", 0, False),
        ("torchrun --nproc-per-node 2 t.py", 0, False),
    ],
)
def test_accelerate_starts_several_ranks_only_where_it_finds_cards(line: str, gpus: int, once: bool) -> None:
    plan, (launch, *_) = planned(Plan(), tuple(line.split()), {}, master=None, ranks_per_node=None)
    assert ("if it finds several cards" in launch.text) == plan.needs_cards
    found = failing([node(1, machine=machine(gpus=gpus))], [], plan)
    assert "starts the script once" in found["launch"].text if once else "launch" not in found


@pytest.mark.parametrize(
    ("options", "status", "inert"),
    [
        ("--cpu --num_processes 3 --main_process_port 29671", "warn", "--num_processes, --main_process_port"),
        ("--cpu --num_processes 1 --multi_gpu", "pass", "--num_processes, --multi_gpu"),
        ("--cpu", "pass", None),
        ("--cpu --mpirun_hostfile h --num_processes 3", "pass", None),
        ("--multi_gpu --num_processes 3 --main_process_port 29671", "pass", None),
    ],
)
def test_accelerate_starts_one_process_on_the_cpu_that_meets_no_other(
    options: str, status: str, inert: str | None
) -> None:
    line = f"accelerate launch {options} t.py"
    plan, (launch, *_) = planned(Plan(), tuple(line.split()), {}, master=None, ranks_per_node=None)
    assert (launch.status, plan.master is None) == (status, "--multi_gpu --num" not in options)
    assert (f"without effect: {inert} (with --cpu, accelerate starts the script once" in launch.text) == bool(inert)
    assert ("without effect" in launch.text, "--multi_gpu" in launch.remedy) == (bool(inert), status == "warn")


@pytest.mark.parametrize(
    ("ranks", "torch", "gpus", "status"),
    [
        ("gpu", "2.13.0+cpu", 0, "fail"),
        ("gpu", "2.13.0+cpu", 1, "fail"),
        ("gpu", "2.13.0+cu130", 0, "warn"),  # another maker's card may be there
        ("gpu", None, 0, "warn"),
        ("gpu", "2.13.0+cu130", 1, None),
        ("auto", "2.13.0+cpu", 0, None),
        ("2", "2.13.0+cpu", 0, None),
    ],
)
def test_torchrun_counts_no_card_where_there_is_none(
    ranks: str, torch: str | None, gpus: int, status: str | None
) -> None:
    line = ("torchrun", "--nproc-per-node", ranks, "t.py")
    plan, _ = planned(Plan(), line, {}, master=None, ranks_per_node=None if ranks == "2" else 2)
    versions = {"hangdoc": "1", "Python": "3.11", "torch": torch}
    here = node(1, machine=machine(gpus=gpus), versions=versions)
    found = failing([here], [], plan).get("launch")
    assert (found and found.status) == status
    assert found is None or "torchrun ends at once" in found.text
    if status == "fail":  # hangdoc's own torch is not that of the launch
        assert "launch" not in failing([replace(here, other_python="/py", machine=machine(gpus=1))], [], plan)


@pytest.mark.parametrize(
    ("line", "program", "user", "refused"),
    [
        ("mpirun -np 2 python t.py", "orterun", 0, True),
        ("mpirun -np 2 python t.py", "orterun", 1000, False),
        ("mpirun -np 2 python t.py", "mpiexec.hydra", 0, False),
        ("mpirun -np 2 --allow-run-as-root python t.py", "orterun", 0, False),
        ("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -np 2 python t.py", "orterun", 0, False),
    ],
)
def test_open_mpi_refuses_root(
    line: str, program: str, user: int, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / program).write_text("#!/bin/sh\n")
    (tmp_path / program).chmod(0o755)
    (tmp_path / "mpirun").symlink_to(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    checks = planned(Plan(), tuple(line.split()), {}, master=None, ranks_per_node=None)[1]
    assert ("refuses to run as root" in "".join(check.text for check in checks)) == refused


def test_a_one_way_firewall_names_the_direction() -> None:
    check = failing([node(1), node(2)], [ok("n1", "n2"), ok("n2", "n1", outcome="timeout")])["connections"]
    assert "n2 to n1" in check.text
    assert "the other direction works" in check.text


def test_a_loopback_name_harms_where_its_node_would_listen() -> None:
    def named(high: str) -> Check:
        own = {"n2": ("127.0.1.1",), "n1": (high,)}
        first = node(1, address=high, resolved={"n1": (high,)})
        return failing([first, node(2, address="127.0.1.1", resolved=own)])["own name"]

    assert named("10.0.0.1").status == "warn"  # the lower address listens
    assert named("192.168.0.1").status == "fail"


def test_a_model_that_does_not_fit() -> None:
    found = failing([node(1), node(2)], plan=replace(PLAN, parameters=5 * 10**9, ranks_per_node=2))
    assert {"memory", "disk"} <= set(found)
    assert found["memory"].unless == "the ranks share the model's state or keep it in a smaller type"
    assert found["disk"].unless == "checkpoints leave out the state of Adam or keep a smaller type"
    assert all(found[name].text.endswith(f": too little, unless {found[name].unless}") for name in ("memory", "disk"))


@pytest.mark.parametrize(
    ("dtype", "parameters", "text", "unless"),
    [
        (None, 25_000_000, "take 800 MB in float32, 10.0 GB are available", ""),
        ("float32", 25_000_000, "take 800 MB in float32, 10.0 GB are available", ""),
        ("float64", 25_000_000, "take 1.6 GB in float64, 10.0 GB are available", ""),
        ("bfloat16", 25_000_000, "take 800 MB in float32 (400 MB if the model itself is in bfloat16), 10.0 GB are", ""),
        ("float16", 5 * 10**8, "(8.0 GB if the model itself is in float16)",
         "the model itself is in float16 or the ranks share the model's state"),
        ("bfloat16", 10**9, "take 32.0 GB in float32 (16.0 GB if the", "the ranks share the model's state"),
    ],
)  # fmt: skip
def test_the_data_type_counts_for_a_model_that_is_in_it(
    dtype: str | None, parameters: int, text: str, unless: str
) -> None:
    """With autocast, a model stays in float32: which of the two it is, no option says."""
    plan = replace(PLAN, parameters=parameters, dtype=dtype, ranks_per_node=2)
    checks = {check.name: check for check in all_checks([node(1), node(2)], LINKS, plan)}
    assert text in checks["memory"].text
    assert (checks["memory"].unless, checks["memory"].status) == (unless, "fail" if unless else "pass")
    assert ("(150 MB if the model itself is in bfloat16)" in checks["disk"].text) == (
        dtype == "bfloat16" and parameters == 25_000_000
    )


def test_time_of_an_all_reduce() -> None:
    assert all_reduce_seconds(25_000_000, 1000, 2) == pytest.approx(0.8)
    assert all_reduce_seconds(None, 1000, 2) is None


def test_numbers_of_parameters() -> None:
    assert [parameters(text) for text in ("25M", "1.3B", "124439808", None)] == [
        25_000_000,
        1_300_000_000,
        124_439_808,
        None,
    ]
    for wrong in ("x", "-3", "0", "M", "1e400"):
        with pytest.raises(CommandError):
            parameters(wrong)


def test_data_types_have_the_name_that_torch_has() -> None:
    assert [data_type(text) for text in ("bf16", "torch.bfloat16", "Float32", None)] == [
        "bfloat16",
        "bfloat16",
        "float32",
        None,
    ]
    with pytest.raises(CommandError, match="'fp7' is no data type of torch"):
        data_type("fp7")


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (("--per_device_train_batch_size", "4"), None),
        (("--num_train_epochs=3",), None),
        (("--train-split", "0.9"), None),
        (("--dataset_name", "wikitext"), None),
        (("--dataset_name", "allenai/c4"), None),
        (("--dataset-path", "allenai/c4"), "?allenai/c4"),
        (("--max_train_files", "10k"), None),
        (("--shuffle_train_files", "true"), None),
        (("--data-dir", "2024"), "2024"),
        (("--data-dir", "shards"), "shards"),
        (("--train_file", "data/x.json"), "data/x.json"),
        (("--train_file", "here/x.json"), None),
        (("--dataset", "here/shards"), "here/shards"),  # `here` exists
        (("--dataset", "/nowhere/shards"), "/nowhere/shards"),
        (("--data", "./shards"), "shards"),
        (("--train-data", "{}/shards"), "shards"),
        (("--data", "shards"), "?shards"),  # no option of preflight: it may be the name of a dataset
        (("--dataset=imdb",), "?imdb"),
        (("--train-data", "true"), None),
        (("--data_config", "en"), None),
    ],
)
def test_only_what_surely_is_a_path_must_exist(
    words: tuple[str, ...], missing: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here/x.json").touch()
    problems: list[str] = []
    lacking: list[MissingPath] = []
    (tmp_path / "4").mkdir()  # no directory of data
    words = tuple(word.format(tmp_path) for word in words)
    assert not list(node_report._list_data(Plan(arguments=("train.py", *words)), {}, problems, lacking))
    name = words[0].partition("=")[0]
    may_be_name, expected = missing is not None and missing.startswith("?"), list[MissingPath]()
    if missing is not None:
        path = str(tmp_path / missing.removeprefix("?"))
        expected = [MissingPath(path=path, origin=name, may_be_name=may_be_name)]
    assert (problems, lacking) == ([], expected)


def test_data_that_may_be_a_name_is_said_to_be_none_of_a_path() -> None:
    lacks = MissingPath(path="/w/datax", origin="--data", may_be_name=True)
    (check,) = (check for check in all_checks([node(1, missing_data=(lacks,))], [], Plan()) if check.name == "data")
    assert (check.status, check.remedy) == ("unknown", "If it is a path, correct it.")
    assert check.text == "n1: the data /w/datax (--data) does not exist; it may be the name of a data set instead"
    has = DataSource(path="/w/datax", origin="--data", files=4, bytes=4, suffixes=(), digest="a")
    assert failing([node(1, missing_data=(lacks,)), node(2, data=(has,))])["data"].status == "fail"


def test_what_this_user_may_not_look_for_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where root's directory is closed to others. Root itself may look everywhere, so stat(2) is made to refuse."""
    real = os.stat

    def refuse(path: object, **more: object) -> os.stat_result:
        if str(path).startswith("/closed/"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, **more)  # type: ignore[call-overload, no-any-return]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "stat", refuse)
    words = ("torchrun", "--nproc-per-node", "1", "/closed/t.py", "--data", "/closed/d", "--resume", "/closed/x.pt")
    plan, more = planned(Plan(), words, {}, master=None, ranks_per_node=None)
    report = replace(node_report.gather(plan), node="n1")
    checks = [*more, *all_checks([report], [], plan)]
    refused = {check.name: check for check in checks if "cannot be checked by this user" in check.text}
    assert {name: check.status for name, check in refused.items()} == dict.fromkeys(
        ("script", "data", "checkpoints"), "unknown"
    )
    assert refused["script"].text == "/closed/t.py cannot be checked by this user: Permission denied"
    assert refused["data"].text.startswith("n1: /closed/d (--data) cannot")
    assert all("as the user who will start the launch" in check.remedy for check in refused.values())
    assert not any("does not exist" in check.text for check in checks)


def test_a_script_that_this_user_may_not_read_is_no_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script := tmp_path / "t.py").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(script))
    _, more = planned(Plan(), ("torchrun", str(script)), {}, master=None, ranks_per_node=None)
    assert [check.status for check in more if check.name == "script"] == ["unknown"]


def test_directories_of_data_keep_their_order(tmp_path: Path) -> None:
    """Nodes are compared by the first one of an option."""
    folders = [tmp_path / name for name in "gfedcba"]
    for folder in folders:
        folder.mkdir()
        (folder / "0.bin").touch()
    found = node_report._list_data(Plan(data=tuple(map(str, folders))), {}, [], [])
    assert [source.path for source in found] == [str(folder) for folder in folders]


def test_data_that_is_not_there_may_be_made_by_the_script() -> None:
    """As Lightning's `prepare_data` does. What preflight was given by name, or another node has, must be there."""
    lacks = MissingPath(path="/d/shards", origin="--data-dir")
    has = DataSource(path="/d/shards", origin="--data-dir", files=4, bytes=4, suffixes=(), digest="a")
    named = replace(lacks, must_exist=True)
    for reports, status in (
        ([node(1, missing_data=(lacks,)), node(2, missing_data=(lacks,))], "warn"),
        ([node(1, data=(has,)), node(2, missing_data=(lacks,))], "fail"),
        ([node(1, missing_data=(named,)), node(2, missing_data=(named,))], "fail"),
    ):
        checks = [
            check for check in all_checks(reports, LINKS, PLAN) if check.name == "data" and check.status != "pass"
        ]
        assert {check.status for check in checks} == {status}
        assert all("does not exist" in check.text for check in checks)
        assert all(("unless the script" in (check.remedy or "")) == (status == "warn") for check in checks)


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (("--ckpt_path", "/nope/last.ckpt"), "--ckpt_path"),
        (("--resume_from_checkpoint=./nope",), "--resume_from_checkpoint"),
        (("--resume", "runs/last.pt"), "--resume"),
        (("trainer.resume=~/nope",), "trainer.resume"),
        (("--resume", "here.pt"), None),
        (("--ckpt_path", "./here.pt"), None),
        (("--ckpt_path", "best"), None),
        (("--resume_from_checkpoint", "org/model"), None),
        (("--resume", "s3://bucket/x.pt"), None),
        (("--checkpoint_dir", "/nope/new"), None),  # the script makes it
        (("--save_checkpoint", "/nope/new.pt"), None),
        (("--download", "/nope/new.pt"), None),
        (("--checkpoint-path", "./new.pt"), None),  # as often where it is to be saved
        (("--load-format", "./x"), None),
        (("--load_from", "/nope/x.pt"), "--load_from"),
        (("--resume", "/x\0y.pt"), None),
        (("--resume", "$HOME/nope/last.pt"), None),
        (("--resume", "/" + 2000 * "x"), None),
    ],
)
def test_a_checkpoint_to_resume_from_must_exist(
    words: tuple[str, ...], missing: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.pt").touch()
    found = tuple(node_report._find_missing_checkpoints(Plan(arguments=("train.py", *words))))
    assert [each.origin for each in found] == ([missing] if missing else [])
    checks = failing([node(1, missing_checkpoints=found), node(2)])
    assert ("checkpoints" in checks) == bool(found)


def test_a_directory_for_checkpoints_must_exist(tmp_path: Path) -> None:
    for folder, missing in ((tmp_path / "none", True), (tmp_path, False)):
        plan = Plan(checkpoints=str(folder))
        checks = {check.name: check for check in all_checks([node_report.gather(plan)], [], plan)}
        assert ("checkpoints" in checks) == missing
    assert not node_report.gather(Plan()).lacks_checkpoints


def test_free_space_below_a_name_that_can_not_be_looked_up() -> None:
    """stat(2) refuses it with another error than that nothing is there, as for a directory of somebody else."""
    assert node_report._measure_free_space("/" + "x" * 5000) is not None


def test_one_host_is_not_all_nodes() -> None:
    data = DataSource(path="/d", origin="DATA_DIR", files=201, bytes=1, suffixes=(), digest="a")
    card = Interface(name="lo", up=True, addresses=("127.0.0.1",), networks=("127.0.0.0/8",))
    own = {"n1": ("127.0.0.1",)}
    alone = node(1, address="127.0.0.1", resolved=own, machine=machine(interfaces=(card,)), data=(data,),
                 cards=(Card(name="lo", wireless=False, speed_mbit=None, mtu=65536),))  # fmt: skip
    texts = {check.name: check.text for check in all_checks([alone], [], Plan())}
    assert texts["torch"] == "2.13"
    assert texts["data"] == "DATA_DIR: 201 files"
    assert texts["link"] == "n1 uses lo: loopback, MTU 65536"
    both = {check.name: check.text for check in all_checks([node(1), node(2)], LINKS, PLAN)}
    assert both["torch"] == "2.13 on all nodes"


def preflight(**variables: str) -> tuple[int, dict[str, Check]]:
    """The command in an environment with these variables: exit code, and the checks of the master."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MASTER_")}
    words = [str(Path(sys.executable).with_name("hangdoc")), "preflight", "--json"]
    done = subprocess.run(words, capture_output=True, timeout=60, check=False, env={**kept, **variables})
    if done.returncode == 2:
        raise CommandError(done.stderr.decode(), 2)
    checks = msgspec.convert(msgspec.json.decode(done.stdout)["checks"], list[Check])
    return done.returncode, {check.name: check for check in checks if check.name.startswith("master")}


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_the_environment_names_the_master_and_a_held_port_fails(address: str, listens: bool) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        if listens:
            holder.listen()
        port = str(holder.getsockname()[1])
        code, checks = preflight(MASTER_ADDR=address, MASTER_PORT=port)
    assert (code, checks["master port"].status) == (1, "fail")
    assert port in checks["master port"].text
    assert "MASTER_ADDR and MASTER_PORT of the environment" in checks["master port"].text
    assert (f"pid {os.getpid()}" in checks["master port"].text) == listens
    assert preflight(MASTER_ADDR=address, MASTER_PORT=port)[1]["master port"].status == "pass"


def test_a_process_that_inherited_the_port_does_not_hold_it() -> None:
    """As a dataloader worker, which is forked long after its rank has bound the port."""
    with (
        socket.create_server(("127.0.0.1", 0)) as held,
        subprocess.Popen(["sleep", "60"], pass_fds=[held.fileno()]) as worker,
    ):
        try:
            assert sockets.find_first_holder(ProcFS(), worker.pid, held.fileno()) == os.getpid()
        finally:
            worker.kill()


def test_a_master_that_was_not_looked_at_does_not_pass() -> None:
    assert preflight()[1] == {}
    for variables in ({"MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "29500"}, {"MASTER_ADDR": "127.0.0.1"}):
        assert preflight(**variables)[1]["master port"].status == "unknown"
    with pytest.raises(CommandError, match="MASTER_PORT is '99999'"):
        preflight(MASTER_ADDR="127.0.0.1", MASTER_PORT="99999")


def test_calls_are_answered_refused_or_late() -> None:
    listener = connections.PortListener()
    with socket.socket() as bound:  # bound, and nobody listens
        bound.bind(("127.0.0.1", 0))
        began = time.monotonic()
        found = connections.reach("me", [("a", "127.0.0.1", listener.port), ("b", "127.0.0.1", bound.getsockname()[1])])
        assert time.monotonic() - began < connections.CONNECT_SECONDS + 3
    assert [link.outcome for link in found] == ["ok", "refused"]
    assert (found[0].rtt_ms or 0) > 0
    assert (connections.throughput("127.0.0.1", listener.port) or 0) > 10
    listener.close()


def test_of_many_nodes_each_calls_a_few_and_all_are_joined() -> None:
    for count in (2, 33, 34, 1000):
        called = {index: session.peers_of(index, count) for index in range(count)}
        assert all(len(peers) <= max(session.ALL_PAIRS, 24) for peers in called.values())
        seen, edge = {0}, [0]
        while edge:
            edge = [peer for index in edge for peer in called[index] if peer not in seen]
            seen |= set(edge)
        assert len(seen) == count


def test_ranks_of_a_live_launcher_are_one_clause_and_not_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def target(pid: int, number: int, **more: object) -> Target:
        who = RankIdentity(rank=number, source="environment")
        ticks = ProcFS().stat("self").start_ticks
        return Target(pid, 6, "rank", "python", ("python", "train.py"), "S", ticks, who, **more)  # type: ignore[arg-type]

    targets = {8: target(8, 1, owner=6), 7: target(7, 0, owner=6), 9: target(9, 0, launcher_gone=True)}
    monkeypatch.setattr(node_report, "discover", lambda proc, deadline: Discovered(targets, []))
    monkeypatch.setattr(other_runs, "_describe_directory", lambda proc, target: "")  # these pids may be those of others
    (runs,) = node_report.gather(Plan()).running
    assert runs.endswith(" ago: python train.py")  # the ranks' own, without that of a shell
    targets[6] = Target(6, 1, "launcher", "python", ("python", "spawn.py"), "S", 0)
    report = node_report.gather(Plan())
    (left,), (runs,) = report.left_over, report.running
    assert left.startswith("rank 0, pid 9, an orphan, started ")
    assert runs.startswith("ranks 0-1, pids 7, 8, started ")
    assert runs.endswith(" ago by pid 6: python spawn.py")
    folder = "/a/directory/with/a/name/that/is/long/bin"
    torchrun = (
        f"{folder}/python3.11",
        f"{folder}/torchrun",
        "--standalone",
        "--nproc-per-node=2",
        "/b/train.py",
        "--lr",
        "1",
    )
    targets[6] = Target(6, 1, "launcher", "python", torchrun, "S", 0)
    (runs,) = node_report.gather(Plan()).running
    assert runs.endswith(" by pid 6: torchrun --standalone --nproc-per-node=2 /b/train.py --lr 1")
    longer = (*torchrun[:3], "--local-ranks-filter=0,1,2,3,4,5,6,7,8,9,10,11", *torchrun[3:])
    targets[6] = Target(6, 1, "launcher", "python", longer, "S", 0)
    (runs,) = node_report.gather(Plan()).running
    assert runs.partition("pid 6: ")[2].startswith("torchrun --standalone --lo…")
    assert runs.endswith("--nproc-per-node=2 /b/train.py…")


def test_hosts_must_be_as_many_as_the_launch_has_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("torchrun", "--nnodes", "2", "--master-addr", "127.0.0.1", "t.py")
    plan, more = planned(Plan(), words, {}, master=None, ranks_per_node=None)
    here = Hosts(hosts=None, via=None, ssh_option=(), remote_command="hangdoc", fanout=1, host_timeout=9)
    monkeypatch.setattr(preflights, "_check_hosts", lambda *_: ([node(1)], [], {}))
    for fleet, status in (
        (here, "unknown"),
        (replace(here, hosts="n[1-3]"), "warn"),
        (replace(here, hosts="n[1-2]"), None),
    ):
        found = [check.status for check in checked(plan, fleet, 9, more).checks if check.name == "nodes"]
        assert found == ([status] if status is not None else [])
