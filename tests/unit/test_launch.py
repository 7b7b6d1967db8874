"""Launch lines in the shapes that people use."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdoc.cli.group import run
from hangdoc.commands.launches import read
from hangdoc.launch import launchers
from hangdoc.launch.compare import compare
from hangdoc.launch.derived import derived
from hangdoc.launch.layers import LaunchLine, launches
from hangdoc.launch.rows import Row
from hangdoc.launch.shell import ShellError
from hangdoc.torch_facts.launchers import PROGRAMS

WIRED = (
    'tmux new-session -d -s train "cd ~/nanochat && export NANOCHAT_DATA_DIR=/data/fineweb OMP_NUM_THREADS=8 '
    "GLOO_SOCKET_IFNAME=eth0 NCCL_P2P_DISABLE=1 && torchrun --nnodes=2 --nproc_per_node=1 --node_rank=0 "
    "--master_addr=192.168.1.10 --master_port=29500 -m scripts.base_train -- --depth=4 --device-batch-size=1 "
    '--max-seq-len=512 --total-batch-size=4096 --device-type=cpu 2>&1 | tee node0.log"'
)
WIRELESS = (
    "ssh user@laptop 'tmux new-session -d -s train \"cd ~/nanochat && OMP_NUM_THREADS=4 GLOO_SOCKET_IFNAME=wlan0 torchrun "
    "--nnodes=2 --nproc_per_node=1 --node_rank=1 --master_addr=192.168.1.10 --master_port=29500 -m scripts.base_train -- "
    "--depth=4 --device-batch-size=1 --max-seq-len=512 --total-batch-size=4096 --device-type=cpu 2>&1 | tee node1.log\"'"
)

# line, tool, host, folder, environment, options (some), program, arguments
SHAPES: dict[str, tuple[str, str, str | None, str, dict[str, str], dict[str, str], str, tuple[str, ...]]] = {
    "plain": ("torchrun --nproc_per_node=2 train.py --lr 1", "torchrun", None, "", {}, {"nproc-per-node": "2"}, "train.py",
              ("--lr", "1")),
    "module": ("python3 -u -m torch.distributed.run --standalone -m pkg.train", "torchrun", None, "", {},
               {"standalone": "(set)"}, "-m pkg.train", ()),
    "continued": ("cd /a\nOMP_NUM_THREADS=4 \\\n  torchrun \\\n  --nnodes 2 train.py", "torchrun", None, "/a",
                  {"OMP_NUM_THREADS": "4"}, {"nnodes": "2"}, "train.py", ()),
    "ssh and tmux": (WIRELESS, "torchrun", "laptop", "~/nanochat",
                     {"OMP_NUM_THREADS": "4", "GLOO_SOCKET_IFNAME": "wlan0"}, {"node-rank": "1"}, "-m scripts.base_train",
                     ("--", "--depth=4", "--device-batch-size=1", "--max-seq-len=512", "--total-batch-size=4096",
                      "--device-type=cpu")),
    "nested quotes": ("""ssh -p 2222 me@w1 "bash -lc 'export A=\\"b c\\"; torchrun train.py --name \\"x y\\"'" """, "torchrun",
                      "w1", "", {"A": "b c"}, {}, "train.py", ("--name", "x y")),
    "variables": ('PORT=29501\nARGS="--depth 4 --lr 1"\nHOST=$1\ntorchrun --master-port=$PORT --master-addr=$HOST t.py $ARGS',
                  "torchrun", None, "", {}, {"master-port": "29501", "master-addr": "$1"}, "t.py",
                  ("--depth", "4", "--lr", "1")),
    "env": ("env -u X -i A=1 B='2 3' nice -n 5 torchrun t.py", "torchrun", None, "", {"A": "1", "B": "2 3"}, {}, "t.py", ()),
    "srun and bash": ("srun -N2 --ntasks-per-node=1 bash -c 'torchrun --rdzv-endpoint=$HEAD:29500 t.py'", "torchrun", None, "",
                      {}, {"rdzv-endpoint": "$HEAD:29500"}, "t.py", ()),
    "srun": ("srun -N2 -n 8 python -u train.py --x 1", "srun", None, "", {}, {"nodes": "2", "n": "8"}, "train.py",
             ("--x", "1")),
    "mpirun": ("mpirun -np 4 -H a:2,b:2 -x OMP_NUM_THREADS=2 -x PATH -x A=b -mca btl tcp --allow-run-as-root python t.py --e 3",
               "mpirun", None, "", {"OMP_NUM_THREADS": "2", "A": "b"}, {"n": "4", "mca btl": "tcp"}, "t.py", ("--e", "3")),
    "accelerate": ("accelerate launch --num_processes 4 --machine_rank 1 t.py --x", "accelerate", None, "", {},
                   {"num-processes": "4", "machine-rank": "1"}, "t.py", ("--x",)),
    "fabric": ("fabric run --devices=2 --num-nodes 2 t.py --x", "fabric", None, "", {},
               {"devices": "2", "num-nodes": "2"}, "t.py", ("--x",)),
    "docker": ("docker run --rm --gpus all -e A=1 -v /d:/d -w /w img torchrun t.py", "torchrun", None, "/w", {"A": "1"}, {},
               "t.py", ()),
    "kubectl": ("kubectl exec -n ml pod-0 -c main -- torchrun --nnodes 2 t.py", "torchrun", None, "", {}, {"nnodes": "2"},
                "t.py", ()),
    "background": ("nohup timeout -k 5 1h numactl -N 0 uv run torchrun t.py > log 2>&1 &", "torchrun", None, "", {}, {}, "t.py",
                   ()),
    "by hand": ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=h python -u t.py --d 3", "python", None, "",
                {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h"}, {}, "t.py", ("--d", "3")),
    "options of Python": ("python -um torch.distributed.run --nnodes 2 t.py", "torchrun", None, "", {}, {"nnodes": "2"}, "t.py",
                          ()),
    "values of Python": ("srun python -X dev -Wignore -Im pkg.train --d 3", "srun", None, "", {}, {}, "-m pkg.train",
                         ("--d", "3")),
    "a shell in screen": (
        "screen -dmS t bash -c 'OMP_NUM_THREADS=2 torchrun t.py --name \"a b\"'", "torchrun", None, "", {"OMP_NUM_THREADS": "2"},
        {}, "t.py", ("--name", "a b"),
    ),
    "words in tmux": ("tmux new -d torchrun t.py --name 'a b'", "torchrun", None, "", {}, {}, "t.py", ("--name", "a b")),
    "sent keys": ("tmux send-keys -t run 'cd /w; torchrun t.py' Enter", "torchrun", None, "/w", {}, {}, "t.py", ()),
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "nodes", "per_node", "endpoint"),
    [
        ("accelerate launch --num_machines 2 --num_processes 8 --main_process_ip n0 --main_process_port 29501 t.py", "2", "4",
         "n0:29501"),
        ("accelerate launch --num_processes 2 t.py", None, "2", None),
        ("python -m accelerate.commands.accelerate_cli launch --num_machines 2 --num_processes 4 t.py", "2", "2", None),
        ("python -m lightning.fabric.cli --devices 4 --num-nodes 2 --main-address n0 t.py", "2", "4", "n0:29400"),
        ("fabric run --devices=2 t.py", None, "2", None),
        ("torchrun --nnodes 2 --nproc-per-node 4 --master-addr n0 t.py", "2", "4", "n0:29500"),
    ],
)  # fmt: skip
def test_launchers_that_run_torchrun_have_its_settings(
    command: str, nodes: str | None, per_node: str, endpoint: str | None
) -> None:
    asked = launchers.launch_of("pt_elastic", tuple(command.split()))
    assert asked is not None
    assert (asked.nnodes, asked.nproc_per_node, asked.endpoint) == (nodes, per_node, endpoint)


def test_another_program_called_fabric_is_no_launcher() -> None:
    assert launchers.launch_of("fabric", ("/usr/bin/fabric", "--serve")) is None


@pytest.mark.parametrize(
    ("command", "environment", "endpoint", "default"),
    [
        ("torchrun --nnodes 2 t.py", {}, "127.0.0.1:29500", True),
        ("torchrun --nnodes 2 t.py", None, None, False),  # its environment may name one
        ("torchrun --nnodes 2 t.py", {"PET_MASTER_ADDR": "n0"}, "n0:29500", False),
        ("torchrun t.py", {"PET_NNODES": "2", "PET_RDZV_BACKEND": "c10d"}, "localhost:29400", True),
        ("torchrun --nnodes 2 --rdzv-backend c10d --master-addr n0 t.py", {}, "localhost:29400", True),
        ("torchrun --nnodes 2 --standalone --master-addr n0 t.py", {}, "localhost:0", True),
        ("torchrun --nnodes 2 t.py", {"PET_STANDALONE": "0"}, "127.0.0.1:29500", True),
        ("torchrun --nproc-per-node 2 t.py", {}, None, False),
        ("accelerate launch --num_machines 2 t.py", {}, None, False),  # its configuration file may name one
        ("tune run --nnodes 2 full --config c.yaml", {}, "localhost:0", True),
        ("tune run --nnodes 2 --master-addr n0 full --config c.yaml", {}, "localhost:0", True),
        ("tune run --nnodes 2 --rdzv-endpoint n0:1 full --config c.yaml", {}, "n0:1", False),
        ("torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint n0 t.py", {}, "n0:29400", False),
        ("torchrun --nnodes 2 t.py", {"PET_RDZV_ENDPOINT": "[::1]", "PET_RDZV_BACKEND": "c10d"}, "::1:29400", False),
        ("torchrun --nnodes 2 --rdzv-backend etcd-v2 --rdzv-endpoint n0 t.py", {}, "n0:2379", False),
        ("torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint $HEAD t.py", {}, "$HEAD", False),  # may have a port
        ("torchrun --nnodes 2 --rdzv-endpoint n0 t.py", {}, "n0", False),  # torchrun refuses it
    ],
)
def test_where_a_launcher_meets_other_nodes(
    command: str, environment: dict[str, str] | None, endpoint: str | None, default: bool
) -> None:
    asked = launchers.launch_of("pt_elastic", tuple(command.split()), environment)
    assert asked is not None
    assert (asked.endpoint, asked.default_endpoint) == (endpoint, default)


def test_tune_runs_a_recipe_for_one_device_itself() -> None:
    assert launchers.launch_of("tune", ("tune", "run", "full_finetune_single_device", "--config", "c.yaml")) is None
    assert launchers.launch_of("tune", ("tune", "download", "meta-llama/Llama-2-7b")) is None


@pytest.mark.parametrize("shape", SHAPES)
def test_a_line_is_read_down_to_its_launch(shape: str) -> None:
    text, tool, host, folder, environment, options, program, arguments = SHAPES[shape]
    (line,) = launches(text)
    assert (line.launched.tool, line.host, line.folder, line.environment) == (tool, host, folder, environment)
    assert options.items() <= line.launched.options.items()
    assert (line.launched.program, line.launched.arguments) == (program, arguments)


def rows(*texts: str) -> dict[str, Row]:
    return {row.name: row for row in compare([line for text in texts for line in launches(text)])}


@pytest.mark.parametrize(("ranks", "wrong"), [("00", True), ("01", False), ("$i $i", False)])
def test_two_lines_without_a_launcher_start_two_ranks(ranks: str, wrong: bool) -> None:
    """A loop of the shell gives each its own."""
    lines = [
        f"MASTER_ADDR=n0 WORLD_SIZE=2 RANK={rank} python train.py"
        for rank in (ranks.split() if " " in ranks else ranks)
    ]
    row = rows(*lines)["RANK"]
    assert (row.standing, row.wrong) == ("must differ", wrong)


def test_torchrun_sets_the_number_of_threads_that_a_line_leaves_out() -> None:
    line = "torchrun --nnodes 2 --nproc-per-node 3 train.py"
    why = rows(line, f"OMP_NUM_THREADS=1 {line}")["OMP_NUM_THREADS"].why
    assert "torchrun sets 1 for several ranks" in why
    assert "torchrun" not in rows(f"OMP_NUM_THREADS=2 {line}", f"OMP_NUM_THREADS=1 {line}")["OMP_NUM_THREADS"].why


def test_the_two_nodes_of_a_cpu_run() -> None:
    found = rows(WIRED, WIRELESS)
    assert not any(row.wrong for row in found.values())
    assert found["NANOCHAT_DATA_DIR"].standing == "suspicious"
    assert "only some nodes set" in found["NANOCHAT_DATA_DIR"].why
    assert found["GLOO_SOCKET_IFNAME"].standing == "suspicious"
    assert "some links are wireless" in found["GLOO_SOCKET_IFNAME"].why
    assert (found["OMP_NUM_THREADS"].standing, found["NCCL_P2P_DISABLE"].standing) == ("tuning", "inert")
    assert (found["node-rank"].standing, found["master-port"].standing) == ("must differ", "must agree")
    numbers = dict(derived([*launches(WIRED), *launches(WIRELESS)]))
    assert numbers["world size"] == "2 ranks (1 + 1)"
    assert numbers["model"].startswith("depth 4: dim 256, 2 heads")
    assert numbers["accumulation"] == "4,096 / 1,024 = 4 micro-steps per step"


@pytest.mark.parametrize(("ranks", "standing"), [("gpu", "should agree"), ("auto", "should agree"), ("2", "cosmetic")])
def test_visible_cards_set_the_number_of_ranks_where_torchrun_counts_them(ranks: str, standing: str) -> None:
    row = rows(f"CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node={ranks} t.py")["CUDA_VISIBLE_DEVICES"]
    assert row.standing == standing
    assert ("how many ranks" in row.why) == (standing == "should agree")


def test_a_variable_of_the_program_that_differs_has_a_reason() -> None:
    assert (
        rows("N_MICRO=4 torchrun t.py", "N_MICRO=6 torchrun t.py")["N_MICRO"].why
        == "hangdoc does not know this variable"
    )


def test_what_sets_a_launch_elsewhere_is_known() -> None:
    row = rows("accelerate launch --config_file c.yaml --num_processes 2 t.py")["config-file"]
    assert row.why.startswith("hangdoc does not read it")
    assert "LOCAL_RANK" in rows("python -m torch.distributed.launch --use_env t.py")["use-env"].why


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("--node_rank=1", "--node_rank=0", "node-rank"),
        ("--master_port=29500", "--master_port=29501", "master-port"),
        ("--nnodes=2", "--nnodes=3", "nnodes"),
        ("--depth=4", "--depth=2", "--depth"),
        ("scripts.base_train", "scripts.mid_train", "program"),
        ("192.168.1.10", "127.0.0.1", "rendezvous"),
    ],
)
def test_what_can_never_work_is_wrong(before: str, after: str, name: str) -> None:
    found = rows(WIRED, WIRELESS.replace(before, after))
    assert found[name].wrong


@pytest.mark.parametrize(
    ("lines", "standing", "wrong"),
    [
        (("torchrun t.py", "torchrun t.py"), "inert", False),
        (("mpirun -n 2 python t.py", "mpirun -n 2 python t.py"), "must agree", True),
    ],
)
def test_the_rendezvous_variables_of_two_scripts(lines: tuple[str, str], standing: str, wrong: bool) -> None:
    """torchrun sets them itself; every other launcher passes them on."""
    for values, disagree in ((("10.0.0.1", "10.0.0.2"), True), (("10.0.0.1", None), False)):
        texts = [
            f"export MASTER_ADDR={value}\n{line}" if value else line for value, line in zip(values, lines, strict=True)
        ]
        row = rows(*texts)["MASTER_ADDR"]
        assert (row.standing, row.wrong, row.values) == (standing, wrong and disagree, values)


@pytest.mark.parametrize(("other", "standing"), [("/d/b", "suspicious"), ("/d/a", "unknown")])
def test_only_data_that_differs_is_suspicious(other: str, standing: str) -> None:
    line = "torchrun --nnodes 2 --node-rank {} --master-addr a train.py --data {}"
    assert rows(line.format(0, "/d/a"), line.format(1, other))["--data"].standing == standing


def test_an_uneven_accumulation_is_said() -> None:
    line = launches(WIRED.replace("--total-batch-size=4096", "--total-batch-size=5000"))
    assert "not an integer" in dict(derived([*line, *line]))["accumulation"]


@pytest.mark.parametrize(
    ("lines", "numbers"),
    [
        (("torchrun --nproc_per_node 2 t.py --batch_size 8", "torchrun --nproc_per_node 2 t.py --batch_size 16"),
         {"world size": "2 separate runs of 2 ranks each, because no line says that it is one of several nodes"}),
        (("torchrun t.py", "torchrun --nproc_per_node 2 t.py"),
         {"world size": "2 separate runs of 1 rank and 2 ranks, because no line says that it is one of several nodes"}),
        (("torchrun --nproc_per_node 2 t.py --depth 8 --batch_size 8",),
         {"world size": "2 ranks", "samples per micro-step": "8 × 2 ranks = 16"}),
        (("torchrun t.py --batch_size 8 --block_size 4",),
         {"world size": "1 rank", "tokens per micro-step": "8 × 4 × 1 rank = 32"}),
        (("torchrun -m scripts.base_train --device-batch-size=1",),
         {"world size": "1 rank",
          "tokens per micro-step": "1 × 2048 × 1 rank = 2,048 (sequence length 2048, nanochat's default)"}),
        (("srun -n 8 python t.py",), {"world size": "8 ranks"}),
        (("accelerate launch --num_processes 2 t.py",),
         {"world size": "2 ranks, if a node has several cards or accelerate's configuration file asks for them"}),
        (("accelerate launch --multi_gpu --num_processes 2 t.py",), {"world size": "2 ranks"}),
        (("mpirun -np 4 -H a:2,b:2 python t.py",), {"world size": "4 ranks"}),
        (("deepspeed --num_gpus 4 --num_nodes 2 t.py",), {"world size": "8 ranks"}),
        (("deepspeed t.py",),
         {"world size": "the lines do not determine it: they leave it to a host file, or the number of cards"}),
        (("MASTER_ADDR=n0 NODE_RANK=0 python t.py", "MASTER_ADDR=n0 NODE_RANK=1 python t.py"),
         {"world size": "the lines do not determine it: they leave it to the script"}),
        (("srun python t.py",), {"world size": "the lines do not determine it: they leave it to Slurm"}),
        (("deepspeed --hostfile h t.py",),
         {"world size": "the lines do not determine it: they leave it to the file that it names"}),
        (("torchrun --nproc_per_node auto t.py",),
         {"world size": "the lines do not determine it: they leave it to the number of cards of a node, or of its cores where "
          "torch sees no card"}),
        (("PET_NPROC_PER_NODE=cpu torchrun t.py",),
         {"world size": "the lines do not determine it: they leave it to the number of cores of a node"}),
        (("torchrun --nnodes 2 --node_rank 0 --nproc_per_node $N t.py", "torchrun --nnodes 2 --node_rank 1 t.py"),
         {"world size": "the lines do not determine it: they leave it to `$N`"}),
        (("torchrun --nnodes 3 --nproc_per_node 2 t.py", "torchrun --nnodes 3 t.py"),
         {"world size": "the lines do not determine it: the nodes differ, and some have no line"}),
        (("PET_NNODES=2 PET_NODE_RANK=0 torchrun --nproc-per-node 2 t.py",
          "torchrun --nnodes 2 --node-rank 1 --nproc-per-node 2 t.py"),
         {"world size": "4 ranks (2 + 2)"}),
        (("RANK=0 WORLD_SIZE=2 python t.py", "RANK=1 WORLD_SIZE=2 python t.py"), {"world size": "2 ranks"}),
        (("RANK=0 WORLD_SIZE=2 python t.py", "RANK=1 WORLD_SIZE=4 python t.py"),
         {"world size": "the lines contradict each other: 2 ranks and 4 ranks"}),
        (("accelerate launch --num_processes 6 --num_machines 2 t.py",
          "accelerate launch --num_machines 2 --num_processes 4 t.py"),
         {"world size": "the lines contradict each other: 6 ranks and 4 ranks"}),
        (("accelerate launch --multi_gpu --config_file c --num_processes 4 t.py",
          "accelerate launch --multi_gpu --num_machines 2 --num_processes 4 t.py"), {"world size": "4 ranks"}),
        (("torchrun --nnodes 2 t.py", "torchrun --nnodes 3 t.py"),
         {"world size": "the lines contradict each other: 2 ranks and 3 ranks"}),
        (("torchrun --nnodes 2 t.py --batch_size 8", "torchrun --nnodes 2 t.py --batch_size 16"),
         {"world size": "2 ranks (1 + 1)"}),  # and no number of samples, which the two lines do not agree in
    ],
)  # fmt: skip
def test_the_numbers_that_lines_determine(lines: tuple[str, ...], numbers: dict[str, str]) -> None:
    assert dict(derived([line for text in lines for line in launches(text)])) == numbers


def test_the_option_by_which_accelerate_starts_all_ranks_is_known() -> None:
    row = rows("accelerate launch --multi_gpu --num_processes 2 t.py")["multi-gpu"]
    assert (row.standing, bool(row.why)) == ("should agree", True)


def test_two_lines_without_a_number_of_nodes_are_two_runs() -> None:
    found = rows("torchrun --nproc_per_node 2 t.py", "torchrun --nproc_per_node 2 t.py")
    assert "each line starts a run of its own" in found["number of nodes"].why
    assert not any(row.wrong for row in found.values())  # they may be meant to be
    assert "number of nodes" not in rows(WIRED, WIRELESS)


def test_a_missing_line_is_wrong() -> None:
    third = WIRED.replace("--nnodes=2", "--nnodes=3")
    row = rows(third, WIRELESS.replace("--nnodes=2", "--nnodes=3"))["number of lines"]
    assert (row.wrong, row.values) == (True, ("1 of 3 nodes", "2 of 3 nodes"))
    many = rows(WIRED, WIRELESS, WIRELESS)["number of lines"]
    assert many.values[-1] == "3 of 2 nodes"
    assert many.why == "3 lines for --nnodes 2: there is a node too many"


@pytest.mark.parametrize(
    ("options", "wrong", "why"),
    [
        (("--batch-size 4", ""), False, "given on one line only: the default of the script decides"),
        (("--lr 4", ""), False, "given on one line only: the default of the script decides"),
        (("--other 4", ""), False, "given on one line only: the default of the script decides"),
        (
            ("--batch-size 4", "--batch-size 4", ""),
            False,
            "given on 2 of 3 lines only: the default of the script decides",
        ),
        (("--batch-size 4", "--batch-size 8", ""), True, "changes the number of batches"),
        (("--bf16", ""), True, "changes the type of the tensors"),  # without a flag, it is off
    ],
)
def test_an_argument_that_some_lines_leave_out_may_be_its_default(
    options: tuple[str, ...], wrong: bool, why: str
) -> None:
    lines = (f"torchrun --nnodes {len(options)} --node-rank {at} t.py {option}" for at, option in enumerate(options))
    row = rows(*lines)[options[0].partition(" ")[0]]
    assert (row.wrong, row.standing) == (wrong, "must agree" if wrong else "suspicious")
    assert why in row.why


def test_nothing_is_executed(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    text = (
        f'X=$(touch {harm}) `touch {harm}`; touch {harm}; ssh h "touch {harm}; torchrun --nnodes $(touch {harm}) t.py"'
    )
    (line,) = launches(text)
    assert line.launched.options["nnodes"] == f"$(touch {harm})"
    assert not harm.exists()


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab $'\"\\\n(){}|&;<>=-`torchun.py#*!~"), max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        for line in launches(text):
            assert isinstance(line, LaunchLine)
    except ShellError:
        pass


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.sh").write_text(WIRED)
    assert run(["launch-diff", str(tmp_path / "a.sh"), WIRELESS]) == 0
    assert "NANOCHAT_DATA_DIR" in capsys.readouterr().out
    assert run(["launch-diff", WIRED, WIRELESS.replace("--depth=4", "--depth=2")]) == 1
    assert run(["launch-diff", WIRED]) == 2
    assert run(["launch-diff", "nothing-here", WIRED]) == 2
    assert run(["launch-diff", "echo hello", WIRED]) == 2
    capsys.readouterr()
    assert run(["launch-explain", WIRELESS]) == 0
    out = capsys.readouterr().out
    assert "runs the rest on laptop" in out
    assert "torchrun starts -m scripts.base_train" in out
    assert not [line for line in out.splitlines() if line.endswith(" ")]


def test_observing_does_not_load_the_parser() -> None:
    code = "import hangdoc.observe.look.observe, sys; sys.exit('tree_sitter' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_exported_variable_is_no_option_and_hides_none() -> None:
    (line,) = launches("mpirun -np 4 -x n=3 -x FOO=1 python train.py")
    assert line.environment == {"n": "3", "FOO": "1"}
    assert line.launched.options == {"n": "4"}
    for command in ("torchrun t.py", "bash -c 'torchrun t.py'", "env B=2 python t.py"):
        (line,) = launches(f"mpirun -np 4 -x n=3 -x PATH {command}")
        assert line.environment["n"] == "3"
        assert line.around | line.launched.options == {"n": "4", "x PATH": "(set)"}


IMAGE = "srun --container-image=nvcr.io#nvidia/pytorch:24.05-py3"


@pytest.mark.parametrize(
    ("line", "other", "name", "standing"),
    [
        (f"{IMAGE} -N2 python t.py", "24.05 23.01", "container-image", "should agree"),
        (f"{IMAGE} -N2 torchrun t.py", "24.05 23.01", "container-image", "should agree"),
        (f"{IMAGE} bash -c 'torchrun t.py'", "24.05 23.01", "container-image", "should agree"),
        ("docker run --gpus all -e A=1 torch:24.05 torchrun t.py", "24.05 23.01", "container-image", "should agree"),
        ("podman run --env=A=1 -w /w torch:24.05 torchrun t.py", "24.05 23.01", "container-image", "should agree"),
        ("apptainer exec --nv -B /d:/d torch_24.05.sif torchrun t.py", "24.05 23.01", "container-image", "should agree"),
        ("srun -n 8 singularity exec torch_24.05.sif python t.py", "24.05 23.01", "container-image", "should agree"),
        ("enroot start -w -m /d:/d torch+24.05 torchrun t.py", "24.05 23.01", "container-image", "should agree"),
        ("kubectl run p --image torch:24.05 -- torchrun t.py", "24.05 23.01", "container-image", "should agree"),
        ("srun --frobnicate=1 python t.py", "=1 =2", "frobnicate", "unknown"),
        ("srun --frobnicate=1 torchrun t.py", "=1 =2", "frobnicate", "unknown"),
        ("torchrun --frobnicate=1 t.py", "=1 =2", "frobnicate", "unknown"),
    ],
)  # fmt: skip
def test_an_option_of_a_launcher_or_a_container_is_compared(line: str, other: str, name: str, standing: str) -> None:
    for second, differs in ((line.replace(*other.split()), True), (line, False)):
        row = rows(line, second)[name]
        assert (row.standing, row.differs, row.wrong) == (standing, differs, False)
        assert bool(row.why) == (differs or standing != "unknown")


NODE = "torchrun --nnodes 2 --nproc-per-node 8 --tee 3 --master-addr n0 --node-rank"


def test_an_option_around_the_launcher_is_not_one_of_the_launcher(capsys: pytest.CaptureFixture[str]) -> None:
    """A number of processes is one of ranks only where srun starts the ranks itself."""
    first, second = f"srun -n1 -w n0 --tee=x {NODE} 0 t.py", f"ssh n1 {NODE} 1 t.py"
    assert run(["launch-diff", first, second]) == 0
    assert "n (around): how many times it starts the launcher" in capsys.readouterr().out
    compared = {(row.origin, row.name): row.values for row in compare([*launches(first), *launches(second)])}
    assert (compared["launcher", "tee"], compared["around", "tee"]) == (("3", "3"), ("x", None))
    assert run(["launch-explain", f"srun -n2 {NODE} 0 t.py"]) == 0
    shown = capsys.readouterr().out
    assert "n 2 (around)" in shown
    assert "number of ranks" not in shown
    assert "world size: 16 ranks" in shown
    assert run(["launch-diff", "srun -n1 python t.py", "srun -n2 python t.py"]) == 1


def test_srun_that_starts_the_ranks_is_not_around_the_launcher() -> None:
    (line,) = launches("srun -n 8 --container-image=a apptainer exec b python t.py")
    assert line.launched.options == {"n": "8", "container-image": "a"}
    assert line.around == {"container-image": "b"}
    (line,) = launches("srun -N2 mpirun -np 8 apptainer exec b python t.py")
    assert (line.launched.options, line.around) == ({"n": "8"}, {"nodes": "2", "container-image": "b"})


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("cd /w && python train.py", ["srun train.py"]),
        ("bash -c 'python train.py --lr 1'", ["srun train.py"]),
        ("python -m pip install x; python prep.py && torchrun train.py", ["torchrun train.py"]),
        ("bash -c 'python prep.py'; torchrun train.py", ["torchrun train.py"]),
        ("python -m pip install x\npython prep.py\npython -u train.py; echo done", ["srun train.py"]),
        ("python prep.py; srun -n 2 python a.py; mpirun -n 4 python b.py", ["srun a.py", "mpirun b.py"]),
        ("ssh n1 'python train.py'", []),
        ("make", []),
    ],
)
@pytest.mark.parametrize("start", ["srun -n 8", "srun -n 8 apptainer exec i.sif"])
def test_srun_starts_the_program_that_a_shell_of_it_runs(start: str, text: str, starts: list[str]) -> None:
    found = launches(f"{start} bash -c {shlex.quote(text)}")
    assert [f"{line.launched.tool} {line.launched.program}" for line in found] == starts
    if starts == ["srun train.py"]:
        assert (found[0].launched.options, "n" in found[0].around) == ({"n": "8"}, False)


def test_python_in_a_shell_that_nothing_starts_on_the_nodes_is_no_launch() -> None:
    assert launches("bash -c 'python train.py'") == []


@pytest.mark.parametrize(
    ("line", "environment", "folder"),
    [
        ("A=0 apptainer exec --workdir /tmp i.sif torchrun t.py", {"A": "0"}, ""),  # where /tmp of the container is
        ("apptainer exec --pwd=/w --workdir=/scratch i.sif torchrun t.py", {}, "/w"),
        ("singularity exec --env A=1,B=2 --env C=3,4 i.sif torchrun t.py", {"A": "1", "B": "2", "C": "3,4"}, ""),
        ("""apptainer exec --env '"A=1,2",B=x=y' i.sif torchrun t.py""", {"A": "1,2", "B": "x=y"}, ""),
        ("A=0 B=0 apptainer exec -e --env B=1 i.sif torchrun t.py", {"B": "1"}, ""),
        ("A=0 apptainer exec --containall i.sif torchrun t.py", {}, ""),
        ("A=0 B=0 docker run -e A -e C -e D=1,E=2 image torchrun t.py", {"A": "0", "D": "1,E=2"}, ""),
    ],
)
def test_what_a_container_makes_of_variables_and_directories(
    line: str, environment: dict[str, str], folder: str
) -> None:
    (launch,) = launches(line)
    assert (launch.environment, launch.folder) == (environment, folder)


def test_a_container_says_whether_it_passes_the_variables_on() -> None:
    for line, passes in (
        ("apptainer exec i.sif torchrun t.py", "with the variables of this shell"),
        ("apptainer exec -e i.sif torchrun t.py", "only with the variables that --env sets"),
        ("docker exec -e A=1 worker torchrun t.py", "only with the variables that --env sets"),
    ):
        ((layer,),) = [launch.layers for launch in launches(line)]
        assert layer.why == f"runs the rest in a container, {passes}"


@pytest.mark.parametrize("option", ["-e A=1", "-w /w", "--workdir /w", "--"])
def test_each_word_after_the_image_belongs_to_the_command(option: str) -> None:
    """What the image starts with these words is not in the line."""
    for start in ("docker run image", "docker exec worker", "apptainer exec i.sif"):
        assert launches(f"{start} {option} torchrun t.py") == []
    (line,) = launches("kubectl exec pod-0 -c main -- torchrun t.py")
    assert line.launched.program == "t.py"


def test_a_container_that_is_there_has_no_image_in_the_line() -> None:
    assert "container-image" not in rows("docker exec -e A=1 worker torchrun t.py")


def test_srun_starts_what_a_wrapper_or_a_container_runs() -> None:
    (line,) = launches("srun -n 8 apptainer exec --nv img.sif python -u t.py --lr 1")
    assert (line.launched.tool, line.launched.options) == ("srun", {"n": "8"})
    assert (line.launched.program, line.launched.arguments) == ("t.py", ("--lr", "1"))


@pytest.mark.parametrize(
    ("line", "standing", "wrong"),
    [
        ("torchrun --nnodes 2 --rdzv_backend=c10d --rdzv_id=77 --rdzv_endpoint n0 --node_rank=0 t.py", "inert", False),
        ("PET_RDZV_BACKEND=c10d torchrun --nnodes 2 --rdzv_endpoint n0 --node_rank=0 t.py", "inert", False),
        ("torchrun --nnodes 2 --rdzv_id=77 --master_addr n0 --node_rank=0 t.py", "must differ", True),
        ("torchrun --nnodes 2 --rdzv_backend=static --rdzv_endpoint n0 --node_rank=0 t.py", "must differ", True),
    ],
)  # fmt: skip
def test_only_the_static_rendezvous_uses_the_node_rank(line: str, standing: str, wrong: bool) -> None:
    """torch/distributed/run.py: "node_rank is only used for static rdzv_backend"."""
    found = rows(line, line)
    assert (found["node-rank"].standing, found["node-rank"].wrong) == (standing, wrong)
    assert any(row.wrong for row in found.values()) == wrong
    (name, parsed), _ = [*read(line), *read(line)]
    launch = launchers.launch_of("pt_elastic", tuple(line.split()[line.startswith("PET") :]), parsed.environment)
    assert (name, launch and launch.node_rank) == (("node 0", 0) if wrong else ("", None))


def test_without_the_static_rendezvous_no_other_option_is_checked_against_the_node_rank() -> None:
    line = "torchrun --nnodes 2 --rdzv_backend c10d --rdzv_endpoint n0:1 --master_addr 127.0.0.1 --node_rank 5 t.py"
    assert not any(row.wrong for row in rows(line, line).values())
    machine_rank = "accelerate launch --num_machines 2 --machine_rank 0 --main_process_ip n0 --rdzv_backend c10d t.py"
    found = rows(machine_rank, machine_rank)
    assert (found["machine-rank"].standing, found["main-process-ip"].standing) == ("inert", "must agree")


@pytest.mark.parametrize(
    ("hosts", "wrong", "unless"),
    [
        (("", ""), True, True),
        (("ssh n0 ", "ssh n1 "), True, False),
        (("ssh n0 ", ""), True, True),
        (("ssh n0 ", "ssh me@n0 "), False, False),
        (("ssh $1 ", "ssh $1 "), True, True),
        (("pdsh -w n[0-1] ", "pdsh -w n[0-1] "), True, True),
    ],
)
def test_loopback_joins_the_nodes_of_one_host_only(hosts: tuple[str, str], wrong: bool, unless: bool) -> None:
    line = "torchrun --nnodes 2 --master_addr 127.0.0.1 --node_rank"
    row = rows(*(f"{host}{line} {rank} t.py" for rank, host in enumerate(hosts)))["rendezvous"]
    assert (row.wrong, "unless all of them are on one host" in row.why) == (wrong, unless)


@pytest.mark.parametrize(
    ("masters", "begins"),
    [
        (("127.0.0.1", "localhost"), "each node connects to itself"),
        (
            ("n0", "localhost"),
            "a node with localhost connects to itself through loopback, so it never finds the others,",
        ),
        (("n0", "::1", "localhost"), "a node with ::1 or localhost connects to itself"),
        (("localhost", "n0"), None),  # the master reaches itself
    ],
)
def test_only_a_node_with_a_loopback_master_connects_to_itself(masters: tuple[str, ...], begins: str | None) -> None:
    line = f"torchrun --nnodes {len(masters)} --node_rank {{}} --master_addr {{}} t.py"
    found = rows(*(line.format(number, master) for number, master in enumerate(masters)))
    assert found["master-addr"].wrong
    assert ("rendezvous" in found) == (begins is not None)
    assert begins is None or found["rendezvous"].why.startswith(begins)


@pytest.mark.parametrize("host", ["n0", "localhost"])
def test_an_endpoint_without_a_port_is_one_with_the_default_port(host: str) -> None:
    line = "torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint {} t.py"
    found = rows(line.format(f"{host}:29400"), line.format(host))
    assert found["rdzv-endpoint"].values == (f"{host}:29400",) * 2
    assert not found["rdzv-endpoint"].wrong
    assert "rendezvous" not in found or found["rendezvous"].values == (host, host)
    assert rows(line.format(f"{host}:29500"), line.format(host))["rdzv-endpoint"].wrong


def test_the_static_rendezvous_refuses_an_endpoint_without_a_port() -> None:
    row = rows("torchrun --nnodes 2 --rdzv-endpoint localhost t.py")["rdzv-endpoint"]
    assert (row.values, row.wrong) == (("localhost",), True)
    assert "without a port" in row.why
    assert not rows("torchrun --nnodes 2 --standalone --rdzv-endpoint localhost t.py")["rdzv-endpoint"].wrong


def test_on_the_cpu_accelerate_uses_no_option_for_several_ranks() -> None:
    line = (
        "accelerate launch --cpu --num_machines 2 --machine_rank 0 --num_processes {} --main_process_ip localhost t.py"
    )
    lines = [line.format(3), line.format(6)]
    found = rows(*lines)
    once = "with --cpu, accelerate starts the script once"
    for name in ("num-processes", "num-machines", "machine-rank", "main-process-ip"):
        assert (found[name].standing, found[name].wrong, once in found[name].why) == ("inert", False, True)
    assert once in found["number of nodes"].why
    assert once in dict(derived([each for text in lines for each in launches(text)]))["world size"]
    launch = launchers.launch_of("accelerate", tuple(lines[0].split()), {})
    assert launch is not None
    assert (launch.nproc_per_node, launch.endpoint) == ("1", None)
    found = rows(*(text.replace("--cpu ", "") for text in lines))
    assert (found["num-processes"].wrong, found["machine-rank"].wrong) == (True, True)


def test_without_node_ranks_no_line_is_the_master() -> None:
    found = rows(*(f"torchrun --nnodes 2 --master_addr {master} t.py" for master in ("localhost", "n0")))
    assert found["rendezvous"].why.startswith("a node with localhost connects to itself")


@pytest.mark.parametrize("short", ["-r0:1,1:3", "-r 0:1,1:3", "-r=0:1,1:3", "--redirects 0:1,1:3"])
def test_the_value_of_a_short_option_may_follow_without_a_space(short: str) -> None:
    (line,) = launches(f"torchrun --standalone {short} -t3 train.py -r7")
    assert line.launched.options == {"standalone": "(set)", "redirects": "0:1,1:3", "tee": "3"}
    assert (line.launched.program, line.launched.arguments) == ("train.py", ("-r7",))


@pytest.mark.parametrize(
    "before",
    [
        "source .venv/bin/activate",
        ". env.sh 3",
        "conda activate torch",
        "module load cuda/12.4",
        "ml cuda",
        "spack load nccl",
    ],
)
def test_a_command_that_changes_the_shell_is_a_layer(before: str) -> None:
    for text in (
        f"cd /w && {before} && torchrun t.py",
        f"ssh h '{before}; torchrun t.py'",
        f"bash -c '{before}\ntorchrun t.py'",
    ):
        (line,) = launches(text)
        assert [layer.why for layer in line.layers if layer.text == before] == [
            "changes this shell; the variables that it sets are unknown"
        ]
    (line,) = launches(f"({before}); conda info; module list; torchrun t.py")
    assert line.layers == ()


def test_arguments_are_shown_as_they_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["launch-explain", "A=1 torchrun t.py trainer.num_nodes=4 +data.path=/d --lr 1 -b 8 --warm"]) == 0
    shown = capsys.readouterr().out.replace("  ", "\n").splitlines()
    assert {"trainer.num_nodes=4", "+data.path=/d", "--lr 1", "-b 8", "--warm", "A=1"} <= set(shown)
    assert rows("torchrun t.py x.dim=4", "torchrun t.py x.dim=8")["x.dim"].wrong


STATIC = "torchrun --nnodes 2 --node-rank {} --master-addr n0 {} t.py --lr 0.01"


@pytest.mark.parametrize(
    "option",
    ["--master-port 29500", "--rdzv-id none", "--rdzv-backend static", "--max-restarts 0", "--nproc-per-node 1", "-t 0",
     "--monitor-interval .1", "--start-method spawn"],
)  # fmt: skip
def test_an_option_that_is_left_out_is_its_default(option: str) -> None:
    found = rows(STATIC.format(0, option), STATIC.format(1, "")).values()
    assert [row.name for row in found if row.differs or row.wrong] == ["node-rank"]


def test_a_value_that_differs_from_the_default_names_it() -> None:
    row = rows(STATIC.format(0, "--master-port 29501"), STATIC.format(1, ""))["master-port"]
    assert (row.wrong, row.values, row.used) == (True, ("29501", None), ("29501", "29500"))
    assert row.why == "all nodes connect to this port; without it or PET_MASTER_PORT, torchrun takes 29500"
    line = "fabric run --devices 2 --num-nodes 2 --node-rank {} --main-address n0 {} t.py"
    assert rows(line.format(0, "--main-port 29500"), line.format(1, ""))["main-port"].wrong
    assert not rows(line.format(0, "--main-port 29400"), line.format(1, ""))["main-port"].wrong
    one = rows("torchrun --master-port 7 t.py", "torchrun t.py")["master-port"]  # for one node, it takes a free port
    assert (one.used, "torchrun takes" in one.why) == (("7", None), False)
    # accelerate's configuration file may have another one than its default.
    line = "accelerate launch --num_machines 2 --machine_rank {} --main_process_ip n0 {} t.py"
    assert rows(line.format(0, "--main_process_port 29500"), line.format(1, ""))["main-process-port"].wrong


@pytest.mark.parametrize(
    ("one", "other", "wrong"),
    [
        ("--rdzv-endpoint h1:1234", "--master-addr h1 --master-port 1234", set()),
        ("--rdzv-endpoint h1:29500", "--master-addr h1", set()),
        ("--rdzv-endpoint $HEAD:1234", "--rdzv-endpoint ${HEAD}:1234", set()),
        ("--master-addr $HEAD --master-port 1234", "--rdzv-endpoint ${HEAD}:1234", set()),
        ("--rdzv-endpoint [::1]:1234", "--master-addr ::1 --master-port 1234", set()),
        ("--rdzv-endpoint h1:1234 --master-addr h2", "--rdzv-endpoint h1:1234 --master-addr h3", set()),
        ("--rdzv-endpoint h1:1234", "--master-addr h1 --master-port 1235", {"rdzv-endpoint", "master-port"}),
        ("--rdzv-endpoint h1:1234", "--master-addr h2 --master-port 1234", {"rdzv-endpoint", "master-addr"}),
        ("--rdzv-endpoint h1:1234", "--rdzv-endpoint h2:1234", {"rdzv-endpoint"}),
        ("--master-addr h1 --master-port 1234", "--master-addr h1 --master-port 1235", {"master-port"}),
        ("--rdzv-backend c10d --rdzv-endpoint h1:29500", "--rdzv-backend c10d --master-addr h1", {"rdzv-endpoint"}),
    ],
)
def test_the_static_rendezvous_meets_at_its_endpoint_or_at_its_address_and_port(
    one: str, other: str, wrong: set[str]
) -> None:
    found = rows(f"torchrun --nnodes 2 --node-rank 0 {one} t.py", f"torchrun --nnodes 2 --node-rank 1 {other} t.py")
    assert {name for name, row in found.items() if row.wrong and not name.startswith("rendezvous")} == wrong


def test_a_loopback_address_may_be_in_brackets() -> None:
    line = "torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint {} t.py"
    assert rows(*[line.format("[::1]:29400")] * 2)["rendezvous"].wrong
    found = rows(line.format("[fd00::1]:29400"), line.format("[fd00::1]"))
    assert not [name for name, row in found.items() if row.wrong or row.differs]


def test_a_port_may_begin_with_zeros() -> None:
    line = "torchrun --nnodes 2 --node-rank {} {} t.py"
    for option, same in (
        ("--master-port", ("7", "007")),
        ("--rdzv-endpoint", ("h:7", "h:007")),
        ("--nproc-per-node", ("2", "02")),
    ):
        found = rows(*(line.format(rank, f"{option} {same[rank]}") for rank in (0, 1)))
        assert [name for name, row in found.items() if row.differs] == ["node-rank"]
    assert rows(line.format("1", ""), line.format("01", ""))["node-rank"].wrong  # the same node twice
    assert rows(line.format(0, "--rdzv-id 7"), line.format(1, "--rdzv-id 007"))["rdzv-id"].wrong  # a name
    line = "MASTER_ADDR=h1 MASTER_PORT={} WORLD_SIZE=2 RANK={} python t.py"
    found = rows(line.format("029500", 0), line.format("29500", 1)).values()
    assert [row.name for row in found if row.differs or row.wrong] == ["RANK"]
    assert rows(line.format("029501", 0), line.format("29500", 1))["MASTER_PORT"].wrong


def test_a_variable_may_have_braces_in_another_one() -> None:
    line = "MASTER_ADDR=h1 MASTER_PORT={} WORLD_SIZE=2 RANK={} TORCH_DISTRIBUTED_DEBUG={} python t.py"
    found = rows(line.format("$P", 0, "$D"), line.format("${P}", 1, "${D}")).values()
    assert [row.name for row in found if row.differs or row.wrong] == ["RANK"]


def test_a_line_without_a_node_rank_has_no_number_of_nodes_to_exceed() -> None:
    found = rows("torchrun --nnodes 1 --node-rank 1 t.py", "torchrun --rdzv-backend c10d t.py")
    assert found["node rank"].values == ("1 of 1 node", None)


def test_without_an_endpoint_the_dynamic_rendezvous_has_one() -> None:
    line = "torchrun --nnodes 2 --rdzv-backend c10d {} t.py"
    assert not rows(line.format("--rdzv-endpoint localhost"), line.format(""))["rdzv-endpoint"].wrong
    assert rows(line.format("--rdzv-endpoint n0"), line.format(""))["rdzv-endpoint"].wrong


@pytest.mark.parametrize(
    ("values", "same"),
    [
        (("--nnodes 2", "--nnodes 2:2"), True),
        (("--nnodes 2", "--nnodes 1:2"), False),
        (("--lr 0.01", "--lr 1e-2"), True),
        (("--lr 0.01", "--lr 0.0100"), True),
        (("--lr 0.01", "--lr 1e-3"), False),
        (("--depth 4", "--depth 4.0"), True),
        (("--data 1", "--data 1.0"), False),  # names
        (("--frobnicate 7", "--frobnicate 007"), False),
        (("--frobnicate 1e999", "--frobnicate 1e998"), False),
        (("--lr $LR", "--lr ${LR}"), True),
        (("--lr $LR", "--lr ${LR:-1}"), False),
        (("--name $A1", "--name ${A}1"), False),
        (("--nnodes $N", "--nnodes ${N}"), True),
    ],
)
def test_two_spellings_of_one_value_are_equal(values: tuple[str, str], same: bool) -> None:
    nodes = values[0].startswith("--nnodes")
    lines = [f"torchrun {value} t.py" if nodes else f"torchrun t.py {value}" for value in values]
    row = rows(*lines)[values[0].split()[0].lstrip("-") if nodes else values[0].split()[0]]
    assert row.differs != same


@pytest.mark.parametrize(
    ("programs", "standing", "differs", "wrong"),
    [
        (("./t.py", "t.py"), "must agree", False, False),
        (("a/../t.py", "t.py"), "must agree", False, False),
        (("/a/t.py", "/b/t.py"), "should agree", True, False),
        (("t.py", "-m t"), "must agree", True, True),
    ],
)
def test_a_program_may_be_spelled_differently(
    programs: tuple[str, str], standing: str, differs: bool, wrong: bool
) -> None:
    row = rows(*(f"torchrun --nnodes 2 --node-rank {at} {program}" for at, program in enumerate(programs)))["program"]
    assert (row.standing, row.differs, row.wrong) == (standing, differs, wrong)


@pytest.mark.parametrize(
    ("first", "second", "wrong"),
    [
        ("--node-rank 0", "", True),
        ("--node-rank 1", "", False),
        ("", "", True),
        ("--node-rank $N", "--node-rank $N", False),
        ("--rdzv-backend c10d --node-rank 0", "--rdzv-backend c10d", False),
    ],
)
def test_without_a_node_rank_a_line_starts_node_0(first: str, second: str, wrong: bool) -> None:
    line = "torchrun --nnodes 2 --master-addr n0 {} t.py"
    row = rows(line.format(first), line.format(second))["node-rank"]
    assert row.wrong == wrong
    assert ("without it or PET_NODE_RANK, torchrun takes 0" in row.why) == ("$N" not in first and "c10d" not in first)


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nnodes 1 t.py",
        "torchrun --nnodes 2 --rdzv-backend c10d t.py",
        "srun -N2 python t.py",
        "accelerate launch --num_machines 2 t.py",
    ],
)
def test_lines_that_need_no_node_rank(line: str) -> None:
    assert "node-rank" not in rows(line, line)


def test_variables_with_options_of_torchrun_are_these_options(capsys: pytest.CaptureFixture[str]) -> None:
    variables = "PET_NNODES=2 PET_NODE_RANK=0 PET_MASTER_ADDR=node0 torchrun --nproc-per-node 2 t.py"
    options = "torchrun --nnodes 2 --node-rank 1 --nproc-per-node 2 --master-addr node0 t.py"
    found = rows(variables, options)
    assert [row.name for row in found.values() if row.differs or row.wrong] == ["node-rank"]
    assert found["nnodes"].values == ("2", "2")
    assert not [name for name in found if name.startswith("PET_")]
    assert run(["launch-diff", variables, options.replace("node0", "node1")]) == 1
    assert "master-addr" in capsys.readouterr().out
    overridden = rows(f"PET_NNODES=3 {options}", options.replace("-rank 1", "-rank 0"))["PET_NNODES"]
    assert (overridden.standing, overridden.why) == ("inert", "the option --nnodes is used instead")
    assert rows("PET_LOGS_SPECS=x torchrun t.py")["PET_LOGS_SPECS"].standing == "unknown"
    assert "PET_NNODES" in rows("PET_NNODES=2 srun -n 2 python t.py")


def test_a_variable_may_set_a_flag() -> None:
    (line,) = launches("PET_STANDALONE=1 PET_NO_PYTHON=0 torchrun t")
    assert line.launched.options == {"standalone": "(set)"}
    (line,) = launches("torchrun --virtual-local-rank t.py")
    assert line.launched.program == "t.py"


@pytest.mark.parametrize(
    ("first", "second", "standing", "wrong"),
    [
        ("NODE_RANK=0", "NODE_RANK=0", "must differ", True),
        ("NODE_RANK=0", "NODE_RANK=1", "must differ", False),
        ("NODE_RANK=0", "", "must differ", True),
        ("NODE_RANK=$i", "NODE_RANK=$i", "must differ", False),
        ("NODE_RANK=0 RANK=0", "NODE_RANK=0 RANK=1", "cosmetic", False),
        ("NODE_RANK=0 LOCAL_RANK=0", "NODE_RANK=0 LOCAL_RANK=1", "cosmetic", False),
    ],
)
def test_two_lines_of_lightning_start_two_nodes(first: str, second: str, standing: str, wrong: bool) -> None:
    row = rows(*(f"MASTER_ADDR=n0 {variables} python t.py" for variables in (first, second)))["NODE_RANK"]
    assert (row.standing, row.wrong) == (standing, wrong)
    assert "Lightning" in row.why or standing == "cosmetic"


def test_all_launches_that_are_read_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["launch-diff", "echo hello", WIRED]) == 2
    assert run(["preflight", "--", "echo", "hello"]) == 2
    messages = capfd.readouterr().err.splitlines()
    for message in messages:
        assert all(tool in message for tool in {*PROGRAMS.values(), "python with RANK, WORLD_SIZE or MASTER_ADDR"})
    assert len(messages) == 2


def test_an_option_of_torchrun_after_the_script_is_an_argument_of_it() -> None:
    found = rows("torchrun --nproc_per_node 2 t.py --nproc_per_node 3 --tp 2")
    assert (found["--nproc_per_node"].standing, found["--tp"].standing) == ("unknown", "must agree")
    assert "torchrun does not read it" in found["--nproc_per_node"].why
