"""Errors of cards in the kernel log: the lines of a real card, and lines that only look like them."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.gpu.kernel_log import KernelLog, parse
from hangdoc.procfs import Denied, Gone, ProcFS
from hangdoc.redact import snapshot as redacted
from hangdoc.snapshot import CardEvent, CardEvents, Host, Snapshot, Unavailable

FAULT = (
    "NVRM: Xid (PCI:0000:00:06): 31, pid=2266, name=python3, channel 0x0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 "
    "GPCCLIENT_T1_8 faulted @ 0x1_23450000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"
)
"""Of an H100 with driver 580.159.04."""
RESET = "NVRM: Xid (PCI:0000:00:06): 43, pid=2273, name=python3, channel 0x0000000a"


def record(message: str, at: float = 0.0, priority: int = 3) -> bytes:
    """As /dev/kmsg returns it."""
    return f"{priority},1087,{int(at * 1e6)},-;{message}\n SUBSYSTEM=pci\n".encode()


def event(message: str, priority: int = 3) -> CardEvent | None:
    parsed = parse(record(message, priority=priority))
    return parsed[1] if parsed is not None else None


def test_the_lines_of_a_real_card() -> None:
    assert event(FAULT) == CardEvent(
        kind="Xid",
        number=31,
        bus_id="0000:00:06.0",
        pid=2266,
        seconds_ago=0.0,
        text="MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_8 faulted @ 0x1_23450000. Fault is of type FAULT_PDE "
        "ACCESS_TYPE_VIRT_WRITE",
    )
    assert event(RESET) == CardEvent(kind="Xid", number=43, bus_id="0000:00:06.0", pid=2273, seconds_ago=0.0)


@pytest.mark.parametrize(
    ("message", "kind", "number", "bus_id", "pid", "text"),
    [
        ("NVRM: Xid (PCI:0000:23:00): 79, GPU has fallen off the bus.", "Xid", 79, "0000:23:00.0", None,
         "GPU has fallen off the bus"),
        ("NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "Xid", 79,
         "0000:01:00.0", None, "GPU has fallen off the bus"),
        ("NVRM: Xid (PCI:0000:0f:00): 119, pid=77, name=a b, Timeout after 6s of waiting for RPC response from GPU0 GSP!", "Xid",
         119, "0000:0f:00.0", 77, "Timeout after 6s of waiting for RPC response from GPU0 GSP!"),
        ("NVRM: Xid (PCI:0000:41:00 GPU-I:05): 13, pid=5, name=x, Graphics Exception", "Xid", 13, "0000:41:00.0", 5,
         "Graphics Exception"),
        ("NVRM: Xid (PCI:0000:01:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x1)", "Xid", 144, "0000:01:00.0", None,
         "SAW_MVB Nonfatal XC0 i0 Link 0 (0x1)"),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", "SXid",
         12028, "0000:05:00.0", None, "Non-fatal, Link 32 egress non-posted PRIV error (First)"),
    ],
)  # fmt: skip
def test_other_forms(message: str, kind: str, number: int, bus_id: str, pid: int | None, text: str) -> None:
    assert event(message) == CardEvent(kind=kind, number=number, bus_id=bus_id, pid=pid, seconds_ago=0.0, text=text)


@pytest.mark.parametrize(
    "message",
    [
        # what a process with the name `NVRM: Xid (PCI:` makes the kernel write
        "NVRM: Xid (PCI:[1234]: segfault at 79 ip 00007f7c7ac79000 sp 0 error 4",
        "NVRM: Xid (PCI: page allocation failure: order:4",
        "oom-kill:constraint=CONSTRAINT_NONE,task=NVRM: Xid (PCI:0000:00:06): 79, GPU has fallen off the bus.",
        " NVRM: Xid (PCI:0000:00:06): 79, GPU has fallen off the bus.",
        "NVRM: GPU at PCI:0000:00:06: GPU-d79f8e37-af6a-fd5b-f425-fad6846b2c4b",
        "NVRM: Xid (PCI:0000:00:06): , GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:00:06): 79999999, GPU has fallen off the bus.",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): garbled, Fatal",
    ],
)
def test_lines_that_are_no_error_of_a_card(message: str) -> None:
    assert event(message) is None


@pytest.mark.parametrize("priority", [8 + 3, 12, 3 * 8 + 3])
def test_a_line_that_a_process_wrote_is_none(priority: int) -> None:
    """Root may write to /dev/kmsg. The kernel gives such records another facility than its own (devkmsg_write)."""
    assert parse(record(FAULT, priority=priority)) is None


@pytest.mark.parametrize("raw", [b"", b";", b"3,1", b"x,1,2,-;" + FAULT.encode(), b"3,1,y,-;" + FAULT.encode()])
def test_a_record_of_another_format_is_none(raw: bytes) -> None:
    assert parse(raw) is None


def test_a_long_text_with_odd_letters_is_cleaned() -> None:
    found = event("NVRM: Xid (PCI:0000:00:06): 13, pid=1, name=x, " + "\x1b[31mé" * 400)
    assert found is not None
    assert len(found.text) == 160 and found.text.isascii() and found.text.isprintable()


def test_the_text_passes_the_filter_of_secrets() -> None:
    events = CardEvents(events=tuple(one for one in map(event, (FAULT, RESET)) if one is not None))
    host = Host(
        name="h", taken_at="", window_seconds=1.0, elapsed_seconds=1.0, processes=(), card_events=events
    )  # fmt: skip
    assert redacted(Snapshot(hangdoc="1", hosts=(host,))).hosts[0].card_events == events


# --- the log ------------------------------------------------------------------------------------------------------


class Log:
    """A kernel log of which the test writes the records: each read returns one, and none blocks."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setblocking(False)
        self.descriptor = theirs.detach()

    def write(self, message: str, seconds_ago: float, priority: int = 3) -> None:
        self._ours.send(record(message, time.monotonic() - seconds_ago, priority))

    def close(self) -> None:
        self._ours.close()


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.close()


