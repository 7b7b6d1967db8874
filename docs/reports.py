"""Writes the reports on the pages, which are hangdoc's current diagnoses of the bundles in docs/reports.

python -m docs.reports [--check]

A page holds `<!-- report NAME OPTIONS -->` and `<!-- /report -->`. Between them are `hangdoc diagnose OPTIONS` and the report of
NAME.hangdoc. OPTIONS are those with which its evidence was collected.
"""

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from hangdoc import codec
from hangdoc.reasoning.engine import diagnose
from hangdoc.render.text import report

FOLDER = Path(__file__).parent / "reports"
_DOCS = FOLDER.parent
PAGES = (
    _DOCS.parent / "README.md",
    _DOCS / "beside.md",
    _DOCS / "walkthrough.md",
    _DOCS / "howto/frozen-now.md",
    _DOCS / "howto/serving.md",
    _DOCS / "howto/rl.md",
)
_BLOCK = re.compile(r"(<!-- report (\w+)( [^\n]*?)? -->\n)(.*?)(<!-- /report -->)", re.DOTALL)


def shown(name: str, options: str = "") -> str:
    """The command and its report, as on a terminal of 80 columns."""
    printed = io.StringIO()
    report(diagnose(codec.read(FOLDER / f"{name}.hangdoc")), Console(file=printed, width=80))
    return f"```text\n$ hangdoc diagnose{options}\n{printed.getvalue().rstrip()}\n```\n"


def page(text: str) -> str:
    """The page with current reports."""
    return _BLOCK.sub(lambda block: f"{block[1]}{shown(block[2], block[3] or '')}{block[5]}", text)


def main() -> int:
    """Write the pages or, with --check, compare them. Returns the exit code."""
    wrong = [path for path in PAGES if page(path.read_text("utf-8")) != path.read_text("utf-8")]
    for path in wrong:
        if "--check" in sys.argv[1:]:
            print(f"{path} shows a report that hangdoc no longer prints: run `make docs`")
        else:
            path.write_text(page(path.read_text("utf-8")), "utf-8")
    return int("--check" in sys.argv[1:] and bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
