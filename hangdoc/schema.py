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
    schema = of(kind)
    schema["properties"]["schema"] = {"const": name}
    schema["required"] = [*schema["required"], "schema"]
    return {"$schema": _DRAFT, "title": name, **schema}


def of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of a struct, with its parts under `$defs`. Docstrings of fields become descriptions."""
    (_,), parts = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
    texts = {name: text for one in _structs(kind) for name, text in [(one.__name__, _descriptions(one))]}
    for name, part in parts.items():
        part.pop("title", None)
        if "description" in part:
            part["description"] = _in_json(part["description"])
        for field, text in texts.get(name, {}).items():
            if field in part.get("properties", {}):
                part["properties"][field].setdefault("description", text)
    root: dict[str, Any] = parts.pop(kind.__name__)
    return {**root, "$defs": dict(sorted(parts.items()))} if parts else root


def _structs(kind: Any) -> set[type[msgspec.Struct]]:
    """A struct and all structs in the types of its fields."""
    found: set[type[msgspec.Struct]] = set()
    open_ = [kind]
    while open_:
        one = open_.pop()
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            if one not in found:
                found.add(one)
                open_ += [field.type for field in msgspec.structs.fields(one)]
        else:
            open_ += getattr(one, "__args__", ())
    return found


@cache
def _descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The docstrings of a struct's own fields; empty if its source is not available."""
    try:
        (body,) = ast.parse(inspect.getsource(kind)).body
    except (OSError, TypeError, SyntaxError):
        return {}
    found = {}
    lines = getattr(body, "body", [])
    for field, text in itertools.pairwise(lines):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            description = ast.literal_eval(text.value) if isinstance(text.value, ast.Constant) else None
            if isinstance(description, str):
                found[field.target.id] = _in_json(description)
    return found


def _in_json(docstring: str) -> str:
    """A docstring for readers of the JSON, in which None is null."""
    return re.sub(r"\bNone\b", "null", " ".join(docstring.split()))
