"""Decodes copied entries of torch's flight recorder.

A ring has 2,000 entries of few different calls, so whatever is equal in bytes is decoded once.
"""

import struct
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from hangdoc.observe.torch.recorded_frames import Codes
from hangdoc.observe.torch.recorder_layout import LAYOUTS, EntryLayout, Words
from hangdoc.observe.torch.recorder_ring import (
    Blocks,
    Copy,
    elements_range,
    frames_range,
    text_range,
    traceback_range,
    types_range,
)
from hangdoc.snapshot import CallForm, Frame
from hangdoc.torch_facts.dtypes import BY_NUMBER

_MAX_TENSORS, _MAX_DIMENSIONS = 64, 16
_MAX_FRAMES, _INNERMOST = 24, 12
_MAX_TEXT = 1_000
_MAX_KEPT = 10_000
_MAX_FORMS, _MAX_STACKS = 300, 1_000
"""Different calls that are kept with their shapes, and with their frames. In a loop there are few; with tensors of ever new
sizes, there may be as many as calls."""


class Group(NamedTuple):
    """The process group of a call."""

    number: int
    """`pg_id`: another one for each group that was ever made."""
    name: str
    description: str


class Call(NamedTuple):
    """An entry: a call that was made. Times are nanoseconds since 1970 on the host's wall clock."""

    id: int
    group: Group
    collective: int
    """Number among the collectives of the group; `p2p` likewise among its sends and receives, `operation` among all."""
    p2p: int
    operation: int
    form: int
    """Position in `Calls.forms`."""
    made_ns: int
    timeout_ms: int
    is_p2p: bool
    duration_ms: float | None
    started_ns: int | None
    """When torch noticed that it had begun, or, for `completed_ns`, ended. Gloo records neither."""
    completed_ns: int | None
    retired: bool
    """torch waits for it no longer."""
    thread: int | None
    thread_name: str | None

    @property
    def completed(self) -> bool:
        """Whether it has ended."""
        return self.retired or self.completed_ns is not None


class Calls(NamedTuple):
    """Decoded entries, oldest first."""

    calls: list[Call]
    forms: tuple[CallForm, ...]


