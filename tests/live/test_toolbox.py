"""The image of deploy/container beside a container, as docker, podman and `kubectl debug` start it.

Namespaces made by hand stand in for both. The ranks have processes, network and mounts of their own. hangdoc joins their
processes, or their network too, with a root directory of its own, the capabilities that a container has by default, and
SYS_PTRACE."""

import json
import shlex
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import portable
from tests.live.cluster import REPOSITORY
from tests.live.needs import as_machine, needs

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("can_attach")]
_DEFAULT = (
    "chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "net_bind_service", "net_raw",
    "sys_chroot", "mknod", "audit_write", "setfcap",
)  # fmt: skip
"""The capabilities of a container of docker."""


def start_container(stack: ExitStack, folder: Path) -> str:
    """The pid of the first process of a container with two frozen ranks."""
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=29500",
           f"{REPOSITORY}/tests/live/programs/stalls.py", "/never"]  # fmt: skip
    script = f"hostname trainer; ip link set lo up; mount -t tmpfs tmpfs /tmp; OMP_NUM_THREADS=1 exec {shlex.join(run)}"
    log = folder / "log"
    with log.open("w") as output:
        container = subprocess.Popen(as_machine(script, "--net"), stdout=output, stderr=output)
    stack.callback(container.wait)
    stack.callback(container.kill)
    end = time.monotonic() + 200
    while log.read_text().count("under way") < 2:
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)
    return Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()[0]


def look(init: str, folder: Path, *joined: str) -> subprocess.CompletedProcess[str]:
    """`hangdoc diagnose` in a container beside that one: another root directory, the same processes and network."""
    python, file = Path(sys.executable).resolve(), portable.make(folder)
    mounts = ["/usr", "/lib", "/lib64", "/bin", "/etc", str(python.parents[1]), str(file)]
    mounts += [] if portable.BUILT.exists() else [str(REPOSITORY), str(Path(sys.prefix).resolve())]
    binds = "; ".join(
        f"[ -d {m} ] && mkdir -p $root{m} || {{ mkdir -p $root{Path(m).parent}; touch $root{m}; }}; mount --rbind {m} $root{m}"
        for m in mounts
        if Path(m).exists()
    )
    root = folder / "root"
    root.mkdir()
    capabilities = ",".join(f"+{name}" for name in (*_DEFAULT, "sys_ptrace"))
    script = (
        f"root={root}; mount -t tmpfs tmpfs $root; {binds}; mkdir -p $root/proc $root/tmp $root/dev; "
        f"mount -t proc proc $root/proc; mount --rbind /dev $root/dev; "
        f"exec setpriv --bounding-set=-all,{capabilities} --inh-caps=-all chroot $root "
        f"{python} -IB {file} diagnose --json --patience 1"
    )
    words = ["nsenter", "--target", init, "--pid", *joined, "unshare", "--mount", "--uts", "sh", "-c", script]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=200)


@pytest.mark.parametrize("joined", [("--net",), ()], ids=["network", "processes"])
def test_a_container_beside_that_of_the_ranks(joined: tuple[str, ...]) -> None:
    needs("root", "unshare", "nsenter", "setpriv", "chroot", "ip")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hangdoc-toolbox-", dir="/var/tmp")))
        done = look(start_container(stack, folder), folder, *joined)
        answer = json.loads(done.stdout)
        (job,) = answer["jobs"]
        assert (job["verdict"], job["findings"][0]["code"], job["findings"][0]["culprits"]) == ("hung", "HD202", [1]), (
            done
        )
        assert {view["where"]["file"] for view in job["ranks"]} == {"programs/stalls.py"}
        assert not any(finding["code"] == "HD901" for finding in job["findings"])
