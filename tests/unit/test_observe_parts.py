"""The parts of the first room that need no rank: /proc, identities, launch lines, source, secrets, data, beacons."""

import ast
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hangdoc import beacon, run_identity
from hangdoc.launch import launchers
from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.access.process_files import Root, own_root
from hangdoc.observe.find import identity
from hangdoc.observe.find.discover import Scope, discover
from hangdoc.observe.find.rank_search import Search, keep_one_of_each_tree
from hangdoc.observe.kernel import process_table
from hangdoc.observe.kernel.data_directories import is_data_file, list_shards, named_folders, names_data
from hangdoc.observe.kernel.sock_diag import SockDiag, address
from hangdoc.observe.kernel.targets import make_target
from hangdoc.observe.look.observe import process
from hangdoc.observe.stacks import counters, source, source_files, source_structure
from hangdoc.observe.stacks.python_stacks import with_later_frames
from hangdoc.observe.stacks.source import Sources
from hangdoc.observe.stacks.source_files import Lines
from hangdoc.observe.torch import beacons
from hangdoc.observe.torch.watchdog_files import beat_of
from hangdoc.procfs import Gone, ProcError, ProcFS
from hangdoc.program import is_library
from hangdoc.snapshot import Exit, Frame, Loop, PythonThread, Stack, Unavailable
from tests.unit.builders import frame, local, stack

# --- /proc ---------------------------------------------------------------------------------------------------------


def fake_process(
    root: Path, pid: int, ppid: int, argv: str, environment: dict[str, str], state: str = "S", exe: str = "python3.11"
) -> None:
    """Lay out what discovery reads of one process."""
    folder = root / str(pid)
    folder.mkdir()
    rest = " ".join(["0"] * 9 + ["1", "2"] + ["0"] * 6 + [str(pid * 10)] + ["0"] * 29 + ["256"])
    (folder / "stat").write_text(f"{pid} (na me) {state}) {state} {ppid} {rest}")
    (folder / "cmdline").write_bytes(argv.replace(" ", "\0").encode() + b"\0")
    (folder / "environ").write_bytes(b"\0".join(f"{k}={v}".encode() for k, v in environment.items()))
    (folder / "maps").write_text("")
    (folder / "exe").symlink_to(f"/usr/bin/{exe}")


TORCH = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "29500"}


def test_stat_with_parentheses_in_the_name(tmp_path: Path) -> None:
    fake_process(tmp_path, 10, 1, "python x", {})
    stat = ProcFS(str(tmp_path)).stat("10")
    assert (stat.name, stat.state, stat.ppid, stat.cpu_ticks, stat.start_ticks, stat.exit_code) == (
        "na me) S", "S", 1, 3, 100, 256,
    )  # fmt: skip
    with pytest.raises(Gone):
        ProcFS(str(tmp_path)).stat("11")


def test_a_process_that_ends_during_the_look_keeps_its_user_and_namespaces(tmp_path: Path) -> None:
    """Without them, the launcher that ended first was a run of its own beside that of the other one."""
    fake_process(tmp_path, 10, 1, "python torchrun train.py", {})
    (tmp_path / "10" / "status").write_text("Name:\tpython\nUid:\t1000\t1000\t1000\t1000\n")
    (tmp_path / "10" / "ns").mkdir()
    for kind in ("net", "pid", "mnt"):
        (tmp_path / "10" / "ns" / kind).symlink_to(f"{kind}:[402653184]")
    proc = ProcFS(str(tmp_path))
    target = make_target(proc, process_table.read(proc)[10], "launcher")
    shutil.rmtree(tmp_path / "10")
    found = process(Observation(proc, Deadline(5), 0.1, "never", {10: target}), target, {}, ())
    assert (found.state, found.uid, found.namespaces["net"]) == ("X", 1000, "net:[402653184]")


def test_schedstat_of_a_kernel_that_does_not_count(tmp_path: Path) -> None:
    thread = tmp_path / "9" / "task" / "9"
    thread.mkdir(parents=True)
    for text, expected in (("1500 20 3\n", (1500, 20, 3)), ("0 0 0\n", (0, 0, None))):
        (thread / "schedstat").write_text(text)
        assert ProcFS(str(tmp_path)).schedstat("9/task/9") == expected
    (thread / "schedstat").write_text("nonsense")
    with pytest.raises(ProcError):
        ProcFS(str(tmp_path)).schedstat("9/task/9")


def test_a_file_longer_than_one_reading_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "maps").write_bytes(b"x" * 100_000)
    assert ProcFS(str(tmp_path)).read("maps") == b"x" * 100_000


def test_wrappers_and_helpers_are_no_ranks(tmp_path: Path) -> None:
    """A shell above the rank and a dataloader worker below it carry the rank's environment."""
    fake_process(tmp_path, 10, 1, "/usr/bin/python /bin/torchrun --nproc-per-node 2 train.py", {})
    fake_process(tmp_path, 20, 10, "bash run.sh", TORCH, exe="bash")
    fake_process(tmp_path, 30, 20, "python train.py", TORCH)
    fake_process(tmp_path, 40, 30, "python train.py", TORCH)
    fake_process(tmp_path, 50, 1, "python other.py", {})
    found = discover(ProcFS(str(tmp_path)), Deadline(60)).targets
    assert {pid: target.role for pid, target in found.items()} == {10: "launcher", 30: "rank", 40: "helper"}
    assert found[30].owner == 10
    assert found[40].owner == 30


