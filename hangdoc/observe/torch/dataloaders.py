"""The loops of a process over its data: which iterator each goes over, and how many batches that has given.

They are found from the frames of the thread that trains: the iterators on the evaluation stack, the variables, and the objects
that these reach in two steps. A loop that has ended has dropped its iterator: then only a dataloader that a variable still holds
is shown, with its length.
"""

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from hangdoc.observe.memory.frames import Frames, MemoryFrame, ThreadState
from hangdoc.observe.memory.locate import Image
from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.memory.objects import Objects
from hangdoc.observe.torch.dataset_lengths import Lengths
from hangdoc.observe.torch.iterators import Count, Iterators
from hangdoc.observe.torch.reachable_loaders import Reached, reach
from hangdoc.program import is_library
from hangdoc.snapshot import Loader, TrainerCount

_ATTEMPTS = 3
_MAX_THREADS = 16
_MAX_LOADERS = 16
_ITERATING = frozenset({"generator", "zip", "map", "enumerate", "islice"})
_ITERATORS = ("DataLoaderIter", "DataFetcher")
"""How the names of classes end whose instances are iterators over batches (torch's and Lightning's)."""


class SeenLoader(NamedTuple):
    """A loader and the address of what counts: two readings are of one iterator if both are the same."""

    loader: Loader
    address: int
    iterator: int = 0
    """Of what the loop goes over, which may wrap what counts; 0 if no loop goes over it now."""


class _Iterating(NamedTuple):
    """An iterator where it is used."""

    counted: Count
    iterator: int
    """Of what the loop goes over, which may wrap what counts."""
    frame: MemoryFrame
    depth: int
    """Loops around it."""
    begins: int | None = None
    """Line of the `for`."""
    asked: bool | None = None
    """Whether that waits for its next element."""
    name: str | None = None


