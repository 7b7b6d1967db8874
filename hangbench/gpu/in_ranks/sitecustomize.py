"""Lets several NCCL ranks share one card, and writes torch's own dump of its record when the bench asks for it.

The bench puts this folder on PYTHONPATH of the launcher, so scripts need nothing for it. NCCL refuses two ranks with the same
card on the same host (`Duplicate GPU detected`), but believes each rank's NCCL_HOSTID. The ranks then talk by sockets.

For SIGUSR2, a thread of its own writes HANGBENCH_DUMPS/dump-RANK.json. Until then it waits in the kernel: a thread that polls
would look like progress.
"""

import contextlib
import json
import os
import pickle
import signal
import sys
import threading


def _dump(torch):
    native = torch._C._distributed_c10d
    dumps = {"cuda": getattr(native, "_dump_nccl_trace", None), "cpu": getattr(native, "_dump_fr_trace", None)}
    written = {"pid": os.getpid()}
    for kind, dump in dumps.items():
        if dump is not None:
            with contextlib.suppress(RuntimeError):
                # All calls, with their stacks, also those that have ended.
                whole = pickle.loads(dump(True, True, False))
                written[kind] = {
                    "entries": whole.get("entries", []),
                    "groups": whole.get("pg_config", {}),
                    "status": whole.get("pg_status", {}),
                }
    as_json = getattr(native, "_dump_nccl_trace_json", None)
    if as_json is not None:
        written["text"] = as_json().decode("utf-8", "replace")
    return written


def _wait(path):
    signal.sigwait({signal.SIGUSR2})
    try:
        written = _dump(sys.modules["torch"])
    except Exception as error:
        written = {"error": repr(error)}
    with open(f"{path}.part", "w") as file:
        json.dump(written, file, default=str)
    os.rename(f"{path}.part", path)


rank, folder = os.environ.get("RANK"), os.environ.get("HANGBENCH_DUMPS")
if rank is not None and folder is not None:
    os.environ["NCCL_HOSTID"] = f"host{rank}"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    threading.Thread(target=_wait, args=(f"{folder}/dump-{rank}.json",), daemon=True).start()
