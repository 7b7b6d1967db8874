"""One module of hangdoc.observe opens files of processes. ruff keeps the others from os.open and its kin, but misses `open`."""

import ast
from pathlib import Path

OBSERVE = Path(__file__).parents[2] / "hangdoc" / "observe"
METHODS = {"read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "rglob", "is_file", "is_dir"}


def test_no_module_of_observe_opens_files_itself() -> None:
    opened = []
    for path in OBSERVE.glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            plain = isinstance(node.func, ast.Name) and node.func.id == "open"
            if plain or (isinstance(node.func, ast.Attribute) and node.func.attr in METHODS):
                opened.append(f"{path.name}:{node.lineno}")
    assert not opened
