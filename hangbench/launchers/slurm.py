"""A real Slurm on one machine: munge, one slurmctld, and two slurmd with different names. It starts in less than a second.

All files are in one folder. The ports are fixed, so it must run in a separate network namespace.
"""

import os
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

_UP_SECONDS = 30.0
_CONF = """\
ClusterName=hangdoc
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
SelectType=select/linear
TaskPlugin=task/none
ProctrackType=proctrack/pgid
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


class Slurm:
    """The cluster. Its users need `variables` in their environment. Raises RuntimeError if it does not start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> "Slurm":
        munge = self._folder / "munge"
        for made in (munge, self._folder / "state", self._folder / "spool-n1", self._folder / "spool-n2"):
            made.mkdir(parents=True, mode=0o755)
        key = munge / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        conf = self._folder / "slurm.conf"
        conf.write_text(_CONF.format(host=socket.gethostname(), folder=self._folder))
        files = {"key-file": key, "socket": munge / "socket", "pid-file": self._folder / "munged.pid",
                 "log-file": munge / "log", "seed-file": munge / "seed"}  # fmt: skip
        try:
            self._daemon("munged", "--force", *(f"--{name}={path}" for name, path in files.items()))
            self._daemon("slurmctld", "-f", str(conf))
            for node in ("n1", "n2"):
                self._daemon("slurmd", "-N", node, "-f", str(conf))
            self._wait_up()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _daemon(self, program: str, *arguments: str) -> None:
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        subprocess.run(
            [program, *arguments], env={**os.environ, **self.variables, "PATH": path}, check=True, timeout=30
        )

    def _wait_up(self) -> None:
        until = time.monotonic() + _UP_SECONDS
        while True:
            asked = subprocess.run(["sinfo", "-h", "-o", "%T %D"], env={**os.environ, **self.variables}, text=True,
                                   capture_output=True, check=False, timeout=30)  # fmt: skip
            if "idle 2" in asked.stdout:
                return
            if time.monotonic() > until:
                raise RuntimeError(f"Slurm did not start: {asked.stdout}{asked.stderr}")
            time.sleep(0.1)

    def _stop(self) -> None:
        for file in self._folder.glob("*.pid"):
            try:
                os.kill(int(file.read_text()), signal.SIGKILL)
            except (OSError, ValueError):
                continue
