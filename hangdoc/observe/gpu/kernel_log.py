"""Errors of GPUs and NVSwitches in the kernel log (/dev/kmsg, Documentation/ABI/testing/dev-kmsg).

Only the driver can have written what is used here. The kernel marks records that a process wrote to /dev/kmsg with another
facility. And a driver's message begins with its own words: where a message quotes a name that a process chose, that is no
beginning, or continues in another way.
"""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from hangdoc.observe.access.observation import Observation, ProbeResult
from hangdoc.observe.access.process_files import own_root
from hangdoc.observe.gpu.cards import DEVICE
from hangdoc.procfs import Denied, Gone, ProcError, age, open_kernel_file
from hangdoc.regex import regex
from hangdoc.snapshot import CardEvent, CardEvents, Unavailable

_LOG = "/dev/kmsg"
_LOG_NUMBER = (1, 11)
"""Major and minor number of /dev/kmsg (Documentation/admin-guide/devices.txt)."""
_RECORD_BYTES = 16 << 10
_MOST_RECORDS, _MOST_SECONDS = 50_000, 0.2
"""For one look. A log of 1 MiB has about 10,000 records, which take 20 ms; the next look continues."""
_MOST_EVENTS = 128
_FACILITY_BITS = 3
_SLACK_SECONDS = 5.0
"""The kernel log's clock drifts."""
_PCI = r"\(PCI:(?P<bus>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.\d)?(?: GPU-I:\d+)?\): (?P<number>\d{1,6})\b,? ?"
_XID = regex(r"NVRM: (?P<kind>Xid) " + _PCI)
_SXID = regex(r"nvidia-nvswitch\d{1,4}: (?P<kind>SXid) " + _PCI)
_PROCESS = regex(
    r"pid=(?P<pid>\d{1,10}|'?<unknown>'?)(?:, name=.{0,40}?)?, (?:(?:channel|Ch) \w{1,20}(?:, ?|$))?(?:intr \w{1,10}\. ?)?"
)
_MOST_TEXT = 160


class KernelLog:
    """The probe. Its log stays open between polls, which read what is new."""

    name = "kernel log"

    def __init__(self, *, once: bool = False, device: str = DEVICE, log: Callable[[], int] | None = None) -> None:
        """`device` is the file without which there is no driver that writes anything. `log` returns a descriptor that does
        not block; it raises ProcError."""
        self._once, self._device, self._open_log = once, device, log if log is not None else open_log
        self._log = -1
        self._refused: Unavailable | None = None
        self._events: dict[tuple[str, str, int, int | None], tuple[float, CardEvent]] = {}
        """By what makes them equal: the time of the first, and the event."""
        self._newest = 0.0
        """The time of the newest record, by the clock of the log."""

    def open(self, observation: Observation) -> None:
        """Read nothing: the kernel keeps what comes meanwhile."""

    def during(self, observation: Observation) -> None:
        """Read the log up to now."""
        self._read(observation)

    def close(self, observation: Observation) -> None:
        """Read what is new."""
        self._read(observation)

    def start_next_window(self, observation: Observation) -> None:
        """Nothing is kept of a window."""

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """The errors since the oldest observed process began; nothing on a host without a driver."""
        if self._refused is not None:
            yield None, "card_events", self._refused
        elif self._log >= 0:
            yield None, "card_events", CardEvents(events=tuple(self._since(observation)))
        if self._once:
            self.release()

    def release(self) -> None:
        """Close the log."""
        log, self._log = self._log, -1
        if log >= 0:
            os.close(log)

    def _since(self, observation: Observation) -> Iterable[CardEvent]:
        now = max(time.monotonic(), self._newest)
        ages = [age(observation.proc, target.start_ticks) for target in observation.targets.values()]
        oldest = max(ages, default=0.0) + _SLACK_SECONDS
        shows_all = observation.proc.shows_all()
        for at, event in sorted(self._events.values(), key=lambda dated: dated[0]):
            if now - at <= oldest:
                yield replace(event, seconds_ago=round(now - at, 1), pid=event.pid if shows_all else None)

    def _read(self, observation: Observation) -> None:
        if self._log < 0:
            if self._refused is not None or not observation.ranks() or not own_root().has(self._device):
                return
            try:
                self._log = self._open_log()
            except ProcError as error:
                self._refused = Unavailable(reason=_reason(error))
                return
        end = time.monotonic() + _MOST_SECONDS
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(self._log, _RECORD_BYTES)
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.EINVAL):  # records were overwritten; one is too long
                    continue
                return  # EAGAIN: that was the last one
            if not record or time.monotonic() > end:
                return
            self._take(record)

    def _take(self, record: bytes) -> None:
        parsed = parse(record)
        if parsed is None:
            return
        at, event = parsed
        self._newest = max(self._newest, at)
        if event is None:
            return
        key = (event.kind, event.bus_id, event.number, event.pid)
        first = self._events.get(key)
        self._events[key] = (at, event) if first is None else (first[0], replace(first[1], count=first[1].count + 1))
        while len(self._events) > _MOST_EVENTS:
            del self._events[min(self._events, key=lambda event_key: self._events[event_key][0])]


def parse(record: bytes) -> tuple[float, CardEvent | None] | None:
    """The time of a record in seconds since boot, and the error that it reports, if any. None if a process wrote the record, or
    if it has no known format."""
    prefix, _, rest = record.partition(b";")
    fields = prefix.split(b",")
    try:
        priority, at = int(fields[0]), int(fields[2]) / 1e6
    except (ValueError, IndexError):
        return None
    if priority >> _FACILITY_BITS:
        return None
    line = rest.partition(b"\n")[0].decode("ascii", "replace")
    match = _XID.match(line) or _SXID.match(line)
    if match is None:
        return at, None
    text = line[match.end() :]
    process = _PROCESS.match(text)
    pid = process["pid"] if process is not None and process["pid"].isdecimal() else None
    return at, CardEvent(
        kind=match["kind"],
        number=int(match["number"]),
        bus_id=f"{match['bus'][-10:]}.0",
        pid=int(pid) if pid is not None else None,
        seconds_ago=0.0,
        text=_clean(text[process.end() :] if process is not None else text),
    )


def _clean(text: str) -> str:
    kept = "".join(letter if letter.isprintable() and letter.isascii() else "?" for letter in text).strip(" .,")
    return kept if len(kept) <= _MOST_TEXT else kept[: _MOST_TEXT - 3] + "..."


def open_log() -> int:
    """The kernel log, at its oldest record. Raises ProcError."""
    log = open_kernel_file(_LOG)
    about = os.fstat(log)
    if not stat.S_ISCHR(about.st_mode) or (os.major(about.st_rdev), os.minor(about.st_rdev)) != _LOG_NUMBER:
        with contextlib.suppress(OSError):
            os.close(log)
        raise ProcError(f"{_LOG} is not the kernel log")
    return log


def _reason(error: ProcError) -> str:
    if isinstance(error, Denied):
        return "the kernel log can't be read: run hangdoc as root on the host (kernel.dmesg_restrict)"
    if isinstance(error, Gone):
        return "this container has no kernel log: run hangdoc on the host"
    return str(error)
