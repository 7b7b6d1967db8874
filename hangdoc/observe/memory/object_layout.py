"""Where CPython stores the parts of its objects, as far as versions differ.

Sources: CPython's Include/cpython/unicodeobject.h, longintrepr.h, tupleobject.h, funcobject.h and object.h, and
Include/internal/pycore_dict.h, of 3.10 to 3.15. `calibrate` chooses among these forms by what it finds in the process, not
by the version.
"""

from typing import Literal, NamedTuple

Instances = Literal["before", "tagged", "inline", "dict"]
"""Where a plain instance stores its attributes.

`before` (3.11): two pointers in front of the object, to the values and to the dict. `tagged` (3.12): one pointer to either.
`inline` (since 3.13): values right after the object. `dict` (3.10): a dict at tp_dictoffset.
"""


class Layout(NamedTuple):
    """Offsets in bytes from the start of an object."""

    text: int = 40
    """The characters of a compact ASCII str. 48 up to 3.11, which still had `wstr`."""
    wide_keys: bool = False
    """Up to 3.10: `dk_size` and `dk_lookup` of dict keys are words, and all entries have one form."""
    tagged_ints: bool = True
    """`lv_tag` has the number of digits and the sign of an int. Up to 3.11, `ob_size` has both."""
    tuple_items: int = 24
    """The first item of a tuple. 32 since 3.14, which caches the hash."""
    function_name: int | None = None
    """`func_name` of a function; None if unknown."""
    instances: Instances | None = None
    """None if unknown."""
    cached_keys: int | None = None
    """`ht_cached_keys` of a class; None if unknown or not needed."""


TEXTS_AND_KEYS = (Layout(), Layout(text=48), Layout(text=48, wide_keys=True))
"""The forms of str and dict: since 3.12, of 3.11, up to 3.10. Objects can be read by name only with the right one."""