def test_a_launcher_inside_a_pod_whose_environment_names_a_rank(tmp_path: Path) -> None:
    """PyTorchJob sets RANK for the whole container: torchrun is no rank there, its workers are."""
    pod = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "29500"}
    fake_process(tmp_path, 10, 1, "python -m torch.distributed.run --nnodes=2 train.py", pod)
    fake_process(tmp_path, 20, 10, "python train.py", {**pod, "LOCAL_RANK": "0", "TORCHELASTIC_RUN_ID": "x"})
    found = discover(ProcFS(str(tmp_path)), Deadline(60)).targets
    assert {pid: target.role for pid, target in found.items()} == {10: "launcher", 20: "rank"}


def test_hangdoc_run_is_no_rank(tmp_path: Path) -> None:
    """It carries the variables of the command that it starts, and so does its observer."""
    fake_process(tmp_path, 10, 1, "/venv/bin/python /venv/bin/hangdoc run -- python train.py", TORCH)
    fake_process(tmp_path, 11, 10, "/venv/bin/python /venv/bin/hangdoc run -- python train.py", TORCH)
    fake_process(tmp_path, 20, 10, "python train.py", TORCH)
    found = discover(ProcFS(str(tmp_path)), Deadline(60)).targets
    assert [pid for pid, target in found.items() if target.role == "rank"] == [20]


@pytest.mark.parametrize(("engine", "server_user", "seen"), [
    ("VLLM::EngineCore", 7, True),
    ("VLLM::EngineCore", 8, False),
    ("python engine.py", 7, False),
])  # fmt: skip
def test_the_command_line_of_the_server_above_an_engine(
    tmp_path: Path, engine: str, server_user: int, seen: bool
) -> None:
    """Only where the engine shows a title in place of its own, and only that of the same user."""
    fake_process(tmp_path, 10, 1, "python -m server --model m", {})
    fake_process(tmp_path, 20, 10, engine, {})
    fake_process(tmp_path, 30, 20, "VLLM::Worker_TP0", TORCH)
    for pid, user in ((10, server_user), (20, 7), (30, 7)):
        (tmp_path / str(pid) / "status").write_text(f"Uid:\t{user}\t{user}\t{user}\t{user}\n")
    found = discover(ProcFS(str(tmp_path)), Deadline(60)).targets
    assert found[20].parent_argv == (("python", "-m", "server", "--model", "m") if seen else ())
    assert found[30].parent_argv == ()


def test_a_python_that_starts_the_rank_is_no_rank(tmp_path: Path) -> None:
    fake_process(tmp_path, 10, 1, "python wrapper.py train.py", TORCH)
    fake_process(tmp_path, 20, 10, "python train.py", TORCH)
    assert [p for p, t in discover(ProcFS(str(tmp_path)), Deadline(60)).targets.items() if t.role == "rank"] == [10]
    (tmp_path / "20" / "maps").write_text("7f00-7f01 r-xp 0 0:0 0 /env/torch/lib/libtorch_python.so\n")
    assert [p for p, t in discover(ProcFS(str(tmp_path)), Deadline(60)).targets.items() if t.role == "rank"] == [20]


def test_a_program_that_a_rank_of_mpirun_starts_is_no_rank(tmp_path: Path) -> None:
    """The rank has put torch's variables into `os.environ`, so the program starts with them."""
    mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_NAMESPACE": "7", "MASTER_ADDR": "h"}
    mpi["MASTER_PORT"] = "29500"
    fake_process(tmp_path, 10, 1, "python train.py", mpi)
    (tmp_path / "10" / "maps").write_text("7f00-7f01 r-xp 0 0:0 0 /env/torch/lib/libtorch_python.so\n")
    fake_process(tmp_path, 20, 10, "python mine.py", {**mpi, **TORCH})
    fake_process(tmp_path, 30, 10, "python other_run.py", {**mpi, **TORCH, "MASTER_PORT": "29501"})
    found = discover(ProcFS(str(tmp_path)), Deadline(60)).targets
    assert {pid: target.role for pid, target in found.items()} == {10: "rank", 20: "helper", 30: "rank"}


@pytest.mark.parametrize(("communicates", "kept"), [(10, 10), (20, 20)])
def test_one_process_of_a_tree_is_the_rank_that_both_name(tmp_path: Path, communicates: int, kept: int) -> None:
    """One names it in `os.environ` only, so that its descendant starts with it: a dataloader worker of a rank, or the rank that
    a script has started."""
    variables = {**TORCH, "MASTER_ADDR": "127.0.0.1"}
    fake_process(tmp_path, 10, 1, "python train.py", {})
    fake_process(tmp_path, 20, 10, "python -c spawn_main()", variables)
    for pid in (10, 20):
        name = "pt_gloo_runloop" if pid == communicates else "python"
        thread = tmp_path / str(pid) / "task" / str(pid)
        thread.mkdir(parents=True)
        thread.joinpath("stat").write_text((tmp_path / str(pid) / "stat").read_text().replace("na me) S", name))
    proc = ProcFS(str(tmp_path))
    table = process_table.read(proc)
    who = identity.by_environment(variables)
    assert who is not None
    search = Search(proc, table, {10, 20}, {}, ranks={10: who, 20: who})
    keep_one_of_each_tree(search)
    assert list(search.ranks) == [kept]


