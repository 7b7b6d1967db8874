"""The addresses and networks of a host."""

import ipaddress

from hangdoc.snapshot import Host, Interface, Machine, Process


def interface_with(host: Host, namespace: str | None, address: str) -> Interface | None:
    """The interface that has an address."""
    return next((one for one in interfaces(host, namespace) if address in one.addresses), None)


def interfaces(host: Host, namespace: str | None) -> tuple[Interface, ...]:
    """The interfaces of a network namespace; empty for a container that was observed from outside."""
    if not isinstance(host.machine, Machine):
        return ()
    other = None not in (namespace, host.machine.net_namespace) and namespace != host.machine.net_namespace
    return () if other else host.machine.interfaces


def networks(host: Host, namespace: str | None) -> dict[str, str]:
    """The networks that a host is in, without loopback, and by which interface."""
    found = interfaces(host, namespace)
    return {network: one.name for one in found if one.up for network in one.networks if not loopback(network)}


def namespace_of(process: Process | None) -> str | None:
    """The network namespace of a process."""
    return process.namespaces.get("net") if process is not None else None


def within(address: str, network: str) -> bool:
    """Whether an address is in a network; False for invalid text."""
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network)
    except ValueError:
        return False


def loopback(address: str) -> bool:
    """Of an address or a network."""
    try:
        return ipaddress.ip_address(address.partition("/")[0]).is_loopback
    except ValueError:
        return False
