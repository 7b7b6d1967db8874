"""A libnvidia-ml.so.1 for tests, compiled with gcc. What its functions return are nvidia-ml-py's own structures, byte by byte, so
the layouts are those of the package and not of the test."""

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pynvml
from msgspec import Struct

_INSUFFICIENT_SIZE, _NOT_SUPPORTED = 7, 3
_HEAD = """typedef unsigned long L;
void *memcpy(void *, const void *, L);
int pause(void), raise(int), puts(const char *), fflush(void *), creat(const char *, unsigned);
long write(int, const void *, L);
"""
HANG = "for (;;) pause();"
CRASH = "*(volatile int *)0 = 1;"
"""What a function does instead of returning."""


class StubCard(Struct, kw_only=True):
    """What the stub says of a card: by default an idle H100 as one was seen (driver 580.159.04). `None`: not supported."""

    uuid: str = "GPU-d79f8e37-af6a-fd5b-f425-fad6846b2c4b"
    name: str = "NVIDIA H100 80GB HBM3"
    bus: int = 0
    device: int = 6
    utilisation: int | None = 0
    memory: int = 0
    milliwatts: int | None = 73_437
    limit: int | None = 700_000
    clock: int | None = 345
    temperature: int | None = 39
    reasons: int | None = 1
    errors: int | None = 0
    rows: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    links: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    lost: bool = False
    """Every question about it fails with NVML_ERROR_GPU_IS_LOST."""


SPINNING = StubCard(utilisation=100, memory=0, milliwatts=130_588, clock=1980, temperature=41, reasons=0)
"""The card of ranks that wait in an NCCL kernel, as one was seen."""


def build(
    folder: Path,
    *cards: StubCard,
    instead: Mapping[str, str] | None = None,
    without: tuple[str, ...] = (),
    loaded: str = "",
) -> str:
    """Compile the library into a folder, which is returned. `instead` is C code that functions run first, `without` are functions
    that it does not have, and `loaded` is C code that runs when it is loaded."""
    lines = [_HEAD, f"__attribute__((constructor)) static void loaded(void) {{ {loaded} }}"]
    for name, body in _functions(cards).items():
        if name not in without:
            lines.append(f"int {name}(L a, L b, L c, L d, L e) {{ {(instead or {}).get(name, '')} {body} }}")
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "stub.c"
    source.write_text("\n".join(lines))
    library = folder / "libnvidia-ml.so.1"
    command = ["gcc", "-shared", "-fPIC", "-w", "-O1", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    folder.chmod(0o755)
    return str(folder)


def _functions(cards: tuple[StubCard, ...]) -> dict[str, str]:
    """The body of each function by its name. The arguments are a to e."""
    return {
        "nvmlInitWithFlags": "return 0;",
        "nvmlShutdown": "return 0;",
        "nvmlSystemGetDriverVersion": _copy("a", _text("580.159.04")),
        "nvmlDeviceGetCount_v2": f"*(unsigned *)a = {len(cards)}; return 0;",
        "nvmlDeviceGetHandleByIndex_v2": "*(L *)b = (unsigned)a + 1; return 0;",
        "nvmlDeviceGetUUID": _of_each(cards, "b", lambda card: _text(card.uuid)),
        "nvmlDeviceGetName": _of_each(cards, "b", lambda card: _text(card.name)),
        "nvmlDeviceGetPciInfo_v3": _of_each(
            cards, "b", lambda card: pynvml.nvmlPciInfo_t(domain=0, bus=card.bus, device=card.device)
        ),
        "nvmlDeviceGetMemoryInfo": _of_each(
            cards, "b", lambda card: pynvml.c_nvmlMemory_t(total=80 << 30, free=79 << 30, used=1 << 30)
        ),
        "nvmlDeviceGetUtilizationRates": _of_each(
            cards,
            "b",
            lambda card: (
                pynvml.c_nvmlUtilization_t(gpu=card.utilisation, memory=card.memory)
                if card.utilisation is not None
                else None
            ),
        ),
        "nvmlDeviceGetPowerUsage": _of_each(cards, "b", lambda card: _unsigned(card.milliwatts)),
        "nvmlDeviceGetEnforcedPowerLimit": _of_each(cards, "b", lambda card: _unsigned(card.limit)),
        "nvmlDeviceGetClockInfo": _of_each(cards, "c", lambda card: _unsigned(card.clock)),
        "nvmlDeviceGetTemperature": _of_each(cards, "c", lambda card: _unsigned(card.temperature)),
        "nvmlDeviceGetCurrentClocksEventReasons": _of_each(cards, "b", lambda card: _long(card.reasons)),
        "nvmlDeviceGetCurrentClocksThrottleReasons": _of_each(cards, "b", lambda card: _long(card.reasons)),
        "nvmlDeviceGetTotalEccErrors": _of_each(cards, "d", lambda card: _long(card.errors)),
        "nvmlDeviceGetRemappedRows": _each_card(cards, _rows),
        "nvmlDeviceGetNvLinkState": _each_card(cards, _links),
        "nvmlDeviceGetComputeRunningProcesses_v3": _each_card(cards, _processes),
    }


def _of_each(cards: tuple[StubCard, ...], argument: str, value: Any) -> str:
    return _each_card(cards, lambda card: _copy(argument, value(card)))


def _each_card(cards: tuple[StubCard, ...], body: Any) -> str:
    """The code for each card, whose handle is its number + 1."""
    lost = f"return {pynvml.NVML_ERROR_GPU_IS_LOST};"
    return " ".join(f"if (a == {at}) {{ {lost if card.lost else body(card)} }}" for at, card in enumerate(cards, 1)) + (
        " return 2;"
    )


def _copy(argument: str, value: Any) -> str:
    """Copy a structure to where an argument points."""
    if value is None:
        return f"return {_NOT_SUPPORTED};"
    raw = bytes(value)
    numbers = ",".join(map(str, raw))
    return f"static const unsigned char s[] = {{{numbers}}}; memcpy((void *){argument}, s, {len(raw)}); return 0;"


def _rows(card: StubCard) -> str:
    if card.rows is None:
        return f"return {_NOT_SUPPORTED};"
    pairs = zip("bcde", card.rows, strict=True)
    return " ".join(f"*(unsigned *){argument} = {value};" for argument, value in pairs) + " return 0;"


def _links(card: StubCard) -> str:
    cases = " ".join(
        f"if ((unsigned)b == {at}) {{ *(unsigned *)c = {on}; return 0; }}" for at, on in enumerate(card.links)
    )
    return f"{cases} return {_NOT_SUPPORTED};"


def _processes(card: StubCard) -> str:
    infos = b"".join(bytes(pynvml.c_nvmlProcessInfo_t(pid=pid)) for pid in card.pids)
    if not infos:
        return "*(unsigned *)b = 0; return 0;"
    size = len(card.pids)
    numbers = ",".join(map(str, infos))
    return (
        f"static const unsigned char s[] = {{{numbers}}}; unsigned room = *(unsigned *)b; *(unsigned *)b = {size}; "
        f"if (!c || room < {size}) return {_INSUFFICIENT_SIZE}; memcpy((void *)c, s, {len(infos)}); return 0;"
    )


def _text(value: str) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(value.encode())


def _unsigned(value: int | None) -> ctypes.c_uint | None:
    return ctypes.c_uint(value) if value is not None else None


def _long(value: int | None) -> ctypes.c_ulonglong | None:
    return ctypes.c_ulonglong(value) if value is not None else None
