"""Each module can be imported first: its order in others' imports must not matter."""

import subprocess
import sys
from pathlib import Path

import hangdoc
from hangdoc import reasoning

_EACH = """
import importlib, os, sys, traceback
import hangdoc.diagnosis, hangdoc.program, hangdoc.settings, hangdoc.snapshot
failed = []
for name in sys.argv[1:]:
    if (pid := os.fork()) == 0:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        failed.append(name)
sys.exit(" ".join(failed) or None)
"""
"""A fresh interpreter for each module: a fork of one that has imported none of them, only what is outside of their package."""


def _modules(package: Path) -> list[str]:
    root = Path(hangdoc.__file__).parent.parent
    files = (file.relative_to(root).with_suffix("") for file in package.rglob("*.py"))
    return sorted(".".join(file.parts).removesuffix(".__init__") for file in files)


def test_each_module_of_the_reasoning_alone() -> None:
    modules = _modules(Path(reasoning.__file__).parent)
    assert len(modules) > 50
    ended = subprocess.run([sys.executable, "-c", _EACH, *modules], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
