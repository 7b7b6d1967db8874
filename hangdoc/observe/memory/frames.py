"""The Python frames of a process, read from its memory without a pause: functions, lines, variables, and the iterators of the
`for` loops that a frame is in.

The process may run meanwhile, so what is read may have changed before the next read. Every object is checked for what it must be,
and everything is bounded; what does not fit raises Unreadable. Sources: see `frame_layout` and `instructions`.
"""

import contextlib
import struct
from collections.abc import Iterator
from typing import NamedTuple

from hangdoc.observe.memory.frame_layout import LAYOUTS, FrameLayout
from hangdoc.observe.memory.instructions import loops_around, surely_in_use, yields_each
from hangdoc.observe.memory.line_tables import line_at
from hangdoc.observe.memory.locate import Image
from hangdoc.observe.memory.memory import BYTES, DICT, TUPLE, Memory, Unreadable

_OPTIMIZED = 1
"""co_flags: the variables are in the frame, not in a dict."""
_MAX_THREADS = 64
_MAX_FRAMES = 200
_MAX_VALUES = 400
"""Local variables of a function. A frame with more is not read."""
_MAX_STACK = 200
_MAX_UNITS = 40_000
"""Code units of a function."""
_MAX_VARIABLES = 400
"""Variables of a module."""
_OWNED_BY_C = 3
"""Such a frame (_frameowner), and those above, only marks where C code calls Python."""
_ITERNEXT = 224
"""tp_iternext (Include/cpython/object.h)."""
TAGS = 7
"""Lowest bits of a reference on the stack, which since 3.14 tell how it is counted (pycore_stackref.h)."""
_FUNCTIONS = frozenset({"function", "builtin_function_or_method", "method_descriptor", "wrapper_descriptor"})
_GLIBC_TID = 720
"""Of `tid` in glibc's struct pthread on x86-64 (nptl/descr.h)."""


class ThreadState(NamedTuple):
    """A thread that Python knows."""

    tid: int | None
    """Its number in the kernel, in the process's pid namespace; None if unknown."""
    address: int


class Running(NamedTuple):
    """An iterator that a `for` loop goes over."""

    address: int
    line: int | None
    """Of the `for`; None if unknown."""
    asked: bool | None = None
    """Whether the loop waits for its next element; None if unknown."""


class MemoryFrame(NamedTuple):
    """A frame. All objects by their addresses."""

    function: str
    file: str
    line: int | None
    variables: dict[str, int]
    loops: tuple[Running, ...]
    """The `for` loops that it is in, the outermost first."""
    address: int
    code: int
    suspended: bool
    """It belongs to a generator that waits to be asked for its next value."""
    position: int
    """The code unit that runs."""


class _Code(NamedTuple):
    """A code object."""

    function: str
    file: str
    names: tuple[str, ...]
    first_line: int
    stack_size: int
    instructions: bytes
    lines: bytes
    handlers: bytes
    optimized: bool
    begin: int
    """Address of the first instruction."""