def test_ranks_that_may_not_be_read_have_the_numbers_of_their_start(tmp_path: Path) -> None:
    """torchrun starts them in this order. If one is missing, or there are other nodes, nothing shows who is who."""
    for line, first in (("--nproc-per-node=2", 10), ("--nproc-per-node=3", 20), ("--nproc-per-node=2 --nnodes=2", 30)):
        fake_process(tmp_path, first, 1, f"python -m torch.distributed.run {line} train.py", {})
        for pid in (first + 2, first + 1):
            fake_process(tmp_path, pid, first, "python train.py", {})
            (tmp_path / str(pid) / "environ").unlink()
            (tmp_path / str(pid) / "environ").symlink_to(tmp_path / "gone")
    found = discover(ProcFS(str(tmp_path)), Deadline(60))
    ranks = {pid: target.identity.rank for pid, target in found.targets.items() if target.identity is not None}
    assert ranks == {11: 0, 12: 1}
    assert {pid: found.targets[pid].unreadable_below for pid in (10, 20, 30)} == {10: 0, 20: 2, 30: 2}
    assert any("by the order in which torchrun started them" in problem for problem in found.problems)


def test_workers_of_ray_of_another_user_are_reported(tmp_path: Path) -> None:
    """No launcher is above them. One without a task, and one of this user, say nothing of ranks."""
    titles = {10: "ray::Trainer.train_step", 11: "ray::Trainer", 12: "ray::IDLE", 13: "python x.py", 14: "ray::Trainer"}
    for pid, title in titles.items():
        fake_process(tmp_path, pid, 1, title, {})
        user = os.geteuid() if pid == 14 else os.geteuid() + 1
        (tmp_path / str(pid) / "status").write_text(f"Name:\tray\nUid:\t{user}\t{user}\t{user}\t{user}\n")
        (tmp_path / str(pid) / "environ").unlink()
        (tmp_path / str(pid) / "environ").symlink_to(tmp_path / "gone")
    found = discover(ProcFS(str(tmp_path)), Deadline(60))
    assert found.problems == [
        "2 workers of Ray of another user can't be read, and ranks may be among them: run hangdoc as that user or as root"
    ]


@pytest.mark.parametrize(
    "scope", [Scope(pids=(4_000_000,)), Scope(pids=(os.getpid(), 4_000_000)), Scope(run_of=4_000_000)]
)
def test_a_named_process_that_has_ended_is_no_error(scope: Scope) -> None:
    """A watch goes on looking after that."""
    assert not discover(ProcFS(), Deadline(60), scope).targets


_WITHOUT_PTRACE = ("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace")


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="takes a capability away: needs root and setpriv"
)
def test_root_without_ptrace_sees_that_there_is_a_rank() -> None:
    """The kernel hides the program of a process with more capabilities, and not its environment and mapped files: a rank must
    not look as if it had ended."""
    if int(ProcFS().status("self")["CapEff"], 16) & 1 << 19 == 0:
        pytest.skip("nothing to take away: CAP_SYS_PTRACE is missing here")
    waits = "import sys; print('ready', flush=True); sys.stdin.read()"
    rank = subprocess.Popen(
        [sys.executable, "-c", waits], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **TORCH}
    )
    looks = (
        "from hangdoc.reasoning.engine import diagnose; from hangdoc.observe.look.observe import Options, observe; "
        f"seen = diagnose(observe(Options(pids=({rank.pid},), window=0.1))); "
        "print(seen.verdict, *(f.code for job in seen.jobs for f in job.findings))"
    )
    try:
        assert rank.stdout is not None
        rank.stdout.readline()
        allowed = subprocess.run(
            [*_WITHOUT_PTRACE, "readlink", f"/proc/{rank.pid}/exe"], capture_output=True, check=False, timeout=30
        )
        if allowed.returncode == 0:
            pytest.skip("this kernel lets root read it all the same")
        seen = subprocess.run(
            [*_WITHOUT_PTRACE, sys.executable, "-c", looks], capture_output=True, text=True, check=True, timeout=60
        ).stdout.split()
    finally:
        rank.kill()
        rank.communicate()
    assert seen == ["unknown", "HD901"]


def test_only_named_trees(tmp_path: Path) -> None:
    fake_process(tmp_path, 10, 1, "python a.py", TORCH)
    fake_process(tmp_path, 20, 1, "python b.py", {**TORCH, "MASTER_PORT": "29600"})
    found = discover(ProcFS(str(tmp_path)), Deadline(60), Scope(pids=(20,))).targets
    assert list(found) == [20]