class Decoder:
    """Entries of one process as values, each form once. It keeps the forms from one copy to the next."""

    def __init__(self, codes: Codes) -> None:
        """`codes` has the code objects of the frames."""
        self._codes = codes
        self._layout: EntryLayout = LAYOUTS[0]
        self._blocks: Blocks = {}
        self._forms: dict[CallForm, int] = {}
        """Positions by form."""
        self._by_bytes: dict[tuple[object, ...], int] = {}
        self._texts: dict[tuple[int, int, int], str] = {}
        self._groups: dict[tuple[int, str, str], Group] = {}

    @property
    def full(self) -> bool:
        """Whether it keeps so many forms that another one should begin."""
        return (
            len(self._forms) > _MAX_FORMS // 2
            or max(len(self._texts), len(self._groups), len(self._by_bytes)) > _MAX_KEPT
        )

    def decode(self, copied: Copy, last: Calls | None = None) -> Calls:
        """The entries of a copy. `last` are those of the last one, which have what is not fresh."""
        if copied.layout is None:
            return Calls([], ())
        self._layout, self._blocks = copied.layout, copied.blocks
        number = copied.layout.id
        before = {call.id: call for call in last.calls if call.id not in copied.fresh} if last is not None else {}
        calls = [before.get(words[number]) or self._call(address, words) for address, words in reversed(copied.entries)]
        return Calls(calls[::-1], tuple(self._forms))

    def _call(self, address: int, words: Words) -> Call:
        """The entry at an address."""
        layout, text = self._layout, self._text
        about = words[layout.group_id], text(words, layout.name, address), text(words, layout.description, address)
        group = self._groups.get(about)
        if group is None:
            group = self._groups[about] = Group(*about)
        duration, there = words[layout.duration] >> 32, words[layout.duration + 1] & 0xFF
        return Call(
            id=words[layout.id],
            group=group,
            collective=words[layout.collective],
            p2p=words[layout.p2p],
            operation=words[layout.operation],
            form=self._form(address, words),
            made_ns=words[layout.made],
            timeout_ms=words[layout.timeout],
            is_p2p=bool(words[layout.is_p2p] & 0xFF),
            duration_ms=struct.unpack("<f", struct.pack("<I", duration))[0] if there else None,
            started_ns=_optional(words, layout.started),
            completed_ns=_optional(words, layout.completed),
            retired=bool(words[layout.retired] & 0xFF),
            thread=words[layout.thread] if layout.thread >= 0 else None,
            thread_name=text(words, layout.thread_name, address) if layout.thread_name >= 0 else None,
        )

    def _form(self, address: int, words: Words) -> int:
        layout = self._layout
        shapes = (
            self._elements(words, layout.input_dims, address, layout.width),
            self._types(words, layout.input_dtypes),
            self._elements(words, layout.output_dims, address, layout.width),
            self._types(words, layout.output_dtypes),
            self._elements(words, layout.sizes, address),
        )
        frames = self._frames(words[layout.traceback])
        call = self._text(words, layout.call, address)
        key = (call, frames, *shapes)
        position = self._by_bytes.get(key)
        if position is None:
            inputs, outputs = _tensors(*shapes) if len(self._forms) < _MAX_FORMS else ((), ())
            stack = self._stack(frames) if len(self._forms) < _MAX_STACKS else ()
            op = call.rpartition(":")[2]  # `nccl:all_reduce`
            form = CallForm(op=op, inputs=inputs, outputs=outputs, frames=stack)
            position = self._by_bytes[key] = self._forms.setdefault(form, len(self._forms))
        return position

    def _stack(self, raw: bytes) -> tuple[Frame, ...]:
        """The frames, innermost first."""
        pairs = struct.iter_unpack("<Qi4x", raw)
        return nearest_frames([frame for pair in pairs if (frame := self._codes.frame(*pair)) is not None])

    def _text(self, words: Words, at: int, address: int) -> str:
        """A std::string; empty if it could not be read."""
        memory = text_range(self._layout, words, at, address)
        if memory is None:
            key = words[at + 1], words[at + 2], words[at + 3]
            text = self._texts.get(key)
            if text is None:
                raw = struct.pack("<QQ", *key[1:])[: min(key[0], 15)]
                text = self._texts[key] = raw.decode("utf-8", "replace")
            return text
        raw = self._blocks.get(memory, b"")
        if self._layout.copied_strings:  # length, capacity and number of owners are in front of the characters
            raw = raw[24 : 24 + min(int.from_bytes(raw[:8], "little"), _MAX_TEXT)]
        return raw.decode("utf-8", "replace")

    def _elements(self, words: Words, at: int, address: int, width: int = 8) -> bytes | tuple[int, ...] | None:
        """The elements of a vector of numbers of `width` bytes, as 8 bytes each or as numbers; None if they could not be read."""
        count = words[at + 1] & 0xFFFFFFFF
        memory = elements_range(words, at, address, width=width)
        if memory is not None:
            raw = self._blocks.get(memory)
        elif words[at] == address + 8 * at + 16:
            if width == 8:
                return tuple(words[at + 2 : at + 2 + count])
            raw = struct.pack("<2Q", *words[at + 2 : at + 4])[: width * count]
        else:
            return None
        return raw if raw is None or width == 8 else struct.unpack(f"<{len(raw) // width}I", raw)

    def _types(self, words: Words, at: int) -> bytes | None:
        """The numbers of dtypes; None if they could not be read."""
        memory = types_range(words, at)
        return self._blocks.get(memory) if memory is not None else b"" if words[at] == words[at + 1] else None

    def _frames(self, traceback: int) -> bytes:
        """The frames as torch stores them; empty if there are none."""
        memory = frames_range(self._blocks.get(traceback_range(traceback)))
        return self._blocks.get(memory, b"") if memory is not None else b""


def nearest_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The frames of a call, innermost first. Of a deep stack the innermost ones, and then the user's own."""
    if len(frames) <= _MAX_FRAMES:
        return tuple(frames)
    own = (frame for frame in frames[_INNERMOST:] if not frame.library)
    return (*frames[:_INNERMOST], *islice(own, _MAX_FRAMES - _INNERMOST))


def _optional(words: Words, at: int) -> int | None:
    """A std::optional<int64>."""
    return words[at] if words[at + 1] & 0xFF else None


def _numbers(elements: bytes | tuple[int, ...]) -> tuple[int, ...]:
    return struct.unpack(f"<{len(elements) // 8}Q", elements) if isinstance(elements, bytes) else elements


def _tensors(
    input_dims: bytes | tuple[int, ...] | None,
    input_types: bytes | None,
    output_dims: bytes | tuple[int, ...] | None,
    output_types: bytes | None,
    sizes: bytes | tuple[int, ...] | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The inputs and the outputs, each tensor as `float32[64, 8]`; empty if their shapes are unknown."""
    if input_dims is None or output_dims is None or sizes is None or input_types is None or output_types is None:
        return (), ()
    inputs, outputs, numbers = _numbers(input_dims), _numbers(output_dims), _numbers(sizes)
    if sum(inputs) + sum(outputs) != len(numbers):
        return (), ()
    return (
        _shapes(inputs, input_types, numbers),
        _shapes(outputs, output_types, numbers[sum(inputs) :]),
    )


def _shapes(dims: tuple[int, ...], types: bytes, sizes: tuple[int, ...]) -> tuple[str, ...]:
    shapes: list[str] = []
    at = 0
    for count, dtype in islice(zip(dims, types, strict=False), _MAX_TENSORS):
        name = BY_NUMBER[dtype] if dtype < len(BY_NUMBER) else f"dtype{dtype}"
        shapes.append(f"{name}[{', '.join(map(str, sizes[at : at + min(count, _MAX_DIMENSIONS)]))}]")
        at += count
    return tuple(shapes)
