"""Real separate hosts on one machine: each has its own network, name, processes and mounts, and a real sshd; a bridge in a
namespace of its own joins them. Everything ends with the `with` block, also when the test fails.

The addresses exist only inside. Firewalls (nftables) and slow links (tc) are made per host.
"""

import os
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tests.live.needs import as_machine, needs

REPOSITORY = Path(__file__).resolve().parents[2]
HANGDOC = str(Path(sys.executable).with_name("hangdoc"))
_SSHD = """
Port 22
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin yes
PermitUserEnvironment no
PasswordAuthentication no
Banner {folder}/banner
"""


class Node:
    """One host."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        self._cluster, self.number = cluster, number
        self.name, self.address = f"node{number}", f"10.99.7.{number + 1}"
        script = (
            f"hostname {self.name} && "
            f"mount -t tmpfs tmpfs /run && mkdir -p /run/sshd /run/keep && mount --bind {REPOSITORY} /run/keep && "
            "mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /tmp && "  # beacons go by pid, and pids are its own
            f"mkdir -p {REPOSITORY} && mount --bind /run/keep {REPOSITORY} && "
            # bash below sshd reads it, and what this machine's does may take a minute (pyenv waits for a stale lock).
            "{ [ ! -e ~/.bashrc ] || mount --bind /dev/null ~/.bashrc; } && "
            f"mount --bind {cluster.folder}/hosts /etc/hosts && echo ready && "
            f"while [ ! -e {cluster.folder}/wired ]; do sleep 0.05; done; "
            f"exec /usr/sbin/sshd -D -e -f {cluster.folder}/sshd_config"
        )
        self._process = subprocess.Popen(
            as_machine(script, "--net"),
            stdout=subprocess.PIPE, stderr=(cluster.folder / f"{self.name}.log").open("w"), text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", (cluster.folder / f"{self.name}.log").read_text()
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self.init = children[0]
        """The pid, seen from outside, of the host's first process."""
        cluster.switch("ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", self.init)
        cluster.switch("ip", "link", "set", f"v{number}", "master", "br0", "up")
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "link", "set", "eth0", "up")

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run something on the host, as from its console."""
        enter = ["nsenter", "--target", self.init, "--net", "--uts", "--pid", "--mount", "--wd=/"]
        return subprocess.run([*enter, *words], capture_output=True, text=True, check=check, timeout=200)

    def ssh(self, command: str, log: Path | None = None) -> subprocess.Popen[str]:
        """Start something over ssh, as a person does; it is ended with the cluster."""
        out = (log or self._cluster.folder / f"{self.name}.run.log").open("a")
        words = self._cluster.ssh_words(self.address)
        started = subprocess.Popen([*words, command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, text=True)
        self._cluster.end_with_it(started)
        return started

    def firewall(self, rule: str) -> None:
        """Add a rule of nftables to what comes in: `tcp dport 1024-65535 ct state new drop`."""
        self.run("nft", "add", "table", "inet", "t")
        self.run("nft", "add chain inet t in { type filter hook input priority 0 ; }")
        self.run("nft", f"add rule inet t in {rule}")

    def end(self) -> None:
        """With its first process go all others."""
        self._process.kill()
        self._process.wait()


class Cluster:
    """Hosts node0, node1, ... at 10.99.7.1, .2, ..., and the machine at 10.99.7.254 from which one looks."""

    def __init__(self, hosts: int, path: str | None = None) -> None:
        """`path`: the PATH of commands over ssh."""
        self._wanted, self._path = hosts, path
        self._space = f"hangdoc-{uuid.uuid4().hex[:8]}"
        self.nodes: list[Node] = []
        self._cleanup = ExitStack()

    def __enter__(self) -> "Cluster":
        needs("root", "unshare", "nsenter", "ip", "tc", "nft", "ssh", "ssh-keygen", "sshd")
        try:
            self._build()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def _build(self) -> None:
        self.folder = Path(
            self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="hangdoc-cluster-", dir="/var/tmp"))
        )
        for name in ("host_key", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], check=True)
        path = f"SetEnv PATH={self._path}\n" if self._path is not None else ""
        (self.folder / "sshd_config").write_text(_SSHD.format(folder=self.folder) + path)
        (self.folder / "banner").write_text("Authorised use only. \x1b[31mEverything is recorded.\x1b[0m\n")
        lines = [f"10.99.7.{n + 1} node{n}" for n in range(self._wanted)]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "\n".join(lines) + "\n")
        subprocess.run(["ip", "netns", "add", self._space], check=True)
        self._cleanup.callback(subprocess.run, ["ip", "netns", "del", self._space], check=False)
        self.switch("ip", "link", "add", "br0", "type", "bridge")
        self.switch("ip", "addr", "add", "10.99.7.254/24", "dev", "br0")
        self.switch("ip", "link", "set", "br0", "up")
        for number in range(self._wanted):
            node = Node(self, number)
            self._cleanup.callback(node.end)
            self.nodes.append(node)
        (self.folder / "wired").touch()
        until = time.monotonic() + 100
        for node in self.nodes:
            while subprocess.run([*self.ssh_words(node.address), "true"], capture_output=True, check=False).returncode:
                assert time.monotonic() < until, (self.folder / f"{node.name}.log").read_text()
                time.sleep(0.1)

    def end_with_it(self, started: subprocess.Popen[str]) -> None:
        """End a client of ssh with the cluster: behind a cut link it would wait for its host for ever."""
        self._cleanup.callback(started.wait)
        self._cleanup.callback(started.kill)

    def switch(self, *words: str) -> None:
        """Run something where all wires meet."""
        subprocess.run(["ip", "netns", "exec", self._space, *words], check=True, capture_output=True, timeout=100)

    @property
    def ssh_options(self) -> list[str]:
        """What ssh needs here, as values of -o."""
        return [
            f"IdentityFile={self.folder}/key",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "LogLevel=ERROR",
        ]

    def ssh_words(self, address: str) -> list[str]:
        """ssh to a host, from where one looks."""
        options = [word for option in self.ssh_options for word in ("-o", option)]
        return [*self.inside, "ssh", *options, f"root@{address}"]

    @property
    def inside(self) -> tuple[str, ...]:
        """The words before a command that runs where one looks from."""
        return ("ip", "netns", "exec", self._space)

    def hangdoc(self, *words: str, timeout: float = 400, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run hangdoc where one looks from."""
        return self.run(HANGDOC, *words, timeout=timeout, **variables)

    def run(self, *words: str, timeout: float = 400, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command where one looks from."""
        return subprocess.run(
            [*self.inside, *words],
            capture_output=True, text=True, check=False, timeout=timeout, env={**os.environ, **variables},
        )  # fmt: skip

    def reach(self, hosts: int | None = None, remote: str = HANGDOC) -> list[str]:
        """The options with which hangdoc reaches these hosts, where `remote` starts it."""
        many = hosts if hosts is not None else len(self.nodes)
        options = [word for option in self.ssh_options for word in ("--ssh-option", option)]
        return ["--hosts", f"10.99.7.[1-{many}]", "--remote-command", remote, *options]
