"""Reads pickles that hold only plain values, without the pickle module.

`pickle.load` calls whatever a pickle names. Even without that, a pickle of a few bytes makes it allocate gigabytes: by a large
index of the memo, or the length of a byte array. This reader knows only the opcodes of None, bools, ints, floats, str, list,
tuple, and dict with keys of text, as torch's own pickler (torch/csrc/jit/serialization/pickler.cpp) and `pickle.dumps` with
protocol 2 to 5 write them. An opcode makes at most one value, so the number of values bounds memory and time.
"""

import struct
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any, NamedTuple

from hangdoc.regex import regex
from hangdoc.untrusted import UntrustedError

MOST_DEPTH = 32
"""Of containers in containers. A dump of torch has 5."""
_TOO_SHORT = "is truncated"
_CONTAINERS = frozenset({dict, list, tuple})
_CONSTANTS = {0x4E: None, 0x88: True, 0x89: False}
_NUMBERS = {0x4D: (2, False), 0x4A: (4, True)}
_LENGTHS = {0x8C: 1, 0x58: 4, 0x8D: 8}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_IGNORED = {0x80: 1, 0x95: 8}
"""PROTO and FRAME, and the bytes of their argument."""
_BINGET, _LONG_BINGET, _BININT1, _MARK, _EMPTY_LIST, _EMPTY_DICT, _BINPUT, _STOP = b"hjK(]}q."
_GETS = regex(rb"(?s:h.){1,4096}")
_FEWEST_BYTES = 2


class Unpickled(NamedTuple):
    """What a pickle holds."""

    value: Any
    whole: bool
    """Whether it was read to its end. Otherwise it is what was complete (`_Reader.fold`)."""


def is_pickle(raw: bytes) -> bool:
    """Whether these bytes begin like a pickle of protocol 2 to 5."""
    return len(raw) >= _FEWEST_BYTES and raw[0] == 0x80 and 2 <= raw[1] <= 5


def unpickle(raw: bytes, most_values: int, partly: bool = False) -> Unpickled:
    """The value of a pickle. `most_values` bounds the values that it writes, and also those that it has when a value that is
    written once and used several times is counted each time. `partly`: of a truncated pickle, return what can be read.

    Raises UntrustedError.
    """
    if not is_pickle(raw):
        raise UntrustedError("is no pickle of protocol 2 to 5")
    reader = _Reader(raw, most_values)
    try:
        value, whole = reader.read(), True
    except KeyError as error:
        raise UntrustedError(f"is damaged (it names value {error} before it has it)") from None
    except IndexError:
        if reader.at < len(raw) - 2:
            raise UntrustedError("is damaged (an opcode needs a value that is not there)") from None
        if not partly:
            raise UntrustedError(_TOO_SHORT) from None
        value, whole = reader.fold(), False
    _check_extent(value, most_values)
    return Unpickled(value, whole)


