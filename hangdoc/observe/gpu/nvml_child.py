"""The program of the child process that asks NVML about the cards (`nvml`).

NVML may crash or never return, so it is loaded in no other process. The child imports nvidia-ml-py, gives up its rights, and
only then loads the driver's library. It answers each byte that it receives with lines of JSON: one for each stage of the
question, and one for each card. Every question about a card is asked separately, because older drivers lack some functions: what
fails is left out. nvmlDeviceGetGpuFabricInfoV is never asked: nvidia-ml-py 13.615 crashed in it with driver 580.159.04.

It imports only the standard library, nvidia-ml-py and plain values of hangdoc, so that it starts in some tens of milliseconds.
"""

import contextlib
import ctypes
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

READY, INIT, BASIC, MORE, END = "ready", "nvmlInit", "cards", "links and processes", "end"
"""The stages, in the order in which the child announces them. While the driver answers the questions of a stage, its name is the
last that the child has written."""
_LIBRARY = "libnvidia-ml.so.1"
_PLACES = ("/usr/local/nvidia/lib64", "/run/opengl-driver/lib", "/usr/lib/wsl/lib", "/home/kubernetes/bin/nvidia/lib64")
"""Where containers and distributions keep the driver's libraries that the dynamic loader does not know."""
_DEVICE = "/dev/nvidiactl"
_NOBODY = 65534
_NO_NEW_PRIVILEGES = 38
_CAPABILITY_VERSION_3 = 0x20080522
"""linux/prctl.h, linux/capability.h."""
MOST_CARDS, _MOST_LINKS, _MOST_PIDS = 64, 36, 256
_THROTTLES = (
    (0x02, "applications_clocks"), (0x04, "sw_power_cap"), (0x08, "hw_slowdown"), (0x10, "sync_boost"), (0x20, "sw_thermal"),
    (0x40, "hw_thermal"), (0x80, "hw_power_brake"), (0x100, "display_clock"),
)  # fmt: skip
"""nvmlClocksEventReasons in nvml.h. An idle card has reason 0x01, which throttles nothing."""
_SM, _GPU_SENSOR, _UNCORRECTED, _VOLATILE = 1, 0, 1, 0
"""NVML_CLOCK_SM, NVML_TEMPERATURE_GPU, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC."""
_IS_LOST, _RESET_REQUIRED = 15, 16
"""NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED."""


def main(package: str, questions: int, keep_user: bool) -> None:
    """Answer until the pipe `questions` closes. `package` is the directory of nvidia-ml-py, `keep_user` keeps the uid of root."""
    sys.path.append(package)
    import pynvml

    out = _own_output()
    _give_up_rights(keep_user)
    _send(out, stage=READY)
    begun = False
    while os.read(questions, 1):
        try:
            if not begun:
                _send(out, stage=INIT)
                pynvml.nvmlLib = (
                    _load_library()
                )  # the answer to None is that of nvidia-ml-py: it searches itself, and says what fails
                pynvml.nvmlInit()
                begun = True
            _answer(pynvml, out)
        except pynvml.NVMLError as error:
            _send(out, failed=str(error)[:200])
        _send(out, stage=END)


def _own_output() -> int:
    """Where to write answers. What the driver's library prints goes nowhere."""
    out = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)  # noqa: TID251 of this process
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    return out


def _send(out: int, **line: Any) -> None:
    raw = json.dumps(line).encode() + b"\n"
    while raw:
        raw = raw[os.write(out, raw) :]


# --- rights -----------------------------------------------------------------------------------------------------------------


def _give_up_rights(keep_user: bool) -> None:
    """Keep only what opening the driver's device needs. Every user may ask NVML, and on most machines open the device. Children
    get no more rights either: NVML starts nvidia-modprobe, a set-user-ID program, where device files are missing."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if os.geteuid() != 0:
        return
    if not keep_user and (groups := _find_groups_of_device()) is not None:
        with contextlib.suppress(OSError):  # a user namespace without this user
            os.setgroups(groups)
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)  # this drops all capabilities (capabilities(7))
            return
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())


def _find_groups_of_device() -> list[int] | None:
    """The groups that a user needs to open the device; None if only its owner may."""
    try:
        about = os.stat(_DEVICE)  # noqa: TID251 of the kernel
    except OSError:
        return []
    both = 0o6
    if about.st_mode & both == both:
        return []
    return [about.st_gid] if about.st_mode & stat.S_IRWXG == both << 3 else None


def _load_library() -> ctypes.CDLL | None:
    """The driver's library, where the dynamic loader or a container has it."""
    for path in (_LIBRARY, *(os.path.join(place, _LIBRARY) for place in _PLACES)):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    return None


# --- questions --------------------------------------------------------------------------------------------------------------


