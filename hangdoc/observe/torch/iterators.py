"""How many batches an iterator has given to its loop, read from the memory of a process.

An iterator often wraps others (`enumerate(tqdm(loader))`): the innermost one that counts batches decides. What a wrapper has read
ahead is not counted: the loop has not received it. Sources: Objects/enumobject.c, iterobject.c, listobject.c, tupleobject.c,
rangeobject.c, Python/bltinmodule.c and Modules/itertoolsmodule.c of CPython 3.10 to 3.14; torch/utils/data/dataloader.py of torch
2.0 to 2.13; tqdm/std.py 4.70; accelerate/data_loader.py 1.15; pytorch_lightning/loops/fetchers.py 2.6.
"""

import contextlib
import struct
from collections.abc import Iterable
from typing import NamedTuple

from hangdoc.observe.memory.frames import Frames, MemoryFrame
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.memory.objects import Objects
from hangdoc.observe.torch.dataset_lengths import Lengths
from hangdoc.torch_facts.file_names import SAMPLING
from hangdoc.torch_facts.frameworks import ACCELERATE_LOADER, PASS_ON, READS_AHEAD, TQDM

_MAX_DEPTH = 8
_MAX_WORKERS = 256
_MAX_COUNT = 1 << 48
_PASS_IDS = (1 << 53) - 1
"""An integer that every reader of JSON keeps."""
_IN_SEQUENCES = frozenset({"list_iterator", "tuple_iterator"})


class Count(NamedTuple):
    """What an iterator counts."""

    kind: str
    done: int
    total: int | None = None
    address: int = 0
    """Of what counts."""
    sampler: int = 0
    """Of the sampler of a dataloader's iterator, which the dataloader also has; 0 if there is none."""
    of_batches: bool = True
    """Whether it is known to give batches: a list may also have anything else."""
    pass_id: int | None = None
    """Another number in each pass over the data; None if nothing shows it."""


