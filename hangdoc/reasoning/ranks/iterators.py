"""What a rank's own iterators say of its loops (`snapshot.Loops`): how many batches each has received, and how many there are.

These are readings of what the loops themselves count, so they come before what variables of the program seem to count.
"""

import ast
from collections.abc import Sequence

from hangdoc.parse import parsed_expression, unparsed
from hangdoc.phrases import amount
from hangdoc.reasoning.ranks.truths import is_ruled_out
from hangdoc.snapshot import MOST_EXITS, Frame, Loader, Local, Loop, Loops, Process, TrainerCount
from hangdoc.torch_facts.frameworks import FUNCTION_COUNTS

_OF_ANYTHING = frozenset({"list_iterator", "tuple_iterator", "range_iterator", "enumerate"})
"""Kinds of iterators that may give batches or anything else."""
_GIVE_ALL = frozenset({"enumerate", "iter", "tqdm", "track"})
"""Functions that give everything that their first argument gives."""


_GIVE_NUMBERS = frozenset({"range", "trange", "tqdm.trange", "count", "itertools.count"})
"""Functions that give one number after the other: of Python, tqdm and itertools."""
_THIS_LOOK = 1.0
"""Seconds. What is older was not read in this look."""


def list_loaders(process: Process | None) -> tuple[Loader, ...]:
    """Its iterators and dataloaders."""
    return process.loops.loaders if process is not None and isinstance(process.loops, Loops) else ()


def find_iterator(process: Process | None, frame: Frame, loop: Loop) -> Loader | None:
    """The iterator that a `for` statement of a frame goes over; None if it was not read, or if the loop has ended."""
    for loader in list_loaders(process):
        if loader.begins == loop.line and loader.done is not None and _is_at(loader, frame):
            return loader
    return None


def find_loader_behind(process: Process | None, frame: Frame, loop: Loop) -> Loader | None:
    """The dataloader over which a `for` statement of a frame went before it ended, all of it."""
    name = find_iterated(loop.header)
    for loader in list_loaders(process):
        if name is not None and name == loader.name and not loader.begins and _is_at(loader, frame):
            return loader
    return None


def find_length_behind(frame: Frame, loop: Loop, module: Sequence[Local]) -> int | None:
    """The length of the list (or other container) over which a `for` statement of a frame went before it ended."""
    name = find_iterated(loop.header)
    variables = module if frame.function == "<module>" else frame.locals
    return next((local.length for local in variables if local.name == name), None)


def gives_batches(process: Process, frame: Frame, loop: Loop) -> bool:
    """Whether the iterator of a `for` statement, or the loader that it went over, is known to give batches."""
    iterator = find_iterator(process, frame, loop) or find_loader_behind(process, frame, loop)
    return iterator is not None and iterator.kind not in _OF_ANYTHING


def find_iterated(header: str) -> str | None:
    """The variable over which a `for` goes, or which it hands to something that gives all of it: `enumerate(tqdm(loader))`."""
    node = _parse_iterated(header)
    return unparsed(node) if isinstance(node, ast.Name | ast.Attribute) else None


def goes_over_range(loop: Loop) -> bool:
    """Whether a `for` goes over numbers: `range(...)`, also in something that gives all of it, `trange(...)` or `count(...)`."""
    node = _parse_iterated(loop.header)
    return isinstance(node, ast.Call) and unparsed(node.func) in _GIVE_NUMBERS


def _parse_iterated(header: str) -> ast.expr | None:
    """What a `for` goes over, or hands to something that gives all of it; None if the header can't be parsed."""
    target, word, iterated = header.removesuffix(":").partition(" in ")
    node = parsed_expression(iterated.strip()) if target.startswith("for ") and word else None
    while isinstance(node, ast.Call) and node.args and (unparsed(node.func) or "").rpartition(".")[2] in _GIVE_ALL:
        node = node.args[0]
    return node


def _is_at(loader: Loader, frame: Frame) -> bool:
    return loader.file == frame.file and loader.function == frame.function.rpartition(".")[2]


def ended_with_its_data(loop: Loop, frame: Frame) -> bool:
    """Whether a loop of a frame that has ended gave all that its iterator had: no statement has left it."""
    known = loop.header.startswith("for ") and len(loop.exits) < MOST_EXITS
    return known and all(is_ruled_out(each, loop, frame) for each in loop.exits)


def list_exhausted(process: Process | None, frame: Frame) -> list[Loader]:
    """The iterators over batches in a frame that no loop goes over and that have given all that they had: `next()` reads them."""
    given = (each for each in _list_batches(process) if not each.begins and _is_at(each, frame))
    return [each for each in given if each.done == each.total]


