"""A process whose memory a test changes, as its owner can, and restores."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


class ForgedProcess:
    """A process whose memory the test changes, and restores."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @contextmanager
    def forged(self, writes: dict[int, bytes]) -> Iterator[None]:
        file = os.open(f"/proc/{self.pid}/mem", os.O_RDWR)
        before = {address: os.pread(file, len(raw), address) for address, raw in writes.items()}
        try:
            for address, raw in writes.items():
                os.pwrite(file, raw, address)
            yield
        finally:
            for address, raw in before.items():
                os.pwrite(file, raw, address)
            os.close(file)
