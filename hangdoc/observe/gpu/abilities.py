"""What hangdoc can find out about the GPUs and links of this host, for `hangdoc doctor`."""

import os
import time
from collections.abc import Iterator
from typing import NamedTuple

from hangdoc.observe.access.process_files import own_root
from hangdoc.observe.gpu.cards import DEVICE
from hangdoc.observe.gpu.kernel_log import open_log
from hangdoc.observe.gpu.links import read_states
from hangdoc.observe.gpu.nvml import ANSWER_SECONDS, NotStarted, NvmlChild
from hangdoc.procfs import ProcError

_LIBRARY_REMEDY = (
    "Run `nvidia-smi`: if it fails, too, the driver is not loaded or not of the library's version. In a container, start it with "
    "the NVIDIA container toolkit (--gpus all, or nvidia.com/gpu)."
)
_START_SECONDS = 5.0


class Access(NamedTuple):
    """One source: whether it can be used, what was found, and the remedy."""

    name: str
    works: bool
    found: str
    remedy: str = ""


def examine(device: str = DEVICE) -> Iterator[Access]:
    """Each source of which there is something on this host."""
    if own_root().has(device):
        yield _check_cards()
        yield _check_kernel_log()
    if states := read_states():
        active = sum(state == "ACTIVE" for state in states.values())
        yield Access("InfiniBand and RoCE", True, f"{active} of {len(states)} ports active")


def _check_cards() -> Access:
    name = "GPUs (NVML)"
    for keep_user in (False, True) if os.geteuid() == 0 else (False,):
        try:
            child = NvmlChild(keep_user=keep_user)
        except NotStarted as error:
            return Access(name, False, str(error), "Run `pip install 'hangdoc[gpu]'` in hangdoc's own environment.")
        try:
            child.ask()
            child.read(time.monotonic() + _START_SECONDS + ANSWER_SECONDS)
            answer, end = child.answer, child.ended()
        finally:
            child.close()
        if answer is not None and answer.failed is None:
            named = any(card.pids for card in answer.cards)
            ranks = "" if named else "; it names no process, so in a container cards and ranks can't be joined"
            return Access(name, True, f"{len(answer.cards)} cards, driver {answer.driver or 'unknown'}{ranks}")
    reason = (answer.failed if answer is not None else None) or end or f"no answer within {ANSWER_SECONDS:.0f} s"
    return Access(name, False, reason, _LIBRARY_REMEDY)


def _check_kernel_log() -> Access:
    name = "kernel log"
    try:
        os.close(open_log())
    except ProcError:
        return Access(name, True, "not readable: errors of cards (Xid) stay unknown; root on the host can read them")
    return Access(name, True, "readable")
