"""Control groups of the ranks: frozen, throttled, out of memory (Documentation/admin-guide/cgroup-v2.rst; v1 where mounted)."""

from collections.abc import Iterable

from hangdoc.observe.access.observation import Observation, ProbeResult
from hangdoc.parse import natural
from hangdoc.procfs import ProcError, ProcFS, read_kernel_file
from hangdoc.snapshot import ControlGroup

_MOUNT = "/sys/fs/cgroup"


def path_of(proc: ProcFS, pid: int) -> str | None:
    """The control group that limits a process's CPU time: the v1 cpu group where that hierarchy is mounted, else the v2 group,
    which then has all controllers. None if it can't be read."""
    try:
        lines = proc.text(f"{pid}/cgroup").splitlines()
    except ProcError:
        return None
    groups = {
        controllers: path for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") >= 2)
    }
    return groups.get("cpu,cpuacct") or groups.get("cpu") or groups.get("")


def frozen(proc: ProcFS, pid: int) -> bool:
    """Whether the process's control group is frozen. The kernel then shows state S, and the process uses no CPU time."""
    try:
        lines = proc.text(f"{pid}/cgroup").splitlines()
    except ProcError:
        return False
    for line in lines:
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0" and _read_unified(path, "cgroup.events", "frozen") == 1:
            return True
        if "freezer" in controllers.split(","):
            state = _read_text(f"{_MOUNT}/freezer{path}/freezer.state")
            if state not in (None, "THAWED"):
                return True
    return False


def _read_unified(path: str, file: str, key: str) -> int | None:
    """A value of a v2 group; None if it can't be read. Next to v1 hierarchies, v2 is mounted as `unified`."""
    value = _read_value(f"{_MOUNT}{path}/{file}", key)
    return value if value is not None else _read_value(f"{_MOUNT}/unified{path}/{file}", key)


def _read_value(file: str, key: str) -> int | None:
    for line in (_read_text(file) or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return natural(value)
    return None


def _read_text(file: str) -> str | None:
    try:
        return read_kernel_file(file).decode("utf-8", "replace").strip()
    except ProcError:
        return None


class ControlGroups:
    """The probe."""

    name = "control groups"

    def __init__(self) -> None:
        self._paths: dict[int, str | None] = {}
        self._throttled: dict[str, int | None] = {}
        self._throttled_after: dict[str, int | None] = {}

    def open(self, observation: Observation) -> None:
        """Read the throttling counters."""
        self._paths |= {t.pid: path_of(observation.proc, t.pid) for t in observation.alive()}
        self._throttled |= {path: _throttled(path) for path in set(self._paths.values()) if path}

    def during(self, observation: Observation) -> None:
        """Nothing."""

    def close(self, observation: Observation) -> None:
        """Read them again."""
        self._throttled_after = {path: _throttled(path) for path in self._throttled}

    def start_next_window(self, observation: Observation) -> None:
        """The end of this window becomes the beginning of the next, for the groups that the processes are in now."""
        self._paths = {t.pid: path_of(observation.proc, t.pid) for t in observation.alive()}
        paths = {path for path in self._paths.values() if path}
        self._throttled = {path: self._throttled_after.get(path, _throttled(path)) for path in paths}

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """Each process's group, and each group once."""
        for pid, path in self._paths.items():
            yield pid, "control_group", path
        groups = []
        for path, before in sorted(self._throttled.items()):
            after = self._throttled_after.get(path)
            is_frozen = _read_unified(path, "cgroup.events", "frozen")
            groups.append(
                ControlGroup(
                    path=path,
                    frozen=None if is_frozen is None else bool(is_frozen),
                    throttled_us=None if before is None or after is None else after - before,
                    oom_kills=_read_oom_kills(path),
                )
            )
        yield None, "control_groups", tuple(groups)


def _read_oom_kills(path: str) -> int | None:
    value = _read_unified(path, "memory.events", "oom_kill")
    return value if value is not None else _read_value(f"{_MOUNT}/memory{path}/memory.oom_control", "oom_kill")


def _throttled(path: str) -> int | None:
    value = _read_unified(path, "cpu.stat", "throttled_usec")
    if value is not None:
        return value
    nanoseconds = _read_value(f"{_MOUNT}/cpu{path}/cpu.stat", "throttled_time")
    return None if nanoseconds is None else nanoseconds // 1000
