"""Bundles: snapshots on disk, as gzip-compressed JSON.

What is read is untrusted (`hangdoc.untrusted`): the sizes are limited, the schema is checked, and every problem is a
`BundleError` with the problem and the remedy.
"""

from collections.abc import Collection
from pathlib import Path

import msgspec

from hangdoc import file_writer, shared_frames, shared_parts, shared_ranks, untrusted
from hangdoc.host_bounds import bounded
from hangdoc.snapshot import SCHEMA, Brought, Host, Snapshot, Unreached
from hangdoc.untrusted import UntrustedError

MAX_BYTES = 512 << 20
"""Limit for the uncompressed JSON. 10,000 ranks take about a fifth of it."""
MAX_FILE_BYTES = 128 << 20
"""Limit for a bundle as it is stored."""
_ALWAYS = 1_000_000
"""How many references to shared frames and variables a bundle may have in any case; beyond it, two for each byte."""


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
    brought: tuple[Brought, ...] = ()
    unused: tuple[str, ...] = ()
    gathered_seconds: float | None = None
    table: msgspec.Raw = msgspec.Raw(b"")
    """See `shared_frames.Table`."""
    locals: tuple[shared_frames.Locals, ...] = ()
    parts: msgspec.Raw = msgspec.Raw(b"")
    """See `shared_parts.Part`."""
    nonce: str = ""
    """That of the request that the bundle answers."""


def encode(snapshot: Snapshot, nonce: str = "") -> bytes:
    """The bytes of a bundle. The same snapshot gives the same bytes. `nonce` is that of the request that it answers."""
    import gzip  # a diagnose that writes no bundle does not need it

    bare, table, variables = shared_frames.share(shared_ranks.share(snapshot))
    bare, parts = shared_parts.share(bare)
    written = _Bundle(
        schema=SCHEMA,
        hangdoc=bare.hangdoc,
        hosts=bare.hosts,
        unreached=bare.unreached,
        brought=bare.brought,
        unused=bare.unused,
        gathered_seconds=bare.gathered_seconds,
        table=msgspec.Raw(msgspec.json.encode(table)),
        locals=variables,
        parts=msgspec.Raw(msgspec.json.encode(parts)),
        nonce=nonce,
    )
    return gzip.compress(msgspec.json.encode(written), compresslevel=7, mtime=0)


def decode(
    raw: bytes, name: str = "bundle", *, nonces: Collection[str] | None = None, limit: int = MAX_BYTES
) -> Snapshot:
    """The snapshot in `raw`, of at most `limit` bytes of JSON. With `nonces`, only a bundle that answers one of these requests is
    accepted: another one was saved before them. Raises BundleError, in whose message `name` is the file."""
    if not raw:
        raise BundleError(f"{name} is empty. Write it again with `hangdoc snapshot -o FILE`.")
    if raw[:2] != b"\x1f\x8b":
        raise BundleError(f"{name} is not a hangdoc bundle. `hangdoc snapshot -o FILE` writes one.")
    try:
        plain = untrusted.unpack(raw, limit)
    except UntrustedError as error:
        raise BundleError(f"{name} {error}. Copy or write it again.") from None
    try:
        bundle = untrusted.decode(plain, _Bundle, limit)
    except UntrustedError as error:
        _check_schema(plain, name)
        raise BundleError(f"{name} {error}. Copy or write it again.") from None
    if bundle.schema not in _READABLE:
        _check_schema(plain, name)
    if nonces is not None and bundle.nonce not in nonces:
        raise BundleError(f"{name} does not answer this request: it was saved earlier. Take a new look.")
    hosts = tuple(map(bounded, bundle.hosts))
    most = _ALWAYS + 2 * len(plain)
    try:
        # Also without a table: then a position in it is damage, which must not be written again.
        table, parts = bytes(bundle.table), bytes(bundle.parts)
        shared_frames.resolve(hosts, shared_frames.table_of(table) if table else (), bundle.locals, most)
        shared_parts.resolve(hosts, shared_parts.parts_of(parts) if parts else ())
        shared_ranks.resolve(hosts, most)
    except UntrustedError as error:
        raise BundleError(f"{name} {error}. Copy or write it again.") from None
    except (LookupError, ValueError, OverflowError) as error:
        raise BundleError(f"{name} is damaged: {error}.") from None
    except (MemoryError, RecursionError):
        raise BundleError(f"{name} is damaged: it does not fit into the memory.") from None
    return Snapshot(
        hangdoc=bundle.hangdoc,
        hosts=hosts,
        unreached=bundle.unreached,
        brought=bundle.brought,
        unused=bundle.unused,
        gathered_seconds=bundle.gathered_seconds,
    )


def _check_schema(plain: bytearray, name: str) -> None:
    """Raises BundleError for anything but a bundle that this version can read."""
    try:
        header = untrusted.decode(plain, _Header, MAX_BYTES)
    except UntrustedError:
        raise BundleError(f"{name} is not a hangdoc bundle: it has no JSON with a schema.") from None
    if header.schema in _READABLE:
        return
    if header.schema.startswith("hangdoc.snapshot/"):
        raise BundleError(
            f"{name} was written by hangdoc {header.hangdoc[:40]} ({header.schema[:40]}), but this version reads {SCHEMA}. "
            "Use the same version of hangdoc on both machines."
        )
    raise BundleError(f"{name} is not a hangdoc bundle: its schema is {header.schema[:40]!r}.")


def read(path: Path) -> Snapshot:
    """The snapshot in the file at `path`. Raises BundleError."""
    try:
        raw = untrusted.read_file(path, MAX_FILE_BYTES)
    except UntrustedError as error:
        raise BundleError(f"{path} {error}. It is not a hangdoc bundle.") from None
    except (OSError, ValueError) as error:
        raise BundleError(f"cannot read {path}: {getattr(error, 'strerror', error)}.") from None
    return decode(raw, str(path))


def write(snapshot: Snapshot, path: Path) -> None:
    """Write the bundle to `path`, as `hangdoc.file_writer` writes. Raises BundleError."""
    write_aside(path, encode(snapshot))


def write_aside(path: Path, content: bytes) -> None:
    """Write a file, as `hangdoc.file_writer` writes. Raises BundleError."""
    try:
        file_writer.write_file(path, content)
    except file_writer.WriteError as error:
        raise BundleError(str(error)) from None
