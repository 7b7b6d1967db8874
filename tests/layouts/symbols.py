"""Where the recorder of a library is by its symbols, which the wheels have and which hangdoc does not use."""

import re
import subprocess
from pathlib import Path

_CLASS = r"(?:14FlightRecorder(?:I\w+?EventEE)?|15NCCLTraceBuffer)"
_PATTERNS = {
    "instance": re.compile(rf"_ZZN4c10d{_CLASS}E?3getEvE8instance"),
    "record": re.compile(rf"_ZN4c10d{_CLASS}E?6recordEm\w+"),
    "retire": re.compile(rf"_ZN4c10d{_CLASS}E?9retire_idESt8optionalImEb"),
    "record_ranks": re.compile(rf"_ZN4c10d{_CLASS}E?15record_pg_ranksE\w+"),
}


def recorder_symbols(library: Path) -> dict[str, int]:
    """Addresses in a library: `instance` of the pointer to its recorder, the others of the recorder's functions. Empty if it has
    no recorder."""
    found: dict[str, int] = {}
    with subprocess.Popen(["nm", "--defined-only", str(library)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "FlightRecorder" in line or "NCCLTraceBuffer" in line:
                address, _, symbol = line.split()
                found |= {name: int(address, 16) for name, pattern in _PATTERNS.items() if pattern.fullmatch(symbol)}
    return found
