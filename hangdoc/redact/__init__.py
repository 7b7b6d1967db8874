"""Removes secrets before anything is stored, printed or sent.

`observe` passes every snapshot through `snapshot`. Bundles, reports, pages and webhooks are made from such snapshots, so all of
their content has been filtered. `node_report` does the same for what preflight sends.

docs/privacy.md says what is removed and what is kept.
"""

from hangdoc.redact.evidence import LOCALS, Locals, node_report, snapshot
from hangdoc.redact.names import names_a_secret
from hangdoc.redact.patterns import REDACTED, text
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
