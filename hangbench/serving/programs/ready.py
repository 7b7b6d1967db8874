"""Writes the handshake of a server that has none: waits for its health page, and finds its processes by their names.

python ready.py READY PID PORT "API server" "EngineCore=EngineCore" "TP 0=Worker_TP0" ...
PID has the first role. A role of its descendants follows with a part of its command line.
"""

import contextlib
import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil


def main() -> None:
    """Wait for the server, then write its processes."""
    ready, pid, port, first, *others = sys.argv[1:]
    answered = False
    while not answered:
        time.sleep(0.5)
        psutil.Process(int(pid))  # raises NoSuchProcess when the server has ended
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            answered = urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200
    roles = {first: int(pid)}
    for child in psutil.Process(int(pid)).children(recursive=True):
        title = " ".join(child.cmdline())
        roles |= {role: child.pid for role, _, part in (word.partition("=") for word in others) if part in title}
    file = Path(ready)
    part = file.with_suffix(".part")
    part.write_text(json.dumps({"roles": roles, "url": f"http://127.0.0.1:{port}"}))
    part.rename(file)


if __name__ == "__main__":
    main()
