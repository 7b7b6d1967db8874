"""The reader of interpreters and the reader of ELF files: the memory of a real process, with changes."""

import atexit
import functools
import shutil
import struct
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import NamedTuple

from hangdoc.observe.access.deadline import Deadline
from hangdoc.observe.access.observation import Observation, Target
from hangdoc.observe.memory.frames import Frames
from hangdoc.observe.memory.locate import Image, locate
from hangdoc.observe.memory.mapped_elf import MappedFile
from hangdoc.observe.memory.maps import mapped_files
from hangdoc.observe.memory.memory import Memory, Unreadable
from hangdoc.observe.memory.object_layout import TEXTS_AND_KEYS, Instances, Layout
from hangdoc.observe.memory.objects import Objects
from hangdoc.observe.memory.python_state import Modules, amounts, live_environment, p2p_ops, process_groups, variable
from hangdoc.observe.torch import rpc_worker
from hangdoc.observe.torch.dataset_lengths import Lengths
from hangdoc.observe.torch.framework_steps import counts_of_object
from hangdoc.observe.torch.interpreter_state import InterpreterState
from hangdoc.observe.torch.iterators import Iterators
from hangdoc.observe.torch.loops import TrainingLoops, joined
from hangdoc.observe.torch.precision import precisions
from hangdoc.observe.torch.process_group import own_rank
from hangdoc.procfs import ProcFS
from hangdoc.snapshot import Group, Interpreter
from tests.hostile.fuzz import fake_memory
from tests.hostile.fuzz.evidence import storable
from tests.hostile.fuzz.fake_memory import PAGE, Pages
from tests.pythons import running

PROGRAM = """
import os, sys, types
os.environ["SET_LATER"] = "yes"
class Module: pass
def module(name, **variables):
    made = types.ModuleType(name)
    vars(made).update(variables)
    sys.modules[name] = made
class ProcessGroup: pass
world, half = ProcessGroup(), ProcessGroup()
module("torch.distributed.distributed_c10d", _pg_group_ranks={world: {0: 0, 1: 1}, half: {0: 0}},
       _pg_names={world: "0", half: "1"}, _pg_backend_config={world: "cpu:gloo", half: "cpu:gloo"})
class GroupCoordinator:
    def __init__(self, name, group): self.unique_name, self.device_group, self.cpu_group = name, group, world
module("vllm.distributed.parallel_state", _WORLD=GroupCoordinator("world:0", world), _TP=GroupCoordinator("tp:0", half), _PP=None)
module("torch.distributed.rpc.api", _ALL_WORKER_NAMES={"a", "b"})
class Data:
    def __init__(self): self.paths, self.size, self.text, self.ratio = list(range(12)), 12, "x", 2.5
class Loader:
    def __init__(self): self.dataset, self.batch_size, self.table = Data(), 4, {"a": 1}
class P2POp:
    def __init__(self, op, peer): self.op, self.peer = op, peer
def isend(): pass
class Tensor:
    __slots__ = ("a", "b", "c", "d")
class autocast:
    def __init__(self): self.fast_dtype, self.prev, self._enabled, self.device = 1, 2, True, "cpu"
class Net:
    def __init__(self, depth): self._parameters, self._modules = {"w": Tensor()}, {"n": Net(depth - 1)} if depth else {}
loader, calls, net, cast, tensor = Loader(), [P2POp(isend, 1)], Net(3), autocast(), Tensor()
zero, large, flag, name, wide, items, group = 0, 2**40, True, "plain", "é日😀", [1, 2], {1, 2}
class Following:
    def __init__(self): self._num_yielded, self._index_sampler, self._dataset, self._dataset_kind = 0, items, Data(), 0
    def __iter__(self): return self
    def __next__(self):
        self._num_yielded += 1
        return self._num_yielded
Following.__name__ = "_SingleProcessDataLoaderIter"
def generate(source):
    for item in source:
        yield item
class Trainer:
    def __init__(self): self.state, self.loader = State(), loader
    def run(self, source):
        for epoch in range(3):
            for pair in zip(enumerate(generate(source)), map(str, generate([1, 2, 3]))):
                with open(os.devnull) as nothing:
                    try:
                        raise ValueError
                    except ValueError:
                        print("ready", flush=True)
                        sys.stdin.read()
class State:
    def __init__(self): self.global_step, self.max_steps = 3, 9
State.__module__, State.__name__ = "transformers.trainer_callback", "TrainerState"
loader.batch_sampler, loader.sampler, loader._iterator, loader.drop_last = items, items, None, False
following = Following()
listed, chained, sliced = iter(items), enumerate(iter(items)), zip(iter(items), map(str, iter(items)))
Trainer().run(following)
"""
_WORDS = (
    0,
    1,
    2,
    7,
    8,
    255,
    1 << 16,
    1 << 20,
    1 << 24,
    1 << 31,
    (1 << 32) - 1,
    1 << 46,
    1 << 62,
    (1 << 63) - 1,
    (1 << 64) - 1,
)