def find_training_iterator(process: Process | None) -> Loader | None:
    """The iterator over batches that no other loop over batches is around; None if there is none, or if there are several."""
    batches = _list_batches(process)
    running = [loader for loader in batches if loader.begins] or [
        loader for loader in batches if not loader.kind.endswith("DataLoader")
    ]
    outermost = [loader for loader in running if loader.depth == min(each.depth for each in running)]
    return outermost[0] if len(outermost) == 1 else None


def find_round(process: Process | None, pass_id: int | None) -> int | None:
    """The round of the innermost `for` over numbers around that of an iterator over batches, in which it was begun: mostly the
    epoch. None if it is not known, or no `for` goes over the iterator of that pass."""
    inner = next((each for each in _list_batches(process) if each.begins and each.pass_id == pass_id is not None), None)
    if inner is None:
        return None
    around = [each for each in list_loaders(process) if each.begins and each.depth < inner.depth]
    nearest = max(around, key=lambda each: each.depth, default=None)
    return nearest.done if nearest is not None and nearest.kind == "range_iterator" else None


def find_only_rounds_around(process: Process | None, inner: Loader) -> Loader | None:
    """The `for` over numbers, in the same function, around the place where `next(...)` asks an iterator for batches. None for
    another iterator, and if a further `for` is around."""
    if inner.begins or inner.depth != 1:
        return None
    place = (inner.file, inner.function, "range_iterator")
    around = (each for each in list_loaders(process) if each.begins and each.depth == 0)
    return next((each for each in around if (each.file, each.function, each.kind) == place), None)


def _list_batches(process: Process | None) -> list[Loader]:
    """The iterators of a rank that give batches."""
    return [loader for loader in list_loaders(process) if loader.done is not None and loader.kind not in _OF_ANYTHING]


def asks_for_batch(process: Process) -> bool:
    """Whether a `for` of a rank was seen to wait for its next batch in this look."""
    if not isinstance(process.loops, Loops) or process.loops.seconds_ago > _THIS_LOOK:
        return False
    return any(loader.asked is True and loader.kind not in _OF_ANYTHING for loader in list_loaders(process))


def may_wait_for_loader(process: Process | None) -> bool:
    """Whether the batches of a rank come from workers, or its loop may have waited for one when it was read. False if no loop
    over batches is known."""
    return any(loader.workers or loader.asked is not False for loader in _list_batches(process))


def describe_received(process: Process | None) -> str | None:
    """How many batches a rank received in the window, in words: `it received 8 batches while it was observed (14 of 30)`. None if
    no iterator shows that."""
    for loader in list_loaders(process):
        if loader.kind in _OF_ANYTHING or loader.done is None or loader.done_before is None:
            continue
        if (count := loader.done - loader.done_before) > 0:
            so_far = f"{loader.done} of {loader.total}" if loader.total is not None else f"{loader.done} so far"
            return f"it received {amount(count, 'batch', 'es')} while it was observed ({so_far})"
    return None


def list_framework_counts(process: Process | None) -> tuple[TrainerCount, ...]:
    """What the framework that trains counts."""
    return process.loops.counts if process is not None and isinstance(process.loops, Loops) else ()


def find_framework_count(process: Process | None) -> TrainerCount | None:
    """How many batches the framework that trains has completed in this pass over the data; None if none counts them."""
    return next((count for count in list_framework_counts(process) if count.batches), None)


def find_iterator_behind(process: Process | None, count: TrainerCount) -> Loader | None:
    """The iterator whose batches a framework counts: not that of an evaluation, which may be the only one with a `for`. None if
    it was not read."""
    places = [row.batches_from for row in FUNCTION_COUNTS if row.shown == count.name and row.batches_from is not None]
    found = [
        loader
        for loader in _list_batches(process)
        if any(place.is_at(loader.file, loader.function) for place in places)
    ]
    return found[0] if len(found) == 1 else None


def find_unused_like(process: Process | None, theirs: Loader) -> Loader | None:
    """The only dataloader of a rank that no loop goes over and that has the same kind of data as one of another rank."""
    alike = [
        loader
        for loader in list_loaders(process)
        if not loader.begins
        and loader.kind.endswith("DataLoader")
        and loader.dataset is not None
        and (loader.dataset, loader.sampler) == (theirs.dataset, theirs.sampler)
    ]
    return alike[0] if len(alike) == 1 else None
