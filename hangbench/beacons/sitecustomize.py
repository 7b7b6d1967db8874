"""Gives every rank of a case a watchdog that its script does not know about. `hangbench --beacons` puts this on PYTHONPATH.

The watchdog starts with the process group and beats at each batch of a DataLoader and each step of an optimizer. The flight
recorder is dumped every second, as a watchdog does after half of its timeout. The timeout is never reached.
"""

import contextlib
import importlib.abc
import importlib.machinery
import sys
import threading
import time
from pathlib import Path

_C10D, _LOADER, _OPTIMIZER = (
    "torch.distributed.distributed_c10d",
    "torch.utils.data.dataloader",
    "torch.optim.optimizer",
)
_watchdog = None


def _with_group(module):
    original = module.init_process_group

    def init_process_group(*args, **kwargs):
        global _watchdog
        original(*args, **kwargs)
        if _watchdog is None:
            from hangdoc.watchdog import Watchdog

            _watchdog = Watchdog(timeout=100_000).start()
            threading.Thread(target=_record, daemon=True).start()

    module.init_process_group = init_process_group


def _record():
    from hangdoc.beacon import FLIGHT_SUFFIX
    from hangdoc.watchdog import recorder

    path = Path(_watchdog.beacon_path).with_suffix(FLIGHT_SUFFIX)
    while True:
        with contextlib.suppress(Exception):
            records = recorder.dump()
            if records is not None:
                fresh = path.with_suffix(".new")
                fresh.write_bytes(records)
                fresh.replace(path)
        time.sleep(1.0)


def _with_batches(module):
    original = module.DataLoader.__iter__

    def batches(self):
        inner = original(self)
        return inner if _watchdog is None else _watchdog.watch(_Sized(inner, self))

    module.DataLoader.__iter__ = batches


class _Sized:
    def __init__(self, inner, loader):
        self._inner, self._loader = inner, loader

    def __iter__(self):
        return self._inner

    def __len__(self):
        return len(self._loader)


def _with_steps(module):
    steps = 0

    def stepped(*_):
        nonlocal steps
        steps += 1
        if _watchdog is not None:
            _watchdog.beat(steps)

    module.register_optimizer_step_post_hook(stepped)


_WANTED = {_C10D: _with_group, _LOADER: _with_batches, _OPTIMIZER: _with_steps}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in _WANTED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute, prepare = spec.loader.exec_module, _WANTED.pop(name)

            def exec_module(module):
                execute(module)
                prepare(module)

            spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Finder())
