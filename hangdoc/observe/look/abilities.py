"""What hangdoc is able to do on this host. Each ability is tested on a child process."""

import errno
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.gpu import abilities as gpu_abilities
from hangdoc.observe.kernel.sock_diag import SockDiag
from hangdoc.observe.memory.locate import SUPPORTED, locate
from hangdoc.observe.memory.memory import Unreadable, Unsupported
from hangdoc.observe.stacks import attach, pyspy
from hangdoc.phrases import amount
from hangdoc.portable import running_from
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import Stack

_ADD_PTRACE = (
    "in a container add --cap-add=SYS_PTRACE (Docker) or securityContext.capabilities.add: [SYS_PTRACE] (Kubernetes)"
)
_PTRACE_REMEDY = f"Run hangdoc as root, or as the ranks' own user with kernel.yama.ptrace_scope=0; {_ADD_PTRACE}."
_PY_SPY_REMEDY = f"Permissions are not the reason. py-spy may be too old for Python {sys.version.split()[0]}."
_PY_SPY_MISSING = "Run `pip install py-spy` in hangdoc's own environment."
_PYTHON_REMEDY = (
    f"Permissions are not the reason: hangdoc reads the memory of {SUPPORTED} with a GIL. Of other interpreters, module "
    "variables, changes of os.environ and process groups stay unknown. hangdoc still uses stacks, sockets and clocks."
)

_SYS_PTRACE = 1 << 19
_SET_IDS = 1 << 6 | 1 << 7 | 1 << 8
"""CAP_SYS_PTRACE; CAP_SETGID, CAP_SETUID and CAP_SETPCAP (linux/capability.h)."""


class Ability(NamedTuple):
    """One thing that hangdoc needs: whether it works here, what was found, and the remedy if it does not work."""

    name: str
    works: bool
    found: str
    remedy: str
    only: str = ""
    """The runs with which it works, `the runs of uid 1000`; empty if it works with all."""


def check_all() -> Iterator[Ability]:
    """Test every ability."""
    yield _check_py_spy()
    yield from _check_on_child()
    yield _check_yama()
    yield _check_sockets()
    yield _check_other_users()
    yield from (Ability(*source) for source in gpu_abilities.examine())
    if os.geteuid() == 0:
        yield _check_files_of_other_users()


def _check_on_child() -> Iterator[Ability]:
    """What hangdoc can read of a program of its own. No fork of this process: ptrace must treat it as it treats a rank."""
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; print('ready', flush=True); sys.stdin.read()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a traceback, if this process ends before it has written
            start_new_session=True,  # it ends with its standard input; a Ctrl-C at the terminal is not for it
        )
    except OSError as error:
        yield _describe_unstarted("child process", sys.executable, error)
        return
    try:
        assert child.stdout is not None  # noqa: S101
        child.stdout.readline()
        yield _check_stacks(child.pid)
        yield _check_memory(child.pid)
        yield _check_clocks(child.pid)
    finally:
        child.kill()
        child.communicate()


def _describe_unstarted(name: str, program: str, error: OSError) -> Ability:
    remedy = "Install hangdoc again: this program is gone or damaged."
    if isinstance(error, PermissionError):
        remedy = (
            f"uid {os.geteuid()} may not execute it. Install hangdoc where this user can read it, outside of another user's home "
            "and on no noexec mount."
        )
    elif error.errno in (errno.EAGAIN, errno.ENOMEM):
        remedy = "This user has no processes or memory left (ulimit -u, pids.max): free some, and run doctor again."
    return Ability(name, False, f"{program} can't be started: {error.strerror}", remedy)


def _check_py_spy() -> Ability:
    program = pyspy.executable()
    if program is None:
        return Ability("py-spy", False, "not found", _PY_SPY_MISSING)
    try:
        version = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout.strip()
    except OSError as error:
        return _describe_unstarted("py-spy", program, error)
    return Ability("py-spy", bool(version), version or "does not start", _PY_SPY_MISSING)


