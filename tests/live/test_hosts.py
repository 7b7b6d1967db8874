"""Many hosts for real: namespaces with their own sshd, torchrun over them, looked at with --hosts."""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoc_trainer import corpus
from hangdoc_trainer.scenarios import SMALL
from tests.live.cluster import HANGDOC, REPOSITORY, Cluster, Node
from tests.live.needs import apart

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
LOOP = f"{REPOSITORY}/tests/live/programs/loop.py"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2) as one:
        yield one


def launch(cluster: Cluster, node: Node, program: str = LOOP, port: int = 29500, environment: str = "") -> None:
    """torchrun on a node, over ssh."""
    node.ssh(
        f"cd {cluster.folder} && OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 {environment} {sys.executable} -m "
        f"torch.distributed.run --nnodes 2 --nproc-per-node 1 --node-rank {node.number} "
        f"--master-addr {cluster.nodes[0].address} --master-port {port} {program}"
    )


def diagnosed(cluster: Cluster, *options: str) -> dict[str, Any]:
    done = cluster.hangdoc("diagnose", "--json", "--patience", "2", *cluster.reach(), *options)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def until(
    look: Callable[[], dict[str, Any]], good: Callable[[dict[str, Any]], bool], seconds: float = 200
) -> dict[str, Any]:
    """Look again and again until it is so; the last look otherwise."""
    end = time.monotonic() + seconds
    while True:
        answer = look()
        if good(answer) or time.monotonic() > end:
            return answer
        time.sleep(1)


def leading(answer: dict[str, Any]) -> tuple[str, list[int]] | None:
    """Code and culprits of the first job's first finding."""
    found = answer["jobs"][0]["findings"] if answer["jobs"] else []
    return (found[0]["code"], found[0]["culprits"]) if found else None


def finds(code: str) -> Callable[[dict[str, Any]], bool]:
    return lambda answer: (leading(answer) or ("", []))[0] == code


def begun(cluster: Cluster) -> None:
    """Until both ranks say so in their logs."""
    for node in cluster.nodes:
        wait_for_text(cluster.folder / f"{node.name}.run.log", "begins")


def wait_for_text(log: Path, text: str) -> None:
    """Until a log holds it."""
    end = time.monotonic() + 200
    while not (log.exists() and text in log.read_text()):
        assert time.monotonic() < end, log.read_text() if log.exists() else log
        time.sleep(0.2)


def test_two_shard_directories_over_ssh(cluster: Cluster) -> None:
    for node, shards in zip(cluster.nodes, (201, 4), strict=True):
        corpus.make(cluster.folder / f"data{node.number}", shards)
        program = f"-m hangdoc_trainer.base_train {' '.join(SMALL)} --num-iterations -1"
        launch(cluster, node, program, environment=f"NANOCHAT_DATA_DIR={cluster.folder}/data{node.number}")
    answer = until(lambda: diagnosed(cluster), finds("HD101"))
    assert leading(answer) == ("HD101", [1])
    assert [view["host"] for view in answer["jobs"][0]["ranks"]] == ["node0", "node1"]
    assert answer["verdict"] == "hung"
    called = from_python(cluster)
    assert leading(called) == ("HD101", [1])
    assert [view["host"] for view in called["jobs"][0]["ranks"]] == ["node0", "node1"]


def from_python(cluster: Cluster) -> dict[str, Any]:
    """The same look, as a caller of the API takes it."""
    where = {
        "hosts": [node.address for node in cluster.nodes],
        "patience": 2.0,
        "ssh_options": cluster.ssh_options,
        "remote_command": HANGDOC,
    }
    code = """
import json, sys, msgspec, hangdoc
sys.stdout.buffer.write(msgspec.json.encode(hangdoc.diagnose(**json.loads(sys.argv[1]))))
"""
    done = cluster.run(sys.executable, "-c", code, json.dumps(where))
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_firewall_in_one_direction(cluster: Cluster) -> None:
    cluster.nodes[0].firewall("tcp dport != { 22, 29500 } ct state new drop")
    for node in cluster.nodes:
        launch(cluster, node)
    answer = until(lambda: diagnosed(cluster), finds("HD403"))
    assert leading(answer) == ("HD403", [0])
    assert answer["jobs"][0]["findings"][0]["victims"] == [1]


