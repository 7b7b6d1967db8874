"""Learns the object layout of an interpreter from objects whose values are known.

A form of the layout is used only if it reads a known object correctly. So there is no table of offsets per version: a new
version works if no relevant part changed. An interpreter with an unknown layout is refused, never misread.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

from hangdoc.observe.memory.memory import DICT, MANAGED_DICT, Memory, Unreadable
from hangdoc.observe.memory.object_layout import Instances, Layout

_OF_SYS = frozenset({"maxunicode", "hexversion", "float_info", "path", "stdlib_module_names"})
_OF_OS = frozenset({"environ", "environb", "getenv"})
_ENVIRON = frozenset({"encodekey", "decodekey", "encodevalue", "decodevalue", "_data"})
"""The attributes of os.environ."""
_FLOAT_INFO = {1: sys.float_info.max_exp, 4: sys.float_info.min_exp, 7: sys.float_info.mant_dig}
"""Fields of the tuple sys.float_info that are the same on every platform; one is negative."""
_PREFERRED: dict[tuple[int, int], Instances] = {(3, 11): "before", (3, 12): "tagged"}
"""The form to try first, by version: an instance whose attributes were moved into a dict looks the same in two forms."""


class Misread(Exception):
    """No known form reads a known object correctly. The text names the kind of object."""


def calibrate(memory: Memory, modules: int, likely: Layout | None = None) -> tuple[int, int]:
    """Complete `memory.layout` and return the interpreter's (major, minor) version. `modules` is the address of sys.modules;
    the forms of str and dict must be known already. `likely` is the layout of another process of the same build: its offsets are
    tried first, but not trusted, because that process may have changed its objects.

    Raises Misread for objects of an unknown form. `instances` stays None if the form of instances is unknown, or if `os` is
    not imported (yet).
    """
    names = memory.find_named(modules, ("sys", "os"))
    system: dict[str, int] = {}
    with contextlib.suppress(Unreadable, KeyError):
        system = memory.namespace(names["sys"], _OF_SYS)
    if not system.keys() >= _OF_SYS:
        raise Misread("the module sys")
    _choose(
        memory, "ints", ({"tagged_ints": True}, {"tagged_ints": False}),
        lambda: memory.integer(system["maxunicode"]) == sys.maxunicode,
    )  # fmt: skip
    _choose(
        memory,
        "tuples",
        ({"tuple_items": 24}, {"tuple_items": 32}),
        lambda: _is_float_info(memory, system["float_info"]),
    )
    _choose(
        memory, "lists", ({},), lambda: all(memory.kind(element)[0] for element in memory.elements(system["path"], 16))
    )
    _choose(memory, "sets", ({},), lambda: 100 < (memory.length(system["stdlib_module_names"]) or 0) < 1000)
    release = memory.integer(system["hexversion"])
    version = release >> 24, release >> 16 & 0xFF
    os_module = memory.namespace(names["os"], _OF_OS) if "os" in names else {}
    if not os_module.keys() >= _OF_OS:
        return version  # os is not imported, or still being imported
    likely = likely or Layout()
    memory.layout = memory.layout._replace(function_name=_find_name_offset(memory, os_module["getenv"], likely))
    for name in ("environ", "environb"):  # a script may have replaced os.environ
        with contextlib.suppress(Unreadable, Misread):
            _learn_instances(memory, os_module[name], version, likely)
            break
    return version


def _choose(memory: Memory, what: str, forms: Iterable[dict[str, Any]], reads_right: Callable[[], bool]) -> None:
    """Set the first form that reads a known object correctly. Raises Misread if none does."""
    original: Layout = memory.layout
    for form in forms:
        memory.layout = original._replace(**form)
        with contextlib.suppress(Unreadable):
            if reads_right():
                return
    memory.layout = original
    raise Misread(what)


def _is_float_info(memory: Memory, address: int) -> bool:
    fields = list(memory.elements(address, 11))
    return (
        len(fields) == 11
        and memory.number(fields[0]) == sys.float_info.max
        and all(memory.integer(fields[index]) == value for index, value in _FLOAT_INFO.items())
    )


def _find_name_offset(memory: Memory, function: int, likely: Layout) -> int | None:
    """Offset of `func_name` (or of the equal `func_qualname`) in `os.getenv`."""
    for offset in _with_first(likely.function_name, range(16, 96, 8)):
        with contextlib.suppress(Unreadable):
            if memory.text(memory.word(function + offset)) == "getenv":
                return offset
    return None


def _with_first(likely: int | None, offsets: range) -> Iterable[int]:
    return offsets if likely is None else (likely, *offsets)


def _learn_instances(memory: Memory, environ: int, version: tuple[int, int], likely: Layout) -> None:
    """Learn from `os.environ` and its class where an instance stores its attributes."""
    type_address = memory.word(environ + 8)
    if not memory.kind(environ)[1] & MANAGED_DICT:
        forms: list[Instances] = ["dict"]
    else:
        forms = sorted(("inline", "tagged", "before"), key=lambda form: form != _PREFERRED.get(version, "inline"))
    cached = None
    for offset in _with_first(likely.cached_keys, range(400, 1400, 8)) if "dict" not in forms else ():
        with contextlib.suppress(Unreadable):
            if memory.shared_names(memory.word(type_address + offset)) >= _ENVIRON:
                cached = offset
                break
    _choose(
        memory, "instances", [{"instances": form, "cached_keys": cached} for form in forms],
        lambda: _is_environ(memory, environ),
    )  # fmt: skip


def _is_environ(memory: Memory, address: int) -> bool:
    attributes = dict(memory.attributes(address))
    if not attributes.keys() >= _ENVIRON or not memory.kind(attributes["_data"])[1] & DICT:
        return False
    pairs = list(memory.items(attributes["_data"]))[:16]
    return all(
        memory.read(item + 32 + memory.word(item + 16), 1) == b"\0" for pair in pairs for item in pair
    )  # bytes end so
