"""Frames from code objects in another process, in every Python at hand, compared with what that Python says of its own code."""

import json
import struct
from pathlib import Path

import pytest

from hangdoc.observe.memory.line_tables import line_before
from hangdoc.observe.memory.locate import locate
from hangdoc.observe.memory.memory import Memory
from hangdoc.observe.torch.recorded_frames import Codes
from hangdoc.procfs import ProcFS
from tests.pythons import VERSIONS, command, running

PROGRAM = """
import argparse, inspect, json, os, sys, typing
functions = [f for module in (argparse, inspect, json.decoder, os, typing) for f in vars(module).values()
             if inspect.isfunction(f)]
functions += [f for f in vars(argparse.ArgumentParser).values() if inspect.isfunction(f)]
def spread(
    first, second
):
    try:
        return [first(
            value)
            for value in second
        ]
    except (TypeError,
            ValueError): return second
namespace = {}
exec("def far():\\n x = 1\\n" + "\\n" * 5000 + " return x", namespace)
functions += [spread, namespace["far"]]
codes = [f.__code__ for f in functions]
about = [[id(c), c.co_name, c.co_filename, [[start, end, line] for start, end, line in c.co_lines() if line]] for c in codes]
with open(os.environ["ABOUT"], "w") as file:
    json.dump(about, file)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_every_line_of_real_functions(version: str, tmp_path: Path, can_attach: None) -> None:
    words = command(version)
    if words is None:
        pytest.skip(f"Python {version} is not installed here (`make pythons` runs 3.13 to 3.15)")
    with running(words, PROGRAM, {"ABOUT": str(tmp_path / "about")}) as pid:
        about = json.loads((tmp_path / "about").read_text())
        image = locate(ProcFS(), pid)
        codes = Codes(image)
        with Memory(pid, image.layout) as memory:
            codes.learn(memory)
            codes.refresh(memory, [b"".join(struct.pack("<Qi4x", code, 0) for code, *_ in about)])
    tried = 0
    for code, name, file, lines in about:
        for start, end, line in lines:
            for offset in (start, end - 2):
                frame = codes.frame(code, offset)
                assert frame is not None, name
                assert (frame.function, frame.file, frame.line) == (name, file, line), (name, offset)
                tried += 1
    assert tried > 5_000


def test_damaged_tables_have_some_line() -> None:
    for version in ((3, 10), (3, 12)):
        for table in (b"", b"\xff" * 300, b"\x80" * 300, bytes(range(256)), b"\xf8", b"\xe8\x7f"):
            assert isinstance(line_before(version, table, 7, 20), int)


def test_a_code_object_that_was_replaced_is_read_again(can_attach: None) -> None:
    """Another one may be at the same address later."""
    source = "import os, sys; print('ready', flush=True); sys.stdin.read()"
    words = command(VERSIONS[1])
    if words is None:
        pytest.skip(f"Python {VERSIONS[1]} is not installed here")
    with running(words, source) as pid:
        image = locate(ProcFS(), pid)
        codes = Codes(image)
        with Memory(pid, image.layout) as memory:
            codes.learn(memory)
            system = memory.namespace(memory.find_named(image.modules, ("os",))["os"], ("walk", "getenv"))
            # The offset of `func_code` is the one at which there is a code object.
            at = next(at for at in range(16, 96, 8) if memory.kind(memory.word(system["walk"] + at))[0] == "code")
            first, second = (memory.word(system[name] + at) for name in ("walk", "getenv"))
            codes.refresh(memory, [struct.pack("<Qi4x", first, 0)])
            assert (frame := codes.frame(first, 0)) is not None
            assert frame.function == "walk"
            replaced = memory.read(second, 192)
            read_many = memory.read_many
            memory.read_many = lambda ranges: dict.fromkeys(read_many(ranges), replaced)  # type: ignore[method-assign]
            codes.refresh(memory, [struct.pack("<Qi4x", first, 0)])
            assert (frame := codes.frame(first, 0)) is not None
            assert frame.function == "getenv"
