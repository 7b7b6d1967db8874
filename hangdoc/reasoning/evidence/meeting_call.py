"""What a rank passed to the function of torch in which the ranks of a run meet. It can be read while the call lasts."""

import re

from msgspec import Struct

from hangdoc.parse import natural
from hangdoc.reasoning.evidence import known
from hangdoc.snapshot import Process
from hangdoc.torch_facts import file_names


class MeetingCall(Struct, frozen=True, gc=False):
    """A call of `init_process_group` or `init_rpc`."""

    function: str
    world_size: int | None = None
    """None where the call does not say: then WORLD_SIZE does."""
    init_method: str | None = None
    """A URL that is not `env://`."""


def of(process: Process) -> MeetingCall | None:
    """The call that a process is in; None outside of one."""
    for frame in known.frames(process):
        for function in file_names.MEETINGS:
            if function.is_at(frame.file, frame.function):
                values = {local.name: local.text.strip("\"'") for local in frame.locals}
                method = values.get("init_method", "")
                return MeetingCall(
                    function.name,
                    natural(values.get("world_size")),
                    method if re.match(r"(?!env:)\w+://", method) else None,
                )
    return None
