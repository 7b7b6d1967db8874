"""The source reader: text of any form, and Python that is deep, long or dense."""

from random import Random
from typing import NamedTuple

from hangdoc.observe.access.owner_rights import Rights
from hangdoc.observe.access.process_files import ProcessFiles, View
from hangdoc.observe.memory.budget import Budget
from hangdoc.observe.stacks.source import Sources
from hangdoc.observe.stacks.source_files import Key, Lines
from hangdoc.parse import negated, parsed_expression, parsed_statement, unparsed
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Frame, PythonThread, Stack
from tests.hostile.fuzz.evidence import storable

_ATOMS = (
    "x",
    "self.n",
    "1",
    "'a'",
    "f'{x}'",
    "0x" + "f" * 5000,
    "1" * 4000,
    "'\\ud800'",
    "f'\\ud800{x!r:>{y}}'",
    "b'\\xff'",
    "...",
    "é",
    "'\\0'",
)
_WRAPS = (
    "not {}", "-{}", "({})", "[{}]", "{{{}}}", "{{1: {}}}", "f({})", "f(a={})", "x[{}]", "lambda: {}",
    "{} if x else {}", "{} and {}",
    "{} + {}", "{}.a", "{} < {}", "await {}", "[{} for x in y]", "(x := {})", "*{}", "f'{{{}}}'", "range({}, {})",
    "enumerate({}, {})",
    "dist.send({}, dst=1)", "P2POp({}, 1)",
)  # fmt: skip
_HEADS = (
    "if {}:", "while {}:", "for x in {}:", "for i, x in enumerate({}, {}):", "for i in range({}, n):",
    "with {} as y:", "try:", "def f(a={}):",
    "async def g():", "class A({}):", "match {}:", "elif {}:", "else:", "except {}:", "finally:", "case [{}]:",
)  # fmt: skip
_LINES = (
    "{}", "x = {}", "n += 1", "n += {}", "i = i + {}", "return {}", "break", "continue", "raise {}",
    "dist.recv({}, src=2)", "import a.b",
    "x: int = {}", "del {}", "global x", "assert {}, {}", "yield {}", "pass", "\f", "\\", "'''", "\"\"\"", "#", "\0",
    "x = [", ")",
)  # fmt: skip
_UNITS = (
    "not ", "-", "(", "[", "{", "f(", "x.a", "x\n", "x;", "'", '"', "'''", "f'{", "\\", "\\\n", "#", "\t", " ", "\r",
    "\0", "a.", "lambda:",
    "if x: pass\n", "elif x: pass\n", "for x in y: n += 1\n", "try: pass\nexcept E: pass\n", "dist.send(x, 1)\n",
    "if x: return\n", "@a\n",
    "'a' ", "1,", "sk-", "password=", "\ud800".encode("utf-8", "replace").decode(), "é", "AKIA", "eyJ", "0",
)  # fmt: skip


class _Files:
    """Files that need no disk: hangdoc.observe.stacks.source_files, of one text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def is_filtered(self, key: object) -> bool:
        """Whether the secrets of the whole file were removed."""
        return True

    def lines(self, *place: object, library: bool) -> tuple[Key, Lines]:
        """The same text for every file. `redactions` attacks the filter that a user's own file passes before."""
        return ("", f"{place[-1]}", library), Lines(self._text)  # type: ignore[return-value]


class Case(NamedTuple):
    """A source, and the frames that claim to be at its lines."""

    text: str
    frames: tuple[tuple[str, int], ...]
    """Function and line."""


def made_case(dice: Random) -> Case:
    """A source that is Python, nearly Python, or one thing repeated."""
    kind = dice.random()
    if kind < 0.3:
        text = dice.choice(("", "def f():\n    x = ", "if 1:\n  ")) + dice.choice(_UNITS) * dice.choice(
            (3, 100, 5_000, 60_000)
        )
    elif kind < 0.35:
        text = "".join(
            chr(dice.choice((dice.randrange(128), dice.randrange(0xD800), 10))) for _ in range(dice.randrange(2_000))
        )
    else:
        text = "\n".join(_block(dice, 0, dice.choice((3, 10, 40))))
    count = text.count("\n") + 1
    lines = tuple(dice.choice((1, count, dice.randrange(1, count + 1))) for _ in range(dice.randrange(1, 4)))
    return Case(text, tuple((dice.choice(("<module>", "f", "g", "A.f", "f(", "")), line) for line in lines))


def read_case(case: Case) -> Stack:
    """The stack with what its source says."""
    frames = tuple(
        Frame(function=function, file=file, line=line, library="site-packages" in file)
        for function, line in case.frames
        for file in ("/a.py", "a.py", "/site-packages/a.py")
    )
    thread = PythonThread(tid=1, name="x", active=False, owns_gil=False, frames=frames)
    sources = Sources(ProcFS())
    sources._files = _Files(case.text)  # type: ignore[assignment]
    files = ProcessFiles(-1, View("", 0, 0, Rights(0, 0, (), 0)), "/somewhere")  # `_Files` opens nothing
    annotated = sources._thread(files, 0.0, thread, Budget())
    return Stack(at_seconds=0.0, threads=(annotated,))


def attack_source(dice: Random) -> None:
    """A file of any content, and stacks at its lines."""
    stack = storable(read_case(made_case(dice)))
    for frame in (frame for thread in stack.threads for frame in thread.frames):
        for condition in frame.conditions:
            negated(condition)


def attack_expression(dice: Random) -> None:
    """What the rules parse: conditions and lines, also of a bundle."""
    text = _expression(dice, dice.choice((1, 5, 30, 2_000)))[: dice.choice((200, 5_000, 100_000))]
    for tree in (parsed_expression(text), parsed_statement(text)):
        if tree is not None:
            unparsed(tree)
    assert isinstance(negated(text), str)


def _block(dice: Random, depth: int, left: int) -> list[str]:
    lines: list[str] = []
    indent = dice.choice((" ", "  ", "\t")) * depth if dice.random() < 0.02 else " " * depth
    for _ in range(dice.randrange(1, 5)):
        if left > 0 and dice.random() < 0.6:
            head = dice.choice(_HEADS)
            lines += [indent + _filled(head, dice), *_block(dice, depth + 1, left - 1 if dice.random() < 0.9 else 0)]
            if head == "try:":
                lines += [indent + "except E:", indent + " pass"]
            left -= 3
        else:
            lines.append(indent + _filled(dice.choice(_LINES), dice))
    return lines


def _filled(form: str, dice: Random) -> str:
    return form.format(*(_expression(dice, dice.choice((0, 1, 2, 2, 3, 100))) for _ in range(2)))


def _expression(dice: Random, depth: int) -> str:
    text = dice.choice(_ATOMS[:5] if dice.random() < 0.9 else _ATOMS)
    only = dice.choice(_WRAPS) if depth > 20 else None
    for _ in range(depth):
        text = (only or dice.choice(_WRAPS)).format(text, "y")
    return text