def _answer(nvml: Any, out: int) -> None:
    """What NVML says of all cards. The rarer functions come last: if one of them crashes, the rest is known."""
    _send(out, stage=BASIC)
    _send(out, driver=_text(_ask(nvml, nvml.nvmlSystemGetDriverVersion)))
    handles = dict(_handles(nvml, out))
    cards = {index: _ask_basics(nvml, index, handle) for index, handle in handles.items()}
    for card in cards.values():
        _send(out, card=card)
    _send(out, stage=MORE)
    for index, handle in handles.items():
        _send(out, card=cards[index] | _ask_rest(nvml, handle))


def _handles(nvml: Any, out: int) -> Iterator[tuple[int, Any]]:
    for index in range(min(MOST_CARDS, nvml.nvmlDeviceGetCount())):
        try:
            yield index, nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            _send(out, card={"index": index, "lost": error.value in (_IS_LOST, _RESET_REQUIRED)})


def _ask(nvml: Any, question: Callable[..., Any], *about: Any) -> Any:
    """The answer; None if the driver or the card has none."""
    with contextlib.suppress(nvml.NVMLError):
        return question(*about)
    return None


def _ask_basics(nvml: Any, index: int, handle: Any) -> dict[str, Any]:
    use = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return {
        "index": index,
        "uuid": _text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle)),
        "name": _text(_ask(nvml, nvml.nvmlDeviceGetName, handle)),
        "bus_id": _bus_id(_ask(nvml, nvml.nvmlDeviceGetPciInfo, handle)),
        "utilisation": use.gpu if use is not None else None,
        "memory_activity": use.memory if use is not None else None,
        "memory_used_bytes": memory.used if memory is not None else None,
        "memory_total_bytes": memory.total if memory is not None else None,
        "power_watts": _watts(_ask(nvml, nvml.nvmlDeviceGetPowerUsage, handle)),
        "power_limit_watts": _watts(_ask(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        "sm_clock_mhz": _ask(nvml, nvml.nvmlDeviceGetClockInfo, handle, _SM),
        "temperature_celsius": _ask(nvml, nvml.nvmlDeviceGetTemperature, handle, _GPU_SENSOR),
        "throttle": _ask_throttle(nvml, handle),
        "lost": _is_lost(nvml, handle),
    }


def _ask_rest(nvml: Any, handle: Any) -> dict[str, Any]:
    rows = _ask(nvml, nvml.nvmlDeviceGetRemappedRows, handle)
    links = list(_ask_links(nvml, handle))
    processes = _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return {
        "uncorrected_errors": _ask(nvml, nvml.nvmlDeviceGetTotalEccErrors, handle, _UNCORRECTED, _VOLATILE),
        "remapping_pending": bool(rows[2]) if rows is not None else None,
        "remapping_failed": bool(rows[3]) if rows is not None else None,
        "links_active": sum(links) if links else None,
        "links_inactive": [number for number, active in enumerate(links) if not active] if any(links) else [],
        "pids": sorted({process.pid for process in processes[:_MOST_PIDS]}) if processes is not None else None,
    }


def _ask_links(nvml: Any, handle: Any) -> Iterator[bool]:
    """Whether each NVLink is active. Nothing of a card without NVLink."""
    for number in range(_MOST_LINKS):
        state = _ask(nvml, nvml.nvmlDeviceGetNvLinkState, handle, number)
        if state is None:
            return
        yield bool(state)


def _is_lost(nvml: Any, handle: Any) -> bool:
    """Whether the card has fallen off the bus, or answers nothing until it is reset."""
    try:
        nvml.nvmlDeviceGetTemperature(handle, _GPU_SENSOR)
    except nvml.NVMLError as error:
        return error.value in (_IS_LOST, _RESET_REQUIRED)
    return False


def _ask_throttle(nvml: Any, handle: Any) -> list[str] | None:
    """What holds the clocks down. The function has had this name since driver 535, before that the second one."""
    for question in (nvml.nvmlDeviceGetCurrentClocksEventReasons, nvml.nvmlDeviceGetCurrentClocksThrottleReasons):
        reasons = _ask(nvml, question, handle)
        if reasons is not None:
            return [name for bit, name in _THROTTLES if reasons & bit]
    return None


def _bus_id(info: Any) -> str | None:
    """The PCI address as the kernel writes it: `0000:c1:00.0`. A GPU is always function 0."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0" if info is not None else None


def _watts(milliwatts: int | None) -> float | None:
    return round(milliwatts / 1000, 1) if milliwatts is not None else None


def _text(value: Any) -> str | None:
    """nvidia-ml-py returns bytes or str, depending on its version."""
    if value is None:
        return None
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))[:96]
