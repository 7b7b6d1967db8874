"""torch's flight recorder as a dump: where its memory can't be read, or has no record.

There are two sources. A watchdog writes a dump to a file at its alarm. Otherwise hangdoc asks torch's worker server, if the
trainer has started it: torch.distributed.elastic.control_plane listens on `TORCH_WORKER_SERVER_SOCKET`, torch's debug server
on a TCP port. hangdoc sends nothing else to a rank, and connects to a port only if it is certainly the worker server's. The
server runs in a C++ thread, so it also replies for a rank that holds the GIL.
"""

import contextlib
import time

from hangdoc.beacon import FLIGHT_SUFFIX
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.memory.python_state import Modules, live_environment
from hangdoc.observe.torch import dump_format
from hangdoc.observe.torch.watchdog_files import read_watchdog_files
from hangdoc.procfs import ProcError
from hangdoc.snapshot import FlightRecorder, Unavailable
from hangdoc.torch_facts.environment_names import DUMP_HANDLERS, WORKER_SERVER_SOCKET
from hangdoc.torch_facts.module_names import DEBUG, WORKER_SERVER

_MAX_BYTES = 16 << 20
_MAX_VALUES = 500_000
"""Of a dump. torch keeps 2,000 entries by default, each with 40 values, and a decoded value takes up to 140 bytes."""


def read_dump(observation: Observation, target: Target) -> FlightRecorder | Unavailable:
    """The newest dump of a rank: of its watchdog, or of its worker server."""
    dumps = read_watchdog_files(
        observation.proc, target.pid, target.start_ticks, target.environment, FLIGHT_SUFFIX, _MAX_BYTES
    )
    for raw in dumps:
        with contextlib.suppress(ValueError):
            return read(raw, "the watchdog")
    if target.held:
        return Unavailable(reason="the rank is stopped, frozen or traced, so its worker server can't reply")
    socket_path, debug_server = _find_worker_server(observation, target)
    if not socket_path and not debug_server:
        return Unavailable(reason="the rank has neither a watchdog nor torch's worker server")
    from hangdoc.observe.torch.worker_server import ask  # imports http, which is rarely needed

    try:
        for handler in DUMP_HANDLERS:
            recorder = read(ask(observation, target, socket_path, handler), "torch's worker server")
            if recorder.groups:
                return recorder
        return recorder
    except (OSError, ValueError, ProcError) as error:
        return Unavailable(reason=f"torch's worker server: {error}")


def read(raw: bytes, source: str) -> FlightRecorder:
    """Parse a dump in torch's JSON. Raises ValueError for anything else, also for a dump that is too large or too deep."""
    dump = dump_format.read_json(raw, _MAX_BYTES, _MAX_VALUES)
    age = max(0.0, (time.monotonic_ns() - dump.read_ns) / 1e9) if dump.read_ns is not None else 0.0
    return dump_format.recorder_in(dump, source, round(age, 3), time.time_ns())


def _find_worker_server(observation: Observation, target: Target) -> tuple[str | None, bool]:
    """(path of the worker server's socket, whether torch's debug server runs), read from the rank's memory."""
    environment = target.environment if isinstance(target.environment, dict) else {}
    try:
        with observation.memory(target.pid) as memory:
            namespaces = Modules(memory, observation.image(target.pid)).namespace("os", DEBUG)
            path = {**environment, **live_environment(memory, namespaces.get("os", {}))}.get(WORKER_SERVER_SOCKET)
            server = namespaces.get(DEBUG, {}).get(WORKER_SERVER)
            return path, server is not None and memory.kind(server)[0] != "NoneType"
    except (Unreadable, KeyError):
        return environment.get(WORKER_SERVER_SOCKET), False
