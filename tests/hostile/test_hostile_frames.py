"""Frames and iterators that were made to be read: a process that forges them spoils only its own evidence, within its budget."""

import sys

import pytest

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.memory.frame_layout import LAYOUTS
from hangdoc.observe.torch.loops import TrainingLoops
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Loops, Unavailable
from tests.hostile.fuzz import fake_memory
from tests.hostile.fuzz.bounds import bounded
from tests.hostile.fuzz.evidence import storable
from tests.hostile.fuzz.interpreters import read_everything, recording
from tests.pythons import observed, running

LAYOUT = LAYOUTS[sys.version_info[:2]]
GOOD = """
import sys
class Data:
    def __len__(self): return 40
class Loader:
    def __init__(self): self._num_yielded, self._index_sampler, self._dataset, self._dataset_kind = 0, Data(), Data(), 0
    def __iter__(self): return self
    def __next__(self):
        self._num_yielded += 1
        return self._num_yielded
Loader.__name__ = "_SingleProcessDataLoaderIter"
for number in Loader():
    if number == 7:
        print("ready", flush=True); sys.stdin.read()
"""
# Writes into its own memory: `put(address, word)`. It never returns from where it waits.
FORGE = f"""
import ctypes, sys
def put(address, word): ctypes.c_uint64.from_address(address).value = word
def word(address): return ctypes.c_uint64.from_address(address).value
def frame(depth): return word(id(sys._getframe(depth + 1)) + 24)
PREVIOUS, CODE, INSTRUCTION, VALUES = {LAYOUT.previous}, {LAYOUT.code}, {LAYOUT.instruction}, {LAYOUT.values}
def wait(): print("ready", flush=True); sys.stdin.read()
"""
ATTACKS = {
    "a frame called by itself": "def run(): me = frame(0); put(me + PREVIOUS, me); wait()",
    "a frame whose caller is nowhere": "def run(): put(frame(0) + PREVIOUS, 0x7fff_ffff_f000); wait()",
    "a frame with the code of something else": "def run(): put(frame(1) + CODE, id('text')); wait()",
    "a frame at no instruction": "def run(): put(frame(1) + INSTRUCTION, 3); wait()",
    "an enumerate over itself": "def run():\n e = enumerate([1]); next(e); put(id(e) + 24, id(e))\n for x in [1]: wait()",
    "a zip of itself": "def run():\n t = [0]; z = zip(iter(t)); put(word(id(z) + 24) + 24, id(z)); kept = [z]; wait()",
    "a hundred thousand maps": """
def run():
    deep = iter([1, 2])
    for _ in range(100_000): deep = map(str, deep)
    for x in [1]: wait()
""",
    "loaders without end": """
class Loader:
    def __init__(self, after):
        self.dataset = self.batch_sampler = self.sampler = self.drop_last = [1]
        self._iterator, self.after = None, after
def run():
    last = None
    for _ in range(50_000): last = Loader(last)
    vars(last).update({f"n{index}": Loader(None) for index in range(5_000)})
    for index in range(300): globals()[f"v{index}"] = Loader(last)
    self = last
    wait()
""",
    "objects that lead to objects": """
class Node: pass
def run():
    nodes = [Node() for _ in range(300)]
    for node in nodes: vars(node).update({f"n{index}": other for index, other in enumerate(nodes)})
    self = nodes[0]
    wait()
""",
    "a sampler of itself": """
class BatchSampler:
    def __len__(self): return 0
BatchSampler.__module__ = "torch.utils.data.sampler"
class Iterating:
    def __init__(self): self._num_yielded, self._dataset_kind, self._index_sampler, self._dataset = 3, 0, sampler, sampler
    def __iter__(self): return self
    def __next__(self): return 1
Iterating.__name__ = "_SingleProcessDataLoaderIter"
sampler = BatchSampler()
sampler.sampler, sampler.batch_size, sampler.drop_last = sampler, 4, 0
def run():
    for x in Iterating(): wait()
""",
    "a list with more than all memory": "def run():\n e = [1, 2]; put(id(e) + 16, 1 << 62)\n for x in e: wait()",
    "five hundred frames": "def run(depth=500): run(depth - 1) if depth else wait()",
    "names of a million characters": """
class Loader:
    def __init__(self):
        self.dataset = self.batch_sampler = self.sampler = self.drop_last = [1]
        self._iterator = None
Loader.__name__ = "DataLoader" * 100_000
globals()["v" * 1_000_000] = Loader()
def run(self=Loader()): wait()
""",
}
"""Each defines `run`."""


@pytest.mark.skipif(sys.version_info[:2] not in LAYOUTS or LAYOUT.own_objects, reason="another version of Python")
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_forger_beside_a_good_process(attack: str, can_attach: None) -> None:
    with (
        running([sys.executable], f"{FORGE}\n{ATTACKS[attack]}\nrun()") as forger,
        running([sys.executable], GOOD) as good,
        observed(forger, good) as observation,
        bounded(seconds=4.0),
    ):
        probe = TrainingLoops()
        for step in (probe.open, probe.during, probe.close):
            step(observation)
        found = {pid: value for pid, _, value in probe.evidence(observation)}
    assert isinstance(found[forger], Loops | Unavailable)
    storable(found[forger])
    assert observation.problems == []
    seen = found[good]
    assert isinstance(seen, Loops)
    assert [(one.done, one.done_before, one.total) for one in seen.loaders] == [(7, 7, 40)]


def test_loops_of_a_recorded_process() -> None:
    """The memory of a real process, unchanged, gives the evidence that it should."""
    seen = recording()
    target = Target(seen.pid, 1, "rank", "python", (), "S", 0, environment={})
    with fake_memory.memory_of(seen.pages):
        observation = Observation(ProcFS(seen.root), Deadline(30), 0.1, "never", {seen.pid: target})
        reading = TrainingLoops().read(observation, target)
    assert not isinstance(reading, Unavailable)
    assert [count.done for count in reading.counts] == [3]
    assert reading.loaders[0].loader.kind == "_SingleProcessDataLoaderIter"


@pytest.mark.parametrize("size", [8, 64, 4096])
def test_a_part_of_the_memory_is_gone(size: int) -> None:
    """Whatever cannot be read, or is zero, costs only what is there."""
    seen = recording()
    for page in sorted(seen.pages)[:: max(1, len(seen.pages) // 60)]:
        changed = bytearray(seen.pages[page])
        changed[:size] = bytes(size)
        with fake_memory.memory_of({**seen.pages, page: changed}), bounded():
            read_everything(ProcFS(seen.root), seen.pid, seen.main)
