"""Reading another interpreter's memory: every kind of value, checked against a real process."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hangdoc.observe.layout import Layout
from hangdoc.observe.locate import locate
from hangdoc.observe.memory import Memory, Unreadable
from hangdoc.observe.procfs import ProcFS
from hangdoc.observe.python_state import Modules, amounts, inner_environment, variable

PROGRAM = """
import os, sys
os.environ["SET_LATER"] = "yes, später"
small, negative, large, huge = 7, -5, 2**40 + 3, 2**90
flag, ratio, name, wide = True, 2.5, "plain", "日本"
items, pair, table, group, empty = [1, 2, 3], (1, 2), {"a": 1}, {1, 2, 3, 4}, []
class Data:
    def __init__(self, n): self.paths, self.size, self.name = list(range(n)), n, "x"
class Loader:
    def __init__(self, data): self.dataset, self.batch_size, self._private = data, 4, 9
loader = Loader(Data(12))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def victim(can_attach: None) -> Iterator[int]:
    child = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child.pid
    child.kill()
    child.communicate()


def test_every_kind_of_value(victim: int) -> None:
    image = locate(ProcFS(), victim)
    assert image.version == sys.version_info[:2]
    with Memory(victim, image.layout) as memory:
        main = Modules(memory, image).namespace("__main__")["__main__"]
        texts = {}
        for name, address in main.items():
            try:
                value = variable(memory, name, address)
            except Unreadable:
                continue
            if value is not None:
                texts[name] = value.text
    expected = {
        "small": "7", "negative": "-5", "large": str(2**40 + 3), "flag": "True", "ratio": "2.5",
        "name": "'plain'", "wide": "'日本'", "items": "<list of 3>", "pair": "<tuple of 2>",
        "table": "<dict of 1>", "group": "<set of 4>", "empty": "<list of 0>",
    }  # fmt: skip
    assert {name: texts.get(name) for name in expected} == expected
    assert "huge" not in texts


def test_amounts_inside_objects(victim: int) -> None:
    image = locate(ProcFS(), victim)
    with Memory(victim, image.layout) as memory:
        loader = Modules(memory, image).namespace("__main__")["__main__"]["loader"]
        found = {v.name: (v.number, v.length) for v in amounts(memory, "loader", loader)}
    assert found == {
        "loader.dataset.paths": (None, 12),
        "loader.dataset.size": (12, None),
        "loader.batch_size": (4, None),
    }


def test_the_environment_as_it_is_now(victim: int) -> None:
    image = locate(ProcFS(), victim)
    with Memory(victim, image.layout) as memory:
        inside = inner_environment(memory, Modules(memory, image).namespace("os")["os"])
    assert inside["SET_LATER"] == "yes, später"
    assert inside["PATH"] == os.environ["PATH"]
    assert "SET_LATER" not in ProcFS().environ(victim)


def test_nonsense_addresses_are_refused(victim: int) -> None:
    with Memory(victim, Layout()) as memory:
        for address in (0, 8, 1 << 46, 1 << 63, 12345678):
            with pytest.raises(Unreadable):
                memory.text(address)


def test_a_process_without_python_is_said_to_be_one() -> None:
    child = subprocess.Popen(["sleep", "30"])
    try:
        with pytest.raises(Unreadable, match="no CPython"):
            locate(ProcFS(), child.pid)
    finally:
        child.kill()
        child.wait()