class Recording(NamedTuple):
    """What hangdoc reads of a process."""

    pid: int
    root: str
    """A /proc without the memory."""
    pages: Pages
    main: dict[str, int]
    """The variables of `__main__`."""
    elf: tuple[int, ...]
    """The addresses of the ELF files of the interpreter."""


@functools.lru_cache(1)
def recording() -> Recording:
    """Of a process that was started for it, and has ended."""
    pages: Pages = {}
    root = Path(tempfile.mkdtemp(prefix="hangdoc-fuzz-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    with running([sys.executable, "-I"], PROGRAM) as pid:
        fake_memory.copied(Path("/proc"), pid, root)
        with fake_memory.recorded(pages):
            proc = ProcFS(str(root))
            (root / str(pid) / "mem").symlink_to(f"/proc/{pid}/mem")
            image = locate(proc, pid)
            with Memory(pid, image.layout, str(root), str_hash=image.str_hash) as memory:
                main = Modules(memory, image).namespace("__main__")["__main__"]
            read_everything(proc, pid, main)
            bases = [file.base for file in mapped_files(proc, pid) if "python" in file.path.rsplit("/", 1)[-1]]
    return Recording(pid, str(root), pages, main, tuple(base for base in bases if base in pages))


def read_everything(proc: ProcFS, pid: int, main: dict[str, int]) -> None:
    """What probes read of a process, and every reader of a single object on every variable of `main`."""
    target = Target(pid, 1, "rank", "python", (), "S", 0, environment={})
    observation = Observation(proc, Deadline(30), 0.1, "never", {pid: target})
    found = InterpreterState().read(observation, target)
    if isinstance(found, Interpreter):
        storable(found)
    reading = TrainingLoops().read(observation, target)
    storable(joined(reading, reading))
    try:
        with observation.memory(pid) as memory:
            modules = Modules(memory, observation.image(pid))
            for name, module in modules.namespace("os", "torch.distributed.distributed_c10d").items():
                read_module(memory, name, module)
            for name, address in main.items():
                read_object(memory, name, address)
                read_iterator(memory, observation.image(pid), address)
    except Unreadable:
        pass


def read_iterator(memory: Memory, image: Image, address: int) -> None:
    """The readers of iterators, datasets and trainers."""
    try:
        objects, frames = Objects(memory, image.version), Frames(memory, image)
        Iterators(objects, frames, Lengths(objects), image.version).count(address)
        Lengths(objects).length(address)
        for count in counts_of_object(objects, address):
            storable(count)
    except Unreadable:
        pass


def read_module(memory: Memory, name: str, module: dict[str, int]) -> None:
    """The readers of modules."""
    try:
        if name == "os":
            live_environment(memory, module)
        else:
            for group in process_groups(memory, module):
                storable(group)
                own_rank(memory, group)
    except (Unreadable, KeyError):
        pass


def read_object(memory: Memory, name: str, address: int) -> None:
    """The readers of single objects. KeyError: an object without an attribute that all of its kind have."""
    for read in (variable, rpc_worker.worker_info, p2p_ops, amounts, precisions, Memory.named_items, Memory.items):
        try:
            if read is variable:
                variable(memory, name, address)
            elif read is rpc_worker.worker_info:
                rpc_worker.worker_info(memory, address)
            elif read in (Memory.named_items, Memory.items):
                list(read(memory, address))  # type: ignore[operator, arg-type]
            else:
                list(read(memory, name, address))  # type: ignore[operator, arg-type, call-arg]
        except Unreadable:
            continue


def attack_interpreter(dice: Random) -> None:
    """A process that has changed some words of its objects."""
    seen = recording()
    pages = {address: bytearray(page) for address, page in seen.pages.items()}
    addresses = list(pages)
    for _ in range(dice.choice((1, 3, 10, 100, 1000))):
        page = dice.choice(addresses)
        at = page + dice.randrange(0, PAGE, 8)
        if dice.random() < 0.3:  # near a variable, where readers look
            near = dice.choice(list(seen.main.values())) + dice.randrange(-32, 128, 8)
            at = near if near & -PAGE in pages else at
        _change(pages, at, dice, addresses)
    with fake_memory.memory_of(pages):
        read_everything(ProcFS(seen.root), seen.pid, seen.main)


def attack_objects(dice: Random) -> None:
    """A heap of words that point at each other, with types of names that mean something."""
    base = 1 << 20
    pages: Pages = {base + index * PAGE: bytearray(PAGE) for index in range(8)}
    addresses = list(pages)
    for page in pages.values():
        for at in range(0, PAGE, 8):
            page[at : at + 8] = _word(dice, addresses).to_bytes(8, "little")  # type: ignore[index]
    names = (
        b"Tensor",
        b"torch.dtype",
        b"dict",
        b"float",
        b"set",
        b"autocast",
        b"torch._C._distributed_rpc.WorkerInfo",
        b"bool",
    )
    for index, name in enumerate(names):
        at = base + index * 512
        struct.pack_into("<Q", pages[base], at - base + 24, base + PAGE + index * 64)
        struct.pack_into(
            "<Q", pages[base], at - base + 168, dice.choice(_FLAGS) | dice.choice((0, 1 << 4, 1 << 9, 1 << 2))
        )
        struct.pack_into(f"{len(name) + 1}s", pages[base + PAGE], index * 64, name)
        struct.pack_into("<Q", pages[base + 2 * PAGE], index * 512 + 8, at)
    instances = dice.choice(_INSTANCES)
    layout = dice.choice(TEXTS_AND_KEYS)._replace(instances=instances, cached_keys=872, function_name=32)
    with fake_memory.memory_of(pages):
        try:
            with Memory(1, layout._replace(tagged_ints=dice.random() < 0.5)) as memory:
                for index in range(len(names)):
                    address = base + 2 * PAGE + index * 512
                    read_object(memory, "x", address)
                    own_rank(memory, Group(address=address, name="", ranks=tuple(range(dice.randrange(4)))))
        except Unreadable:
            pass


def attack_elf(dice: Random) -> None:
    """A mapped file whose headers, tables and symbols were changed."""
    seen = recording()
    base = dice.choice(seen.elf)
    near = [address for address in seen.pages if base <= address < base + (1 << 26)]
    pages: Pages = {address: bytearray(seen.pages[address]) for address in near}
    for _ in range(dice.choice((1, 2, 5, 20))):
        page = base if dice.random() < 0.5 else dice.choice(near)
        at = page + dice.choice((dice.randrange(0, 1024, 2), dice.randrange(0, PAGE, 4)))
        if dice.random() < 0.5:
            pages[at & -PAGE][at % PAGE] = dice.randrange(256)  # type: ignore[index]
        else:
            _change(pages, at, dice, near)
    with fake_memory.memory_of(pages):
        try:
            with Memory(1, Layout()) as memory:
                file = MappedFile(memory, base)
                for name in ("_PyRuntime", "PyDict_Type", "Py_Version", "no_such_symbol"):
                    file.symbol(name)
        except Unreadable:
            pass


_INSTANCES: tuple[Instances, ...] = ("before", "tagged", "inline", "dict")
_FLAGS = tuple(1 << bit for bit in (24, 25, 26, 27, 28, 29, 31))


def _change(pages: Pages, at: int, dice: Random, addresses: list[int]) -> None:
    page = pages[at & -PAGE]
    page[at % PAGE : at % PAGE + 8] = _word(dice, addresses).to_bytes(8, "little")[: PAGE - at % PAGE]  # type: ignore[index]


def _word(dice: Random, addresses: list[int]) -> int:
    """A number, an address, or flags."""
    kind = dice.random()
    if kind < 0.5:
        return dice.choice(addresses) + dice.randrange(0, PAGE, 8)
    if kind < 0.8:
        return dice.choice(_WORDS)
    return dice.getrandbits(64) if kind < 0.9 else dice.randrange(64)
