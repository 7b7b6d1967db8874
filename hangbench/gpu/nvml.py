"""Samples of the card while the cases run: `python -m hangbench.gpu.nvml FILE` writes one JSON object a line until it is ended.

It is a process of its own, because a question to NVML can end the process that asks (nvmlDeviceGetGpuFabricInfoV of nvidia-ml-py
13.615 did, with driver 580). The first line describes the card.
"""

import importlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

SECONDS = 0.5
_GPM = {1: "graphics", 2: "sm", 3: "occupancy", 5: "tensor", 10: "dram", 20: "pcie_tx", 21: "pcie_rx"}
"""Metrics of nvmlGpmMetricId_t; the names are ours."""


def _plain(call: Callable[[], Any]) -> Any:
    """The answer as a value of JSON; an error is a text that begins with `!`."""
    try:
        value = call()
    except Exception as error:
        return f"!{error}"
    if hasattr(value, "_fields_"):
        return {field[0]: str(getattr(value, field[0])) for field in value._fields_}
    return value if isinstance(value, (int, float, str, list, type(None))) else str(value)


def describe(nvml: Any, card: Any) -> dict[str, Any]:
    """What does not change."""

    def link_state(link: int) -> Any:
        return nvml.nvmlDeviceGetNvLinkState(card, link)

    # A version of the library may lack a function, so each is looked up only where its failure is an answer.
    asked: dict[str, Callable[[], Any]] = {
        "driver": lambda: nvml.nvmlSystemGetDriverVersion(),
        "cuda": lambda: nvml.nvmlSystemGetCudaDriverVersion(),
        "count": lambda: nvml.nvmlDeviceGetCount(),
        "name": lambda: nvml.nvmlDeviceGetName(card),
        "uuid": lambda: nvml.nvmlDeviceGetUUID(card),
        "pci": lambda: nvml.nvmlDeviceGetPciInfo(card),
        "minor": lambda: nvml.nvmlDeviceGetMinorNumber(card),
        "limit_mw": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(card),
        "ecc": lambda: nvml.nvmlDeviceGetEccMode(card),
        "ecc_uncorrected": lambda: nvml.nvmlDeviceGetTotalEccErrors(card, 1, 0),
        "ecc_corrected": lambda: nvml.nvmlDeviceGetTotalEccErrors(card, 0, 0),
        "remapped": lambda: nvml.nvmlDeviceGetRemappedRows(card),
        "nvlink": lambda: [_plain(partial(link_state, link)) for link in range(18)],
        "max_sm_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(card, 1),
        "compute_mode": lambda: nvml.nvmlDeviceGetComputeMode(card),
    }
    return {name: _plain(question) for name, question in asked.items()}


def sample(nvml: Any, card: Any) -> dict[str, Any]:
    """One reading."""
    began = time.perf_counter()
    use = nvml.nvmlDeviceGetUtilizationRates(card)
    values = {
        "at": time.time(), "gpu": use.gpu, "memory": use.memory,
        "mw": _plain(lambda: nvml.nvmlDeviceGetPowerUsage(card)),
        "sm_mhz": _plain(lambda: nvml.nvmlDeviceGetClockInfo(card, 1)),
        "reasons": _plain(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(card)),
        "celsius": _plain(lambda: nvml.nvmlDeviceGetTemperature(card, 0)),
        "used": _plain(lambda: nvml.nvmlDeviceGetMemoryInfo(card).used),
        "processes": _plain(lambda: [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(card)]),
    }  # fmt: skip
    return values | {"took_us": round((time.perf_counter() - began) * 1e6)}


def gpm(nvml: Any, first: Any, second: Any) -> Any:
    """The metrics between two samples, by name."""
    asked = nvml.c_nvmlGpmMetricsGet_t()
    asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
    asked.numMetrics, asked.sample1, asked.sample2 = len(_GPM), first, second
    for index, number in enumerate(_GPM):
        asked.metrics[index].metricId = number
    nvml.nvmlGpmMetricsGet(asked)
    return {name: asked.metrics[index].value for index, name in enumerate(_GPM.values())}


def main() -> None:
    """Sample until a signal comes."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(sys.argv[1], "w", buffering=1) as file:

        def write(value: dict[str, Any]) -> None:
            file.write(json.dumps(value, default=str) + "\n")

        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            card = nvml.nvmlDeviceGetHandleByIndex(0)
        except Exception as error:
            write({"error": repr(error)})
            return
        write({"card": describe(nvml, card)})
        samples = []
        try:
            samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
            nvml.nvmlGpmSampleGet(card, samples[0])
        except Exception as error:
            write({"gpm": repr(error)})
        while not over.wait(SECONDS):
            try:
                values = sample(nvml, card)
            except Exception as error:
                values = {"at": time.time(), "error": repr(error)}
            if len(samples) == 2:
                try:
                    nvml.nvmlGpmSampleGet(card, samples[1])
                    values["gpm"] = gpm(nvml, *samples)
                    samples.reverse()
                except Exception as error:
                    values["gpm"] = repr(error)
            write(values)


if __name__ == "__main__":
    main()
