"""The network interfaces of a network namespace, from the kernel: rtnetlink(7), linux/rtnetlink.h, linux/if_addr.h.

This is not done with psutil, whose import takes 8 ms of CPU. A whole diagnose may take 250.
"""

import socket
import struct
from contextlib import closing

from hangdoc.observe.kernel.netlink import Netlink, attributes
from hangdoc.observe.kernel.network_namespace import create_in
from hangdoc.snapshot import Interface

_NETLINK_ROUTE = 0
_GET_LINK, _GET_ADDRESS = 18, 22
_LINK = struct.Struct("=BxHiII")
"""ifinfomsg: family, type, index, flags, change."""
_ADDRESS = struct.Struct("=BBBBI")
"""ifaddrmsg: family, length of the network's prefix, flags, scope, index of the interface."""
_IFNAME = 3
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
"""For a point-to-point interface, IFA_ADDRESS is the address of the peer."""
_RUNNING = 0x40
_LINK_LOCAL = b"\xfe\x80"


def interfaces(namespace_file: str | None = None) -> tuple[Interface, ...]:
    """All interfaces, sorted by name, of our network namespace or of the one named as for `create_in`. Raises OSError."""
    names: dict[int, tuple[str, bool]] = {}
    addresses: dict[int, list[str]] = {}
    networks: dict[int, list[str]] = {}
    with closing(create_in(namespace_file, lambda: Netlink(_NETLINK_ROUTE))) as netlink:
        for data, at, end in netlink.dump(_GET_LINK, _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0)):
            _, _, index, flags, _ = _LINK.unpack_from(data, at)
            for kind, begin, until in attributes(data, at + _LINK.size, end):
                if kind == _IFNAME:
                    names[index] = data[begin:until].rstrip(b"\0").decode("utf-8", "replace"), bool(flags & _RUNNING)
        for data, at, end in netlink.dump(_GET_ADDRESS, _ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0)):
            family, prefix, _, _, index = _ADDRESS.unpack_from(data, at)
            values = {kind: data[b:e] for kind, b, e in attributes(data, at + _ADDRESS.size, end)}
            raw = values.get(_IFA_LOCAL, values.get(_IFA_ADDRESS))
            if raw is None or family not in (socket.AF_INET, socket.AF_INET6) or index not in names:
                continue
            zone = f"%{names[index][0]}" if family == socket.AF_INET6 and raw[:2] == _LINK_LOCAL else ""
            addresses.setdefault(index, []).append(socket.inet_ntop(family, raw) + zone)
            if family == socket.AF_INET:
                networks.setdefault(index, []).append(_network(addresses[index][-1], prefix))
    return tuple(
        Interface(name=name, up=up, addresses=tuple(addresses.get(index, ())), networks=tuple(networks.get(index, ())))
        for index, (name, up) in sorted(names.items(), key=lambda item: item[1])
    )


def _network(address: str, prefix: int) -> str:
    import ipaddress

    return str(ipaddress.ip_network(f"{address}/{prefix}", strict=False))
