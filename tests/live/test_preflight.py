"""`hangdoc preflight` before a launch, on real separate hosts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hangdoc_trainer import corpus
from tests.live.cluster import Cluster, Node
from tests.live.test_hosts import LOOP, cluster, wait_for_text

__all__ = ["cluster"]
pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]


def checked(cluster: Cluster, *options: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Exit code, and the checks by name."""
    done = cluster.hangdoc("preflight", "--json", *cluster.reach(), *options)
    found: dict[str, list[dict[str, Any]]] = {}
    for check in json.loads(done.stdout)["checks"]:
        found.setdefault(check["name"], []).append(check)
    return done.returncode, found


def statuses(checks: list[dict[str, Any]]) -> set[str]:
    return {check["status"] for check in checks}


def test_what_exists_before_the_launch_is_found(cluster: Cluster) -> None:
    first, second = cluster.nodes
    master = f"{first.address}:29500"
    code, found = checked(cluster, "--master", master, "--params", "25M")
    assert code == 0, found
    assert statuses(found["connections"]) == statuses(found["master port"]) == {"pass"}
    assert "2 nodes can connect to it" in found["master port"][0]["text"]
    fast = found["throughput"][0]
    # a slow link, a decoy's name, an orphan on the port, a closed host: all at once
    second.run(
        "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "20mbit", "burst", "32kbit", "latency", "400ms"
    )
    log = cluster.folder / "old.log"
    variables = f"TORCHELASTIC_RUN_ID=none RANK=0 WORLD_SIZE=1 MASTER_ADDR={first.address} MASTER_PORT=29500"
    first.ssh(f"cd {cluster.folder}; ({variables} OMP_NUM_THREADS=1 "
              f"setsid {sys.executable} {LOOP} > {log} 2>&1 &)")  # fmt: skip
    wait_for_text(log, "begins")
    code, found = checked(cluster, "--master", master, "--params", "25M")
    assert code == 1
    assert "an orphan" in found["master port"][0]["text"]
    assert "rank 0" in found["left-overs"][0]["text"]
    slow = found["throughput"][0]
    assert (fast["status"], slow["status"]) == ("pass", "warn")
    assert "per step" in slow["text"]
    first.firewall("tcp dport != { 22, 29500 } ct state new drop")
    code, found = checked(cluster)
    assert code == 1
    (closed,) = found["connections"]
    assert "10.99.7.2 to 10.99.7.1" in closed["text"]
    assert "the other direction works" in closed["text"]
    second.run("ip", "link", "set", "eth0", "down")
    code, found = checked(cluster, "--host-timeout", "6")
    assert code == 1
    assert found["reached"][0]["text"].startswith("10.99.7.2: ssh failed")


def by_torchrun(cluster: Cluster, node: Node, environment: str, arguments: str) -> tuple[subprocess.Popen[str], Path]:
    log = cluster.folder / f"{node.name}.preflight.log"
    started = node.ssh(
        f"cd {cluster.folder} && OMP_NUM_THREADS=1 {environment} {sys.executable} -m torch.distributed.run --nnodes 2 "
        f"--nproc-per-node 1 --node-rank {node.number} --master-addr {cluster.nodes[0].address} --master-port 29500 "
        f"-m hangdoc.preflight -- {arguments}",
        log,
    )
    return started, log


@pytest.mark.parametrize("case", ["good", "bad"])
def test_by_torchrun_over_the_very_topology(cluster: Cluster, case: str) -> None:
    for node, shards in zip(cluster.nodes, (5, 3 if case == "bad" else 5), strict=True):
        corpus.make(cluster.folder / f"data{node.number}", shards)
    started = []
    for node in cluster.nodes:
        card = "lo" if case == "bad" and node.number else "eth0"
        variables = f"GLOO_SOCKET_IFNAME={card} NANOCHAT_DATA_DIR={cluster.folder}/data{node.number}"
        depth = 5 if case == "bad" and node.number else 4
        started.append(by_torchrun(cluster, node, variables, f"--depth {depth}"))
    codes = [process.wait(400) for process, _ in started]
    report = started[0][1].read_text()
    if case == "good":
        assert codes == [0, 0], report
        assert "2 ranks reduced 1,000,000 numbers" in report
    else:
        assert codes[0] == 1
        words = " ".join(report.split())
        assert "fail data NANOCHAT_DATA_DIR: node 0" in words
        assert "fail --depth 4 on node 0; 5 on node 1" in words
        assert "GLOO_SOCKET_IFNAME=lo, but lo is loopback" in report