def _check_stacks(pid: int) -> Ability:
    stack = attach.dump(ProcFS(), pid, Deadline(10))
    if isinstance(stack, Stack):
        return Ability("stacks (ptrace)", True, "readable", "")
    remedy = _PTRACE_REMEDY if "permission denied" in stack.reason else _PY_SPY_REMEDY
    return Ability(
        "stacks (ptrace)", False, stack.reason, remedy if pyspy.executable() is not None else _PY_SPY_MISSING
    )


def _check_memory(pid: int) -> Ability:
    proc = ProcFS()
    try:
        image = locate(proc, pid)
    except Unsupported as error:
        return Ability("interpreter memory", False, str(error), _PYTHON_REMEDY)
    except Unreadable as error:
        return Ability("interpreter memory", False, str(error), _PTRACE_REMEDY)
    if image.gap:
        return Ability("interpreter memory", False, image.gap, _PYTHON_REMEDY)
    return Ability("interpreter memory", True, f"readable (Python {image.version[0]}.{image.version[1]})", "")


def _check_clocks(pid: int) -> Ability:
    proc = ProcFS()
    try:
        proc.read(f"{pid}/task/{pid}/schedstat")
    except ProcError:
        return Ability("CPU clocks", True, "clock ticks only: the kernel has no schedstat", "")
    return Ability("CPU clocks", True, "nanoseconds (schedstat)", "")


def _check_yama() -> Ability:
    try:
        scope = ProcFS().text("sys/kernel/yama/ptrace_scope")
        finding = f"ptrace_scope {scope}, uid {os.geteuid()}"
    except ProcError:
        scope, finding = "0", "not in this kernel"
    works = scope == "0" or (scope in "12" and os.geteuid() == 0)
    return Ability("Yama", works, finding, _PTRACE_REMEDY)


def _check_sockets() -> Ability:
    remedy = (
        "Allow netlink sock_diag: a seccomp profile may forbid it, or the kernel lacks INET_DIAG. "
        "Without it, the ages of sockets stay unknown."
    )
    try:
        with SockDiag() as diag:
            count = sum(1 for _ in diag.sockets())
    except OSError as error:
        return Ability("sockets (sock_diag)", False, str(error), remedy)
    return Ability("sockets (sock_diag)", True, f"{amount(count, 'TCP socket')} read", "")


def find_only_user() -> int | None:
    """The uid whose processes alone hangdoc may read and end; None for root, which may those of all."""
    return os.geteuid() or None


def _check_other_users() -> Ability:
    only = find_only_user()
    if only is None:
        # A container may lack this capability. Even then, ranks with no more capabilities than hangdoc are readable.
        capable = int(ProcFS().status("self").get("CapEff", "0"), 16) & _SYS_PTRACE
        if capable:
            return Ability("other users' ranks", True, "readable (uid 0)", "")
        finding = (
            "only ranks that have no more capabilities than hangdoc are readable: CAP_SYS_PTRACE is missing; to read all, "
            + _ADD_PTRACE
        )
        return Ability("other users' ranks", True, finding, "", "ranks that have no more capabilities than it")
    # sudo does not search a virtual environment
    program = shutil.which(os.path.join(os.path.dirname(sys.executable), "hangdoc"))
    file = running_from()
    words = ["sh", str(file)] if file is not None else [program or "hangdoc"]
    command = shlex.join(["sudo", *words])
    sudo = f"`{command}`" if shutil.which("sudo") else "hangdoc as root"
    found = f"only ranks of uid {only} are readable; {sudo} can read all"
    return Ability("other users' ranks", True, found, "", f"the runs of uid {only}")


def _check_files_of_other_users() -> Ability:
    """Whether root may read files with the rights of another user, the only way in which it reads them."""
    name = "other users' files"
    if int(ProcFS().status("self").get("CapEff", "0"), 16) & _SET_IDS == _SET_IDS:
        return Ability(name, True, "readable with the rights of their owner", "")
    remedy = (
        "Give hangdoc CAP_SETUID, CAP_SETGID and CAP_SETPCAP. Without them, other users' source lines and data directories stay "
        "unknown, and py-spy runs as root."
    )
    return Ability(name, False, "CAP_SETUID, CAP_SETGID or CAP_SETPCAP is missing", remedy)
