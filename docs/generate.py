"""Writes the generated pages: one per rule from its docstring, their index, the example of a report as a page, out of a recorded
run, and the JSON Schema. `--check` compares instead.

python -m docs.generate [--check]
"""

import inspect
import sys
from pathlib import Path

from hangdoc import codec
from hangdoc.commands import documents
from hangdoc.diagnose.detail import details
from hangdoc.diagnose.engine import examine
from hangdoc.diagnose.rules import all_rules
from hangdoc.render.html import page
from hangdoc.schema import diagnosis_schema

FOLDER = Path(__file__).parent / "rules"
EXAMPLE = Path(__file__).parent / "example.html"
SCHEMA = Path(__file__).parent / "diagnosis.schema.json"
_RECORDED = Path(__file__).parents[1] / "tests" / "corpus" / "trainer_shard_mismatch.hangdoc"


def pages() -> dict[Path, str]:
    """Path to content of every generated page."""
    found = {}
    lines = [
        "# The findings",
        "",
        "Generated from the rules' docstrings by `make docs`.",
        "",
        "| code | name | says |",
        "| --- | --- | --- |",
    ]
    for rule in all_rules():
        text = inspect.cleandoc(rule.__doc__)
        found[FOLDER / f"{rule.CODE}.md"] = f"# {rule.CODE} {rule.NAME}\n\n{text}\n"
        lines.append(
            f"| [{rule.CODE}]({rule.CODE}.md) | {rule.NAME} | {' '.join(text.split(chr(10) * 2)[0].split())} |"
        )
    found[FOLDER / "README.md"] = "\n".join(lines) + "\n"
    diagnosis, runs = examine(codec.read(_RECORDED), patience=2.0)
    found[EXAMPLE] = page(diagnosis, details(diagnosis, runs))
    found[SCHEMA] = documents.text(diagnosis_schema()) + "\n"
    return found


def main() -> int:
    """Write, or compare; the exit code."""
    wanted = pages()
    present = set(FOLDER.glob("*.md"))
    if "--check" in sys.argv[1:]:
        wrong = [p for p, text in wanted.items() if not p.exists() or p.read_text() != text] + sorted(
            present - set(wanted)
        )
        for path in wrong:
            print(f"{path} is not up to date: run `make docs`")
        return bool(wrong)
    FOLDER.mkdir(exist_ok=True)
    for path in present - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
