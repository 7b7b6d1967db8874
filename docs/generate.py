"""Writes the generated pages: one per rule from its docstring, and their index. `--check` compares instead.

python -m docs.generate [--check]
"""

import inspect
import sys
from pathlib import Path

from hangdoc.diagnose.rules import all_rules

FOLDER = Path(__file__).parent / "rules"


def pages() -> dict[Path, str]:
    """Path to content of every generated page."""
    found = {}
    lines = [
        "# Findings",
        "",
        "Generated from the docstrings of the rules by `make docs`. `hangdoc rules NAME` prints the same page.",
        "",
        "| code | name | what it means |",
        "| --- | --- | --- |",
    ]
    for rule in all_rules():
        text = inspect.cleandoc(rule.__doc__)
        found[FOLDER / f"{rule.CODE}.md"] = f"# {rule.CODE} {rule.NAME}\n\n{text}\n"
        lines.append(
            f"| [{rule.CODE}]({rule.CODE}.md) | {rule.NAME} | {' '.join(text.split(chr(10) * 2)[0].split())} |"
        )
    found[FOLDER / "README.md"] = "\n".join(lines) + "\n"
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
            print(f"{path} is not what the rules say: run `make docs`")
        return bool(wrong)
    FOLDER.mkdir(exist_ok=True)
    for path in present - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
