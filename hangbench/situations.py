"""Changes of the machine around a run: slow and cut links, quotas, a killed launcher, other runs.

A situation changes how the run is started (`around`) or what happens after the start (`when_ready`), and reverts its changes.
Hosts are network namespaces with their own addresses, connected by a veth pair.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol


class SituatedRun(Protocol):
    """What a situation sees of the run around which it changes the machine (`run.Running`)."""

    address: str
    port: int
    wrap: Callable[[int, list[str]], list[str]]
    """Wraps the command of a node into another one."""
    started_nodes: int
    launchers: list[int]

    def ranks(self) -> dict[int, int]:
        """The pid of each rank."""

    def processes(self) -> list[tuple[int, dict[str, str]]]:
        """Every process of the run, with its initial environment."""

    def beside(self, name: str) -> AbstractContextManager["SituatedRun"]:
        """Another case, which runs as long as the context."""


class Situation:
    """Base class, which changes nothing."""

    def __init__(self, run: SituatedRun) -> None:
        self.run = run

    @contextmanager
    def around(self) -> Iterator[None]:
        """Active from before the start until all processes of the run have ended."""
        yield

    def when_ready(self) -> None:
        """Called when all ranks are ready."""


def _command(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


class TwoHosts(Situation):
    """Each node in its own network namespace, connected by a veth pair."""

    rate: str | None = None
    """The rate of `tc tbf`, in both directions; None for no limit."""

    @contextmanager
    def around(self) -> Iterator[None]:
        """Create the two namespaces, and remove them."""
        tag = uuid.uuid4().hex[:6]
        self.names = [f"hb{tag}{index}" for index in range(2)]
        self.ends = [f"v{tag}{index}" for index in range(2)]
        try:
            for name in self.names:
                _command("ip", "netns", "add", name)
            _command("ip", "link", "add", self.ends[0], "type", "veth", "peer", "name", self.ends[1])
            for index, (name, end) in enumerate(zip(self.names, self.ends, strict=True)):
                _command("ip", "link", "set", end, "netns", name)
                inside = ("ip", "netns", "exec", name)
                _command(*inside, "ip", "addr", "add", f"10.77.0.{index + 1}/24", "dev", end)
                _command(*inside, "ip", "link", "set", end, "up")
                _command(*inside, "ip", "link", "set", "lo", "up")
                if self.rate:
                    _command(*inside, "tc", "qdisc", "add", "dev", end, "root", "tbf", "rate", self.rate, "burst", "16kb",
                             "latency", "400ms")  # fmt: skip
            self.run.address = "10.77.0.1"
            self.run.wrap = lambda node, command: [
                "ip", "netns", "exec", self.names[node], "env", f"GLOO_SOCKET_IFNAME={self.ends[node]}", *command
            ]  # fmt: skip
            yield
        finally:
            for name in self.names:
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class SlowLink(TwoHosts):
    """A link of 2 Mbit/s."""

    rate = "2mbit"


class CutLink(Situation):
    """Two hosts with a router between them that drops all packets from the middle of the run on."""

    @contextmanager
    def around(self) -> Iterator[None]:
        """Create three connected namespaces, and remove them."""
        tag = uuid.uuid4().hex[:6]
        hosts = [f"hb{tag}{index}" for index in range(2)]
        self.router = f"hb{tag}r"
        try:
            for name in (*hosts, self.router):
                _command("ip", "netns", "add", name)
                _command("ip", "netns", "exec", name, "ip", "link", "set", "lo", "up")
            _command("ip", "netns", "exec", self.router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            for index, name in enumerate(hosts):
                mine, its = f"v{tag}{index}", f"r{tag}{index}"
                _command("ip", "link", "add", mine, "type", "veth", "peer", "name", its)
                for space, end, address in ((name, mine, 1), (self.router, its, 254)):
                    _command("ip", "link", "set", end, "netns", space)
                    inside = ("ip", "netns", "exec", space, "ip")
                    _command(*inside, "addr", "add", f"10.77.{index}.{address}/24", "dev", end)
                    _command(*inside, "link", "set", end, "up")
                _command("ip", "netns", "exec", name, "ip", "route", "add", "default", "via", f"10.77.{index}.254")
            self.run.address = "10.77.0.1"
            self.run.wrap = lambda node, command: [
                "ip", "netns", "exec", hosts[node], "env", f"GLOO_SOCKET_IFNAME=v{tag}{node}", *command
            ]  # fmt: skip
            yield
        finally:
            for name in (*hosts, self.router):
                subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def when_ready(self) -> None:
        """Drop packets to both sides. The connections stay established, and nobody answers."""
        time.sleep(1.0)  # some steps first
        for index in range(2):
            _command("ip", "netns", "exec", self.router, "ip", "route", "add", "blackhole", f"10.77.{index}.1/32")
        time.sleep(
            1.5
        )  # let retransmits back off; Gloo gives up after about eight seconds, so the look must follow soon


class CpuQuota(Situation):
    """The whole run may use a fifth of one core."""

    @contextmanager
    def around(self) -> Iterator[None]:
        """Create a control group, and remove it."""
        old, new = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
        self.group = (old if old.is_dir() else new) / f"hangbench-{uuid.uuid4().hex[:8]}"
        self.group.mkdir()
        if (self.group / "cpu.cfs_quota_us").exists():
            (self.group / "cpu.cfs_period_us").write_text("100000")
            (self.group / "cpu.cfs_quota_us").write_text("20000")
        else:
            (self.group / "cpu.max").write_text("20000 100000")
        try:
            yield
        finally:
            for _ in range(100):  # until its last process is reaped
                try:
                    self.group.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)

    def when_ready(self) -> None:
        """Move all processes into the control group."""
        for pid, _ in self.run.processes():
            (self.group / "cgroup.procs").write_text(str(pid))
        time.sleep(2.0)


class PausedAndResumed(Situation):
    """All ranks are stopped for a while and continue."""

    def when_ready(self) -> None:
        """Stop, wait, continue."""
        pids = list(self.run.ranks().values())
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2.0)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


class LauncherKilled(Situation):
    """The launcher is killed. Its ranks continue to train as orphans."""

    def when_ready(self) -> None:
        """Send SIGKILL to the launcher only. The ranks are observed."""
        ranks = self.run.ranks()
        for pid in self.run.launchers:
            os.kill(pid, signal.SIGKILL)
        self.run.launchers = [pid for _, pid in sorted(ranks.items())]
        time.sleep(1.0)


class BesideOthers(Situation):
    """Other healthy runs on the same host."""

    others: tuple[str, ...] = ("slow_steps",)

    @contextmanager
    def around(self) -> Iterator[None]:
        """Start them first."""
        with ExitStack() as stack:
            self.beside = [stack.enter_context(self.run.beside(name)) for name in self.others]
            yield

    def when_ready(self) -> None:
        """Observe all runs together."""
        for other in self.beside:
            self.run.launchers += other.launchers


class BesideTwo(BesideOthers):
    """Two other healthy runs on the same host."""

    others = ("slow_steps", "tight_loop")


class NodeMissing(Situation):
    """The second node never starts."""

    @contextmanager
    def around(self) -> Iterator[None]:
        """Start only the first node."""
        self.run.started_nodes = 1
        yield


class SecondNodeKilled(Situation):
    """The second launcher is killed with its ranks."""

    def when_ready(self) -> None:
        """Send SIGKILL to the launcher and its rank. Only the first launcher is observed."""
        second = self.run.launchers[1]
        rank = self.run.ranks()[1]
        for pid in (second, rank):
            os.kill(pid, signal.SIGKILL)
        self.run.launchers = self.run.launchers[:1]
        time.sleep(1.0)


class PortTaken(Situation):
    """Another program listens on the master port and accepts connections, but never answers. Only the second node starts."""

    @contextmanager
    def around(self) -> Iterator[None]:
        """Start the other program, and end it."""
        program = (
            f"import socket,time; s=socket.socket(); s.setsockopt(1,2,1); s.bind(('127.0.0.1',{self.run.port})); s.listen(); "
            "time.sleep(600)"
        )
        listener = subprocess.Popen([sys.executable, "-c", program])
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.run.port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        try:
            yield
        finally:
            listener.kill()
            listener.wait()


SITUATIONS: dict[str, type[Situation]] = {
    "two-hosts": TwoHosts,
    "slow-link": SlowLink,
    "cut-link": CutLink,
    "cpu-quota": CpuQuota,
    "paused-and-resumed": PausedAndResumed,
    "launcher-killed": LauncherKilled,
    "beside-one": BesideOthers,
    "beside-two": BesideTwo,
    "second-node-killed": SecondNodeKilled,
    "node-missing": NodeMissing,
    "port-taken": PortTaken,
}
