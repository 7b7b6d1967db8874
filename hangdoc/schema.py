"""The JSON Schemas of the documents, from their structs and docstrings."""

import ast
import inspect
import itertools
import re
from functools import cache
from typing import Any

import msgspec

from hangdoc import diagnosis

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def diagnosis_schema() -> dict[str, Any]:
    """The schema of `diagnose --json`."""
    return published(diagnosis.Diagnosis, diagnosis.SCHEMA)


def published(kind: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """The schema (draft 2020-12) of a document whose field `schema` is `name`. It allows unknown fields: later versions of
    hangdoc may add some."""
    schema = struct_schema(kind)
    schema["properties"]["schema"] = {"const": name}
    schema["required"] = [*schema["required"], "schema"]
    return {"$schema": _DRAFT, "title": name, **schema}


def struct_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of a struct, with its parts under `$defs`. Docstrings of fields become descriptions."""
    (_,), parts = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
    texts = {
        name: text for struct in _find_structs(kind) for name, text in [(struct.__name__, _read_descriptions(struct))]
    }
    for name, part in parts.items():
        part.pop("title", None)
        if "description" in part:
            part["description"] = _in_json(part["description"])
        for field, text in texts.get(name, {}).items():
            if field in part.get("properties", {}):
                part["properties"][field].setdefault("description", text)
    root: dict[str, Any] = parts.pop(kind.__name__)
    return {**root, "$defs": dict(sorted(parts.items()))} if parts else root


def _find_structs(kind: Any) -> set[type[msgspec.Struct]]:
    """A struct and all structs in the types of its fields."""
    structs: set[type[msgspec.Struct]] = set()
    open_ = [kind]
    while open_:
        annotation = open_.pop()
        if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
            if annotation not in structs:
                structs.add(annotation)
                open_ += [field.type for field in msgspec.structs.fields(annotation)]
        else:
            open_ += getattr(annotation, "__args__", ())
    return structs


@cache
def _read_descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The docstrings of a struct's own fields; empty if its source is not available."""
    try:
        (body,) = ast.parse(inspect.getsource(kind)).body
    except (OSError, TypeError, SyntaxError):
        return {}
    descriptions = {}
    lines = getattr(body, "body", [])
    for field, text in itertools.pairwise(lines):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            description = ast.literal_eval(text.value) if isinstance(text.value, ast.Constant) else None
            if isinstance(description, str):
                descriptions[field.target.id] = _in_json(description)
    return descriptions


def _in_json(docstring: str) -> str:
    """A docstring for readers of the JSON, in which None is null."""
    return re.sub(r"\bNone\b", "null", " ".join(docstring.split()))
