"""docs/privacy.md names every text that a bundle can hold."""

from pathlib import Path

import msgspec
import pytest
from msgspec import inspect as structure

from hangdoc import snapshot

PAGE = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text()
STRUCTS = [
    kind
    for kind in vars(snapshot).values()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == snapshot.__name__
]


def _is_text(kind: structure.Type) -> bool:
    if isinstance(kind, structure.UnionType):
        return any(map(_is_text, kind.types))
    return isinstance(kind, structure.StrType | structure.DictType) or (
        isinstance(kind, structure.VarTupleType) and _is_text(kind.item_type)
    )


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_every_text_is_named(kind: type[msgspec.Struct]) -> None:
    about = structure.type_info(kind)
    assert isinstance(about, structure.StructType)
    fields = [field.name for field in about.fields if _is_text(field.type)]
    missing = [name for name in fields if f"`{kind.__name__}.{name}`" not in PAGE]
    assert not missing, (
        f"say in docs/privacy.md what a bundle holds in {', '.join(f'{kind.__name__}.{m}' for m in missing)}"
    )


def test_nothing_is_named_that_is_gone() -> None:
    known = {f"{kind.__name__}.{name}" for kind in STRUCTS for name in kind.__struct_fields__}
    owners = {kind.__name__ for kind in STRUCTS}
    for quoted in PAGE.split("`")[1::2]:
        owner, dot, _ = quoted.partition(".")
        assert not dot or owner not in owners or quoted in known, quoted
