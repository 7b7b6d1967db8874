"""InfiniBand and RoCE ports: whether they are up, and which of their counters grow.

Of the names, those of `counters` are in Documentation/ABI/stable/sysfs-class-infiniband, and those of `hw_counters` are mlx5's
("Understanding mlx5 Linux Counters").
"""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hangdoc.observe.access.observation import Observation, ProbeResult
from hangdoc.procfs import ProcError, ProcFS
from hangdoc.snapshot import LinkPort, Links

_COUNTERS = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
    "port_xmit_discards", "port_xmit_constraint_errors", "port_rcv_constraint_errors", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)  # fmt: skip
_HW_COUNTERS = (
    "local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "implied_nak_seq_err", "rnr_nak_retry_err", "out_of_buffer",
    "req_cqe_error", "resp_cqe_error", "np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets",
)  # fmt: skip
_RECEIVED, _SENT = "port_rcv_data", "port_xmit_data"
_WORD_BYTES = 4
"""The counters of data count words."""
_MOST_DEVICES, _MOST_PORTS = 64, 8
_OWNERS_SECONDS = 30.0
"""Which processes have a device open is read again after this time."""


def read_states(root: str = "/sys") -> dict[tuple[str, int], str | None]:
    """The state of each port of this host, by device and number."""
    return {place: port.state for place, port in LinkPorts(root)._read_ports().items()}


class _Port(NamedTuple):
    """One reading of a port."""

    layer: str | None
    state: str | None
    physical_state: str | None
    counters: dict[str, int]


class LinkPorts:
    """The probe."""

    name = "links"

    def __init__(self, root: str = "/sys") -> None:
        self._sys = ProcFS(root)
        self._first: dict[tuple[str, int], _Port] = {}
        self._second: dict[tuple[str, int], _Port] = {}
        self._owners: dict[int, tuple[float, frozenset[str]]] = {}
        """By pid: when they were read, and the devices that it has open."""

    def open(self, observation: Observation) -> None:
        """Read the counters, unless they were read before: polls add processes."""
        self._first = self._first or self._read_ports()

    def during(self, observation: Observation) -> None:
        """Find out which ranks have which device open."""
        self._read_owners(observation)

    def close(self, observation: Observation) -> None:
        """Read the counters again."""
        self._second = self._read_ports()
        self._read_owners(observation)

    def start_next_window(self, observation: Observation) -> None:
        """The end of this window becomes the beginning of the next."""
        self._first = self._second

    def evidence(self, observation: Observation) -> Iterable[ProbeResult]:
        """All ports; nothing on a host without any."""
        if self._second:
            ports = (self._across(device, number) for device, number in sorted(self._second))
            yield None, "links", Links(ports=tuple(ports))

    def _across(self, device: str, number: int) -> LinkPort:
        port = self._second[device, number]
        before = self._first.get((device, number), port).counters
        grown = {name: count - before[name] for name, count in port.counters.items() if name in before}
        moved = {name: grown.pop(name) * _WORD_BYTES if name in grown else None for name in (_RECEIVED, _SENT)}
        return LinkPort(
            device=device,
            port=number,
            layer=port.layer,
            state=port.state,
            physical_state=port.physical_state,
            pids=tuple(sorted(pid for pid, (_, devices) in list(self._owners.items()) if device in devices)),
            grown={name: more for name, more in grown.items() if more > 0},
            received_bytes=moved[_RECEIVED],
            sent_bytes=moved[_SENT],
        )

    def _read_ports(self) -> dict[tuple[str, int], _Port]:
        return {
            (device, number): port for device in self._list_devices() for number, port in self._read_ports_of(device)
        }

    def _list_devices(self) -> list[str]:
        try:
            return sorted(self._sys.links("class/infiniband"))[:_MOST_DEVICES]
        except ProcError:
            return []

    def _read_ports_of(self, device: str) -> Iterator[tuple[int, _Port]]:
        for number in range(1, _MOST_PORTS + 1):
            place = f"class/infiniband/{device}/ports/{number}"
            state = self._read_word(f"{place}/state")
            if state is None:
                return
            counters = {name: f"{place}/counters/{name}" for name in (*_COUNTERS, _RECEIVED, _SENT)}
            counters |= {name: f"{place}/hw_counters/{name}" for name in _HW_COUNTERS}
            counts = {name: self._read_word(path) for name, path in counters.items()}
            yield (
                number,
                _Port(
                    self._read_word(f"{place}/link_layer"),
                    state,
                    self._read_word(f"{place}/phys_state"),
                    {name: int(count) for name, count in counts.items() if count is not None and count.isdecimal()},
                ),
            )

    def _read_word(self, path: str) -> str | None:
        """A short text of a file. States are written as `4: ACTIVE`."""
        try:
            return self._sys.head(path, 64).decode("ascii", "replace").strip().rpartition(": ")[2]
        except ProcError:
            return None

    def _read_owners(self, observation: Observation) -> None:
        """The devices that each rank has open: /dev/infiniband/uverbsN belongs to the device in `ibdev`."""
        if not self._first and not self._second:
            return
        now = time.monotonic()
        self._owners = {pid: reading for pid, reading in list(self._owners.items()) if pid in observation.targets}
        due = [
            target
            for target in observation.ranks()
            if target.state not in "ZX" and now - self._owners.get(target.pid, (float("-inf"), ()))[0] > _OWNERS_SECONDS
        ]
        if due:
            names = self._list_device_files()
            for target in due:
                self._owners[target.pid] = now, _list_opened(observation.proc, target.pid, names)

    def _list_device_files(self) -> dict[str, str]:
        """Names of devices by their device files."""
        try:
            files = self._sys.links("class/infiniband_verbs")
        except ProcError:
            return {}
        devices = {name: self._read_word(f"class/infiniband_verbs/{name}/ibdev") for name in files}
        return {f"/dev/infiniband/{name}": device for name, device in devices.items() if device is not None}


def _list_opened(proc: ProcFS, pid: int, names: dict[str, str]) -> frozenset[str]:
    try:
        return frozenset(names[link] for link in proc.links(f"{pid}/fd").values() if link in names)
    except ProcError:
        return frozenset()