# --- identity ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (TORCH, (1, "environment")),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (3, "Open MPI")),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, "PMI")),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, (5, "Slurm")),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "7"}, None),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", **TORCH}, (1, "environment")),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "NODE_RANK": "0"}, (1, "LOCAL_RANK")),
        ({"RANK": "2", "WORLD_SIZE": "2"}, None),
        ({"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "h"}, (2, "environment")),
        ({"RANK": "x", "WORLD_SIZE": "2"}, None),
        ({"RANK": "1"}, None),
        ({"RANK": "1", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, (1, "RANK")),
    ],
)
def test_identity(environment: dict[str, str], expected: tuple[int, str] | None) -> None:
    found = identity.by_environment(environment)
    assert (found and (found.rank, found.source)) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun --nnodes=2 --nproc-per-node 4 --node_rank=1 --master-addr h --master-port 1 t.py --nnodes 9",
         ("torchrun", "2", "4", 1, "h:1")),
        ("python -m torch.distributed.run --rdzv-endpoint=h:5 --nnodes 1:4 t.py", ("torchrun", "1:4", None, None, "h:5")),
        ("python /env/bin/torchrun --standalone --nproc_per_node=gpu -m pkg.train", ("torchrun", None, "gpu", None, None)),
        ("python train.py --launcher torchrun", None),
        ("vim torchrun.txt", None),
    ],
)  # fmt: skip
def test_launch_line(line: str, expected: tuple[object, ...] | None) -> None:
    found = launchers.launch_of("python3", tuple(line.split()))
    shown = found and (found.tool, found.nnodes, found.nproc_per_node, found.node_rank, found.endpoint)
    assert shown == expected


# --- source --------------------------------------------------------------------------------------------------------

SOURCE = """
def train(loader, n):
    for epoch in range(3):
        for step, batch in enumerate(tqdm(loader), 1):
            if rank == 0:
                work(batch)
            else:
                other(batch)
    i = 0
    while i < n:
        i += 1
    for batch in loader:
        total += 1
"""


def annotated(
    tmp_path: Path,
    line: int,
    *,
    newer: bool = False,
    text: str = SOURCE,
    function: str = "train",
    name: str = "script.py",
) -> Frame:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    when = time.time() + (3600 if newer else -3600)
    os.utime(file, (when, when))
    thread = PythonThread(
        tid=None, name="MainThread", active=False, owns_gil=False, frames=(frame(function, line, str(file)),)
    )
    stack = Stack(at_seconds=0, threads=(thread,))
    return Sources(ProcFS()).annotate(os.getpid(), ProcFS().stat("self").start_ticks, stack).threads[0].frames[0]


def test_loops_conditions_and_source(tmp_path: Path) -> None:
    found = annotated(tmp_path, 8)
    assert found.source == "other(batch)"
    assert found.conditions == ("rank != 0",)
    shown = {(loop.header.split(" in ")[0], loop.counters, loop.start, loop.bound) for loop in found.loops}
    assert shown == {
        ("for epoch", ("epoch",), 0, "3"),
        ("for (step, batch)", ("step",), 1, None),
        ("while i < n", ("i",), None, "n"),
        ("for batch", ("total",), None, None),
    }
    assert {name for loop in found.loops for name in loop.advances} == {"epoch", "step", "batch", "i", "total"}


@pytest.mark.parametrize(
    ("text", "line", "of_module"),
    [
        ("M = 4\ndef main():\n for i in range(M):\n  step(i)", 4, True),
        ("M = 4\nclass Stage:\n def main(self):\n  for i in range(M):\n   step(i)", 5, True),
        ("M = 4\ndef main():\n M = 6\n def log(): return M\n for i in range(M):\n  step(i)", 6, False),
        ("M = 4\ndef outer(M):\n def main():\n  for i in range(M):\n   step(i)\n main()", 5, False),
        ("M = 4\ndef main():\n for i in range(4):\n  step(i)", 4, False),
        ("M = 4\ndef main():\n from sizes import M\n while i < M:\n  i += 1", 5, False),
        ("M = 4\nfor i in range(M):\n step(i)", 3, False),
    ],
)
def test_a_bound_is_one_of_the_module_if_no_function_has_the_name(
    text: str, line: int, of_module: bool, tmp_path: Path
) -> None:
    found = annotated(tmp_path, line, text=text, function="main")
    assert [loop.bound_of_module for loop in found.loops] == [of_module]


@pytest.mark.parametrize(
    ("body", "counters", "every"),
    [
        ("n += 1; ok += good", ("n",), 1),
        ("\n  if good:\n   ok += 1\n  n += 1", ("n", "ok"), 1),
        ("\n  if bad:\n   skipped += 1\n   continue\n  step += 1", ("step", "skipped"), 0),
        ("\n  with context():\n   n += 1", ("n",), 1),
    ],
)
@pytest.mark.parametrize("header", ["for batch in loader", "while True"])
def test_counters_that_every_iteration_changes(
    tmp_path: Path, header: str, body: str, counters: tuple[str, ...], every: int
) -> None:
    (loop,) = annotated(tmp_path, 2, text=f"def train():\n {header}: {body}\n").loops
    assert (loop.counters, loop.every) == (counters, every)


