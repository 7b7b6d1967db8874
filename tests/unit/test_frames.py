"""Frames read from the memory of real processes, in every Python at hand."""

import dis
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoc.observe.memory import instructions, line_tables
from hangdoc.observe.memory.frame_layout import LAYOUTS
from hangdoc.observe.memory.frames import Frames, MemoryFrame
from hangdoc.observe.memory.instructions import loops_around, surely_in_use
from hangdoc.observe.memory.line_tables import line_at
from hangdoc.observe.memory.locate import Image
from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.torch.dataloaders import LoopReader
from tests.pythons import command, located

PROGRAM = """
import sys, threading
def numbers(count):
    for number in range(count):
        yield number
def delegate(items):
    yield from items
def innermost(key, pair):
    def closure():
        return key
    print("ready", flush=True)
    sys.stdin.read()
def nested(argument):
    stored = [argument]
    for key, value in enumerate([5, 6, 7]):
        for pair in zip((1, 2), (3, 4)):
            try:
                for number in numbers(9):
                    if number == 4:
                        innermost(
                            key, pair)
            finally:
                stored.append(key)
def in_handler():
    for item in iter([1, 2, 3]):
        with threading.Lock():
            for letter in "ab":
                try:
                    raise ValueError
                except ValueError:
                    nested(item)
suspended = delegate(iter([1, 2, 3, 4]))
next(suspended)
next(suspended)
ended = numbers(0)
list(ended)
fresh = numbers(3)
for epoch in range(3):
    for z in (1, 2):
        results = [in_handler() for y in [1, 2]]
"""
LINES = {line.strip(): number for number, line in enumerate(PROGRAM.splitlines(), 1)}


@pytest.fixture(scope="module", params=[f"{major}.{minor}" for major, minor in LAYOUTS])
def victim(request: pytest.FixtureRequest, can_attach: None) -> Iterator[tuple[int, Image]]:
    with located(request.param, PROGRAM) as found:
        yield found


@pytest.fixture
def memory(victim: tuple[int, Image]) -> Iterator[Memory]:
    with Memory(victim[0], victim[1].layout) as opened:
        yield opened


def stack_of(memory: Memory, image: Image) -> list[MemoryFrame]:
    frames = Frames(memory, image)
    (thread,) = frames.threads()
    return list(frames.stack(thread))


def kinds(memory: Memory, frame: MemoryFrame) -> list[str]:
    return [memory.kind(loop.address)[0] for loop in frame.loops]


def test_functions_lines_and_variables(memory: Memory, victim: tuple[int, Image]) -> None:
    stack = [frame for frame in stack_of(memory, victim[1]) if frame.function != "<listcomp>"]
    assert [frame.function for frame in stack] == ["innermost", "nested", "in_handler", "<module>"]
    assert {frame.file for frame in stack} == {"<string>"}
    assert [frame.line for frame in stack] == [
        LINES["sys.stdin.read()"],
        LINES["innermost("],
        LINES["nested(item)"],
        LINES["results = [in_handler() for y in [1, 2]]"],
    ]
    inner, nested, _, module = stack
    assert memory.integer(inner.variables["key"]) == 0  # kept in a cell, because a closure uses it
    assert memory.integer(nested.variables["number"]) == 4
    assert memory.integer(module.variables["epoch"]) == 0
    assert "pair" in nested.variables
    assert memory.length(nested.variables["stored"]) == 1


def test_frames_are_read_again_if_the_way_outwards_ended_early(memory: Memory, victim: tuple[int, Image]) -> None:
    """A thread that runs: a frame ended while the one that called it was looked up."""
    reader = LoopReader(memory, victim[1])
    (thread,) = reader._frames.threads()
    whole = list(reader._frames.stack(thread))
    readings = iter([[], whole[:1], whole])
    reader._frames.stack = lambda _thread: next(readings)  # type: ignore[assignment,method-assign,return-value]
    assert [frame.function for frame in reader._read_frames(thread)] == [frame.function for frame in whole[::-1]]


def test_iterators_of_the_loops_around_the_line(memory: Memory, victim: tuple[int, Image]) -> None:
    stack = stack_of(memory, victim[1])
    by_name = {frame.function: frame for frame in stack}
    assert kinds(memory, by_name["innermost"]) == []
    nested = by_name["nested"]
    assert kinds(memory, nested) == ["enumerate", "zip", "generator"]
    assert [loop.line for loop in nested.loops] == [
        LINES["for key, value in enumerate([5, 6, 7]):"],
        LINES["for pair in zip((1, 2), (3, 4)):"],
        LINES["for number in numbers(9):"],
    ]
    assert [loop.asked for loop in nested.loops] == [False] * 3
    comprehension = ["tuple_iterator"] if "<listcomp>" not in by_name else []  # inlined since 3.12
    assert kinds(memory, by_name["<module>"]) == ["range_iterator", "tuple_iterator", *comprehension]


def test_iterators_around_a_handler(memory: Memory, victim: tuple[int, Image]) -> None:
    """Since 3.11 the instructions of an `except` clause are behind those of the loop around it."""
    handler = next(frame for frame in stack_of(memory, victim[1]) if frame.function == "in_handler")
    assert [kind for kind in kinds(memory, handler) if kind.endswith("iterator")] == [
        "list_iterator",
        kinds(memory, handler)[-1],
    ]
    assert "str" in kinds(memory, handler)[-1]