class _Reader:
    """The state of one reading: a stack of values, the stacks below each open mark, and the memo."""

    def __init__(self, raw: bytes, most_values: int) -> None:
        self._raw = raw
        self._most = most_values
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self.at = 0
        """Position in the bytes: at their end if they were too short."""

    def read(self) -> Any:
        """Read to the STOP opcode. Raises IndexError at the end of the bytes and for an opcode that finds no value."""
        raw, memo, left = self._raw, self._memo, self._most
        stack, at = self._stack, 0
        while True:
            self.at = at
            opcode = raw[at]
            at += 1
            left -= 1
            if left < 0:
                raise UntrustedError(f"has more than {self._most:,} values")
            if opcode == _BINGET:  # most of a dump: the keys of its dicts, and the frames of each call
                if raw[at + 1] != _BINGET:
                    stack.append(memo[raw[at]])
                    at += 1
                    continue
                run = _GETS.match(raw, at - 1)
                if run is None:
                    raise IndexError(at)
                end = run.end()
                left -= (end - at) // 2
                stack += map(memo.__getitem__, raw[at:end:2])
                at = end
            elif opcode == _BININT1:
                stack.append(raw[at])
                at += 1
            elif opcode in _CONSTANTS:
                stack.append(_CONSTANTS[opcode])
            elif opcode == _LONG_BINGET and len(raw) - at >= 4:
                stack.append(memo[int.from_bytes(raw[at : at + 4], "little")])
                at += 4
            elif opcode == _MARK:
                self._below.append(stack)
                stack = self._stack = []
            elif opcode == _EMPTY_LIST:
                stack.append([])
            elif opcode == _EMPTY_DICT:
                stack.append({})
            elif opcode == _BINPUT:
                memo[raw[at]] = stack[-1]
                at += 1
            elif opcode == _STOP:
                return self._result()
            else:
                act = _OTHERS.get(opcode)
                if act is None:
                    raise UntrustedError(f"holds more than plain values (opcode {opcode:#04x} at byte {at - 1})")
                self.at = at
                act(self, opcode)
                stack, at = self._stack, self.at

    def fold(self) -> Any:
        """What is complete of a pickle that ends too early: of a dict the keys with a value, of a list the dicts but the last."""
        while self._below:
            items, self._stack = self._stack, self._below.pop()
            holder = self._stack[-1] if self._stack else None
            if type(holder) is list:
                holder += takewhile(lambda each: type(each) is dict and each, items[:-1])
            elif type(holder) is dict:
                pairs = zip(items[::2], items[1::2], strict=False)
                holder.update(takewhile(lambda pair: type(pair[0]) is str, pairs))
        if not self._stack:
            raise UntrustedError(_TOO_SHORT)
        return self._stack[0]

    def _result(self) -> Any:
        if len(self._stack) != 1 or self._below:
            raise UntrustedError("is damaged (it ends inside a value)")
        return self._stack[0]

    def _take(self, count: int) -> bytes:
        """The next bytes. Raises IndexError if there are fewer."""
        end = self.at + count
        if end > len(self._raw):
            self.at = len(self._raw)
            raise IndexError(count)
        taken = self._raw[self.at : end]
        self.at = end
        return taken

    def _number(self, width: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._take(width), "little", signed=signed)

    def _pop_items(self) -> list[Any]:
        """What lies above the last mark."""
        if not self._below:
            raise UntrustedError("is damaged (it ends a list that it has not begun)")
        items, self._stack = self._stack, self._below.pop()
        return items

    def _integer(self, opcode: int) -> None:
        width, signed = _NUMBERS[opcode]
        self._stack.append(self._number(width, signed=signed))

    def _long(self, opcode: int) -> None:
        self._stack.append(self._number(self._number(1), signed=True))

    def _float(self, opcode: int) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def _text(self, opcode: int) -> None:
        self._stack.append(self._take(self._number(_LENGTHS[opcode])).decode("utf-8", "replace"))

    def _get(self, opcode: int) -> None:
        self._stack.append(self._memo[self._number(4)])

    def _put(self, opcode: int) -> None:
        self._memo[self._number(4)] = self._stack[-1]

    def _memoize(self, opcode: int) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _append(self, opcode: int) -> None:
        items = [self._stack.pop()] if opcode == 0x61 else self._pop_items()
        holder = self._stack[-1]
        if type(holder) is not list:
            raise UntrustedError("is damaged (it appends to what is no list)")
        holder += items

    def _set_items(self, opcode: int) -> None:
        if opcode == 0x73:
            value, key = self._stack.pop(), self._stack.pop()
            items = [key, value]
        else:
            items = self._pop_items()
        holder = self._stack[-1]
        if type(holder) is not dict or len(items) % 2:
            raise UntrustedError("is damaged (it sets a key of what is no dict)")
        self._set(holder, items)

    def _set(self, holder: dict[str, Any], items: list[Any]) -> None:
        for key in items[::2]:
            if type(key) is not str:  # numbers and tuples can be made to collide
                raise UntrustedError(f"has a key that is no text but {type(key).__name__}")
        holder.update(zip(items[::2], items[1::2], strict=True))

    def _tuple(self, opcode: int) -> None:
        count = _TUPLES.get(opcode)
        if count is None:
            items = self._pop_items() if opcode == 0x74 else []
        else:
            if len(self._stack) < count:
                raise UntrustedError("is damaged (a tuple has too few values)")
            items = self._stack[-count:]
            del self._stack[-count:]
        self._stack.append(tuple(items))

    def _ignore(self, opcode: int) -> None:
        self._take(_IGNORED[opcode])


_OTHERS: dict[int, Callable[[_Reader, int], None]] = {
    **dict.fromkeys(_NUMBERS, _Reader._integer),
    **dict.fromkeys(_LENGTHS, _Reader._text),
    **dict.fromkeys((*_TUPLES, 0x29, 0x74), _Reader._tuple),
    **dict.fromkeys(_IGNORED, _Reader._ignore),
    **dict.fromkeys((0x61, 0x65), _Reader._append),
    **dict.fromkeys((0x73, 0x75), _Reader._set_items),
    0x8A: _Reader._long,
    0x47: _Reader._float,
    0x6A: _Reader._get,
    0x72: _Reader._put,
    0x94: _Reader._memoize,
}
"""What each opcode does, apart from the most frequent ones."""


def _check_extent(root: Any, most_values: int) -> None:
    """Raise UntrustedError for a value that contains itself, that is nested too deeply, or that has too many values when each
    use of one counts. Of 30 lists, each with the one before it ten times, no reader would ever see the end."""
    extents: dict[int, tuple[int, int]] = {}
    """Number of values and depth of each container."""
    opened: set[int] = set()
    """Those that wait for the extents of what is in them: the last one and those around it."""
    todo = [root] if type(root) in _CONTAINERS else []
    while todo:
        holder = todo[-1]
        if id(holder) in extents:
            todo.pop()
            continue
        count, depth, missing = _extent(holder, extents)
        if missing:
            if id(holder) in opened:
                raise UntrustedError("is damaged (a value contains itself)")
            opened.add(id(holder))
            if len(opened) > MOST_DEPTH:
                raise UntrustedError("is nested too deeply")
            todo += missing
            continue
        if count > most_values:
            raise UntrustedError(f"has more than {most_values:,} values")
        if depth > MOST_DEPTH:
            raise UntrustedError("is nested too deeply")
        extents[id(holder)] = count, depth
        opened.discard(id(holder))
        todo.pop()


def _extent(holder: Any, extents: dict[int, tuple[int, int]]) -> tuple[int, int, list[Any]]:
    """The number of values and the depth of a container, as far as those of the containers in it are known, and the others."""
    count, depth, missing = 1 + len(holder), 1, []
    for each in _items(holder):
        if type(each) not in _CONTAINERS:
            continue
        extent = extents.get(id(each))
        if extent is None and _CONTAINERS.isdisjoint(map(type, _items(each))):
            extent = extents[id(each)] = 1 + len(each), 1
        if extent is None:
            missing.append(each)
        else:
            count, depth = count + extent[0], max(depth, 1 + extent[1])
    return count, depth, missing


def _items(holder: Any) -> Iterable[Any]:
    return holder.values() if type(holder) is dict else holder
