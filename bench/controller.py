"""hangdoc as the controller of a fleet: a process that says at its end what it has used."""

import os
import subprocess
import sys
import time
from typing import NamedTuple

from bench.scale import WITH_NONCE

_CONTROLLER = f"""
import os, re, sys
end = os._exit
def tell(code):
    used = os.times()
    most = re.search("VmHWM:.* (.*) kB", open("/proc/self/status").read())  # ru_maxrss has what the parent had
    print(used.user + used.system, used.children_user + used.children_system, int(most[1]) / 1024, file=sys.stderr)
    end(code)
os._exit = tell
{WITH_NONCE}
"""


class Used(NamedTuple):
    """What one command took."""

    seconds: float
    cpu: float
    """Seconds of CPU of the controller alone."""
    clients_cpu: float
    """Seconds of CPU of what it started: the clients of ssh."""
    mebibytes: float
    output: str


def measure_controller(*words: str, before: tuple[str, ...] = (), **variables: str) -> Used:
    """Run hangdoc with these words, behind `before`."""
    command = [*before, sys.executable, "-c", _CONTROLLER, *words]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    seconds = time.perf_counter() - began
    try:
        cpu, clients, memory = map(float, done.stderr.split()[-3:])
    except ValueError:
        raise SystemExit(f"hangdoc ended with {done.returncode}: {done.stderr or done.stdout}") from None
    return Used(seconds, cpu, clients, memory, done.stdout)
