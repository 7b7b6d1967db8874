"""Measures 64 hosts over real ssh: each has a network, a name, processes and an sshd of its own, and one rank of a frozen run.

All hosts share this machine's cores, so the wall time holds what 64 machines would do at the same time. The CPU and the memory
are those of the controller, and of its clients of ssh. Beside it: py-spy through the same ssh, as many at the same time, which
prints 64 stacks and names nobody. Needs root.
"""

import json
import os
import sys
import time
from pathlib import Path

from bench.controller import measure_controller
from bench.many_ranks import STARTING
from bench.table import HANGDOC, PY_SPY
from tests.live.cluster import REPOSITORY, Cluster

_HOSTS = 64
_AT_ONCE = "64"
"""hangdoc's own fan-out."""
_ROUNDS = 2
_LIMITS = ("--host-timeout", "280", "--timeout", "300", "--json")


def fleet() -> None:
    """Print the seconds of each kind of look at 64 frozen ranks on 64 hosts."""
    if os.geteuid() != 0:
        print("a fleet is not measured: only root makes hosts of namespaces")
        return
    with Cluster(_HOSTS) as cluster:
        _introduce(cluster)
        _freeze(cluster)
        time.sleep(10)  # the last rank is to be as frozen as the others
        for _ in range(_ROUNDS):
            _look(cluster, "installed", HANGDOC, "--ship", "never")
            portable = REPOSITORY / "dist" / "hangdoc.pyz"
            if portable.exists():
                _look(cluster, "brought", "/nowhere/hangdoc", "--ship", "always", HANGDOC_PYZ=str(portable))
            else:
                print("hangdoc.pyz is not brought: make portable")
            _loop(cluster)


def _introduce(cluster: Cluster) -> None:
    """Tell each host the hardware addresses of all others. The kernel learns at most 1,024 for all network namespaces together
    (arp(7), gc_thresh3), and 64 connected hosts need 4,032."""
    lines = [
        f"neigh replace {node.address} lladdr 02:00:00:00:00:{node.number:02x} dev eth0 nud permanent"
        for node in cluster.nodes
    ]
    batch = cluster.folder / "neighbours"
    batch.write_text("\n".join(lines) + "\n")
    for node in cluster.nodes:
        node.run("ip", "link", "set", "eth0", "address", f"02:00:00:00:00:{node.number:02x}")
        node.run("ip", "-force", "-batch", str(batch))


def _freeze(cluster: Cluster) -> None:
    folder = cluster.folder
    for node in cluster.nodes:
        while node.number - len(list(folder.glob("*.started"))) >= STARTING:
            time.sleep(0.05)
        node.ssh(
            f"cd {folder} && RANK={node.number} WORLD_SIZE={_HOSTS} LOCAL_RANK=0 MASTER_ADDR={cluster.nodes[0].address} "
            f"MASTER_PORT=29500 OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 "
            f"{sys.executable} {REPOSITORY}/bench/many_ranks.py {_HOSTS} frozen {folder} 29500 {node.number}"
        )
    end = time.monotonic() + 600
    while len(list(folder.glob("*.ready"))) < _HOSTS:
        if time.monotonic() > end:
            raise SystemExit((folder / "node0.run.log").read_text())
        time.sleep(0.2)


def _look(cluster: Cluster, what: str, remote: str, *options: str, **variables: str) -> None:
    used = measure_controller(
        "diagnose", *cluster.reach(remote=remote), *_LIMITS, *options, before=cluster.inside, **variables
    )
    answer = json.loads(used.output)
    if len(answer["jobs"]) != 1:
        raise SystemExit(f"hangdoc {what} saw {len(answer['jobs'])} runs: {answer['problems'][:4]}")
    (job,) = answer["jobs"]
    first = job["findings"][0]
    print(
        f"{_HOSTS} hosts, hangdoc {what:9}: {used.seconds:5.1f} s; controller {used.cpu:.2f} s of CPU and "
        f"{used.mebibytes:.0f} MiB, its clients {used.clients_cpu:.2f} s; {job['verdict']}, {first['code']} "
        f"rank {first['culprits']}, {len(job['ranks'])} ranks, {len(answer['problems'])} problems",
        flush=True,
    )


def _loop(cluster: Cluster) -> None:
    words = cluster.ssh_words("{}")[len(cluster.inside) :]
    hosts = Path(cluster.folder, "addresses")
    hosts.write_text("\n".join(node.address for node in cluster.nodes) + "\n")
    dump = f"{PY_SPY} dump --pid $(pgrep -nf [m]any_ranks.py)"
    before, began = os.times(), time.perf_counter()
    done = cluster.run("xargs", "-a", str(hosts), "-P", _AT_ONCE, "-I", "{}", *words, dump)
    took, after = time.perf_counter() - began, os.times()
    clients = after.children_user + after.children_system - before.children_user - before.children_system
    print(
        f"{_HOSTS} hosts, py-spy dump        : {took:5.1f} s; its clients {clients:.2f} s of CPU; "
        f"{done.stdout.count('many_ranks.py')} lines of {done.stdout.count('Process ')} ranks",
        flush=True,
    )
