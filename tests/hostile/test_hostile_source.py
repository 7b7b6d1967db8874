"""Source that was written to be read: it spoils the source of its own frames, and nobody else's."""

from types import SimpleNamespace

import msgspec
import pytest

from hangdoc.observe.memory.budget import Budget
from hangdoc.observe.stacks import source
from hangdoc.observe.stacks.source import Sources
from hangdoc.observe.stacks.source_files import Lines
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Frame, PythonThread
from tests.hostile.fuzz.bounds import bounded

GOOD = "def step():\n    for i in range(9):\n        if rank == 0:\n            work()\n"


class Files:
    """Files that need no disk, in place of hangdoc.observe.stacks.source_files."""

    def __init__(self, **texts: str) -> None:
        self._texts = texts

    def is_filtered(self, key: object) -> bool:
        """Whether the secrets of the whole file were removed."""
        return True

    def lines(self, *place: object, library: bool) -> tuple[tuple[str, str, bool], Lines]:
        """The key and the lines of a file, whose name comes last."""
        name = str(place[-1])
        return ("", name, library), Lines(self._texts[name.rpartition("/")[2]])


def reader(**texts: str) -> Sources:
    """A reader of these files."""
    sources = Sources(ProcFS())
    sources._files = Files(**texts)  # type: ignore[assignment]
    return sources


def annotated(sources: Sources, *places: tuple[str, str, int], budget: Budget | None = None) -> tuple[Frame, ...]:
    """The frames of one process at (file, function, line); a file below site-packages belongs to a library."""
    frames = tuple(
        Frame(function=function, file=f"/{file}", line=line, library="site-packages" in file)
        for file, function, line in places
    )
    thread = PythonThread(tid=1, name="x", active=False, owns_gil=False, frames=frames)
    files = SimpleNamespace(directory="/")
    return sources._thread(files, 0.0, thread, budget or Budget()).frames  # type: ignore[arg-type]


def size_of(frames: tuple[Frame, ...]) -> int:
    """Bytes of the frames in a bundle, before it is packed."""
    return len(msgspec.json.encode(frames))


def in_loop(line: str) -> str:
    """A function with a line in a loop."""
    return f"def f():\n    for i in range(9):\n        {line}\n        g()\n"


def in_while(test: str) -> str:
    """A function with a loop that ends by a test."""
    return f"def f():\n    while {test}:\n        g()\n        h()\n"


@pytest.mark.parametrize(
    "text",
    [
        in_while("not " * 700 + "x"),
        in_while("not " * 50_000 + "x"),
        in_while("-" * 700 + "1"),
        in_while("+".join("x" * 700)),
        in_while("x" + ".a" * 700),
        in_while("[" * 5_000 + "]" * 5_000),
        in_while("0x" + "f" * 9_000),
        in_while("x < 0x" + "f" * 9_000),
        in_loop("return " + "lambda: " * 1_000 + "1"),
        in_loop("if x: return\n" + "        elif y: return\n" * 990),
        "def f():\n" + "    x = 1\n" * 2 + "    y = (\n" + "(" * 1_000_000 + "\n",
    ],
    ids=[
        "not",
        "not-deeper",
        "minus",
        "plus",
        "attributes",
        "brackets",
        "digits",
        "compared",
        "lambda",
        "elif",
        "open",
    ],
)
def test_deep_source_spoils_only_itself(text: str) -> None:
    """RecursionError, MemoryError and ValueError of the parser, of ast.unparse and of our own visitors."""
    sources = reader(deep=text, good=GOOD)
    places = [("deep", "f", 3), ("site-packages/deep", "f", 3), ("deep", "<module>", 3)]
    with bounded():
        deep = annotated(sources, *places, ("good", "step", 4))
        (good,) = annotated(sources, ("good", "step", 4))
    assert all(frame.source for frame in deep), "the line itself needs no parser"
    assert (deep[-1].loops, deep[-1].conditions) == (good.loops, good.conditions)
    assert good.conditions == ("rank == 0",)
    assert [loop.header for loop in good.loops] == ["for i in range(9)"]
    assert size_of(deep) < 20_000


