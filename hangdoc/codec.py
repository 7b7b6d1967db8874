"""Bundles: snapshots on disk, as gzip-compressed JSON.

`write` is atomic: it writes a temporary file and renames it. The input of `read` is untrusted: it limits the size, checks the
schema, and raises `BundleError` with the problem and the remedy.
"""

import contextlib
import os
import zlib
from pathlib import Path

import msgspec

from hangdoc import shared_frames, shared_parts, shared_ranks
from hangdoc.snapshot import SCHEMA, Host, Snapshot, Unreached

MAX_BYTES = 1 << 30
"""Limit for the uncompressed JSON. 10,000 ranks take about a tenth of it."""


class BundleError(Exception):
    """A bundle can't be read or written. The message gives the problem and the remedy."""


_READABLE = (SCHEMA, "hangdoc.snapshot/3", "hangdoc.snapshot/2")


class _Header(msgspec.Struct):
    schema: str = ""
    hangdoc: str = "?"


class _Bundle(msgspec.Struct, omit_defaults=True):
    """The format of a bundle."""

    schema: str
    hangdoc: str
    hosts: tuple[Host, ...]
    unreached: tuple[Unreached, ...] = ()
    gathered_seconds: float | None = None
    table: msgspec.Raw = msgspec.Raw(b"")
    """See `shared_frames.Table`."""
    locals: tuple[shared_frames.Locals, ...] = ()
    parts: msgspec.Raw = msgspec.Raw(b"")
    """See `shared_parts.Part`."""


_DECODER = msgspec.json.Decoder(_Bundle)


def encode(snapshot: Snapshot) -> bytes:
    """The bytes of a bundle. The same snapshot gives the same bytes."""
    import gzip  # a diagnose that writes no bundle does not need it

    bare, table, variables = shared_frames.share(shared_ranks.share(snapshot))
    bare, parts = shared_parts.share(bare)
    written = _Bundle(
        schema=SCHEMA,
        hangdoc=bare.hangdoc,
        hosts=bare.hosts,
        unreached=bare.unreached,
        gathered_seconds=bare.gathered_seconds,
        table=msgspec.Raw(msgspec.json.encode(table)),
        locals=variables,
        parts=msgspec.Raw(msgspec.json.encode(parts)),
    )
    return gzip.compress(msgspec.json.encode(written), compresslevel=7, mtime=0)


def decode(raw: bytes, name: str = "bundle") -> Snapshot:
    """The snapshot in `raw`. Raises BundleError, in whose message `name` is the file."""
    if not raw:
        raise BundleError(f"{name} is empty. Write it again with `hangdoc snapshot -o FILE`.")
    if raw[:2] != b"\x1f\x8b":
        raise BundleError(f"{name} is not a hangdoc bundle. `hangdoc snapshot -o FILE` writes one.")
    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(raw, MAX_BYTES)
    except zlib.error as error:
        raise BundleError(f"{name} is damaged ({error}). Copy or write it again.") from error
    if not unpacker.eof:
        if unpacker.unconsumed_tail:
            raise BundleError(f"{name} unpacks to more than {MAX_BYTES >> 30} GiB. It is not a hangdoc bundle.")
        raise BundleError(f"{name} is truncated. Copy or write it again.")
    try:
        found = _DECODER.decode(plain)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _check_schema(plain, name)
        raise BundleError(f"{name} is damaged ({error}). Copy or write it again.") from error
    if found.schema not in _READABLE:
        _check_schema(plain, name)
    try:
        if raw_table := bytes(found.table):
            shared_frames.resolve(found.hosts, shared_frames.table_of(raw_table), found.locals)
        if raw_parts := bytes(found.parts):
            shared_parts.resolve(found.hosts, shared_parts.parts_of(raw_parts))
        shared_ranks.resolve(found.hosts)
    except (msgspec.DecodeError, LookupError, ValueError) as error:
        raise BundleError(f"{name} is damaged: {error}.") from error
    return Snapshot(
        hangdoc=found.hangdoc, hosts=found.hosts, unreached=found.unreached, gathered_seconds=found.gathered_seconds
    )


def _check_schema(plain: bytes, name: str) -> None:
    """Raises BundleError for anything but a bundle that this version can read."""
    try:
        header = msgspec.json.decode(plain, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BundleError(f"{name} is not a hangdoc bundle: it has no JSON with a schema.") from error
    if header.schema in _READABLE:
        return
    if header.schema.startswith("hangdoc.snapshot/"):
        raise BundleError(
            f"{name} was written by hangdoc {header.hangdoc} ({header.schema}), but this version reads {SCHEMA}. "
            "Use the same version of hangdoc on both machines."
        )
    raise BundleError(f"{name} is not a hangdoc bundle: its schema is {header.schema[:40]!r}.")


def read(path: Path) -> Snapshot:
    """The snapshot in the file at `path`. Raises BundleError."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}.") from error
    return decode(raw, str(path))


def write(snapshot: Snapshot, path: Path) -> None:
    """Write the bundle to `path` atomically. Raises BundleError."""
    write_aside(path, encode(snapshot))


def write_aside(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically: to a temporary file next to it, which is then renamed. Raises BundleError."""
    import tempfile  # most commands do not write a file

    aside: str | None = None
    try:
        handle, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # without this, a crash of the host may leave an empty file
        Path(aside).chmod(0o600)
        Path(aside).replace(path)
    except OSError as error:
        raise BundleError(f"cannot write {path}: {error.strerror}. Choose another path.") from error
    finally:
        if aside is not None:
            with contextlib.suppress(OSError):
                os.unlink(aside)
