"""The JSON documents of all commands except `diagnose` (docs/json.md). Each names its schema."""

import re

import msgspec

from hangdoc.launch.rows import Row
from hangdoc.preflight.plan import Check, Link, NodeReport
from hangdoc.regex import regex

_NOT_ASCII = regex(r"[^\x00-\x7e]+")


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all documents."""


class Comparison(Document, frozen=True, kw_only=True):
    """`launch-diff`: launch lines side by side."""

    lines: tuple[str, ...]
    """The name of each line: its host, file or node rank. `Row.values` has the same order."""
    rows: tuple[Row, ...]
    """The most serious first."""
    derived: dict[str, str]
    """World size and other numbers derived from the lines, as text."""
    schema: str = "hangdoc.launch-diff/1"


class Preflight(Document, frozen=True, kw_only=True):
    """`preflight`: the checks before a launch."""

    nodes: tuple[str, ...]
    """The nodes that answered."""
    checks: tuple[Check, ...]
    """In the order in which to fix them."""
    all_reduce_seconds: float | None
    """Prediction for the gradients of one step; None without a measured link or a number of parameters."""
    links: tuple[Link, ...]
    reports: tuple[NodeReport, ...]
    schema: str = "hangdoc.preflight/1"


class Able(Document, frozen=True, kw_only=True):
    """One thing that hangdoc needs."""

    name: str
    works: bool
    found: str
    remedy: str
    """How to fix it; empty if it works."""


class Doctor(Document, frozen=True, kw_only=True):
    """`doctor`: what hangdoc can access on this host."""

    hangdoc: str
    abilities: tuple[Able, ...]
    missing: int
    """Number of abilities that do not work."""
    schema: str = "hangdoc.doctor/1"


class RulePage(Document, frozen=True, kw_only=True):
    """One rule."""

    code: str
    name: str
    says: str
    """What it finds, in one sentence."""
    page: str | None = None
    """Its full page in Markdown, if one rule was requested."""


class Rules(Document, frozen=True, kw_only=True):
    """`rules`: the catalogue of findings, or one of them with its page."""

    rules: tuple[RulePage, ...]
    schema: str = "hangdoc.rules/1"


BY_COMMAND: dict[str, type[Document]] = {
    "preflight": Preflight, "launch-diff": Comparison, "doctor": Doctor, "rules": Rules,
}  # fmt: skip


def text(document: object) -> str:
    """A document as indented JSON in ASCII, which every standard output can write. Other characters are `\\uXXXX`, so that a
    process cannot make a terminal show another text with bidi controls."""
    return _NOT_ASCII.sub(_escape, msgspec.json.format(_encode(document), indent=2).decode())


def _encode(document: object) -> bytes:
    try:
        return msgspec.json.encode(document)
    except (
        UnicodeEncodeError
    ):  # a path or an argument that is not UTF-8: Python holds its bytes as surrogates, which become `?`
        import json

        return json.dumps(msgspec.to_builtins(document), ensure_ascii=False).encode("utf-8", "replace")


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
