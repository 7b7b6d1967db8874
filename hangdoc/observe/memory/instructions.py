"""The instructions of a code object, as far as hangdoc needs them: which `for` loops are around an instruction, how much of the
evaluation stack is surely in use there.

Sources: CPython's Lib/opcode.py and Include/opcode_ids.h of 3.10.13, 3.11.7, 3.12.1, 3.13.0 and 3.14.10 (instructions, the
specialized ones included, with the number of their inline cache entries) and Objects/exception_handling_notes.txt.
"""

from collections.abc import Iterator
from typing import NamedTuple

Spans = tuple[tuple[int, int], ...]


class Instructions(NamedTuple):
    """The instructions of one version that matter here, by their numbers."""

    for_iter: frozenset[int]
    extended: frozenset[int]
    caches: dict[int, int]
    """Code units after an instruction that are no instructions."""
    yields: frozenset[int]
    branches: frozenset[int]
    """Jumps under a condition."""
    for_cache: int = 1
    unknown: frozenset[int] = frozenset()
    """What stands in place of an instruction that can't be seen."""


class ForLoop(NamedTuple):
    """A `for` loop in the instructions: numbers of code units."""

    begin: int
    """Its FOR_ITER."""
    body: int
    """Behind that and its inline cache."""
    end: int
    """Behind its last instruction."""


def _expanded(spans: dict[int, Spans]) -> dict[int, int]:
    return {number: size for size, pairs in spans.items() for a, b in pairs for number in range(a, b + 1)}


_TABLES: dict[tuple[int, int], Instructions] = {
    (3, 10): Instructions(
        frozenset({93}), frozenset({144}), {}, yields=frozenset({86}), branches=frozenset({111, 112, 114, 115, 121}), for_cache=0,
    ),
    (3, 11): Instructions(
        frozenset({93}), frozenset({34, 144}),
        _expanded({
            1: ((3, 8), (13, 14), (16, 16), (60, 60), (64, 67), (72, 73), (76, 81), (92, 92), (113, 113), (121, 122), (127, 127),
                (141, 141), (143, 143), (166, 166), (168, 170), (177, 180)),
            2: ((26, 29), (107, 107)),
            4: ((17, 25), (39, 43), (95, 95), (106, 106), (153, 154), (158, 159), (171, 171)),
            5: ((47, 48), (55, 55), (116, 116)),
            10: ((56, 59), (62, 63), (160, 160)),
        }),
        yields=frozenset({86}),
        branches=frozenset({111, 112, 114, 115, 128, 129, 173, 174, 175, 176}),
        for_cache=0,
    ),
    (3, 12): Instructions(
        frozenset({62, 63, 64, 65, 93, 248}), frozenset({144}),
        _expanded({
            1: ((6, 8), (10, 10), (13, 14), (16, 16), (18, 22), (25, 25), (57, 60), (62, 67), (92, 93), (107, 107), (122, 123),
                (141, 141), (159, 161), (166, 168), (237, 237), (248, 248)),
            3: ((23, 24), (28, 29), (34, 34), (38, 48), (56, 56), (171, 171), (241, 241)),
            4: ((95, 95), (111, 113), (116, 116), (148, 148), (153, 153)),
            9: ((70, 70), (72, 73), (76, 82), (106, 106)),
        }),
        yields=frozenset({150, 243}),
        branches=frozenset({114, 115, 128, 129, 238, 239, 249, 250}),
        unknown=frozenset({253, 254}),
    ),
    (3, 13): Instructions(
        frozenset({72, 187, 188, 189, 190, 243}), frozenset({71}),
        _expanded({
            1: ((3, 3), (5, 5), (39, 39), (45, 45), (58, 59), (72, 72), (77, 77), (93, 93), (97, 100), (104, 104), (117, 117),
                (150, 161), (182, 190), (205, 206), (208, 208), (212, 213), (220, 222), (242, 243), (249, 253)),
            3: ((40, 40), (53, 53), (162, 181), (214, 219), (244, 244)),
            4: ((91, 91), (108, 108), (203, 204), (209, 211)),
            9: ((82, 82), (191, 202)),
        }),
        yields=frozenset({118, 241}),
        branches=frozenset({97, 98, 99, 100, 250, 251, 252, 253}),
        unknown=frozenset({70, 247, 254}),
    ),
    (3, 14): Instructions(
        frozenset({70, 171, 172, 173, 174, 237}), frozenset({69}),
        _expanded({
            1: ((38, 38), (56, 57), (70, 70), (75, 75), (96, 96), (100, 103), (106, 106), (119, 119), (166, 176), (194, 195),
                (197, 197), (201, 202), (209, 211), (237, 237), (241, 244), (249, 249), (253, 253)),
            3: ((39, 39), (52, 52), (55, 55), (143, 165), (203, 208), (250, 251)),
            4: ((92, 92), (110, 110), (192, 193), (198, 200)),
            5: ((3, 3), (44, 44), (129, 142)),
            9: ((80, 80), (177, 189)),
        }),
        yields=frozenset({120, 247}),
        branches=frozenset({100, 101, 102, 103, 241, 242, 243, 244}),
        unknown=frozenset({238, 254, 255}),
    ),
}  # fmt: skip


def loops_around(version: tuple[int, int], code: bytes, at: int) -> list[ForLoop]:
    """The `for` loops around the code unit number `at`, the outermost first. Their iterators are on the evaluation stack, in this
    order. Empty if an instruction of `code` can't be seen, as while a debugger or a coverage tool traces it."""
    table = _TABLES[version]
    if not any(number in code[::2] for number in table.for_iter):
        return []
    loops: list[ForLoop] = []
    for index, number, argument in _walk(table, code, at):
        if number in table.unknown:
            return []
        if number in table.for_iter:
            body = index + 1 + table.for_cache
            if index <= at < body + argument:
                loops.append(ForLoop(index, body, body + argument))
    return loops


def yields_each(version: tuple[int, int], code: bytes, loop: ForLoop) -> bool:
    """Whether a loop of a generator yields exactly once in every iteration: it has one `yield`, and before that neither a
    condition nor another loop."""
    table = _TABLES[version]
    yields = 0
    for index, number, _ in _walk(table, code, loop.end - 1):
        if number in table.unknown:
            return False
        if index > loop.begin and number in table.yields:
            yields += 1
        elif index > loop.begin and not yields and (number in table.branches or number in table.for_iter):
            return False
    return yields == 1


def _walk(table: Instructions, code: bytes, last: int) -> Iterator[tuple[int, int, int]]:
    """(code unit, number, argument) of each instruction up to the code unit `last`."""
    index = argument = 0
    while index <= min(last, len(code) // 2 - 1):
        number, argument = code[2 * index], argument << 8 | code[2 * index + 1]
        if number in table.extended:
            index += 1
            continue
        yield index, number, argument
        index += 1 + table.caches.get(number, 0)
        argument = 0


def surely_in_use(handlers: bytes, at: int) -> int:
    """How many values are at least on the evaluation stack at the code unit number `at`, by the exception table: what a handler
    finds there (since 3.11). A `for` loop around an `except` clause is not around its instructions, which are moved to the
    end."""
    position = 0

    def number() -> int:
        nonlocal position
        value = 0
        while position < len(handlers):
            byte = handlers[position]
            position += 1
            value = value << 6 | byte & 63
            if not byte & 64:
                break
        return value

    while position < len(handlers):
        start, size, _target, depth = number(), number(), number(), number()
        if start <= at < start + size:
            return depth >> 1
    return 0
