"""What the line of the user's own code says about a wait: the call that made the work that is waited for, its peer, its root."""

import re

from hangdoc.diagnosis import Operation
from hangdoc.parse import natural
from hangdoc.reasoning.model import Wait
from hangdoc.reasoning.ranks import torch_names
from hangdoc.reasoning.ranks.place import innermost, user_frames
from hangdoc.regex import regex
from hangdoc.snapshot import Frame, Loop, PythonThread

_STORE_CALL = regex(r"(?i)store\w*\.(get|wait)\s*\(")
_POSTED = regex(r"P2POp\((\w+), (\d+)\)")
_EACH = regex(r"for (\w+) in ")
_WAIT_CALL = regex(r"([\w.\[\]]+)\.(?:wait|result|synchronize|to_here)\s*\(")


def wait_of(thread: PythonThread) -> Wait | None:
    """The operation of a `work.wait()` in the user's own innermost frame, by the call that made the work; None where the
    source shows none. Less sure than native frames: the same line may wait for another thing."""
    frame = _user_frame(thread)
    source = frame.source or "" if frame is not None and frame is innermost(thread) else ""
    if _STORE_CALL.search(source):
        return Wait("store", Operation(op="wait", origin="store"), sure=False)
    op = operation(thread) if _WAIT_CALL.search(source) else None
    if op is None or op not in torch_names.OPERATIONS:
        return None
    called = Operation(op=op, origin="user", peer=_peer(op, thread))
    return Wait(torch_names.kind(op), called, sure=False, root=root_of(op, thread))


def _user_frame(thread: PythonThread) -> Frame | None:
    return next(iter(user_frames(thread)), None)


def operation(thread: PythonThread) -> str:
    """The operation whose work is waited for: `work = dist.all_reduce(..., async_op=True)` above `work.wait()`."""
    frame = _user_frame(thread)
    if frame is None or not frame.context:
        return "wait"
    direct = torch_names.calls_in(frame.source or "")
    if direct:
        return direct[-1]
    if frame is not innermost(thread):
        return "wait"  # a library waits for a work of its own
    lines = frame.context.splitlines()
    waited = waited_for(frame)
    if waited is not None:
        name = re.escape(waited)
        # `for work in pending: work.wait()` waits for what `pending` was given.
        among = [each[1] for loop in frame.loops if (each := re.match(rf"for {name} in (\w+)", loop.header))]
        names = "|".join([f"{name}s?", *among])
        for line in reversed(lines):
            if re.search(rf"\b({names})\s*(=|\.append\()", line) and (calls := torch_names.calls_in(line)):
                return calls[-1]
    everything = torch_names.calls_in(frame.context)
    return everything[-1] if len(set(everything)) == 1 else "wait"


def waited_for(frame: Frame) -> str | None:
    """The variable whose work a frame's line waits for: `work` of `self.work.wait()`, `works` of `works[0].wait()`."""
    call = _WAIT_CALL.search(frame.source or "")
    return call[1].split(".")[-1].split("[")[0] if call is not None else None


def posted_peer(op: str, thread: PythonThread) -> int | None:
    """The peer of a send or receive that native frames name: the one to which all go that the user's innermost frame has
    posted with batch_isend_irecv, else the one in its source."""
    if op not in torch_names.POINT_TO_POINT:
        return None
    frame = _user_frame(thread)
    alike = torch_names.SENDS if op in torch_names.SENDS else torch_names.RECEIVES
    calls = (_POSTED.fullmatch(local.text) for local in (frame.locals if frame is not None else ()))
    if peers := {natural(call[2]) for call in calls if call is not None and call[1] in alike}:
        return peers.pop() if len(peers) == 1 else None
    return _peer(op, thread)


def _peer(op: str, thread: PythonThread) -> int | None:
    """`src=`/`dst=` of a send or receive in the user's source."""
    if op not in torch_names.POINT_TO_POINT:
        return None
    return _argument(op.removeprefix("i")[:4], "dst" if op in torch_names.SENDS else "src", thread)


def root_of(op: str, thread: PythonThread) -> int | None:
    """The root that a rooted collective of the user's source names."""
    if op not in torch_names.ROOTED:
        return None
    roots = (_argument(op, key, thread) for key in ("group_src", "group_dst", "src", "dst"))
    return next((one for one in roots if one is not None), None)


def _argument(call: str, key: str, thread: PythonThread) -> int | None:
    """What a call in the user's source is given as `key=`: a number, or a variable whose value is known."""
    frame = _user_frame(thread)
    if frame is None or not frame.context:
        return None
    found = re.findall(rf"\bi?{call}\w*\([^\n]*?\b{key}\s*=\s*(\w+)", frame.context)
    if not found:
        return None
    if (literal := natural(found[-1])) is not None:
        return literal
    return next((natural(local.text) for local in frame.locals if local.name == found[-1]), None)


def waits_for_each(loop: Loop, frame: Frame | None) -> bool:
    """Whether a loop goes over works and waits for each (`for work in works: work.wait()`): its end is not the data's."""
    each = _EACH.match(loop.header)
    return each is not None and frame is not None and waited_for(frame) == each[1]