def test_where_a_loop_counts_what_skips_a_round_and_what_nobody_sets(tmp_path: Path) -> None:
    text = """def train(cfg, stop):
    for x in loader:
        step += 1
        if bad(x):
            continue
        for y in x:
            if y:
                continue
            return
        else:
            break
        if cfg["early"] or stop or seen:
            break
    stop, seen[0] = False, 1
"""
    outer, inner = annotated(tmp_path, 6, text=text, function="train").loops
    assert (outer.counters, outer.counted_at, inner.counted_at) == (("step",), (3,), ())
    assert outer.skips == (Exit(line=5, statement="continue", conditions=("bad(x)",)),)
    assert inner.skips == (Exit(line=8, statement="continue", conditions=("y",)),)
    # A `break` in the `else` of a loop leaves the one around it.
    assert [each.line for each in outer.exits] == [9, 11, 13]
    assert outer.settings == ("cfg", "early")


def test_a_function_inside_sets_a_variable_too_and_a_long_test_is_cut(tmp_path: Path) -> None:
    text = f"""def train(cfg, stop):
    def handle(*_):
        nonlocal stop
        stop = True
    for x in loader:
        if stop or cfg.early:
            break
        if {"a" * 300}:
            pass
        else:
            break
"""
    (loop,) = annotated(tmp_path, 6, text=text, function="train").loops
    assert loop.settings == ("cfg.early",)
    assert [len(each.conditions[0]) for each in loop.exits] == [17, 200]


def test_what_is_suppressed_around_a_loop_leaves_it(tmp_path: Path) -> None:
    text = """def train(cfg, state):
    with open(cfg), contextlib.suppress(OSError, Over):
        for x in loader:
            if state["stop"] or cfg["stop"]:
                break
    state.update(stop=cfg.get("stop"))
"""
    (loop,) = annotated(tmp_path, 3, text=text, function="train").loops
    around = Exit(line=2, statement="except", conditions=("except (OSError, Over)",))
    assert loop.exits == (around, Exit(line=5, statement="break", conditions=("state['stop'] or cfg['stop']",)))
    assert loop.settings == ("OSError", "Over", "stop", "cfg")


def test_a_function_with_many_loops_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source may have been written to take long."""
    text = "def train(a):\n" + "    for x in loader:\n        if a:\n            break\n" * 20
    calls: list[ast.AST] = []
    plain = source_structure._list_changed
    monkeypatch.setattr(source_structure, "_list_changed", lambda scope: [*plain(scope), calls.append(scope)][:-1])
    loops = source_structure.structure(ast.parse(text).body[0], 3).loops
    assert {loop.settings for loop in loops} == {("a",)}
    assert len(calls) == 1


TRANSFERS = """
def actor(pipe, rank):
    for n in range(10):
        rows = play()
        pipe.send(rows)
        if not rows:
            continue
        if rank > 0:
            dist.send(rows, dst=0)
            work = dist.batch_isend_irecv([dist.P2POp(dist.isend, rows, 0)])
        for other in range(3):
            dist.recv(weights, 0)
    dist.send(rows, 0)
"""


def test_sends_and_receives_in_the_loop_around_a_line(tmp_path: Path) -> None:
    found = annotated(tmp_path, 12, text=TRANSFERS, function="actor").transfers
    assert [(one.line, one.call, one.conditions) for one in found] == [
        (9, "send", ("rows", "rank > 0")), (10, "isend", ("rows", "rank > 0")), (12, "recv", ("rows",)),
    ]  # fmt: skip
    assert [one.line for one in annotated(tmp_path, 13, text=TRANSFERS, function="actor").transfers] == [9, 10, 12, 13]


@pytest.mark.parametrize("text", ["", "\n", "a", "a\n", "a\n\nb", "a\x0cb\u2028c\nd\n"])
def test_lines_of_a_text(text: str) -> None:
    lines = Lines(text)
    assert list(lines) == lines[:] == (text.removesuffix("\n").split("\n") if text else [])


def test_a_form_feed_ends_no_line(tmp_path: Path) -> None:
    assert annotated(tmp_path, 2, text="# one\x0ctwo\nwork()\n", function="<module>").source == "work()"


PACKAGE = """
class Engine:
    def other(self):
        for nothing in (): pass

    @wrapped
    def run(self, steps):
        '''Trains.
  A line that begins further left.
        '''
        for step in range(first, steps):
            if self.stop:
                self.call(step)

    def last(self): pass
"""


def test_a_frameworks_function_is_read_without_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module may be long; lines are those of the file."""
    parsed: list[str] = []
    monkeypatch.setattr(source, "_tree", lambda text: (parsed.append(text), ast.parse(text))[1])
    name = "lib/site-packages/engine/loop.py"
    found = annotated(tmp_path, 13, text=PACKAGE, function="Engine.run", name=name)
    assert [(loop.line, loop.end_line, loop.bound, loop.start) for loop in found.loops] == [(11, 13, "steps", 0)]
    assert found.conditions == ("self.stop",)
    assert "other" not in parsed[0]
    monkeypatch.undo()
    broken = PACKAGE.replace("for step", "for for step")
    assert annotated(tmp_path, 13, text=broken, function="Engine.run", name=name).loops == ()


