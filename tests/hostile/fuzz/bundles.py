"""The decoder of bundles: recorded ones in which something was changed, packed or unpacked."""

import functools
import gzip
import json
import zlib
from pathlib import Path
from random import Random
from typing import Any

from hangdoc import codec
from tests.hostile.fuzz.answers import changed_json

_CORPUS = Path(__file__).parents[2] / "corpus"


@functools.lru_cache(1)
def seeds() -> tuple[bytes, ...]:
    """The small bundles of the corpus, packed."""
    return tuple(path.read_bytes() for path in sorted(_CORPUS.glob("*.hangdoc")) if path.stat().st_size < 8_000)


@functools.lru_cache(64)
def _document(seed: bytes) -> Any:
    return json.loads(gzip.decompress(seed))


def attack_bundle(dice: Random) -> None:
    """A bundle of a stranger."""
    seed = dice.choice(seeds())
    kind = dice.random()
    if kind < 0.15:
        raw = bytearray(seed)
        for _ in range(dice.choice((1, 5, 50))):
            raw[dice.randrange(len(raw))] = dice.randrange(256)
        packed = bytes(raw)[: dice.choice((len(raw), dice.randrange(len(raw))))]
    elif kind < 0.3:
        plain = bytearray(gzip.decompress(seed))
        for _ in range(dice.choice((1, 5, 50))):
            plain[dice.randrange(len(plain))] = dice.choice(b'{}[]",:0123456789-e.\\u \xff\x00')
        packed = _packed(bytes(plain))
    else:
        packed = _packed(changed_json(_document(seed), dice))
    read_bundle(packed)


def read_bundle(packed: bytes) -> None:
    """Decode it. What is accepted can be written, and is then the same."""
    try:
        snapshot = codec.decode(packed)
    except codec.BundleError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 1_000, str(error)[:200]
        return
    assert codec.decode(codec.encode(snapshot)) == snapshot


def _packed(plain: bytes) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(plain) + packer.flush()