class AllShown(ProcFS):
    """Of the first pid namespace."""

    def shows_all(self) -> bool:
        return True


@pytest.fixture
def look() -> Observation:
    """Of a rank that has just begun: this process."""
    pid = os.getpid()
    began = ProcFS().stat(str(pid)).start_ticks
    target = Target(pid=pid, ppid=0, role="rank", name="python", argv=(), state="S", start_ticks=began)
    return Observation(proc=AllShown(), deadline=Deadline(30), window=1.0, native="auto", targets={pid: target})


def events(probe: KernelLog, look: Observation) -> tuple[CardEvent, ...]:
    probe.during(look)
    probe.close(look)
    ((_, field, value),) = probe.evidence(look)
    assert field == "card_events" and isinstance(value, CardEvents)
    return value.events


def test_only_what_came_since_the_run_began(log: Log, look: Observation, tmp_path: Path) -> None:
    probe = KernelLog(once=True, device=str(tmp_path), log=lambda: log.descriptor)
    log.write(FAULT.replace("31", "79"), 1e6)
    log.write(FAULT, 0.5)
    (found,) = events(probe, look)
    assert found.number == 31 and 0.4 < found.seconds_ago < 5
    with pytest.raises(OSError):
        os.fstat(log.descriptor)


def test_polls_read_on_and_count_equal_ones(log: Log, look: Observation, tmp_path: Path) -> None:
    probe = KernelLog(device=str(tmp_path), log=lambda: log.descriptor)
    log.write(FAULT, 0.5)
    assert [one.count for one in events(probe, look)] == [1]
    for _ in range(3):
        log.write(FAULT, 0.0)
    log.write("usb 1-1: new device", 0.0)
    log.write(RESET, 0.0)
    assert [(one.number, one.count) for one in events(probe, look)] == [(31, 4), (43, 1)]
    assert events(probe, look)[0].seconds_ago > 0.4
    probe.release()


def test_in_another_pid_namespace_the_pid_is_that_of_another_process(
    log: Log, look: Observation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AllShown, "shows_all", lambda self: False)
    probe = KernelLog(once=True, device=str(tmp_path), log=lambda: log.descriptor)
    log.write(FAULT, 0.0)
    assert [one.pid for one in events(probe, look)] == [None]


def test_a_flood_of_different_errors_is_bounded(log: Log, look: Observation, tmp_path: Path) -> None:
    probe = KernelLog(device=str(tmp_path), log=lambda: log.descriptor)
    for pid in range(400):
        log.write(FAULT.replace("2266", str(pid)), 0.0)
        probe.close(look)
    assert len(events(probe, look)) == 128
    assert events(probe, look)[-1].pid == 399
    probe.release()


@pytest.mark.parametrize(("error", "says"), [(Denied("x"), "run hangdoc as root"), (Gone("x"), "container")])
def test_a_log_that_can_not_be_read_says_why(error: Exception, says: str, look: Observation, tmp_path: Path) -> None:
    def refuse() -> int:
        raise error

    probe = KernelLog(device=str(tmp_path), log=refuse)
    probe.during(look)
    ((_, _, value),) = probe.evidence(look)
    assert isinstance(value, Unavailable) and says in value.reason


def test_without_a_driver_the_log_is_not_read(look: Observation, tmp_path: Path) -> None:
    probe = KernelLog(device=f"{tmp_path}/none", log=lambda: pytest.fail("it was opened"))
    probe.during(look)
    assert list(probe.evidence(look)) == []
