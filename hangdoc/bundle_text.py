"""A bundle as lines of text, for transports that pass on lines and may say other things before and after (an ssh banner).

    -----HANGDOC 1 BEGIN 0.1.0 1732200000.123-----     as soon as the collector runs: its version, its clock
    H4sIAAAAAAAC/...                                   base64, once it has looked
    -----HANGDOC 1 END 9f86d081884c7d65-----           the first half of the bytes' SHA-256

The reader takes untrusted input: it bounds what it keeps, and raises `BundleTextError`.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator

MAX_BYTES = 256 << 20
"""Of one host's compressed bundle, as text; 1,000 ranks take about a hundredth of it."""
LINE = 4096
_BEGIN = re.compile(rb"-----HANGDOC (\d{1,4}) BEGIN (\S{1,40}) (\d{1,12}\.\d{1,6})-----")
_END = re.compile(rb"-----HANGDOC 1 END ([0-9a-f]{32})-----")
_FORMAT = 1


class BundleTextError(Exception):
    """What came is not a bundle; one clause for a person."""


def begin(version: str, clock: float) -> str:
    """The line that says: the collector runs."""
    return f"-----HANGDOC {_FORMAT} BEGIN {version} {clock:.6f}-----"


def lines(raw: bytes) -> Iterator[str]:
    """The bundle and the line that ends it."""
    text = base64.b64encode(raw).decode()
    yield from (text[at : at + LINE] for at in range(0, len(text), LINE))
    yield f"-----HANGDOC {_FORMAT} END {_digest(raw)}-----"


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()[:32]


class Reader:
    """Takes lines as they come. `version` and `clock` (seconds since 1970 on the other host) are known once it has begun."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.clock: float | None = None
        self.raw: bytes | None = None
        """The bundle, once it is whole."""
        self._body: list[bytes] = []
        self._size = 0

    def feed(self, line: bytes) -> bool:
        """One line, without its end; whether the bundle begins with it. What comes before and after a bundle is passed over."""
        line = line.strip()
        if self.version is None:
            begun = _BEGIN.fullmatch(line)
            if begun is None:
                return False
            if int(begun[1]) != _FORMAT:
                raise BundleTextError(
                    f"it has hangdoc {begun[2].decode('ascii', 'replace')}, which sends another format"
                )
            self.version, self.clock = begun[2].decode("ascii", "replace"), float(begun[3])
            return True
        if self.raw is not None:
            return False
        if ended := _END.fullmatch(line):
            self._finish(ended[1].decode())
            return False
        self._size += len(line)
        if self._size > MAX_BYTES:
            self._body.clear()
            raise BundleTextError(f"it sent more than {MAX_BYTES >> 20} MiB")
        self._body.append(line)
        return False

    def _finish(self, digest: str) -> None:
        try:
            raw = base64.b64decode(b"".join(self._body), validate=True)
        except (binascii.Error, ValueError):
            raise BundleTextError("its bundle is mixed with something else") from None
        if _digest(raw) != digest:
            raise BundleTextError("its bundle was changed on the way")
        self._body.clear()
        self.raw = raw
