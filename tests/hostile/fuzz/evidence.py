"""What an attack leaves must be evidence that can be stored and read again."""

from typing import TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


def storable(value: T) -> T:
    """The value, which JSON can hold and gives back."""
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value
    return value
