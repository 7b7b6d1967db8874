"""What the line of the user's own code says about a wait: the call that made the work that is waited for, its peer, its root."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from hangdoc.diagnosis import Operation
from hangdoc.parse import names_in, natural, was_removed
from hangdoc.reasoning.evidence.stack import innermost, innermost_user_frame
from hangdoc.reasoning.model.rank import Wait
from hangdoc.reasoning.ranks.iterators import find_iterated
from hangdoc.regex import regex
from hangdoc.snapshot import MOST_P2P_OPS, Frame, Loop, PythonThread
from hangdoc.torch_facts import call_names, file_names

_POSTED = regex(r"P2POp\((\w+), (\d+)\)")
_ELEMENT = regex(r"(\w+)\[(\d{1,3})\]")
_WORKER = regex(r"""(?:WorkerInfo\()?(["'])(.+)\1\)?""")
_NAME = regex(r"\w+")
_DEF = regex(r"(\s*)(?:async )?def ")
_STORE_CALL = regex(r"(?i)store\w*\.(get|wait)\s*\(")
_TAG = regex(r"\btag\s*=\s*([A-Za-z_][\w.]*)\s*[,)]")
_WAIT_CALL = regex(r"([\w.\[\]]+)\.(?:wait|result|synchronize|to_here)\s*\(")


def find_unfinished_work(thread: PythonThread, *, has_record: bool) -> Wait | None:
    """The operation of a `work.wait()`: in torch's pipeline schedule by what that has posted, in the user's innermost frame by
    the call that made the work; None where nothing shows one. Less sure than native frames: the same line may wait for another
    thing. `has_record`: the record has one operation that is not complete, which tells the one that the source does not show."""
    if (posted := _find_awaited_of_pipeline(thread)) is not None:
        operation = Operation(op="send" if posted.sends else "recv", origin="user", peer=posted.peer)
        return Wait("p2p", operation, sure=False)
    frame = innermost_user_frame(thread)
    source = frame.source or "" if frame is not None and frame is innermost(thread) else ""
    if _STORE_CALL.search(source):
        return Wait("store", Operation(op="wait", origin="store"), sure=False)
    if not _WAIT_CALL.search(source):
        return None
    op = find_operation(thread)
    if op not in call_names.OPERATIONS and not has_record:
        return None
    return Wait(call_names.wait_kind(op), Operation(op=op, origin="user"), sure=False)


def find_operation(thread: PythonThread) -> str:
    """The operation whose work is waited for: `work = dist.all_reduce(..., async_op=True)` above `work.wait()`."""
    frame = innermost_user_frame(thread)
    if frame is None or not frame.context:
        return "wait"
    direct = call_names.calls_in(frame.source or "")
    if direct:
        return direct[-1]
    if frame is not innermost(thread):
        return "wait"  # a library waits for a work of its own
    if (lines := _find_lines_since_made(frame)) is not None:
        return call_names.calls_in(lines.partition("\n")[0])[-1]
    everything = call_names.calls_in(cut_to_function(frame.context, frame.source))
    return everything[-1] if len(set(everything)) == 1 else "wait"


def cut_to_function(context: str, source: str | None) -> str:
    """The lines of a piece of source that are in the function of one of its lines, down to that line."""
    lines, wanted = context.splitlines(), (source or "").split("\n")[0]
    at = next((at for at in reversed(range(len(lines))) if lines[at].strip().startswith(wanted)), len(lines) - 1)
    depth = len(lines[at]) - len(lines[at].lstrip())
    outer = (n for n in reversed(range(at)) if (definition := _DEF.match(lines[n])) and len(definition[1]) < depth)
    return "\n".join(lines[next(outer, 0) : at + 1])


def _find_lines_since_made(frame: Frame) -> str | None:
    """The source from the line on that made the work that a frame's line waits for; None where it is not shown."""
    waited = waited_for(frame)
    if waited is None:
        return None
    lines = (frame.context or "").splitlines()
    making = _list_making_lines(lines, [f"{re.escape(waited)}s?", *_list_collections(frame, waited)])
    return "\n".join(lines[making[-1] :]) if making else None


def _list_collections(frame: Frame, waited: str) -> list[str]:
    """The variables over which loops go for a work: `for work in pending: work.wait()` waits for what `pending` was given."""
    iterated = (find_iterated(loop.header) for loop in frame.loops if waited in _list_targets(loop))
    return [re.escape(name) for name in iterated if name is not None]


def _list_targets(loop: Loop) -> list[str]:
    """The variables that a `for` assigns: `a` and `w` of `for (a, w) in enumerate(works)`."""
    target, _, iterated = loop.header.partition(" in ")
    return names_in(target.removeprefix("for ")) if iterated and target.startswith("for ") else []


def _list_making_lines(lines: Sequence[str], names: Sequence[str]) -> list[int]:
    """Positions of the lines that call an operation and give its work to one of some variables."""
    given = regex(rf"\b({'|'.join(names)})\s*(=|\.append\()")
    return [at for at, line in enumerate(lines) if given.search(line) and call_names.calls_in(line)]


class PostedTogether(NamedTuple):
    """What a program has posted before a loop that waits for all of it."""

    calls: frozenset[str]
    tags: tuple[str, ...]
    """The variables that are passed as `tag`."""


def find_posted_together(thread: PythonThread) -> PostedTogether | None:
    """The sends and receives in the collection over which a thread's line waits; None where the source shows none."""
    frame = innermost_user_frame(thread)
    waited = waited_for(frame) if frame is not None else None
    if frame is None or waited is None or not (collections := _list_collections(frame, waited)):
        return None
    lines = cut_to_function(frame.context or "", frame.source).splitlines()
    text = "\n".join(lines[at] for at in _list_making_lines(lines, collections))
    return PostedTogether(frozenset(call_names.calls_in(text)), tuple(dict.fromkeys(_TAG.findall(text))))


def waited_for(frame: Frame) -> str | None:
    """The variable whose work a frame's line waits for: `work` of `self.work.wait()`, `works` of `works[0].wait()`."""
    call = _WAIT_CALL.search(frame.source or "")
    return call[1].split(".")[-1].split("[")[0] if call is not None else None


class Posted(NamedTuple):
    """A send or a receive of batch_isend_irecv."""

    sends: bool
    peer: int


def list_posted(thread: PythonThread) -> list[Posted]:
    """What the user's innermost frame has posted with batch_isend_irecv; empty if not all of a list could be read."""
    frame = innermost_user_frame(thread)
    return [each for calls in _read_posted(frame).values() for each in calls] if frame is not None else []


def _read_posted(frame: Frame) -> dict[str, list[Posted]]:
    """The operations in a frame's lists for batch_isend_irecv, by the names of the lists; empty if not all of a list could be
    read."""
    posted: dict[str, list[Posted]] = {}
    last: dict[str, int] = {}
    for local in frame.locals:
        call, element = _POSTED.fullmatch(local.text), _ELEMENT.fullmatch(local.name)
        if call is None or element is None or (peer := natural(call[2])) is None:
            continue
        posted.setdefault(element[1], []).append(Posted(call[1] in call_names.SENDS, peer))
        last[element[1]] = int(element[2])
    read = sum(map(len, posted.values()))
    return posted if read == sum(last.values()) + len(last) and read < MOST_P2P_OPS else {}


def _list_posted_by_pipeline(thread: PythonThread) -> list[Posted]:
    """What torch's pipeline schedule has posted, in order: what is in the lists that its line names, or all of its function."""
    for frame in thread.frames:
        if frame.file.endswith(file_names.PIPELINE) and (posted := _read_posted(frame)):
            names = dict.fromkeys(_NAME.findall(frame.source or ""))
            named = [name for name in names if name in posted]
            calls = [each for name in named or posted for each in posted[name]]
            return [each for each in calls if each.sends] if file_names.PIPELINE_SENDS in names else calls
    return []


def _find_awaited_of_pipeline(thread: PythonThread) -> Posted | None:
    """The send or receive that torch's pipeline schedule waits for: the one at the place that the work has among the works. None
    if it waits for none, and if nothing shows for which."""
    frame = innermost(thread)
    waited = waited_for(frame) if frame is not None and frame.file.endswith(file_names.PIPELINE) else None
    if frame is None or waited is None:
        return None
    posted = _list_posted_by_pipeline(thread)
    work = next((local.text for local in frame.locals if local.name == waited), None)
    for works in (local.text[1:-1].split(", ") for local in frame.locals if local.text.startswith("[")):
        if work in works and len(works) == len(posted):
            return posted[works.index(work)]
    return posted[0] if len(set(posted)) == 1 else None


def find_peer(op: str, thread: PythonThread) -> int | None:
    """The peer of a send or receive that native frames name: the one to which all go that the user's innermost frame or a
    pipeline has posted; None for several, and for none."""
    if op not in call_names.POINT_TO_POINT:
        return None
    posted = _list_posted_by_pipeline(thread) or list_posted(thread)
    peers = {each.peer for each in posted if each.sends == (op in call_names.SENDS)}
    return peers.pop() if len(peers) == 1 else None


def read_worker_name(text: str | None) -> str | None:
    """The name in a variable that holds a string or a `WorkerInfo`."""
    named = _WORKER.fullmatch(text or "")
    return named[2] if named is not None and not was_removed(named[2]) else None


def waits_for_each(loop: Loop, frame: Frame | None) -> bool:
    """Whether a loop goes over works and waits for each (`for work in works: work.wait()`): its end is not the data's."""
    return frame is not None and waited_for(frame) in _list_targets(loop)