class Frames:
    """Reads the frames of one process. Raises Unreadable if its version of Python is not supported."""

    def __init__(self, memory: Memory, image: Image) -> None:
        self._memory, self._image = memory, image
        layout = LAYOUTS.get(image.version)
        if layout is None or not image.runtime:
            raise Unreadable(f"the frames of Python {image.version[0]}.{image.version[1]} are not supported")
        self._layout: FrameLayout = layout
        self._codes: dict[int, _Code] = {}
        if layout.debug:
            last = max(word for word, _ in layout.debug)
            words = struct.unpack(f"<{last + 1}Q", memory.read(image.runtime, 8 * (last + 1)))
            if memory.read(image.runtime, 8) != b"xdebugpy" or any(
                words[word] != value for word, value in layout.debug
            ):
                raise Unreadable("this build of Python stores frames in an unknown form")

    def threads(self) -> list[ThreadState]:
        """The threads of the first interpreter, the newest first."""
        layout, memory = self._layout, self._memory
        interpreter = memory.word(self._image.runtime + layout.interpreters)
        threads: dict[int, ThreadState] = {}
        address = memory.word(interpreter + layout.threads)
        while address and address not in threads and len(threads) < _MAX_THREADS:
            if memory.word(address + layout.thread_interpreter) != interpreter:
                raise Unreadable("not a thread of this interpreter")
            threads[address] = ThreadState(self._read_tid(address), address)
            address = memory.word(address + layout.thread_next)
        return list(threads.values())

    def _read_tid(self, thread: int) -> int | None:
        if self._layout.native_id is not None:
            return self._memory.word(thread + self._layout.native_id) & 0xFFFFFFFF
        pthread = self._memory.word(thread + self._layout.pthread)
        with contextlib.suppress(Unreadable):
            if self._memory.word(pthread + 16) == pthread:  # `self` in its header (nptl/tls.h)
                return int.from_bytes(self._memory.read(pthread + _GLIBC_TID, 4), "little")
        return None

    def stack(self, thread: ThreadState, most: int = _MAX_FRAMES) -> Iterator[MemoryFrame]:
        """The frames of a thread, innermost first, at most so many. Frames that can't be read are skipped."""
        for address in self.addresses(thread, most):
            with contextlib.suppress(Unreadable):
                if not self._is_entry(address):
                    yield self.frame(address)

    def addresses(self, thread: ThreadState, most: int = _MAX_FRAMES) -> list[int]:
        """Where the frames of a thread are, the innermost first, at most so many."""
        address = thread.address
        for offset in self._layout.current:
            address = self._memory.word(address + offset)
        addresses: dict[int, None] = {}
        while address and len(addresses) < most and address not in addresses:
            addresses[address] = None
            address = self._memory.word(address + self._layout.previous)
        return list(addresses)

    def outermost(self, thread: ThreadState) -> int | None:
        """Where the outermost frame of a thread is; None if it has none. As long as the thread runs, that stays the same."""
        return next((address for address in self.addresses(thread)[::-1] if not self._is_entry(address)), None)

    def qualified_name(self, frame: MemoryFrame) -> str:
        """The function with its class, as py-spy names it; since Python 3.11, else its plain name."""
        layout = self._layout
        if layout.lines - layout.function < 16:
            return frame.function
        return self._memory.text(self._memory.word(frame.code + layout.function + 8))

    def integer(self, frame: MemoryFrame, name: str) -> int:
        """The int in a variable. Raises Unreadable if it is none, or if the frame has ended."""

        def find() -> int:
            now = self.frame(frame.address, suspended=frame.suspended)
            if now.code != frame.code or name not in now.variables:
                raise Unreadable(f"no variable {name}")
            return now.variables[name]

        return self._memory.settled_integer(find)

    def is_same(self, frame: MemoryFrame) -> bool:
        """Whether there is still a frame of the same function where `frame` was. Meaningful while its address is in use."""
        with contextlib.suppress(Unreadable):
            return self._memory.word(frame.address + self._layout.code) & ~TAGS == frame.code
        return False

    def _is_entry(self, address: int) -> bool:
        owner = self._layout.owner
        return owner is not None and self._memory.read(address + owner, 1)[0] >= _OWNED_BY_C

    def generator_frame(self, generator: int) -> MemoryFrame:
        """The frame of a generator that has not ended."""
        memory, layout = self._memory, self._layout
        if memory.kind(generator)[0] not in ("generator", "async_generator", "coroutine"):
            raise Unreadable("not a generator")
        frame = memory.word(generator + layout.generator) if layout.own_objects else generator + layout.generator
        holder = frame if layout.own_objects else generator
        state = int.from_bytes(memory.read(holder + layout.generator_state, 1), "little", signed=True)
        if state > 0:
            raise Unreadable("a generator that has ended")
        return self.frame(frame, suspended=state < 0)

    def frame(self, address: int, *, suspended: bool = False) -> MemoryFrame:
        """The frame at `address`. `suspended`: it is the frame of a generator that does not run now."""
        memory, layout = self._memory, self._layout
        at = memory.word(address + layout.code) & ~TAGS
        code = self._code(at)
        size = len(code.names) + code.stack_size
        raw = struct.unpack(f"<{size}Q", memory.read(address + layout.values, 8 * size)) if size else ()
        slots = [value & ~TAGS for value in raw]
        position = self._read_position(address, code)
        variables = self._read_variables(address, code, slots)
        in_use = self._in_use(address, code)
        stack = slots[len(code.names) :][: code.stack_size if in_use is None else max(0, in_use)]
        loops = self._find_loops(code, position, stack, len(stack) if suspended and in_use is not None else 0)
        line = line_at(self._image.version, code.lines, code.first_line, position)
        return MemoryFrame(code.function, code.file, line, variables, loops, address, at, suspended, position)

    def source(self, frame: MemoryFrame) -> int | None:
        """The iterator of which a generator with this frame yields every value, one for each; None if it may skip some or yield
        others."""
        loops = loops_around(self._image.version, self._codes[frame.code].instructions, frame.position)
        if len(frame.loops) > len(loops):  # the iterator of `yield from`
            return frame.loops[-1].address if frame.suspended else None
        if not loops or len(frame.loops) < len(loops):
            return None
        whole = yields_each(self._image.version, self._codes[frame.code].instructions, loops[-1])
        return frame.loops[-1].address if whole else None

    def _in_use(self, address: int, code: _Code) -> int | None:
        """How many values are on the evaluation stack; None while the frame runs, because then a register has the top."""
        layout = self._layout
        if layout.stack_pointer:
            top = self._memory.word(address + layout.stack_top)
            return (top - address - layout.values) // 8 - len(code.names) if top else None
        number = int.from_bytes(self._memory.read(address + layout.stack_top, 4), "little", signed=True)
        if number < 0:
            return None
        return number if layout.own_objects else number - len(code.names)

    def _read_position(self, address: int, code: _Code) -> int:
        """The number of the code unit that runs."""
        if self._layout.own_objects:
            position = int.from_bytes(self._memory.read(address + self._layout.instruction, 4), "little", signed=True)
        else:
            position, odd = divmod(self._memory.word(address + self._layout.instruction) - code.begin, 2)
            if odd:
                raise Unreadable("not at an instruction")
        if not -1 <= position < len(code.instructions) // 2:
            raise Unreadable("not in its code")
        return position

    def _read_variables(self, address: int, code: _Code, slots: list[int]) -> dict[str, int]:
        if not code.optimized:
            table = self._memory.word(address + self._layout.namespace)
            if not self._memory.kind(table)[1] & DICT:
                raise Unreadable("no variables")
            return dict(self._memory.named_items(table, among=_MAX_VARIABLES))
        variables = {}
        for name, value in zip(code.names, slots, strict=False):
            if value:
                with contextlib.suppress(Unreadable):
                    in_cell = self._memory.kind(value)[0] == "cell"
                    variables[name] = self._memory.word(value + 16) if in_cell else value
        return {name: value for name, value in variables.items() if value}

    def _find_loops(self, code: _Code, position: int, stack: list[int], sure: int) -> tuple[Running, ...]:
        """The iterators on the evaluation stack of the loops around an instruction. Above them may be anything, and behind the
        top of the stack are objects that are gone: nothing there is taken. `sure`: so many values are there and are no arguments
        of a call."""
        loops = loops_around(self._image.version, code.instructions, position)
        sure = max(sure, surely_in_use(code.handlers, position))
        running: list[Running] = []
        for index, value in enumerate(stack):
            if index >= sure and len(running) >= len(loops):
                break
            if value and self._is_iterator(value) and not (index and self._is_exit(stack[index - 1])):
                if len(running) >= len(loops):
                    running.append(Running(value, None))
                    continue
                loop = loops[len(running)]
                line = line_at(self._image.version, code.lines, code.first_line, loop.begin)
                running.append(Running(value, line, asked=loop.begin <= position < loop.body))
        return tuple(running)

    def _is_iterator(self, address: int) -> bool:
        try:
            self._memory.kind(address)  # raises Unreadable if it is no object
            return self._memory.word(self._memory.word(address + 8) + _ITERNEXT) != 0
        except Unreadable:
            return False

    def _is_exit(self, address: int) -> bool:
        """Whether a value below an iterator is the `__exit__` of a `with`: since 3.14 its object follows, which may be a file."""
        with contextlib.suppress(Unreadable):
            return self._layout.stack_pointer and self._memory.kind(address)[0] in _FUNCTIONS
        return False

    def _code(self, address: int) -> _Code:
        if address not in self._codes:
            self._codes[address] = self._read_code(address)
        return self._codes[address]

    def _read_code(self, address: int) -> _Code:
        memory, layout = self._memory, self._layout
        if memory.kind(address)[0] != "code":
            raise Unreadable("not a code object")
        head = memory.read(address, layout.lines + 8)

        def number(offset: int) -> int:
            return int(struct.unpack_from("<i", head, offset)[0])

        def pointer(offset: int) -> int:
            return int(struct.unpack_from("<Q", head, offset)[0])

        if layout.own_objects:
            tables = (layout.names, layout.names + 16, layout.names + 8)  # variables, cells, free variables
            names = [name for table in tables for name in self._names(pointer(table))]
            begin, units = pointer(layout.units) + 32, self._read_bytes_length(pointer(layout.units)) // 2
        else:
            names = self._names(pointer(layout.names))
            begin, units = address + layout.units, pointer(16)
            if len(names) != number(layout.variables):
                raise Unreadable("not a code object of this version")
        stack_size = number(layout.stack_size)
        if not (0 <= stack_size <= _MAX_STACK and 0 < units <= _MAX_UNITS):
            raise Unreadable("a code object that is too large")
        return _Code(
            function=memory.text(pointer(layout.function)),
            file=memory.text(pointer(layout.file)),
            names=tuple(names),
            first_line=number(layout.first_line),
            stack_size=stack_size,
            instructions=memory.read(begin, 2 * units),
            lines=self._read_whole_bytes(pointer(layout.lines)),
            handlers=self._read_whole_bytes(pointer(layout.handlers)) if layout.handlers is not None else b"",
            optimized=bool(number(layout.flags) & _OPTIMIZED),
            begin=begin,
        )

    def _names(self, table: int) -> list[str]:
        if not self._memory.kind(table)[1] & TUPLE or (self._memory.length(table) or 0) > _MAX_VALUES:
            raise Unreadable("not the names of a code object")
        return [self._memory.text(name) for name in self._memory.elements(table, _MAX_VALUES)]

    def _read_bytes_length(self, address: int) -> int:
        if not self._memory.kind(address)[1] & BYTES:
            raise Unreadable("not bytes")
        length = self._memory.word(address + 16)
        if length > 8 * _MAX_UNITS:
            raise Unreadable("a code object that is too large")
        return length

    def _read_whole_bytes(self, address: int) -> bytes:
        return self._memory.read(address + 32, self._read_bytes_length(address))