@pytest.mark.parametrize(
    "text",
    [
        "x\n" * 1_000_000,
        "x;" * 1_000_000,
        "def f():\n" + "  x\n" * 500_000,
        "x = [" + "1," * 900_000 + "]\n",
        "f(" + "'a'," * 400_000 + ")\n",
        "import " + "a." * 900_000 + "a\n",
    ],
    ids=["lines", "statements", "function", "list", "literals", "import"],
)
def test_dense_source_is_not_parsed(text: str) -> None:
    """The parser holds the GIL, and takes a thousand times the memory of the densest text."""
    sources = reader(dense=text)
    with bounded(seconds=3.0, size=250 << 20):
        frames = annotated(sources, ("dense", "f", 1), ("dense", "<module>", 1), ("site-packages/dense", "f", 1))
    assert size_of(frames) < 20_000


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    while x:\n" + "        dist.send(x, 1)\n" * 4_000,
        "def f():\n    while x:\n" + "        if x == 1: return\n" * 4_000 + "        g()\n",
        "def f():\n" + "    try:\n        while x: g()\n    except E: pass\n" * 1_500,
        "def f():\n" + "".join("    " * depth + "for i in range(9):\n" for depth in range(1, 90)) + "    " * 90 + "g()\n",
        "def f():\n    while x:\n        if x: return\n" + "        elif y: return\n" * 200,
        "def f():\n    for i in range(9):\n" + "".join(f"        a{n} += 1\n" for n in range(4_500)),
        "def f():\n    for " + "i" * 100_000 + " in range(n):\n        " + "j" * 100_000 + " += 1\n",
    ],
    ids=["sends", "guards", "tries", "nested", "elifs", "counters", "names"],
)  # fmt: skip
def test_structure_is_bounded(text: str) -> None:
    """Each of these took minutes, or gave evidence of many megabytes."""
    sources = reader(long=text)
    last = text.count("\n")
    with bounded(seconds=4.0):
        frames = annotated(sources, *(("long", "f", line) for line in (last, last - 1, 3)))
    assert size_of(frames) < 600_000


def test_numbers_are_those_of_a_counter() -> None:
    """A number that no counter reaches is unknown: not every reader of JSON has integers without a limit."""
    text = "def f():\n    for i, x in enumerate(y, 9223372036854775808):\n        g()\n"
    (frame,) = annotated(reader(numbers=text), ("numbers", "f", 3))
    assert [(loop.counters, loop.start) for loop in frame.loops] == [(("i",), None)]


def test_a_line_of_a_megabyte_is_cut() -> None:
    (frame,) = annotated(reader(wide="x = " + "a " * 500_000 + "\n"), ("wide", "<module>", 1))
    assert size_of((frame,)) < 3_000


def test_each_process_has_its_own_budget() -> None:
    """One that has spent its budget gets no more source. Others get all of it, also of the same files."""
    sources = reader(good=GOOD)
    spent = Budget(size=10)
    (first, second) = annotated(sources, ("good", "step", 4), ("good", "step", 3), budget=spent)
    assert spent.spent
    assert first.source == "work()"
    assert second.source is None
    assert [frame.source for frame in annotated(sources, ("good", "step", 4), ("good", "step", 3))] == [
        "work()",
        "if rank == 0:",
    ]


def test_trees_do_not_pile_up() -> None:
    """A process with many files keeps no more parsed source than one with a large file."""
    texts = {f"file{number}": "x\n" * 20_000 for number in range(12)}
    sources = reader(**texts)
    with bounded(seconds=20.0, size=300 << 20):
        for name in texts:
            annotated(sources, (name, "<module>", 1))
    assert sources._tokens <= source._MAX_TOKENS