class Iterators:
    """Reads the iterators of one process."""

    def __init__(self, objects: Objects, frames: Frames, lengths: Lengths, version: tuple[int, int]) -> None:
        self._objects, self._frames, self._lengths, self._version = objects, frames, lengths, version

    def count(self, address: int, depth: int = 0) -> Count | None:
        """What the iterator at `address` counts; None if it counts nothing, or changes while it is read."""
        if depth >= _MAX_DEPTH:
            return None
        with contextlib.suppress(Unreadable, KeyError):
            first = self._read(address, depth)
            if first is not None and 0 <= first.done <= _MAX_COUNT:
                return first
        return None

    def _read(self, address: int, depth: int) -> Count | None:
        memory = self._objects.memory
        kind = memory.kind(address)[0]
        if kind == "zip":
            return self._count_least(memory.elements(memory.word(address + 24), 16), depth)
        if kind == "map":
            return self._count_least(memory.elements(memory.word(address + 16), 16), depth)
        if kind == "enumerate":
            return self._count_enumerate(address, depth)
        if kind == "itertools.islice":
            return self._count_islice(address, depth)
        if kind in _IN_SEQUENCES or kind == "range_iterator":
            return self._count_in_sequence(address, kind)
        if kind == "generator":
            return self._count_generator(self._frames.generator_frame(address), address, depth)
        return self._count_instance(address, depth) if self._objects.is_instance(address) else None

    # --- iterators in C --------------------------------------------------------------------------------------------------

    def _count_least(self, iterators: Iterable[int], depth: int) -> Count | None:
        """Of iterators that are asked in turn: what all of them have given. The first to end ends the loop."""
        counts = [count for inner in iterators if (count := self.count(inner, depth + 1)) is not None]
        if not counts:
            return None
        batches = next((count for count in counts if count.sampler), counts[0])
        totals = [count.total for count in counts if count.total is not None]
        return batches._replace(done=min(count.done for count in counts), total=min(totals, default=None))

    def _count_enumerate(self, address: int, depth: int) -> Count | None:
        memory = self._objects.memory
        inner = self.count(memory.word(address + 24), depth + 1)
        if inner is not None:
            return inner
        index = memory.word(address + 16)
        return Count("enumerate", index, address=address, of_batches=False) if index <= _MAX_COUNT else None

    def _count_islice(self, address: int, depth: int) -> Count | None:
        memory = self._objects.memory
        wrapped, _, stop, step = struct.unpack("<4Q", memory.read(address + 16, 32))
        inner = self.count(wrapped, depth + 1)
        if inner is None or step != 1 or stop > _MAX_COUNT:
            return inner if step == 1 else None
        return inner._replace(total=stop if inner.total is None else min(stop, inner.total))

    def _count_in_sequence(self, address: int, kind: str) -> Count | None:
        memory = self._objects.memory
        index = memory.word(address + 16)
        if kind == "range_iterator":
            # Up to 3.11 it has index, start, step and length. Later ones only keep what is left.
            total = memory.word(address + 40) if self._version < (3, 12) else None
        else:
            sequence = memory.word(address + 24)
            total = memory.length(sequence) if sequence else None
        if total is None or index > total:
            return None
        return Count(kind, index, total, address, of_batches=False)

    # --- generators ------------------------------------------------------------------------------------------------------

    def _count_generator(self, frame: MemoryFrame, address: int, depth: int) -> Count | None:
        if ACCELERATE_LOADER.is_at(frame.file, frame.function):
            return self._count_accelerate(frame, address, depth)
        if frame.file.endswith(TQDM) and "self" in frame.variables:
            return self._count_tqdm(frame, address, depth)
        source = self._frames.source(frame)
        count = self.count(source, depth + 1) if source is not None else None
        # Of nested loops, as over files and their rows, the inner one begins again and again: only a loader's passes are known.
        return count if count is None or count.of_batches or len(frame.loops) == 1 else None

    def _count_batches(self, address: int, depth: int) -> Count | None:
        count = self.count(address, depth + 1)
        return count if count is not None and count.of_batches else None

    def _count_tqdm(self, frame: MemoryFrame, address: int, depth: int) -> Count | None:
        """tqdm.__iter__: `for obj in iterable: yield obj; n += 1`, or `yield from iterable` if it shows nothing."""
        objects, bar = self._objects, frame.variables["self"]
        total = objects.integer_at(bar, "total")
        inner = self.count(frame.loops[0].address, depth + 1) if frame.loops else None
        if inner is not None:
            return inner if inner.total is not None else inner._replace(total=total)
        if "n" not in frame.variables:
            return None
        done = self._frames.integer(frame, "n") - (objects.integer_at(bar, "initial") or 0)
        return Count("tqdm", done + (1 if frame.suspended and frame.loops else 0), total, address)

    def _count_accelerate(self, frame: MemoryFrame, address: int, depth: int) -> Count | None:
        """DataLoaderShard and DataLoaderDispatcher read one batch ahead; `batch_index` grows after each `yield`."""
        variables = frame.variables
        inner = next((count for value in variables.values() if (count := self._count_batches(value, depth))), None)
        done = self._frames.integer(frame, "batch_index") if "batch_index" in variables else 0
        if frame.suspended and "batch_index" in variables:
            done += 1
        loader = self._objects.class_name(variables["self"]) if "self" in variables else "generator"
        if inner is not None:
            return inner._replace(kind=loader, done=done)
        return Count(loader, done, self._lengths.length(variables["self"]) if "self" in variables else None, address)

    # --- iterators in Python ---------------------------------------------------------------------------------------------

    def _count_instance(self, address: int, depth: int) -> Count | None:
        attributes = self._objects.attributes(address)
        if "_num_yielded" in attributes and "_index_sampler" in attributes:
            return self._count_loader(address, attributes)
        if {"fetched", "length", "_combined_loader"} <= attributes.keys():
            return self._count_fetcher(address, attributes)
        kind = self._objects.class_at(self._objects.memory.word(address + 8))
        if kind in READS_AHEAD:
            return self._count_given(attributes, *READS_AHEAD[kind], depth)
        wrapped = PASS_ON.get(kind)
        return self.count(attributes[wrapped], depth + 1) if wrapped in attributes else None

    def _count_given(self, attributes: dict[str, int], wrapped: str, ahead: str, depth: int) -> Count | None:
        """Of an iterator that keeps the next batch in the attribute `ahead`: it has not given that one."""
        inner = self.count(attributes[wrapped], depth + 1)
        keeps = self._objects.memory.kind(attributes[ahead])[0] != "NoneType"
        return inner._replace(done=inner.done - keeps) if inner is not None else None

    def _count_loader(self, address: int, attributes: dict[str, int]) -> Count:
        """_BaseDataLoaderIter: `_num_yielded` grows when `__next__` returns a batch."""
        done = self._count_in(address, "_num_yielded")
        sampler = attributes["_index_sampler"]
        total = self._batches_of(address, attributes)
        return Count(
            self._objects.class_name(address), done, total, address, sampler, pass_id=self._pass_of(attributes)
        )

    def _count_in(self, address: int, attribute: str) -> int:
        """Raises Unreadable if it is no int."""
        count = self._objects.counter_at(address, attribute)
        if count is None:
            raise Unreadable(f"no number in {attribute}")
        return count

    def _pass_of(self, attributes: dict[str, int]) -> int | None:
        """Each iterator has a random number of its own (`_base_seed`). That of persistent workers, which stays, begins each pass
        with another iterator of its sampler. One that still starts its workers gets another such iterator with the first tasks
        for them (`_send_idx`), so it is in no pass yet."""
        if "_base_seed" not in attributes or "_sampler_iter" not in attributes:
            return None
        by_workers = "_num_workers" in attributes and self._objects.memory.integer(attributes["_num_workers"]) > 0
        if by_workers and "_send_idx" not in attributes:
            return None
        (digits,) = struct.unpack("<Q", self._objects.memory.read(attributes["_base_seed"] + 24, 8))
        return int(digits ^ attributes["_sampler_iter"]) & _PASS_IDS

    def _batches_of(self, address: int, attributes: dict[str, int]) -> int | None:
        """`len()` of the dataloader of an iterator."""
        sampler = attributes["_index_sampler"]
        if self._objects.integer_at(address, "_dataset_kind") == 1:
            if self._objects.integer_at(address, "_num_workers") != 0:
                return None  # it is said for one worker; how much all of them give is not known
            samples = self._lengths.length(attributes["_dataset"])
            batched = self._objects.integer_at(address, "_auto_collation")
            return self._lengths.batches(samples, sampler) if batched else samples
        total = self._lengths.length(sampler)
        return total if total is not None else self._from_sampling(attributes, sampler)

    def _from_sampling(self, attributes: dict[str, int], sampler: int) -> int | None:
        """As above, from the variables of the samplers' generators, which have called `len(dataset)`."""
        with contextlib.suppress(Unreadable, KeyError):
            frame = self._frames.generator_frame(attributes["_sampler_iter"])
            if not SAMPLING.is_at(frame.file, frame.function) or not frame.loops:
                return None  # a sampler of the user's, whose loops may be over anything
            sampling = frame.variables["sampler_iter"] if "sampler_iter" in frame.variables else frame.loops[-1].address
            return self._lengths.batches(self._samples(sampling), sampler)
        return None

    def _samples(self, sampling: int) -> int | None:
        """How many samples the iterator of a SequentialSampler or RandomSampler has in all."""
        memory = self._objects.memory
        kind = memory.kind(sampling)[0]
        if kind == "range_iterator":  # `iter(range(len(self.data_source)))`
            if self._version < (3, 12):
                return memory.word(sampling + 40)
            return memory.word(sampling + 16) + memory.word(sampling + 32)
        if kind == "generator":
            frame = self._frames.generator_frame(sampling)
            if SAMPLING.is_at(frame.file, frame.function):
                own = self._objects.integer_at(frame.variables["self"], "_num_samples")
                return own if own is not None else memory.integer(frame.variables["n"])
        return None

    def _count_fetcher(self, address: int, attributes: dict[str, int]) -> Count:
        """Lightning's _DataFetcher: `fetched`, less what waits in `batches`."""
        memory = self._objects.memory
        waiting = memory.length(attributes["batches"]) if "batches" in attributes else 0
        total = self._objects.integer_at(address, "length")
        done = self._count_in(address, "fetched") - (waiting or 0)
        pass_id = None
        with contextlib.suppress(Unreadable, KeyError, StopIteration):
            iterators = self._objects.at(address, "_combined_loader._iterator.iterators")
            pass_id = self._pass_of(self._objects.attributes(next(iter(memory.elements(iterators, 1)))))
        return Count(self._objects.class_name(address), done, total, address, pass_id=pass_id)

    # --- what else is known of a dataloader ------------------------------------------------------------------------------

    def workers(self, iterator: int) -> tuple[int, ...]:
        """Pids of the workers of a dataloader's iterator."""
        with contextlib.suppress(Unreadable, KeyError):
            workers = self._objects.memory.elements(self._objects.attributes(iterator)["_workers"], _MAX_WORKERS)
            pids = [self._objects.integer_at(worker, "_popen.pid") for worker in workers]
            return tuple(pid for pid in pids if pid is not None)
        return ()

    def data_of(self, dataset: int, sampler: int) -> tuple[str | None, int | None, str | None]:
        """(class of the dataset, its length, class of the sampler) of a dataloader. `sampler` may make batches of another one's
        samples."""
        with contextlib.suppress(Unreadable):
            with contextlib.suppress(Unreadable):
                sampler = self._objects.at(sampler, "sampler")
            kind = self._objects.class_name(dataset)
            return kind, self._lengths.length(dataset), self._objects.class_name(sampler)
        return None, None, None
