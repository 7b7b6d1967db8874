"""Dataloaders and trainers among the objects that the variables of a stack reach in two steps, as `self.trainer.state`."""

import contextlib
from itertools import islice
from typing import NamedTuple

from hangdoc.observe.memory.frames import Frames, MemoryFrame
from hangdoc.observe.memory.memory import Unreadable
from hangdoc.observe.memory.objects import Objects
from hangdoc.observe.torch.framework_steps import counts_of_function, counts_of_object
from hangdoc.program import is_library
from hangdoc.snapshot import TrainerCount

_MAX_OBJECTS = 400
"""Objects of which the attributes are read."""
_MAX_ATTRIBUTES = 96
_MAX_COUNTS = 16
_STEPS = 2
_MAX_NAME = 100
_WRAPPED = ".base_dataloader"
"""Where accelerate's dataloaders keep the one that they wrap: a program has a variable of the outer one."""
_LOADER = frozenset({"dataset", "batch_sampler", "sampler", "_iterator", "drop_last"})
"""Attributes of a torch.utils.data.DataLoader."""


class HeldLoader(NamedTuple):
    """A dataloader that a variable holds."""

    address: int
    name: str
    sampler: int
    """Of the sampler that its iterators have, too."""
    dataset: int
    frame: MemoryFrame


class Reached:
    """What the variables of a stack reach."""

    def __init__(self, objects: Objects, frames: Frames) -> None:
        self._objects, self._frames = objects, frames
        self.loaders: list[HeldLoader] = []
        """Those in variables of the user's own code, and in attributes of these."""
        self.counts: list[TrainerCount] = []
        self._names: dict[int, str] = {}
        self._seen: set[int] = set()
        self._dull: set[int] = set()
        """Classes without anything that is looked for."""

    def name_of(self, sampler: int) -> str | None:
        """The name of the dataloader that has a sampler; None if no variable holds it."""
        return self._names.get(sampler)

    def look_in(self, frame: MemoryFrame) -> None:
        """Look at the variables of a frame: all of the user's own code; in a library, `self`."""
        self._add(counts_of_function(self._objects, self._frames, frame))
        library = is_library(frame.file)
        names = ("self",) if library else frame.variables
        todo = [(name, frame.variables[name], 0) for name in names if name in frame.variables and len(name) < _MAX_NAME]
        while todo:
            name, address, step = todo.pop(0)
            with contextlib.suppress(Unreadable):
                attributes = self._read_attributes(address)
                if attributes.keys() >= _LOADER:
                    self._hold(name, address, attributes, frame, library=library)
                elif step < _STEPS:
                    todo += [(f"{name}.{attribute}", value, step + 1) for attribute, value in attributes.items()]

    def _read_attributes(self, address: int) -> dict[str, int]:
        """The attributes of an object that is seen for the first time, of a class that may lead further."""
        objects = self._objects
        if address in self._seen or len(self._seen) >= _MAX_OBJECTS or not objects.is_instance(address):
            return {}
        kind = objects.memory.word(address + 8)
        if kind in self._dull:
            return {}
        self._add(counts_of_object(objects, address))
        self._seen.add(address)
        try:
            attributes = dict(islice(objects.memory.attributes(address), _MAX_ATTRIBUTES))
        except Unreadable:
            self._dull.add(kind)
            return {}
        if "_parameters" in attributes and "_modules" in attributes:  # a model has thousands of objects, and no loader
            self._dull.add(kind)
            return {}
        return attributes

    def _hold(self, name: str, address: int, attributes: dict[str, int], frame: MemoryFrame, *, library: bool) -> None:
        batched = self._objects.memory.kind(attributes["batch_sampler"])[0] != "NoneType"
        sampler = attributes["batch_sampler" if batched else "sampler"]
        name = name.removesuffix(_WRAPPED)
        self._names.setdefault(sampler, name)
        if not library:
            self.loaders.append(HeldLoader(address, name, sampler, attributes["dataset"], frame))

    def _add(self, counts: list[TrainerCount]) -> None:
        have = {(count.framework, count.name) for count in self.counts}
        self.counts += [count for count in counts if (count.framework, count.name) not in have]
        del self.counts[_MAX_COUNTS:]


def reach(objects: Objects, frames: Frames, stack: list[MemoryFrame]) -> Reached:
    """What the variables of a stack (the outermost frame first) reach; the innermost frames are looked at first."""
    reached = Reached(objects, frames)
    for frame in reversed(stack):
        reached.look_in(frame)
    return reached
