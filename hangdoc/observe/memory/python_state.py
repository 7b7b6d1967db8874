"""The state in the modules of another process's interpreter that stacks do not show.

There are three kinds: variables of a loop at module level, changes of `os.environ` after the start (launchers that become
rank 0 themselves, `mp.spawn` workers), and the members of torch's process groups. All can be reached from `sys.modules`.
"""

import contextlib
import math
import struct
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from hangdoc.observe.memory.locate import Image
from hangdoc.observe.memory.memory import DICT, LONG, UNICODE, Memory, Unreadable
from hangdoc.regex import regex
from hangdoc.snapshot import MOST_P2P_OPS, Group
from hangdoc.torch_facts import call_names, dtypes, module_names


class Variable(NamedTuple):
    """A module's variable: a number, a short string, or the length of a container."""

    name: str
    text: str
    number: int | None
    length: int | None


_THREADING = "threading"
_SHUTTING_DOWN, _THREADS, _MAIN_THREAD = "_SHUTTING_DOWN", "_active", "_main_thread"
"""Variables of threading.py since Python 3.9: whether the main thread is over, all threads by their identifiers, the main one."""
_MAX_THREADS = 256
_USED = {
    "os": ("environ",),
    _THREADING: (_SHUTTING_DOWN, _THREADS, _MAIN_THREAD),
    **module_names.USED_VARIABLES,
}
"""Modules with hundreds of variables, and the few that hangdoc looks up."""
_MAX_NAME = 100
"""Of an attribute. The rules search in names."""
_MAX_ENVIRONMENT = 2 << 20
"""Characters. The kernel's limit for a new program is a quarter of its stack, 2 MiB by default (execve(2))."""


class Modules:
    """`sys.modules` of one process."""

    def __init__(self, memory: Memory, image: Image) -> None:
        self._memory = memory
        self._address = image.modules

    def namespace(self, *wanted: str) -> dict[str, dict[str, int]]:
        """By wanted module: names and addresses of its variables; for a module in `_USED`, only those. Modules that are not
        imported are missing."""
        namespaces: dict[str, dict[str, int]] = {}
        for name, module in self._memory.find_named(self._address, wanted).items():
            with contextlib.suppress(Unreadable):
                namespaces[name] = self._memory.namespace(module, _USED.get(name, ()))
        return namespaces


def variable(memory: Memory, name: str, address: int) -> Variable | None:
    """A variable as a short text; None for objects without one."""
    kind, flags = memory.kind(address)
    if kind == "bool":
        return Variable(name, str(bool(memory.integer(address))), None, None)
    if flags & LONG:
        number = memory.integer(address)
        return Variable(name, str(number), number, None)
    if kind == "float":
        return Variable(name, f"{memory.number(address):.12g}", None, None)
    if flags & UNICODE:
        return Variable(name, repr(memory.text(address)[:200]), None, None)
    if (text := torch_value(memory, address)) is not None:
        return Variable(name, text, None, None)
    length = memory.length(address)
    return None if length is None else Variable(name, f"<{kind} of {length}>", None, length)


def torch_value(memory: Memory, address: int) -> str | None:
    """A torch.dtype as `torch.bfloat16`, a tensor as `float32[64, 8]`; None for anything else.

    torch/csrc/Dtype.h stores the name inline. A tensor's Python object points to its c10::TensorImpl, whose fields move
    between versions. So hangdoc searches for a consistent sequence: the number of dimensions, the sizes, their product in
    `numel`, and a known dtype. Anything inconsistent is ignored. Of two such sequences, that with more dimensions is the tensor:
    a zero before a field that is 1, such as the last stride, looks like a tensor without dimensions.
    """
    kind, _ = memory.kind(address)
    if kind == module_names.DTYPE:
        name = memory.read(address + 17, 24).split(b"\0", 1)[0]
        return f"torch.{name.decode()}" if name.isalnum() or name.replace(b"_", b"").isalnum() else None
    if kind not in module_names.TENSORS:
        return None
    for offset in (16, 24):  # since torch 2.10 only an owning pointer, before that a flag and the pointer
        with contextlib.suppress(Unreadable):
            words = struct.unpack("<26Q", memory.read(memory.word(address + offset), 208))
            shapes = [shape for at in range(4, 10) if (shape := _shape_at(words, at)) is not None]
            if shapes:
                dtype, sizes = max(shapes, key=lambda shape: len(shape[1]))
                return f"{dtype}[{', '.join(map(str, sizes))}]"
    return None


def _shape_at(words: tuple[int, ...], at: int) -> tuple[str, tuple[int, ...]] | None:
    """The dtype and the sizes of a tensor whose number of dimensions is word `at` of a c10::TensorImpl; None if the words do not
    fit."""
    count, numel, number = words[at], words[at + 12], words[at + 13] & 0xFFFF
    if count > 5 or number >= len(dtypes.BY_NUMBER):
        return None
    dtype, sizes, strides = dtypes.BY_NUMBER[number], words[at + 1 : at + 1 + count], words[at + 6 : at + 6 + count]
    fits = dtype in dtypes.COMMON and math.prod(sizes) == numel and all(stride < 1 << 40 for stride in strides)
    return (dtype, sizes) if fits else None


