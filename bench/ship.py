"""Measures the machine from which one looks at 64 hosts: with an installed hangdoc, and with one that is brought to each.

The hosts are local processes with an environment of their own, which print a recorded bundle of eight ranks: what is measured is
the controller. Its memory must not grow with the hosts times the size of the file.
"""

import json
import os
import tempfile
import time
import zipfile
from pathlib import Path

from bench.controller import measure_controller
from bench.scale import _PER_HOST, bundles
from hangdoc import bundle_text
from hangdoc.version import __version__

_HOSTS = 64
_PRINT = "import os, sys; sys.stdout.write(open(os.environ['BUNDLE']).read())"


def ship(mebibytes: tuple[int, ...] = (1, 30)) -> None:
    """Print seconds, CPU seconds and peak memory of the controller for each size of the file, and without bringing one."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for at, raw in enumerate(bundles(_HOSTS * _PER_HOST, whole=True)):
            lines = (bundle_text.begin(__version__, time.time()), *bundle_text.lines(raw))
            (Path(folder) / f"h{at}").write_text("\n".join(lines) + "\n")
        (Path(folder) / "tmp").mkdir(mode=0o700)
        host = Path(folder) / "host"
        host.write_text(
            f'#!/bin/sh\nhost=$1; shift; [ "$1" = hangdoc ] && exec cat {folder}/$host\n'
            f'exec env -i PATH=/usr/bin:/bin TMPDIR={folder}/tmp BUNDLE={folder}/$host "$@"\n'  # noqa: S108
        )
        host.chmod(0o755)
        _measure("installed", folder, "--ship", "never")
        for size in mebibytes:
            path = Path(folder) / "hangdoc.pyz"
            with zipfile.ZipFile(path, "w") as file:
                file.writestr("__main__.py", _PRINT)
                file.writestr("padding", os.urandom(size << 20))
            _measure(f"brought, {size} MiB", folder, "--ship", "always", HANGDOC_PYZ=str(path))


def _measure(what: str, folder: str, *options: str, **variables: str) -> None:
    used = measure_controller(
        "diagnose", "--hosts", f"h[0-{_HOSTS - 1}]", "--via", f"{folder}/host {{host}}",
        "--timeout", "300", "--host-timeout", "300", "--json", *options, **variables,
    )  # fmt: skip
    answer = json.loads(used.output)
    removed = sum(one["removed"] is True for one in answer["brought"])
    print(
        f"{_HOSTS} hosts, {what:16}: {used.seconds:5.1f} s, {used.cpu:5.2f} s of CPU, {used.mebibytes:.0f} MiB, "
        f"{len(answer['jobs'][0]['ranks'])} ranks, "
        f"brought to {len(answer['brought'])} and removed from {removed}, {len(answer['problems'])} problems",
        flush=True,
    )