GUARDED = """
def step(rank):
    if rank != 0:
        return
    for attempt in range(3):
        if attempt > 1:
            continue
        try:
            work()
        except (OSError, ValueError):
            recover()
    total = total + 2
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (9, ("rank == 0", "not (attempt > 1)")),
        (11, ("rank == 0", "not (attempt > 1)", "except (OSError, ValueError)")),
        (12, ("rank == 0",)),
        (3, ()),
    ],
)
def test_guards_and_handlers_are_conditions(tmp_path: Path, line: int, expected: tuple[str, ...]) -> None:
    assert annotated(tmp_path, line, text=GUARDED, function="step").conditions == expected


def test_a_condition_is_kept_as_the_source_has_it(tmp_path: Path) -> None:
    text = "def forward():\n    for i in blocks:\n        if not deep and not seen.any():\n            break\n        call()\n"
    found = annotated(tmp_path, 5, text=text, function="forward")
    assert found.conditions == ("not (not deep and not seen.any())",)
    assert [way_out.conditions for loop in found.loops for way_out in loop.exits] == [("not deep and not seen.any()",)]


REASSIGNED = """
def fit(self, val, rank, stop):
    if stop:
        return
    if val < self.best and rank == 0:
        seen = [rank for rank in range(4)]
        if seen:
            self.best = val
        else:
            rank = 3
            barrier()
        barrier()
        for each in range(2):
            barrier()
            with open(each) as val:
                pass
    else:
        val = 2
        barrier()
        stop = 1
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (11, ("", "rank", "")),  # in the other arm, `self.best` keeps its value
        (12, ("", "self.best, rank")),
        (14, ("", "val, self.best, rank")),  # of an earlier round
        (18, ()),
        (19, ("", "val")),
    ],
)
def test_names_that_are_assigned_after_the_test_are_told(tmp_path: Path, line: int, expected: tuple[str, ...]) -> None:
    assert annotated(tmp_path, line, text=REASSIGNED, function="fit").reassigned == expected


@pytest.mark.parametrize(
    "statement",
    [
        "import best",
        "from a import b as best",
        "def best(): pass",
        "class best: pass",
        "try: f()\n    except E as best: pass",
        "match x:\n        case [best, *_]: pass",
        "match x:\n        case [best, *_]:\n          barrier()",
        "try: f()\n    except E as best:\n      barrier()",
        "if (best := f()): pass",
    ],
)
def test_what_binds_a_name_assigns_it(tmp_path: Path, statement: str) -> None:
    text = f"def fit(best):\n  if best:\n    {statement}\n    barrier()\n"
    line = next(at for at, line in enumerate(text.splitlines(), 1) if line.strip() == "barrier()")
    assert annotated(tmp_path, line, text=text, function="fit").reassigned[:1] == ("best",)


def test_the_parameter_of_a_lambda_is_another_variable(tmp_path: Path) -> None:
    text = "def fit(best):\n  if best:\n    g = lambda best: 1\n    barrier()\n"
    assert annotated(tmp_path, 4, text=text, function="fit").reassigned == ()


def test_a_relative_name_of_code_is_that_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `runpy.run_path("train.py")` gives it."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "train.py"
    file.write_text("def train():\n    step()\nclass Net:\n    size = 3\n")
    os.utime(file, (0, 0))
    sources = Sources(ProcFS())
    found = sources.annotate(
        os.getpid(),
        ProcFS().stat("self").start_ticks,
        stack(
            frame("train", 2, "train.py"),
            frame("train.<locals>.<lambda>", 2, "train.py"),
            frame("<lambda>", 2, "train.py"),
            frame("Net", 4, "train.py"),
            frame("run", 2, "<string>"),
            frame("fit", 2, "train.py"),  # of a file in the directory in which it was before
            frame("<module>", 2, "train.py"),
        ),
    )
    assert [(each.file, each.source) for each in found.threads[0].frames] == [
        ("train.py", "step()"),
        ("train.py", "step()"),
        ("train.py", "step()"),
        ("train.py", "size = 3"),
        ("<string>", None),
        ("train.py", None),
        ("train.py", None),
    ]
    assert sources.problems() == [
        f"the source of {file}, with its conditions and loops: the file there does not have that code"
    ]


def test_a_line_behind_the_end_of_a_long_relative_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(source, "_MAX_TOKENS", 1)
    (tmp_path / "train.py").write_text("def train():\n    step()\n")
    os.utime(tmp_path / "train.py", (0, 0))
    found = Sources(ProcFS()).annotate(
        os.getpid(), ProcFS().stat("self").start_ticks, stack(frame("train", 9, "train.py"))
    )
    assert found.threads[0].frames[0].source is None


def test_a_file_newer_than_the_process_is_not_trusted(tmp_path: Path) -> None:
    assert annotated(tmp_path, 8, newer=True).source is None


def test_source_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    """Without it, hangdoc cannot know under which condition a call is. Of packages, nobody misses it."""
    young, gone = tmp_path / "young.py", tmp_path / "gone.py"
    young.write_text("step()\n")
    os.utime(young, (time.time() + 3600,) * 2)
    sources = Sources(ProcFS())
    frames = (frame("f", 1, f"{tmp_path}/site-packages/gone.py"), frame("g", 1, str(young)), frame("h", 1, str(gone)))
    sources.annotate(os.getpid(), ProcFS().stat("self").start_ticks, stack(*frames))
    assert sources.problems() == [
        f"the source of {young}, with its conditions and loops: it is newer than its process",
        f"the source of {gone}, with its conditions and loops: it could not be read",
    ]
    sources.renew()
    assert sources.problems() == []