class LoopReader:
    """Reads the loops of one process. Raises Unreadable if its frames can't be read."""

    def __init__(self, memory: Memory, image: Image) -> None:
        self._frames = Frames(memory, image)
        self._objects = Objects(memory, image.version)
        lengths = Lengths(self._objects)
        self._lengths = lengths
        self._iterators = Iterators(self._objects, self._frames, lengths, image.version)

    def read(self, main: int | None) -> tuple[list[SeenLoader], list[TrainerCount]]:
        """The loaders and the frameworks' numbers of the training thread: the one whose number in the kernel is `main`, or if
        that has none, the first one that has. Raises Unreadable."""
        threads = self._frames.threads()
        # The main thread is the oldest one. 3.10 may not tell the threads' numbers.
        first = next((thread for thread in threads if thread.tid == main), threads[-1] if threads else None)
        if first is None:
            return [], []
        loaders, counts = self._read_thread(first)
        for thread in [thread for thread in reversed(threads) if thread is not first][:_MAX_THREADS]:
            if counts or loaders:
                break
            with contextlib.suppress(Unreadable):
                loaders, counts = self._read_thread(thread)
        return loaders, counts

    def count_again(self, loaders: Iterable[SeenLoader]) -> list[SeenLoader] | None:
        """The loaders of a reading with what they have given until now; None if a loop goes over another iterator since."""
        counted = []
        for seen in loaders:
            before, count = seen.loader, self._iterators.count(seen.iterator) if seen.iterator else None
            if count is not None and count.done >= (before.done or 0) and _is_same_iterator(count, seen):
                counted.append(seen._replace(loader=replace(before, done=count.done)))
            elif not seen.iterator:
                counted.append(seen)
            else:
                return None
        return counted

    def _read_thread(self, thread: ThreadState) -> tuple[list[SeenLoader], list[TrainerCount]]:
        frames = self._read_frames(thread)
        reached = reach(self._objects, self._frames, frames)
        iterating = self._keep_unchanged(thread, self._find_iterating(frames))
        loaders = [self._in_use(iteration, reached) for iteration in reversed(iterating)]
        samplers = {iteration.counted.sampler for iteration in iterating}
        return [*loaders, *self._find_idle(reached, samplers)][:_MAX_LOADERS], reached.counts

    def _read_frames(self, thread: ThreadState) -> list[MemoryFrame]:
        """The frames of a thread, the outermost first. If it ran meanwhile, the way outwards may have ended at a frame that was
        gone: then they are read again."""
        frames: list[MemoryFrame] = []
        for _ in range(_ATTEMPTS):
            frames = list(self._frames.stack(thread))[::-1]
            if frames and frames[0].address == self._frames.outermost(thread):
                break
        return frames

    def _find_iterating(self, frames: list[MemoryFrame]) -> list[_Iterating]:
        """What the `for` loops go over, and what else the variables iterate; the outermost first. The frames of a generator and
        of an iterator's `__next__` are inside of the loop that asks them, so each iterator is taken where a loop first goes over
        it."""
        seen: dict[int, tuple[int, _Iterating]] = {}
        depths: list[int] = []
        depth = 0
        for at, frame in enumerate(frames):
            library = is_library(frame.file)
            for loop in frame.loops:
                count = self._iterators.count(loop.address)
                if count is not None and (count.of_batches or not library):
                    seen.setdefault(
                        count.address, (at, _Iterating(count, loop.address, frame, depth, loop.line, loop.asked))
                    )
                depth += 1
            depths.append(depth)
        for at, frame in enumerate(frames):
            for name, value in frame.variables.items():
                count = self._count_of_variable(value)
                if count is not None:
                    seen.setdefault(count.address, (at, _Iterating(count, value, frame, depths[at], name=name)))
        return [iteration for _, iteration in sorted(seen.values(), key=lambda pair: (pair[0], pair[1].depth))]

    def _count_of_variable(self, address: int) -> Count | None:
        with contextlib.suppress(Unreadable):
            kind = self._objects.class_name(address)
            if kind in _ITERATING or kind.endswith(_ITERATORS):
                count = self._iterators.count(address)
                return count if count is not None and count.of_batches else None
        return None

    def _keep_unchanged(self, thread: ThreadState, iterating: list[_Iterating]) -> list[_Iterating]:
        """Those that a second reading shows too, with its counts. The process runs meanwhile: a frame that has ended, or an
        iterator whose place another object has taken, is dropped."""
        present = set(self._frames.addresses(thread))
        again = []
        for iteration in iterating:
            count = self._iterators.count(iteration.iterator)
            if (
                count is None
                or count.done < iteration.counted.done
                or count._replace(done=iteration.counted.done) != iteration.counted
            ):
                continue
            if iteration.frame.address in present and self._frames.is_same(iteration.frame):
                again.append(iteration._replace(counted=count))
        return again

    def _in_use(self, iterating: _Iterating, reached: Reached) -> SeenLoader:
        count, frame = iterating.counted, iterating.frame
        dataset = length = sampler = outstanding = None
        workers: tuple[int, ...] = ()
        name = iterating.name
        if count.sampler:
            with contextlib.suppress(Unreadable):
                held = self._objects.at(count.address, "_dataset")
                dataset, length, sampler = self._iterators.data_of(held, count.sampler)
            workers = self._iterators.workers(count.address)
            outstanding = self._objects.counter_at(count.address, "_tasks_outstanding")
            name = reached.name_of(count.sampler) or name
        loader = Loader(
            kind=count.kind,
            done=count.done,
            total=count.total,
            pass_id=count.pass_id,
            name=name,
            function=frame.function,
            file=frame.file,
            line=frame.line or 0,
            begins=iterating.begins or 0,
            asked=iterating.asked,
            depth=iterating.depth,
            outstanding=outstanding,
            workers=workers,
            dataset=dataset,
            dataset_length=length,
            sampler=sampler,
        )
        return SeenLoader(loader, count.address, iterating.iterator)

    def _find_idle(self, reached: Reached, in_use: set[int]) -> list[SeenLoader]:
        """Dataloaders that no loop goes over now. Persistent workers keep the iterator of a loop that has ended."""
        idle = []
        for held in reached.loaders:
            if held.sampler in in_use:
                continue
            counted = self._iterators.count(held.address)  # one that is its own iterator keeps what it gave
            done = counted.done if counted else self._objects.counter_at(held.address, "_iterator._num_yielded")
            dataset, length, sampler = self._iterators.data_of(held.dataset, held.sampler)
            loader = Loader(
                kind=self._objects.class_name(held.address),
                done=done,
                total=self._lengths.length(held.address),
                name=held.name,
                function=held.frame.function,
                file=held.frame.file,
                line=held.frame.line or 0,
                dataset=dataset,
                dataset_length=length,
                sampler=sampler,
            )
            idle.append(SeenLoader(loader, held.address))
        return idle


def _is_same_iterator(count: Count, seen: SeenLoader) -> bool:
    """Whether a count is of the iterator that was seen at its address."""
    before = seen.loader
    return (count.address, count.kind, count.total, count.pass_id) == (
        seen.address,
        before.kind,
        before.total,
        before.pass_id,
    )
