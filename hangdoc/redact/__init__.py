"""Keeps of what was observed only what the diagnosis reads, and removes secrets from that, before it is stored, printed or sent.

`observe` passes every snapshot through `snapshot`. Bundles, reports, pages and webhooks are made from such snapshots, so all of
their content has been filtered. `node_report` does the same for what preflight sends.

There are two nets. The first keeps only texts of known shapes (`shapes`), and values whose names the rules read (`readers`). The
second removes what looks like a secret by its name (`names`) or form (`patterns`).

docs/privacy.md says what is removed and what is kept.
"""

from hangdoc.redact.evidence import LOCALS, Locals, node_report, snapshot
from hangdoc.redact.names import names_a_secret
from hangdoc.redact.patterns import REDACTED, text
from hangdoc.redact.shapes import NOT_STORED, file_name, path
from hangdoc.redact.source import source
from hangdoc.redact.values import local
from hangdoc.redact.words import argv, command, environment, setting_without_secrets, variable, without_secrets

__all__ = [
    "LOCALS",
    "NOT_STORED",
    "REDACTED",
    "Locals",
    "argv",
    "command",
    "environment",
    "file_name",
    "local",
    "names_a_secret",
    "node_report",
    "path",
    "setting_without_secrets",
    "snapshot",
    "source",
    "text",
    "variable",
    "without_secrets",
]
