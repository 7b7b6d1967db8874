"""The JSON documents of all commands except `diagnose` (docs/json.md). Each names its schema."""

import msgspec

from hangdoc.launch.rows import Row
from hangdoc.preflight.plan import Check, Link, NodeReport


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
    """A document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