def test_a_file_system_that_does_not_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    over = threading.Event()

    def never(root: Root, path: str, most: int) -> None:
        asked.append(path)
        over.wait(30)

    monkeypatch.setattr(Root, "read", never)
    monkeypatch.setattr(source_files, "_BOUND_SECONDS", 0.1)
    frames = tuple(frame("train", 3, f"/mnt/dead/{name}.py") for name in "abc")
    thread = PythonThread(tid=None, name="MainThread", active=False, owns_gil=False, frames=frames)
    stack = Stack(at_seconds=0, threads=(thread,))
    began = time.monotonic()
    assert Sources(ProcFS()).annotate(os.getpid(), ProcFS().stat("self").start_ticks, stack) == stack
    assert time.monotonic() - began < 5
    assert len(asked) == 1
    over.set()


def test_what_is_library() -> None:
    assert is_library("/env/lib/python3.11/site-packages/torch/x.py")
    assert is_library("/usr/lib/python3.12/threading.py")
    assert is_library("<frozen runpy>")
    assert not is_library("/home/me/lib/python/train.py")


# --- data, beacon, addresses ---------------------------------------------------------------------------------------


def test_listing_counts_shards_only(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet", "readme.md"):
        (tmp_path / name).write_text("xx")
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / "c.parquet").write_text("x")
    first = list_shards(own_root(), str(tmp_path))
    assert first is not None
    assert first[:3] == (3, 5, (".parquet",))
    (tmp_path / "a.parquet").write_text("xxx")
    assert list_shards(own_root(), str(tmp_path)) != first
    assert list_shards(own_root(), str(tmp_path / "absent")) is None
    assert is_data_file("x/y.jsonl.gz")
    assert not is_data_file("train.py")


def test_files_of_any_suffix_count_where_a_setting_says_data(tmp_path: Path) -> None:
    for name in ("a.pt", "b.pt", ".hidden", "README"):
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "c.jpg").write_bytes(b"1")
    assert list_shards(own_root(), str(tmp_path), any_suffix=True)[:3] == (4, 16, (".pt", ".jpg"))  # type: ignore[index]
    assert list_shards(own_root(), str(tmp_path))[0] == 0  # type: ignore[index]
    (tmp_path / "d.parquet").write_bytes(b"123")
    assert list_shards(own_root(), str(tmp_path), any_suffix=True)[:3] == (1, 3, (".parquet",))  # type: ignore[index]


@pytest.mark.parametrize(
    ("origin", "expected"),
    [("--data-dir", True), ("TRAIN_FILES", True), ("--dir", False), ("--data-cache", False), ("--output-data", False),
     ("--pretrained", False), ("argument", False), ("open file", False)],
)  # fmt: skip
def test_which_settings_say_data(origin: str, expected: bool) -> None:
    assert names_data(origin) is expected


def test_beacon_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    writer = beacon.Beacon(rank=3, world_size=8, run="nächtlich" * 9)
    writer.beat(3, batches=3, of=201, shards=4, phase="evaluate", patience=90.0)
    writer.beat(batches=4)  # what is not given stays
    writer.stages((0.25, 1.0, 2.0, 0.5))
    raw = writer.path.read_bytes()
    beat = beacon.parse(raw)
    assert beat is not None
    assert (beat.step, beat.batches_done, beat.batches_total, beat.epoch, beat.shards) == (3, 4, 201, None, 4)
    assert (beat.phase, beat.patience_seconds, beat.stages) == ("evaluate", 90.0, (0.25, 1.0, 2.0, 0.5))
    assert (beat.rank, beat.world_size, beat.run_digest) == (3, 8, run_identity.digest("nächtlich" * 9))
    assert writer.path.parent.stat().st_mode & 0o777 == 0o700
    writer.close()
    assert not writer.path.exists()


@pytest.mark.parametrize(
    "raw", [b"", b"x" * 10, b"x" * 256, b"HANGDOC1" + b"\0" * 248, b"HANGDOC2" + b"\1" + b"\0" * 247, b"\xff" * 256]
)
def test_a_strange_beacon_is_no_beacon(raw: bytes) -> None:
    assert beacon.parse(raw) is None


def test_a_forked_child_neither_beats_nor_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    writer = beacon.Beacon()
    writer.beat(1)
    child = os.fork()
    if child == 0:
        writer.beat(2)
        writer.close()
        os._exit(0)
    os.waitpid(child, 0)
    beat = beacon.parse(writer.path.read_bytes())
    assert beat is not None
    assert beat.step == 1
    writer.close()


