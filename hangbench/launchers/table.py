"""The launchers: how each starts two ranks of a script, and what it needs. A new launcher is one more entry."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hangdoc_trainer.offspring import free_port

VENVS = Path(os.environ.get("HANGDOC_LAUNCHERS", "~/.cache/hangdoc/launchers")).expanduser()
"""Where `make launchers` puts virtual environments of frameworks that the project's own environment lacks."""
_BIN = Path(sys.executable).parent
_MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

Commands = list[list[str]]
Script = list[str]
"""The script and its arguments."""


@dataclass(frozen=True)
class Launcher:
    """One way to start ranks."""

    name: str
    commands: Callable[[Script], Commands]
    """The commands to start, in order, for a script with its arguments."""
    reported_as: str
    """Its name in a diagnosis; empty if hangdoc can't know it."""
    under: str = "torch"
    """The function of the script that joins the process group."""
    variables: Mapping[str, str] = field(default_factory=dict)
    program: str = str(_BIN / "python")
    """Without this program the launcher is skipped."""
    version: tuple[str, ...] = (str(_BIN / "python"), "-c", "import torch; print('torch', torch.__version__)")
    detached: bool = False
    """Whether the ranks continue after the started processes have ended, with pid 1 as their parent."""
    slurm: bool = False
    in_ci: bool = True

    @property
    def here(self) -> bool:
        """Whether it is installed."""
        return shutil.which(self.program) is not None

    def version_here(self) -> str:
        """The version that the launcher prints. Raises CalledProcessError."""
        done = subprocess.run(self.version, capture_output=True, text=True, check=True, timeout=120)
        return (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]


def _python(*words: str) -> Callable[[Script], Commands]:
    return lambda script: [[str(_BIN / "python"), *words, *script]]


def _torchrun(*options: str) -> Callable[[Script], Commands]:
    return lambda script: [[str(_BIN / "torchrun"), *options, "--nproc-per-node", "2", *script]]


def _c10d(script: Script) -> Commands:
    endpoint = f"127.0.0.1:{free_port()}"
    return _torchrun("--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "a-run-by-name")(script)


def _static(script: Script) -> Commands:
    return _torchrun("--master-addr", "127.0.0.1", "--master-port", str(free_port()))(script)


def _accelerate(script: Script) -> Commands:
    # Without --multi_gpu, or mpirun's hostfile, `accelerate launch --cpu` starts one process, whatever --num_processes says.
    return [[str(_BIN / "accelerate"), "launch", "--multi_gpu", "--num_processes", "2", "--main_process_port",
             str(free_port()), *script]]  # fmt: skip


def _tcp(script: Script) -> Script:
    return [*script, "--meet", f"tcp://127.0.0.1:{free_port()}"]


def _meeting_by_argument(*command: str) -> Callable[[Script], Commands]:
    return lambda script: [[*command, *_tcp(script)]]


def _plain(*around: str) -> Callable[[Script], Commands]:
    def commands(script: Script) -> Commands:
        port = free_port()
        return [
            ["env", f"RANK={rank}", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}", *around,
             str(_BIN / "python"), *script]
            for rank in range(2)
        ]  # fmt: skip

    return commands


def _srun_torchrun(script: Script) -> Commands:
    endpoint = f"127.0.0.1:{free_port()}"
    return [["srun", "-N2", "-n2", str(_BIN / "torchrun"), "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend",
             "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "a-job-of-slurm", *script]]  # fmt: skip


def _srun_exported(script: Script) -> Commands:
    meeting = f"ALL,MASTER_ADDR=127.0.0.1,MASTER_PORT={free_port()}"
    return [["srun", "-N2", "-n2", f"--export={meeting}", str(_BIN / "python"), *script]]


def _deepspeed(script: Script) -> Commands:
    return [[str(VENVS / "deepspeed/bin/deepspeed"), "--num_gpus", "2", "--master_port", str(free_port()), *script]]


_MPIRUN = ("mpirun", "--oversubscribe", "-n", "2", str(_BIN / "python"))
_SRUN = ("srun", "-N2", "-n2", str(_BIN / "python"))
_SRUN_VERSION = ("sh", "-c", "PATH=$PATH:/usr/sbin slurmctld -V")  # srun prints nothing without a cluster
_DEEPSPEED_PATH = {"PATH": f"{VENVS / 'deepspeed/bin'}:{os.environ['PATH']}"}
"""Its launcher looks for `python` and `deepspeed` there."""


def _ray(script: Script) -> Commands:
    return [[str(VENVS / "ray/bin/python"), *script]]


_RAY_ON_A_BUSY_MACHINE = {
    "RAY_raylet_start_wait_time_s": "600",
    "RAY_agent_register_timeout_ms": "600000",
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""On two cores, Ray's dozen processes take longer to start than its own timeout."""


def _module(python: str, name: str) -> tuple[str, ...]:
    return (python, "-c", f"from importlib.metadata import version; print('{name}', version('{name}'))")


TABLE = (
    Launcher("torchrun", _torchrun(), "torchrun"),
    Launcher("torchrun --standalone", _torchrun("--standalone"), "torchrun"),
    Launcher("torchrun --rdzv-id", _c10d, "torchrun"),
    Launcher("torchrun --master-addr", _static, "torchrun"),
    Launcher("torch.distributed.launch", _python("-m", "torch.distributed.launch", "--nproc-per-node", "2"), "torchrun"),
    Launcher("accelerate launch", _accelerate, "accelerate", under="accelerate", version=_module(str(_BIN / "python"),
             "accelerate")),
    Launcher("mp.spawn", _meeting_by_argument(str(_BIN / "python")), "mp.spawn", under="spawn"),
    Launcher("environment", _plain(), ""),
    Launcher("nohup setsid", _plain("sh", "-c", 'nohup setsid "$@" & exit 0', "sh"), "", detached=True),
    Launcher("Fabric", _python(), "", under="fabric", version=_module(str(_BIN / "python"), "lightning-fabric")),
    Launcher("mpirun", _meeting_by_argument(*_MPIRUN), "mpirun", under="mpi", variables=_MPI_AS_ROOT, program="mpirun",
             version=("sh", "-c", "mpirun --version | head -n 1")),
    Launcher("srun", _meeting_by_argument(*_SRUN), "", under="slurm", program="srun", version=_SRUN_VERSION,
             slurm=True, in_ci=False),
    Launcher("srun, MASTER_ADDR exported", _srun_exported, "", under="slurm", program="srun", version=_SRUN_VERSION,
             slurm=True, in_ci=False),
    Launcher("srun torchrun", _srun_torchrun, "torchrun", program="srun", version=_SRUN_VERSION, slurm=True,
             in_ci=False),
    Launcher("Ray Train", _ray, "", under="ray", variables=_RAY_ON_A_BUSY_MACHINE,
             program=str(VENVS / "ray/bin/python"), version=_module(str(VENVS / "ray/bin/python"), "ray"),
             in_ci=False),
    Launcher("deepspeed", _deepspeed, "deepspeed", variables=_DEEPSPEED_PATH,
             program=str(VENVS / "deepspeed/bin/deepspeed"),
             version=_module(str(VENVS / "deepspeed/bin/python"), "deepspeed"), in_ci=False),
)  # fmt: skip
BY_NAME = {launcher.name: launcher for launcher in TABLE}
