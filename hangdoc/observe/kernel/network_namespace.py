"""Creates sockets in the network namespace of another process (network_namespaces(7)). A socket stays where it was created, so
only its creation enters the namespace, and only in a thread of its own: setns(2) changes one thread."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hangdoc.procfs import ProcError, open_kernel_file

_CLONE_NEWNET = 0x40000000

S = TypeVar("S")


def create_in(namespace_file: str | None, create: Callable[[], S]) -> S:
    """What `create` returns in a network namespace. `namespace_file` is /proc/PID/ns/net of a process in another namespace; None
    for our own. Raises PermissionError if it can't be entered, and what `create` raises."""
    if namespace_file is None:
        return create()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_create_inside, namespace_file, create).result()


def _create_inside(namespace_file: str, create: Callable[[], S]) -> S:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = open_kernel_file(namespace_file)
    except ProcError as error:
        raise PermissionError(f"can't enter the rank's network namespace: {error}") from error
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            raise PermissionError(f"can't enter the rank's network namespace: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(descriptor)
    return create()