def test_an_address_has_one_spelling() -> None:
    mapped = socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1")
    assert address(socket.AF_INET6, mapped) == "127.0.0.1"
    assert address(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, "fe80::1")) == "fe80::1"
    assert address(socket.AF_INET, socket.inet_aton("10.0.0.1").ljust(16, b"\0")) == "10.0.0.1"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_what_the_kernel_says_of_a_connection(family: socket.AddressFamily) -> None:
    """Against what this process knows itself: its ports, the bytes that it sent, the time since, what nobody has read yet."""
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with (
        socket.create_server((host, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2]) as mine,
        server.accept()[0] as theirs,
        SockDiag() as diag,
    ):
        mine.sendall(bytes(1000))
        theirs.recv(400, socket.MSG_WAITALL)
        time.sleep(0.2)
        for _ in range(2):  # the question stays open
            found = {one.inode: one for one in diag.sockets()}
        here, there = (found[os.fstat(one.fileno()).st_ino] for one in (mine, theirs))
        assert (here.local_address, here.local_port) == mine.getsockname()[:2]
        assert (here.remote_address, here.remote_port) == server.getsockname()[:2]
        assert found[os.fstat(server.fileno()).st_ino].state == 10
        assert here.user == os.getuid()
        assert here.info is not None
        assert there.info is not None
        assert there.receive_queue == 600
        assert (here.info.bytes_acked, there.info.bytes_received) == (1001, 1000)  # one for the SYN
        assert 150 <= here.info.last_sent_ms < 5000
        assert 150 <= there.info.last_received_ms < 5000
        assert 0 < here.info.rtt_us < 1_000_000


def test_a_beacon_of_an_earlier_process_of_that_pid_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    writer = beacon.Beacon(rank=0, world_size=1)
    here, environment = ProcFS(), {"XDG_RUNTIME_DIR": str(tmp_path)}
    beat = beat_of(here, os.getpid(), here.stat("self").start_ticks, environment)
    assert beat is not None
    assert beat.rank == 0
    hour = 3600 * 10**9
    for moved in (-200 * hour, hour):  # before this process was there, or before the machine was booted anew
        raw = bytearray(writer.path.read_bytes())
        raw[16:24] = max(0, time.monotonic_ns() + moved).to_bytes(8, "little")
        writer.path.write_bytes(raw)
        assert beat_of(here, os.getpid(), here.stat("self").start_ticks, environment) is None


def test_a_rank_without_a_beacon_is_not_looked_at_in_every_poll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    probe = beacons.Beacons()
    started = ProcFS().stat("self").start_ticks
    target = Target(pid=os.getpid(), ppid=0, role="rank", name="python", argv=(), state="S", start_ticks=started)
    target.environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    observation = Observation(ProcFS(), Deadline(30), 1.0, "never", {target.pid: target})

    def poll() -> int:
        probe.close(observation)
        seen = len(probe.evidence(observation))
        probe.start_next_window(observation)
        return seen

    probe.open(observation)
    writer = beacon.Beacon(rank=0, world_size=1)
    assert [poll(), poll()] == [0, 0]
    monkeypatch.setattr(beacons, "_AGAIN_SECONDS", 0.0)
    assert [poll(), poll()] == [0, 1]  # whether it beats needs two readings
    monkeypatch.setattr(beacons, "_AGAIN_SECONDS", 5.0)
    writer.beat(1)
    assert poll() == 1
    writer.close()


def test_folders_of_tools_are_no_data() -> None:
    """pyenv's PYENV_DIR is the folder it was called in, whatever lies there."""
    tools = {"PYENV_DIR": "/work", "VIRTUAL_ENV_PATH": "/venv", "XDG_DATA_HOME": "/home/me/.local", "TMPDIR": "/tmp/x"}
    assert named_folders({**tools, "NANOCHAT_DATA_DIR": "/data/a", "INPUT": "/data/b"}, (), "/") == {
        "/data/a": "NANOCHAT_DATA_DIR",
        "/data/b": "INPUT",
    }


# --- stacks ----------------------------------------------------------------------------------------------------------


def test_a_thread_that_stands_has_the_frames_of_the_later_look() -> None:
    """The first look has no source and no lengths. Where a thread was elsewhere, its frames stay."""

    def look(at_seconds: float, *threads: tuple[int, tuple[Frame, ...]]) -> Stack:
        return Stack(
            at_seconds=at_seconds,
            threads=tuple(
                PythonThread(tid=tid, name=None, active=False, owns_gil=False, frames=frames) for tid, frames in threads
            ),
        )

    stands, annotated = (frame("wait", 3),), (frame("wait", 3, source="work.wait()"),)
    first = look(0.0, (1, stands), (2, (frame("run", 8),)))
    second = look(1.0, (1, annotated), (2, (frame("run", 9),)))
    assert with_later_frames(first, second) == look(0.0, (1, annotated), (2, (frame("run", 8),)))


@pytest.mark.parametrize(("calls_the_user", "counted"), [(True, ["i"]), (False, [])])
def test_a_packages_loop_that_calls_the_users_function_counts(calls_the_user: bool, counted: list[str]) -> None:
    """`Dataset.map(ask)`: the loop and its index are the package's, and the user's function waits for a service each time."""
    loop = Loop(line=10, end_line=20, header="for i, example in rows", advances=("i", "example"))

    def at(index: int) -> Stack:
        package = frame(
            "iter_outputs",
            12,
            "/env/lib/python3.11/site-packages/datasets/arrow_dataset.py",
            library=True,
            loops=(loop,),
            locals=(local("i", index), local("size", index)),
        )
        return stack(*((frame("ask", 5),) if calls_the_user else ()), package, frame("main", 30))

    found = counters.counters(at(3), at(9), Unavailable(reason="not read"))
    assert [one.name for one in found if one.before != one.after] == counted
