"""A bundle as lines of text, for transports that carry lines and may add lines of their own (an ssh banner).

    -----HANGDOC 1 BEGIN 0.1.0 1732200000.123-----     when the collector starts: its version and its clock
    H4sIAAAAAAAC/...                                   the bundle in base64, when the observation is complete
    -----HANGDOC 1 END 9f86d081884c7d65-----           the first half of the SHA-256 of the bundle

The input of the reader is untrusted: it limits what it stores, and raises `BundleTextError`.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator

MAX_BYTES = 64 << 20
"""Limit for the compressed bundle of one host, as text. 1,000 ranks take about 3 MiB."""
LINE = 4096
_BEGIN = re.compile(rb"-----HANGDOC (\d{1,4}) BEGIN (\S{1,40}) (\d{1,12}\.\d{1,6})-----")
_END = re.compile(rb"-----HANGDOC 1 END ([0-9a-f]{32})-----")
_FORMAT = 1


class BundleTextError(Exception):
    """The received lines are not a bundle. The text is one clause for the report."""


def begin(version: str, clock: float) -> str:
    """The line that announces that the collector runs. `clock` is in seconds since 1970."""
    return f"-----HANGDOC {_FORMAT} BEGIN {version} {clock:.6f}-----"


def lines(raw: bytes) -> Iterator[str]:
    """The lines of the bundle, and the line that ends it."""
    text = base64.b64encode(raw).decode()
    yield from (text[at : at + LINE] for at in range(0, len(text), LINE))
    yield f"-----HANGDOC {_FORMAT} END {_digest(raw)}-----"


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:32]


class Reader:
    """Reads a bundle line by line. `version` and `clock` (seconds since 1970 on the other host) are set by its first line."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.clock: float | None = None
        self.raw: bytes | None = None
        """The bundle, once it is complete."""
        self._body = bytearray()

    @property
    def size(self) -> int:
        """The bytes that are kept."""
        return len(self._body)

    def feed(self, line: bytes) -> bool:
        """Read one line, without its line end. Returns True for the line that begins the bundle. Lines before and after a bundle
        are ignored. Raises BundleTextError."""
        line = line.strip()
        if self.version is None:
            begun = _BEGIN.fullmatch(line)
            if begun is None:
                return False
            if int(begun[1]) != _FORMAT:
                raise BundleTextError(
                    f"its hangdoc {begun[2].decode('ascii', 'replace')} uses another bundle format: install the same version"
                )
            self.version, self.clock = begun[2].decode("ascii", "replace"), float(begun[3])
            return True
        if self.raw is not None:
            return False
        if ended := _END.fullmatch(line):
            self._finish(ended[1].decode())
            return False
        self._body += line
        if len(self._body) > MAX_BYTES:
            self.drop()
            raise BundleTextError(f"it sent more than {MAX_BYTES >> 20} MiB")
        return False

    def drop(self) -> None:
        """Forget what was read."""
        self._body, self.raw = bytearray(), None

    def _finish(self, digest: str) -> None:
        try:
            raw = base64.b64decode(self._body, validate=True)
        except (binascii.Error, ValueError):
            raise BundleTextError("its bundle is mixed with other output") from None
        if _digest(raw) != digest:
            raise BundleTextError("its bundle was corrupted in transit")
        self.drop()
        self.raw = raw
