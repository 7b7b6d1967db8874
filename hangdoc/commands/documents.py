"""The JSON documents of the commands beside `diagnose` (docs/json.md): one on stdout each, with its schema's name."""

import msgspec

from hangdoc.launch.rows import Row
from hangdoc.preflight.plan import Check, Facts, Link


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all documents."""


class Comparison(Document, frozen=True, kw_only=True):
    """`launch-diff`: launch lines side by side."""

    lines: tuple[str, ...]
    """What each line is called: its host, its file or its node rank. The order of `Row.values`."""
    rows: tuple[Row, ...]
    """The gravest first."""
    derived: dict[str, str]
    """World size and other numbers that follow from the lines, in words."""
    schema: str = "hangdoc.launch-diff/1"


class Preflight(Document, frozen=True, kw_only=True):
    """`preflight`: the checks before a launch."""

    nodes: tuple[str, ...]
    """Those that answered."""
    checks: tuple[Check, ...]
    """In the order in which one would repair things."""
    all_reduce_seconds: float | None
    """Predicted for the gradients of one step; None without a measured link or a number of parameters."""
    links: tuple[Link, ...]
    facts: tuple[Facts, ...]
    schema: str = "hangdoc.preflight/1"


class Able(Document, frozen=True, kw_only=True):
    """One thing that hangdoc needs."""

    name: str
    works: bool
    found: str
    remedy: str
    """What to do where it does not work; empty where it does."""


class Doctor(Document, frozen=True, kw_only=True):
    """`doctor`: what hangdoc can access on this host."""

    hangdoc: str
    abilities: tuple[Able, ...]
    missing: int
    """How many do not work."""
    schema: str = "hangdoc.doctor/1"


class RulePage(Document, frozen=True, kw_only=True):
    """One rule."""

    code: str
    name: str
    says: str
    """What it finds, in one sentence."""
    page: str | None = None
    """Its whole page in Markdown, where one rule was asked for."""


class Rules(Document, frozen=True, kw_only=True):
    """`rules`: the catalogue of findings, or one of them with its page."""

    rules: tuple[RulePage, ...]
    schema: str = "hangdoc.rules/1"


def text(document: object) -> str:
    """A document for a person's eyes: indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
