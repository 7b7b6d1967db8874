"""Removes secrets before anything is stored, printed or sent.

`snapshot` is the one gate: `observe` passes every snapshot through it, so bundles, reports, pages and webhooks, which are made
from snapshots, hold nothing that it has not seen. `node_report` is the same for what preflight sends.

What it removes, and what it keeps: docs/privacy.md.
"""

from hangdoc.redact.evidence import LOCALS, Locals, node_report, snapshot
from hangdoc.redact.looks import REDACTED, text
from hangdoc.redact.names import names_a_secret
from hangdoc.redact.source import source
from hangdoc.redact.values import NOT_STORED, local
from hangdoc.redact.words import argv, environment, variable

__all__ = [
    "LOCALS",
    "NOT_STORED",
    "REDACTED",
    "Locals",
    "argv",
    "environment",
    "local",
    "names_a_secret",
    "node_report",
    "snapshot",
    "source",
    "text",
    "variable",
]
