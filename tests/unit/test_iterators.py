"""What iterators count and how long datasets are, read from real processes in every Python at hand. torch is not needed: the
classes have its names and attributes. tests/live/test_loops.py has the real ones."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from hangdoc.observe.memory.frame_layout import LAYOUTS
from hangdoc.observe.memory.frames import Frames, MemoryFrame
from hangdoc.observe.memory.locate import Image
from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.memory.objects import Objects
from hangdoc.observe.memory.python_state import Modules
from hangdoc.observe.torch.dataloaders import LoopReader, SeenLoader
from hangdoc.observe.torch.dataset_lengths import Lengths
from hangdoc.observe.torch.framework_steps import counts_of_function, counts_of_object
from hangdoc.observe.torch.iterators import Count, Iterators
from hangdoc.observe.torch.reachable_loaders import HeldLoader, Reached
from tests.pythons import located

PROGRAM = """
import itertools, sys
COUNT, NAMES, twelve = 77, ["a", "b"], 12

def of(module, name, methods=(), bases=(), **attributes):
    # An instance of a class of this module and name.
    made = type(name, bases, {"__module__": module, **dict.fromkeys(methods, lambda self: id(self) // 2)})()
    vars(made).update(attributes)
    return made
SAMPLER, DATASET = "torch.utils.data.sampler", "torch.utils.data.dataset"
class Files:
    def __init__(self, count): self.files, self.count, self.inner = list(range(count)), count, self
class OfFiles(Files):
    def __len__(self): return len(self.files)
class OfCount(Files):
    def __len__(self): return self.count
class OfInner(Files):
    def __len__(self): return self.inner.count
class OfInnerFiles(Files):
    def __len__(self): return len(self.inner.files)
class OfConstant(Files):
    def __len__(self): return 1234
class OfSmall(Files):
    def __len__(self): return 9
class OfGlobal(Files):
    def __len__(self): return COUNT
class OfGlobalNames(Files):
    def __len__(self): return len(NAMES)
class Documented(Files):
    def __len__(self):
        '''How many.'''
        return len(self.files)
class Computed(Files):
    def __len__(self): return len(self.files) // 2
class Negative(Files):
    def __len__(self): return -self.count
class Subtracted(Files):
    def __len__(self): return self.count - 1
class Called(Files):
    def __len__(self): return len(str(self.count))
class Branching(Files):
    def __len__(self): return self.count if self.files else 0
class Inherits(OfFiles): pass
class Endless(Files): pass
files, number, inner, inner_files, constant, small = (
    kind(31) for kind in (OfFiles, OfCount, OfInner, OfInnerFiles, OfConstant, OfSmall))
of_global, of_names, documented, inherits = (kind(31) for kind in (OfGlobal, OfGlobalNames, Documented, Inherits))
computed, negative, subtracted, called, branching, endless = (
    kind(31) for kind in (Computed, Negative, Subtracted, Called, Branching, Endless))
span, numbers = range(3, 50, 2), [1, 2, 3]

LEN = ("__len__",)
sequential = of(SAMPLER, "SequentialSampler", LEN, data_source=files)
random = of(SAMPLER, "RandomSampler", LEN, data_source=files, _num_samples=None)
some = of(SAMPLER, "RandomSampler", LEN, data_source=files, _num_samples=12)
distributed = of("torch.utils.data.distributed", "DistributedSampler", LEN, num_samples=80)
batched = of(SAMPLER, "BatchSampler", LEN, sampler=sequential, batch_size=4, drop_last=False)
dropping = of(SAMPLER, "BatchSampler", LEN, sampler=sequential, batch_size=4, drop_last=True)
own_sampler = of("mine", "BatchSampler", LEN, sampler=sequential, batch_size=4, drop_last=True)
subset = of(DATASET, "Subset", LEN, indices=[1, 2, 3, 4])
concatenated = of(DATASET, "ConcatDataset", LEN, cumulative_sizes=[3, 10])
shard = of("accelerate.data_loader", "BatchSamplerShard", LEN, batch_sampler=batched, split_batches=False, num_processes=3,
           drop_last=False, even_batches=False, process_index=2)
even = of("accelerate.data_loader", "BatchSamplerShard", LEN, batch_sampler=batched, split_batches=False, num_processes=3,
          drop_last=False, even_batches=True, process_index=2)
nothing = of(SAMPLER, "BatchSampler", LEN, sampler=sequential, batch_size=0, drop_last=False)
circle = of(SAMPLER, "BatchSampler", LEN, batch_size=4, drop_last=False)
circle.sampler = circle

def loader_iterator(done, name="_SingleProcessDataLoaderIter", sampler=batched, **more):
    return of("torch.utils.data.dataloader", name, ("__next__",), _num_yielded=done, _index_sampler=sampler, _dataset=files,
              _dataset_kind=0, _num_workers=0, _auto_collation=True, **more)
def last_batch_behind_its_loop():
    for n in range(5): pass
    yield [n]
own_batches = of("mine", "TokenBudgetSampler", batch_size=2, drop_last=False)
behind = last_batch_behind_its_loop()
next(behind)
of_own_sampler = loader_iterator(6, sampler=own_batches, _sampler_iter=behind)
class Following:
    # As an iterator over a dataloader: it counts what it gives.
    def __init__(self, total): self._num_yielded, self._index_sampler, self._total = 0, numbers, total
    def __iter__(self): return self
    def __next__(self):
        if self._num_yielded == self._total: raise StopIteration
        self._num_yielded += 1
        return self._num_yielded
Following.__name__ = "_SingleProcessDataLoaderIter"
def taken(iterator, count):
    for _ in range(count): next(iterator)
    return iterator
single = loader_iterator(7)
streamed = of("torch.utils.data.dataloader", "_SingleProcessDataLoaderIter", _num_yielded=3, _index_sampler=batched,
              _dataset=files, _dataset_kind=1, _num_workers=0, _auto_collation=True)
by_workers = of("torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter", _num_yielded=3, _index_sampler=batched,
                _dataset=files, _dataset_kind=1, _num_workers=2, _auto_collation=True)
starts_workers = of("torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter", _num_yielded=0, _index_sampler=batched,
                    _dataset=files, _dataset_kind=0, _num_workers=2, _base_seed=1 << 61, _sampler_iter=iter(numbers))
has_workers = of("torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter", _num_yielded=0, _index_sampler=batched,
                 _dataset=files, _dataset_kind=0, _num_workers=2, _base_seed=1 << 61, _sampler_iter=iter(numbers), _send_idx=4)
huge = loader_iterator(1 << 59)
text = loader_iterator("7")
listed, paired = taken(iter([1, 2, 3, 4]), 2), taken(iter((1, 2, 3)), 1)
counted = taken(enumerate(Following(9), 5), 4)
index = taken(enumerate(map(str, iter({1: 2, 3: 4}))), 2)
zipped = zip(taken(Following(9), 5), taken(Following(9), 4))
mapped = taken(map(str, Following(9)), 3)
sliced, stepped = taken(itertools.islice(Following(9), 6), 2), taken(itertools.islice(Following(9), 0, 8, 2), 2)
unbounded = taken(itertools.islice(Following(9), None), 2)
filtered = taken(filter(None, Following(9)), 2)

def pass_on(items):
    for item in items:
        yield item
def annotate(items):
    for item in items:
        item = (item, len(str(item)))
        yield item
        if item is None:
            print()
def delegate(items): yield from items
def for_ever(items):
    while True:
        for item in items:
            yield item
def rebatch(items):
    batch = []
    for item in items:
        batch.append(item)
        if len(batch) == 2:
            yield batch
            batch = []
def split(items):
    for item in items:
        for part in (1, 2):
            yield part
def twice(items):
    for item in items:
        yield item
        yield item
def skip(items):
    for item in items:
        if item == 2:
            continue
        yield item
def by_hand(items):
    items = iter(items)
    while True:
        yield next(items)
passing, annotating, delegating, repeating, rebatching, splitting, twofold, skipping, manual = (
    taken(kind(Following(9)), 3) for kind in (pass_on, annotate, delegate, for_ever, rebatch, split, twice, skip, by_hand))
unbegun = pass_on(Following(9))
over_list = taken(pass_on([1, 2, 3, 4]), 3)
deep = iter([1, 2, 3, 4, 5])
for _ in range(30): deep = map(str, deep)

class Wrapper:
    def __init__(self, inner): self.inner, self.ahead = inner, next(inner)
unknown = Wrapper(Following(9))
repeats = of("deepspeed.runtime.dataloader", "RepeatingLoader", data_iter=taken(Following(9), 3))
RAY = "ray.train.torch.train_loop_utils"
reads_ahead = of(RAY, "_WrappedDataLoader", dataloader_iter=taken(Following(9), 4), next_batch=[4])
gave_all = of(RAY, "_WrappedDataLoader", dataloader_iter=taken(Following(9), 9), next_batch=None)
not_begun = of(RAY, "_WrappedDataLoader", dataloader_iter=None, next_batch=None)
fetcher = of("pytorch_lightning.loops.fetchers", "_PrefetchDataFetcher", fetched=6, length=None, batches=[1],
_combined_loader=None)

scope = {}
exec(compile('''
def __iter__(self):
    dataloader_iter = self.base
    current_batch = next(dataloader_iter)
    batch_index = 0
    while True:
        next_batch = next(dataloader_iter)
        yield current_batch
        batch_index += 1
        current_batch = next_batch
''', "/x/accelerate/data_loader.py", "exec"), scope)
exec(compile('''
def bar(self):
    n = self.n
    for obj in self.iterable:
        yield obj
        n += 1
''', "/x/tqdm/std.py", "exec"), scope)
ahead = taken(scope["__iter__"](of("accelerate.data_loader", "DataLoaderShard", base=Following(9))), 3)
bar = taken(scope["bar"](of("tqdm.std", "tqdm", n=2, initial=2, total=50, iterable={1: 2, 3: 4, 5: 6}.keys())), 2)
bar_of_loader = taken(scope["bar"](of("tqdm.std", "tqdm", n=0, initial=0, total=50, iterable=Following(9))), 2)

state = of("transformers.trainer_callback", "TrainerState", global_step=12, max_steps=40)
foreign = of("mine", "TrainerState", global_step=12, max_steps=40)
engine = of("deepspeed.runtime.engine", "DeepSpeedEngine", global_steps=3, micro_steps=12)
endless_state = of("transformers.trainer_callback", "TrainerState", global_step=5, max_steps=-1)
strange_state = of("transformers.trainer_callback", "TrainerState", global_step="5", max_steps=9)

class Loader:
    def __init__(self):
        self.dataset, self.batch_sampler, self.sampler, self._iterator, self.drop_last = files, batched, None, None, 0
Loader.__name__ = Loader.__qualname__ = "DataLoader"
def train(loader, own):
    for epoch in range(3):
        for item in own:
            if item == 4:
                print("ready", flush=True)
                sys.stdin.read()
loader = Loader()
own = Following(9)
own._index_sampler, own._dataset = batched, files
ended = of(RAY, "_WrappedDataLoader", dataset=files, batch_sampler=dropping, sampler=None, _iterator=None, drop_last=True,
           dataloader_iter=taken(Following(9), 5), next_batch=[5])
class Trains:
    def __init__(self): self.state, self.idle = state, Loader()
    def run(self): train(loader, own)
exec(compile('''
def run(self): epoch()
''', "/x/lightning/pytorch/loops/fit_loop.py", "exec"), scope)
exec(compile('''
def _run_epoch(epoch, steps_in_epoch):
    step = 4
    for update in range(9):
        for i, batch in enumerate([1]):
            step += 1
            trains.run()
''', "/x/transformers/trainer.py", "exec"), scope)
progress = of("lightning.x", "Progress", current=of("lightning.x", "Current", completed=7, ready=8))
scope.update(epoch=lambda: scope["_run_epoch"](2, 50), trains=Trains())
epochs = of("lightning.x", "Progress", current=of("lightning.x", "Current", ready=6, started=6, processed=5))
training = of("lightning.x", "Loop", batch_progress=progress)
flows, has_ended, begins_again = (
    of("lightning.x", "_FitLoop", epoch_progress=epochs, epoch_loop=training, max_batches=float("inf"),
    _data_fetcher=of("lightning.x", "_PrefetchDataFetcher", fetched=fetched, done=done))
    for fetched, done in ((8, False), (7, True), (1, True)))
scope["run"](of("lightning.x", "_FitLoop", epoch_progress=epochs, epoch_loop=training, max_batches=70))
"""


@pytest.fixture(scope="module", params=[f"{major}.{minor}" for major, minor in LAYOUTS])
def victim(request: pytest.FixtureRequest, can_attach: None) -> Iterator[tuple[int, Image]]:
    with located(request.param, PROGRAM) as found:
        yield found


@pytest.fixture
def memory(victim: tuple[int, Image]) -> Iterator[Memory]:
    with Memory(victim[0], victim[1].layout) as opened:
        yield opened


@pytest.fixture
def variables(memory: Memory, victim: tuple[int, Image]) -> dict[str, int]:
    return Modules(memory, victim[1]).namespace("__main__")["__main__"]


def test_lengths(memory: Memory, victim: tuple[int, Image], variables: dict[str, int]) -> None:
    lengths = Lengths(Objects(memory, victim[1].version))
    expected: dict[str, int | None] = {
        "files": 31, "number": 31, "inner": 31, "inner_files": 31, "constant": 1234, "small": 9, "of_global": 77, "of_names": 2,
        "documented": 31, "inherits": 31, "span": 24, "numbers": 3, "sequential": 31, "random": 31, "some": 12, "distributed": 80,
        "batched": 8, "dropping": 7, "subset": 4, "concatenated": 10, "shard": 2, "even": 3,
        # What is computed in another way, or by classes that only have the same name, is not known.
        "computed": None, "negative": None, "subtracted": None, "called": None, "branching": None, "endless": None,
        "own_sampler": None, "nothing": None, "circle": None, "train": None, "Loader": None,
    }  # fmt: skip
    assert {name: lengths.length(variables[name]) for name in expected} == expected


def test_counts(memory: Memory, victim: tuple[int, Image], variables: dict[str, int]) -> None:
    objects = Objects(memory, victim[1].version)
    iterators = Iterators(objects, Frames(memory, victim[1]), Lengths(objects), victim[1].version)

    def count(name: str) -> tuple[int, int | None] | None:
        counted = iterators.count(variables[name])
        return (counted.done, counted.total) if isinstance(counted, Count) else None

    expected = {
        "of_own_sampler": (6, None),
        "single": (7, 8), "streamed": (3, 8), "by_workers": (3, None), "listed": (2, 4), "paired": (1, 3), "counted": (4, 3),
        "index": (2, None), "zipped": (4, 3), "mapped": (3, 3), "sliced": (2, 3), "unbounded": (2, 3), "passing": (3, 3),
        "annotating": (3, 3), "delegating": (3, 3), "repeating": (3, 3), "over_list": (3, 4), "repeats": (3, 3),
        "reads_ahead": (3, 3), "gave_all": (9, 3), "not_begun": None, "fetcher": (5, None),
        "ahead": (3, 3), "bar": (2, 50), "bar_of_loader": (2, 3), "unbegun": None,
        # Not one batch for each of the iterator: what the loop has received is not known.
        "rebatching": None, "splitting": None, "twofold": None, "skipping": None, "manual": None, "stepped": None,
        "filtered": None, "unknown": None, "deep": None,
        "huge": None, "text": None, "train": None, "numbers": None, "loader": None,
    }  # fmt: skip
    assert {name: count(name) for name in expected} == expected


def test_an_iterator_that_starts_its_workers_is_in_no_pass(
    memory: Memory, victim: tuple[int, Image], variables: dict[str, int]
) -> None:
    """Its sampler's iterator is replaced afterwards, and that looked like another pass: 300 batches a second."""
    objects = Objects(memory, victim[1].version)
    iterators = Iterators(objects, Frames(memory, victim[1]), Lengths(objects), victim[1].version)
    starts, has = iterators.count(variables["starts_workers"]), iterators.count(variables["has_workers"])
    assert starts is not None
    assert has is not None
    assert (starts.done, starts.pass_id) == (0, None)
    assert has.pass_id is not None


def test_a_number_is_read_while_it_stays_where_it_is(memory: Memory, variables: dict[str, int]) -> None:
    """A count is another int after each step, and any other may soon be where it was. One that never rests is not read."""
    count, span, number = (variables[name] for name in ("COUNT", "span", "twelve"))
    places = iter([number, count, span, span, count, count])
    assert memory.settled_integer(lambda: next(places)) == 77
    turns = itertools.cycle([number, count])
    with pytest.raises(Unreadable, match="changes while it is read"):
        memory.settled_integer(lambda: next(turns))


def test_numbers_of_frameworks(memory: Memory, victim: tuple[int, Image], variables: dict[str, int]) -> None:
    objects = Objects(memory, victim[1].version)

    def numbers(name: str) -> list[tuple[str, int, int | None]]:
        return [(one.name, one.done, one.total) for one in counts_of_object(objects, variables[name])]

    assert numbers("state") == [("TrainerState.global_step", 12, 40)]
    assert numbers("endless_state") == [("TrainerState.global_step", 5, None)]
    assert numbers("engine") == [("DeepSpeedEngine.global_steps", 3, None), ("DeepSpeedEngine.micro_steps", 12, None)]
    for name in ("foreign", "strange_state", "files"):
        assert numbers(name) == []


def test_a_batch_that_has_begun_is_not_completed(memory: Memory, victim: tuple[int, Image]) -> None:
    frames, objects = Frames(memory, victim[1]), Objects(memory, victim[1].version)
    (thread,) = frames.threads()
    stack = {frame.function: frame for frame in frames.stack(thread)}

    def count(frame: MemoryFrame) -> list[int]:
        return [each.done for each in counts_of_function(objects, frames, frame)]

    epoch = stack["_run_epoch"]
    assert count(epoch) == [5]
    assert count(epoch._replace(loops=epoch.loops[:1])) == [6]  # between two updates


def test_a_stream_has_a_total_once_it_has_ended(
    memory: Memory, victim: tuple[int, Image], variables: dict[str, int]
) -> None:
    """Its framework reads one batch ahead, and keeps whether there was one."""
    frames, objects = Frames(memory, victim[1]), Objects(memory, victim[1].version)
    (thread,) = frames.threads()
    run = next(frame for frame in frames.stack(thread) if frame.file == "/x/lightning/pytorch/loops/fit_loop.py")

    def count(name: str) -> list[tuple[int, int | None, int | None]]:
        counts = counts_of_function(objects, frames, run._replace(variables={"self": variables[name]}))
        return [(each.done, each.total, each.fetched) for each in counts]

    assert count("flows") == [(7, None, 8)]
    assert count("has_ended") == [(7, 7, 7)]
    assert count("begins_again") == [(7, None, None)]


def test_loops_of_the_main_thread(memory: Memory, victim: tuple[int, Image]) -> None:
    loaders, counts = LoopReader(memory, victim[1]).read(victim[0])
    assert {(count.framework, count.done, count.total, count.batches, count.pass_number) for count in counts} == {
        ("transformers", 12, 40, False, None),
        ("transformers", 5, 50, True, 3),
        ("lightning", 7, 70, True, 6),
        ("lightning", 8, 70, False, None),  # begun
    }
    assert loaders[0].loader.asked is False
    first = loaders[0].loader
    assert (first.done, first.total, first.depth, first.function) == (4, 8, 3, "train")
    assert (first.name, first.dataset, first.dataset_length, first.sampler) == (
        "self.idle",
        "OfFiles",
        31,
        "SequentialSampler",
    )
    assert PROGRAM.splitlines()[first.begins - 1].strip() == "for item in own:"
    assert PROGRAM.splitlines()[first.line - 1].strip() == "sys.stdin.read()"


def test_a_loader_that_is_its_own_iterator_keeps_what_it_gave(
    memory: Memory, victim: tuple[int, Image], variables: dict[str, int]
) -> None:
    """A `break` has ended its loop."""
    frames, objects = Frames(memory, victim[1]), Objects(memory, victim[1].version)
    stack = list(frames.stack(frames.threads()[0]))
    reached = Reached(objects, frames)
    address, sampler, dataset = (variables[name] for name in ("ended", "dropping", "files"))
    reached.loaders.append(HeldLoader(address, "ended", sampler, dataset, stack[0]))
    (idle,) = LoopReader(memory, victim[1])._find_idle(reached, set())
    assert (idle.loader.kind, idle.loader.done, idle.loader.begins) == ("_WrappedDataLoader", 4, 0)


def test_loops_are_counted_again(memory: Memory, victim: tuple[int, Image]) -> None:
    reader = LoopReader(memory, victim[1])
    loaders, _ = reader.read(victim[0])

    def with_first(**changed: Any) -> list[SeenLoader]:
        first = loaders[0]._replace(loader=replace(loaders[0].loader, **changed))
        return [first, *loaders[1:]]

    assert (loaders[0].loader.done, reader.count_again(with_first(done=3))) == (4, loaders)
    for changed in ({"done": 1 << 20}, {"total": 1 << 20}, {"pass_id": 1 << 20}, {"kind": "another"}):
        assert reader.count_again(with_first(**changed)) is None


def test_what_is_not_of_this_process(memory: Memory, victim: tuple[int, Image]) -> None:
    objects = Objects(memory, victim[1].version)
    iterators = Iterators(objects, Frames(memory, victim[1]), Lengths(objects), victim[1].version)
    for address in (0, 1, 4096, victim[1].runtime, victim[1].modules, 1 << 46):
        assert iterators.count(address) is None
        assert Lengths(objects).length(address) is None or address == victim[1].modules
        with pytest.raises(Unreadable):
            objects.at(address, "a.b")
