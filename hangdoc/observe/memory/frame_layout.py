"""Where CPython stores frames and code objects, by version.

Offsets in bytes, computed with `offsetof` from the headers of 3.10.13, 3.11.7, 3.12.1, 3.13.0 and 3.14.10:
Include/cpython/code.h, frameobject.h and pystate.h, and Include/internal/pycore_frame.h, pycore_interpframe_structs.h,
pycore_interp.h and pycore_runtime.h. Since 3.13, `_PyRuntime` begins with a table of some of them (pycore_debug_offsets.h): where
that disagrees, the interpreter is another build, and nothing is read. In older versions every frame is checked when it is read.
"""

from typing import NamedTuple


class FrameLayout(NamedTuple):
    """The offsets of one version."""

    interpreters: int
    """Of the first interpreter in `_PyRuntime`."""
    threads: int
    """Of the first thread in an interpreter."""
    native_id: int | None
    """Of the thread's number in the kernel; None in 3.10, which has only the address of the pthread."""
    pthread: int
    current: tuple[int, ...]
    """The way from a thread to its innermost frame."""
    code: int
    previous: int
    namespace: int
    """Of the dict of a module's variables."""
    instruction: int
    stack_top: int
    owner: int | None
    """Of the byte that says what the frame belongs to."""
    values: int
    """Of the local variables, which the evaluation stack follows."""
    units: int
    """Of the instructions in a code object."""
    stack_size: int
    first_line: int
    variables: int
    """Of the number of local variables."""
    names: int
    generator: int
    """Of the frame in a generator; in 3.10, of a pointer to it."""
    generator_state: int
    """Of a byte: negative while the generator is suspended or has not begun, 0 while it runs. In 3.10, in its frame."""
    flags: int = 48
    handlers: int | None = 40
    """Of the exception table."""
    file: int = 112
    function: int = 120
    lines: int = 136
    stack_pointer: bool = False
    """`stack_top` is a pointer, and is set in every call. Before 3.14 it is a number, and -1 while the frame runs; from 3.11 on,
    the number counts the local variables too."""
    debug: tuple[tuple[int, int], ...] = ()
    """Words of the table in `_PyRuntime`, and what they must be."""
    thread_next: int = 8
    thread_interpreter: int = 16

    @property
    def own_objects(self) -> bool:
        """Whether frames are Python objects, as up to 3.10."""
        return self.handlers is None


def _checked(layout: FrameLayout, interpreter: int, thread: int, frame: int, code: int) -> FrameLayout:
    """The layout with the words of `_Py_DebugOffsets` that it must agree with. The arguments are the numbers of the words at
    which the parts of the table begin."""
    assert layout.native_id is not None and layout.owner is not None  # noqa: S101
    return layout._replace(
        debug=(
            (5, layout.interpreters),
            (interpreter + 3, layout.threads),
            (thread + 2, layout.thread_next),
            (thread + 3, layout.thread_interpreter),
            (thread + 4, layout.current[0]),
            (thread + 6, layout.native_id),
            (frame + 1, layout.previous),
            (frame + 2, layout.code),
            (frame + 3, layout.instruction),
            (frame + 4, layout.values),
            (frame + 5, layout.owner),
            (code + 1, layout.file),
            (code + 2, layout.function),
            (code + 4, layout.lines),
            (code + 5, layout.first_line),
            (code + 7, layout.names),
            (code + 9, layout.units),
        )
    )


_3_10 = FrameLayout(
    interpreters=32, threads=8, native_id=None, pthread=176, current=(24,), code=32, previous=24, namespace=56, instruction=96,
    stack_top=80, owner=None, values=352, units=48, stack_size=32, first_line=40, variables=28, names=72, generator=16,
    generator_state=108, flags=36, handlers=None, file=104, function=112, lines=120,
)  # fmt: skip
_3_11 = FrameLayout(
    interpreters=40, threads=16, native_id=160, pthread=152, current=(56, 8), code=32, previous=48, namespace=24,
    instruction=56, stack_top=64, owner=69, values=72, units=184, stack_size=68, first_line=72, variables=76, names=96,
    generator=80, generator_state=75,
)  # fmt: skip
_3_12 = FrameLayout(
    interpreters=40, threads=72, native_id=144, pthread=136, current=(56, 0), code=0, previous=8, namespace=40, instruction=56,
    stack_top=64, owner=70, values=72, units=192, stack_size=64, first_line=68, variables=72, names=96, generator=72,
    generator_state=67,
)  # fmt: skip
_3_13 = _3_12._replace(interpreters=632, threads=7344, native_id=160, pthread=152, current=(72,), units=200)
_3_14 = _3_13._replace(interpreters=808, units=208, owner=74, values=80, stack_pointer=True)

LAYOUTS: dict[tuple[int, int], FrameLayout] = {
    (3, 10): _3_10,
    (3, 11): _3_11,
    (3, 12): _3_12,
    (3, 13): _checked(_3_13, interpreter=6, thread=19, frame=28, code=34),
    (3, 14): _checked(_3_14, interpreter=6, thread=22, frame=31, code=39),
}