def threads_that_keep_alive(memory: Memory, modules: Modules) -> tuple[str, ...]:
    """Names of the threads for whose ends Python waits before the process ends; empty while the main thread runs. Raises
    Unreadable."""
    threading_module = modules.namespace(_THREADING).get(_THREADING, {})
    over = threading_module.get(_SHUTTING_DOWN)
    if over is None or not memory.integer(over):
        return ()
    names = []
    for _, thread in islice(memory.items(threading_module[_THREADS]), _MAX_THREADS):
        with contextlib.suppress(Unreadable, KeyError):
            fields = dict(memory.attributes(thread))
            if thread != threading_module.get(_MAIN_THREAD) and not memory.integer(fields["_daemonic"]):
                names.append(memory.text(fields["_name"])[:_MAX_NAME])
    return tuple(sorted(names))


def live_environment(memory: Memory, os_module: dict[str, int]) -> dict[str, str]:
    """`os.environ` of the process at this moment. Raises Unreadable."""
    # os._Environ has its dict in the instance attribute `_data`.
    address = dict(memory.attributes(os_module["environ"]))["_data"]
    environment = {}
    size = 0
    for key, value in memory.items(address):
        with contextlib.suppress(Unreadable):
            name, text = memory.data(key).decode("utf-8", "replace"), memory.data(value).decode("utf-8", "replace")
            size += len(name) + len(text)
            environment[name] = text
        if size > _MAX_ENVIRONMENT:
            raise Unreadable("its environment is larger than that of any program")
    return environment


_PLAIN = regex(r"True|False|-?\d[\d.]*(e[+-]?\d+)?|-?inf|nan")
"""The text of a truth value or of a floating-point number."""


def amounts(memory: Memory, name: str, instance: int, depth: int = 2) -> Iterator[Variable]:
    """Numbers, truth values and lengths of containers in the attributes of an object, such as `loader.dataset.paths`: a script
    keeps the size of its data and its settings there. Attributes that begin with an underscore are skipped."""
    for attribute, address in islice(memory.attributes(instance), 48):
        if attribute.startswith("_") or len(attribute) > _MAX_NAME:
            continue
        path = f"{name}.{attribute}"
        with contextlib.suppress(Unreadable):
            value = variable(memory, path, address)
            if value is not None:
                if value.number is not None or value.length is not None or _PLAIN.fullmatch(value.text):
                    yield value
            elif depth > 1:
                yield from amounts(memory, path, address, depth - 1)


def p2p_ops(memory: Memory, name: str, address: int) -> Iterator[Variable]:
    """The operations in a list for batch_isend_irecv, each as `P2POp(isend, 1)`: the call and its peer."""
    name_at = memory.layout.function_name
    if name_at is None:
        return
    for index, element in enumerate(memory.elements(address, MOST_P2P_OPS)):
        with contextlib.suppress(Unreadable, KeyError):
            fields = dict(memory.attributes(element))
            call = memory.text(memory.word(fields["op"] + name_at))
            yield Variable(
                f"{name}[{index}]", f"{call_names.P2P_OP}({call}, {memory.integer(fields['peer'])})", None, None
            )


def rpc_workers(memory: Memory, rpc: dict[str, int]) -> int | None:
    """How many workers torch.distributed.rpc has, from the variables of its module; None if it is not imported."""
    return memory.length(rpc[module_names.RPC_WORKERS]) if module_names.RPC_WORKERS in rpc else None


def process_groups(memory: Memory, c10d: dict[str, int], engine: dict[str, int] | None = None) -> tuple[Group, ...]:
    """torch's process groups with their members and backends, from the registry in torch.distributed.distributed_c10d, and with
    the names that the variables of a serving engine's module give them."""
    names, backends = (
        _read_texts_by_group(memory, c10d, table) for table in (module_names.GROUP_NAMES, module_names.GROUP_BACKENDS)
    )
    groups = []
    for group, members in memory.items(c10d[module_names.GROUP_RANKS]) if module_names.GROUP_RANKS in c10d else ():
        with contextlib.suppress(Unreadable):
            if memory.kind(members)[1] & DICT:
                ranks = tuple(sorted(memory.integer(rank) for rank, _ in memory.items(members)))
                groups.append((group, ranks))
    labels = _read_engine_names(memory, engine or {})
    # init_process_group creates the default group first, and a dict is ordered.
    return tuple(
        Group(
            address=group,
            name=names.get(group),
            label=labels.get(group),
            ranks=ranks,
            default=index == 0,
            backend=backends.get(group),
        )
        for index, (group, ranks) in enumerate(groups)
    )


def _read_engine_names(memory: Memory, engine: dict[str, int]) -> dict[int, str]:
    """What a serving engine calls torch's groups, by their addresses. It may hold one in several variables."""
    labels: dict[int, str] = {}
    for variable_name, address in engine.items():
        with contextlib.suppress(Unreadable, KeyError):
            if variable_name.isupper() and memory.kind(address)[0] == module_names.ENGINE_GROUP:
                fields = dict(memory.attributes(address))
                name = memory.text(fields[module_names.ENGINE_GROUP_NAME])[:_MAX_NAME]
                for attribute, addition in module_names.ENGINE_GROUP_MEMBERS.items():
                    labels.setdefault(fields[attribute], name + addition)
    return labels


def _read_texts_by_group(memory: Memory, c10d: dict[str, int], table: str) -> dict[int, str]:
    """The dict of strings by process group in the variable `table`; empty if this torch has no such variable."""
    texts: dict[int, str] = {}
    for group, text in memory.items(c10d[table]) if table in c10d else ():
        with contextlib.suppress(Unreadable):
            texts[group] = memory.text(text)
    return texts