def test_an_interface_that_peers_cannot_reach(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.run("ip", "route", "add", "default", "via", "10.99.7.254")
    decoy = cluster.nodes[1]
    for words in ("link add docker0 type bridge", "addr add 10.10.0.1/16 dev docker0", "link set docker0 up"):
        decoy.run("ip", *words.split())
    launch(cluster, cluster.nodes[0])
    launch(cluster, decoy, environment="GLOO_SOCKET_IFNAME=docker0")
    answer = until(lambda: diagnosed(cluster), finds("HD404"))
    assert leading(answer) == ("HD404", [1])
    assert "docker0" in answer["jobs"][0]["findings"][0]["summary"]


def test_a_link_that_is_cut_and_a_host_that_does_not_answer(cluster: Cluster) -> None:
    for node in cluster.nodes:
        launch(cluster, node)
    begun(cluster)
    healthy = diagnosed(cluster)
    assert healthy["verdict"] == "healthy"
    assert {view["host"] for view in healthy["jobs"][0]["ranks"]} == {"node0", "node1"}
    cluster.nodes[1].run("ip", "link", "set", "eth0", "down")
    began = time.monotonic()
    answer = until(lambda: diagnosed(cluster, "--host-timeout", "6"), finds("HD407"))
    assert leading(answer) == ("HD407", [1])
    assert any(problem.startswith("10.99.7.2: ") for problem in answer["problems"])
    assert "10.99.7.2" in answer["jobs"][0]["unseen"][0]["why"]
    began = time.monotonic()
    diagnosed(cluster, "--host-timeout", "6")
    assert time.monotonic() - began < 60  # its timeout, and what the others take: not the minutes of TCP


def test_different_ports_and_then_an_orphan(cluster: Cluster) -> None:
    first, second = cluster.nodes
    launch(cluster, first)
    launch(cluster, second, port=29501)
    answer = until(lambda: diagnosed(cluster), finds("HD406"))
    assert leading(answer) == ("HD406", [1])
    for node in cluster.nodes:
        node.run("sh", "-c", "kill $(pgrep -f torch.distributed.ru[n])")
    variables = f"TORCHELASTIC_RUN_ID=none RANK=0 WORLD_SIZE=1 MASTER_ADDR={first.address} MASTER_PORT=29600"
    left_over = f"{variables} setsid {sys.executable} {LOOP}"
    first.ssh(f"cd {cluster.folder}; (OMP_NUM_THREADS=1 {left_over} > old.log 2>&1 &)")
    wait_for_text(cluster.folder / "old.log", "begins")
    for node in cluster.nodes:
        launch(cluster, node, port=29600)
    answer = until(lambda: diagnosed(cluster), finds("HD402"))
    assert leading(answer) == ("HD402", [])
    assert "an orphan" in answer["jobs"][0]["findings"][0]["summary"]


UNFRIENDLY = {
    "rubbish": ("head -c 300000 /dev/urandom; exit 0", "it sent no bundle"),
    "endless": ("exec tr '\\0' x < /dev/zero", "it sends data that is not a bundle"),
    "stalls": (
        f"{HANGDOC} snapshot --as-text --window 0.1 | head -1; sleep 300",
        "its hangdoc started but did not finish within 20 s",
    ),
    "silent": ("sleep 300", "no reply within 20 s"),
    "absent": ("exec /nonexistent/hangdoc", "hangdoc was not found there"),
    "password": ("printf 'Password: ' > /dev/tty && read answer < /dev/tty; exit 5", "it sent no bundle (exit code 5"),
    "changed": (f"{HANGDOC} snapshot --as-text --window 0.1 | sed '2s/A/B/'", "its bundle was corrupted in transit"),
    "mixed": (
        f"{HANGDOC} snapshot --as-text --window 0.1 | sed '2i hello there'",
        "its bundle is mixed with other output",
    ),
    "escapes": ("printf '\\033[2Jgone\\n' >&2; exit 3", "it sent no bundle (exit code 3: ·[2Jgone)"),
}


@pytest.mark.parametrize("kind", UNFRIENDLY)
def test_an_unfriendly_host_is_one_clear_line(kind: str, tmp_path: Path) -> None:
    script, clause = UNFRIENDLY[kind]
    (tmp_path / "host").write_text(f'#!/bin/sh\n[ $1 = good ] && {{ shift 2; exec {HANGDOC} "$@"; }}\n{script}\n')
    (tmp_path / "host").chmod(0o755)
    began = time.monotonic()
    done = subprocess.run(
        apart(HANGDOC, "diagnose", "--hosts", "good,bad", "--via", f"{tmp_path}/host {{host}}", "--remote-command", "anything",
              "--host-timeout", "20", "--json"),
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert time.monotonic() - began < 100
    said = json.loads(done.stdout)["problems"]
    assert len(said) == 1
    assert f"bad: {clause}" in said[0], said
    assert "\x1b" not in done.stdout + done.stderr


def test_hangdoc_run_fetches_the_other_nodes_over_ssh(cluster: Cluster) -> None:
    """Nothing is shared between the hosts: the node of rank 0 asks the other one itself."""
    reach = " ".join(shlex.quote(word) for word in cluster.reach())
    for node in cluster.nodes:
        node.ssh(
            f"cd {cluster.folder} && OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 {HANGDOC} run {reach} --interval 1 --patience 1 "
            f"-o /tmp/hangs -- {sys.executable} -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --node-rank {node.number} "
            f"--master-addr {cluster.nodes[0].address} --master-port 29500 {REPOSITORY}/tests/live/programs/stalls.py /never"
        )
    wait_for_text(cluster.folder / "node0.run.log", "HD202 missing-rank")
    listing = cluster.nodes[0].run("sh", "-c", "cat /tmp/hangs/*.txt").stdout
    assert "culprit   rank 1" in listing
    assert "node1" in listing
    assert cluster.nodes[1].run("sh", "-c", "ls /tmp/hangs/*.txt", check=False).returncode != 0