def test_frames_of_generators(memory: Memory, victim: tuple[int, Image]) -> None:
    module = stack_of(memory, victim[1])[-1]
    frames = Frames(memory, victim[1])
    suspended = frames.generator_frame(module.variables["suspended"])
    assert (suspended.function, suspended.suspended) == ("delegate", True)
    (delegated,) = kinds(memory, suspended)  # of `yield from`
    assert delegated == "list_iterator"
    assert memory.word(suspended.loops[0].address + 16) == 2
    assert frames.generator_frame(module.variables["fresh"]).suspended
    for name in ("ended", "results", "sys"):
        with pytest.raises((Unreadable, KeyError)):
            frames.generator_frame(module.variables[name])


def test_a_frame_that_has_ended_is_not_the_same(memory: Memory, victim: tuple[int, Image]) -> None:
    frames = Frames(memory, victim[1])
    inner = stack_of(memory, victim[1])[0]
    assert frames.is_same(inner)
    assert not frames.is_same(inner._replace(code=inner.code + 16))
    assert not frames.is_same(inner._replace(address=0))


def test_another_build_is_refused(memory: Memory, victim: tuple[int, Image], monkeypatch: pytest.MonkeyPatch) -> None:
    """One offset of `_PyRuntime`'s own table that differs; in older versions, objects that are not what they must be."""
    image = victim[1]
    layout = LAYOUTS[image.version]
    changed = (
        layout._replace(debug=((layout.debug[0][0], 1),)) if layout.debug else layout._replace(code=layout.code + 8)
    )
    monkeypatch.setitem(LAYOUTS, image.version, changed)
    if layout.debug:
        with pytest.raises(Unreadable, match="unknown form"):
            Frames(memory, image)
    else:
        assert stack_of(memory, image) == []


def test_other_versions_are_refused(memory: Memory, victim: tuple[int, Image]) -> None:
    for version in ((3, 9), (3, 15)):
        with pytest.raises(Unreadable, match="not supported"):
            Frames(memory, victim[1]._replace(version=version))


CHECK = """
import argparse, asyncio.base_events, dis, inspect, re, sys, types, typing
version, codes, seen = sys.version_info[:2], set(), 0
def add(code):
    codes.add(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            add(constant)
def add_functions(holder):
    for value in list(vars(holder).values()):
        if isinstance(value, types.FunctionType):
            add(value.__code__)
modules = [argparse, asyncio.base_events, dis, inspect, re, typing]
modules += [one for name, one in sys.modules.items() if name == "re._compiler"]
for module in modules:
    add_functions(module)
    for value in list(vars(module).values()):
        if isinstance(value, type):
            add_functions(value)
for number in range(200):  # so that some are specialized
    re.compile("[a-z]{3}(x|y)+" + str(number))
for code in codes:
    units = code._co_code_adaptive if version >= (3, 11) else code.co_code
    whole = list(dis.get_instructions(code))
    spans = [(one.offset, one.argval) for one in whole if one.opname == "FOR_ITER"]
    lines = {offset: line for begin, end, line in code.co_lines() for offset in range(begin, end, 2)}
    for one in whole[::9]:
        around = loops_around(version, units, one.offset // 2)
        assert [loop.begin * 2 for loop in around] == [a for a, b in spans if a <= one.offset < b], (code, one, around)
        assert line_at(version, code.co_linetable, code.co_firstlineno, one.offset // 2) == lines.get(one.offset), (code, one)
        seen += len(around)
print(seen)
"""


@pytest.mark.parametrize("version", [f"{major}.{minor}" for major, minor in LAYOUTS])
def test_instructions_as_dis_shows_them(version: str) -> None:
    """Of some modules: the line of every instruction, and the loops around it."""
    words = command(version)
    if words is None:
        pytest.skip(f"Python {version} is not installed here")
    program = Path(instructions.__file__).read_text() + Path(line_tables.__file__).read_text() + CHECK
    checked = subprocess.run([*words, "-"], input=program, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert int(checked.stdout) > 500


RUNNING = sys.version_info[:2]


@pytest.mark.skipif(RUNNING < (3, 11), reason="handlers are in the frame")
def test_what_a_handler_finds_on_the_stack() -> None:
    def function() -> None:
        for _ in ():
            for _ in ():
                try:
                    print()
                except ValueError:
                    print()

    code = function.__code__
    calls = [one.offset // 2 for one in dis.get_instructions(code) if one.opname == "CALL"]
    assert len(calls) == 2
    in_body, in_handler = calls
    assert surely_in_use(code.co_exceptiontable, in_body) == 2
    assert surely_in_use(code.co_exceptiontable, in_handler) >= 2
    assert surely_in_use(code.co_exceptiontable, 0) == 0


@pytest.mark.parametrize("raw", [b"", b"\xff" * 50, b"\x80\x40" * 40, bytes(range(256))])
def test_tables_of_garbage(raw: bytes) -> None:
    for version in LAYOUTS:
        for at in (0, 7, 1000):
            line_at(version, raw, 1, at)
            loops_around(version, raw + raw, at)
            surely_in_use(raw, at)
