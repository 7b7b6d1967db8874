"""Where CPython keeps the parts of its objects, as far as versions differ.

Sources: CPython's Include/cpython/unicodeobject.h, longintrepr.h, tupleobject.h, funcobject.h and object.h, and
Include/internal/pycore_dict.h, read for 3.10 to 3.15. `calibrate` chooses among these forms by what it finds in the
process, not by its version.
"""

from typing import Literal, NamedTuple

Instances = Literal["before", "tagged", "inline", "dict"]
"""Where a plain instance keeps its attributes.

`before`: 3.11, pointers to values and dict before the object. `tagged`: 3.12, one pointer to either. `inline`: 3.13 on,
values behind the object. `dict`: 3.10, a dict at tp_dictoffset.
"""


class Layout(NamedTuple):
    """Offsets in bytes from the start of an object."""

    text: int = 40
    """The characters of a compact ASCII str. 48 until 3.11, which still had `wstr`."""
    wide_keys: bool = False
    """Dict keys with `dk_size` and `dk_lookup` as words, and entries of one form: until 3.10."""
    tagged_ints: bool = True
    """Number of digits and sign of an int in `lv_tag`; until 3.11 both are `ob_size`."""
    tuple_items: int = 24
    """The first item of a tuple. 32 since 3.14, which caches the hash."""
    function_name: int | None = None
    """`func_name` of a function; None where it could not be found."""
    instances: Instances | None = None
    """None where it could not be found."""
    cached_keys: int | None = None
    """`ht_cached_keys` of a class; None where it could not be found, or is not needed."""


TEXTS_AND_KEYS = (Layout(), Layout(text=48), Layout(text=48, wide_keys=True))
"""The forms of str and dict: since 3.12, 3.11, until 3.10. One of them has to be right before anything can be read by name."""
