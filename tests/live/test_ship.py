"""hangdoc is brought to hosts that lack it: hosts with sshd, and mount namespaces in which one thing is wrong each."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import portable
from tests.live.cluster import HANGDOC, REPOSITORY, Cluster
from tests.live.needs import as_machine, needs

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
_PATH = "/run/path"
_LEFT = "ls -d /tmp/hangdoc-b* /dev/shm/hangdoc-b* ~/hangdoc-b* 2>/dev/null; ps -e -o args= | grep -v 'ps -e'"


def wait_for(log: Path, text: str) -> None:
    end = time.monotonic() + 200
    while not (log.exists() and text in log.read_text()):
        assert time.monotonic() < end, log.read_text() if log.exists() else log
        time.sleep(0.2)


def wait_until(so: Callable[[], bool]) -> None:
    end = time.monotonic() + 200
    while not so():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_frozen_run_on_two_hosts_without_hangdoc() -> None:
    with Cluster(2, path=_PATH) as cluster:
        for node, python in zip(cluster.nodes, portable.interpreters(), strict=True):
            node.run("mkdir", _PATH)
            for name, tool in {**portable.tools(), "python3": python}.items():
                node.run("ln", "-s", tool, f"{_PATH}/{name}")
            node.ssh(
                f"cd {cluster.folder} && OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=eth0 {sys.executable} -m torch.distributed.run "
                f"--nnodes 2 --nproc-per-node 1 --node-rank {node.number} --master-addr {cluster.nodes[0].address} "
                f"--master-port 29500 {REPOSITORY}/tests/live/programs/stalls.py /never"
            )
        for node in cluster.nodes:
            wait_for(cluster.folder / f"{node.name}.run.log", "under way")
        before = [node.run("sh", "-c", _LEFT).stdout for node in cluster.nodes]
        file = portable.make(cluster.folder)
        reach = cluster.reach(remote="hangdoc")
        look = ("diagnose", "--json", "--patience", "1", "--host-timeout", "60", "--timeout", "120", *reach)
        bare = cluster.hangdoc(*look, "--ship", "never")
        assert bare.returncode == 4
        assert bare.stdout.count("hangdoc was not found there") == 2
        end = time.monotonic() + 200
        while (done := cluster.hangdoc(*look, HANGDOC_PYZ=str(file))).returncode != 1:
            assert time.monotonic() < end, done.stdout + done.stderr
        answer = json.loads(done.stdout)
        assert answer["problems"] == []
        (job,) = answer["jobs"]
        assert (job["findings"][0]["code"], job["findings"][0]["culprits"]) == ("HD202", [1])
        assert [view["host"] for view in job["ranks"]] == ["node0", "node1"]
        assert [one["removed"] for one in answer["brought"]] == [True, True]
        assert [node.run("sh", "-c", _LEFT).stdout for node in cluster.nodes] == before


def test_a_watch_brings_it_once_and_leaves_nothing_when_it_is_killed(tmp_path: Path) -> None:
    """Also with SIGKILL: what removes the file is on the host."""
    needs("root", "unshare")
    (tmp_path / "tmp").mkdir(mode=0o700)
    host = tmp_path / "host"
    python = Path(sys.executable).resolve().parent
    host.write_text(
        f'#!/bin/sh\necho "$2" >> {tmp_path}/calls\nshift\n'
        f'exec unshare --pid --fork --mount-proc env -i PATH={python}:/usr/bin:/bin TMPDIR={tmp_path}/tmp "$@"\n'
    )
    host.chmod(0o755)
    file = portable.make_stand_in(tmp_path, f"open('{tmp_path}/looks', 'a').write('x')")
    watch = subprocess.Popen(
        [HANGDOC, "watch", "--hosts", "one", "--via", f"{host} {{host}}", "--interval", "1", "--keep", "-o", str(tmp_path)],
        env={**os.environ, "HANGDOC_PYZ": str(file)}, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        wait_until(lambda: (tmp_path / "looks").exists() and len((tmp_path / "looks").read_text()) >= 2)
        assert len(list((tmp_path / "tmp").iterdir())) == 1
    finally:
        watch.kill()
        watch.wait()
    wait_until(lambda: not list((tmp_path / "tmp").iterdir()))
    assert (tmp_path / "calls").read_text().split() == ["hangdoc", "sh"]


_RANK = """
import mmap, sys, time
file = open(sys.argv[1], "rb")
library = mmap.mmap(file.fileno(), 0, prot=1)
print("up", flush=True)
time.sleep(9999)
"""
"""A process that has loaded what has the name of torch's library."""
_TMPFS = "for place in /tmp /dev/shm /run/home; do mount -t tmpfs -o {0} tmpfs $place; done"
_BARE = "rm /run/path/python3"
_SERVES = "RANK=0 WORLD_SIZE=1 MASTER_ADDR=$(hostname) MASTER_PORT=1 {python} -c {rank} /run/libtorch_cpu.so"
_OF_ANYBODY = (
    "mkdir -p /run/x/bin; cp {python} /run/x/bin/python3; chmod 777 /run/x/bin; PYTHONHOME={prefix} /run/x/bin/python3"
)
HOSTS = {
    "good": (_SERVES, None),
    "full": (f"{_TMPFS.format('size=1m')}; {_SERVES}", "/tmp is full: 1 MiB are free"),
    "noexec": (f"{_TMPFS.format('noexec')}; {_SERVES}", "/tmp is mounted noexec"),
    "readonly": (f"{_TMPFS.format('ro')}; {_SERVES}", "/tmp is read-only"),
    "nopython": (
        f"{_BARE}; echo up; sleep 9999",
        "the host has no Python 3.10 to 3.14 on its PATH, and no running rank has one",
    ),
    "rank": (f"{_BARE}; {_SERVES}", None),
    "strange": (
        f"{_BARE}; {_OF_ANYBODY} -c {{rank}} /run/libtorch_cpu.so",
        "the host has no Python 3.10 to 3.14 on its PATH",
    ),
}
"""By name: what makes the host special, and the clause about it; None for those that are diagnosed."""


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, str]]:
    """The problem of each host in one look at all of them, by name. A host is a namespace of mounts, processes and its name."""
    needs("root", "unshare", "nsenter")
    python = str(Path(sys.executable).resolve())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hangdoc-ship-", dir="/var/tmp")))
        inits = {}
        for name, (special, _) in HOSTS.items():
            tools = {**portable.tools(), "python3": portable.interpreters()[0]}
            links = "; ".join(f"ln -s {tool} /run/path/{there}" for there, tool in tools.items())
            script = (
                f"hostname {name}; mount -t tmpfs tmpfs /run; mkdir /run/path /run/home; {links}; echo > /run/libtorch_cpu.so; "
                "mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /tmp; "
                + special.format(python=python, prefix=sys.base_prefix, rank=shlex.quote(_RANK))
            )
            process = subprocess.Popen(as_machine(script), stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            inits[name] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
        cases = "\n".join(f"{name}) init={init};;" for name, init in inits.items())
        host = folder / "host"
        host.write_text(
            f"#!/bin/sh\ncase $1 in\n{cases}\nesac\nshift\n"
            'exec nsenter --target $init --uts --pid --mount --wd=/ env -i PATH=/run/path HOME=/run/home "$@"\n'
        )
        host.chmod(0o755)
        done = subprocess.run(
            [HANGDOC, "diagnose", "--json", "--hosts", ",".join(HOSTS), "--via", f"{host} {{host}}", "--host-timeout", "100",
             "--timeout", "150"],
            capture_output=True, text=True, check=False, timeout=300,
            env={**os.environ, "HANGDOC_PYZ": str(portable.make(folder))},
        )  # fmt: skip
        answer = json.loads(done.stdout)
        said = dict(problem.split(": ", 1) for problem in answer["problems"])
        seen = {name: f"diagnosed, removed: {one['removed']}" for one in answer["brought"] if (name := one["host"])}
        left = {name: subprocess.run([host, name, "sh", "-c", "echo /tmp/hangdoc-brought-*"], capture_output=True, text=True,
                                     check=False).stdout for name in HOSTS}  # fmt: skip
        assert set(left.values()) == {"/tmp/hangdoc-brought-*\n"}
        yield {name: said.get(name, "") + seen.get(name, "") for name in HOSTS}


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_where_it_cannot_be_run_is_one_sentence(name: str, answers: dict[str, str]) -> None:
    clause = HOSTS[name][1]
    if clause is None:
        assert answers[name] == "diagnosed, removed: True"
    else:
        assert answers[name].startswith("hangdoc could not be brought there: ")
        assert clause in answers[name]
