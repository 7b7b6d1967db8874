"""Replaces the text between two marks of a page."""

import re
from collections.abc import Sequence
from pathlib import Path


def between(path: Path, mark: str, lines: Sequence[str]) -> None:
    """Replace the text between `<!-- MARK -->` and `<!-- /MARK -->`. Raises ValueError if the marks are missing."""
    text = path.read_text()
    pattern = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{path} has no marks for {mark}")
    path.write_text(pattern.sub(lambda m: m[1] + "\n".join(lines) + "\n" + m[2], text))
